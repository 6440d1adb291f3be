/* rows.c: an image's pixels, or the features that a convolution computed from its patches, as rows: (N,H,W,C) to (N,H·W,C). The
 * numbers and their order do not change; y is a view of x. */
#include "config.h"
#include "codelets/kernels.h"
#include "codelets/ops/rows.h"

static int infer(struct sgrad_signature *signature, void *attrs) {
    const struct sgrad_shape *x = &signature->x[0].shape;
    char text[SGRAD_SHAPE_TEXT];
    (void)attrs;
    if (x->rank < 3)
        return sgrad_log_error(SGRAD_ESHAPE, "%s: rows requires images (N,H,W,C), not %s", signature->layer,
                               sgrad_shape_text(x, text));
    const int64_t channels = x->dim[x->rank - 1];
    signature->view_of_input = true;
    signature->y.shape = (struct sgrad_shape){ 3, { x->dim[0], sgrad_shape_count(x) / x->dim[0] / channels, channels } };
    return 0;
}

static void onnx(const struct sgrad_signature *signature, const void *attrs, FILE *to) {
    (void)attrs;
    if (signature->x[0].shape.rank == 3) fputs("y = Identity (x)", to);
    else fprintf(to, "shape = Constant <value = int64[3] {0, %lld, -1}> ()\ncolumns = Reshape (x, shape)\n"
                     "y = Transpose <perm = [0, 2, 1]> (columns)", (long long)signature->y.shape.dim[2]);
}

const struct sgrad_op sgrad_rows_op = {
    .name = "rows",
    .summary = "pixels of images to rows, (N,H,W,C) to (N,H·W,C)",
    .inputs = 1,
    .attrs_size = sizeof(struct sgrad_rows),
    .infer = infer,
    .onnx = onnx,
    .tests = { { "3 images of 4x5x2", .x = { { 4, { 3, 4, 5, 2 } } } } },
};
