/* identity.c: y = x, as a separate value with the same content, for an operation that has one value as several inputs. */
#include "config.h"
#include "codelets/kernels.h"
#include "codelets/ops/identity.h"

void sgrad__identity_forward_cuda(const struct sgrad_args *a);
void sgrad__identity_backward_cuda(const struct sgrad_args *a);

/* x, y of any shape; in backward dy, dx */
SGRAD_VECTOR(forward)(const struct sgrad_args *args) {
    sgrad_row_move(args->view[0].dtype, args->data[0], 0, args->data[1], 0, sgrad_shape_count(&args->view[0].shape),
                   sgrad_adds(args, 1));
}

static void onnx(const struct sgrad_signature *signature, const void *attrs, FILE *to) {
    (void)signature, (void)attrs;
    fputs("y = Identity (x)", to);
}

const struct sgrad_op sgrad_identity_op = {
    .name = "identity",
    .summary = "y = x, stored as a separate value",
    .inputs = 1,
    .attrs_size = sizeof(struct sgrad_identity),
    .infer = sgrad_infer_same,
    .onnx = onnx,
    .forward = { { { .name = "identity forward", .kind = &sgrad_forward_kind, .cpu = forward,
                     .cuda = SGRAD_ON_CUDA(sgrad__identity_forward_cuda), .flops = sgrad_no_flops },
                   { SGRAD_IN(X, 0), SGRAD_OUT(Y, 0) } } },
    .backward = { { { .name = "identity backward", .kind = &sgrad_backward_kind, .cpu = forward,
                      .cuda = SGRAD_ON_CUDA(sgrad__identity_backward_cuda) },
                    { SGRAD_IN(DY, 0), SGRAD_OUT(DX, 0) } } },
    .tests = {
        { "7 samples of 5", .x = { { 2, { 7, 5 } } } },
        { "longer than a row", .x = { { 2, { 3, 577 } } } },
    },
};
