/* 04-data.c: looking at a data set.
 *
 *     04-data                      prints the first 2 of the digits that come with Stargrad
 *     04-data cifar10:DIR 3        prints the first 3 images of another data set; stargrad list datasets prints the kinds
 *
 * A sample is a list of fields: here an image's pixels and its label. To add a kind of data set, write one file,
 * datasets/NAME.c, that ends with a record, struct sgrad_reader (open, read, close), and add a line to datasets/datasets.def.
 *
 * Next: 05-own-optimizer.c. docs/develop/add-a-dataset.md adds a reader. */
#include "datasets/datasets.h"

#include <stdlib.h>

/* Returns one of ten characters for the brightness of the pixel (h,w), the mean over its channels. */
static char shade(const struct sgrad_dataset *dataset, const uint8_t *pixels, int64_t h, int64_t w) {
    const int64_t width = dataset->field[0].shape.dim[1], channels = dataset->field[0].shape.dim[2];
    double sum = 0;
    for (int64_t c = 0; c < channels; c++) sum += pixels[(h * width + w) * channels + c];
    return " .:-=+*#%@"[(int)(9.99 * sum / ((double)channels * dataset->full_scale))];
}

static int show(const struct sgrad_dataset *dataset, int64_t index, uint8_t *pixels) {
    int32_t label;
    SGRAD_TRY(sgrad_dataset_read(dataset, &(struct sgrad_sample){ .index = index }, 1, (void *[]){ pixels, &label }));
    if (dataset->class_name) printf("sample %lld: %s\n", (long long)index, dataset->class_name[label]);
    else printf("sample %lld: class %d\n", (long long)index, label);
    for (int64_t h = 0; h < dataset->field[0].shape.dim[0]; h++) {
        for (int64_t w = 0; w < dataset->field[0].shape.dim[1]; w++) {
            char c = shade(dataset, pixels, h, w);
            putchar(c);
            putchar(c);     /* characters are taller than wide */
        }
        putchar('\n');
    }
    return 0;
}

static int look(const char *name, long count) {
    struct sgrad_dataset *train;
    double mean[SGRAD_MAX_CHANNELS], deviation[SGRAD_MAX_CHANNELS];
    char shape[SGRAD_SHAPE_TEXT];
    SGRAD_TRY(sgrad_dataset_open(name, SGRAD_TRAIN, NULL, &train));
    int error = sgrad_dataset_statistics(train, mean, deviation);
    if (!error) {
        printf("%s: %lld training samples, %d classes\n", name, (long long)train->count, train->classes);
        for (const struct sgrad_field *f = train->field; f->name; f++)
            printf("field %s: %s of %s\n", f->name, sgrad_shape_text(&f->shape, shape), sgrad_dtype_name(f->dtype));
        for (int c = 0; c < train->field[0].shape.dim[2]; c++)
            printf("channel %d: mean %.4f, standard deviation %.4f\n", c, mean[c], deviation[c]);
    }
    uint8_t *pixels = malloc(sgrad_field_bytes(&train->field[0]));
    for (int64_t i = 0; i < count && i < train->count && !error; i++) error = show(train, i, pixels);
    free(pixels);
    sgrad_dataset_close(train);
    return error;
}

int main(int argc, char **argv) {
    return look(argc > 1 ? argv[1] : "digits", argc > 2 ? atol(argv[2]) : 2) != 0;
}
