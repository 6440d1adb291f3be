/* layer.c: the layer that a task computes, its cost, and the vector functions for this processor. */
#include "config.h"
#include "codelets/cpu/layer.h"
#include "codelets/cpu/isa.h"
#include "codelets/ops/conv2d.h"
#include "codelets/ops/conv3d.h"
#include "codelets/ops/conv_transpose.h"

#include <assert.h>

const int sgrad__operand_of[SGRAD__PASSES][SGRAD__PARTS] = {
    [SGRAD__FORWARD] = { [SGRAD__OF_X] = 0, [SGRAD__OF_WEIGHT] = 1, [SGRAD__OF_BIAS] = 2, [SGRAD__OF_Y] = 3 },
    [SGRAD__BACKWARD_DATA] = { [SGRAD__OF_X] = 2, [SGRAD__OF_WEIGHT] = 1, [SGRAD__OF_BIAS] = -1, [SGRAD__OF_Y] = 0 },
    [SGRAD__BACKWARD_WEIGHT] = { [SGRAD__OF_X] = 0, [SGRAD__OF_WEIGHT] = 2, [SGRAD__OF_BIAS] = 3, [SGRAD__OF_Y] = 1 },
};

static void copy_dims(int32_t to[5], const struct sgrad_view *from) {
    for (int i = 0; i < from->shape.rank; i++) to[i] = (int32_t)from->shape.dim[i];
}

/* Merges all dimensions except the last into one, the rows. */
static void copy_rows(int32_t to[5], const struct sgrad_view *from) {
    to[1] = (int32_t)from->shape.dim[from->shape.rank - 1];
    to[0] = (int32_t)(sgrad_shape_count(&from->shape) / to[1]);
}

/* Merges N and D, so that slices are images; of a filter, drops D, which is 1. */
static void copy_slices(int32_t to[5], const struct sgrad_view *from) {
    const int64_t *dim = from->shape.dim;
    const bool deep = from->shape.rank > 4;
    for (int i = 0; i < 4; i++) to[i] = (int32_t)dim[deep && i ? i + 1 : i];
    if (deep) to[0] = (int32_t)(dim[0] * dim[1]);
}

/* The attributes of all operations with filters start with the same members. */
#define BEGINS_AS_CONV2D(op, member)                                                                             \
    static_assert(offsetof(struct sgrad_##op, member) == offsetof(struct sgrad_conv2d, member), "as codelets.def says")
BEGINS_AS_CONV2D(conv3d, stride);
BEGINS_AS_CONV2D(conv3d, groups);
BEGINS_AS_CONV2D(conv_transpose, stride);
BEGINS_AS_CONV2D(conv_transpose, groups);

struct sgrad__layer sgrad__layer_of(enum sgrad__pass pass, const struct sgrad_args *args) {
    const int *operand = sgrad__operand_of[pass];
    const struct sgrad_view *view = args->view, *x = &view[operand[SGRAD__OF_X]], *y = &view[operand[SGRAD__OF_Y]];
    const struct sgrad_view *weight = &view[operand[SGRAD__OF_WEIGHT]];
    const struct sgrad_shape *w = &weight->shape;
    const bool product = w->rank == 2;
    const bool slices =
        !product && x->shape.rank == 5 && (w->rank == 4 || (w->dim[1] == 1 && x->shape.dim[1] == y->shape.dim[1]));
    struct sgrad__layer l = { .pass = pass, .rank = slices ? 4 : w->rank, .dtype = view[0].dtype, .stride = 1, .dilation = 1,
                              .groups = 1 };
    void (*copy)(int32_t to[5], const struct sgrad_view *from) = slices ? copy_slices : copy_dims;
    if (product) copy = copy_rows;
    copy(l.x, x);
    copy(l.y, y);
    if (slices && w->rank == 5) copy_slices(l.w, weight);
    else copy_dims(l.w, weight);
    l.bias = operand[SGRAD__OF_BIAS] >= 0 && view[operand[SGRAD__OF_BIAS]].shape.rank >= 0;
    l.accumulate = args->accumulate != 0;
    l.deterministic = args->deterministic;
    l.packed = args->packing;
    if (!product) {
        const struct sgrad_conv2d *attrs = args->attrs;
        l.stride = attrs->stride, l.dilation = attrs->dilation, l.padding = attrs->padding, l.groups = attrs->groups;
    }
    return l;
}

/* Counts a multiplication and an addition for each output and each weight that reaches it, in every pass. */
double sgrad__layer_flops(const struct sgrad__layer *layer) {
    double flops = 2;
    for (int i = 0; i < layer->rank - 1; i++) flops *= layer->y[i];
    for (int i = 0; i < layer->rank; i++) flops *= layer->w[i];
    return flops;
}

size_t sgrad__layer_bytes(const struct sgrad__layer *layer, enum sgrad__side part) {
    const bool is_image = part == SGRAD__OF_X || part == SGRAD__OF_Y;
    const int32_t *dim = layer->w;
    if (is_image) dim = part == SGRAD__OF_X ? layer->x : layer->y;
    const int rank =
        part == SGRAD__OF_BIAS ? layer->bias : layer->rank; /* the length of a bias is the weight's first dimension */
    if (!rank) return 0;
    size_t bytes = sgrad_dtype_size(is_image ? (enum sgrad_dtype)layer->dtype : SGRAD_F32);
    for (int i = 0; i < rank; i++) bytes *= (size_t)dim[i];
    return bytes;
}

const struct sgrad__level *sgrad__level(void) {
#if SGRAD_LEVELS
    if (sgrad_isa() >= SGRAD_AVX512) return &sgrad__level_avx512;
    return sgrad_isa() >= SGRAD_AVX2 ? &sgrad__level_avx2 : NULL;
#else
    return &sgrad__level_avx2;      /* compiled for the baseline */
#endif
}
