/* list.c: tables of all readers of data sets and all augmentations, generated from datasets.def and augmentations.def. */
#include "datasets/datasets.h"

#define SGRAD_READER(name) extern const struct sgrad_reader sgrad_##name##_reader;
#include "datasets/datasets.def"
#undef SGRAD_READER
static const struct sgrad_reader *const built_in[] = {
#define SGRAD_READER(name) &sgrad_##name##_reader,
#include "datasets/datasets.def"
#undef SGRAD_READER
    NULL,
};
const struct sgrad_reader *const *sgrad_readers = built_in;

#define SGRAD_AUGMENTATION(name) extern const struct sgrad_augmentation sgrad_##name##_augmentation;
#include "datasets/augmentations.def"
#undef SGRAD_AUGMENTATION
static const struct sgrad_augmentation *const augmentations[] = {
#define SGRAD_AUGMENTATION(name) &sgrad_##name##_augmentation,
#include "datasets/augmentations.def"
#undef SGRAD_AUGMENTATION
    NULL,
};
const struct sgrad_augmentation *const *sgrad_augmentations = augmentations;
