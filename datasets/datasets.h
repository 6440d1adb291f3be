/* datasets.h: samples in files: open them, count them, fill one batch.
 *
 * A *reader* knows one kind of data set; `KIND:ARGUMENT` names a data set everywhere: "digits", "idx:/data/mnist",
 * "cifar10:/data/cifar", "folder:/data/pets,224", "synthetic:32x32x3,10,5000". An open *data set* is one split of it,
 * its samples numbered from 0. A sample is a list of *fields*, each with a name, a type and a shape. What a network is told comes
 * first, what it is to say comes last:
 *
 *     labelled images     pixels U8 (H,W,C)     label I32 ()
 *     measurements        features F32 (8)      target F32 (1)
 *     text                tokens I32 (T)        next I32 (T)
 *
 * Pixels are as they are in the files, 0 to full scale; who trains divides by the full scale and normalises with the mean and
 * deviation of the training split. Other fields are taken as they are:
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
 *     SGRAD_TRY(sgrad_dataset_read(train, (int64_t[]){ 17, 4 }, 2, (void *[]){ pixels, labels }));
 *     sgrad_dataset_close(train);
 *
 * Files are untrusted: whatever is wrong with one is an error that names the file, the place in it and the reason, when
 * the data set is opened, or, for images that are decoded when they are asked for, when they are read. Nothing here
 * shuffles, or knows that there are other ranks. What training does to images is a list of *augmentations*, drawn by seed, epoch
 * and sample alone. */
#ifndef SGRAD_DATASETS_H
#define SGRAD_DATASETS_H

#include "runtime/runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

enum sgrad_split { SGRAD_TRAIN, SGRAD_TEST };

struct sgrad_reader;

/* What samples are, apart from their numbers: how other samples are matched with those that a network was trained on. A data set
 * describes itself by one; a run's config.json keeps it. Members that are NULL or 0 are unknown. */
struct sgrad_origin {
    int classes;                        /* of labels; 0: there are none */
    char **class_name;                  /* of each; NULL: its number is its name */
    int64_t features;                   /* numbers of a sample whose input is numbers; 0: it is something else */
    struct sgrad_shape shape;           /* of a sample in its file; rank 0: unknown, or a line of a table */
    char **title;                       /* of each feature's column */
    char *target;                       /* title of the target's column */
    int target_column;                  /* its number in the file, from 1 */
    /* Feature i is (x - mean[i % groups]) / deviation[i % groups] of what the file has. */
    int64_t groups;                     /* numbers in each of: */
    double *mean, *deviation;           /* NULL: features are as in the file */
};
void sgrad_origin_free(struct sgrad_origin *origin);    /* NULL is fine */

/* Zeros are the defaults. */
struct sgrad_dataset_options {
    const struct sgrad_reader *custom;  /* a reader of one's own, besides those of datasets.def */
    uint64_t seed;      /* of synthetic data */
    int size;           /* side of a folder's images where its argument gives none; 0: the files' own */
    size_t memory;      /* bytes that decoded images may be kept in; 0: 2 GiB or a quarter of the machine's, the less; 1: none */
    bool pictures;      /* sgrad_dataset_picture alone will be asked for images, which may have any size, and be damaged */
    bool damaged;       /* sgrad_dataset_skip_damaged follows: the shape is that of the first image that can be read */
    const char *exclude;        /* a file that lists samples to leave out, as if they had never been there; NULL: none */
    /* What a network was trained on: columns are matched by title, features normalised as there, labels numbered as there by the
     * names of classes. SGRAD_EFORMAT: a column is missing, or a class is unknown there. NULL: nothing is known. */
    const struct sgrad_origin *origin;
    bool every;                 /* all samples of a file that is not divided into parts; the target may be missing */
};

/* What training does to images, so that none is the same twice and yet of its class: by the numbers that each of these takes, in
 * the order of augmentations.def. */
enum { SGRAD_AUGMENTATION_NUMBERS = 2, SGRAD_MAX_AUGMENTATIONS = 32 };
struct sgrad_augmentation;
struct sgrad_augmentations {
    int count;
    struct sgrad_augmenting {
        const struct sgrad_augmentation *is;
        double number[SGRAD_AUGMENTATION_NUMBERS];
    } item[SGRAD_MAX_AUGMENTATIONS];
};

#define SGRAD_MAX_FIELDS 4
struct sgrad_field {
    const char *name;                   /* "pixels" */
    enum sgrad_dtype dtype;             /* U8, U16, I32 or F32; of images U8, or U16 where there is more depth */
    struct sgrad_shape shape;           /* of one sample's; rank 0: a single number */
    const void *data;                   /* all samples', (count,shape…); NULL: the reader reads a sample when it is asked for */
};

struct sgrad_dataset {
    const struct sgrad_reader *reader;
    enum sgrad_split split;
    int64_t count;                      /* samples, at least 1 */
    int64_t excluded;                   /* those that were left out, by a list */
    int64_t damaged;                    /* those that were left out by sgrad_dataset_skip_damaged */
    struct sgrad_field field[SGRAD_MAX_FIELDS + 1];     /* two at least; end without a name */
    int classes;                        /* of labels, a last field of I32: they are 0 to classes - 1; 0: there are none */
    const char *const *class_name;      /* of each class; NULL: its number is its name */
    float full_scale;                   /* the largest value of a pixel: 255, digits 16, of U16 65535 */
    const char *augment;                /* what training does to its images if nothing else is asked for; NULL: none */
    const char *plain;                  /* why its images are not augmented unless that is asked for; NULL: no reason is known */
    const char *others;                 /* files beside its samples: "3 other files: 2 .txt, 1 hidden"; NULL: there are none */
    int64_t shifts;                     /* samples are windows, which may begin later by less than this; 0: they are none */
    struct sgrad_origin *origin;        /* what the reader knows of features and target; NULL: they are no numbers */
    char *note;                         /* how the file was read, for the user: "line 1 is the header"; NULL: nothing to add */
    bool unlabelled;                    /* labels or targets are not known: they are zeros */
    /* The reader's own. */
    uint64_t identity;                  /* what the fingerprint takes in place of a field that is not in memory */
    int64_t *kept;                      /* which of the reader's samples each is; NULL: none were left out */
    int32_t *label_of;                  /* by the reader's label the label here; NULL: they are the same */
    char **own_name;                    /* class_name, where it is not the reader's */
    void *state;
    /* Set by who trains. */
    struct sgrad_augmentations drawn;   /* how samples are drawn for training */
    bool mixed;                         /* they are of two classes: sgrad_dataset_mix */
};

static inline int sgrad_dataset_fields(const struct sgrad_dataset *dataset) {
    int fields = 0;
    while (dataset->field[fields].name) fields++;
    return fields;
}

/* Those of its reader. */
static inline int sgrad_dataset_own_fields(const struct sgrad_dataset *dataset) {
    return sgrad_dataset_fields(dataset) - (dataset->mixed ? 2 : 0);
}

/* What a network is to say of a sample: the last field of the reader's. */
static inline const struct sgrad_field *sgrad_dataset_target(const struct sgrad_dataset *dataset) {
    return &dataset->field[sgrad_dataset_own_fields(dataset) - 1];
}

/* The first field, where that is an image, (H,W,C), or a volume, (D,H,W,C), of U8 or U16; else NULL. */
static inline const struct sgrad_field *sgrad_dataset_image(const struct sgrad_dataset *dataset) {
    const struct sgrad_field *first = &dataset->field[0];
    const bool whole = first->dtype == SGRAD_U8 || first->dtype == SGRAD_U16;
    return whole && (first->shape.rank == 3 || first->shape.rank == 4) ? first : NULL;
}

/* Its height, width and channels: three numbers. */
static inline const int64_t *sgrad_field_plane(const struct sgrad_field *image) {
    return image->shape.dim + image->shape.rank - 3;
}

/* Channels of its images; 0: there are none. */
static inline int sgrad_dataset_channels(const struct sgrad_dataset *dataset) {
    const struct sgrad_field *image = sgrad_dataset_image(dataset);
    return image ? (int)sgrad_field_plane(image)[2] : 0;
}

/* Opens one split of the data set that TEXT, "KIND" or "KIND:ARGUMENT", names. OPTIONS may be NULL. What they exclude is listed
 * one a line, by name or by number from 0; those that stay move up. Empty lines and lines that begin with # say nothing.
 * SGRAD_ENAME: no such kind; SGRAD_EINVAL: malformed argument; SGRAD_EIO, SGRAD_EFORMAT: something is wrong with a file, or
 * a line of the list names no sample, or it leaves none. */
int sgrad_dataset_open(const char *text, enum sgrad_split split, const struct sgrad_dataset_options *options,
                       struct sgrad_dataset **dataset);
void sgrad_dataset_close(struct sgrad_dataset *dataset);        /* NULL is fine */
/* Gives back the fields that are in memory: for who has read what is needed, since nothing can be read afterwards. */
void sgrad_dataset_release(struct sgrad_dataset *dataset);

/* Bytes of one field of a sample, and of all of them. */
static inline size_t sgrad_field_bytes(const struct sgrad_field *field) {
    return (size_t)sgrad_shape_count(&field->shape) * sgrad_dtype_size(field->dtype);
}
size_t sgrad_dataset_sample_bytes(const struct sgrad_dataset *dataset);

/* Samples index[0…n-1], field by field: (n,shape…) into each one's DATA. Any number of threads may read at once. Of windows, I
 * plus S times SGRAD_SHIFT is sample I, S places later. */
#define SGRAD_SHIFT ((int64_t)1 << 40)
int sgrad_dataset_read(const struct sgrad_dataset *dataset, const int64_t *index, int n, void *const *data);

/* The same for training: drawn by their reader, where it draws (reader->draw), or read, and augmented. */
struct sgrad_drawing;
int sgrad_dataset_draw(const struct sgrad_dataset *dataset, const int64_t *index, int n, const struct sgrad_drawing *how,
                       void *const *data);
/* Samples, from the first on, that mean and deviation are taken of: all, but of those that are computed anew whenever they are
 * asked for, and are as random as each other (synthetic ones), so many. */
enum { SGRAD_MEASURED = 16384 };
int64_t sgrad_dataset_measured(const struct sgrad_dataset *dataset);

/* Mean and population deviation of each channel of images over all pixels of these, divided by full scale: exact sums, so the
 * same on any machine. The deviation of a channel that never changes is given as 1, since it is there to be divided by.
 * Reads everything, with one thread a core where that means decoding. */
int sgrad_dataset_statistics(const struct sgrad_dataset *dataset, double *mean, double *deviation);

/* The same in two steps, for who reads a part: the sums over COUNT samples from FROM on, sums of parts being added; and what
 * follows from those of all. Of three who share ten samples, one takes 0 to 2, one 3 to 5, one 6 to 9. */
struct sgrad_dataset_sums {         /* of squares what they have below 65536, and how often they have that: neither overflows */
    uint64_t sum[SGRAD_MAX_CHANNELS], squares[SGRAD_MAX_CHANNELS], more[SGRAD_MAX_CHANNELS];
};
int sgrad_dataset_sums(const struct sgrad_dataset *dataset, int64_t from, int64_t count, struct sgrad_dataset_sums *sums);
void sgrad_dataset_moments(const struct sgrad_dataset *dataset, const struct sgrad_dataset_sums *sums, double *mean,
                           double *deviation);

/* Reads COUNT samples from FROM on for nothing but the error that a damaged one is, so that it comes before the training and not
 * in its midst. What lies in memory, or is computed, has nothing to be damaged: 0 at once. */
int sgrad_dataset_check(const struct sgrad_dataset *dataset, int64_t from, int64_t count);

/* Reads all samples, and leaves out those that cannot be read, as if they had never been there. The reasons, which name the
 * files, are warnings where TELL, as is a class that loses all its samples; they are appended to LIST, where that is not NULL,
 * a line each; the caller frees it. SGRAD_ESHAPE: an image has another size, which is no damage. SGRAD_EFORMAT: none stays. */
int sgrad_dataset_skip_damaged(struct sgrad_dataset *dataset, bool tell, char **list);

/* What files call a sample: "train/cat/1.jpg", below the folder's own name; "17" where it has no name. Free it. */
char *sgrad_dataset_sample_name(const struct sgrad_dataset *dataset, int64_t index);

/* An image as it is, not scaled, cut or changed. */
struct sgrad_picture {
    int height, width, channels;
    bool deep, animated;                /* its file has more than 8 bits a channel, these are the upper; further images */
    uint8_t *pixels;                    /* (height,width,channels); free it */
};
/* The image of a sample, from any thread. SGRAD_EIO, SGRAD_EFORMAT: it cannot be read. */
int sgrad_dataset_picture(const struct sgrad_dataset *dataset, int64_t index, struct sgrad_picture *picture);
/* A number that changes with a sample's image: a hash of its pixels, or of its file's name, size and time. */
uint64_t sgrad_dataset_stamp(const struct sgrad_dataset *dataset, int64_t index);

/* A number that tells one content from another, whatever its path: a hash of shapes and fields, of a folder of its files' names
 * and sizes, of synthetic data of its recipe; and of what was left out. */
uint64_t sgrad_dataset_fingerprint(const struct sgrad_dataset *dataset);

/* Images in FILEs, COUNT of them, that nobody has classified: what a trained network is asked about. Scaled and cut to IMAGE,
 * (H,W,C) with C of 1, grey, or 3, and pixels of FULL_SCALE; one of another size than HxW wants H = W. Their labels are 0, of
 * CLASSES. FILE has to live as long. SGRAD_EINVAL: no such images can be had. */
int sgrad_dataset_of_files(const char *const *file, int64_t count, const struct sgrad_shape *image, float full_scale, int classes,
                           struct sgrad_dataset **dataset);

/* ---- files of images below a folder -------------------------------------------------------------------------- */

struct sgrad_walk {
    int64_t count;                      /* images: files whose names have an ending of a format that is known */
    struct sgrad_walk_image {
        char *name;                     /* below the folder: "cat/1.jpg" */
        int64_t size;                   /* bytes; -1: the file cannot be found: a link without its target */
    } *image;
    int64_t others;                     /* files that are no images */
    int kinds;
    struct sgrad_walk_other {
        char *kind;                     /* ".txt", "hidden" */
        int64_t files;
    } *other;
    int64_t room;                       /* private */
};
/* Lists the images in FOLDER and in all folders in it, by the bytes of their folders' paths, then of their names; links are
 * followed. Files and folders whose names begin with a dot are hidden: they are counted. WALK is zero; the caller frees it, also
 * after an error. SGRAD_EIO: a folder cannot be read. */
int sgrad_walk(const char *folder, struct sgrad_walk *walk);
/* Counts a file that is no image; all that MORE has counted. */
void sgrad_walk_note(struct sgrad_walk *walk, const char *kind);
void sgrad_walk_add(struct sgrad_walk *walk, const struct sgrad_walk *more);
/* "3 other files: 2 .txt, 1 hidden"; NULL: there are none. The caller frees it. */
char *sgrad_walk_others(struct sgrad_walk *walk);
void sgrad_walk_free(struct sgrad_walk *walk);
/* The endings of images: ".jpg, .jpeg, .png, …". The caller frees it. */
char *sgrad_image_endings(void);

/* COUNT samples of DTYPE and SHAPE each, at DATA, that nobody has classified: a copy. What a sample is, what is said of it, the
 * classes and the full scale are as of LIKE. SGRAD_ESHAPE: its samples are others, or have more than two fields. */
int sgrad_dataset_of_array(const struct sgrad_dataset *like, const void *data, enum sgrad_dtype dtype, int64_t count,
                           const struct sgrad_shape *shape, struct sgrad_dataset **dataset);

/* ---- augmentation ----------------------------------------------------------------------------------------------- */

/* How samples are drawn: by these, and by their own number, alone. */
struct sgrad_drawing {
    uint64_t seed;
    uint32_t epoch;                         /* 0 is the first */
    struct sgrad_augmentations augmentations;
};

/* TEXT is "none" or names of augmentations with commas between, each with its numbers after a colon: "crop:4,randaugment:2,9".
 * The images are of HEIGHT x WIDTH, both 0: not known yet. What turns out to do nothing is left out. SGRAD_EINVAL: it is
 * something else, or leaves nothing of an image. */
int sgrad_augmentations_parse(const char *text, int height, int width, struct sgrad_augmentations *augmentations);
/* How one is asked for: "crop:N", "rrc[:A]"; free it. */
char *sgrad_augmentation_form(const struct sgrad_augmentation *augmentation);
/* As text, with the numbers that it came to: "crop:4,flip"; free it. */
char *sgrad_augmentations_text(const struct sgrad_augmentations *augmentations);
/* The numbers of the one of this NAME; NULL: it is not among them. */
const double *sgrad_augmentations_find(const struct sgrad_augmentations *augmentations, const char *name);
/* Is any among them that mixes samples? */
bool sgrad_augmentations_mix(const struct sgrad_augmentations *augmentations);

/* A picture of samples as training sees them, in a file that is PNG: rows of up to 16; of volumes the middle slice; labels of
 * pixels as colours beside them. What they are goes to TEXT, a line for each row. SGRAD_EINVAL: they are no images. */
int sgrad_dataset_show(const struct sgrad_dataset *dataset, const int64_t *index, int n, const struct sgrad_drawing *how,
                       const char *path, FILE *text);

/* A sample that was read, its fields at DATA, in place; but for mixing, which takes a second sample. */
void sgrad_dataset_augment(const struct sgrad_dataset *dataset, int64_t index, const struct sgrad_drawing *how,
                           void *const *data);

/* Samples of labelled images that MIX are of two classes: they have two fields more, the class of "other" I32 () and "share"
 * F32 (), how much is of the label's class. A sample that is read has its own label as other, and a share of 1. Without MIX they
 * have them no more. */
void sgrad_dataset_mix(struct sgrad_dataset *dataset, bool mix);

/* An image, or a part of it, that is changed in place. */
struct sgrad_pixels {
    int height, width, channels;
    float full_scale;
    float *value;                           /* (height,width,channels): whole numbers from 0 to full_scale */
};

/* Where pixel (y,x) of an image comes from: (y0 + yy·y + yx·x, x0 + xy·y + xx·x). */
struct sgrad_affine {
    double y0, yy, yx, x0, xy, xx;
    bool reflect;       /* beyond its edge the image is reflected: c b | a b c | b a; else black */
};

/* The random numbers of an augmentation of a sample in an epoch, one after another; each augmentation has its own. */
struct sgrad_chances {
    uint64_t seed, sample;
    uint32_t epoch, block, next;
};
double sgrad_chance(struct sgrad_chances *chances);     /* uniform, from 0 up to, but without, 1 */

/* An augmentation: one file and one line of augmentations.def. Those asked for are applied in the order of that list, whatever
 * the order they are asked in; first all that move pixels, as one map, with means of four pixels where it leads between them, and
 * black, or label -1, outside, or, where one of them says so, the image reflected. Each does one of these; one that volumes alone
 * have, which their reader draws, does none. */
struct sgrad_augmentation {
    const char *name, *argument;            /* "crop", "N"; NULL: takes none */
    const char *summary, *source;           /* paper or document of the method, or NULL */
    int numbers;                            /* that it takes: all, or none where each has a usual one */
    struct sgrad_augmentation_number {
        double usual, low, high;            /* usual 0: there is none */
        bool pixels;                        /* whole, and below the shorter side, of which it may be given as 1/N */
    } number[SGRAD_AUGMENTATION_NUMBERS];
    bool volumes;                           /* readers of volumes draw it, too */
    /* MAP comes as the identity. */
    void (*move)(const double *number, struct sgrad_chances *chances, int height, int width, struct sgrad_affine *map);
    void (*change)(const double *number, struct sgrad_chances *chances, struct sgrad_pixels *image);
    /* Mixes with OTHER, of the same size; how much of IMAGE is still its own, 0 to 1. */
    double (*mix)(const double *number, struct sgrad_chances *chances, const struct sgrad_pixels *other,
                  struct sgrad_pixels *image);
};

extern const struct sgrad_augmentation *const *sgrad_augmentations;     /* all of augmentations.def, and of plug-ins; ends with
                                                                           NULL */

/* ---- views ----------------------------------------------------------------------------------------------------- */

/* What a trained network is asked of each image: several views of it, whose answers are averaged by weights that add up to 1. */
enum { SGRAD_MAX_VIEWS = 6 };
struct sgrad_views {
    int count;
    struct {
        struct sgrad_affine map;
        double weight;
    } view[SGRAD_MAX_VIEWS];
};
/* TEXT, "flip", "translate" or both with a comma between: the image and its mirror image, half each; the image, half, and itself
 * one pixel up and left, and one down and right, reflected at its edges, a quarter each; or all that comes of both. SGRAD_EINVAL:
 * it is something else. */
int sgrad_views_parse(const char *text, struct sgrad_views *views);
/* As sgrad_dataset_read, where INDEX i·count + v is view v of sample i. */
int sgrad_views_read(const struct sgrad_dataset *dataset, const struct sgrad_views *views, const int64_t *index, int n,
                     void *const *data);

/* ---- readers: one file and one line of datasets.def each ------------------------------------------------------- */

struct sgrad_reader {
    const char *name, *argument;        /* "cifar10", "DIR"; argument NULL: takes none */
    const char *summary;
    const char *augment;                /* that of its data sets, but where open finds that one wants another; NULL: none */
    /* Fills DATASET, of which reader, split and augment are set and the rest is zero. ARGUMENT is what follows the colon, not
     * empty where the reader takes one. On an error the caller closes what is there; fields' memory goes by free. */
    int (*open)(struct sgrad_dataset *dataset, const char *argument, const struct sgrad_dataset_options *options);
    /* What samples themselves tell, once those that are left out are gone: the shape of an image. NULL: open knows all. */
    int (*measure)(struct sgrad_dataset *dataset);
    /* One sample: into the DATA of each field that is not in memory, from any thread. NULL: all always are. */
    int (*read)(const struct sgrad_dataset *dataset, int64_t index, void *const *data);
    /* The same for training, drawn anew each epoch, augmented; NULL: training reads what is there, and what is augmented is done
     * elsewhere. */
    int (*draw)(const struct sgrad_dataset *dataset, int64_t index, const struct sgrad_drawing *how, void *const *data);
    void (*close)(struct sgrad_dataset *dataset);       /* frees state, where there is any; NULL: there never is */
    /* What is said of one of the reader's samples above; NULL: they have no names, and images are those that are read. */
    char *(*sample_name)(const struct sgrad_dataset *dataset, int64_t index);
    int (*picture)(const struct sgrad_dataset *dataset, int64_t index, struct sgrad_picture *picture);
    uint64_t (*stamp)(const struct sgrad_dataset *dataset, int64_t index);
    bool computes;                      /* read looks at no file: it never fails */
    const char *resizes;                /* how to ask for images of one size: "folder:DIR,SIZE"; NULL: there is no such way */
};

extern const struct sgrad_reader *const *sgrad_readers;         /* all of datasets.def, and of plug-ins; ends with NULL */

#ifdef __cplusplus
}
#endif
#endif
