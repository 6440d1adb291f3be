/* npy.c: the reader of NumPy arrays (npy_array.c): x_train.npy, y_train.npy, x_test.npy and y_test.npy in a folder, or in an
 * archive that numpy.savez(FILE, x_train=…, …) wrote (zip.c).
 *
 *     x  uint8 (N,H,W) or (N,H,W,C)      images
 *        any other (N,…)                 features, F32 (…), normalised by the training samples (features.c); with "images",
 *                                        (N,H,W) are (N,H,W,1), so that all pixels are normalised together
 *     y  integers (N) or (N,1), from 0   classes
 *        (N,k), one 1 in each row        classes: one-hot rows; all other numbers are 0
 *        integers (N,H,W) or (N,H,W,1)   with images: classes of their pixels, or 0 and 255, which are classes 0 and 1; a sample
 *                                        is then a volume of one slice, (1,H,W,C) and (1,H,W)
 *        any other (N) or (N,k)          numbers to predict */
#include "config.h"
#include "datasets/datasets.h"
#include "datasets/formats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#define FILE_LIMIT ((size_t)1 << 40)
#define WANTED                                                                                                                   \
    "give npy:PATH, where PATH is a folder with x_train.npy, y_train.npy, x_test.npy and y_test.npy, or an .npz with these"
enum { CLASSES_LIMIT = 1 << 20 };

/* ---- location of the arrays ------------------------------------------------------------------------------------------ */

/* A folder; if ARCHIVE is mapped, an archive; if GIVEN is not NULL, arrays in memory. */
struct place {
    char *path;
    struct sgrad_map archive;
    const struct sgrad_arrays *given;
    bool classes, numbers;      /* read y as classes, as numbers; both false: by its values */
    bool images;                /* x are images of any type; false: if they are uint8 */
    const char *part[2];        /* ending of the names of the arrays, by split: "train"; "val" or "test" */
    bool undivided;             /* the test split is held out from the training samples */
};

static bool take_keyword(struct place *place, const char *word) {
    if (!strcmp(word, "classes")) return place->classes = true;
    if (!strcmp(word, "numbers")) return place->numbers = true;
    return !strcmp(word, "images") && (place->images = true);
}

static int open_place(const char *argument, struct place *place) {
    struct stat status;
    place->path = sgrad_format("%s", argument);
    for (char *comma; stat(place->path, &status) && (comma = strrchr(place->path, ',')) && take_keyword(place, comma + 1);)
        *comma = 0;
    if (place->classes && place->numbers)
        return sgrad_log_error(SGRAD_EINVAL, "npy:%s: classes cannot be combined with numbers", argument);
    const char *ending = strrchr(place->path, '.');
    return ending && !strcasecmp(ending, ".npz") ? sgrad_map_open(place->path, FILE_LIMIT, &place->archive)
                                             : sgrad__folder_check("npy", place->path, WANTED);
}

static void close_place(struct place *place) {
    if (place->archive.data) sgrad_map_close(&place->archive);
    free(place->path);
}

/* Returns the array NAME, "x_train", in memory. */
static const struct sgrad_array *given_array(const struct place *place, const char *name) {
    return &(*name == 'x' ? place->given->x : place->given->y)[strcmp(name + 2, "train") ? SGRAD_TEST : SGRAD_TRAIN];
}

static bool has_array(const struct place *place, const char *name) {
    if (place->given) return given_array(place, name)->data;
    char *file = place->archive.data ? sgrad_format("%s.npy", name) : sgrad_format("%s/%s.npy", place->path, name);
    struct stat status;
    const bool has = place->archive.data ? sgrad__zip_has(place->archive.data, place->archive.size, file) : !stat(file, &status);
    free(file);
    return has;
}

/* One array. */
struct array {
    char *name;                 /* "DIR/x_train.npy", "FILE.npz: x_train.npy"; in memory its own name */
    char *where;                /* the beginning of messages: "npy: NAME"; in memory NAME */
    struct sgrad_map map;       /* its file, in a folder */
    void *member;               /* its content, in an archive */
    struct sgrad__npy is;
};

static int open_member(const struct place *place, const char *name, struct array *array) {
    char *file = sgrad_format("%s.npy", name);
    size_t size = 0;
    int error = sgrad__zip_read(place->path, place->archive.data, place->archive.size, file, &array->member, &size);
    array->name = sgrad_format("%s: %s", place->path, file);
    free(file);
    return error ? error : sgrad__npy_parse(array->name, array->member, size, &array->is);
}

static int open_file(const struct place *place, const char *name, struct array *array) {
    array->name = sgrad_format("%s/%s.npy", place->path, name);
    SGRAD_TRY(sgrad_map_open(array->name, FILE_LIMIT, &array->map));
    return sgrad__npy_parse(array->name, array->map.data, array->map.size, &array->is);
}

static int open_given(const struct place *place, const char *name, struct array *array) {
    const struct sgrad_array *given = given_array(place, name);
    array->name = sgrad_format("%s", given->name ? given->name : name);
    if (!given->data) return sgrad_log_error(SGRAD_EINVAL, "%s: is missing", array->name);
    return sgrad__npy_of_array(array->name, given, &array->is);
}

static int open_array(const struct place *place, const char *name, struct array *array) {
    if (place->given) SGRAD_TRY(open_given(place, name, array));
    else SGRAD_TRY(place->archive.data ? open_member(place, name, array) : open_file(place, name, array));
    array->where = sgrad_format("%s%s", place->given ? "" : "npy: ", array->name);
    if (!array->is.shape.rank || array->is.count == 0)
        return sgrad_log_error(SGRAD_EFORMAT, "%s: has no samples", array->where);
    for (int d = 0; d < array->is.shape.rank; d++)
        if (array->is.shape.dim[d] > INT32_MAX)
            return sgrad_log_error(SGRAD_EFORMAT, "%s: dimension %d is %lld, but may be at most %d", array->where, d,
                                   (long long)array->is.shape.dim[d], INT32_MAX);
    return 0;
}

static void close_array(struct array *array) {
    if (array->map.data) sgrad_map_close(&array->map);
    free(array->member);
    free(array->name);
    free(array->where);
}

/* Returns the shape of one sample: the dimensions after the first. */
static struct sgrad_shape of_one(const struct sgrad_shape *shape) {
    struct sgrad_shape one = { .rank = shape->rank - 1 };
    for (int i = 0; i < one.rank; i++) one.dim[i] = shape->dim[i + 1];
    return one;
}

/* ---- x --------------------------------------------------------------------------------------------------------------- */

static bool is_whole(const struct sgrad__npy *npy) { return npy->kind != 'f'; }

static bool is_images(const struct sgrad__npy *npy) {
    return npy->kind == 'u' && npy->bytes == 1 && (npy->shape.rank == 3 || npy->shape.rank == 4);
}

/* The training samples of an array. */
struct training {
    const struct sgrad__npy *npy;
    const int64_t *row;         /* of each sample; NULL: all rows */
    int64_t each;               /* numbers of a sample */
};

static double number_at(const void *of, int64_t i) {
    const struct training *t = of;
    return sgrad__npy_number(t->npy, t->row ? t->row[i / t->each] * t->each + i % t->each : i);
}

/* Measures the features of ARRAY without the samples HELD_OUT, which may be NULL. */
static void measure(struct sgrad_origin *origin, const struct array *array, const bool *held_out) {
    const int64_t samples = array->is.shape.dim[0];
    int64_t *row = held_out ? sgrad_xcalloc((size_t)samples, sizeof *row) : NULL, count = held_out ? 0 : samples;
    for (int64_t i = 0; i < samples && row; i++)
        if (!held_out[i]) row[count++] = i;
    sgrad__features_measure(origin, count, number_at, &(struct training){ &array->is, row, origin->features });
    free(row);
}

static int check_features(const struct array *array) {
    const int64_t each = array->is.count / array->is.shape.dim[0];
    for (int64_t i = 0; i < array->is.count; i++) {
        const double number = sgrad__npy_number(&array->is, i);
        if (!isfinite((float)number))
            return sgrad_log_error(SGRAD_EFORMAT,
                                   "%s: feature %lld of sample %lld (both counted from 0) is %g, but must be finite",
                                   array->where, (long long)(i % each), (long long)(i / each), number);
    }
    return 0;
}

void sgrad__warn_of_channels(const char *where, const struct sgrad_shape *one) {
    const int64_t *dim = one->dim;
    char text[SGRAD_SHAPE_TEXT];
    if (one->rank == 3 && (dim[0] == 1 || dim[0] == 3) && dim[1] == dim[2] && dim[1] > dim[0] && sgrad_launched_rank() == 0)
        sgrad_log_warning("%s: samples of %s are read as (height,width,channels); transpose them if channels come first", where,
                          sgrad_shape_text(one, text));
}

/* Normalises the features of ARRAY by the training samples TRAIN without HELD_OUT, or as TRAINED describes, if it has any. */
static int fill_features(struct sgrad_dataset *dataset, const struct place *place, const struct array *array,
                         const struct array *train, const bool *held_out, const struct sgrad_origin *trained) {
    struct sgrad_shape one = of_one(&array->is.shape);
    char text[2][SGRAD_SHAPE_TEXT];
    if (!one.rank) one = sgrad_shape(1, 1);
    if (place->images && one.rank != 2 && one.rank != 3)
        return sgrad_log_error(SGRAD_EFORMAT, "%s: samples of %s are not images, which must be (H,W) or (H,W,C)",
                               array->where, sgrad_shape_text(&one, text[0]));
    const bool grey = trained && trained->shape.rank == 3 && trained->shape.dim[2] == 1;
    if (one.rank == 2 && (place->images || grey)) one.dim[one.rank++] = 1;
    if (one.rank == SGRAD_MAX_RANK)
        return sgrad_log_error(SGRAD_EFORMAT, "%s: has %d dimensions, but at most %d are supported", array->where,
                               SGRAD_MAX_RANK + 1, SGRAD_MAX_RANK);
    const int64_t features = sgrad_shape_count(&one);
    if (trained && trained->features && trained->features != features)
        return sgrad_log_error(SGRAD_EFORMAT, "%s: has %lld %s per sample, but the run's data have %lld", array->where,
                               (long long)features, sgrad_plural(features, "number", "numbers"), (long long)trained->features);
    if (trained && trained->shape.rank && !sgrad_shape_equal(&trained->shape, &one))
        return sgrad_log_error(SGRAD_EFORMAT, "%s: has samples of %s, but the run's data have samples of %s", array->where,
                               sgrad_shape_text(&one, text[0]), sgrad_shape_text(&trained->shape, text[1]));
    SGRAD_TRY(check_features(array));
    if (trained && trained->features) dataset->origin = sgrad__origin_copy(trained);
    else {
        SGRAD_TRY(check_features(train));
        dataset->origin = sgrad_xcalloc(1, sizeof *dataset->origin);
        dataset->origin->features = features;
        dataset->origin->shape = one;
        dataset->origin->groups = trained ? 0 : sgrad__feature_groups(&one);     /* old runs did not normalise */
        if (!trained) measure(dataset->origin, train, held_out);
    }
    float *to = sgrad_xcalloc((size_t)array->is.count, sizeof *to);
    for (int64_t i = 0; i < array->is.count; i++)
        to[i] = (float)sgrad__feature(dataset->origin, i, sgrad__npy_number(&array->is, i));
    dataset->field[0] = (struct sgrad_field){ "features", SGRAD_F32, one, to };
    return 0;
}

/* Adds a dimension of one channel to (H,W), and, with masks, a dimension of one slice. BORROWED: the pixels are not copied. */
static int fill_images(struct sgrad_dataset *dataset, const struct array *array, bool masks, bool borrowed) {
    const struct sgrad__npy *npy = &array->is;
    struct sgrad_shape one = of_one(&npy->shape);
    char text[SGRAD_SHAPE_TEXT];
    if (one.rank == 2) one.dim[one.rank++] = 1;
    if (one.dim[2] > SGRAD_MAX_CHANNELS)
        return sgrad_log_error(SGRAD_EFORMAT,
                               "%s: images of %s are invalid; they must be (H,W,C), channels last, with at most %d channels",
                               array->where, sgrad_shape_text(&one, text), SGRAD_MAX_CHANNELS);
    uint8_t *pixels = borrowed ? NULL : sgrad_xcalloc((size_t)npy->count, 1);
    for (int64_t i = 0; i < npy->count && npy->fortran; i++) pixels[i] = (uint8_t)sgrad__npy_number(npy, i);
    if (!npy->fortran && !borrowed) memcpy(pixels, npy->data, (size_t)npy->count);
    if (masks) one = sgrad_shape(4, 1, (int)one.dim[0], (int)one.dim[1], (int)one.dim[2]);
    dataset->field[0] = (struct sgrad_field){ "pixels", SGRAD_U8, one, pixels };
    dataset->full_scale = 255;
    return 0;
}

/* ---- y --------------------------------------------------------------------------------------------------------------- */

enum meaning { NUMBERS, CLASSES, ONE_HOT, MASKS, BINARY };

/* Returns k if a sample of NPY is a row of k numbers: (N,k), (N,1,k) or (N,k,1); 0: it is not a row. */
static int64_t columns_of(const struct sgrad__npy *npy) {
    int64_t columns = 1;
    for (int d = 1; d < npy->shape.rank; d++) {
        if (columns > 1 && npy->shape.dim[d] > 1) return 0;
        columns *= npy->shape.dim[d];
    }
    return columns;
}

/* Returns true if each row has one 1, and its other numbers are 0. */
static bool is_one_hot(const struct sgrad__npy *npy) {
    const int64_t columns = columns_of(npy);
    bool is = columns > 1;
    for (int64_t row = 0; row < npy->count && is; row += columns) {
        int64_t ones = 0;
        for (int64_t c = 0; c < columns && is; c++) {
            const double number = sgrad__npy_number(npy, row + c);
            is = number == 0 || number == 1;
            ones += number == 1;
        }
        is &= ones == 1;
    }
    return is;
}

/* Returns true if each pixel is 0 or 255. Sets *SOME to true if one is 255. */
static bool is_binary(const struct sgrad__npy *npy, bool *some) {
    bool is = true;
    for (int64_t i = 0; i < npy->count && is; i++) {
        const double number = sgrad__npy_number(npy, i);
        is = number == 0 || number == 255;
        *some |= number == 255;
    }
    return is;
}

/* Returns the meaning of ARRAY, for samples without masks. OTHER is y of the other split; if it has no name, it is not known. */
static enum meaning meaning_of(const struct place *place, const struct array *array, const struct array *other,
                               const struct sgrad_origin *trained) {
    const struct sgrad_shape one = of_one(&array->is.shape);
    const bool single = sgrad_shape_count(&one) == 1, table = trained && trained->features;
    if (place->numbers || (table && !trained->classes && !place->classes)) return NUMBERS;
    if (is_one_hot(&array->is) && (!other->name || is_one_hot(&other->is))) return ONE_HOT;
    if (single && (place->classes || is_whole(&array->is) || (table && trained->classes))) return CLASSES;
    return NUMBERS;
}

/* Returns the class of sample I, or, with masks, of pixel I; -1: a one-hot row contains no 1. */
static double class_at(const struct sgrad__npy *npy, enum meaning meaning, int64_t i) {
    if (meaning != ONE_HOT) return sgrad__npy_number(npy, i) / (meaning == BINARY ? 255 : 1);
    const int64_t columns = columns_of(npy);
    for (int64_t c = 0; c < columns; c++)
        if (sgrad__npy_number(npy, i * columns + c) == 1) return (double)c;
    return -1;
}

static int fill_classes(struct sgrad_dataset *dataset, const struct array *array, const struct array *other, enum meaning meaning,
                        const struct sgrad_origin *trained) {
    struct sgrad_shape one = { 0 };
    const bool masks = meaning == MASKS || meaning == BINARY;
    const int64_t count = masks ? array->is.count : array->is.shape.dim[0];
    int32_t *to = sgrad_xcalloc((size_t)count, sizeof *to);
    if (masks) one = of_one(&array->is.shape), one = sgrad_shape(3, 1, (int)one.dim[0], (int)one.dim[1]);
    dataset->field[1] = (struct sgrad_field){ "label", SGRAD_I32, one, to };
    for (int64_t i = 0; i < count; i++) {
        const double number = class_at(&array->is, meaning, i);
        if (!(number >= 0 && number < CLASSES_LIMIT && number == floor(number)))
            return sgrad_log_error(SGRAD_EFORMAT, "%s: number %lld is %g, but classes must be whole numbers, counted from 0",
                                   array->where, (long long)i, number);
        to[i] = (int32_t)number;
        if (number >= dataset->classes) dataset->classes = (int)number + 1;
    }
    if (meaning == ONE_HOT) dataset->classes = (int)columns_of(&array->is);
    for (int64_t i = 0; other->name && meaning != ONE_HOT && i < other->is.count; i++) {    /* one-hot: equal in both splits */
        const double number = class_at(&other->is, meaning, i);
        if (number >= dataset->classes && number < CLASSES_LIMIT) dataset->classes = (int)number + 1;
    }
    if (dataset->split == SGRAD_TRAIN && !trained) sgrad__warn_of_unused(array->where, to, count, dataset);
    return 0;
}

static int fill_numbers(struct sgrad_dataset *dataset, const struct array *array) {
    struct sgrad_shape one = of_one(&array->is.shape);
    float *to = sgrad_xcalloc((size_t)array->is.count, sizeof *to);
    if (!one.rank) one = sgrad_shape(1, 1);
    dataset->field[1] = (struct sgrad_field){ "target", SGRAD_F32, one, to };
    for (int64_t i = 0; i < array->is.count; i++) {
        to[i] = (float)sgrad__npy_number(&array->is, i);
        if (!isfinite(to[i]))
            return sgrad_log_error(SGRAD_EFORMAT, "%s: number %lld is %g, but targets must be finite", array->where,
                                   (long long)i, sgrad__npy_number(&array->is, i));
    }
    return 0;
}

static int fill_y(struct sgrad_dataset *dataset, const struct place *place, const struct array *array, const struct array *other,
                  bool masks, const struct sgrad_origin *trained) {
    static const char *const note[] = { [NUMBERS] = "y contains numbers",
                                        [CLASSES] = "y contains classes",
                                        [ONE_HOT] = "y contains classes, as one-hot rows",
                                        [MASKS] = "y contains classes of pixels",
                                        [BINARY] = "y contains classes of pixels, 0 and 255" };
    bool some = false;
    const bool binary = masks && is_binary(&array->is, &some) && (!other->name || is_binary(&other->is, &some)) && some;
    enum meaning meaning = binary ? BINARY : MASKS;
    if (!masks) meaning = meaning_of(place, array, other, trained);
    char text[SGRAD_SHAPE_TEXT];
    dataset->note = sgrad_format("%s", note[meaning]);
    if (meaning == NUMBERS && place->classes)
        return sgrad_log_error(SGRAD_EINVAL, "%s: is %s, but ,classes requires one class per sample, or one-hot rows",
                               array->where, sgrad_shape_text(&array->is.shape, text));
    return meaning == NUMBERS ? fill_numbers(dataset, array) : fill_classes(dataset, array, other, meaning, trained);
}

/* Makes the data set unlabelled. Targets are zeros, of the kind that the network was trained on. */
static void fill_nothing(struct sgrad_dataset *dataset, const struct sgrad_origin *trained) {
    dataset->unlabelled = true;
    dataset->classes = trained ? trained->classes : 0;
    dataset->note = sgrad_format("no y");
    const int targets = trained && trained->targets ? (int)trained->targets : 1;
    void *to = sgrad_xcalloc((size_t)dataset->count * (size_t)(dataset->classes ? 1 : targets), sizeof(float));
    dataset->field[1] = dataset->classes ? (struct sgrad_field){ "label", SGRAD_I32, { 0 }, to }
                             : (struct sgrad_field){ "target", SGRAD_F32, sgrad_shape(1, targets), to };
}

/* ---- the data set ------------------------------------------------------------------------------------------------------ */

struct arrays {
    struct array x, y, train, other;        /* of this split; if needed: x of train, y of the other split */
};

/* NAME is 'x' or 'y'. */
static bool has_part(const struct place *place, char name, enum sgrad_split split) {
    char *text = sgrad_format("%c_%s", name, place->part[split]);
    const bool has = has_array(place, text);
    free(text);
    return has;
}

static int open_part(const struct place *place, char name, enum sgrad_split split, struct array *array) {
    char *text = sgrad_format("%c_%s", name, place->part[split]);
    const int error = open_array(place, text, array);
    free(text);
    return error;
}

/* Sets the names of the arrays: the test split is val, if it exists, else test, else held out. */
static void find_parts(struct place *place, const struct sgrad_dataset_options *options) {
    place->part[SGRAD_TRAIN] = "train";
    place->part[SGRAD_TEST] = !place->given && !options->third && has_array(place, "x_val") ? "val" : "test";
    place->undivided = (options->split > 0 || options->whole) && !options->third && !has_part(place, 'x', SGRAD_TEST);
    if (place->undivided) place->part[SGRAD_TEST] = "train";
}

static int open_arrays(struct sgrad_dataset *dataset, const struct place *place, const struct sgrad_dataset_options *options,
                       struct arrays *arrays) {
    const enum sgrad_split is = dataset->split, other = !is;
    SGRAD_TRY(open_part(place, 'x', is, &arrays->x));
    const bool labelled = !options->every || has_part(place, 'y', is);
    if (labelled) SGRAD_TRY(open_part(place, 'y', is, &arrays->y));
    if (labelled && !place->undivided && (!options->origin || has_part(place, 'y', other)))
        SGRAD_TRY(open_part(place, 'y', other, &arrays->other));
    if (is == SGRAD_TEST && !options->origin && !is_images(&arrays->x.is) && !place->undivided)
        SGRAD_TRY(open_part(place, 'x', SGRAD_TRAIN, &arrays->train));
    if (labelled && arrays->x.is.shape.dim[0] != arrays->y.is.shape.dim[0])
        return sgrad_log_error(SGRAD_EFORMAT, "%s has %lld %s, %s has %lld", arrays->x.where,
                               (long long)arrays->x.is.shape.dim[0], sgrad_plural(arrays->x.is.shape.dim[0], "sample", "samples"),
                               arrays->y.name, (long long)arrays->y.is.shape.dim[0]);
    if (arrays->train.name &&
        arrays->train.is.count / arrays->train.is.shape.dim[0] != arrays->x.is.count / arrays->x.is.shape.dim[0])
        return sgrad_log_error(SGRAD_EFORMAT, "%s and %s have samples of different shapes", arrays->train.where,
                               arrays->x.name);
    if (arrays->other.name && !options->origin &&
        arrays->other.is.count / arrays->other.is.shape.dim[0] != arrays->y.is.count / arrays->y.is.shape.dim[0])
        return sgrad_log_error(SGRAD_EFORMAT, "%s and %s have targets of different shapes", arrays->y.where,
                               arrays->other.name);
    return 0;
}

/* Draws the samples *HELD_OUT, which the caller must free. SGRAD_EINVAL: there are too few. */
static int hold_out(struct sgrad_dataset *dataset, const struct arrays *arrays, const struct sgrad_dataset_options *options,
                    bool **held_out) {
    const struct sgrad_field *y = &dataset->field[1];
    const int32_t *label = dataset->classes && !y->shape.rank ? y->data : NULL;
    *held_out = sgrad_xcalloc((size_t)dataset->count, sizeof **held_out);
    dataset->held_out = sgrad__split_draw(label, dataset->classes, dataset->count, options->split, options->seed, *held_out);
    return dataset->held_out ? 0 : sgrad__split_refuse(arrays->x.where, dataset->count);
}

static int fill(struct sgrad_dataset *dataset, const struct place *place, const struct sgrad_dataset_options *options,
                const struct arrays *arrays) {
    const struct sgrad_shape *x = &arrays->x.is.shape, *y = &arrays->y.is.shape;
    const bool images = is_images(&arrays->x.is);
    const bool masks = images && arrays->y.name && is_whole(&arrays->y.is) &&
                       (y->rank == 3 || (y->rank == 4 && y->dim[3] == 1)) && y->dim[1] == x->dim[1] && y->dim[2] == x->dim[2] &&
                       (y->dim[1] > 1 || y->dim[2] > 1);
    bool *held_out = NULL;
    dataset->count = x->dim[0];
    dataset->field[0].name = "features";        /* fields before an unnamed one are freed */
    if (arrays->y.name) SGRAD_TRY(fill_y(dataset, place, &arrays->y, &arrays->other, masks, options->origin));
    else fill_nothing(dataset, options->origin);
    const bool holds_out = place->undivided && !options->whole;
    int error = holds_out ? hold_out(dataset, arrays, options, &held_out) : 0;
    if (!error && images) error = fill_images(dataset, &arrays->x, masks, place->given && arrays->x.is.bytes == 1);
    else if (!error)
        error = fill_features(dataset, place, &arrays->x, arrays->train.name ? &arrays->train : &arrays->x, held_out,
                              options->origin);
    const struct sgrad_shape one = of_one(x);
    if (dataset->split == SGRAD_TRAIN && !options->origin) sgrad__warn_of_channels(arrays->x.where, &one);
    for (int64_t i = 0; i < dataset->count && held_out && dataset->split == SGRAD_TEST; i++) held_out[i] = !held_out[i];
    if (!error && held_out) sgrad__dataset_leave_out(dataset, held_out);
    free(held_out);
    return error;
}

static int open_at(struct sgrad_dataset *dataset, struct place *place, const struct sgrad_dataset_options *options) {
    struct arrays a = { .x = { NULL } };
    find_parts(place, options);
    int error = open_arrays(dataset, place, options, &a);
    if (!error) error = fill(dataset, place, options, &a);
    close_array(&a.x);
    close_array(&a.y);
    close_array(&a.train);
    close_array(&a.other);
    return error;
}

int sgrad__npy_open_arrays(struct sgrad_dataset *dataset, const struct sgrad_dataset_options *options) {
    return open_at(dataset, &(struct place){ .given = options->arrays }, options);
}

static int open_npy(struct sgrad_dataset *dataset, const char *argument, const struct sgrad_dataset_options *options) {
    struct place place = { NULL };
    int error = open_place(argument, &place);
    if (!error) error = open_at(dataset, &place, options);
    close_place(&place);
    return error;
}

const struct sgrad_reader sgrad_npy_reader = {
    .name = "npy",
    .argument = "PATH[,classes|numbers][,images]",
    .summary = "NumPy arrays x_train, y_train, x_test and y_test: .npy files in a folder, or one .npz; x: images of uint8, with "
               "'images' of any type, or numbers; y: classes of images or of pixels, or numbers. x_val and y_val are the test "
               "set, if they exist; without both, --split holds out a part of x_train",
    .open = open_npy,
};
