/* netpbm.c: PBM, PGM and PPM files: P1 to P3 are text, P4 to P6 are binary.
 *
 *     P6                   kind: 1 and 4 black and white, 2 and 5 grey, 3 and 6 colours
 *     # comment
 *     640 480              width, height
 *     255                  the largest value, up to 65535; kinds 1 and 4 have none
 *     …                    pixels, after one blank
 *
 * If the largest value is above 255, a value has two bytes, big-endian, and is scaled to 65535; otherwise values are scaled to
 * 255. Limits: no PAM (P7). */
#include "config.h"
#include "datasets/formats.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct netpbm {
    const char *name;
    const unsigned char *data;
    size_t size, at;
};

static int wrong(const struct netpbm *netpbm, const char *what) {
    return sgrad_log_error(SGRAD_EFORMAT, "netpbm: %s: byte %zu: %s", netpbm->name, netpbm->at, what);
}

/* Skips blanks and comments. */
static void pass_blanks(struct netpbm *netpbm) {
    for (; netpbm->at < netpbm->size && (isspace(netpbm->data[netpbm->at]) || netpbm->data[netpbm->at] == '#'); netpbm->at++)
        if (netpbm->data[netpbm->at] == '#')
            while (netpbm->at + 1 < netpbm->size && netpbm->data[netpbm->at] != '\n' && netpbm->data[netpbm->at] != '\r')
                netpbm->at++;
}

/* Returns the next number; negative: no number follows. */
static int64_t next_number(struct netpbm *netpbm) {
    int64_t number = -1;
    pass_blanks(netpbm);
    for (; netpbm->at < netpbm->size && isdigit(netpbm->data[netpbm->at]) && number < 1000000; netpbm->at++)
        number = (number < 0 ? 0 : number) * 10 + netpbm->data[netpbm->at] - '0';
    return number;
}

/* Returns the next value of a text file; negative: the file ends. Values of P1 are single digits, without blanks between them. */
static int64_t next_text(struct netpbm *netpbm, bool bits) {
    if (!bits) return next_number(netpbm);
    pass_blanks(netpbm);
    return netpbm->at < netpbm->size && (netpbm->data[netpbm->at] == '0' || netpbm->data[netpbm->at] == '1')
               ? netpbm->data[netpbm->at++] - '0'
               : -1;
}

/* Returns value I of a row of a binary file. */
static int64_t value_at(const unsigned char *row, size_t i, bool bits, unsigned most) {
    if (bits) return row[i / 8] >> (7 - i % 8) & 1;
    return most > 255 ? row[2 * i] << 8 | row[2 * i + 1] : row[i];
}

/* Converts CHANNELS values per pixel, 0 to MOST, to RGB. */
static int read_pixels(struct netpbm *netpbm, int kind, int channels, unsigned most, struct sgrad__image *image) {
    const size_t height = (size_t)image->height, values = (size_t)image->width * (size_t)channels;
    const bool bits = kind == 1 || kind == 4, text = kind <= 3;
    const size_t bytes = most > 255 ? 2 : 1, stride = bits ? (values + 7) / 8 : values * bytes;
    if (!text && height * stride > netpbm->size - netpbm->at)
        return netpbm->at = netpbm->size, wrong(netpbm, "the file ends early");
    const unsigned range = image->deep ? 65535 : 255;
    const size_t copies = channels == 3 ? 1 : 3;        /* a value of grey is red, green and blue */
    for (size_t i = 0; i < height * values; i++) {
        int64_t value =
            text ? next_text(netpbm, bits) : value_at(netpbm->data + netpbm->at + i / values * stride, i % values, bits, most);
        if (value < 0) return wrong(netpbm, netpbm->at < netpbm->size ? "a number is expected here" : "the file ends early");
        if (value > most) value = most;
        if (bits) value = !value;
        value = (int64_t)rint((double)value / most * range);
        for (size_t at = i * copies; at < (i + 1) * copies; at++)
            if (image->deep) image->rgb16[at] = (uint16_t)value;
            else image->rgb[at] = (uint8_t)value;
    }
    return 0;
}

static int read_netpbm(const char *name, const void *data, size_t size, bool pixels, struct sgrad__image *image) {
    struct netpbm n = { .name = name, .data = data, .size = size, .at = 2 };
    const int kind = n.data[1] - '0', channels = kind % 3 ? 1 : 3;
    const int64_t width = next_number(&n), height = next_number(&n), most = kind % 3 == 1 ? 1 : next_number(&n);
    if (width < 0 || height < 0 || most < 1 || most > 65535)
        return wrong(&n, "the header must be a width, a height and a largest value");
    if (n.at >= n.size || !isspace(n.data[n.at])) return wrong(&n, "white space must follow the header");
    n.at++;
    SGRAD_TRY(sgrad__image_check_size("netpbm", name, (uint64_t)width, (uint64_t)height, (uint64_t)size * 8));
    struct sgrad__image is = { .height = (int)height, .width = (int)width, .grey = channels == 1, .deep = most > 255 };
    if (pixels) {
        void *to = sgrad_xcalloc((size_t)(height * width), is.deep ? 6 : 3);
        if (is.deep) is.rgb16 = to;
        else is.rgb = to;
        int error = read_pixels(&n, kind, channels, (unsigned)most, &is);
        if (error) return free(to), error;
    }
    *image = is;
    return 0;
}

static bool is_netpbm(const unsigned char *data, size_t size) {
    return size >= 3 && data[0] == 'P' && data[1] >= '1' && data[1] <= '6' && (isspace(data[2]) || data[2] == '#');
}

const struct sgrad__image_format sgrad__netpbm_image = {
    .name = "PBM, PGM, PPM", .endings = ".ppm .pgm .pbm .pnm", .is = is_netpbm, .read = read_netpbm
};
