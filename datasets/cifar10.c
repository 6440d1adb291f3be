/* cifar10.c: the reader of CIFAR-10, binary version (cs.toronto.edu/~kriz/cifar.html; Krizhevsky 2009).
 *
 * A file consists of records of 3,073 bytes. Each plane is stored row by row; in memory, channels are last:
 *
 *     file      label | 1,024 red | 1,024 green | 1,024 blue
 *     memory    R G B | R G B | R G B … */
#include "config.h"
#include "datasets/datasets.h"
#include "datasets/formats.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

enum { SIDE = 32, PLANE = SIDE * SIDE, PIXELS = 3 * PLANE, RECORD = 1 + PIXELS, CLASSES = 10 };
#define FILE_LIMIT ((size_t)1 << 31)
#define WANTED                                                                                                                   \
    "give cifar10:DIR, where DIR contains data_batch_1.bin to data_batch_5.bin and test_batch.bin of cifar-10-binary.tar.gz, "   \
    "or is the parent of their folder"

static const char *const classes[CLASSES] = { "airplane", "automobile", "bird",  "cat",  "deer",
                                              "dog",      "frog",       "horse", "ship", "truck" };
static const char *const train_files[] = { "data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                           "data_batch_4.bin", "data_batch_5.bin", NULL };
static const char *const test_files[] = { "test_batch.bin", NULL };

int sgrad__cifar10_parse(const char *name, const void *data, size_t size, uint8_t *pixels, int32_t *labels) {
    if (size == 0 || size % RECORD)
        return sgrad_log_error(SGRAD_EFORMAT,
                               "cifar10: %s: byte %zu: the file ends within a record, after %zu complete records of %d bytes",
                               name, size, size / RECORD, RECORD);
    const uint8_t *record = data;
    for (size_t i = 0; i < size / RECORD; i++, record += RECORD, pixels += PIXELS) {
        if (record[0] >= CLASSES)
            return sgrad_log_error(SGRAD_EFORMAT, "cifar10: %s: byte %zu: record %zu has label %d, but there are %d classes",
                                   name, i * RECORD, i, record[0], CLASSES);
        labels[i] = record[0];
        for (int j = 0; j < PLANE; j++)
            for (int c = 0; c < 3; c++) pixels[3 * j + c] = record[1 + c * PLANE + j];
    }
    return 0;
}

/* Appends the records of the file PATH to the data set. */
static int append(struct sgrad_dataset *dataset, const char *path, const struct sgrad_map *map) {
    const size_t before = (size_t)dataset->count, count = before + map->size / RECORD;
    int32_t *label = realloc((void *)dataset->field[1].data, (count + 1) * sizeof *label);
    if (label) dataset->field[1].data = label;
    uint8_t *pixels = realloc((void *)dataset->field[0].data, (count + 1) * PIXELS);
    if (pixels) dataset->field[0].data = pixels;
    if (!label || !pixels) return sgrad_log_error(SGRAD_ENOMEM, "cifar10: %s: no memory for %zu images", path, count);
    dataset->count = (int64_t)count;
    return sgrad__cifar10_parse(path, map->data, map->size, pixels + before * PIXELS, label + before);
}

static int open_file(struct sgrad_dataset *dataset, const char *folder, const char *file) {
    char *path = sgrad_format("%s/%s", folder, file);
    struct sgrad_map map;
    int error = access(path, F_OK) && errno == ENOENT
                    ? sgrad_log_error(SGRAD_EIO, "data set cifar10:%s: has no %s; " WANTED, folder, file)
                    : sgrad_map_open(path, FILE_LIMIT, &map);
    if (!error) {
        error = append(dataset, path, &map);
        sgrad_map_close(&map);
    }
    free(path);
    return error;
}

static int open_cifar10(struct sgrad_dataset *dataset, const char *argument, const struct sgrad_dataset_options *options) {
    (void)options;
    const char *const *file = dataset->split == SGRAD_TRAIN ? train_files : test_files;
    dataset->field[0] = (struct sgrad_field){ "pixels", SGRAD_U8, sgrad_shape(3, SIDE, SIDE, 3), NULL };
    dataset->field[1] = (struct sgrad_field){ "label", SGRAD_I32, { 0 }, NULL };
    dataset->classes = CLASSES;
    dataset->class_name = classes;
    dataset->full_scale = 255;
    SGRAD_TRY(sgrad__folder_check("cifar10", argument, WANTED));
    char *inner = sgrad_format("%s/cifar-10-batches-bin", argument); /* the folder in the publisher's archive */
    int error = 0;
    for (; *file && !error; file++) error = open_file(dataset, access(inner, F_OK) ? argument : inner, *file);
    free(inner);
    return error;
}

const struct sgrad_reader sgrad_cifar10_reader = {
    .name = "cifar10",
    .argument = "DIR",
    .summary = "CIFAR-10, binary version: data_batch_1..5.bin and test_batch.bin in DIR or DIR/cifar-10-batches-bin",
    .augment = "crop:4,flip", /* He et al., Deep residual learning for image recognition, 2015, section 4.2 */
    .open = open_cifar10,
};
