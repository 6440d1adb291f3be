/* flip.c: mirrors left to right with probability 1/2. Uses the first block of a sample's random words, with crop. */
#include "config.h"
#include "datasets/datasets.h"
#include "runtime/philox.h"

static void move(const double *number, struct sgrad_chances *chances, int height, int width, struct sgrad_affine *map) {
    const struct sgrad_random r = sgrad_philox(chances->seed, SGRAD_STREAM_AUGMENT, chances->epoch, chances->sample, 0);
    (void)number, (void)height;
    if (r.word[2] >> 31) map->x0 = width - 1, map->xx = -1;
}

const struct sgrad_augmentation sgrad_flip_augmentation = {
    .name = "flip",
    .summary = "horizontal flip with probability 1/2; volumes: along every axis",
    .volumes = true,
    .move = move,
};
