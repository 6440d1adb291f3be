/* digits.c: the reader of handwritten digits that are built into the program, so that training is possible without a download. */
#include "config.h"
#include "datasets/datasets.h"
#include "datasets/digits_data.h"

enum { SIDE = 8, PIXELS = SIDE * SIDE };

static int open_digits(struct sgrad_dataset *dataset, const char *argument, const struct sgrad_dataset_options *options) {
    (void)argument, (void)options;
    const bool train = dataset->split == SGRAD_TRAIN;
    const char(*row)[1 + PIXELS + 1] = digits_data + (train ? 0 : DIGITS_TRAIN);
    dataset->count = train ? DIGITS_TRAIN : DIGITS_TEST;
    dataset->classes = 10;
    dataset->full_scale = 16;
    int32_t *label = sgrad_xcalloc((size_t)dataset->count, sizeof *label);
    uint8_t *pixels = sgrad_xcalloc((size_t)dataset->count, PIXELS);
    dataset->field[0] = (struct sgrad_field){ "pixels", SGRAD_U8, sgrad_shape(3, SIDE, SIDE, 1), pixels };
    dataset->field[1] = (struct sgrad_field){ "label", SGRAD_I32, { 0 }, label };
    for (int64_t i = 0; i < dataset->count; i++) {
        label[i] = row[i][0] - '0';
        for (int j = 0; j < PIXELS; j++) pixels[i * PIXELS + j] = (uint8_t)(row[i][1 + j] - 'a');
    }
    return 0;
}

const struct sgrad_reader sgrad_digits_reader = {
    .name = "digits",
    .summary = "1,797 handwritten digits of 8x8 pixels, built in (UCI, Alpaydin and Kaynak)",
    .open = open_digits,
};
