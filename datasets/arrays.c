/* arrays.c: the reader of arrays in memory (struct sgrad_arrays), with the rules of the reader npy. Images stay in the caller's
 * array, and are read sample by sample:
 *
 *     x (N,H,W,C)    sample 0 | sample 1 | … | sample N-1      u1, in the caller's memory */
#include "config.h"
#include "datasets/datasets.h"
#include "datasets/formats.h"

#include <string.h>

static int open_arrays(struct sgrad_dataset *dataset, const char *argument, const struct sgrad_dataset_options *options) {
    (void)argument;
    if (!options->arrays)
        return sgrad_log_error(SGRAD_EINVAL, "arrays: the samples are missing: they were arrays in the memory of a program; give "
                                             "another data set with --data, or, in Python, data=(x, y)");
    SGRAD_TRY(sgrad__npy_open_arrays(dataset, options));
    if (dataset->field[0].data) return 0;
    const struct sgrad_array *x = &options->arrays->x[dataset->split];
    if (!x->data) x = &options->arrays->x[SGRAD_TRAIN];     /* the test samples are held out from the training samples */
    dataset->state = (void *)x->data;
    dataset->identity = sgrad__fingerprint_add(1, x->data, (size_t)x->dim[0] * sgrad_field_bytes(&dataset->field[0]));
    return 0;
}

static int read_pixels(const struct sgrad_dataset *dataset, struct sgrad_sample sample, void *const *data) {
    const size_t bytes = sgrad_field_bytes(&dataset->field[0]);
    memcpy(data[0], (const char *)dataset->state + (size_t)sample.index * bytes, bytes);
    return 0;
}

const struct sgrad_reader sgrad_arrays_reader = {
    .name = "arrays",
    .summary = "arrays in the memory of a program, as npy; in Python data=(x, y)",
    .open = open_arrays,
    .read = read_pixels,
};
