/* array.c: a data set made of unlabelled samples in the caller's memory, with the fields of the data set that a network was
 * trained on. Numeric features are normalised as in training; targets are zeros. */
#include "datasets/datasets.h"
#include "datasets/formats.h"

#include <stdlib.h>
#include <string.h>

static const struct sgrad_reader reader = { .name = "array", .summary = "samples in memory, without labels" };

/* Returns true if samples of shape IS are accepted for WANTED. IS may omit a last dimension of 1 (grey images), and the first
 * dimension of a volume of one slice. */
static bool fits(const struct sgrad_shape *is, const struct sgrad_shape *wanted) {
    for (int first = 0; first < 2; first++)
        for (int last = 0; last < 2; last++) {
            const int rank = wanted->rank - first - last;
            bool same = is->rank == rank && (!first || (wanted->rank == 4 && wanted->dim[0] == 1)) &&
                        (!last || wanted->dim[wanted->rank - 1] == 1);
            for (int i = 0; i < rank && same; i++) same = is->dim[i] == wanted->dim[i + first];
            if (same) return true;
        }
    return false;
}

struct sgrad_dataset *sgrad_dataset_describe(const struct sgrad_shape *image, float full_scale,
                                             const struct sgrad_origin *origin) {
    struct sgrad_dataset *d = sgrad_xcalloc(1, sizeof *d);
    *d = (struct sgrad_dataset){ .reader = &reader, .split = SGRAD_TEST, .classes = origin->classes, .full_scale = full_scale };
    d->origin = sgrad__origin_copy(origin);
    const struct sgrad_shape row = sgrad_shape(1, (int)origin->features);
    if (image->rank) d->field[0] = (struct sgrad_field){ "pixels", full_scale > 255 ? SGRAD_U16 : SGRAD_U8, *image, NULL };
    else d->field[0] = (struct sgrad_field){ "features", SGRAD_F32, origin->shape.rank ? origin->shape : row, NULL };
    if (origin->classes) d->field[1] = (struct sgrad_field){ "label", SGRAD_I32, { 0 }, NULL };
    else d->field[1] = (struct sgrad_field){ "target", SGRAD_F32, sgrad_shape(1, (int)origin->targets), NULL };
    return d;
}

int sgrad_dataset_of_array(const struct sgrad_dataset *like, const void *data, enum sgrad_dtype dtype, int64_t count,
                           const struct sgrad_shape *shape, struct sgrad_dataset **dataset) {
    const struct sgrad_field *from = &like->field[0], *target = sgrad_dataset_target(like);
    char is[SGRAD_SHAPE_TEXT], wanted[SGRAD_SHAPE_TEXT];
    if (count < 1) return sgrad_log_error(SGRAD_EINVAL, "array: has no samples");
    if (dtype != from->dtype || !fits(shape, &from->shape) || target != from + 1)
        return sgrad_log_error(SGRAD_ESHAPE, "array: samples of %s %s do not fit: the network requires %s of %s %s",
                               sgrad_dtype_name(dtype), sgrad_shape_text(shape, is), from->name, sgrad_dtype_name(from->dtype),
                               sgrad_shape_text(&from->shape, wanted));
    struct sgrad_dataset *d = *dataset = sgrad_xcalloc(1, sizeof *d);
    *d = (struct sgrad_dataset){ .reader = &reader, .split = SGRAD_TEST, .count = count, .classes = like->classes,
                                 .full_scale = like->full_scale, .field = { *from, *target } };
    const size_t bytes = sgrad_field_bytes(from);
    void *samples = sgrad_xcalloc((size_t)count, bytes);
    memcpy(samples, data, (size_t)count * bytes);
    if (like->origin && like->origin->mean && from->dtype == SGRAD_F32)
        for (int64_t i = 0, all = count * like->origin->features; i < all; i++)
            ((float *)samples)[i] = (float)sgrad__feature(like->origin, i, (double)((float *)samples)[i]);
    if (like->origin) d->origin = sgrad__origin_copy(like->origin);
    d->field[0].data = samples;
    d->field[1].data = sgrad_xcalloc((size_t)count, sgrad_field_bytes(target));
    return 0;
}
