/* formats.h: what the readers share: parsers of files in memory. The fuzz targets call the same functions.
 *
 * NAME is the file's, for messages. Results are set only on success. */
#ifndef SGRAD_DATASETS_FORMATS_H
#define SGRAD_DATASETS_FORMATS_H

#include "runtime/runtime.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sgrad_dataset;

/* idx (yann.lecun.com/exdb/mnist): an array of bytes, gzipped or not. RANK is the number of dimensions it must have. */
#define SGRAD__IDX_RANK 3
struct sgrad__idx {
    int64_t dim[SGRAD__IDX_RANK], count; /* count: product of the dimensions, at least 1 */
    uint8_t *data;                       /* the caller frees it */
};
int sgrad__idx_parse(const char *name, const void *data, size_t size, int rank, struct sgrad__idx *idx);

/* CIFAR-10's binary version: records of 3,073 bytes. PIXELS is (size / 3073,32,32,3), LABELS (size / 3073). */
int sgrad__cifar10_parse(const char *name, const void *data, size_t size, uint8_t *pixels, int32_t *labels);

/* Tokens, with llm.c's header or without: the byte FROM which they lie to the end. *BYTES of a token, 2 or 4, are the header's;
 * without one they stay as they are. */
int sgrad__tokens_parse(const char *name, const void *data, size_t size, size_t *from, int *bytes);

/* Lines of cells, all of as many columns. */
struct sgrad__csv {
    int columns;
    int64_t rows, cells;
    bool headed;        /* row 0 has the titles of columns: sgrad__csv_head */
    bool latin;         /* the file is no UTF-8: its bytes above 127 are taken for Latin-1 */
    bool cut;           /* every line ends with a separator: the empty last column is left out */
    char **cell, *text; /* (rows,columns), into the text */
    int64_t *line;      /* of each row the number in the file, from 1 */
};
int sgrad__csv_parse(const char *name, const void *data, size_t size, struct sgrad__csv *csv);
void sgrad__csv_free(struct sgrad__csv *csv);
/* Is TEXT a decimal number that a float can hold, with nothing behind it? */
bool sgrad__csv_number(const char *text, double *number);
/* Where TEXT is such a number but for a decimal comma, that with a point, free it; else NULL. And is it? */
char *sgrad__csv_point(const char *text);
bool sgrad__csv_comma(const char *text);
/* Orders two such texts by their numbers: "1" and "1.0" are the same. */
int sgrad__csv_order(const char *a, const char *b);

/* Appends NAME, in quotes if QUOTED, to *LIST, which begins as NULL and is the caller's to free; counts it in *COUNT. After FEW
 * names an ellipsis ends the list. (origin.c) */
void sgrad__list_name(char **list, int *count, int few, bool quoted, const char *name);

/* ---- unused.c ---- */

/* Warns of the classes of D that no one of COUNT training labels is; PATH has them, of a data set of KIND. */
struct sgrad_dataset;
void sgrad__warn_of_unused(const char *kind, const char *path, const int32_t *label, int64_t count,
                           const struct sgrad_dataset *d);

/* ---- unicode.c ---- */

bool sgrad__is_utf8(const void *data, size_t size);
/* Are DATA UTF-8 without control characters? The last character may be cut off. */
bool sgrad__is_text(const void *data, size_t size);
/* Puts a letter of Latin-1 to TO, as UTF-8, of one byte or two; returns what follows it. */
char *sgrad__put_latin(unsigned char byte, char *to);
/* TEXT, if it is UTF-8, else as if it were Latin-1; free it. */
char *sgrad__utf8_of(const char *text);

/* How features are normalised: ORIGIN's mean and population deviation, of COUNT samples whose number I is NUMBER(OF, I). The
 * deviation of what never changes is 1. ORIGIN has features and groups. */
struct sgrad_origin;
struct sgrad_dataset;
void sgrad__features_measure(struct sgrad_origin *origin, int64_t count, double (*number)(const void *of, int64_t i),
                             const void *of);
double sgrad__feature(const struct sgrad_origin *origin, int64_t i, double number);     /* number I of a sample, normalised */
/* Groups of features of SHAPE: each number its own; of three dimensions and more, and of very many, each channel. */
int64_t sgrad__feature_groups(const struct sgrad_shape *shape);

struct sgrad_origin *sgrad__origin_copy(const struct sgrad_origin *origin);
char *sgrad__class_name(const char *const *name, int class);        /* that, or its number; free it */
/* Numbers the labels of DATASET, which messages call DATA, as ORIGIN does. EVERY: unknown classes make it unlabelled, with a
 * warning. */
int sgrad__origin_match(struct sgrad_dataset *dataset, const char *data, const struct sgrad_origin *origin, bool every);

/* A file of NumPy's: COUNT numbers of so many BYTES, of KIND 'u', 'i', 'b' or 'f', at DATA within the file. */
struct sgrad__npy {
    char kind;
    bool high_first;    /* the upper byte of a number comes first */
    bool fortran;       /* the first dimension changes fastest */
    int bytes;
    int64_t count;
    struct sgrad_shape shape;
    const unsigned char *data;
};
int sgrad__npy_parse(const char *name, const void *data, size_t size, struct sgrad__npy *npy);
double sgrad__npy_number(const struct sgrad__npy *npy, int64_t i);      /* number I in C's order, whatever the file's */

/* The BYTES of a zip archive's MEMBER, stored or deflated, whose check sum is right; the caller frees *CONTENT. */
int sgrad__zip_read(const char *name, const void *data, size_t size, const char *member, void **content, size_t *bytes);
bool sgrad__zip_has(const void *data, size_t size, const char *member);     /* false where it is no archive, too */

/* ---- images: image.c; a format is one file of datasets/images/ and one line of datasets/images.def ---------------- */

/* An image as RGB: grey is repeated in all three; of transparency the colour is taken as it is stored. */
struct sgrad__image {
    int height, width;
    bool grey;       /* the file has no colours */
    bool deep;       /* it has more than 8 bits a channel */
    bool animated;   /* it has further images */
    uint8_t *rgb;    /* (height,width,3), 0 to 255, or */
    uint16_t *rgb16; /* 0 to 65535; the other is NULL; the caller frees both */
};
struct sgrad__image_format {
    const char *name, *endings;                         /* "JPEG", ".jpg .jpeg" */
    bool (*is)(const unsigned char *data, size_t size); /* by the first bytes */
    /* As deep as the file is; without PIXELS both are NULL. */
    int (*read)(const char *name, const void *data, size_t size, bool pixels, struct sgrad__image *image);
};
/* Has the name of a file an ending of any format, in capital letters or small ones? */
bool sgrad__image_is_named(const char *name);
/* All endings: ".jpg, .jpeg, …"; free it. */
char *sgrad__image_endings(void);
/* Finds the format by the first bytes. Without pixels; as rgb, whatever the file has; as rgb16. SGRAD_EFORMAT: the file is
 * damaged, or of no known format, or of one that this build has no library for. */
int sgrad__image_header(const char *name, const void *data, size_t size, struct sgrad__image *image);
int sgrad__image_decode(const char *name, const void *data, size_t size, struct sgrad__image *image);
int sgrad__image_decode_deep(const char *name, const void *data, size_t size, struct sgrad__image *image);

/* raster.c: parts that formats share. */
#define SGRAD__SIDE_LIMIT 65535
/* Before anything is allocated: SGRAD_EFORMAT where sides are out of range, or the file cannot hold more than MOST pixels. */
int sgrad__image_check_size(const char *format, const char *name, uint64_t width, uint64_t height, uint64_t most);
/* Turns and mirrors the image, with or without pixels, from TIFF's and EXIF's ORIENTATION, 1 to 8, to upright; others change
 * nothing. */
void sgrad__image_orient(struct sgrad__image *image, int orientation);
/* Cyan, magenta, yellow and black, 0 to MOST, to red, green and blue of the same range, as Pillow converts CMYK. */
void sgrad__image_of_inks(const uint16_t ink[4], unsigned most, uint16_t rgb[3]);

/* ---- survey.c ---- */

struct sgrad__survey {
    int64_t images, coloured, deep;     /* headers that could be read; images with colours; with more than 8 bits a channel */
};
/* Reads headers of a sample of COUNT images, NAMEs in FOLDER: the same sample whenever the list is the same. */
void sgrad__survey(const char *folder, char *const *name, int64_t count, struct sgrad__survey *survey);

/* Scales the image until its shorter side is SIDE, and cuts SIDE x SIDE from its centre. TO is (side,side,3), U8 or, of rgb16,
 * U16. */
void sgrad__image_fit(const struct sgrad__image *image, int side, void *to);

/* Is PATH, the argument of a reader of KIND, a folder that is there? Else WANTED says what it should be. */
int sgrad__folder_check(const char *kind, const char *path, const char *wanted);

/* The number that the reader knows sample INDEX by. */
int64_t sgrad__dataset_kept(const struct sgrad_dataset *dataset, int64_t index);
/* Leaves out the samples that FILE lists. */
int sgrad__dataset_exclude(struct sgrad_dataset *dataset, const char *file);
/* Reads all samples; REASON[i] of each that cannot be read is set to the message, which is not printed; the caller frees it.
 * Errors other than SGRAD_EIO and SGRAD_EFORMAT are errors. */
int sgrad__dataset_find_damaged(const struct sgrad_dataset *dataset, char **reason);
/* Leaves out the samples with OUT[i] set. SGRAD_EFORMAT: none would stay. */
int sgrad__dataset_leave_out(struct sgrad_dataset *dataset, const bool *out);

/* Continues HASH over more bytes. */
uint64_t sgrad__fingerprint_add(uint64_t hash, const void *data, size_t size);

#endif
