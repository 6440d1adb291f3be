/* internal.h: declarations that several files of duplicates/ use. Private to duplicates/. */
#ifndef SGRAD_DUPLICATES_INTERNAL_H
#define SGRAD_DUPLICATES_INTERNAL_H

#include "config.h"
#include "duplicates/duplicates.h"

/* ---- scale.c ---- */

/* Filter weights and buffers for scaling, reused for all images. Must be zeroed before the first image, and freed with
 * sgrad__scaler_free after the last. */
struct sgrad__taps {
    int from, to, most;         /* pixels of the input; of the output; weights per output pixel, maximum */
    int *first, *count;         /* (to): the first input pixel and the number of input pixels of each output pixel */
    int32_t *weight;            /* (to,most): multiplied by 2^22 */
};
struct sgrad__scaler {
    struct sgrad__taps columns, rows;
    size_t strip_size, narrow_size;     /* of the buffers, in bytes */
    uint8_t *strip, *narrow;            /* buffers of scale.c */
};
/* Scales PICTURE to HEIGHT x WIDTH and converts it to grey, in GREY (height,width). The result is bit-identical to that of
 * Pillow's resize with LANCZOS and convert("L"). */
void sgrad__scale(struct sgrad__scaler *scaler, const struct sgrad_picture *picture, int width, int height, uint8_t *grey);
void sgrad__scaler_free(struct sgrad__scaler *scaler);

/* ---- hash.c ---- */

/* Like sgrad_hash_picture, with a SCALER to reuse, and a buffer GREY of SGRAD__GREY_MOST bytes. */
#define SGRAD__GREY_MOST (256 * 256)    /* maximum number of pixels of a grey image */
void sgrad__hash(const struct sgrad_hash_kind *kind, int side, const struct sgrad_picture *picture, struct sgrad__scaler *scaler,
                 uint8_t *grey, uint64_t *word);

/* ---- plan.c ---- */

/* The plan of a search (duplicates.h: enum sgrad_search_method). Multi-index hashing divides each hash into segments. */
#define SGRAD__PARTS_MOST 64    /* maximum number of segments */
struct sgrad__part {
    int first, bits;            /* the first bit of the segment in the hash; the number of its bits that are indexed */
    int radius;                 /* maximum number of different bits in the segment; negative: it is not searched */
};
struct sgrad__plan {
    bool weights;               /* true: compares hashes with similar numbers of ones; false: multi-index hashing */
    int parts;                  /* number of segments */
    struct sgrad__part part[SGRAD__PARTS_MOST];
    double cost;                /* estimated number of comparisons */
};
/* Returns the plan with the smallest cost for hashes of BITS bits, among those that SEARCH allows. */
struct sgrad__plan sgrad__plan_make(int bits, const struct sgrad_search *search, int64_t images);
/* Returns the number of values of a segment of BITS bits that differ from a given value in at most RADIUS bits. */
double sgrad__plan_lists(int bits, int radius);

/* ---- store.c: the cache file of hashes, hashes.bin ---- */

struct sgrad__record {
    uint64_t stamp, word[SGRAD_HASH_WORDS];     /* identifies the image (sgrad_dataset_stamp); its hash */
    uint8_t state;                              /* SGRAD_IMAGE_… flags, without SKIPPED */
};
struct sgrad__store {
    int64_t count;
    struct sgrad__record *record;       /* sorted by stamp; the caller must free it */
};
/* Read the hashes of KIND with BITS bits from the file PATH, or from SIZE bytes of DATA; NAME is for messages. *STORE must be
 * zeroed. It stays empty if the file does not exist; it has no records if the file contains other hashes. SGRAD_EFORMAT: damaged.
 * SGRAD_EIO and SGRAD_ENOMEM: as sgrad_map_open. find returns the record with STAMP, or NULL. write writes all HASHES to PATH
 * atomically. SGRAD_EIO. */
int sgrad__store_open(const char *path, const struct sgrad_hash_kind *kind, int bits, struct sgrad__store *store);
int sgrad__store_parse(const char *name, const void *data, size_t size, const struct sgrad_hash_kind *kind, int bits,
                       struct sgrad__store *store);
const struct sgrad__record *sgrad__store_find(const struct sgrad__store *store, uint64_t stamp);
int sgrad__store_write(const char *path, const struct sgrad_hashes *hashes);

/* ---- pairs.c ---- */

/* Returns the split that contains image *I of both splits, and sets *I to its index in that split. */
static inline const struct sgrad_dataset *sgrad__part_of(struct sgrad_dataset *const part[2], const struct sgrad_hashes *hashes,
                                                         int64_t *i) {
    if (*i < hashes->train) return part[0];
    *i -= hashes->train;
    return part[1];
}
/* Returns the name of image I, or its number if it has no name, "17", in the test split "test:17". The caller must free it. */
char *sgrad__image_name(struct sgrad_dataset *const part[2], const struct sgrad_hashes *hashes, int64_t i);
/* Returns the class of image I; -1: the data set has no classes. */
int sgrad__image_class(struct sgrad_dataset *const part[2], const struct sgrad_hashes *hashes, int64_t i);

#endif
