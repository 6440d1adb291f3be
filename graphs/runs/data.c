/* data.c: a run's data: opened, normalised, augmented, shared out to the ranks. */
#include "graphs/runs/train.h"

#include <stdlib.h>
#include <string.h>

static void set_input(struct sgrad__run *r) {
    r->image.full_scale = r->train->full_scale;
    for (int c = 0; c < r->train->channels; c++) {
        r->image.mean[c] = (float)r->mean[c];
        r->image.deviation[c] = (float)r->deviation[c];
    }
}

int sgrad__run_open_data(struct sgrad__run *r) {
    const struct sgrad_train_options *o = &r->options;
    struct sgrad_dataset_options how = { .seed = o->seed, .size = o->image_size }, once = how;
    once.memory = o->partition ? 1 : 0;     /* an image that is decoded for the placement is not kept twice */
    SGRAD_TRY(sgrad_dataset_open(o->data, SGRAD_TRAIN, &once, &r->train));
    SGRAD_TRY(sgrad_dataset_open(o->data, SGRAD_TEST, &how, &r->test));
    if (r->train->height != r->test->height || r->train->width != r->test->width || r->train->channels != r->test->channels)
        return sgrad_fail(SGRAD_ESHAPE, "%s: training images are %dx%dx%d, test images %dx%dx%d", o->data, r->train->height,
                          r->train->width, r->train->channels, r->test->height, r->test->width, r->test->channels);
    if (r->test->classes > r->train->classes)
        return sgrad_fail(SGRAD_ESHAPE, "%s: the test part has %d classes, the training part %d", o->data, r->test->classes,
                          r->train->classes);
    if (o->partition) return 0;     /* statistics wait until there are ranks to share the reading */
    SGRAD_TRY(sgrad_dataset_statistics(r->train, r->mean, r->deviation));
    set_input(r);
    return 0;
}

/* Every rank reads a part. Sums go over the ranks as halves, since whole numbers of 32 bits are exact in doubles. */
int sgrad__run_open_placement(struct sgrad__run *r) {
    const int rank = r->context->rank, ranks = r->context->ranks;
    const int64_t count = r->train->count, from = count * rank / ranks;
    struct sgrad_dataset_sums sums;
    enum { WORDS = sizeof sums / sizeof(uint64_t) };
    uint64_t *word = (uint64_t *)&sums;
    double half[WORDS][2];
    SGRAD_TRY(sgrad_dataset_sums(r->train, from, count * (rank + 1) / ranks - from, &sums));
    for (int i = 0; i < WORDS; i++) half[i][0] = (double)(uint32_t)word[i], half[i][1] = (double)(word[i] >> 32);
    sgrad_ranks_sum(half[0], 2 * WORDS);
    for (int i = 0; i < WORDS; i++) word[i] = (uint64_t)half[i][0] + ((uint64_t)half[i][1] << 32);
    sgrad_dataset_moments(r->train, &sums, r->mean, r->deviation);
    set_input(r);
    r->placement = sgrad__placement_create(&(struct sgrad__placement_options){
        .dataset = r->train, .order = &r->order, .batch = r->options.batch, .steps = r->steps, .rank = rank, .ranks = ranks,
        .shuffle = !r->options.no_shuffle });
    return 0;
}

/* A damaged test image is found before the first step, not after the first epoch. */
int sgrad__run_check_test_images(struct sgrad__run *r) {
    double mean[SGRAD_DATASET_CHANNELS], deviation[SGRAD_DATASET_CHANNELS];
    return r->test->pixels ? 0 : sgrad_dataset_statistics(r->test, mean, deviation);
}

/* The standard recipe for small colour images. */
void sgrad__run_add_augmentation(struct sgrad__run *r) {
    if (r->options.no_augment || r->train->channels != 3 || r->train->height > 64) return;
    r->image.pad = 4;
    r->image.flip = true;
}

/* Images are normalised as the run that made the weights did it, where its config.json lies beside them. */
int sgrad__run_input_of_weights(struct sgrad__run *r) {
    char *folder = sgrad_format("%s", r->options.init), *slash = strrchr(folder, '/');
    bool found;
    if (slash) *slash = 0;
    int error = sgrad__config_input(slash ? folder : ".", r->train->channels, r->mean, r->deviation, &found);
    free(folder);
    set_input(r);
    return error;
}
