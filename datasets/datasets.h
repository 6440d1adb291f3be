/* datasets.h: data sets: opening files of samples, counting samples, reading batches, augmenting images.
 *
 * A *reader* implements one kind of data set (datasets.def). The command line and this API name a data set by a string
 * `KIND:ARGUMENT`: "digits", "idx:/data/mnist", "cifar10:/data/cifar", "folder:/data/pets,224", "synthetic:32x32x3,10,5000". An
 * open *data set* is one split (train or test) of it. Its samples are numbered from 0. A sample is a list of *fields*, each with
 * a name, a type and a shape. The first field is the input of the network, the last field is its target:
 *
 *     labelled images     pixels U8 (H,W,C)     label I32 ()
 *     measurements        features F32 (8)      target F32 (1)
 *     text                tokens I32 (T)        next I32 (T)
 *
 * Pixels have the values of the files, from 0 to the full scale. The training code divides them by the full scale and normalises
 * them with the mean and standard deviation of the train split. It uses other fields unchanged:
 *
 *     struct sgrad_dataset *train;
 *     SGRAD_TRY(sgrad_dataset_open("cifar10:/data/cifar", SGRAD_TRAIN, NULL, &train));
 *     char shape[SGRAD_SHAPE_TEXT];
 *     printf("%lld images of %s, %d classes\n", (long long)train->count,
 *            sgrad_shape_text(&train->field[0].shape, shape), train->classes);            // (32,32,3)
 *     double mean[SGRAD_MAX_CHANNELS], deviation[SGRAD_MAX_CHANNELS];
 *     SGRAD_TRY(sgrad_dataset_statistics(train, mean, deviation));         // .4914 .4822 .4465, .2470 .2435 .2616
 *
 *     uint8_t pixels[2 * 32 * 32 * 3];
 *     int32_t labels[2];
 *     const struct sgrad_sample sample[] = { { .index = 17 }, { .index = 4 } };
 *     SGRAD_TRY(sgrad_dataset_read(train, sample, 2, (void *[]){ pixels, labels }));
 *     sgrad_dataset_close(train);
 *
 * Functions that return int return 0 or a negative error code (runtime.h), unless their comment states otherwise.
 *
 * Files are untrusted. An invalid file is an error, whose message names the file, the position in the file and the reason. The
 * error is reported when the data set is opened, or, for images that are decoded on demand, when they are read. No function of
 * this header shuffles samples or distributes them over ranks. Training transforms images by a list of *augmentations*. Their
 * random numbers depend only on the seed, the epoch and the sample. */
#ifndef SGRAD_DATASETS_DATASETS_H
#define SGRAD_DATASETS_DATASETS_H

#include "datasets/origin.h"
#include "datasets/source.h"
#include "datasets/walk.h"
#include "runtime/runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The split of a data set. */
enum sgrad_split { SGRAD_TRAIN, SGRAD_TEST };

struct sgrad_reader;

/* An array in the caller's memory: numbers in C order and in the byte order of this machine. data NULL: no array. */
struct sgrad_array {
    const void *data;
    const char *type;                   /* NumPy's: "u1", "i8", "f4", …; those that the reader npy accepts */
    int rank;                           /* number of dimensions, at least 1 */
    const int64_t *dim;                 /* each dimension; the first is that of the samples */
    const char *name;                   /* for messages; NULL: x_train, y_train, x_test or y_test */
};
/* The samples x and the targets y of each split, for the data set "arrays". They correspond to x_train.npy, y_train.npy,
 * x_test.npy and y_test.npy of the data set "npy". */
struct sgrad_arrays {
    struct sgrad_array x[2], y[2];
};

/* Options of sgrad_dataset_open. Zeros are the defaults. */
struct sgrad_dataset_options {
    const struct sgrad_arrays *arrays;  /* of the data set "arrays"; NULL: none. Images are read from the caller's arrays, which
                                           must outlive the data set; all other values are copied */
    const struct sgrad_reader *custom;  /* custom reader, in addition to those of datasets.def; must outlive the data set */
    uint64_t seed;      /* seed of synthetic data, and of split */
    int size;           /* side in pixels of the images of a folder, if its argument has none; 0: the size of the files */
    int test_resize;    /* of a folder: test images are scaled until the shorter side has this number of pixels, at least size,
                           and then cropped to size; 0: scaled to size. SGRAD_EINVAL: there is no size, or it is larger */
    bool reduced;       /* of a folder or tar archives with a size: JPEG images are decoded at 1/2, 1/4 or 1/8 of their size if
                           that is not below the size; faster, and pixels differ slightly */
    bool upright;       /* of a folder: images are rotated and mirrored as their EXIF orientation requires */
    const char *class_titles;   /* path of a file with a line for each class: its name for users; NULL: class_name */
    size_t memory;      /* bytes for decoded images, and for decompressed files; 0: 2 GiB, at most a quarter of the memory */
    bool no_cache;      /* decoded images are not cached */
    bool pictures;      /* images are only read by sgrad_dataset_picture: they may have any size, or be damaged */
    bool answers;       /* only tokens of answers are targets; all others are -1, which the loss excludes. SGRAD_EINVAL: the kind
                           of data set has no answers */
    const char *attend; /* "document", "document:TOKEN": text and tokens have the field SGRAD_DOCUMENT_FIELD; TOKEN, or the end
                           token in DIR/tokens.json, is the last of each document. NULL, "sample": they do not. SGRAD_EINVAL: the
                           text is invalid, or the samples are of another kind */
    const char *tokenizer;      /* of jsonl: its files are texts, which become tokens by this file (tokenizer.h); NULL: a table */
    const char *field;  /* of jsonl with a tokenizer: key of the texts; NULL: "text" */
    bool damaged;       /* sgrad_dataset_skip_damaged will be called: the image shape is that of the first readable image */
    double split;       /* fraction of the training samples that are the test split if the files have none: drawn by the seed, in
                           equal shares of each class; 0: none. Ignored by kinds that always have a test split */
    bool third;         /* SGRAD_TEST is the split test of files that are divided into train, val and test; SGRAD_EINVAL,
                           SGRAD_EIO: there is none. false: it is val. Ignored by kinds without val */
    const char *id;     /* of a table: title or number of the column whose cells are the names of the samples; NULL: none.
                           SGRAD_EINVAL: there is no such column, or the samples are not a table */
    const char *exclude;        /* path of a file that lists samples to leave out, see sgrad_dataset_open; NULL: none */
    /* The samples that a network was trained on. Columns are matched by title. Features are normalised and labels are numbered as
     * for that network; classes are matched by name. SGRAD_EFORMAT: a column is missing, or a class is unknown to the network.
     * NULL: nothing is matched. */
    const struct sgrad_origin *origin;
    /* Read samples to predict them. Of a table in one file, all lines are read. The target may be missing. A class that the
     * network does not know makes the data set unlabelled, with a warning instead of an error. */
    bool every;
    bool whole;         /* the test set is all of a table, folder or arrays that have none: nothing is held out, by split or by
                           default */
};

/* The augmentations of a run: random changes of training images, so that an image differs from epoch to epoch but remains a valid
 * example of its class. Items are in the order of augmentations.def, each with the numbers that parametrise it. */
enum { SGRAD_AUGMENTATION_NUMBERS = 2, SGRAD_MAX_AUGMENTATIONS = 32 };
struct sgrad_augmentation;
struct sgrad_augmentations {
    int count;
    struct sgrad_augmenting {
        const struct sgrad_augmentation *is;
        double number[SGRAD_AUGMENTATION_NUMBERS];
    } item[SGRAD_MAX_AUGMENTATIONS];
};

/* A field of the samples of a data set. */
#define SGRAD_MAX_FIELDS 4
#define SGRAD_DOCUMENT_FIELD "document"     /* for each token, the index in the sample of the first token of its document */
struct sgrad_field {
    const char *name;                   /* "pixels" */
    enum sgrad_dtype dtype;             /* U8, U16, I32 or F32; images are U8, or U16 if they have more than 8 bits per channel */
    struct sgrad_shape shape;           /* of one sample; rank 0: a single number */
    const void *data;                   /* of all samples, (count,shape…), from malloc; NULL: reader->read reads on demand */
};

/* An open data set: one split. */
struct sgrad_dataset {
    const struct sgrad_reader *reader;
    enum sgrad_split split;
    int64_t count;                      /* number of samples, at least 1 */
    int64_t excluded;                   /* number of samples left out by options.exclude */
    int64_t held_out;                   /* number of training samples that options.split made the test split; 0: none */
    int64_t damaged;                    /* number of samples left out by sgrad_dataset_skip_damaged */
    struct sgrad_field field[SGRAD_MAX_FIELDS + 1];     /* at least two; ends at a NULL name */
    int classes;                        /* labels (a last field of I32) are 0 to classes - 1; 0: there are no labels */
    const char *const *class_name;      /* name of each class; NULL: the name of a class is its number */
    char **class_title;                 /* name of each class for users, by options.class_titles; NULL: class_name */
    float full_scale;                   /* largest value of a pixel: 255; of digits 16; of U16 65535 */
    const char *augment;                /* default augmentations in training, as text; NULL: none */
    const char *plain;                  /* why images are not augmented by default; NULL: no reason is known */
    const char *others;                 /* files that are not samples: "3 other files: 2 .txt, 1 hidden"; NULL: none */
    int64_t shifts;                     /* samples are windows whose start may shift by less than this; 0: no windows */
    int64_t shards;                     /* the samples are in this many files, which are shuffled as blocks; 0: any order is as
                                           fast */
    int64_t *first;                     /* (shards + 1): index of the first sample of each shard, and count; from malloc; NULL:
                                           no shards */
    int sources;                        /* length of source; 0: no mixture */
    struct sgrad_source *source;        /* ordered by first; the samples of all together are those of the data set */
    struct sgrad_origin *origin;        /* metadata of numeric features and their target; NULL: the input is not numeric */
    char *id_title;                     /* title of the column options.id; NULL: no such column, or the file has no header */
    char *note;                         /* how the file was read, for the user: "line 1 is the header"; NULL: no note */
    bool unlabelled;                    /* labels or targets are unknown: they are zeros */
    /* Private to the readers and to the functions below. */
    uint64_t identity;                  /* hash that the fingerprint uses for a field that is not in memory */
    int64_t *kept;                      /* index in the reader of each sample (kept.c); NULL: no sample was left out */
    int32_t *label_of;                  /* maps a label of the reader to that of options.origin; NULL: they are equal */
    char **id;                          /* name of each sample of the reader, by options.id; NULL: none */
    int64_t ids;                        /* length of id */
    char **own_name;                    /* class_name, if it is a copy from options.origin; ends with NULL */
    void *state;
    /* Set by the training code. */
    struct sgrad_augmentations drawn;   /* augmentations of training samples */
    bool mixed;                         /* samples have the two fields that sgrad_dataset_mix adds */
};

/* Reads FILE, which has a line for each of CLASSES classes: its name for users, UTF-8. The caller frees *TITLE and its strings.
 * SGRAD_EIO: FILE cannot be read. SGRAD_EFORMAT: it has another number of lines, or one is empty. */
int sgrad_class_titles_read(const char *file, int classes, char ***title);

/* Returns the number of fields. */
static inline int sgrad_dataset_fields(const struct sgrad_dataset *dataset) {
    int fields = 0;
    while (dataset->field[fields].name) fields++;
    return fields;
}

/* Returns the number of fields of the reader, without the two that sgrad_dataset_mix adds. */
static inline int sgrad_dataset_own_fields(const struct sgrad_dataset *dataset) {
    return sgrad_dataset_fields(dataset) - (dataset->mixed ? 2 : 0);
}

/* Returns SIZE of the data set "folder:DIR,SIZE" or "tar:PATTERN,SIZE"; 0: it is of another kind, or has no SIZE. *BEFORE: the
 * length of its text without ",SIZE"; may be NULL. */
int sgrad_folder_size(const char *data, size_t *before);

/* Returns a list of the classes that none of COUNT labels has, "cat, dog", of which it names at most five; NULL: all have one.
 * *ABSENT: their number. The caller must free the list. NAME: names of the classes; NULL: their numbers are listed. QUOTED: names
 * are in quotes. Negative labels are ignored. */
char *sgrad_classes_absent(const char *const *name, int classes, const int32_t *label, int64_t count, bool quoted, int *absent);

/* Returns the target, the field that a network learns to predict: the last field of the reader. */
static inline const struct sgrad_field *sgrad_dataset_target(const struct sgrad_dataset *dataset) {
    return &dataset->field[sgrad_dataset_own_fields(dataset) - 1];
}

/* Returns the first field if it is an image, (H,W,C), or a volume, (D,H,W,C), of U8 or U16; otherwise NULL. */
static inline const struct sgrad_field *sgrad_dataset_image(const struct sgrad_dataset *dataset) {
    const struct sgrad_field *first = &dataset->field[0];
    const bool whole = first->dtype == SGRAD_U8 || first->dtype == SGRAD_U16;
    return whole && (first->shape.rank == 3 || first->shape.rank == 4) ? first : NULL;
}

/* Returns a pointer to three numbers in IMAGE, an image or a volume: height, width and channels. */
static inline const int64_t *sgrad_field_plane(const struct sgrad_field *image) {
    return image->shape.dim + image->shape.rank - 3;
}

/* Returns the number of channels of the images; 0: the data set has no images. */
static inline int sgrad_dataset_channels(const struct sgrad_dataset *dataset) {
    const struct sgrad_field *image = sgrad_dataset_image(dataset);
    return image ? (int)sgrad_field_plane(image)[2] : 0;
}

/* Opens one split of the data set that TEXT, "KIND" or "KIND:ARGUMENT", names. OPTIONS may be NULL. The caller must close
 * *DATASET. The file options.exclude has one sample per line, by name (sgrad_dataset_sample_name) or by number from 0. Empty
 * lines and lines that begin with # are ignored. The remaining samples are renumbered without gaps.
 * SGRAD_ENAME: KIND is unknown. SGRAD_EINVAL: the argument is malformed, missing or unexpected. SGRAD_EIO: a file cannot be read.
 * SGRAD_EFORMAT: a file is malformed, a line of the list names no sample, or the list leaves out all samples. */
int sgrad_dataset_open(const char *text, enum sgrad_split split, const struct sgrad_dataset_options *options,
                       struct sgrad_dataset **dataset);
void sgrad_dataset_close(struct sgrad_dataset *dataset);        /* frees DATASET and its members; NULL is a no-op */
/* Frees the fields that are in memory. For callers that have read all samples they need: later reads are not possible. */
void sgrad_dataset_release(struct sgrad_dataset *dataset);

/* Returns the bytes of one field of one sample. */
static inline size_t sgrad_field_bytes(const struct sgrad_field *field) {
    return (size_t)sgrad_shape_count(&field->shape) * sgrad_dtype_size(field->dtype);
}
/* Returns the bytes of all fields of one sample. */
size_t sgrad_dataset_sample_bytes(const struct sgrad_dataset *dataset);

/* A sample to be read. Members that do not apply are 0. */
struct sgrad_sample {
    int64_t index;                      /* number of the sample, from 0 */
    int64_t shift;                      /* of a window: it starts this many numbers later; below dataset->shifts */
    int64_t view;                       /* view of the sample: see sgrad_views_read */
};

/* Reads the N samples sample[0…n-1]. Field f is written to DATA[f], (n,shape…). Threads may call it concurrently.
 * SGRAD_EIO, SGRAD_EFORMAT: a sample cannot be read. SGRAD_ESHAPE: an image has another size than the others. */
int sgrad_dataset_read(const struct sgrad_dataset *dataset, const struct sgrad_sample *sample, int n, void *const *data);

/* Like sgrad_dataset_read, for training: draws the samples with reader->draw if the reader has it; otherwise reads and augments
 * them. Mixes them if HOW contains an augmentation that mixes, and the samples have the fields for it (sgrad_dataset_mix). */
struct sgrad_drawing;
int sgrad_dataset_draw(const struct sgrad_dataset *dataset, const struct sgrad_sample *sample, int n,
                       const struct sgrad_drawing *how, void *const *data);
/* The same as sgrad_dataset_draw, or, if HOW is NULL, as sgrad_dataset_read; for commands with the option --damaged: the message
 * about a malformed sample names this option. */
int sgrad_dataset_load(const struct sgrad_dataset *dataset, const struct sgrad_sample *sample, int n,
                       const struct sgrad_drawing *how, void *const *data);
/* Returns the number of samples that mean and standard deviation are computed from: all samples. If samples are recomputed on
 * each read (synthetic data, statistically all alike): the first ones, at most SGRAD_MEASURED. If the reader limits their number:
 * so many, at equal distances. */
enum { SGRAD_MEASURED = 16384 };
int64_t sgrad_dataset_measured(const struct sgrad_dataset *dataset);

/* Computes the mean and the population standard deviation of each channel, over all pixels of the sgrad_dataset_measured
 * samples, divided by the full scale. MEAN and DEVIATION have one number per channel. Sums are exact integers, so that the result
 * is the same on any machine. The deviation of a constant channel is 1, because it is a divisor. Reads these samples with one
 * thread per core. Errors: as sgrad_dataset_read. */
int sgrad_dataset_statistics(const struct sgrad_dataset *dataset, double *mean, double *deviation);

/* The same in two functions, for callers that each read a subset. sgrad_dataset_sums sums over COUNT of these samples, from
 * number FROM on; without images it returns zeros and only checks the samples. Callers add the sums of all subsets.
 * sgrad_dataset_moments computes the result from the sums over all sgrad_dataset_measured samples. Of three ranks that read ten
 * samples, one reads 0 to 2, one 3 to 5, one 6 to 9. Errors: as sgrad_dataset_read. */
struct sgrad_dataset_sums {         /* For each channel: Σ x, and Σ x² as squares + 65536·more, so that neither overflows. */
    uint64_t sum[SGRAD_MAX_CHANNELS], squares[SGRAD_MAX_CHANNELS], more[SGRAD_MAX_CHANNELS];
};
int sgrad_dataset_sums(const struct sgrad_dataset *dataset, int64_t from, int64_t count, struct sgrad_dataset_sums *sums);
void sgrad_dataset_moments(const struct sgrad_dataset *dataset, const struct sgrad_dataset_sums *sums, double *mean,
                           double *deviation);

/* Reads COUNT samples from sample FROM on and discards them, so that a damaged sample is an error before training, not during it.
 * Returns 0 at once if the samples are in memory or computed, because these cannot be damaged. Errors: as sgrad_dataset_read. */
int sgrad_dataset_check(const struct sgrad_dataset *dataset, int64_t from, int64_t count);

/* Reads all samples and leaves out those that cannot be read. The remaining samples are renumbered without gaps. If WARNS is set,
 * the reason for each, which names the file, is logged as a warning, and so is a class that loses all its samples. If LIST is not
 * NULL, the reasons are appended to *LIST (NULL, or from malloc), one per line; the caller frees *LIST.
 * SGRAD_ESHAPE: an image has another size, which is not damage. SGRAD_EFORMAT: no sample remains. */
int sgrad_dataset_skip_damaged(struct sgrad_dataset *dataset, bool warns, char **list);

/* Returns the name of a sample in files such as options.exclude: "train/cat/1.jpg", relative to the folder of the data set; in a
 * table with options.id, its cell. Without names: its number before samples were left out, "17". The caller frees it. */
char *sgrad_dataset_sample_name(const struct sgrad_dataset *dataset, int64_t index);

/* An image as in its file: not scaled, cropped or augmented. */
struct sgrad_picture {
    int height, width, channels;
    bool deep, animated;                /* the file has more than 8 bits per channel, rounded to 8 here; has further images */
    uint8_t *pixels;                    /* (height,width,channels), 0 to 255; the caller frees it */
};
/* Decodes the image of a sample. The data set must have images, of U8 if the reader has no picture function. Threads may call it
 * concurrently. SGRAD_EIO, SGRAD_EFORMAT: the image cannot be read. */
int sgrad_dataset_picture(const struct sgrad_dataset *dataset, int64_t index, struct sgrad_picture *picture);
/* Returns a number that changes when the image of a sample changes: a hash of its pixels, or of the name, size and time of its
 * file. The data set must have images. */
uint64_t sgrad_dataset_stamp(const struct sgrad_dataset *dataset, int64_t index);

/* Returns a hash that identifies the content of a data set, independent of its path: of the shapes and values of its fields; of
 * the names and sizes of the files of a folder; of the parameters of synthetic data; and of the samples that were left out. */
uint64_t sgrad_dataset_fingerprint(const struct sgrad_dataset *dataset);

/* Makes a data set of COUNT unlabelled images in the files FILE[0…count-1], as the input of a trained network. Images are scaled
 * and cropped to IMAGE, (H,W,C), where C is 1 (grey) or 3; pixels have the range 0 to FULL_SCALE. Images of another size than HxW
 * require H = W; otherwise reading them fails with SGRAD_EINVAL. Labels are 0, of CLASSES classes. FILE and its strings must
 * outlive the data set. OPTIONS may be NULL; uses test_resize, upright, reduced. The caller closes *DATASET. SGRAD_EINVAL: IMAGE
 * is not such a shape, or test_resize is below H. */
int sgrad_dataset_of_files(const char *const *file, int64_t count, const struct sgrad_shape *image, float full_scale, int classes,
                           const struct sgrad_dataset_options *options, struct sgrad_dataset **dataset);

/* Makes a data set of COUNT unlabelled samples at DATA, which is copied; each is of DTYPE and SHAPE. Input field, target field,
 * classes, full scale and normalisation are those of LIKE; targets are zeros. SHAPE may omit a last dimension of 1, and the first
 * dimension of a volume of one slice. The caller closes *DATASET.
 * SGRAD_EINVAL: COUNT is below 1. SGRAD_ESHAPE: the samples of LIKE have another type or shape, or more than two fields. */
int sgrad_dataset_of_array(const struct sgrad_dataset *like, const void *data, enum sgrad_dtype dtype, int64_t count,
                           const struct sgrad_shape *shape, struct sgrad_dataset **dataset);

/* Makes a data set without samples that describes those of a network, for sgrad_dataset_of_array: images of shape IMAGE, (H,W,C),
 * with pixels from 0 to FULL_SCALE, or, if IMAGE has rank 0, the features of ORIGIN; labels of ORIGIN->classes classes, or
 * ORIGIN->targets numbers, one of which must not be 0. ORIGIN is copied. The caller closes the data set. */
struct sgrad_dataset *sgrad_dataset_describe(const struct sgrad_shape *image, float full_scale,
                                             const struct sgrad_origin *origin);

/* ---- augmentation ----------------------------------------------------------------------------------------------- */

/* How samples are drawn. A drawn sample depends only on this and on its index. */
struct sgrad_drawing {
    uint64_t seed;
    uint32_t epoch;                         /* from 0 */
    struct sgrad_augmentations augmentations;
};

/* Parses TEXT: "none", or a comma-separated list of augmentations, each followed by a colon and its numbers:
 * "crop:4,randaugment:2,9". Images are HEIGHT x WIDTH pixels; both 0: not known yet. Augmentations of 0 pixels, which have no
 * effect, are omitted from the result; so is 1/N while the size is not known. SGRAD_EINVAL: TEXT is malformed, an augmentation
 * occurs twice, or a number is out of range; pixels must be below the shorter side. */
int sgrad_augmentations_parse(const char *text, int height, int width, struct sgrad_augmentations *augmentations);
/* Returns the syntax of an augmentation: "crop:N", "rrc[:A]". The caller frees it. */
char *sgrad_augmentation_form(const struct sgrad_augmentation *augmentation);
/* Returns AUGMENTATIONS as text, with the parsed numbers where these are not the defaults: "crop:4,flip". The caller frees it. */
char *sgrad_augmentations_text(const struct sgrad_augmentations *augmentations);
/* Returns the numbers of the augmentation NAME, which point into AUGMENTATIONS; NULL: the list does not contain it. */
const double *sgrad_augmentations_find(const struct sgrad_augmentations *augmentations, const char *name);
/* Returns true if the list contains an augmentation that mixes samples. */
bool sgrad_augmentations_mix(const struct sgrad_augmentations *augmentations);

/* Draws N samples as training does, and writes them as one PNG image to PATH: rows of up to 16 samples; of a volume its middle
 * slice; labels of pixels as colours, to the right of the image. Writes the labels of images to TEXT, one line per row.
 * SGRAD_EINVAL: the samples are not images. SGRAD_EIO: PATH cannot be written. Other errors: as sgrad_dataset_draw and
 * sgrad_png_encode. */
int sgrad_dataset_show(const struct sgrad_dataset *dataset, const struct sgrad_sample *sample, int n,
                       const struct sgrad_drawing *how, const char *path, FILE *text);
/* Encodes RGB, (height,width,3), as a PNG file in memory, *FILE of *SIZE bytes, which the caller must free. SGRAD_ELIBRARY: this
 * build has no libpng. SGRAD_ENOMEM. */
int sgrad_png_encode(const uint8_t *rgb, int height, int width, void **file, size_t *size);

/* Augments sample INDEX by overwriting its fields, which are at DATA[f]. The data set must have images. Does not mix, because
 * mixing needs a second sample. */
void sgrad_dataset_augment(const struct sgrad_dataset *dataset, int64_t index, const struct sgrad_drawing *how,
                           void *const *data);

/* If MIX is set, adds two fields to the samples of labelled images, for samples that are mixed from two classes: "other" I32 (),
 * the label of the second class, and "weight" F32 (), the weight of the first class, 0 to 1. sgrad_dataset_read sets "other" to
 * the label of the sample and "weight" to 1. Without MIX, removes the two fields. */
void sgrad_dataset_mix(struct sgrad_dataset *dataset, bool mix);

/* The pixels of an image, or of a slice of a volume, that an augmentation modifies. */
struct sgrad_pixels {
    int height, width, channels;
    float full_scale;
    float *value;                           /* (height,width,channels): integers from 0 to full_scale */
};

/* A map of pixels: pixel (y,x) of the result is read at (y0 + yy·y + yx·x, x0 + xy·y + xx·x) of the image. */
struct sgrad_affine {
    double y0, yy, yx, x0, xy, xx;
    bool reflect;       /* outside, the image is reflected at its edges: c b | a b c | b a; else it is black */
};

/* The stream of random numbers of one augmentation, sample and epoch. Augmentations have independent streams. */
struct sgrad_chances {
    uint64_t seed, sample;
    uint32_t epoch, block, next;
};
double sgrad_chance(struct sgrad_chances *chances);     /* returns the next number, uniform in [0, 1) */

/* An augmentation: one file and one line of augmentations.def. Augmentations are applied in the order of augmentations.def,
 * regardless of their order in the text. First, all that move pixels are combined into one map. Between pixels, the map
 * interpolates linearly from four pixels; a label is that of the nearest pixel. Outside the image, pixels are black and labels
 * are -1; if one of the maps reflects, the image is reflected instead. Second, pixels are changed. Last, one of the augmentations
 * that mix, chosen at random, mixes the sample with another one. An augmentation implements move, change or mix; randaugment
 * implements move and change. One that only the reader of volumes draws implements none of them. */
struct sgrad_augmentation {
    const char *name, *argument;            /* "crop", "N"; argument NULL: takes no numbers */
    const char *summary, *source;           /* source: paper or document of the method, or NULL */
    int numbers;                            /* how many it takes: the text gives all, or, if they have defaults, none */
    struct sgrad_augmentation_number {
        double usual, low, high;            /* default (0: no default), minimum, maximum */
        bool pixels;                        /* an integer below the shorter side of the image, or the fraction 1/N of it */
    } number[SGRAD_AUGMENTATION_NUMBERS];
    bool volumes;                           /* readers of volumes draw it as well */
    /* Sets *MAP, which is the identity on entry. */
    void (*move)(const double *number, struct sgrad_chances *chances, int height, int width, struct sgrad_affine *map);
    /* Modifies IMAGE. */
    void (*change)(const double *number, struct sgrad_chances *chances, struct sgrad_pixels *image);
    /* Mixes OTHER, of the same size, into IMAGE; returns the weight of the class of IMAGE, 0 to 1. */
    double (*mix)(const double *number, struct sgrad_chances *chances, const struct sgrad_pixels *other,
                  struct sgrad_pixels *image);
};

/* All augmentations of augmentations.def and of plug-ins; ends with NULL. */
extern const struct sgrad_augmentation *const *sgrad_augmentations;

/* ---- views ----------------------------------------------------------------------------------------------------- */

/* Test-time augmentation: a trained network predicts several views of each image, and the predictions are averaged with weights
 * whose sum is 1. View 0 is the image itself. A map that mirrors (xx < 0) has no width in x0: sgrad_views_read adds it. */
enum { SGRAD_MAX_VIEWS = 6 };
struct sgrad_views {
    int count;
    struct {
        struct sgrad_affine map;
        double weight;
    } view[SGRAD_MAX_VIEWS];
};
/* Parses TEXT: "flip", "translate", or both with a comma between. flip: the image and its mirror image, weight 1/2 each.
 * translate: the image, weight 1/2; the image shifted by one pixel up and left, and down and right, reflected at its edges,
 * weight 1/4 each. Both: all six combinations. SGRAD_EINVAL: TEXT is invalid. */
int sgrad_views_parse(const char *text, struct sgrad_views *views);
/* Like sgrad_dataset_read, but reads view sample[i].view of each sample, 0 ≤ view < count. */
int sgrad_views_read(const struct sgrad_dataset *dataset, const struct sgrad_views *views, const struct sgrad_sample *sample,
                     int n, void *const *data);

/* ---- readers: one file and one line of datasets.def each ------------------------------------------------------- */

/* A kind of data set. INDEX, or sample.index, is the number of a sample in the reader, before any sample is left out. */
struct sgrad_reader {
    const char *name, *argument;        /* "cifar10", "DIR"; argument NULL: takes no argument */
    const char *summary;
    const char *augment;                /* default augmentations of its data sets, unless open sets others; NULL: none */
    /* Fills DATASET, whose members reader, split and augment are set; the others are zero. ARGUMENT is the text after the colon,
     * not empty; NULL if the reader takes none. OPTIONS is not NULL. The data of fields must be from malloc. The caller frees
     * DATASET with sgrad_dataset_close, also after an error: it frees the data of fields, origin and note, and state by close. */
    int (*open)(struct sgrad_dataset *dataset, const char *argument, const struct sgrad_dataset_options *options);
    /* Sets properties that depend on the samples, such as the shape of images, after samples were left out. Not called with
     * options.pictures. NULL: open sets all. */
    int (*measure)(struct sgrad_dataset *dataset);
    /* Reads one sample into DATA[f], for each field f that is not in memory. Threads call it concurrently. A reader that sets
     * dataset->shifts must honour sample.shift. It may ignore sample.view: the library makes the views of an image. NULL: all
     * fields are always in memory. */
    int (*read)(const struct sgrad_dataset *dataset, struct sgrad_sample sample, void *const *data);
    /* Draws one sample for training into DATA[f], for each field f: different in each epoch, and augmented. NULL: training uses
     * read, and the library augments. */
    int (*draw)(const struct sgrad_dataset *dataset, struct sgrad_sample sample, const struct sgrad_drawing *how,
                void *const *data);
    void (*close)(struct sgrad_dataset *dataset);       /* frees state; called if state is not NULL; NULL: there is no state */
    /* Implement sgrad_dataset_sample_name, _picture and _stamp. NULL: samples have numbers instead of names; the picture is the
     * image that is read; the stamp is a hash of its pixels, or, if it is not in memory, of identity, split and index. */
    char *(*sample_name)(const struct sgrad_dataset *dataset, int64_t index);
    int (*picture)(const struct sgrad_dataset *dataset, int64_t index, struct sgrad_picture *picture);
    uint64_t (*stamp)(const struct sgrad_dataset *dataset, int64_t index);
    bool computes;                      /* samples need not be read to be checked: they are computed, or open has checked them */
    int64_t measures;                   /* mean and deviation are computed from at most this many samples; 0: from all */
    const char *resizes;                /* argument syntax that scales images to one size: "folder:DIR,SIZE"; NULL: none */
};

extern const struct sgrad_reader *const *sgrad_readers;         /* all of datasets.def, and of plug-ins; ends with NULL */

#ifdef __cplusplus
}
#endif
#endif
