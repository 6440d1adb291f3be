/* convert.c: converts an F32 field to activations: y = x in the run's compute type. */
#include "config.h"
#include "codelets/kernels.h"
#include "codelets/ops/convert.h"

void sgrad__convert_cuda(const struct sgrad_args *a);

/* x F32, y of any shape */
SGRAD_VECTOR(forward)(const struct sgrad_args *args) {
    const enum sgrad_dtype type = args->view[1].dtype;
    const float *x = args->data[0];
    float y_room[SGRAD_ROW];
    for (int64_t i = 0, n, count = sgrad_shape_count(&args->view[0].shape); (n = sgrad_chunk(i, count)); i += n) {
        float *y = sgrad_row_out(type, args->data[1], i, y_room);
        for (int64_t j = 0; j < n; j++) y[j] = x[i + j];
        sgrad_row_done(type, args->data[1], i, n, y);
    }
}

const struct sgrad_kernel sgrad_round_kernel = {
    .name = "round",
    .kind = &sgrad_update_kind,
    .cpu = forward,
    .cuda = SGRAD_ON_CUDA(sgrad__convert_cuda),
    .batched = true,
    .flops = sgrad_no_flops,
};

static void onnx(const struct sgrad_signature *signature, const void *attrs, FILE *to) {
    (void)signature, (void)attrs;
    fputs("y = Identity (x)", to);
}

const struct sgrad_op sgrad_convert_op = {
    .name = "convert",
    .summary = "conversion of the numbers of a data set (f32) to activations (f32 or bf16)",
    .inputs = 1,
    .attrs_size = sizeof(struct sgrad_convert),
    .no_gradient = 1u << 0,
    .input_dtype = { SGRAD_F32 },
    .infer = sgrad_infer_same,
    .onnx = onnx,
    .forward = { { { .name = "convert", .kind = &sgrad_input_kind, .cpu = forward,
                     .cuda = SGRAD_ON_CUDA(sgrad__convert_cuda), .flops = sgrad_no_flops },
                   .use = { SGRAD_IN(X, 0), SGRAD_OUT(Y, 0) } } },
    .tests = {
        { "7 samples of 5", .x = { { 2, { 7, 5 } } } },
        { "longer than a row", .x = { { 2, { 3, 577 } } } },
    },
};
