/* duplicates.h: the room that finds images which are nearly the same: hashed, searched, judged, shown.
 *
 * A *hash* is 64 or 256 bits that hardly change when an image is scaled, brightened or compressed again. Two images are *near*
 * when their hashes differ in at most *threshold* bits. Of a data set's two parts, one after the other:
 *
 *     images       ──hash, a task a block, ranks share them──>   hashes       ──search, exact──>   pairs       ──judge──>
 *     train 0 1 2 3                                              f0 f1 f0 37                       (0,2) 0 bits      drop 2
 *     test  0 1                                                  f4 00                             (0,4) 1 bit       0 leaks
 *
 * What is dropped: sample by sample in their order, whoever is not dropped yet has its duplicates dropped; of its class alone,
 * unless all classes are asked for (across): then who is near a test sample goes first, too. So each that is dropped is near one
 * that stays, and what two have in common with a third does not make them duplicates.
 *
 *     struct sgrad_dataset *part[2] = { train, test };                          // opened with options.pictures
 *     struct sgrad_hashes hashes;
 *     struct sgrad_hash_options how = { .kind = &sgrad_phash_hash, .bits = 64 };
 *     SGRAD_TRY(sgrad_hashes_make(context, part, &how, &hashes));
 *     SGRAD_TRY(sgrad_duplicates_find(part, &hashes, &(struct sgrad_duplicates_options){ .threshold = 10 }, &found));
 *     printf("%lld of %lld stay\n", (long long)(hashes.train - found.dropped), (long long)hashes.train);
 *
 * Knows images and classes, no network. */
#ifndef SGRAD_DUPLICATES_H
#define SGRAD_DUPLICATES_H

#include "datasets/datasets.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- kinds of hashes: one file and one line of hashes.def each ------------------------------------------------------ */

#define SGRAD_HASH_SIDE 16      /* of the square of bits, at most */
struct sgrad_hash_kind {
    const char *name, *summary;
    /* The size of the grey image that SIDE x SIDE bits are made from. */
    void (*size)(int side, int *width, int *height);
    /* From that image, GREY (height,width), the bits, BIT (side,side), each 0 or 1. */
    void (*bits)(const uint8_t *grey, int side, uint8_t *bit);
};
#define SGRAD_HASH(name) extern const struct sgrad_hash_kind sgrad_##name##_hash;
#include "duplicates/hashes.def"
#undef SGRAD_HASH
extern const struct sgrad_hash_kind *const sgrad_hash_kinds[];      /* all of hashes.def; ends with NULL */

#define SGRAD_HASH_WORDS (SGRAD_HASH_SIDE * SGRAD_HASH_SIDE / 64)
/* The hash of one image, of SIDE x SIDE bits row by row, the first the highest of WORD[0]. */
void sgrad_hash_picture(const struct sgrad_hash_kind *kind, int side, const struct sgrad_picture *picture, uint64_t *word);

/* ---- hashes of a data set's images --------------------------------------------------------------------------------- */

enum { SGRAD_IMAGE_DAMAGED = 1, SGRAD_IMAGE_DEEP = 2, SGRAD_IMAGE_ANIMATED = 4, SGRAD_IMAGE_SKIPPED = 8 };
enum sgrad_treatment { SGRAD_TAKE, SGRAD_SKIP, SGRAD_REFUSE };

struct sgrad_hash_options {
    const struct sgrad_hash_kind *kind;
    int bits;                           /* 64 or 256 */
    const char *file;                   /* of hashes, that are known from it and kept in it; NULL: none */
    enum sgrad_treatment damaged;       /* images that cannot be read: SKIP or REFUSE */
    enum sgrad_treatment odd;           /* with more than 8 bits a channel, or animated: TAKE hashes upper bits, first image */
};
struct sgrad_hashes {
    const struct sgrad_hash_kind *kind;
    int bits, words;
    int64_t train, count;               /* images: the training set's come first, then the test set's */
    uint64_t *word;                     /* (count,words) */
    uint64_t *stamp;                    /* sgrad_dataset_stamp of each */
    uint8_t *state;                     /* of each: SGRAD_IMAGE_… added up; 0: all is well */
    int64_t known;                      /* taken from the file, not made anew */
};
/* Hashes all images of PART[0], training, and PART[1], test, which may be NULL. Every rank calls it, each hashes its share, all
 * get all. Waits. SGRAD_EFORMAT, SGRAD_EIO: an image is damaged, or odd, and refused, or the file of hashes is damaged. */
int sgrad_hashes_make(const struct sgrad_context *context, struct sgrad_dataset *const part[2],
                      const struct sgrad_hash_options *options, struct sgrad_hashes *hashes);
void sgrad_hashes_free(struct sgrad_hashes *hashes);
static inline bool sgrad_hashes_has(const struct sgrad_hashes *hashes, int64_t i) {
    return !(hashes->state[i] & (SGRAD_IMAGE_DAMAGED | SGRAD_IMAGE_SKIPPED));
}
static inline int sgrad_hash_distance(const uint64_t *a, const uint64_t *b, int words) {
    int distance = 0;
    for (int w = 0; w < words; w++) distance += __builtin_popcountll(a[w] ^ b[w]);
    return distance;
}

/* ---- search: all pairs that are near, exactly ----------------------------------------------------------------------- */

struct sgrad_pair {
    uint32_t a, b, distance;            /* a < b */
};
enum sgrad_search_way { SGRAD_SEARCH_CHEAPEST, SGRAD_SEARCH_PARTS, SGRAD_SEARCH_WEIGHTS };
struct sgrad_search {
    int threshold;
    int64_t queries;                    /* a is one of the first so many; 0: any */
    enum sgrad_search_way way;          /* by parts that hardly differ, or by the number of ones; which one does not matter */
    int64_t most;                       /* pairs in memory at once; 0: 2^25 */
    int64_t memory;                     /* bytes besides the hashes themselves; 0: what it takes. Where that is too little ... */
    const char *folder;                 /* ... a file in this folder has the rest; NULL: that of temporary files */
    /* Called for each image that has a near one, in their order, with its pairs, by b. An error ends the search. */
    int (*see)(void *arg, const struct sgrad_pair *pair, int64_t pairs);
    void *arg;
};
/* SGRAD_EINVAL: there are 2^32 images or more; SGRAD_EIO: the folder has no room. Runs as tasks of this rank; waits. */
int sgrad_hashes_search(const struct sgrad_hashes *hashes, const struct sgrad_search *search);

/* ---- which threshold? ----------------------------------------------------------------------------------------------- */

/* Distances of pairs drawn at random, whose images nearly never belong together: of one class, and of two. */
struct sgrad_guide {
    int64_t pairs[2], distance[2][64 * SGRAD_HASH_WORDS + 1];           /* [0]: of one class */
    double worst[64 * SGRAD_HASH_WORDS + 1];    /* share of a class's pairs at most so far apart, in the worst class */
    int automatic;                      /* the largest threshold whose worst share is below SGRAD_FALSE_RATE; -1: none */
};
#define SGRAD_FALSE_RATE 1e-4
/* As tasks of this rank; waits. */
int sgrad_guide_sample(const struct sgrad_dataset *train, const struct sgrad_hashes *hashes, uint64_t seed,
                       struct sgrad_guide *guide);

/* ---- verdict --------------------------------------------------------------------------------------------------------- */

#define SGRAD_LEVELS_MOST 64
struct sgrad_duplicates_options {
    int threshold;
    bool across;                        /* drops duplicates of other classes, and training samples near a test sample, too */
    const char *folder;                 /* gets pairs.jsonl, and what a search has no memory for; NULL: none is written */
    int64_t memory;                     /* as sgrad_search has it */
    int64_t pairs_written;              /* at most; 0: 10,000,000 */
    int64_t pairs_kept;                 /* for the page, at most */
};
enum sgrad_relation { SGRAD_WITHIN, SGRAD_ACROSS, SGRAD_LEAK, SGRAD_RELATIONS };        /* of a pair */
struct sgrad_duplicates {
    int threshold;
    int64_t pairs[SGRAD_RELATIONS];
    int64_t images[SGRAD_RELATIONS];    /* training images in such pairs */
    int64_t tests;                      /* test images in leaks */
    int64_t leaks_of_class;             /* pairs of leaks whose two are of one class */
    double chance;                      /* pairs of one class, were they near as often as those of two; there is one: 0 */
    int64_t dropped;
    /* What each threshold up to this one comes to: level L is threshold FIRST + L. */
    int first, levels;
    int64_t drops[SGRAD_LEVELS_MOST], near[SGRAD_RELATIONS][SGRAD_LEVELS_MOST];         /* samples dropped; pairs */
    uint64_t *drop;                     /* of each training sample: bit L: it is dropped at level L */
    uint8_t *relation;                  /* of each image: bit R: it is in a pair of relation R */
    int64_t kept;
    struct sgrad_pair *pair;            /* the first KEPT pairs */
    int64_t written;                    /* to pairs.jsonl; fewer than there are pairs where that would be too long */
};
int sgrad_duplicates_find(struct sgrad_dataset *const part[2], const struct sgrad_hashes *hashes,
                          const struct sgrad_duplicates_options *options, struct sgrad_duplicates *found);
void sgrad_duplicates_free(struct sgrad_duplicates *found);
/* FOLDER/keep.txt, drop.txt (as options.exclude takes them; images that were not hashed are dropped) and leaks.txt. */
int sgrad_duplicates_write(struct sgrad_dataset *const part[2], const struct sgrad_hashes *hashes,
                           const struct sgrad_duplicates *found, const char *folder);
/* The training samples that LEVEL drops, as such a file; level -1: those alone that were not hashed. */
int sgrad_duplicates_write_level(const struct sgrad_dataset *train, const struct sgrad_hashes *hashes,
                                 const struct sgrad_duplicates *found, int level, const char *path);
/* FOLDER/index.html: groups with their pictures, a slider for the threshold; needs nothing but a browser. */
int sgrad_duplicates_page(struct sgrad_dataset *const part[2], const struct sgrad_hashes *hashes,
                          const struct sgrad_duplicates *found, const struct sgrad_guide *guide, const char *title,
                          const char *folder);

#ifdef __cplusplus
}
#endif
#endif
