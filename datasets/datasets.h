/* datasets.h: labelled images in files: open them, count them, fill one batch.
 *
 * A *reader* knows one kind of data set; `KIND:ARGUMENT` names a data set everywhere: "digits", "idx:/data/mnist",
 * "cifar10:/data/cifar", "folder:/data/pets,224", "synthetic:32x32x3,10,5000". An open *data set* is one split of it,
 * its samples numbered from 0. Reading gives pixels as they are in the files, 0 to full scale; who trains divides by the
 * full scale and normalises with the mean and deviation of the training split:
 *
 *     struct sgrad_dataset *train;
 *     SGRAD_TRY(sgrad_dataset_open("cifar10:/data/cifar", SGRAD_TRAIN, NULL, &train));
 *     printf("%lld images of %dx%dx%d, %d classes\n", (long long)train->count,
 *            train->height, train->width, train->channels, train->classes);
 *     double mean[SGRAD_MAX_CHANNELS], deviation[SGRAD_MAX_CHANNELS];
 *     SGRAD_TRY(sgrad_dataset_statistics(train, mean, deviation));         // .4914 .4822 .4465, .2470 .2435 .2616
 *
 *     uint8_t pixels[2 * 32 * 32 * 3];
 *     int32_t labels[2];
 *     SGRAD_TRY(sgrad_dataset_read(train, (int64_t[]){ 17, 4 }, 2, pixels, labels));
 *     sgrad_dataset_close(train);
 *
 * Files are untrusted: whatever is wrong with one is an error that names the file, the place in it and the reason, when
 * the data set is opened, or, for images that are decoded when they are asked for, when they are read. Nothing here
 * shuffles, changes an image, or knows that there are other ranks; but a reader knows what training may do to its images. */
#ifndef SGRAD_DATASETS_H
#define SGRAD_DATASETS_H

#include "runtime/runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

enum sgrad_split { SGRAD_TRAIN, SGRAD_TEST };

/* Zeros are the defaults. */
struct sgrad_dataset_options {
    uint64_t seed;      /* of synthetic data */
    int size;           /* side of a folder's images where its argument gives none; 0: the files' own */
    size_t memory;      /* bytes that decoded images may be kept in; 0: 2 GiB or a quarter of the machine's, the less; 1: none */
};

struct sgrad_reader;
struct sgrad_dataset {
    const struct sgrad_reader *reader;
    enum sgrad_split split;
    int64_t count;                      /* samples, at least 1 */
    int height, width, channels;
    int classes;
    float full_scale;                   /* the largest value of a pixel: 255, digits 16 */
    const char *augment;                /* what training does to its images if nothing else is asked for; NULL: none */
    const char *const *class_name;      /* of each class; NULL: its number is its name */
    const int32_t *label;               /* of each sample, 0 to classes - 1 */
    /* The reader's own. */
    const uint8_t *pixels;              /* (count,H,W,C), or NULL: the reader reads a sample when it is asked for */
    uint64_t identity;                  /* what the fingerprint takes in place of pixels, where they are NULL */
    void *state;
};

/* Opens one split of the data set that TEXT, "KIND" or "KIND:ARGUMENT", names. OPTIONS may be NULL.
 * SGRAD_ENAME: no such kind; SGRAD_EINVAL: malformed argument; SGRAD_EIO, SGRAD_EFORMAT: something is wrong with a file. */
int sgrad_dataset_open(const char *text, enum sgrad_split split, const struct sgrad_dataset_options *options,
                       struct sgrad_dataset **dataset);
void sgrad_dataset_close(struct sgrad_dataset *dataset);        /* NULL is fine */
/* Gives back pixels and labels that are in memory: for who has read what is needed, since nothing can be read afterwards. */
void sgrad_dataset_release(struct sgrad_dataset *dataset);

/* Bytes of a sample's pixels. */
static inline size_t sgrad_dataset_sample_bytes(const struct sgrad_dataset *dataset) {
    return (size_t)dataset->height * (size_t)dataset->width * (size_t)dataset->channels;
}

/* Samples index[0…n-1] as pixels (n,H,W,C) and labels (n). Any number of threads may read at once. */
int sgrad_dataset_read(const struct sgrad_dataset *dataset, const int64_t *index, int n, uint8_t *pixels, int32_t *labels);

/* Mean and population deviation of each channel over all pixels of the split, divided by full scale: exact sums, so the
 * same on any machine. The deviation of a channel that never changes is given as 1, since it is there to be divided by.
 * Reads everything, with one thread a core where that means decoding. */
int sgrad_dataset_statistics(const struct sgrad_dataset *dataset, double *mean, double *deviation);

/* The same in two steps, for who reads a part: the sums over COUNT samples from FROM on, sums of parts being added; and what
 * follows from those of all. Of three who share ten samples, one takes 0 to 2, one 3 to 5, one 6 to 9. */
struct sgrad_dataset_sums {
    uint64_t sum[SGRAD_MAX_CHANNELS], squares[SGRAD_MAX_CHANNELS];
};
int sgrad_dataset_sums(const struct sgrad_dataset *dataset, int64_t from, int64_t count, struct sgrad_dataset_sums *sums);
void sgrad_dataset_moments(const struct sgrad_dataset *dataset, const struct sgrad_dataset_sums *sums, double *mean,
                           double *deviation);

/* Reads COUNT samples from FROM on for nothing but the error that a damaged one is, so that it comes before the training and not
 * in its midst. What lies in memory, or is computed, has nothing to be damaged: 0 at once. */
int sgrad_dataset_check(const struct sgrad_dataset *dataset, int64_t from, int64_t count);

/* A number that tells one content from another, whatever its path: a hash of shape, labels and pixels, of a folder of its
 * files' names and sizes, of synthetic data of its recipe. */
uint64_t sgrad_dataset_fingerprint(const struct sgrad_dataset *dataset);

/* ---- augmentation: what training does to an image, so that it is not the same twice and yet of its class -------- */

struct sgrad_augmentation {
    int pad;        /* pixels of black on each side; of the whole the image's size is cut at random; 0: none */
    bool flip;      /* left to right, one time in two */
};

/* TEXT is "none" or, with commas between, "crop:N" (pixels) or "crop:1/N" (an N-th of the shorter side), and "flip"; images are
 * of HEIGHT x WIDTH, both 0: not known yet. SGRAD_EINVAL: it is something else, or leaves nothing of an image. */
int sgrad_augmentation_parse(const char *text, int height, int width, struct sgrad_augmentation *augmentation);
/* As text, with the pixels that it came to: "crop:4,flip"; free it. */
char *sgrad_augmentation_text(const struct sgrad_augmentation *augmentation);

/* ---- readers: one file and one line of datasets.def each ------------------------------------------------------- */

struct sgrad_reader {
    const char *name, *argument;        /* "cifar10", "DIR"; argument NULL: takes none */
    const char *summary;
    const char *augment;                /* that of its data sets, but where open finds that one wants another; NULL: none */
    /* Fills DATASET, of which reader, split and augment are set and the rest is zero. ARGUMENT is what follows the colon, not
     * empty where the reader takes one. On an error the caller closes what is there. `label` and `pixels` are freed with free. */
    int (*open)(struct sgrad_dataset *dataset, const char *argument, const struct sgrad_dataset_options *options);
    /* One sample's pixels (H,W,C), from any thread. NULL: they are always in memory. */
    int (*read)(const struct sgrad_dataset *dataset, int64_t index, uint8_t *pixels);
    void (*close)(struct sgrad_dataset *dataset);       /* frees state, where there is any; NULL: there never is */
    bool computes;                      /* read looks at no file: it never fails */
};

extern const struct sgrad_reader *const sgrad_readers[];        /* all of datasets.def; ends with NULL */

#ifdef __cplusplus
}
#endif
#endif
