/* synthetic.c: the reader of random images, for tests and measurements; a network can learn them.
 *
 *     pattern of the class        + noise of each sample            = image: the mean of both, per pixel
 *     4x4 cells per channel,        uniform in 0…255, drawn for
 *     uniform in 0…255              each pixel
 *
 * All numbers depend only on (seed, class) or (seed, split, sample, pixel), so each sample can be computed independently. Sample
 * i is of class i mod classes. The test split has a tenth as many samples, at least one of each class. */
#include "config.h"
#include "datasets/datasets.h"
#include "datasets/formats.h"
#include "runtime/philox.h"

#include <stdlib.h>
#include <string.h>

enum { CELLS = 4, DRAW = 16 }; /* cells along each side of a pattern; bytes per call of Philox */
#define SIDE_LIMIT    8192
#define CLASSES_LIMIT 65536
#define COUNT_LIMIT   1000000000
#define MEMORY_LIMIT  ((size_t)512 << 20) /* smaller sets are computed when they are opened */

struct synthetic {
    uint64_t seed;
};

/* Fills BYTES with random bytes. TIME is 0 for patterns, 1 and 2 for the noise of the splits. */
static void draw(uint64_t seed, uint32_t time, int64_t index, uint8_t *bytes, size_t size) {
    for (size_t i = 0; i < size; i += DRAW) {
        const struct sgrad_random random = sgrad_philox(seed, SGRAD_STREAM_DATA, time, (uint64_t)index, (uint32_t)(i / DRAW));
        memcpy(bytes + i, random.word, size - i < DRAW ? size - i : DRAW);
    }
}

static int make_sample(const struct sgrad_dataset *dataset, struct sgrad_sample sample, void *const *data) {
    const uint64_t seed = ((const struct synthetic *)dataset->state)->seed;
    const struct sgrad_field *field = dataset->field;
    const int height = (int)field->shape.dim[0], width = (int)field->shape.dim[1], channels = (int)field->shape.dim[2];
    uint8_t *pixels = data[0];
    uint8_t pattern[CELLS][CELLS][SGRAD_MAX_CHANNELS];
    draw(seed, 0, sample.index % dataset->classes, &pattern[0][0][0], sizeof pattern);
    draw(seed, 1 + (uint32_t)dataset->split, sample.index, pixels, sgrad_field_bytes(field));
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++, pixels += channels) {
            const uint8_t *cell = pattern[y * CELLS / height][x * CELLS / width];
            for (int c = 0; c < channels; c++) pixels[c] = (uint8_t)((pixels[c] + cell[c]) / 2);
        }
    return 0;
}

/* Parses an integer from 1 to LIMIT, followed by the character AFTER. Sets *TEXT to the address after that. */
static bool take_number(const char **text, char after, int64_t limit, int64_t *number) {
    char *end;
    if (**text < '0' || **text > '9') return false;
    *number = strtoll(*text, &end, 10);
    if (*number < 1 || *number > limit || *end != after) return false;
    *text = end + 1;
    return true;
}

static int parse_argument(const char *argument, struct sgrad_dataset *dataset) {
    const char *text = argument;
    int64_t height, width, channels, classes, count;
    if (!take_number(&text, 'x', SIDE_LIMIT, &height) || !take_number(&text, 'x', SIDE_LIMIT, &width) ||
        !take_number(&text, ',', SGRAD_MAX_CHANNELS, &channels) || !take_number(&text, ',', CLASSES_LIMIT, &classes) ||
        !take_number(&text, 0, COUNT_LIMIT, &count))
        return sgrad_log_error(SGRAD_EINVAL,
                               "data set synthetic:%s: must be HxWxC,CLASSES,COUNT with sides of at most %d, and at most %d "
                               "channels, %d classes and %d samples",
                               argument, SIDE_LIMIT, SGRAD_MAX_CHANNELS, CLASSES_LIMIT, COUNT_LIMIT);
    dataset->field[0] = (struct sgrad_field){ "pixels", SGRAD_U8, { 3, { height, width, channels } }, NULL };
    dataset->classes = (int)classes;
    if (dataset->split == SGRAD_TEST) count = count / 10 > classes ? count / 10 : classes;
    dataset->count = count;
    return 0;
}

static int open_synthetic(struct sgrad_dataset *dataset, const char *argument, const struct sgrad_dataset_options *options) {
    struct synthetic *synthetic = dataset->state = sgrad_xcalloc(1, sizeof *synthetic);
    SGRAD_TRY(parse_argument(argument, dataset));
    synthetic->seed = options->seed;
    dataset->full_scale = 255;
    dataset->identity = sgrad__fingerprint_add((uint64_t)dataset->split, &options->seed, sizeof options->seed);
    int32_t *label = sgrad_xcalloc((size_t)dataset->count, sizeof *label);
    dataset->field[1] = (struct sgrad_field){ "label", SGRAD_I32, { 0 }, label };
    for (int64_t i = 0; i < dataset->count; i++) label[i] = (int32_t)(i % dataset->classes);

    const size_t size = sgrad_field_bytes(&dataset->field[0]);
    if (size > MEMORY_LIMIT / (size_t)dataset->count) return 0;
    uint8_t *pixels = sgrad_xcalloc((size_t)dataset->count, size);
    for (int64_t i = 0; i < dataset->count; i++)
        make_sample(dataset, (struct sgrad_sample){ .index = i }, (void *[]){ pixels + (size_t)i * size });
    dataset->field[0].data = pixels;
    return 0;
}

static void close_synthetic(struct sgrad_dataset *dataset) { free(dataset->state); }

const struct sgrad_reader sgrad_synthetic_reader = {
    .name = "synthetic",
    .argument = "HxWxC,CLASSES,COUNT",
    .summary = "seeded images that a network can learn: COUNT images of H x W pixels and C channels, in CLASSES classes",
    .open = open_synthetic,
    .read = make_sample,
    .close = close_synthetic,
    .computes = true,
};
