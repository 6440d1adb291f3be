/* spiral.c: a plug-in with a kind of data set: points of two interleaved spirals, in two classes.
 *
 *     cc -O2 -shared -fPIC spiral.c -o libspiral.so $(stargrad config --cflags) -lm
 *     stargrad train --plugin ./libspiral.so --model mlp --data spiral:4000 */
#include "graphs/graphs.h"

#include <math.h>
#include <stdlib.h>

/* ARGUMENT: the number of training points. The test set has a quarter of this number. */
static int open_spiral(struct sgrad_dataset *dataset, const char *argument, const struct sgrad_dataset_options *options) {
    char *end;
    const long points = strtol(argument, &end, 10);
    if (*end || points < 4 || points > 100000000)
        return sgrad_log_error(SGRAD_EINVAL, "data set spiral:%s: takes a number of points from 4 to 100000000", argument);
    dataset->count = dataset->split == SGRAD_TRAIN ? points : points / 4;
    dataset->classes = 2;
    float *place = sgrad_xcalloc((size_t)dataset->count, 2 * sizeof *place);
    int32_t *label = sgrad_xcalloc((size_t)dataset->count, sizeof *label);
    dataset->field[0] = (struct sgrad_field){ "features", SGRAD_F32, sgrad_shape(1, 2), place };
    dataset->field[1] = (struct sgrad_field){ "label", SGRAD_I32, { 0 }, label };
    for (int64_t i = 0; i < dataset->count; i++) {
        const struct sgrad_random r = sgrad_philox(options->seed, 0, dataset->split, (uint64_t)i, 0);
        const double along = sqrt(sgrad_uniform(r.word[0])), noise = 0.05 * (sgrad_uniform(r.word[1]) - 0.5);
        label[i] = (int32_t)(i % 2);
        const double angle = 9 * along + 3.14159265358979 * label[i];
        place[2 * i] = (float)((along + noise) * cos(angle));
        place[2 * i + 1] = (float)((along + noise) * sin(angle));
    }
    return 0;
}

static const struct sgrad_reader spiral = {
    .name = "spiral",
    .argument = "POINTS",
    .summary = "points of two interleaved spirals, in two classes",
    .open = open_spiral,
};

SGRAD_PLUGIN(.readers = (const struct sgrad_reader *const[]){ &spiral, NULL });
