/* duplicates.h: the module that finds nearly identical images in a data set: hash, search, decide, write lists and a page.
 *
 * A *hash* is 64 or 256 bits that hardly change when an image is scaled, brightened or recompressed. Two images are *near* if
 * their hashes differ in at most *threshold* bits. Images of the two splits are numbered consecutively: training, then test.
 *
 *     images       ──hash, one task per block of images──>   hashes        ──exact search──>   pairs          ──decide──>
 *     train 0 1 2 3     distributed over the ranks           f0 0f f0 37   threshold 1         (0,2) 0 bits   drop 2
 *     test  4 5                                              f4 00                             (0,4) 1 bit    0 leaks
 *                                                                                              (2,4) 1 bit    2 leaks
 *
 * Decision: training samples are visited in order, and each one that has not been dropped so far drops its duplicates, the later
 * samples that are near it. By default only samples of the same class are duplicates. With *across*, samples of other classes
 * are, too, and a training sample that is near a test sample is dropped first, so it drops no others. Hence every dropped sample
 * is near a sample that remains, and two samples are not duplicates merely because both are near a third one.
 *
 *     struct sgrad_dataset *split[2] = { train, test };                          // opened with options.pictures
 *     struct sgrad_hashes hashes;
 *     struct sgrad_hash_options how = { .kind = &sgrad_phash_hash, .bits = 64 };
 *     SGRAD_TRY(sgrad_hashes_make(context, split, &how, &hashes));
 *     SGRAD_TRY(sgrad_duplicates_find(split, &hashes, &(struct sgrad_duplicates_options){ .threshold = 10 }, &found));
 *     printf("%lld of %lld stay\n", (long long)(hashes.train - found.dropped), (long long)hashes.train);
 *
 * The module uses images and classes only; it does not use a network. Functions that return int return 0 or a negative SGRAD_E…
 * code, after logging the error. */
#ifndef SGRAD_DUPLICATES_DUPLICATES_H
#define SGRAD_DUPLICATES_DUPLICATES_H

#include "datasets/datasets.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- kinds of hashes: each is one source file and one line of hashes.def --------------------------------------------- */

#define SGRAD_HASH_SIDE 16      /* maximum side of the square of bits */
struct sgrad_hash_kind {
    const char *name, *summary;
    /* Sets the size in pixels of the grey image from which SIDE x SIDE bits are computed. */
    void (*size)(int side, int *width, int *height);
    /* Computes the bits, BIT (side,side), each 0 or 1, from that image, GREY (height,width). */
    void (*bits)(const uint8_t *grey, int side, uint8_t *bit);
};
#define SGRAD_HASH(name) extern const struct sgrad_hash_kind sgrad_##name##_hash;
#include "duplicates/hashes.def"
#undef SGRAD_HASH
extern const struct sgrad_hash_kind *const sgrad_hash_kinds[];      /* all of hashes.def; ends with NULL */

#define SGRAD_HASH_WORDS (SGRAD_HASH_SIDE * SGRAD_HASH_SIDE / 64)
/* Computes the hash of one image: SIDE x SIDE bits (SIDE is 8 or 16) in row order, written to WORD; the first bit is the highest
 * of WORD[0]. */
void sgrad_hash_picture(const struct sgrad_hash_kind *kind, int side, const struct sgrad_picture *picture, uint64_t *word);

/* ---- hashes of a data set's images --------------------------------------------------------------------------------- */

/* States of an image, a bit mask: cannot be read; has more than 8 bits per channel; is animated; is left out by an option. */
enum { SGRAD_IMAGE_DAMAGED = 1, SGRAD_IMAGE_DEEP = 2, SGRAD_IMAGE_ANIMATED = 4, SGRAD_IMAGE_SKIPPED = 8 };
/* Treatment of such images: hash them; leave them out; fail with SGRAD_EFORMAT or the reading error. */
enum sgrad_treatment { SGRAD_TAKE, SGRAD_SKIP, SGRAD_REFUSE };

struct sgrad_hash_options {
    const struct sgrad_hash_kind *kind;
    int bits;                           /* 64 or 256 */
    const char *file;                   /* cache of hashes; rank 0 reads it if it exists, then writes it; NULL: none */
    enum sgrad_treatment damaged;       /* of images that cannot be read: SKIP or REFUSE */
    enum sgrad_treatment odd;           /* of deep or animated images; TAKE hashes the upper 8 bits, or the first frame */
};
struct sgrad_hashes {
    const struct sgrad_hash_kind *kind;
    int bits, words;                    /* of a hash; words of 64 bits */
    int64_t train, count;               /* training images; all images: training first, then test */
    uint64_t *word;                     /* (count,words) */
    uint64_t *stamp;                    /* (count): sgrad_dataset_stamp */
    uint8_t *state;                     /* (count): SGRAD_IMAGE_… flags; 0: a normal image */
    int64_t known;                      /* hashes read from the cache file, not computed, over all ranks */
};
/* Hashes all images of the training split, split[0], and of the test split, split[1], which may be NULL. Collective: every rank
 * must call it. Each rank hashes some of the images and gets the hashes of all. Blocks until done. On success *HASHES must be
 * freed with sgrad_hashes_free. Returns SGRAD_EFORMAT or SGRAD_EIO if an image is damaged or odd and the options refuse it, or if
 * the cache file is damaged or cannot be written; SGRAD_ENOMEM if there is no memory for an image. */
int sgrad_hashes_make(const struct sgrad_context *context, struct sgrad_dataset *const split[2],
                      const struct sgrad_hash_options *options, struct sgrad_hashes *hashes);
void sgrad_hashes_free(struct sgrad_hashes *hashes);        /* frees the arrays, not the struct */
/* Returns true if image I has a hash, that is, if it was neither damaged nor skipped. */
static inline bool sgrad_hashes_has(const struct sgrad_hashes *hashes, int64_t i) {
    return !(hashes->state[i] & (SGRAD_IMAGE_DAMAGED | SGRAD_IMAGE_SKIPPED));
}
/* Returns the number of bits in which two hashes of WORDS words differ. */
static inline int sgrad_hash_distance(const uint64_t *a, const uint64_t *b, int words) {
    int distance = 0;
    for (int w = 0; w < words; w++) distance += __builtin_popcountll(a[w] ^ b[w]);
    return distance;
}

/* ---- search: exactly all near pairs ---------------------------------------------------------------------------------- */

/* Two near images. */
struct sgrad_pair {
    uint32_t a, b, distance;            /* images, a < b; bits */
};
/* Algorithms of the search, which all give the same result: the cheapest by estimate; multi-index hashing, which compares hashes
 * that differ in few bits of a segment (Norouzi, Punjani, Fleet 2014); comparison of hashes with similar numbers of ones. */
enum sgrad_search_method { SGRAD_SEARCH_CHEAPEST, SGRAD_SEARCH_SEGMENTS, SGRAD_SEARCH_WEIGHTS };
struct sgrad_search {
    int threshold;                      /* bits */
    int64_t queries;                    /* finds pairs with a < queries only; 0: all pairs */
    enum sgrad_search_method method;
    int64_t most;                       /* maximum number of pairs in memory; 0: 2^25 */
    int64_t memory;                     /* maximum bytes of memory, without struct sgrad_hashes; 0: no limit */
    const char *folder;                 /* of the temporary file that is used if memory is too small; NULL: the system's */
    /* Called once for each image a that has a near image b > a, in ascending order of a, with all its pairs in ascending order of
     * b. PAIR is valid during the call. A result other than 0 ends the search, which returns it. */
    int (*see)(void *arg, const struct sgrad_pair *pair, int64_t pairs);
    void *arg;
};
/* Searches with tasks of this rank; blocks until done. Images without a hash are left out. Returns SGRAD_EINVAL if there are
 * 2^32 - 1 images or more, SGRAD_EIO if the temporary file cannot be created or its folder is full, the error of a failed task,
 * or the result of see. */
int sgrad_hashes_search(const struct sgrad_hashes *hashes, const struct sgrad_search *search);

/* ---- choice of the threshold ----------------------------------------------------------------------------------------- */

/* Distances of training images in random pairs, which are almost never duplicates. Index [0]: pairs of one class; [1]: pairs of
 * two classes. */
struct sgrad_guide {
    int64_t pairs[2], distance[2][64 * SGRAD_HASH_WORDS + 1];           /* sampled pairs; those at distance d */
    double worst[64 * SGRAD_HASH_WORDS + 1];    /* fraction of a class's pairs at distance <= d; maximum over the classes */
    int automatic;                      /* largest threshold d with worst[d] < SGRAD_FALSE_RATE; -1: none */
};
#define SGRAD_FALSE_RATE 1e-4
/* Draws the pairs with SEED and sets *GUIDE. All classes of few images count as one class. Runs as tasks of this rank; blocks
 * until done. Returns 0 or the error of a failed task. */
int sgrad_guide_sample(const struct sgrad_dataset *train, const struct sgrad_hashes *hashes, uint64_t seed,
                       struct sgrad_guide *guide);

/* ---- decision -------------------------------------------------------------------------------------------------------- */

#define SGRAD_LEVELS_MOST 64    /* maximum number of levels */
struct sgrad_duplicates_options {
    int threshold;                      /* bits, at least 0 */
    bool across;                        /* also drops duplicates of other classes, and training samples near a test sample */
    const char *folder;                 /* for pairs.jsonl and the search's temporary file; NULL: pairs.jsonl is not written */
    int64_t memory;                     /* see struct sgrad_search */
    int64_t pairs_written;              /* maximum number of pairs in pairs.jsonl; 0: 10,000,000 */
    int64_t pairs_kept;                 /* maximum number of pairs returned in struct sgrad_duplicates.pair, for the page */
};
/* Relation of a near pair: two training images of one class; of two classes; a training and a test image. */
enum sgrad_relation { SGRAD_WITHIN, SGRAD_ACROSS, SGRAD_LEAK, SGRAD_RELATIONS };
struct sgrad_duplicates {
    int threshold;
    int64_t pairs[SGRAD_RELATIONS];
    int64_t images[SGRAD_RELATIONS];    /* training images in at least one pair of the relation */
    int64_t tests;                      /* test images in leaks */
    int64_t leaks_of_class;             /* leaks whose two images have the same class */
    double chance;                      /* expected pairs of one class, if near as often as those of two; 0: one class */
    int64_t dropped;                    /* training samples, at threshold */
    /* Results at each threshold up to this one. Level L is threshold first + L; the last level is threshold. */
    int first, levels;
    int64_t drops[SGRAD_LEVELS_MOST], near[SGRAD_RELATIONS][SGRAD_LEVELS_MOST];         /* samples dropped; pairs */
    uint64_t *drop;                     /* of each training sample; bit L: it is dropped at level L */
    uint8_t *relation;                  /* of each image; bit R: it is in a pair of relation R */
    int64_t kept;
    struct sgrad_pair *pair;            /* (kept): the first pairs, at most options.pairs_kept */
    int64_t written;                    /* pairs in pairs.jsonl: at most options.pairs_written */
};
/* Searches all near pairs of two training images, or of a training and a test image, and decides which training samples to drop.
 * The splits are those of sgrad_hashes_make. Writes options.folder/pairs.jsonl. Runs as tasks of this rank; blocks until done. On
 * success *FOUND must be freed with sgrad_duplicates_free. Returns the errors of sgrad_hashes_search, or SGRAD_EIO if pairs.jsonl
 * cannot be written. */
int sgrad_duplicates_find(struct sgrad_dataset *const split[2], const struct sgrad_hashes *hashes,
                          const struct sgrad_duplicates_options *options, struct sgrad_duplicates *found);
void sgrad_duplicates_free(struct sgrad_duplicates *found);     /* frees the arrays, not the struct */
/* Writes lists of training samples to FOLDER, one name or number per line: keep.txt; drop.txt, which includes images without a
 * hash; leaks.txt, those near a test sample. struct sgrad_dataset_options.exclude reads this format. A name with a line break is
 * left out, with a warning. Returns SGRAD_EIO if a file cannot be written. */
int sgrad_duplicates_write(struct sgrad_dataset *const split[2], const struct sgrad_hashes *hashes,
                           const struct sgrad_duplicates *found, const char *folder);
/* Writes to PATH, in the same format, the training samples that are dropped at LEVEL; -1: only images without a hash. Returns
 * SGRAD_EIO if the file cannot be written. */
int sgrad_duplicates_write_level(const struct sgrad_dataset *train, const struct sgrad_hashes *hashes,
                                 const struct sgrad_duplicates *found, int level, const char *path);
/* Writes FOLDER/index.html, a self-contained page for any browser: groups of near images with thumbnails, and a slider for the
 * threshold. It is based on the pairs in found->pair. Returns SGRAD_EIO if the file cannot be written. */
int sgrad_duplicates_page(struct sgrad_dataset *const split[2], const struct sgrad_hashes *hashes,
                          const struct sgrad_duplicates *found, const struct sgrad_guide *guide, const char *title,
                          const char *folder);

#ifdef __cplusplus
}
#endif
#endif
