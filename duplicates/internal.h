/* internal.h: what the files of this room share. */
#ifndef SGRAD_DUPLICATES_INTERNAL_H
#define SGRAD_DUPLICATES_INTERNAL_H

#include "config.h"
#include "duplicates/duplicates.h"

/* ---- scale.c ---- */

/* Weights and room for images of one size to another: kept from image to image. Zeros are none. */
struct sgrad__taps {
    int from, to, most;
    int *first, *count;
    int32_t *weight;
};
struct sgrad__scaler {
    struct sgrad__taps columns, rows;
    size_t strip_size, narrow_size;
    uint8_t *strip, *narrow;
};
/* PICTURE, scaled to HEIGHT x WIDTH, in grey: as Pillow's resize with LANCZOS, then convert("L"), to the bit. GREY is
 * (height,width). */
void sgrad__scale(struct sgrad__scaler *scaler, const struct sgrad_picture *picture, int width, int height, uint8_t *grey);
void sgrad__scaler_free(struct sgrad__scaler *scaler);

/* ---- hash.c ---- */

#define SGRAD__GREY_MOST (256 * 256)
void sgrad__hash(const struct sgrad_hash_kind *kind, int side, const struct sgrad_picture *picture, struct sgrad__scaler *scaler,
                 uint8_t *grey, uint64_t *word);

/* ---- plan.c ---- */

#define SGRAD__PARTS_MOST 64
struct sgrad__part {
    int first, bits;            /* of the hash */
    int radius;                 /* in which it differs at most; below 0: it need not be looked at */
};
struct sgrad__plan {
    bool weights;
    int parts;
    struct sgrad__part part[SGRAD__PARTS_MOST];
    double cost;                /* comparisons */
};
struct sgrad__plan sgrad__plan_make(int bits, const struct sgrad_search *search, int64_t images);
/* Lists, of parts of BITS bits, that one is compared with. */
double sgrad__plan_lists(int bits, int radius);

/* ---- store.c: hashes.bin ---- */

struct sgrad__record {
    uint64_t stamp, word[SGRAD_HASH_WORDS];
    uint8_t state;
};
struct sgrad__store {
    int64_t count;
    struct sgrad__record *record;       /* by stamp; free it */
};
/* A file that is not there, or has other hashes, holds none. SGRAD_EFORMAT: it is damaged. */
int sgrad__store_open(const char *path, const struct sgrad_hash_kind *kind, int bits, struct sgrad__store *store);
int sgrad__store_parse(const char *name, const void *data, size_t size, const struct sgrad_hash_kind *kind, int bits,
                       struct sgrad__store *store);
const struct sgrad__record *sgrad__store_find(const struct sgrad__store *store, uint64_t stamp);
int sgrad__store_write(const char *path, const struct sgrad_hashes *hashes);

/* ---- verdict.c ---- */

/* Image I of both parts: its part, and its number there. */
static inline const struct sgrad_dataset *sgrad__part_of(struct sgrad_dataset *const part[2], const struct sgrad_hashes *hashes,
                                                         int64_t *i) {
    if (*i < hashes->train) return part[0];
    *i -= hashes->train;
    return part[1];
}
/* A sample's name, or number; one of the test set's numbers is "test:17". Free it. */
char *sgrad__image_name(struct sgrad_dataset *const part[2], const struct sgrad_hashes *hashes, int64_t i);
/* Its class; -1: there are none. */
int sgrad__image_class(struct sgrad_dataset *const part[2], const struct sgrad_hashes *hashes, int64_t i);

#endif
