/* patches.c: the positions of overlapping patches, and the weights that blend them. */
#include "config.h"
#include "volumes/patches.h"

#include <math.h>
#include <stdlib.h>

/* Returns true if voxel I of the patch at FROM is within RIM voxels of a face that is not at an end of the volume. Its weight is
 * 0; the neighbouring patch contains it, too. */
static bool is_rim(const struct sgrad_axis_patches *patches, int64_t from, int64_t i, int64_t rim) {
    return (from > 0 && i < rim) || (from + patches->patch < patches->dim && i >= patches->patch - rim);
}

static void open_axis(int64_t dim, int64_t patch, int64_t overlap, struct sgrad_axis_patches *patches) {
    const int64_t stride = patch - overlap, left = dim - patch, rim = overlap / 4;
    *patches =
        (struct sgrad_axis_patches){ .dim = dim, .patch = patch, .count = left > 0 ? (left + stride - 1) / stride + 1 : 1 };
    patches->from = sgrad_xcalloc((size_t)patches->count, sizeof *patches->from);
    patches->weight = sgrad_xcalloc((size_t)(patches->count * patch), sizeof *patches->weight);
    double *sum = sgrad_xcalloc((size_t)dim, sizeof *sum), *bump = sgrad_xcalloc((size_t)patch, sizeof *bump);
    for (int64_t i = 0; i < patch; i++) {
        const double x = 2 * (double)(i + 1) / (double)(patch + 1) - 1;
        bump[i] = exp(-1 / (1 - x * x));
    }
    for (int64_t p = 0; p < patches->count; p++) {
        patches->from[p] = sgrad_clamp(p * stride, 0, left);
        for (int64_t i = 0; i < patch && patches->from[p] + i < dim; i++)
            sum[patches->from[p] + i] += is_rim(patches, patches->from[p], i, rim) ? 0 : bump[i];
    }
    for (int64_t p = 0; p < patches->count; p++)
        for (int64_t i = 0; i < patch && patches->from[p] + i < dim; i++)
            patches->weight[p * patch + i] =
                is_rim(patches, patches->from[p], i, rim) ? 0 : (float)(bump[i] / sum[patches->from[p] + i]);
    free(sum);
    free(bump);
}

int sgrad_patches_open(const int64_t dim[3], const int64_t patch[3], const int64_t overlap[3], struct sgrad_patches_of *patches) {
    for (int d = 0; d < 3; d++)
        if (patch[d] < 1 || overlap[d] < 0 || overlap[d] >= patch[d])
            return sgrad_log_error(
                SGRAD_EINVAL,
                "a patch of %lldx%lldx%lld with an overlap of %lldx%lldx%lld is invalid; the overlap must be less than the patch",
                (long long)patch[0], (long long)patch[1], (long long)patch[2], (long long)overlap[0], (long long)overlap[1],
                (long long)overlap[2]);
    for (int d = 0; d < 3; d++) open_axis(dim[d], patch[d], overlap[d], &patches->axis[d]);
    return 0;
}

void sgrad_patches_close(struct sgrad_patches_of *patches) {
    for (int d = 0; d < 3; d++) {
        free(patches->axis[d].from);
        free(patches->axis[d].weight);
        patches->axis[d] = (struct sgrad_axis_patches){ 0 };
    }
}

void sgrad_patches_meet(const struct sgrad_axis_patches *patches, int64_t from, int64_t end, int64_t *first, int64_t *count) {
    *first = *count = 0;
    for (int64_t p = 0; p < patches->count; p++) {
        if (patches->from[p] >= end || patches->from[p] + patches->patch <= from) continue;
        if (!*count) *first = p;
        ++*count;
    }
}
