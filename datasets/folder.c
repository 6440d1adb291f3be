/* folder.c: a folder of JPEGs, PNGs and TIFFs, one folder a class, as torchvision's ImageFolder has it.
 *
 *     DIR/train/cat/1.jpg         class 0: cat, class 1: dog; classes and files in the order of their bytes
 *     DIR/train/dog/1.jpg
 *     DIR/val/cat/9.png           the test split; its classes are train's, where train is there
 *
 * Images have one size, or argument or options name the side of a square that each is scaled and cut to. They are decoded
 * when they are read; where all of them together fit in memory, once.
 *
 * Pixels are bytes; where the first training image of any class has more than 8 bits a channel, they are U16, 0 to 65535, of all.
 *
 * Most are photographs, whose classes neither a small shift nor a mirror changes: padded by an eighth, as CIFAR's 32 pixels by 4
 * (He et al. 2015), cropped and flipped (Krizhevsky et al. 2012 cut 224 of 256 pixels at random, and flip). Grey ones are mostly
 * not: scans, digits, letters; they are left as they are. Digits and letters, other signs in a mirror, may have colours: there
 * the user says --augment crop:1/8. */
#include "config.h"
#include "datasets/datasets.h"
#include "datasets/formats.h"

#include <dirent.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_LIMIT   ((size_t)1 << 28)
#define SIDE_LIMIT   8192
#define MEMORY_LIMIT ((size_t)2 << 30)
#define WANTED       "folder:DIR names a folder that holds train/CLASS/*.jpg, *.png or *.tif, and val/CLASS/ likewise"

enum { ABSENT, COMING, KEPT }; /* a decoded image in memory */

struct folder {
    char *path; /* DIR/train or DIR/val */
    char *trained; /* DIR/train, or where there is none DIR/val */
    int side;   /* of a square; 0: images are taken as they are */
    size_t memory; /* that decoded images may be kept in; 0: by the machine's */
    int classes;
    char **class_name;
    char **file;   /* CLASS/NAME of each sample, FILES of them */
    int64_t files;
    bool deep;     /* pixels are U16 */
    uint8_t *kept; /* (count,H,W,3), or NULL: too large */
    _Atomic unsigned char *state;
    _Atomic bool told_deep;
};

/* ---- what is there ------------------------------------------------------------------------------------------------ */

static int is_visible(const struct dirent *entry) { return entry->d_name[0] != '.'; }

static int is_image(const struct dirent *entry) {
    static const char *const endings[] = { ".jpg", ".jpeg", ".png", ".tif", ".tiff" };
    const char *dot = strrchr(entry->d_name, '.');
    bool is = false;
    for (size_t i = 0; dot && i < sizeof endings / sizeof *endings; i++) is |= !strcasecmp(dot, endings[i]);
    return is_visible(entry) && is;
}

static int by_name(const struct dirent **a, const struct dirent **b) { return strcmp((*a)->d_name, (*b)->d_name); }

static bool is_folder(const char *path) {
    struct stat status;
    return !stat(path, &status) && S_ISDIR(status.st_mode);
}

/* Names in a folder, in order; the caller frees each and the list. Negative: an error. */
static int list(const char *path, int (*wanted)(const struct dirent *), struct dirent ***entry) {
    int count = scandir(path, entry, wanted, by_name);
    return count >= 0 ? count : sgrad_fail(SGRAD_EIO, "folder: %s: %s", path, strerror(errno));
}

/* The folders in PATH are the classes. */
static int list_classes(const char *path, char ***name, int *classes) {
    struct dirent **entry;
    int entries = list(path, is_visible, &entry), found = 0;
    if (entries < 0) return entries;
    *name = sgrad_alloc((size_t)entries + 1, sizeof **name);
    for (int i = 0; i < entries; i++) {
        char *folder = sgrad_format("%s/%s", path, entry[i]->d_name);
        if (is_folder(folder)) (*name)[found++] = sgrad_format("%s", entry[i]->d_name);
        free(folder);
        free(entry[i]);
    }
    free(entry);
    *classes = found;
    return found ? 0 : sgrad_fail(SGRAD_EFORMAT, "folder: %s: has no folders, which would be the classes: " WANTED, path);
}

static void free_names(char **name, int64_t count) {
    for (int64_t i = 0; name && i < count; i++) free(name[i]);
    free(name);
}

/* A test class that was never trained would shift every label after it. */
static int check_classes(const struct folder *folder) {
    char **name = NULL;
    int classes = 0, known = 0;
    int error = list_classes(folder->path, &name, &classes);
    for (int i = 0; i < classes && !error; i++) {
        while (known < folder->classes && strcmp(folder->class_name[known], name[i]) < 0) known++;
        if (known == folder->classes || strcmp(folder->class_name[known], name[i]))
            error = sgrad_fail(SGRAD_EFORMAT, "folder: %s/%s: the training split has no such class", folder->path, name[i]);
    }
    free_names(name, classes);
    return error;
}

/* Adds a class's files to the data set. */
static int add_class(struct sgrad_dataset *dataset, int class) {
    struct folder *folder = dataset->state;
    const char *name = folder->class_name[class];
    char *path = sgrad_format("%s/%s", folder->path, name);
    struct dirent **entry = NULL;
    int entries = is_folder(path) || dataset->split == SGRAD_TRAIN ? list(path, is_image, &entry) : 0;
    const size_t before = (size_t)dataset->count, count = before + (size_t)(entries > 0 ? entries : 0);
    int32_t *label = realloc((void *)dataset->field[1].data, (count + 1) * sizeof *label);
    if (label) dataset->field[1].data = label;
    char **file = realloc(folder->file, (count + 1) * sizeof *file);
    if (file) folder->file = file;
    int error = entries < 0 ? entries : 0;
    if (!label || !file) error = sgrad_fail(SGRAD_ENOMEM, "folder: %s: no memory for its names", path);
    for (int i = 0; i < entries; i++) {
        struct stat status;
        char *image = sgrad_format("%s/%s", path, entry[i]->d_name);
        if (!error && stat(image, &status)) error = sgrad_fail(SGRAD_EIO, "folder: %s: %s", image, strerror(errno));
        if (!error) {
            const int64_t size = status.st_size;
            char *shown = file[before + (size_t)i] = sgrad_format("%s/%s", name, entry[i]->d_name);
            label[before + (size_t)i] = class;
            dataset->identity =
                sgrad__fingerprint_add(sgrad__fingerprint_add(dataset->identity, shown, strlen(shown)), &size, sizeof size);
            dataset->count = ++folder->files;
        }
        free(image);
        free(entry[i]);
    }
    if (!error && entries == 0 && dataset->split == SGRAD_TRAIN)
        error = sgrad_fail(SGRAD_EFORMAT, "folder: %s: has no .jpg, .jpeg, .png, .tif or .tiff", path);
    free(entry);
    free(path);
    return error;
}

/* ---- images -------------------------------------------------------------------------------------------------------- */

/* Parses sample I's file with one of the two functions below. */
static int with_file(const struct folder *folder, int64_t i,
                     int (*parse)(const char *, const struct sgrad_map *, struct sgrad__image *), struct sgrad__image *image) {
    char *path = sgrad_format("%s/%s", folder->path, folder->file[i]);
    struct sgrad_map map;
    int error = sgrad_map_open(path, FILE_LIMIT, &map);
    if (!error) {
        error = parse(path, &map, image);
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
    return sgrad_fail(SGRAD_EFORMAT, "folder: %s/%s: is %dx%d, others are %dx%d: folder:DIR,SIZE brings all to one size",
                      folder->path, folder->file[i], image->width, image->height, (int)dim[1], (int)dim[0]);
}

static int find_header(const struct sgrad_dataset *dataset, int64_t i, struct sgrad__image *image) {
    return with_file(dataset->state, sgrad__dataset_kept(dataset, i), read_header, image);
}

/* Without a size that was asked for, images have the first one's. Others are refused when they are read: not every rank opens
 * every file at every start. */
static int find_size(struct sgrad_dataset *dataset) {
    const struct folder *folder = dataset->state;
    struct sgrad__image image = { .height = folder->side, .width = folder->side };
    if (!folder->side) SGRAD_TRY(find_header(dataset, 0, &image));
    dataset->field[0].shape = sgrad_shape(3, image.height, image.width, 3);
    return 0;
}

/* Both splits ask the training images, so that they agree, and whether they can be read is another question. */
static void find_depth(struct sgrad_dataset *dataset) {
    struct folder *folder = dataset->state;
    for (int k = 0; k < folder->classes && !folder->deep; k++) {
        char *path = sgrad_format("%s/%s", folder->trained, folder->class_name[k]);
        struct dirent **entry = NULL;
        const int entries = is_folder(path) ? scandir(path, &entry, is_image, by_name) : 0;
        char *first = sgrad_format("%s/%s", path, entries > 0 ? entry[0]->d_name : "");
        folder->deep = entries > 0 && sgrad__image_is_deep(first);
        for (int i = 0; i < entries; i++) free(entry[i]);
        free(entry);
        free(first);
        free(path);
    }
    dataset->field[0].dtype = folder->deep ? SGRAD_U16 : SGRAD_U8;
    dataset->full_scale = folder->deep ? 65535 : 255;
}

/* Images are grey where the first of each class is: not every file is opened at every start. */
static int find_colour(struct sgrad_dataset *dataset) {
    const int32_t *label = dataset->field[1].data;
    struct sgrad__image image = { .grey = true };
    for (int64_t i = 0; i < dataset->count && image.grey; i++)
        if (i == 0 || label[i] != label[i - 1]) SGRAD_TRY(find_header(dataset, i, &image));
    if (image.grey) dataset->augment = NULL;
    return 0;
}

/* Says it of the first that is found. */
static void tell_deep(struct folder *folder, int64_t i) {
    if (!atomic_exchange(&folder->told_deep, true))
        sgrad_warn("folder: %s/%s: has more than 8 bits a channel, of which the upper 8 are read, as of others like it: the "
                   "first of each training class, which decide, have not", folder->path, folder->file[i]);
}

static int decode_sample(const struct sgrad_dataset *dataset, int64_t i, uint8_t *pixels) {
    struct folder *folder = dataset->state;
    const struct sgrad_field *field = &dataset->field[0];
    struct sgrad__image image;
    int error = 0;
    SGRAD_TRY(with_file(folder, i, folder->deep ? decode_deep : decode, &image));
    if (image.deep && !folder->deep) tell_deep(folder, i);
    if (folder->side)
        sgrad__image_fit(&image, folder->side, pixels);
    else if (image.height == field->shape.dim[0] && image.width == field->shape.dim[1])
        memcpy(pixels, folder->deep ? (const void *)image.rgb16 : image.rgb, sgrad_field_bytes(field));
    else
        error = odd_size(dataset, i, &image);
    free(image.rgb);
    free(image.rgb16);
    return error;
}

/* Two threads may decode the same image; one of them keeps it. */
static int read_sample(const struct sgrad_dataset *dataset, int64_t i, void *const *data) {
    const struct folder *folder = dataset->state;
    const size_t size = sgrad_field_bytes(&dataset->field[0]);
    uint8_t *pixels = data[0];
    if (!folder->kept) return decode_sample(dataset, i, pixels);
    uint8_t *kept = folder->kept + (size_t)i * size;
    if (atomic_load_explicit(&folder->state[i], memory_order_acquire) == KEPT) {
        memcpy(pixels, kept, size);
        return 0;
    }
    SGRAD_TRY(decode_sample(dataset, i, pixels));
    unsigned char absent = ABSENT;
    if (atomic_compare_exchange_strong(&folder->state[i], &absent, COMING)) {
        memcpy(kept, pixels, size);
        atomic_store_explicit(&folder->state[i], KEPT, memory_order_release);
    }
    return 0;
}

/* ---- images one by one ---------------------------------------------------------------------------------------------- */

static char *name_sample(const struct sgrad_dataset *dataset, int64_t i) {
    const struct folder *folder = dataset->state;
    return sgrad_format("%s/%s", dataset->split == SGRAD_TRAIN ? "train" : "val", folder->file[i]);
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

/* "DIR" or "DIR,SIZE"; a comma that no number follows belongs to the folder's name. */
static int parse_argument(const char *argument, struct folder *folder, char **root) {
    const char *comma = strrchr(argument, ',');
    const bool sized = comma && comma[1] && comma[1 + strspn(comma + 1, "0123456789")] == 0;
    const long side = sized ? strtol(comma + 1, NULL, 10) : folder->side;
    if (side < sized || side > SIDE_LIMIT)
        return sgrad_fail(SGRAD_EINVAL, "data set folder:%s: the size must be 1 to %d", argument, SIDE_LIMIT);
    folder->side = (int)side;
    *root = sgrad_format("%.*s", (int)(sized ? (size_t)(comma - argument) : strlen(argument)), argument);
    return 0;
}

/* Room for all images, or none. */
static void make_room(struct sgrad_dataset *dataset) {
    struct folder *folder = dataset->state;
    const size_t machine = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE) / 4;
    const size_t limit = folder->memory ? folder->memory : machine < MEMORY_LIMIT ? machine : MEMORY_LIMIT;
    const size_t size = sgrad_field_bytes(&dataset->field[0]), files = (size_t)folder->files;
    if (size > limit / files) return;
    folder->kept = malloc(files * size);
    folder->state = sgrad_alloc(files, sizeof *folder->state);
}

static int measure(struct sgrad_dataset *dataset) {
    find_depth(dataset);
    SGRAD_TRY(find_size(dataset));
    if (dataset->split == SGRAD_TRAIN) SGRAD_TRY(find_colour(dataset));
    make_room(dataset);
    return 0;
}

static int open_split(struct sgrad_dataset *dataset, const char *root) {
    struct folder *folder = dataset->state;
    const bool train = dataset->split == SGRAD_TRAIN;
    SGRAD_TRY(sgrad__folder_check("folder", root, WANTED));
    folder->path = sgrad_format("%s/%s", root, train ? "train" : "val");
    if (!is_folder(folder->path))
        return sgrad_fail(SGRAD_EIO, "data set folder:%s: has no folder %s: " WANTED, root, train ? "train" : "val");
    folder->trained = sgrad_format("%s/train", root);
    if (!is_folder(folder->trained)) strcpy(folder->trained + strlen(root), "/val");
    int error = list_classes(folder->trained, &folder->class_name, &folder->classes);
    if (!error && !train) error = check_classes(folder);
    for (int k = 0; k < folder->classes && !error; k++) error = add_class(dataset, k);
    SGRAD_TRY(error);
    if (dataset->count == 0)
        return sgrad_fail(SGRAD_EFORMAT, "folder: %s: has no .jpg, .jpeg, .png, .tif or .tiff in its folders", folder->path);
    return 0;
}

static int open_folder(struct sgrad_dataset *dataset, const char *argument, const struct sgrad_dataset_options *options) {
    struct folder *folder = dataset->state = sgrad_alloc(1, sizeof *folder);
    char *root = NULL;
    folder->side = options->size;
    folder->memory = options->memory;
    dataset->field[0] = (struct sgrad_field){ .name = "pixels", .dtype = SGRAD_U8, .shape = sgrad_shape(3, 1, 1, 3) };
    dataset->field[1] = (struct sgrad_field){ .name = "label", .dtype = SGRAD_I32 };
    SGRAD_TRY(parse_argument(argument, folder, &root));
    int error = open_split(dataset, root);
    free(root);
    SGRAD_TRY(error);
    dataset->classes = folder->classes;
    dataset->class_name = (const char *const *)folder->class_name;
    dataset->full_scale = 255;
    return 0;
}

static void close_folder(struct sgrad_dataset *dataset) {
    struct folder *folder = dataset->state;
    free_names(folder->class_name, folder->classes);
    free_names(folder->file, folder->files);
    free(folder->path);
    free(folder->trained);
    free(folder->kept);
    free((void *)folder->state);
    free(folder);
}

const struct sgrad_reader sgrad_folder_reader = {
    .name = "folder",
    .argument = "DIR[,SIZE]",
    .summary = "JPEGs, PNGs and TIFFs in DIR/train/CLASS/ and DIR/val/CLASS/, scaled and cut to SIZE x SIZE; grey ones are not "
               "augmented; letters and digits want no flip",
    .augment = "crop:1/8,flip",
    .open = open_folder,
    .measure = measure,
    .read = read_sample,
    .close = close_folder,
    .sample_name = name_sample,
    .picture = decode_picture,
    .stamp = stamp_sample,
};
