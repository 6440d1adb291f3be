/* webp.c: WebP files, read with libwebp. Of an animation, the first image is read. */
#include "config.h"
#include "datasets/formats.h"

#include <stdlib.h>
#include <string.h>
#ifdef SGRAD_HAVE_WEBP
#include <webp/decode.h>
#include <webp/demux.h>

static int wrong(const char *name, const char *what) { return sgrad_log_error(SGRAD_EFORMAT, "webp: %s: %s", name, what); }

static bool read_still(const void *data, size_t size, struct sgrad__image *image) {
    const size_t stride = 3 * (size_t)image->width;
    return WebPDecodeRGBInto(data, size, image->rgb, (size_t)image->height * stride, (int)stride) != NULL;
}

static bool read_first(const void *data, size_t size, struct sgrad__image *image) {
    const WebPData whole = { data, size };
    WebPAnimDecoder *decoder = WebPAnimDecoderNew(&whole, NULL);
    uint8_t *canvas = NULL;     /* red, green, blue, alpha */
    int time;
    const bool read = decoder && WebPAnimDecoderGetNext(decoder, &canvas, &time);
    for (size_t i = 0; read && i < (size_t)image->height * (size_t)image->width; i++)
        memcpy(image->rgb + 3 * i, canvas + 4 * i, 3);
    if (decoder) WebPAnimDecoderDelete(decoder);
    return read;
}

static int read_webp(const char *name, const void *data, size_t size, bool pixels, struct sgrad__image *image) {
    WebPBitstreamFeatures is;
    if (WebPGetFeatures(data, size, &is) != VP8_STATUS_OK) return wrong(name, "is damaged, or ends early");
    SGRAD_TRY(sgrad__image_check_size("webp", name, (uint64_t)is.width, (uint64_t)is.height, UINT64_MAX));
    struct sgrad__image found = { .height = is.height, .width = is.width, .animated = is.has_animation };
    if (pixels) found.rgb = sgrad_xcalloc((size_t)is.height * (size_t)is.width, 3);
    if (pixels && !(is.has_animation ? read_first : read_still)(data, size, &found)) {
        free(found.rgb);
        return wrong(name, "its pixels cannot be read: the file is damaged or truncated");
    }
    *image = found;
    return 0;
}
#endif

static bool is_webp(const unsigned char *data, size_t size) {
    return size >= 12 && !memcmp(data, "RIFF", 4) && !memcmp(data + 8, "WEBP", 4);
}

const struct sgrad__image_format sgrad__webp_image = {
    .name = "WebP", .library = "webp", .endings = ".webp", .is = is_webp,
#ifdef SGRAD_HAVE_WEBP
    .read = read_webp,
#endif
};
