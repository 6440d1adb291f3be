/* augment.c: what training does to images, as text and as numbers. */
#include "config.h"
#include "datasets/datasets.h"

#include <stdlib.h>
#include <string.h>

#define PAD_LIMIT 8192

/* "N" or "1/N"; the pixels that this is of SIDE, if SIDE is known. */
static bool parse_pad(const char *text, size_t length, int side, int *pad) {
    const bool part = length > 2 && !strncmp(text, "1/", 2);
    const char *digits = part ? text + 2 : text, *end = text + length;
    char *rest;
    if (digits + strspn(digits, "0123456789") != end || *digits == '0') return false;
    const long n = strtol(digits, &rest, 10);
    if (rest == digits || n > PAD_LIMIT) return false;
    *pad = part ? side / (int)n : (int)n;
    return true;
}

static bool parse(const char *text, int side, struct sgrad_augmentation *a) {
    bool padded = false;
    if (!strcmp(text, "none")) return true;
    for (size_t length;; text += length + 1) {
        length = strcspn(text, ",");
        if (length == 4 && !strncmp(text, "flip", 4) && !a->flip) a->flip = true;
        else if (strncmp(text, "crop:", 5) || padded || !parse_pad(text + 5, length - 5, side, &a->pad)) return false;
        else padded = true;
        if (!text[length]) return true;
    }
}

int sgrad_augmentation_parse(const char *text, int height, int width, struct sgrad_augmentation *augmentation) {
    const int side = height < width ? height : width;
    struct sgrad_augmentation a = { 0 };
    if (!parse(text, side, &a))
        return sgrad_fail(SGRAD_EINVAL, "augmentation '%s': is neither none nor, with commas between, crop:N (pixels) or crop:1/N "
                          "(of the shorter side), and flip", text);
    if (side && a.pad >= side)
        return sgrad_fail(SGRAD_EINVAL, "augmentation '%s': images of %dx%d are padded by %d pixels at most", text, height, width,
                          side - 1);
    *augmentation = a;
    return 0;
}

char *sgrad_augmentation_text(const struct sgrad_augmentation *a) {
    if (!a->pad) return sgrad_format("%s", a->flip ? "flip" : "none");
    return sgrad_format("crop:%d%s", a->pad, a->flip ? ",flip" : "");
}
