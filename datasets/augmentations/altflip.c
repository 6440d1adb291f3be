/* altflip.c: mirrors half of the samples left to right in even epochs, and the other half in odd epochs. In any two consecutive
 * epochs each sample is seen in both versions, whereas flip repeats the same version for half of all samples:
 *
 *     epoch      0    1    2    3
 *     sample a   a    mirror    a    mirror
 *     sample b   mirror    b    mirror    b */
#include "config.h"
#include "datasets/datasets.h"

static void move(const double *number, struct sgrad_chances *chances, int height, int width, struct sgrad_affine *map) {
    struct sgrad_chances first = *chances;
    (void)number, (void)height;
    first.epoch = 0;
    if ((sgrad_chance(&first) < 0.5) != (chances->epoch % 2 == 1)) map->x0 = width - 1, map->xx = -1;
}

const struct sgrad_augmentation sgrad_altflip_augmentation = {
    .name = "altflip",
    .summary = "horizontal flip in every other epoch: half of the samples in even epochs, the others in odd ones",
    .source = "K. Jordan, 94 % on CIFAR-10 in 3.29 seconds on a single GPU, arXiv:2404.00498, 2024, section 3.6",
    .move = move,
};
