/* image.c: JPEG, PNG and TIFF files as RGB, by libjpeg, libpng and libtiff (tiff.c).
 *
 * Both libraries leave by longjmp when a file is wrong, and only warn when they can guess how it went on. A guess is no
 * training data: warnings are errors here. A decoder's state lives with the caller of the function that sets the jump,
 * so that nothing it changes is lost in a jump.
 *
 * Limits: 8 or 16 bits a channel come out, whatever goes in; colour profiles, gamma and EXIF's orientation are not applied
 * (torchvision's ImageFolder does not either). */
#include "config.h"
#include "datasets/formats.h"
#include "runtime/runtime.h"

#include <jpeglib.h>
#include <png.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIDE_LIMIT  65535
#define PIXEL_LIMIT ((uint64_t)1 << 28)
#define FILE_LIMIT  ((size_t)1 << 30)
#define SCAN_LIMIT  500        /* of a progressive JPEG: each costs a pass over the whole image */
#define JPEG_PIXELS 512        /* a byte of JPEG holds at most so many: 64 pixels take a bit or more */
#define PNG_PIXELS  (8 * 1032) /* of PNG: a pixel takes a bit, and deflate expands a byte to at most 1032 */

/* Before anything is allocated: a small file that promises a huge image is a lie. */
static int check_size(const char *format, const char *name, uint64_t width, uint64_t height, uint64_t pixel_limit) {
    if (width < 1 || height < 1 || width > SIDE_LIMIT || height > SIDE_LIMIT || width * height > PIXEL_LIMIT)
        return sgrad_fail(SGRAD_EFORMAT, "%s: %s: an image of %llux%llu pixels: sides are 1 to %d, 2^28 pixels in all", format,
                          name, (unsigned long long)width, (unsigned long long)height, SIDE_LIMIT);
    if (width * height > pixel_limit)
        return sgrad_fail(SGRAD_EFORMAT, "%s: %s: the file is too short for its image of %llux%llu pixels", format, name,
                          (unsigned long long)width, (unsigned long long)height);
    return 0;
}

/* ---- JPEG -------------------------------------------------------------------------------------------------------- */

struct jpeg {
    struct jpeg_decompress_struct decoder;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf back;
    const char *name;
    const unsigned char *data;
    size_t size;
    struct sgrad__image image;
    uint8_t *cmyk; /* a row */
};

static _Noreturn void jpeg_leave(struct jpeg *jpeg, const char *reason) {
    const unsigned char *next = jpeg->decoder.src ? jpeg->decoder.src->next_input_byte : jpeg->data;
    const bool inside = next >= jpeg->data && next < jpeg->data + jpeg->size; /* else in the library's stand-in for an end */
    sgrad_fail(SGRAD_EFORMAT, "jpeg: %s: byte %zu: %s", jpeg->name, inside ? (size_t)(next - jpeg->data) : jpeg->size, reason);
    longjmp(jpeg->back, 1);
}

static _Noreturn void jpeg_error(j_common_ptr decoder) {
    char reason[JMSG_LENGTH_MAX];
    decoder->err->format_message(decoder, reason);
    jpeg_leave(decoder->client_data, reason);
}

static void jpeg_message(j_common_ptr decoder, int level) {
    if (level < 0) jpeg_error(decoder); /* a warning; 0 and above are traces */
}

static void jpeg_progress(j_common_ptr decoder) {
    struct jpeg *jpeg = decoder->client_data;
    if (jpeg->decoder.input_scan_number > SCAN_LIMIT) jpeg_leave(jpeg, "too many scans");
}

/* Adobe stores the ink that is absent, the standard the ink that is there. */
static void cmyk_to_rgb(const uint8_t *cmyk, bool adobe, int width, uint8_t *rgb) {
    const unsigned flip = adobe ? 0 : 255;
    for (int x = 0; x < width; x++)
        for (int c = 0; c < 3; c++) rgb[3 * x + c] = (uint8_t)((cmyk[4 * x + c] ^ flip) * (cmyk[4 * x + 3] ^ flip) / 255);
}

static int jpeg_run(struct jpeg *jpeg, bool pixels) {
    struct jpeg_decompress_struct *decoder = &jpeg->decoder;
    if (setjmp(jpeg->back)) return SGRAD_EFORMAT;
    jpeg_create_decompress(decoder);
    decoder->client_data = jpeg;
    decoder->progress = &jpeg->progress;
    jpeg_mem_src(decoder, jpeg->data, jpeg->size);
    jpeg_read_header(decoder, TRUE);
    SGRAD_TRY(check_size("jpeg", jpeg->name, decoder->image_width, decoder->image_height, (uint64_t)jpeg->size * JPEG_PIXELS));
    struct sgrad__image *image = &jpeg->image;
    image->width = (int)decoder->image_width;
    image->height = (int)decoder->image_height;
    image->grey = decoder->jpeg_color_space == JCS_GRAYSCALE;
    if (!pixels) return 0;

    const bool cmyk = decoder->jpeg_color_space == JCS_CMYK || decoder->jpeg_color_space == JCS_YCCK;
    const size_t stride = 3 * (size_t)image->width;
    decoder->out_color_space = cmyk ? JCS_CMYK : JCS_RGB;
    jpeg_start_decompress(decoder);
    image->rgb = sgrad_alloc((size_t)image->height, stride);
    if (cmyk) jpeg->cmyk = sgrad_alloc((size_t)image->width, 4);
    while (decoder->output_scanline < decoder->output_height) {
        uint8_t *to = image->rgb + decoder->output_scanline * stride, *row = cmyk ? jpeg->cmyk : to;
        jpeg_read_scanlines(decoder, &row, 1);
        if (cmyk) cmyk_to_rgb(row, decoder->saw_Adobe_marker, image->width, to);
    }
    jpeg_finish_decompress(decoder);
    return 0;
}

static int read_jpeg(const char *name, const void *data, size_t size, bool pixels, struct sgrad__image *image) {
    struct jpeg jpeg = { .name = name, .data = data, .size = size };
    jpeg.decoder.err = jpeg_std_error(&jpeg.errors);
    jpeg.decoder.client_data = &jpeg;
    jpeg.errors.error_exit = jpeg_error;
    jpeg.errors.emit_message = jpeg_message;
    jpeg.progress.progress_monitor = jpeg_progress;
    int error = jpeg_run(&jpeg, pixels);
    jpeg_destroy_decompress(&jpeg.decoder);
    free(jpeg.cmyk);
    if (error)
        free(jpeg.image.rgb);
    else
        *image = jpeg.image;
    return error;
}

/* ---- PNG --------------------------------------------------------------------------------------------------------- */

struct png {
    png_struct *decoder;
    png_info *info;
    const char *name;
    const unsigned char *data;
    size_t size, at;
    struct sgrad__image image;
};

/* For errors and warnings alike. */
static _Noreturn void png_leave(png_struct *decoder, const char *reason) {
    const struct png *png = png_get_error_ptr(decoder);
    sgrad_fail(SGRAD_EFORMAT, "png: %s: byte %zu: %s", png->name, png->at, reason);
    png_longjmp(decoder, 1);
}

static void png_take(png_struct *decoder, png_byte *to, size_t n) {
    struct png *png = png_get_io_ptr(decoder);
    if (n > png->size - png->at) png_error(decoder, "the file ends early");
    memcpy(to, png->data + png->at, n);
    png->at += n;
}

/* A chunk acTL before the first IDAT: the other images come in chunks that libpng passes over (the APNG specification). */
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
    if (setjmp(png_jmpbuf(decoder))) return SGRAD_EFORMAT;
    png_set_read_fn(decoder, png, png_take);
    png_set_user_limits(decoder, SIDE_LIMIT, SIDE_LIMIT);
    png_set_keep_unknown_chunks(decoder, PNG_HANDLE_CHUNK_NEVER, NULL, -1); /* texts, profiles, times … */
    png_read_info(decoder, png->info);
    struct sgrad__image *image = &png->image;
    image->width = (int)png_get_image_width(decoder, png->info);
    image->height = (int)png_get_image_height(decoder, png->info);
    image->grey = !(png_get_color_type(decoder, png->info) & PNG_COLOR_MASK_COLOR);
    image->deep = png_get_bit_depth(decoder, png->info) > 8;
    image->animated = png_is_animated(png);
    SGRAD_TRY(check_size("png", png->name, (uint64_t)image->width, (uint64_t)image->height, (uint64_t)png->size * PNG_PIXELS));
    if (!pixels) return 0;

    const bool deep = image->deep;
    png_set_expand(decoder); /* palettes, fewer than 8 bits */
    if (deep) png_set_swap(decoder); /* the lower byte first */
    png_set_gray_to_rgb(decoder);
    png_set_strip_alpha(decoder);
    const int passes = png_set_interlace_handling(decoder);
    png_read_update_info(decoder, png->info);
    const size_t stride = (deep ? 6 : 3) * (size_t)image->width;
    if (png_get_rowbytes(decoder, png->info) != stride) png_error(decoder, "pixels do not become RGB");
    uint8_t *rows = sgrad_alloc((size_t)image->height, stride);
    if (deep) image->rgb16 = (uint16_t *)(void *)rows;
    else image->rgb = rows;
    for (int pass = 0; pass < passes; pass++)
        for (size_t y = 0; y < (size_t)image->height; y++) png_read_row(decoder, rows + y * stride, NULL);
    png_read_end(decoder, NULL);
    return 0;
}

static int read_png(const char *name, const void *data, size_t size, bool pixels, struct sgrad__image *image) {
    struct png png = { .name = name, .data = data, .size = size };
    png.decoder = png_create_read_struct(PNG_LIBPNG_VER_STRING, &png, png_leave, png_leave);
    png.info = png.decoder ? png_create_info_struct(png.decoder) : NULL;
    int error = png.info ? png_run(&png, pixels) : sgrad_fail(SGRAD_ENOMEM, "png: %s: libpng cannot start", name);
    png_destroy_read_struct(&png.decoder, &png.info, NULL);
    if (error) {
        free(png.image.rgb);
        free(png.image.rgb16);
    } else {
        *image = png.image;
    }
    return error;
}

/* ---- any of them ------------------------------------------------------------------------------------------------- */

static bool is_png(const void *data, size_t size) { return size >= 8 && !memcmp(data, "\x89PNG\r\n\x1a\n", 8); }

/* Classic and BigTIFF, of either order of bytes. */
static bool is_tiff(const void *data, size_t size) {
    static const char *const begins[] = { "II*\0", "MM\0*", "II+\0", "MM\0+" };
    bool is = false;
    for (int i = 0; i < 4 && size >= 4; i++) is |= !memcmp(data, begins[i], 4);
    return is;
}

/* As deep as it is. */
static int read_image(const char *name, const void *data, size_t size, bool pixels, struct sgrad__image *image) {
    if (size >= 3 && !memcmp(data, "\xff\xd8\xff", 3)) return read_jpeg(name, data, size, pixels, image);
    if (is_png(data, size)) return read_png(name, data, size, pixels, image);
    if (is_tiff(data, size)) return sgrad__tiff_read(name, data, size, pixels, image);
    return sgrad_fail(SGRAD_EFORMAT, "image: %s: byte 0: begins neither like a JPEG nor like a PNG nor like a TIFF", name);
}

int sgrad__image_header(const char *name, const void *data, size_t size, struct sgrad__image *image) {
    return read_image(name, data, size, false, image);
}

static size_t values_of(const struct sgrad__image *image) { return (size_t)image->height * (size_t)image->width * 3; }

int sgrad__image_decode(const char *name, const void *data, size_t size, struct sgrad__image *image) {
    struct sgrad__image is;
    SGRAD_TRY(read_image(name, data, size, true, &is));
    if (is.rgb16) is.rgb = sgrad_alloc(values_of(&is), 1);
    for (size_t i = 0; is.rgb16 && i < values_of(&is); i++)
        is.rgb[i] = (uint8_t)((is.rgb16[i] * 255u + 32895) >> 16);      /* times 255 / 65535, rounded */
    free(is.rgb16);
    is.rgb16 = NULL;
    *image = is;
    return 0;
}

int sgrad__image_decode_deep(const char *name, const void *data, size_t size, struct sgrad__image *image) {
    struct sgrad__image is;
    SGRAD_TRY(read_image(name, data, size, true, &is));
    if (is.rgb) is.rgb16 = sgrad_alloc(values_of(&is), sizeof *is.rgb16);
    for (size_t i = 0; is.rgb && i < values_of(&is); i++) is.rgb16[i] = (uint16_t)(is.rgb[i] * 257);
    free(is.rgb);
    is.rgb = NULL;
    *image = is;
    return 0;
}

bool sgrad__image_is_deep(const char *path) {
    enum { DEPTH = 24, BEGIN = 26 }; /* byte of a PNG, after signature, chunk and two sides */
    unsigned char begin[BEGIN] = { 0 };
    struct sgrad__image image = { .deep = false };
    struct sgrad_map map;
    FILE *file = fopen(path, "rb");
    const size_t size = file ? fread(begin, 1, BEGIN, file) : 0;
    if (file) fclose(file);
    if (is_png(begin, size)) return begin[DEPTH] == 16;
    if (!is_tiff(begin, size) || sgrad_map_open(path, FILE_LIMIT, &map)) return false;
    sgrad__tiff_read(NULL, map.data, map.size, false, &image);
    sgrad_map_close(&map);
    return image.deep;
}
