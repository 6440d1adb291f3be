/* encoded.h: samples that are encoded images, in files or in archives: decoding, scaling, the type of pixels, and a cache of
 * decoded images. The readers "folder" and "tar" share these functions. Private to datasets/. */
#ifndef SGRAD_DATASETS_ENCODED_H
#define SGRAD_DATASETS_ENCODED_H

#include "datasets/datasets.h"
#include "datasets/formats.h"

/* The bytes of an encoded image. */
struct sgrad__bytes {
    char *name;                         /* for messages: the path of a file; from malloc */
    const unsigned char *data;
    size_t size;
};

/* A list of encoded images. Threads may call its functions concurrently. */
struct sgrad__source {
    const void *of;                     /* the first argument of the functions */
    int64_t count;                      /* number of images */
    int (*fetch)(const void *of, int64_t i, struct sgrad__bytes *bytes);        /* reads image I; the caller must release BYTES */
    void (*release)(const void *of, int64_t i, struct sgrad__bytes *bytes);
};

/* The properties of a sample of images. */
struct sgrad__survey {
    int64_t images, coloured, deep;     /* readable headers; of these, images with colours; with more than 8 bits per channel */
};

/* The images of a data set. A reader sets source, and calls the functions below in their order. */
struct sgrad__encoded {
    struct sgrad__source source;        /* all images of the split */
    int side;                           /* of a square; 0: images keep their size */
    int scaled;                         /* the shorter side to which images are scaled before they are cropped to side */
    bool upright;                       /* the EXIF orientation is applied */
    struct sgrad__image_use use;        /* of the images, by decode */
    bool skips;                         /* images may be damaged */
    bool deep;                          /* pixels are U16 */
    size_t limit;                       /* bytes of memory for decoded images */
    char *plain;                        /* dataset->plain */
    uint8_t *cache;                     /* (count,H,W,3); NULL: too large */
    _Atomic unsigned char *state;       /* of each image in the cache */
    _Atomic bool warned_deep, warned_animated;
};

/* Returns the memory for data that are read: options.memory, or, if that is 0, 2 GiB and at most a quarter of the machine's. */
size_t sgrad__memory_limit(size_t memory);

/* Parses ARGUMENT, "PATH" or "PATH,SIZE", and OPTIONS, and sets the fields of DATASET. *PATH: the caller must free it, also after
 * an error. SGRAD_EINVAL: SIZE is out of range, or options.test_resize is below it. */
int sgrad__encoded_open(struct sgrad__encoded *encoded, struct sgrad_dataset *dataset, const char *argument,
                        const struct sgrad_dataset_options *options, char **path);
/* Sets the shape and the type of pixels, and allocates the cache if CACHES and all images fit into the limit. SURVEY: of the
 * training images, so that both splits have the same type. */
int sgrad__encoded_measure(struct sgrad__encoded *encoded, struct sgrad_dataset *dataset, const struct sgrad__survey *survey,
                           bool caches);
/* Reads image I into PIXELS, (H,W,3), decoded and scaled. */
int sgrad__encoded_read(struct sgrad__encoded *encoded, const struct sgrad_dataset *dataset, int64_t i, uint8_t *pixels);
/* Decodes image I, as sgrad_dataset_picture. */
int sgrad__encoded_picture(const struct sgrad__encoded *encoded, int64_t i, struct sgrad_picture *picture);
void sgrad__encoded_close(struct sgrad__encoded *encoded);      /* frees its memory, but not the source */

/* ---- survey.c ---- */

/* Reads the headers of a sample of the images in SOURCE. The sample depends only on their number. */
void sgrad__survey(const struct sgrad__source *source, struct sgrad__survey *survey);

#endif
