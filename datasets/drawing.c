/* drawing.c: random numbers for augmentations, and queries of a list of augmentations. */
#include "config.h"
#include "datasets/datasets.h"
#include "runtime/philox.h"

#include <string.h>

double sgrad_chance(struct sgrad_chances *chances) {
    const struct sgrad_random r =
        sgrad_philox(chances->seed, SGRAD_STREAM_AUGMENT, chances->epoch, chances->sample, chances->block + chances->next / 4);
    return sgrad_uniform(r.word[chances->next++ % 4]);
}

const double *sgrad_augmentations_find(const struct sgrad_augmentations *augmentations, const char *name) {
    for (int i = 0; i < augmentations->count; i++)
        if (!strcmp(augmentations->item[i].is->name, name)) return augmentations->item[i].number;
    return NULL;
}

bool sgrad_augmentations_mix(const struct sgrad_augmentations *augmentations) {
    for (int i = 0; i < augmentations->count; i++)
        if (augmentations->item[i].is->mix) return true;
    return false;
}
