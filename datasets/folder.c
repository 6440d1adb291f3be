/* folder.c: the reader of a folder of images with one subfolder per class, as torchvision's ImageFolder.
 *
 *     DIR/train/cat/1.jpg         class 0: cat, class 1: dog; classes are sorted by their bytes, files as in walk.c
 *     DIR/train/dog/old/1.jpg     subfolders of a class's folder belong to the class
 *     DIR/val/cat/9.png           the test split; its classes are those of train, if train exists
 *     DIR/test/cat/8.jpg          the third split, which options.third selects; the test split if val does not exist
 *
 * Without val, options.split holds out a part of train.
 *
 * encoded.c decodes the images, and scales and crops them if a SIZE is given.
 *
 * Most images are photographs, whose class changes neither by a small shift nor in the mirror. By default they are padded by an
 * eighth, as CIFAR's 32 pixels by 4 (He et al. 2015), cropped and flipped (Krizhevsky et al. 2012 crop 224 of 256 pixels at
 * random, and flip). Grey images are mostly scans, digits or letters, for which this is not true: if the whole sample is grey,
 * images are not augmented, and this is logged. Digits and letters, which are different signs in the mirror, may have colours:
 * for these the user must set --augment crop:1/8. */
#include "config.h"
#include "datasets/folder.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FILE_LIMIT ((size_t)1 << 28)

/* The images in the folder of a split. */
struct files {
    char *path;
    struct sgrad__shard index;
};

struct folder {
    struct sgrad__encoded images;
    struct sgrad__part part;
    struct files files;             /* DIR/train, DIR/val or DIR/test */
    struct files own_training;      /* DIR/train, if it exists and the split is another one; empty after measure */
    struct files *training;         /* files or own_training */
    int classes;
    char **class_name;              /* as UTF-8 */
    struct sgrad_walk beside;       /* files that are not images */
    char *others;                   /* string of the data set */
};

static void close_files(struct files *files) {
    sgrad__index_close(&files->index);
    free(files->path);
    *files = (struct files){ 0 };
}

/* ---- samples ------------------------------------------------------------------------------------------- */

static const char *name_of(const struct files *files, int64_t i) { return files->index.text + files->index.sample[i].name; }

/* Returns, for each class of the split, its number in the training split. The caller must free it. *ERROR: SGRAD_EFORMAT if the
 * training split lacks a class; its images would have no label. */
static int32_t *map_classes(const struct folder *folder, int *error) {
    const struct sgrad__shard *own = &folder->files.index, *training = &folder->training->index;
    int32_t *map = sgrad_xcalloc((size_t)own->classes, sizeof *map);
    for (int c = 0, known = 0; c < own->classes && !*error; c++) {
        const char *name = sgrad__folder_class(own, c);
        while (known < training->classes && strcmp(sgrad__folder_class(training, known), name) < 0) known++;
        map[c] = known;
        if (known == training->classes || strcmp(sgrad__folder_class(training, known), name))
            *error = sgrad_log_error(SGRAD_EFORMAT, "folder: %s/%s: the training split has no such class", folder->files.path,
                                     name);
    }
    return map;
}

/* Checks that each class of the training split has an image. */
static int check_images(const struct files *files) {
    bool *has = sgrad_xcalloc((size_t)files->index.classes, sizeof *has);
    int error = 0;
    for (int64_t i = 0; i < files->index.samples; i++) has[files->index.sample[i].label] = true;
    for (int c = 0; c < files->index.classes && !error; c++) {
        char *class = has[c] ? NULL : sgrad_format("%s/%s", files->path, sgrad__folder_class(&files->index, c));
        if (class) error = sgrad__folder_no_images(class, "");
        free(class);
    }
    free(has);
    return error;
}

/* Makes the images the samples of the data set. */
static int take_images(struct sgrad_dataset *dataset) {
    struct folder *folder = dataset->state;
    const struct sgrad__shard *index = &folder->files.index;
    int error = 0;
    int32_t *map = map_classes(folder, &error), *label = sgrad_xcalloc((size_t)index->samples + 1, sizeof *label);
    dataset->field[1].data = label;
    dataset->count = folder->images.source.count = index->samples;
    for (int64_t i = 0; i < index->samples && !error; i++) {
        const struct sgrad__shard_sample *sample = &index->sample[i];
        const char *name = name_of(&folder->files, i);
        const int64_t size = sample->size == UINT32_MAX ? -1 : (int64_t)sample->size;
        label[i] = map[sample->label];
        dataset->identity = sgrad__fingerprint_add(dataset->identity, name, strlen(name));
        dataset->identity = sgrad__fingerprint_add(dataset->identity, &size, sizeof size);
    }
    free(map);
    return error;
}

/* ---- images -------------------------------------------------------------------------------------------------------- */

static int fetch(const void *of, int64_t i, struct sgrad__bytes *bytes) {
    const struct files *files = of;
    struct sgrad_map map;
    char *path = sgrad_format("%s/%s", files->path, name_of(files, i));
    const int error = sgrad_map_open(path, FILE_LIMIT, &map);
    if (error) free(path);
    else *bytes = (struct sgrad__bytes){ path, map.data, map.size };
    return error;
}

static void release(const void *of, int64_t i, struct sgrad__bytes *bytes) {
    (void)of, (void)i;
    sgrad_map_close(&(struct sgrad_map){ bytes->data, bytes->size });
    free(bytes->name);
}

/* Surveys the training images, for both splits, so that the splits have the same type. Closes the training images of a test
 * split, which are not needed any more. */
static int measure(struct sgrad_dataset *dataset) {
    struct folder *folder = dataset->state;
    struct sgrad__survey survey;
    sgrad__survey(&(struct sgrad__source){ folder->training, folder->training->index.samples, fetch, release }, &survey);
    folder->training = &folder->files;
    close_files(&folder->own_training);
    return sgrad__encoded_measure(&folder->images, dataset, &survey, true);
}

static int read_sample(const struct sgrad_dataset *dataset, struct sgrad_sample sample, void *const *data) {
    struct folder *folder = dataset->state;
    return sgrad__encoded_read(&folder->images, dataset, sample.index, data[0]);
}

static char *name_sample(const struct sgrad_dataset *dataset, int64_t i) {
    const struct folder *folder = dataset->state;
    return sgrad_format("%s/%s", folder->part.name, name_of(&folder->files, i));
}

static int decode_picture(const struct sgrad_dataset *dataset, int64_t i, struct sgrad_picture *picture) {
    return sgrad__encoded_picture(&((const struct folder *)dataset->state)->images, i, picture);
}

static uint64_t stamp_sample(const struct sgrad_dataset *dataset, int64_t i) {
    const struct folder *folder = dataset->state;
    char *name = name_sample(dataset, i), *path = sgrad_format("%s/%s", folder->files.path, name_of(&folder->files, i));
    struct stat status = { 0 };
    if (stat(path, &status)) status.st_size = -1;
    const int64_t number[] = { status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec };
    const uint64_t stamp = sgrad__sample_stamp(name, number, sizeof number / sizeof *number);
    free(name);
    free(path);
    return stamp;
}

/* ---- the reader ---------------------------------------------------------------------------------------------------- */

/* Returns true if the folder PART exists in ROOT. */
static bool has_part(const void *root, const char *part) {
    char *path = sgrad_format("%s/%s", (const char *)root, part);
    const bool has = sgrad__is_folder(path);
    free(path);
    return has;
}

/* Opens the folders of the split and of the training split. SGRAD_EIO: it is missing. */
static int find_part(struct sgrad_dataset *dataset, const char *root, const struct sgrad_dataset_options *options) {
    struct folder *folder = dataset->state;
    const char *part;
    folder->part = sgrad__part_choose(dataset->split == SGRAD_TEST, options, has_part, root);
    part = folder->part.name;
    folder->files.path = sgrad_format("%s/%s", root, part);
    if (!sgrad__is_folder(folder->files.path))
        return sgrad_log_error(SGRAD_EIO, "data set folder:%s: has no folder %s; " SGRAD__FOLDER_WANTED "%s", root, part,
                               !strcmp(part, "val") ? ", or hold out training images with --split 0.1" : "");
    if (folder->part.has_train && strcmp(part, "train")) {
        folder->training = &folder->own_training;
        folder->own_training.path = sgrad_format("%s/train", root);
        SGRAD_TRY(sgrad__folder_open(folder->own_training.path, &folder->own_training.index));
    }
    SGRAD_TRY(sgrad__folder_open(folder->files.path, &folder->files.index));
    return strcmp(part, "train") ? 0 : check_images(&folder->files);
}

/* Sets the names of the classes. */
static void take_classes(struct sgrad_dataset *dataset) {
    struct folder *folder = dataset->state;
    const struct sgrad__shard *index = &folder->training->index;
    dataset->classes = folder->classes = index->classes;
    folder->class_name = sgrad_xcalloc((size_t)folder->classes, sizeof *folder->class_name);
    for (int c = 0; c < folder->classes; c++) folder->class_name[c] = sgrad__utf8_of(sgrad__folder_class(index, c));
    dataset->class_name = (const char *const *)folder->class_name;
}

static int open_split(struct sgrad_dataset *dataset, const char *root, const struct sgrad_dataset_options *options) {
    struct folder *folder = dataset->state;
    const char *path;
    SGRAD_TRY(sgrad__folder_check("folder", root, SGRAD__FOLDER_WANTED));
    SGRAD_TRY(find_part(dataset, root, options));
    SGRAD_TRY(take_images(dataset));
    take_classes(dataset);
    path = folder->files.path;
    char *where = sgrad_format("folder: %s", path);
    if (strcmp(folder->part.name, "train") && dataset->count)
        sgrad__warn_of_absent(where, dataset->class_name, dataset->classes, dataset->field[1].data, dataset->count);
    free(where);
    sgrad__index_others(&folder->files.index, &folder->beside);
    dataset->others = folder->others = sgrad_walk_others(&folder->beside);
    if (dataset->count && folder->part.holds_out && !options->whole) return sgrad__split_hold_out(dataset, path, options);
    return dataset->count ? 0 : sgrad__folder_no_images(path, " in its folders");
}

static int open_folder(struct sgrad_dataset *dataset, const char *argument, const struct sgrad_dataset_options *options) {
    struct folder *folder = dataset->state = sgrad_xcalloc(1, sizeof *folder);
    char *root = NULL;
    folder->training = &folder->files;
    folder->images.source = (struct sgrad__source){ .of = &folder->files, .fetch = fetch, .release = release };
    int error = sgrad__encoded_open(&folder->images, dataset, argument, options, &root);
    if (!error) error = open_split(dataset, root, options);
    free(root);
    return error;
}

static void close_folder(struct sgrad_dataset *dataset) {
    struct folder *folder = dataset->state;
    for (int c = 0; c < folder->classes; c++) free(folder->class_name[c]);
    free(folder->class_name);
    sgrad__encoded_close(&folder->images);
    close_files(&folder->files);
    close_files(&folder->own_training);
    sgrad_walk_free(&folder->beside);
    free(folder->others);
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
    .measures = 100000,
};
