/* formats.h: common functions of the readers: parsers of files in memory, and helpers. The fuzz targets call the same functions.
 *
 * NAME is the name of a file, for messages. Functions that return int return 0 or a negative error code, SGRAD_EFORMAT for a
 * malformed file, unless their comment states otherwise. Results are set only on success. */
#ifndef SGRAD_DATASETS_FORMATS_H
#define SGRAD_DATASETS_FORMATS_H

#include "runtime/runtime.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sgrad_dataset;
struct sgrad_sample;

/* Parses an idx file (yann.lecun.com/exdb/mnist): an array of bytes, with or without gzip compression. RANK is the required
 * number of dimensions. */
#define SGRAD__IDX_RANK 3
struct sgrad__idx {
    int64_t dim[SGRAD__IDX_RANK], count; /* count: product of the dimensions, at least 1 */
    uint8_t *data;                       /* the caller frees it */
};
int sgrad__idx_parse(const char *name, const void *data, size_t size, int rank, struct sgrad__idx *idx);

/* Parses a file of CIFAR-10's binary version: records of 3,073 bytes. PIXELS, (size / 3073,32,32,3), and LABELS, (size / 3073),
 * are the caller's arrays. */
int sgrad__cifar10_parse(const char *name, const void *data, size_t size, uint8_t *pixels, int32_t *labels);

/* The tokens of a file: COUNT little-endian integers of BYTES bytes, from byte FROM on. */
struct sgrad__tokens {
    size_t from, count;
    int bytes;          /* 1, 2, 4 or 8 */
    bool is_signed;     /* two's complement */
    bool stated;        /* the width is stated by the file, or by its index */
};
/* Parses a file of tokens without a header, or with llm.c's. tokens->bytes, 2 or 4, is an input if the file has no header. */
int sgrad__tokens_parse(const char *name, const void *data, size_t size, struct sgrad__tokens *tokens);
/* Parses a NumPy array of tokens. It must have one dimension and contain integers of up to 32 bits, or int64. */
int sgrad__tokens_parse_npy(const char *name, const void *data, size_t size, struct sgrad__tokens *tokens);
/* Parses the index of a data set of Megatron-LM, whose tokens are in another file, of BIN_SIZE bytes. */
int sgrad__tokens_parse_megatron(const char *name, const void *data, size_t size, size_t bin_size, struct sgrad__tokens *tokens);
/* Sets HEADER to llm.c's header of a file of COUNT tokens of BYTES bytes, 2 or 4. */
#define SGRAD__TOKENS_HEADER 1024
void sgrad__tokens_header(int bytes, uint32_t count, unsigned char header[SGRAD__TOKENS_HEADER]);

/* Returns the folder of the files of the data set tokens:ARGUMENT, that of its first source if it is a mixture; NULL: ARGUMENT is
 * malformed. The caller must free it. (tokens.c) */
char *sgrad__tokens_folder(const char *argument);

/* A table: lines of cells, all with the same number of columns. */
struct sgrad__csv {
    int columns;
    int64_t rows, cells;
    bool headed;        /* row 0 contains the titles of columns (csv_columns.c) */
    bool latin;         /* the file is not UTF-8: bytes above 127 are decoded as Latin-1 */
    bool cut;           /* every line ended with a separator: the empty last column was removed */
    char **cell, *text; /* cell: (rows,columns), pointers to the text */
    int64_t *line;      /* number in the file of the line of each row, from 1 */
    int32_t *file;      /* number of the file of each row (csv_files.c); NULL: there is one file */
    char **texts;       /* the text of each file, instead of text; ends with NULL; NULL: there is one file */
};
/* Parses a table, with cells separated by commas, semicolons or tabs (RFC 4180). The caller must free it with sgrad__csv_free. */
int sgrad__csv_parse(const char *name, const void *data, size_t size, struct sgrad__csv *csv);
void sgrad__csv_free(struct sgrad__csv *csv);
/* Parses JSON lines to a table, whose row 0 has the keys (jsonl.c). The caller must free it with sgrad__csv_free. */
int sgrad__jsonl_parse(const char *name, const void *data, size_t size, struct sgrad__csv *csv);

/* Decompresses a file of gzip or Zstandard: *CONTENT, of *BYTES bytes, which the caller must free; NULL: the file is of another
 * kind. SGRAD_EFORMAT: it is damaged, or has more than LIMIT bytes. SGRAD_ELIBRARY, SGRAD_ENOMEM. (decompress.c) */
int sgrad__decompress(const char *name, const void *data, size_t size, size_t limit, void **content, size_t *bytes);
/* Returns true if all of TEXT is a decimal number that a float can represent, and sets *NUMBER. */
bool sgrad__csv_number(const char *text, double *number);
/* Returns true if CELL is a text that programs write for an unknown number. */
bool sgrad__csv_missing(const char *cell);
/* csv_point: if TEXT is such a number but with a decimal comma, returns it with a point, which the caller must free; else NULL.
 * csv_comma: returns true if TEXT is such a number. */
char *sgrad__csv_point(const char *text);
bool sgrad__csv_comma(const char *text);
/* Compares two such texts by their values, for sorting: "1" and "1.0" are equal. */
int sgrad__csv_order(const char *a, const char *b);

/* Appends NAME, quoted if QUOTED is set, to *LIST, which is initially NULL and which the caller must free, and increments *COUNT.
 * After FEW names, the list ends with an ellipsis. (origin.c) */
void sgrad__list_name(char **list, int *count, int few, bool quoted, const char *name);

/* ---- unused.c ---- */

/* Logs a warning with the classes of DATASET that none of COUNT training labels has. WHERE is the beginning of the message:
 * reader and file, or the name of an array in memory. */
void sgrad__warn_of_unused(const char *where, const int32_t *label, int64_t count, const struct sgrad_dataset *dataset);

/* ---- unicode.c ---- */

bool sgrad__is_utf8(const void *data, size_t size);
/* Returns true if DATA are UTF-8 without control characters, except tabs and line ends. The last character may be incomplete. */
bool sgrad__is_text(const void *data, size_t size);
/* Writes a Latin-1 character to TO as UTF-8, in one or two bytes. Returns the address after it. */
char *sgrad__put_latin(unsigned char byte, char *to);
/* Returns a copy of TEXT, converted from Latin-1 if it is not UTF-8. The caller must free it. */
char *sgrad__utf8_of(const char *text);

/* Computes the normalisation of features: sets mean and deviation (population standard deviation) of ORIGIN, whose features and
 * groups must be set, from COUNT samples. NUMBER(OF, I) returns their number I, counted over all samples. The deviation of a
 * constant number is 1. */
struct sgrad_origin;
void sgrad__features_measure(struct sgrad_origin *origin, int64_t count, double (*number)(const void *of, int64_t i),
                             const void *of);
double sgrad__feature(const struct sgrad_origin *origin, int64_t i, double number);     /* normalises number I of a sample */
/* Rounds X to 15 digits, the precision of config.json, so that training and later use of the network normalise identically. */
double sgrad__as_written(double x);
/* Returns the number of groups of features that are normalised together, for samples of SHAPE: each number is a group; with three
 * or more dimensions, or more than 65,536 numbers, each channel is one. */
int64_t sgrad__feature_groups(const struct sgrad_shape *shape);

/* ---- split.c ---- */

/* Draws the samples of a test split: sets HELD_OUT of a FRACTION of COUNT samples, rounded up, in equal shares of each class of
 * LABEL, if it is not NULL. A class keeps at least one training sample. The result depends only on the arguments. Returns the
 * number of samples that are held out; 0: no class has two samples. */
int64_t sgrad__split_draw(const int32_t *label, int classes, int64_t count, double fraction, uint64_t seed, bool *held_out);
/* Logs that COUNT samples are too few. WHERE: as above (unused.c). Returns SGRAD_EINVAL. */
int sgrad__split_refuse(const char *where, int64_t count);
/* Makes a part of the training samples, whose labels are in field 1, the test split, by options.split. Leaves out the samples of
 * the other split. SGRAD_EINVAL: there are too few. PATH: for the message. */
struct sgrad_dataset_options;
int sgrad__split_hold_out(struct sgrad_dataset *dataset, const char *path, const struct sgrad_dataset_options *options);

/* The part of the files that is a split. HAS returns true if the files OF have this part, "train", "val" or "test". */
struct sgrad__part {
    const char *name;   /* "train", "val" or "test" */
    bool has_train;
    bool holds_out;     /* a fraction of the training samples is the test split, or, with options.whole, all of them */
};
struct sgrad__part sgrad__part_choose(bool test, const struct sgrad_dataset_options *options,
                                      bool (*has)(const void *of, const char *part), const void *of);
/* Warns of classes that have no sample in a test split. WHERE: as above (unused.c). */
void sgrad__warn_of_absent(const char *where, const char *const *class_name, int classes, const int32_t *label, int64_t count);

/* ---- origin.c ---- */

/* Describes the features as columns of numbers, unless the origin has columns. */
void sgrad__origin_add_columns(struct sgrad_origin *origin);
/* Returns a deep copy. The caller must free it with sgrad_origin_free. */
struct sgrad_origin *sgrad__origin_copy(const struct sgrad_origin *origin);
/* Returns the name of CLASS; its number if NAME is NULL. The caller must free it. */
char *sgrad__class_name(const char *const *name, int class);
/* Renumbers the labels of DATASET, DATA in messages, as ORIGIN numbers its classes. SGRAD_EFORMAT: a class is unknown to ORIGIN;
 * with EVERY set, this is a warning and makes the data set unlabelled. */
int sgrad__origin_match(struct sgrad_dataset *dataset, const char *data, const struct sgrad_origin *origin, bool every);

/* A NumPy array: COUNT numbers of BYTES bytes each, of KIND 'u' (unsigned), 'i' (signed), 'b' (boolean) or 'f' (floating-point).
 * DATA points into the file. */
struct sgrad__npy {
    char kind;
    bool high_first;    /* big-endian */
    bool fortran;       /* Fortran order: the first dimension changes fastest */
    int bytes;
    int64_t count;
    struct sgrad_shape shape;
    const unsigned char *data;
};
/* NAME: of the file, for messages. */
int sgrad__npy_parse(const char *name, const void *data, size_t size, struct sgrad__npy *npy);
/* Describes an array in memory. SGRAD_EFORMAT: its type or its shape is not supported. */
struct sgrad_array;
int sgrad__npy_of_array(const char *name, const struct sgrad_array *array, struct sgrad__npy *npy);
double sgrad__npy_number(const struct sgrad__npy *npy, int64_t i);      /* number I in C order, in either order of the file */

/* Warns of samples of shape ONE that seem to have channels first, as in many other frameworks: 1 or 3 channels, then two equal
 * sides. WHERE: as above (unused.c). (npy.c) */
void sgrad__warn_of_channels(const char *where, const struct sgrad_shape *one);

/* Fills DATASET from options->arrays, as the reader npy does from files (npy.c). Images are not copied: the
 * data of field 0 are then NULL. */
struct sgrad_dataset_options;
int sgrad__npy_open_arrays(struct sgrad_dataset *dataset, const struct sgrad_dataset_options *options);

/* Reads MEMBER of a zip archive, stored or deflated, and verifies its checksum. The caller must free *CONTENT, of *BYTES bytes.
 * SGRAD_EFORMAT, SGRAD_ENOMEM, SGRAD_ELIBRARY. */
int sgrad__zip_read(const char *name, const void *data, size_t size, const char *member, void **content, size_t *bytes);
bool sgrad__zip_has(const void *data, size_t size, const char *member);     /* false also if it is not an archive */

/* ---- images: image.c. Each format is one file of datasets/images/ and one line of datasets/images.def ------------- */

/* An RGB image. Grey is repeated in all three channels. Of transparent pixels, the stored colour is used. */
struct sgrad__image {
    int height, width;
    bool grey;       /* the file is greyscale */
    bool deep;       /* the file has more than 8 bits per channel */
    bool animated;   /* the file has further images */
    uint8_t *rgb;    /* (height,width,3), 0 to 255; NULL if rgb16 is used; the caller frees it */
    uint16_t *rgb16; /* (height,width,3), 0 to 65535; NULL if rgb is used; the caller frees it */
};
/* The use of an image, so that a decoder may omit work. A decoder may ignore it. */
struct sgrad__image_use {
    int least;          /* the shorter side needs no more pixels: a fraction of the size is enough; 0: the full size */
    int scaled, side;   /* only the pixels that sgrad__image_fit uses are needed, others may be black; 0: all pixels */
};
struct sgrad__image_format {
    const char *name, *endings;                         /* "JPEG", ".jpg .jpeg" */
    const char *library;                                /* the one that read needs (runtime/libraries.h); NULL: none */
    bool (*is)(const unsigned char *data, size_t size); /* checks the first bytes */
    /* Decodes to rgb, or to rgb16 if the file has more than 8 bits per channel. Without PIXELS, both are NULL. read is NULL
     * if the build lacks the library. */
    int (*read)(const char *name, const void *data, size_t size, bool pixels, struct sgrad__image *image);
    /* The same, with pixels, for USE. NULL: images are decoded as a whole. */
    int (*read_for)(const char *name, const void *data, size_t size, const struct sgrad__image_use *use,
                    struct sgrad__image *image);
};
/* Returns true if the name of a file ends with the extension of a format, in upper or lower case. */
bool sgrad__image_is_named(const char *name);
/* Returns all extensions: ".jpg, .jpeg, …". The caller must free it. */
char *sgrad__image_endings(void);
/* These functions select the format by the first bytes. header reads no pixels; decode sets rgb, and decode_deep rgb16, for files
 * of any depth. SGRAD_EFORMAT: the file is damaged, or of an unknown format. SGRAD_ELIBRARY: the build lacks its library. */
int sgrad__image_header(const char *name, const void *data, size_t size, struct sgrad__image *image);
int sgrad__image_decode(const char *name, const void *data, size_t size, struct sgrad__image *image);
int sgrad__image_decode_deep(const char *name, const void *data, size_t size, struct sgrad__image *image);
/* The same as decode_deep if DEEP, else as decode, but a JPEG is decoded for USE: at 1/2, 1/4 or 1/8 of its size if its shorter
 * side then has at least use->least pixels, which changes pixels slightly when the image is scaled; and only in the columns that
 * sgrad__image_fit uses, which changes none. */
int sgrad__image_decode_for(const char *name, const void *data, size_t size, bool deep, const struct sgrad__image_use *use,
                            struct sgrad__image *image);

/* raster.c: functions that several formats use. */
#define SGRAD__SIDE_LIMIT 65535
/* Must be called before memory for pixels is allocated. SGRAD_EFORMAT: a side or the number of pixels is out of range, or the
 * file, which can contain at most MOST pixels, is too short. */
int sgrad__image_check_size(const char *format, const char *name, uint64_t width, uint64_t height, uint64_t most);
/* Rotates and mirrors the image, with or without pixels, to upright, from an ORIENTATION of TIFF or EXIF, 1 to 8. Other values
 * have no effect. */
void sgrad__image_orient(struct sgrad__image *image, int orientation);
/* exif.c: applies the EXIF orientation in the file at DATA, from which IMAGE was read, with or without pixels. Without one, or if
 * the metadata are malformed, IMAGE is unchanged. */
void sgrad__image_upright(const void *data, size_t size, struct sgrad__image *image);
/* Converts cyan, magenta, yellow and black, 0 to MOST, to red, green and blue of the same range, as Pillow converts CMYK. */
void sgrad__image_of_inks(const uint16_t ink[4], unsigned most, uint16_t rgb[3]);

/* Scales the image until its shorter side is SCALED, and crops SIDE x SIDE pixels from its centre; SIDE must be at most SCALED.
 * TO is (side,side,3), of U8, or of U16 if the image has rgb16. */
void sgrad__image_fit(const struct sgrad__image *image, int scaled, int side, void *to);
/* Sets *FROM and *TO to the columns that sgrad__image_fit uses of an image of HEIGHT x WIDTH: FROM <= column < TO. */
void sgrad__image_columns(int height, int width, int scaled, int side, int *from, int *to);

/* Counts the file NAME, which is not an image, by its extension. (walk.c) */
struct sgrad_walk;
void sgrad__walk_note_name(struct sgrad_walk *walk, const char *name);

/* Returns 0 if PATH, the argument of reader KIND, is an existing folder. Else returns SGRAD_EIO, and logs WANTED, the expected
 * argument. */
int sgrad__folder_check(const char *kind, const char *path, const char *wanted);
bool sgrad__is_folder(const char *path);        /* false also if it does not exist */

/* ---- kept.c ---- */

/* Return the index in the reader of sample INDEX, and SAMPLE with its index in the reader. */
int64_t sgrad__index_in_reader(const struct sgrad_dataset *dataset, int64_t index);
struct sgrad_sample sgrad__sample_in_reader(const struct sgrad_dataset *dataset, struct sgrad_sample sample);
/* Leaves out the samples with OUT[i] set, unless these are all samples. Returns their number. */
int64_t sgrad__dataset_leave_out(struct sgrad_dataset *dataset, const bool *out);

/* ---- exclude.c, statistics.c, fingerprint.c ---- */

/* Leaves out the samples that FILE lists. SGRAD_EIO: FILE cannot be read. SGRAD_EFORMAT: a line names no sample, or no sample
 * would be left. */
int sgrad__dataset_exclude(struct sgrad_dataset *dataset, const char *file);
/* Reads all samples, unless they are in memory or computed. For each sample that cannot be read, REASON[i] is set to the message,
 * which is not logged and which the caller must free. Errors other than SGRAD_EIO and SGRAD_EFORMAT are returned. */
int sgrad__dataset_find_damaged(const struct sgrad_dataset *dataset, char **reason);

/* Returns the stamp of a sample (sgrad_dataset_stamp) with this name. NUMBER: properties of its version. */
uint64_t sgrad__sample_stamp(const char *name, const int64_t *number, size_t numbers);
/* Returns HASH, a fingerprint, extended by SIZE bytes. */
uint64_t sgrad__fingerprint_add(uint64_t hash, const void *data, size_t size);
/* The same in several calls: words for all parts except the last one, whose SIZE is a multiple of 8; end for the last part, where
 * ALL is the sum of all sizes. */
uint64_t sgrad__fingerprint_words(uint64_t hash, const void *data, size_t size);
uint64_t sgrad__fingerprint_end(uint64_t hash, const void *data, size_t size, size_t all);

/* ---- turns.c ---- */

/* Waits until no other thread or process has the turn of FILE, a hash, in NAME, a file of the cache folder. Returns a number for
 * sgrad__turn_end; negative: there is no cache folder, and nobody waits. */
int sgrad__turn_take(const char *name, uint64_t file);
void sgrad__turn_end(int turn);
/* Returns the file, of COUNT, with which this process begins. */
int64_t sgrad__turn_first(int64_t count);

#endif
