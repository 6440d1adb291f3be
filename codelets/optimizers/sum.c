/* sum.c: the sum of up to eight tensors, in one pass over memory and in one fixed tree:
 *
 *     ((0+1)+(2+3)) + ((4+5)+(6+7))        without 3, 6 and 7:  ((0+1)+2) + (4+5)
 *
 * Absent inputs are left out of the tree. On CPUs this is done by adding -0: x + -0 has the same bits as x, for every x. */
#include "config.h"
#include "codelets/kernels.h"

void sgrad__sum_cuda(const struct sgrad_args *a);

/* Operands: inputs (any shape), some of them absent, output (same shape). Adds SIZE elements of type F32 or BF16, in chunks that
 * stay in the first-level cache. A sum of BF16 is computed in F32 and rounded once. */
SGRAD_ALWAYS_INLINE void sum_rows(enum sgrad_dtype type, const void *const *in, void *out, int64_t size) {
    float zeros[SGRAD_ROW], x_room[SGRAD_SUM_INPUTS][SGRAD_ROW], y_room[SGRAD_ROW];
    const float *x[SGRAD_SUM_INPUTS];
    for (int j = 0; j < SGRAD_ROW; j++) zeros[j] = -0.0f;
    for (int64_t i = 0, piece; (piece = sgrad_chunk(i, size)); i += piece) {
        for (int k = 0; k < SGRAD_SUM_INPUTS; k++) x[k] = in[k] ? sgrad_row(type, in[k], i, piece, x_room[k]) : zeros;
        float *y = sgrad_row_out(type, out, i, y_room);
        for (int64_t j = 0; j < piece; j++)
            y[j] = ((x[0][j] + x[1][j]) + (x[2][j] + x[3][j])) + ((x[4][j] + x[5][j]) + (x[6][j] + x[7][j]));
        sgrad_row_done(type, out, i, piece, y);
    }
}

SGRAD_ALWAYS_INLINE void sum_f64(const void *const *in, double *out, int64_t size) {
    double zeros[SGRAD_ROW];
    const double *x[SGRAD_SUM_INPUTS];
    for (int j = 0; j < SGRAD_ROW; j++) zeros[j] = -0.0;
    for (int64_t i = 0, piece; (piece = sgrad_chunk(i, size)); i += piece) {
        for (int k = 0; k < SGRAD_SUM_INPUTS; k++) x[k] = in[k] ? (const double *)in[k] + i : zeros;
        for (int64_t j = 0; j < piece; j++)
            out[i + j] = ((x[0][j] + x[1][j]) + (x[2][j] + x[3][j])) + ((x[4][j] + x[5][j]) + (x[6][j] + x[7][j]));
    }
}

SGRAD_VECTOR(sum)(const struct sgrad_args *args) {
    const struct sgrad_view *view = &args->view[SGRAD_SUM_INPUTS];
    const size_t element = sgrad_dtype_size(view->dtype);
    const void *in[SGRAD_SUM_INPUTS];
    for (int k = 0; k < SGRAD_SUM_INPUTS; k++)
        in[k] = args->data[k] ? (const char *)args->data[k] + (size_t)sgrad_sum_first(args, k) * element : NULL;
    void *out = args->data[SGRAD_SUM_INPUTS];
    const int64_t size = sgrad_shape_count(&view->shape);
    if (view->dtype == SGRAD_F64) sum_f64(in, out, size);
    else if (view->dtype == SGRAD_BF16) sum_rows(SGRAD_BF16, in, out, size);
    else sum_rows(SGRAD_F32, in, out, size);
}

static int inputs(const struct sgrad_args *args) {
    int count = 0;
    for (int i = 0; i < SGRAD_SUM_INPUTS; i++) count += args->view[i].shape.rank >= 0;
    return count;
}

static double flops(const struct sgrad_args *args) {
    return (inputs(args) - 1) * (double)sgrad_shape_count(&args->view[SGRAD_SUM_INPUTS].shape);
}

static double bytes(const struct sgrad_args *args) {
    return (inputs(args) + 1) * (double)sgrad_view_bytes(&args->view[SGRAD_SUM_INPUTS]);
}

const struct sgrad_kernel sgrad_sum_kernel = {
    .name = "sum",
    .kind = &sgrad_reduction_kind,
    .cpu = sum,
    .cuda = SGRAD_ON_CUDA(sgrad__sum_cuda),
    .batched = true,
    .flops = flops,
    .bytes = bytes,
};
