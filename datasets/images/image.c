/* image.c: decodes image files to RGB: selects the decoder by the first bytes, and converts to the requested depth.
 *
 * Limits: the result has 8 or 16 bits per channel, regardless of the file. Colour profiles and the EXIF orientation are not
 * applied, as in torchvision's ImageFolder. The orientation of TIFF is applied. */
#include "config.h"
#include "datasets/formats.h"
#include "runtime/libraries.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define SGRAD_IMAGE(name) extern const struct sgrad__image_format sgrad__##name##_image;
#include "datasets/images.def"
#undef SGRAD_IMAGE
static const struct sgrad__image_format *const formats[] = {
#define SGRAD_IMAGE(name) &sgrad__##name##_image,
#include "datasets/images.def"
#undef SGRAD_IMAGE
    NULL,
};

bool sgrad__image_is_named(const char *name) {
    const char *dot = strrchr(name, '.');
    if (!dot) return false;
    const size_t length = strlen(dot);
    for (const struct sgrad__image_format *const *f = formats; *f; f++)
        for (const char *at = (*f)->endings; *at; at += strcspn(at, " ") + (at[strcspn(at, " ")] == ' '))
            if (strcspn(at, " ") == length && !strncasecmp(at, dot, length)) return true;
    return false;
}

char *sgrad__image_endings(void) {
    char *all = sgrad_format("%s", "");
    for (const struct sgrad__image_format *const *f = formats; *f; f++)
        for (const char *at = (*f)->endings; *at; at += strcspn(at, " ") + (at[strcspn(at, " ")] == ' ')) {
            char *more = sgrad_format("%s%s%.*s", all, *all ? ", " : "", (int)strcspn(at, " "), at);
            free(all);
            all = more;
        }
    return all;
}

/* Returns "JPEG, PNG, … or GIF". The caller must free it. */
static char *format_names(void) {
    char *all = sgrad_format("%s", formats[0]->name);
    for (const struct sgrad__image_format *const *f = formats + 1; *f; f++) {
        char *more = sgrad_format("%s%s%s", all, f[1] ? ", " : " or ", (*f)->name);
        free(all);
        all = more;
    }
    return all;
}

/* Decodes with the depth of the file, for USE, which may be NULL. */
static int read_image(const char *name, const void *data, size_t size, bool pixels, const struct sgrad__image_use *use,
                      struct sgrad__image *image) {
    for (const struct sgrad__image_format *const *f = formats; *f; f++) {
        if (!(*f)->is(data, size)) continue;
        if (!(*f)->read) return sgrad_library_missing((*f)->library, "read %s, a %s image", name, (*f)->name);
        if (use && (*f)->read_for) return (*f)->read_for(name, data, size, use, image);
        return (*f)->read(name, data, size, pixels, image);
    }
    if (!size) return sgrad_log_error(SGRAD_EFORMAT, "image: %s: the file is empty", name);
    char *known = format_names();
    int error =
        sgrad_log_error(SGRAD_EFORMAT, "image: %s: its first bytes match no supported image format (%s)", name, known);
    free(known);
    return error;
}

int sgrad__image_header(const char *name, const void *data, size_t size, struct sgrad__image *image) {
    return read_image(name, data, size, false, NULL, image);
}

static size_t values_of(const struct sgrad__image *image) { return (size_t)image->height * (size_t)image->width * 3; }

/* Decodes to 8 bits per channel. */
static int decode(const char *name, const void *data, size_t size, const struct sgrad__image_use *use,
                  struct sgrad__image *image) {
    struct sgrad__image is;
    SGRAD_TRY(read_image(name, data, size, true, use, &is));
    if (is.rgb16) is.rgb = sgrad_xcalloc(values_of(&is), 1);
    for (size_t i = 0; is.rgb16 && i < values_of(&is); i++)
        is.rgb[i] = (uint8_t)((is.rgb16[i] * 255u + 32895) >> 16);      /* times 255 / 65535, rounded */
    free(is.rgb16);
    is.rgb16 = NULL;
    *image = is;
    return 0;
}

int sgrad__image_decode(const char *name, const void *data, size_t size, struct sgrad__image *image) {
    return decode(name, data, size, NULL, image);
}

int sgrad__image_decode_deep(const char *name, const void *data, size_t size, struct sgrad__image *image) {
    struct sgrad__image is;
    SGRAD_TRY(read_image(name, data, size, true, NULL, &is));
    if (is.rgb) is.rgb16 = sgrad_xcalloc(values_of(&is), sizeof *is.rgb16);
    for (size_t i = 0; is.rgb && i < values_of(&is); i++) is.rgb16[i] = (uint16_t)(is.rgb[i] * 257);
    free(is.rgb);
    is.rgb = NULL;
    *image = is;
    return 0;
}

int sgrad__image_decode_for(const char *name, const void *data, size_t size, bool deep, const struct sgrad__image_use *use,
                            struct sgrad__image *image) {
    return deep ? sgrad__image_decode_deep(name, data, size, image) : decode(name, data, size, use, image);
}
