/* png.c: PNG files, read with libpng.
 *
 * If a file is malformed, the library leaves by longjmp. The state of a decoder belongs to the caller of the function that calls
 * setjmp, so that a jump loses no change of it. Warnings do not affect pixels: content that libpng cannot read is an error, and
 * so is a wrong checksum of any chunk. After all pixels are read, only errors in their chunks (IDAT) count: the end of a file may
 * be missing.
 *
 * Limits: colour profiles, gamma and the EXIF orientation are not applied, as in torchvision's ImageFolder. */
#include "config.h"
#include "datasets/datasets.h"
#include "datasets/formats.h"
#include "runtime/libraries.h"

#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#ifdef SGRAD_HAVE_PNG
#include <png.h>

#define PNG_PIXELS (8 * 1032) /* maximum pixels per byte: a pixel takes one bit or more, and deflate expands up to 1032 times */

struct png {
    png_struct *decoder;
    png_info *info;
    const char *name;
    const unsigned char *data;
    size_t size, at;
    bool whole;         /* all rows are read */
    struct sgrad__image image;
};

static _Noreturn void png_leave(png_struct *decoder, const char *reason) {
    struct png *png = png_get_error_ptr(decoder);
    if (png->whole && strncmp(reason, "IDAT", 4)) png_longjmp(decoder, 1);
    png->whole = false;
    sgrad_log_error(SGRAD_EFORMAT, "png: %s: byte %zu: %s", png->name, png->at, reason);
    png_longjmp(decoder, 1);
}

static void png_pass(png_struct *decoder, const char *warning) { (void)decoder, (void)warning; }

static void png_take(png_struct *decoder, png_byte *to, size_t n) {
    struct png *png = png_get_io_ptr(decoder);
    if (n > png->size - png->at) png->at = png->size, png_error(decoder, "the file ends early");
    memcpy(to, png->data + png->at, n);
    png->at += n;
}

/* Returns true if the chunk acTL precedes the first IDAT (APNG specification). libpng skips the chunks of further images. */
static bool png_is_animated(const struct png *png) {
    const unsigned char *data = png->data;
    for (size_t at = 8; at + 12 <= png->size;) {
        const size_t length = (size_t)data[at] << 24 | (size_t)data[at + 1] << 16 | (size_t)data[at + 2] << 8 | data[at + 3];
        if (!memcmp(data + at + 4, "acTL", 4)) return true;
        if (!memcmp(data + at + 4, "IDAT", 4) || length > png->size - at - 12) return false;
        at += 12 + length;
    }
    return false;
}

static int png_run(struct png *png, bool pixels) {
    png_struct *decoder = png->decoder;
    if (setjmp(png_jmpbuf(decoder))) return png->whole ? 0 : SGRAD_EFORMAT;
    png_set_read_fn(decoder, png, png_take);
    png_set_user_limits(decoder, SGRAD__SIDE_LIMIT, SGRAD__SIDE_LIMIT);
    png_set_crc_action(decoder, PNG_CRC_ERROR_QUIT, PNG_CRC_ERROR_QUIT);
    png_set_benign_errors(decoder, 1);
    png_set_option(decoder, PNG_MAXIMUM_INFLATE_WINDOW, PNG_OPTION_ON);     /* a file may state a window that is too small */
    png_set_keep_unknown_chunks(decoder, PNG_HANDLE_CHUNK_NEVER, NULL, -1); /* texts, profiles, times … */
    png_read_info(decoder, png->info);
    struct sgrad__image *image = &png->image;
    image->width = (int)png_get_image_width(decoder, png->info);
    image->height = (int)png_get_image_height(decoder, png->info);
    image->grey = !(png_get_color_type(decoder, png->info) & PNG_COLOR_MASK_COLOR);
    image->deep = png_get_bit_depth(decoder, png->info) > 8;
    image->animated = png_is_animated(png);
    SGRAD_TRY(sgrad__image_check_size("png", png->name, (uint64_t)image->width, (uint64_t)image->height,
                                      (uint64_t)png->size * PNG_PIXELS));
    if (!pixels) return 0;

    const bool deep = image->deep;
    png_set_expand(decoder); /* palettes, fewer than 8 bits */
    if (deep) png_set_swap(decoder); /* little-endian */
    png_set_gray_to_rgb(decoder);
    png_set_strip_alpha(decoder);
    const int passes = png_set_interlace_handling(decoder);
    png_read_update_info(decoder, png->info);
    const size_t stride = (deep ? 6 : 3) * (size_t)image->width;
    if (png_get_rowbytes(decoder, png->info) != stride) png_error(decoder, "the pixels cannot be converted to RGB");
    uint8_t *rows = sgrad_xcalloc((size_t)image->height, stride);
    if (deep) image->rgb16 = (uint16_t *)(void *)rows;
    else image->rgb = rows;
    for (int pass = 0; pass < passes; pass++)
        for (size_t y = 0; y < (size_t)image->height; y++) png_read_row(decoder, rows + y * stride, NULL);
    png->whole = true;
    png_read_end(decoder, NULL);
    return 0;
}

static int read_png(const char *name, const void *data, size_t size, bool pixels, struct sgrad__image *image) {
    struct png png = { .name = name, .data = data, .size = size };
    png.decoder = png_create_read_struct(PNG_LIBPNG_VER_STRING, &png, png_leave, png_pass);
    png.info = png.decoder ? png_create_info_struct(png.decoder) : NULL;
    int error = png.info ? png_run(&png, pixels) : sgrad_log_error(SGRAD_ENOMEM, "png: %s: no memory for libpng", name);
    png_destroy_read_struct(&png.decoder, &png.info, NULL);
    if (error) {
        free(png.image.rgb);
        free(png.image.rgb16);
    } else {
        *image = png.image;
    }
    return error;
}

int sgrad_png_encode(const uint8_t *rgb, int height, int width, void **file, size_t *size) {
    png_image png = { .version = PNG_IMAGE_VERSION, .format = PNG_FORMAT_RGB, .height = (unsigned)height,
                      .width = (unsigned)width };
    size_t bytes = PNG_IMAGE_PNG_SIZE_MAX(png);
    void *data = sgrad_xcalloc(bytes, 1);
    if (!png_image_write_to_memory(&png, data, &bytes, 0, rgb, 0, NULL)) {
        free(data);
        return sgrad_log_error(SGRAD_ENOMEM, "png: an image of %dx%d cannot be encoded: %s", width, height, png.message);
    }
    *file = data;
    *size = bytes;
    return 0;
}
#else
int sgrad_png_encode(const uint8_t *rgb, int height, int width, void **file, size_t *size) {
    (void)rgb, (void)height, (void)width, (void)file, (void)size;
    return sgrad_library_missing("png", "write PNG images");
}
#endif

static bool is_png(const unsigned char *data, size_t size) { return size >= 8 && !memcmp(data, "\x89PNG\r\n\x1a\n", 8); }

const struct sgrad__image_format sgrad__png_image = {
    .name = "PNG", .library = "png", .endings = ".png .apng", .is = is_png,
#ifdef SGRAD_HAVE_PNG
    .read = read_png,
#endif
};
