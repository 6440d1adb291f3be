/* folder.c: the reader of a folder of images with one subfolder per class, as torchvision's ImageFolder.
 *
 *     DIR/train/cat/1.jpg         class 0: cat, class 1: dog; classes are sorted by their bytes, files as in walk.c
 *     DIR/train/dog/old/1.jpg     subfolders of a class's folder belong to the class
 *     DIR/val/cat/9.png           the test split; its classes are those of train, if train exists
 *     DIR/test/cat/8.jpg          the third split, which options.third selects; the test split if val does not exist
 *
 * Without val, options.split holds out a part of train.
 *
 * All images have the same size, or the argument or the options give the side of a square to which each image is scaled and
 * cropped. Images are decoded when they are read. If all of them fit in memory, each is decoded only once.
 *
 * A sample of the training images (survey.c) determines the type of all pixels: bytes, or U16, 0 to 65535, if one image of the
 * sample has more than 8 bits per channel.
 *
 * Most images are photographs, whose class changes neither by a small shift nor in the mirror. By default they are padded by an
 * eighth, as CIFAR's 32 pixels by 4 (He et al. 2015), cropped and flipped (Krizhevsky et al. 2012 crop 224 of 256 pixels at
 * random, and flip). Grey images are mostly scans, digits or letters, for which this is not true: if the whole sample is grey,
 * images are not augmented, and this is logged. Digits and letters, which are different signs in the mirror, may have colours:
 * for these the user must set --augment crop:1/8. */
#include "config.h"
#include "datasets/folder.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_LIMIT   ((size_t)1 << 28)
#define SIDE_LIMIT   8192
#define MEMORY_LIMIT ((size_t)2 << 30)

enum { ABSENT, COPYING, CACHED }; /* state of a cached image: not decoded, being copied, complete */

struct folder {
    char *path; /* DIR/train, DIR/val or DIR/test */
    const char *part;   /* "train", "val" or "test" */
    char *trained; /* DIR/train, or path if it does not exist */
    int side;   /* of a square; 0: images keep their size */
    int scaled; /* the shorter side to which images are scaled before they are cropped to side */
    bool upright;       /* the EXIF orientation is applied */
    size_t memory; /* limit of the cache in bytes; 0: set by the machine's memory */
    int classes;
    char **class_name, **shown;     /* names of the folders; the same as UTF-8 */
    char **file;   /* (files): CLASS/NAME of each sample */
    int64_t files;
    bool deep;     /* pixels are U16 */
    bool skips;    /* images may be damaged */
    struct sgrad_walk beside;       /* files that are not images */
    char *plain, *others;           /* strings of the data set */
    uint8_t *cache; /* (files,H,W,3); NULL: too large */
    _Atomic unsigned char *state;
    _Atomic bool warned_deep, warned_animated;
};

/* ---- samples ------------------------------------------------------------------------------------------- */

/* Checks that all classes of this split are classes of the training split; other classes would have no label. SGRAD_EFORMAT. */
static int check_classes(const struct folder *folder) {
    char **name = NULL;
    int classes = 0, known = 0;
    int error = sgrad__folder_classes(folder->path, &name, &classes);
    for (int i = 0; i < classes && !error; i++) {
        while (known < folder->classes && strcmp(folder->class_name[known], name[i]) < 0) known++;
        if (known == folder->classes || strcmp(folder->class_name[known], name[i]))
            error = sgrad_log_error(SGRAD_EFORMAT, "folder: %s/%s: the training split has no such class", folder->path, name[i]);
    }
    sgrad__free_names(name, classes);
    return error;
}

/* Warns of classes that have no images in this split. */
static void tell_absent(const struct folder *folder, const struct sgrad__images *images) {
    int absent;
    char *list = sgrad_classes_absent((const char *const *)folder->class_name, folder->classes, images->label, images->count,
                                      true, &absent);
    if (absent && sgrad_launched_rank() == 0)
        sgrad_log_warning("folder: %s: has no image of %d of the %d classes: %s", folder->path, absent, folder->classes, list);
    free(list);
}

/* Makes the images the samples of the data set, which then owns them. */
static void take_images(struct sgrad_dataset *dataset, struct sgrad__images *images) {
    struct folder *folder = dataset->state;
    for (int64_t i = 0; i < images->count; i++) {
        const char *name = images->name[i];
        dataset->identity = sgrad__fingerprint_add(sgrad__fingerprint_add(dataset->identity, name, strlen(name)),
                                                   &images->size[i], sizeof *images->size);
    }
    dataset->count = folder->files = images->count;
    dataset->field[1].data = images->label;
    folder->file = images->name;
    free(images->size);
    *images = (struct sgrad__images){ 0 };
}

/* ---- images -------------------------------------------------------------------------------------------------------- */

/* Maps the file of sample I and calls PARSE, one of the three functions below. */
static int with_file(const struct folder *folder, int64_t i,
                     int (*parse)(const char *, const struct sgrad_map *, struct sgrad__image *), struct sgrad__image *image) {
    char *path = sgrad_format("%s/%s", folder->path, folder->file[i]);
    struct sgrad_map map;
    int error = sgrad_map_open(path, FILE_LIMIT, &map);
    if (!error) {
        error = parse(path, &map, image);
        if (!error && folder->upright) sgrad__image_upright(map.data, map.size, image);
        sgrad_map_close(&map);
    }
    free(path);
    return error;
}

static int read_header(const char *path, const struct sgrad_map *map, struct sgrad__image *image) {
    return sgrad__image_header(path, map->data, map->size, image);
}

static int decode(const char *path, const struct sgrad_map *map, struct sgrad__image *image) {
    return sgrad__image_decode(path, map->data, map->size, image);
}

static int decode_deep(const char *path, const struct sgrad_map *map, struct sgrad__image *image) {
    return sgrad__image_decode_deep(path, map->data, map->size, image);
}

static int odd_size(const struct sgrad_dataset *dataset, int64_t i, const struct sgrad__image *image) {
    const struct folder *folder = dataset->state;
    const int64_t *dim = dataset->field[0].shape.dim;
    return sgrad_log_error(SGRAD_ESHAPE,
                           "folder: %s/%s: is %dx%d, but others are %dx%d; give folder:DIR,SIZE to resize all images",
                           folder->path, folder->file[i], image->width, image->height, (int)dim[1], (int)dim[0]);
}

static int find_header(const struct sgrad_dataset *dataset, int64_t i, struct sgrad__image *image) {
    return with_file(dataset->state, sgrad__index_in_reader(dataset, i), read_header, image);
}

/* Sets the size of images. If it was not specified, it is that of the first image, or, if images may be damaged, of the first
 * image with a readable header. An image of another size is an error only when it is read, because opening every file on every
 * rank at every start would take too long. */
static int find_size(struct sgrad_dataset *dataset) {
    const struct folder *folder = dataset->state;
    struct sgrad__image image = { .height = folder->side, .width = folder->side };
    char reason[1024];
    int error = folder->side ? 0 : SGRAD_EFORMAT;
    for (int64_t i = 0; i < dataset->count && error && folder->skips; i++) {
        sgrad_log_capture(reason, sizeof reason);
        error = find_header(dataset, i, &image);
        sgrad_log_capture(NULL, 0);
    }
    if (error) SGRAD_TRY(find_header(dataset, 0, &image));
    dataset->field[0].shape = sgrad_shape(3, image.height, image.width, 3);
    return 0;
}

/* Surveys the training images, for both splits, so that the splits have the same type. */
static int look_at_some(const struct sgrad_dataset *dataset, struct sgrad__survey *survey) {
    const struct folder *folder = dataset->state;
    struct sgrad__images images = { 0 };
    struct sgrad_walk beside = { 0 };
    if (!strcmp(folder->trained, folder->path)) {
        sgrad__survey(folder->path, folder->file, folder->files, survey);
        return 0;
    }
    int error = sgrad__folder_images(folder->trained, folder->class_name, folder->classes, false, &images, &beside);
    if (!error) sgrad__survey(folder->trained, images.name, images.count, survey);
    sgrad__images_free(&images);
    sgrad_walk_free(&beside);
    return error;
}

/* Sets the type of pixels: deep if one surveyed image is. Disables the default augmentation if all are grey. */
static int find_kind(struct sgrad_dataset *dataset) {
    struct folder *folder = dataset->state;
    struct sgrad__survey survey;
    SGRAD_TRY(look_at_some(dataset, &survey));
    folder->deep = survey.deep > 0;
    dataset->field[0].dtype = folder->deep ? SGRAD_U16 : SGRAD_U8;
    dataset->full_scale = folder->deep ? 65535 : 255;
    if (dataset->split != SGRAD_TRAIN || survey.coloured || !survey.images) return 0;
    dataset->augment = NULL;
    dataset->plain = folder->plain = sgrad_format("%lld of the %lld images examined at the start are grey",
                                                  (long long)survey.images, (long long)survey.images);
    return 0;
}

/* Warns once of further frames, which are not read, and once of more than 8 bits per channel, which are rounded. */
static void tell_unread(struct folder *folder, int64_t i, const struct sgrad__image *image) {
    if (image->animated && !atomic_exchange(&folder->warned_animated, true))
        sgrad_log_warning("folder: %s/%s: has further pages or frames; only the first is read, here and in similar files",
                          folder->path, folder->file[i]);
    if (image->deep && !folder->deep && !atomic_exchange(&folder->warned_deep, true))
        sgrad_log_warning("folder: %s/%s: has more than 8 bits per channel, but the files examined at the start have 8; this and "
                          "similar files are rounded to 8 bits",
                          folder->path, folder->file[i]);
}

static int decode_sample(const struct sgrad_dataset *dataset, int64_t i, uint8_t *pixels) {
    struct folder *folder = dataset->state;
    const struct sgrad_field *field = &dataset->field[0];
    struct sgrad__image image;
    int error = 0;
    SGRAD_TRY(with_file(folder, i, folder->deep ? decode_deep : decode, &image));
    tell_unread(folder, i, &image);
    if (folder->side)
        sgrad__image_fit(&image, folder->scaled, folder->side, pixels);
    else if (image.height == field->shape.dim[0] && image.width == field->shape.dim[1])
        memcpy(pixels, folder->deep ? (const void *)image.rgb16 : image.rgb, sgrad_field_bytes(field));
    else
        error = odd_size(dataset, i, &image);
    free(image.rgb);
    free(image.rgb16);
    return error;
}

/* Two threads may decode the same image; only one of the results is cached. */
static int read_sample(const struct sgrad_dataset *dataset, struct sgrad_sample sample, void *const *data) {
    const struct folder *folder = dataset->state;
    const int64_t i = sample.index;
    const size_t size = sgrad_field_bytes(&dataset->field[0]);
    uint8_t *pixels = data[0];
    if (!folder->cache) return decode_sample(dataset, i, pixels);
    uint8_t *cached = folder->cache + (size_t)i * size;
    if (atomic_load_explicit(&folder->state[i], memory_order_acquire) == CACHED) {
        memcpy(pixels, cached, size);
        return 0;
    }
    SGRAD_TRY(decode_sample(dataset, i, pixels));
    unsigned char absent = ABSENT;
    if (atomic_compare_exchange_strong(&folder->state[i], &absent, COPYING)) {
        memcpy(cached, pixels, size);
        atomic_store_explicit(&folder->state[i], CACHED, memory_order_release);
    }
    return 0;
}

/* ---- single images -------------------------------------------------------------------------------------------------- */

static char *name_sample(const struct sgrad_dataset *dataset, int64_t i) {
    const struct folder *folder = dataset->state;
    return sgrad_format("%s/%s", folder->part, folder->file[i]);
}

static int decode_picture(const struct sgrad_dataset *dataset, int64_t i, struct sgrad_picture *picture) {
    struct sgrad__image image;
    SGRAD_TRY(with_file(dataset->state, i, decode, &image));
    *picture = (struct sgrad_picture){ image.height, image.width, 3, image.deep, image.animated, image.rgb };
    return 0;
}

static uint64_t stamp_sample(const struct sgrad_dataset *dataset, int64_t i) {
    const struct folder *folder = dataset->state;
    char *name = name_sample(dataset, i), *path = sgrad_format("%s/%s", folder->path, folder->file[i]);
    struct stat status = { 0 };
    if (stat(path, &status)) status.st_size = -1;
    const int64_t number[] = { status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec };
    const uint64_t stamp = sgrad__fingerprint_add(sgrad__fingerprint_add(1, name, strlen(name)), number, sizeof number);
    free(name);
    free(path);
    return stamp;
}

/* ---- the reader ---------------------------------------------------------------------------------------------------- */

/* Returns the comma before SIZE in "DIR,SIZE"; NULL: there is no SIZE. A comma that is not followed by a number belongs to the
 * name of the folder. */
static const char *find_size_in(const char *argument) {
    const char *comma = strrchr(argument, ',');
    return comma && comma[1] && comma[1 + strspn(comma + 1, "0123456789")] == 0 ? comma : NULL;
}

/* Parses "DIR" or "DIR,SIZE". Sets folder->side and *ROOT, which the caller must free. SGRAD_EINVAL: SIZE is out of range. */
static int parse_argument(const char *argument, struct folder *folder, char **root) {
    const char *comma = find_size_in(argument);
    const bool sized = comma;
    const long side = sized ? strtol(comma + 1, NULL, 10) : folder->side;
    if (side < sized || side > SIDE_LIMIT)
        return sgrad_log_error(SGRAD_EINVAL, "data set folder:%s: the size must be 1 to %d", argument, SIDE_LIMIT);
    folder->side = (int)side;
    *root = sgrad_format("%.*s", (int)(sized ? (size_t)(comma - argument) : strlen(argument)), argument);
    return 0;
}

int sgrad_folder_size(const char *data, size_t *before) {
    static const char kind[] = "folder:";
    const char *comma = strncmp(data, kind, strlen(kind)) ? NULL : find_size_in(data + strlen(kind));
    if (before) *before = comma ? (size_t)(comma - data) : strlen(data);
    return comma ? (int)strtol(comma + 1, NULL, 10) : 0;
}

/* Allocates the cache for all images, unless they exceed the limit. */
static void make_room(struct sgrad_dataset *dataset) {
    struct folder *folder = dataset->state;
    const size_t machine = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE) / 4;
    const size_t usual = machine < MEMORY_LIMIT ? machine : MEMORY_LIMIT, limit = folder->memory ? folder->memory : usual;
    const size_t size = sgrad_field_bytes(&dataset->field[0]), files = (size_t)folder->files;
    if (size > limit / files) return;
    folder->cache = malloc(files * size);
    folder->state = sgrad_xcalloc(files, sizeof *folder->state);
}

static int measure(struct sgrad_dataset *dataset) {
    SGRAD_TRY(find_kind(dataset));
    SGRAD_TRY(find_size(dataset));
    make_room(dataset);
    return 0;
}

/* Returns true if the folder PART exists in ROOT. */
static bool has_part(const char *root, const char *part) {
    char *path = sgrad_format("%s/%s", root, part);
    const bool has = sgrad__is_folder(path);
    free(path);
    return has;
}

/* Sets the folder of the split. *HOLDS_OUT: a fraction of the training images is the test split. SGRAD_EIO: it is missing. */
static int find_part(struct sgrad_dataset *dataset, const char *root, const struct sgrad_dataset_options *options,
                     bool *holds_out) {
    struct folder *folder = dataset->state;
    const bool test = dataset->split == SGRAD_TEST, has_train = has_part(root, "train"), has_val = has_part(root, "val");
    const bool divides = options->whole ? !has_part(root, "test") : options->split > 0;
    *holds_out = divides && !has_val && has_train && !(test && options->third);
    folder->part = "train";
    if (test && !*holds_out) folder->part = options->third || (!has_val && has_part(root, "test")) ? "test" : "val";
    folder->path = sgrad_format("%s/%s", root, folder->part);
    folder->trained = has_train ? sgrad_format("%s/train", root) : sgrad_format("%s", folder->path);
    if (sgrad__is_folder(folder->path)) return 0;
    return sgrad_log_error(SGRAD_EIO, "data set folder:%s: has no folder %s; " SGRAD__FOLDER_WANTED "%s", root, folder->part,
                           !strcmp(folder->part, "val") ? ", or hold out training images with --split 0.1" : "");
}

/* Leaves out the samples of the other split. SGRAD_EINVAL: there are too few. */
static int hold_out(struct sgrad_dataset *dataset, const struct sgrad_dataset_options *options) {
    const struct folder *folder = dataset->state;
    bool *out = sgrad_xcalloc((size_t)dataset->count, sizeof *out);
    dataset->held_out = sgrad__split_draw(dataset->field[1].data, folder->classes, dataset->count, options->split, options->seed,
                                          out);
    for (int64_t i = 0; i < dataset->count && dataset->split == SGRAD_TEST; i++) out[i] = !out[i];
    char *where = sgrad_format("folder: %s", folder->path);
    const int error = dataset->held_out ? 0 : sgrad__split_refuse(where, dataset->count);
    if (!error) sgrad__dataset_leave_out(dataset, out);
    free(where);
    free(out);
    return error;
}

static int open_split(struct sgrad_dataset *dataset, const char *root, const struct sgrad_dataset_options *options) {
    struct folder *folder = dataset->state;
    bool holds_out;
    SGRAD_TRY(sgrad__folder_check("folder", root, SGRAD__FOLDER_WANTED));
    SGRAD_TRY(find_part(dataset, root, options, &holds_out));
    const bool train = !strcmp(folder->part, "train");
    int error = sgrad__folder_classes(folder->trained, &folder->class_name, &folder->classes);
    if (!error && !train) error = check_classes(folder);
    struct sgrad__images images = { 0 };
    if (!error) error = sgrad__folder_images(folder->path, folder->class_name, folder->classes, train, &images, &folder->beside);
    if (!error && !train && images.count) tell_absent(folder, &images);
    if (!error) take_images(dataset, &images);
    sgrad__images_free(&images);
    if (!error) error = sgrad__folder_others(folder->path, &folder->beside);
    SGRAD_TRY(error);
    dataset->others = folder->others = sgrad_walk_others(&folder->beside);
    if (dataset->count && holds_out && !options->whole) return hold_out(dataset, options);
    return dataset->count ? 0 : sgrad__folder_no_images(folder->path, " in its folders");
}

static int open_folder(struct sgrad_dataset *dataset, const char *argument, const struct sgrad_dataset_options *options) {
    struct folder *folder = dataset->state = sgrad_xcalloc(1, sizeof *folder);
    char *root = NULL;
    folder->side = options->size;
    folder->memory = options->memory;
    folder->skips = options->damaged;
    dataset->field[0] = (struct sgrad_field){ .name = "pixels", .dtype = SGRAD_U8, .shape = sgrad_shape(3, 1, 1, 3) };
    dataset->field[1] = (struct sgrad_field){ .name = "label", .dtype = SGRAD_I32 };
    SGRAD_TRY(parse_argument(argument, folder, &root));
    folder->scaled = dataset->split == SGRAD_TEST && options->test_resize ? options->test_resize : folder->side;
    folder->upright = options->upright;
    int error = folder->scaled < folder->side || (folder->scaled && !folder->side)
                    ? sgrad_log_error(SGRAD_EINVAL, "data set folder:%s: --eval-resize %d requires an --image-size of at most %d",
                                      argument, folder->scaled, folder->scaled)
                    : open_split(dataset, root, options);
    free(root);
    SGRAD_TRY(error);
    dataset->classes = folder->classes;
    folder->shown = sgrad_xcalloc((size_t)folder->classes, sizeof *folder->shown);
    for (int c = 0; c < folder->classes; c++) folder->shown[c] = sgrad__utf8_of(folder->class_name[c]);
    dataset->class_name = (const char *const *)folder->shown;
    dataset->full_scale = 255;
    return 0;
}

static void close_folder(struct sgrad_dataset *dataset) {
    struct folder *folder = dataset->state;
    sgrad__free_names(folder->class_name, folder->classes);
    sgrad__free_names(folder->shown, folder->classes);
    sgrad__free_names(folder->file, folder->files);
    sgrad_walk_free(&folder->beside);
    free(folder->plain);
    free(folder->others);
    free(folder->path);
    free(folder->trained);
    free(folder->cache);
    free((void *)folder->state);
    free(folder);
}

const struct sgrad_reader sgrad_folder_reader = {
    .name = "folder",
    .argument = "DIR[,SIZE]",
    .summary = "images in DIR/train/CLASS/ and DIR/val/CLASS/ (JPEG, PNG, TIFF, BMP, PNM, WebP, GIF), resized and cropped to "
               "SIZE x SIZE; DIR/test/CLASS/ is a third split (eval --on test), and --split replaces val; by default, grey "
               "images (often letters or digits, which must not be flipped) are not augmented",
    .augment = "crop:1/8,flip",
    .open = open_folder,
    .measure = measure,
    .read = read_sample,
    .close = close_folder,
    .sample_name = name_sample,
    .picture = decode_picture,
    .resizes = "folder:DIR,SIZE",
    .stamp = stamp_sample,
};
