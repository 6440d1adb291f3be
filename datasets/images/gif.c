/* gif.c: the first image of a GIF file, read with giflib.
 *
 * Pixels of the file's screen that the image does not cover have the transparent colour, or colour 0, as in Pillow. */
#include "config.h"
#include "datasets/formats.h"

#include <stdlib.h>
#include <string.h>
#ifdef SGRAD_HAVE_GIF
#include <gif_lib.h>

struct gif {
    const char *name;
    const unsigned char *data;
    size_t size, at;
    GifFileType *file;
    int transparent;    /* index of the colour; NO_TRANSPARENT_COLOR: none */
};

static int take(GifFileType *file, GifByteType *to, int count) {
    struct gif *g = file->UserData;
    const size_t left = g->size - g->at, n = (size_t)count < left ? (size_t)count : left;
    memcpy(to, g->data + g->at, n);
    g->at += n;
    return (int)n;
}

static int wrong(const struct gif *gif, int code) {
    const char *why = code ? GifErrorString(code) : NULL;
    return sgrad_log_error(SGRAD_EFORMAT, "gif: %s: byte %zu: %s", gif->name, gif->at, why ? why : "is damaged, or ends early");
}

/* Advances to the next image. Sets *THERE to true if there is one. Returns 0 or an error code of giflib. */
static int find_image(struct gif *gif, bool *there) {
    for (;;) {
        GifRecordType type;
        GifByteType *block;
        int code;
        if (DGifGetRecordType(gif->file, &type) == GIF_ERROR) return gif->file->Error ? gif->file->Error : D_GIF_ERR_READ_FAILED;
        *there = type == IMAGE_DESC_RECORD_TYPE;
        if (*there || type == TERMINATE_RECORD_TYPE) return 0;
        if (DGifGetExtension(gif->file, &code, &block) == GIF_ERROR) return gif->file->Error;
        GraphicsControlBlock control;
        if (code == GRAPHICS_EXT_FUNC_CODE && block && DGifExtensionToGCB(block[0], block + 1, &control) == GIF_OK)
            gif->transparent = control.TransparentColor;
        while (block)
            if (DGifGetExtensionNext(gif->file, &block) == GIF_ERROR) return gif->file->Error;
    }
}

static bool is_without_colours(const ColorMapObject *map) {
    bool grey = true;
    for (int i = 0; grey && i < map->ColorCount; i++)
        grey = map->Colors[i].Red == map->Colors[i].Green && map->Colors[i].Green == map->Colors[i].Blue;
    return grey;
}

static void put(const ColorMapObject *map, int colour, uint8_t *rgb) {
    if (colour >= map->ColorCount) return;      /* remains black */
    rgb[0] = map->Colors[colour].Red, rgb[1] = map->Colors[colour].Green, rgb[2] = map->Colors[colour].Blue;
}

/* Reads the rows; those of an interlaced image are stored in four passes. Returns 0 or an error code of giflib. */
static int read_pixels(struct gif *gif, const ColorMapObject *map, struct sgrad__image *image) {
    static const int first[] = { 0, 4, 2, 1, 0 }, every[] = { 8, 8, 4, 2, 1 };
    const GifImageDesc *is = &gif->file->Image;
    GifPixelType *line = sgrad_xcalloc((size_t)is->Width, sizeof *line);
    int code = 0;
    for (int i = 0; i < image->height * image->width; i++)
        put(map, gif->transparent == NO_TRANSPARENT_COLOR ? 0 : gif->transparent, image->rgb + 3 * (size_t)i);
    for (int pass = is->Interlace ? 0 : 4; pass < (is->Interlace ? 4 : 5) && !code; pass++)
        for (int y = first[pass]; y < is->Height && !code; y += every[pass]) {
            if (DGifGetLine(gif->file, line, is->Width) == GIF_ERROR)
                code = gif->file->Error ? gif->file->Error : D_GIF_ERR_IMAGE_DEFECT;
            uint8_t *row = image->rgb + ((size_t)(is->Top + y) * (size_t)image->width + (size_t)is->Left) * 3;
            for (int x = 0; x < is->Width && !code; x++) memset(row + 3 * x, 0, 3), put(map, line[x], row + 3 * x);
        }
    free(line);
    return code;
}

/* Returns true if there is a further image. Damage after the first image is ignored. */
static bool is_animated(struct gif *gif) {
    GifByteType *block;
    int size;
    bool there = false;
    if (DGifGetCode(gif->file, &size, &block) == GIF_ERROR) return false;
    while (block)
        if (DGifGetCodeNext(gif->file, &block) == GIF_ERROR) return false;
    return !find_image(gif, &there) && there;
}

static int read_first(struct gif *gif, bool pixels, struct sgrad__image *image) {
    bool there;
    int code = find_image(gif, &there);
    if (code || !there) return wrong(gif, code);
    if (DGifGetImageDesc(gif->file) == GIF_ERROR) return wrong(gif, gif->file->Error);
    const GifImageDesc *is = &gif->file->Image;
    const ColorMapObject *map = is->ColorMap ? is->ColorMap : gif->file->SColorMap;
    int width = gif->file->SWidth, height = gif->file->SHeight;
    if (is->Left + is->Width > width) width = is->Left + is->Width;
    if (is->Top + is->Height > height) height = is->Top + is->Height;
    if (!map || is->Width < 1 || is->Height < 1) return wrong(gif, 0);
    SGRAD_TRY(sgrad__image_check_size("gif", gif->name, (uint64_t)width, (uint64_t)height, UINT64_MAX));
    struct sgrad__image found = { .height = height, .width = width, .grey = is_without_colours(map) };
    if (pixels) {
        found.rgb = sgrad_xcalloc((size_t)height * (size_t)width, 3);
        if ((code = read_pixels(gif, map, &found))) return free(found.rgb), wrong(gif, code);
    } else {
        found.animated = is_animated(gif);
    }
    *image = found;
    return 0;
}

static int open_and_read(struct gif *gif, bool pixels, struct sgrad__image *image) {
    int code = 0;
    gif->transparent = NO_TRANSPARENT_COLOR;
    gif->at = 0;
    gif->file = DGifOpen(gif, take, &code);
    if (!gif->file) return wrong(gif, code);
    int error = read_first(gif, pixels, image);
    DGifCloseFile(gif->file, &code);
    return error;
}

/* Searches for further images with a separate decoder, which skips the first image. */
static int read_gif(const char *name, const void *data, size_t size, bool pixels, struct sgrad__image *image) {
    struct gif g = { .name = name, .data = data, .size = size };
    struct sgrad__image is;
    SGRAD_TRY(open_and_read(&g, false, &is));
    if (pixels) {
        const bool animated = is.animated;
        SGRAD_TRY(open_and_read(&g, true, &is));
        is.animated = animated;
    }
    *image = is;
    return 0;
}
#endif

static bool is_gif(const unsigned char *data, size_t size) {
    return size >= 6 && (!memcmp(data, "GIF87a", 6) || !memcmp(data, "GIF89a", 6));
}

const struct sgrad__image_format sgrad__gif_image = {
    .name = "GIF", .library = "gif", .endings = ".gif", .is = is_gif,
#ifdef SGRAD_HAVE_GIF
    .read = read_gif,
#endif
};
