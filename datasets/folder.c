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
#include "datasets/encoded.h"
#include "datasets/folder.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FILE_LIMIT ((size_t)1 << 28)

/* Image files in a folder. */
struct files {
    const char *path;
    char **name;        /* CLASS/NAME of each file */
};

struct folder {
    struct sgrad__encoded images;
    struct files files; /* of the split */
    struct sgrad__part part;
    char *path; /* DIR/train, DIR/val or DIR/test */
    char *trained; /* DIR/train, or path if it does not exist */
    int classes;
    char **class_name, **shown;     /* names of the folders; the same as UTF-8 */
    struct sgrad_walk beside;       /* files that are not images */
    char *others;       /* string of the data set */
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

/* Makes the images the samples of the data set, which then owns them. */
static void take_images(struct sgrad_dataset *dataset, struct sgrad__images *images) {
    struct folder *folder = dataset->state;
    for (int64_t i = 0; i < images->count; i++) {
        const char *name = images->name[i];
        dataset->identity = sgrad__fingerprint_add(sgrad__fingerprint_add(dataset->identity, name, strlen(name)),
                                                   &images->size[i], sizeof *images->size);
    }
    dataset->count = folder->images.source.count = images->count;
    dataset->field[1].data = images->label;
    folder->files.name = images->name;
    free(images->size);
    *images = (struct sgrad__images){ 0 };
}

/* ---- images -------------------------------------------------------------------------------------------------------- */

static int fetch(const void *of, int64_t i, struct sgrad__bytes *bytes) {
    const struct files *files = of;
    struct sgrad_map map;
    char *path = sgrad_format("%s/%s", files->path, files->name[i]);
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

/* Surveys the training images, for both splits, so that the splits have the same type. */
static int look_at_some(const struct folder *folder, struct sgrad__survey *survey) {
    struct sgrad__images images = { 0 };
    struct sgrad_walk beside = { 0 };
    if (!strcmp(folder->trained, folder->path)) {
        sgrad__survey(&folder->images.source, survey);
        return 0;
    }
    int error = sgrad__folder_images(folder->trained, folder->class_name, folder->classes, false, &images, &beside);
    const struct files files = { folder->trained, images.name };
    if (!error) sgrad__survey(&(struct sgrad__source){ &files, images.count, fetch, release }, survey);
    sgrad__images_free(&images);
    sgrad_walk_free(&beside);
    return error;
}

static int measure(struct sgrad_dataset *dataset) {
    struct folder *folder = dataset->state;
    struct sgrad__survey survey;
    SGRAD_TRY(look_at_some(folder, &survey));
    return sgrad__encoded_measure(&folder->images, dataset, &survey, true);
}

static int read_sample(const struct sgrad_dataset *dataset, struct sgrad_sample sample, void *const *data) {
    struct folder *folder = dataset->state;
    return sgrad__encoded_read(&folder->images, dataset, sample.index, data[0]);
}

static char *name_sample(const struct sgrad_dataset *dataset, int64_t i) {
    const struct folder *folder = dataset->state;
    return sgrad_format("%s/%s", folder->part.name, folder->files.name[i]);
}

static int decode_picture(const struct sgrad_dataset *dataset, int64_t i, struct sgrad_picture *picture) {
    return sgrad__encoded_picture(&((const struct folder *)dataset->state)->images, i, picture);
}

static uint64_t stamp_sample(const struct sgrad_dataset *dataset, int64_t i) {
    const struct folder *folder = dataset->state;
    char *name = name_sample(dataset, i), *path = sgrad_format("%s/%s", folder->path, folder->files.name[i]);
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

/* Sets the folder of the split. SGRAD_EIO: it is missing. */
static int find_part(struct sgrad_dataset *dataset, const char *root, const struct sgrad_dataset_options *options) {
    struct folder *folder = dataset->state;
    folder->part = sgrad__part_choose(dataset->split == SGRAD_TEST, options, has_part, root);
    folder->path = sgrad_format("%s/%s", root, folder->part.name);
    folder->trained = folder->part.has_train ? sgrad_format("%s/train", root) : sgrad_format("%s", folder->path);
    folder->files.path = folder->path;
    if (sgrad__is_folder(folder->path)) return 0;
    return sgrad_log_error(SGRAD_EIO, "data set folder:%s: has no folder %s; " SGRAD__FOLDER_WANTED "%s", root, folder->part.name,
                           !strcmp(folder->part.name, "val") ? ", or hold out training images with --split 0.1" : "");
}

/* Sets the names of the classes. */
static void take_classes(struct sgrad_dataset *dataset) {
    struct folder *folder = dataset->state;
    dataset->classes = folder->classes;
    folder->shown = sgrad_xcalloc((size_t)folder->classes, sizeof *folder->shown);
    for (int c = 0; c < folder->classes; c++) folder->shown[c] = sgrad__utf8_of(folder->class_name[c]);
    dataset->class_name = (const char *const *)folder->shown;
}

static int open_split(struct sgrad_dataset *dataset, const char *root, const struct sgrad_dataset_options *options) {
    struct folder *folder = dataset->state;
    SGRAD_TRY(sgrad__folder_check("folder", root, SGRAD__FOLDER_WANTED));
    SGRAD_TRY(find_part(dataset, root, options));
    const bool train = !strcmp(folder->part.name, "train");
    SGRAD_TRY(sgrad__folder_classes(folder->trained, &folder->class_name, &folder->classes));
    if (!train) SGRAD_TRY(check_classes(folder));
    struct sgrad__images images = { 0 };
    int error = sgrad__folder_images(folder->path, folder->class_name, folder->classes, train, &images, &folder->beside);
    char *where = sgrad_format("folder: %s", folder->path);
    if (!error && !train && images.count)
        sgrad__warn_of_absent(where, (const char *const *)folder->class_name, folder->classes, images.label, images.count);
    free(where);
    if (!error) take_images(dataset, &images);
    sgrad__images_free(&images);
    if (!error) error = sgrad__folder_others(folder->path, &folder->beside);
    SGRAD_TRY(error);
    dataset->others = folder->others = sgrad_walk_others(&folder->beside);
    take_classes(dataset);
    if (dataset->count && folder->part.holds_out && !options->whole)
        return sgrad__split_hold_out(dataset, folder->path, options);
    return dataset->count ? 0 : sgrad__folder_no_images(folder->path, " in its folders");
}

static int open_folder(struct sgrad_dataset *dataset, const char *argument, const struct sgrad_dataset_options *options) {
    struct folder *folder = dataset->state = sgrad_xcalloc(1, sizeof *folder);
    char *root = NULL;
    folder->images.source = (struct sgrad__source){ .of = &folder->files, .fetch = fetch, .release = release };
    int error = sgrad__encoded_open(&folder->images, dataset, argument, options, &root);
    if (!error) error = open_split(dataset, root, options);
    free(root);
    return error;
}

static void close_folder(struct sgrad_dataset *dataset) {
    struct folder *folder = dataset->state;
    sgrad__free_names(folder->class_name, folder->classes);
    sgrad__free_names(folder->shown, folder->classes);
    sgrad__free_names(folder->files.name, folder->images.source.count);
    sgrad__encoded_close(&folder->images);
    sgrad_walk_free(&folder->beside);
    free(folder->others);
    free(folder->path);
    free(folder->trained);
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
