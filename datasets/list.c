/* list.c: every reader of data sets, as datasets.def lists them. */
#include "datasets/datasets.h"

#define SGRAD_READER(name) extern const struct sgrad_reader sgrad_##name##_reader;
#include "datasets/datasets.def"
#undef SGRAD_READER
const struct sgrad_reader *const sgrad_readers[] = {
#define SGRAD_READER(name) &sgrad_##name##_reader,
#include "datasets/datasets.def"
#undef SGRAD_READER
    NULL,
};
