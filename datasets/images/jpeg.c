/* jpeg.c: JPEG files, read with libjpeg.
 *
 * If a file is malformed, the library leaves by longjmp. The state of a decoder belongs to the caller of the function that calls
 * setjmp, so that a jump loses no change of it. Warnings that pixels are missing, which the library then guesses, are errors.
 * Other warnings, about markers and parameters, do not affect pixels and are ignored.
 *
 * Limits: colour profiles and the EXIF orientation are not applied, as in torchvision's ImageFolder. */
#include "config.h"
#include "datasets/formats.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef SGRAD_HAVE_JPEG
#include <jpeglib.h>
#include <jerror.h>

#define SCAN_LIMIT  500        /* of a progressive JPEG: each scan costs a pass over the whole image */
#define JPEG_PIXELS 512        /* maximum pixels per byte: 64 pixels take at least one bit */

struct jpeg {
    struct jpeg_decompress_struct decoder;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf back;
    const char *name;
    const unsigned char *data;
    size_t size;
    struct sgrad__image_use use;
    struct sgrad__image image;
    uint8_t *cmyk; /* one row */
};

static _Noreturn void jpeg_leave(struct jpeg *jpeg, const char *reason) {
    const unsigned char *next = jpeg->decoder.src ? jpeg->decoder.src->next_input_byte : jpeg->data;
    const bool inside = next >= jpeg->data && next < jpeg->data + jpeg->size; /* else at the end that libjpeg substitutes */
    sgrad_log_error(SGRAD_EFORMAT, "jpeg: %s: byte %zu: %s", jpeg->name, inside ? (size_t)(next - jpeg->data) : jpeg->size,
                    reason);
    longjmp(jpeg->back, 1);
}

static _Noreturn void jpeg_error(j_common_ptr decoder) {
    char reason[JMSG_LENGTH_MAX];
    decoder->err->format_message(decoder, reason);
    jpeg_leave(decoder->client_data, reason);
}

/* Returns true if a missing end of the file can be ignored: its only scan contains all pixels. If that scan is incomplete, the
 * warning JWRN_HIT_MARKER follows. If there are several scans, missing ones cause no other warning. With arithmetic coding, the
 * decoder continues with zeros and without a warning. */
static bool is_one_scan(const struct jpeg_decompress_struct *decoder) {
    return decoder->output_height && !decoder->progressive_mode && !decoder->arith_code &&
           decoder->comps_in_scan == decoder->num_components;
}

static void jpeg_message(j_common_ptr decoder, int level) {
    static const int missing[] = { JWRN_HIT_MARKER, JWRN_HUFF_BAD_CODE, JWRN_MUST_RESYNC, JWRN_ARITH_BAD_CODE };
    const int code = decoder->err->msg_code;
    if (level >= 0) return; /* a trace, not a warning */
    for (size_t i = 0; i < sizeof missing / sizeof *missing; i++)
        if (code == missing[i]) jpeg_error(decoder);
    if (code == JWRN_JPEG_EOF && !is_one_scan(&((struct jpeg *)decoder->client_data)->decoder)) jpeg_error(decoder);
}

static void jpeg_progress(j_common_ptr decoder) {
    struct jpeg *jpeg = decoder->client_data;
    if (jpeg->decoder.input_scan_number > SCAN_LIMIT) jpeg_leave(jpeg, "too many scans");
}

/* Adobe stores inverted inks; the standard does not. */
static void cmyk_to_rgb(const uint8_t *cmyk, bool adobe, int width, uint8_t *rgb) {
    const unsigned flip = adobe ? 255 : 0;
    for (int x = 0; x < width; x++) {
        uint16_t ink[4], colour[3];
        for (int c = 0; c < 4; c++) ink[c] = cmyk[4 * x + c] ^ flip;
        sgrad__image_of_inks(ink, 255, colour);
        for (int c = 0; c < 3; c++) rgb[3 * x + c] = (uint8_t)colour[c];
    }
}

/* Returns the number of eighths of its size at which an image of HEIGHT x WIDTH is decoded, so that the shorter side has at least
 * LEAST pixels: 1, 2, 4 or 8, for which libjpeg has fast transforms. */
static unsigned eighths(unsigned height, unsigned width, int least) {
    const unsigned side = height < width ? height : width;
    unsigned n = 8;
    while (least && n > 1 && side * (n / 2) / 8 >= (unsigned)least) n /= 2;
    return n;
}

/* Restricts the decoder to the columns of the image that are used. Returns the first of them. Before and after them, as many more
 * are decoded as affect their colours, which may have a lower resolution than the brightness. Progressive images are decoded as a
 * whole: if scans are missing, libjpeg smooths over more blocks. */
static int omit_columns(struct jpeg *jpeg) {
#if defined(LIBJPEG_TURBO_VERSION_NUMBER) && LIBJPEG_TURBO_VERSION_NUMBER >= 1005000
    const struct sgrad__image *image = &jpeg->image;
    const int margin = DCTSIZE * jpeg->decoder.max_h_samp_factor;
    int from, to;
    if (!jpeg->use.side || jpeg->decoder.progressive_mode) return 0;
    sgrad__image_columns(image->height, image->width, jpeg->use.scaled, jpeg->use.side, &from, &to);
    JDIMENSION first = (JDIMENSION)(from < margin ? 0 : from - margin);
    JDIMENSION count = (JDIMENSION)(to + margin < image->width ? to + margin : image->width) - first;
    if (count == (JDIMENSION)image->width) return 0;
    jpeg_crop_scanline(&jpeg->decoder, &first, &count);
    return (int)first;
#else
    (void)jpeg;
    return 0;
#endif
}

static int jpeg_run(struct jpeg *jpeg, bool pixels) {
    struct jpeg_decompress_struct *decoder = &jpeg->decoder;
    if (setjmp(jpeg->back)) return SGRAD_EFORMAT;
    jpeg_create_decompress(decoder);
    decoder->client_data = jpeg;
    decoder->progress = &jpeg->progress;
    jpeg_mem_src(decoder, jpeg->data, jpeg->size);
    jpeg_read_header(decoder, TRUE);
    SGRAD_TRY(sgrad__image_check_size("jpeg", jpeg->name, decoder->image_width, decoder->image_height,
                                      (uint64_t)jpeg->size * JPEG_PIXELS));
    struct sgrad__image *image = &jpeg->image;
    decoder->scale_num = eighths(decoder->image_height, decoder->image_width, jpeg->use.least);
    decoder->scale_denom = 8;
    jpeg_calc_output_dimensions(decoder);
    image->width = (int)decoder->output_width;
    image->height = (int)decoder->output_height;
    image->grey = decoder->jpeg_color_space == JCS_GRAYSCALE;
    if (!pixels) return 0;

    const bool cmyk = decoder->jpeg_color_space == JCS_CMYK || decoder->jpeg_color_space == JCS_YCCK;
    const size_t stride = 3 * (size_t)image->width;
    decoder->out_color_space = cmyk ? JCS_CMYK : JCS_RGB;
    jpeg_start_decompress(decoder);
    const size_t first = cmyk ? 0 : 3 * (size_t)omit_columns(jpeg);
    image->rgb = sgrad_xcalloc((size_t)image->height, stride);
    if (cmyk) jpeg->cmyk = sgrad_xcalloc((size_t)image->width, 4);
    while (decoder->output_scanline < decoder->output_height) {
        uint8_t *to = image->rgb + decoder->output_scanline * stride + first, *row = cmyk ? jpeg->cmyk : to;
        jpeg_read_scanlines(decoder, &row, 1);
        if (cmyk) cmyk_to_rgb(row, decoder->saw_Adobe_marker, image->width, to);
    }
    jpeg_finish_decompress(decoder);
    return 0;
}

static int read_with(struct jpeg *jpeg, bool pixels, struct sgrad__image *image) {
    jpeg->decoder.err = jpeg_std_error(&jpeg->errors);
    jpeg->decoder.client_data = jpeg;
    jpeg->errors.error_exit = jpeg_error;
    jpeg->errors.emit_message = jpeg_message;
    jpeg->progress.progress_monitor = jpeg_progress;
    int error = jpeg_run(jpeg, pixels);
    jpeg_destroy_decompress(&jpeg->decoder);
    free(jpeg->cmyk);
    if (error)
        free(jpeg->image.rgb);
    else
        *image = jpeg->image;
    return error;
}

static int read_jpeg(const char *name, const void *data, size_t size, bool pixels, struct sgrad__image *image) {
    struct jpeg jpeg = { .name = name, .data = data, .size = size };
    return read_with(&jpeg, pixels, image);
}

static int read_for(const char *name, const void *data, size_t size, const struct sgrad__image_use *use,
                    struct sgrad__image *image) {
    struct jpeg jpeg = { .name = name, .data = data, .size = size, .use = *use };
    return read_with(&jpeg, true, image);
}

#endif

static bool is_jpeg(const unsigned char *data, size_t size) { return size >= 3 && !memcmp(data, "\xff\xd8\xff", 3); }

const struct sgrad__image_format sgrad__jpeg_image = {
    .name = "JPEG", .library = "jpeg", .endings = ".jpg .jpeg .jpe .jfif", .is = is_jpeg,
#ifdef SGRAD_HAVE_JPEG
    .read = read_jpeg,
    .read_for = read_for,
#endif
};
