/* position_embedding.c: adds to each row of a sample the row of a table for its position: y = x + weight[t], with x, y (N,T,C),
 * weight (context,C) or, with .batched, (1,context,C), and T at most the context. With .cached, for networks with a key-value
 * cache, the input is one row per step; its position is the step's number minus 1. If rows are split over ranks along .axis, the
 * input is those of one rank. */
#include "config.h"
#include "codelets/kernels.h"
#include "codelets/ops/position_embedding.h"
#include "codelets/ops/zigzag.h"

void sgrad__position_embedding_forward_cuda(const struct sgrad_args *args);
void sgrad__position_embedding_backward_cuda(const struct sgrad_args *args);

static int infer(struct sgrad_signature *signature, void *attributes) {
    struct sgrad_position_embedding *attrs = attributes;
    const struct sgrad_shape *x = &signature->x[0].shape;
    char text[SGRAD_SHAPE_TEXT];
    int ranks;
    sgrad__place_on(signature->mesh, attrs->axis, 0, &ranks);
    if (x->rank != 3)
        return sgrad_log_error(SGRAD_ESHAPE, "%s: position_embedding requires samples of rows (N,T,C), not %s", signature->layer,
                               sgrad_shape_text(x, text));
    if (attrs->context < 1 || x->dim[1] * ranks > attrs->context)
        return sgrad_log_error(SGRAD_ESHAPE,
                               "%s: samples have %lld positions, but the network has context=%d; give shorter samples, or a "
                               "larger context",
                               signature->layer, (long long)x->dim[1] * ranks, attrs->context);
    if (attrs->deviation == 0) attrs->deviation = 1;
    signature->y.shape = *x;
    signature->p[0] = (struct sgrad_parameter){
        .name = "weight",
        .init = SGRAD_NORMAL,
        .deviation = attrs->deviation,
        .shape = { 2, { attrs->context, x->dim[2] } },
    };
    if (attrs->batched) signature->p[0].shape = (struct sgrad_shape){ 3, { 1, attrs->context, x->dim[2] } };
    return 0;
}

static void set_rank(const struct sgrad_signature *signature, int rank, void *attributes) {
    struct sgrad_position_embedding *attrs = attributes;
    attrs->rows = sgrad__zigzag_of(signature->mesh, attrs->axis, rank, signature->x[0].shape.dim[1]);
}

/* x (N,T,C), weight (context,C), y (N,T,C) */
SGRAD_VECTOR(forward)(const struct sgrad_args *args) {
    const struct sgrad_position_embedding *attrs = args->attrs;
    const enum sgrad_dtype type = args->view[0].dtype;
    const int64_t *dim = args->view[0].shape.dim, rows = dim[0] * dim[1], features = dim[2];
    const int64_t first = attrs->cached ? (int64_t)args->step->number - 1 : 0;
    float x_room[SGRAD_ROW], y_room[SGRAD_ROW];
    for (int64_t r = 0; r < rows; r++) {
        const float *weight =
            (const float *)args->data[1] + (first + sgrad_zigzag_position(&attrs->rows, r % dim[1])) * features;
        for (int64_t i = 0, n; (n = sgrad_chunk(i, features)); i += n) {
            const float *x = sgrad_row(type, args->data[0], r * features + i, n, x_room);
            float *y = sgrad_row_out(type, args->data[2], r * features + i, y_room);
            for (int64_t j = 0; j < n; j++) y[j] = x[j] + weight[i + j];
            sgrad_row_done(type, args->data[2], r * features + i, n, y);
        }
    }
}

/* dy (N,T,C), dx (N,T,C) or absent, dweight (context,C) */
SGRAD_VECTOR(backward)(const struct sgrad_args *args) {
    const struct sgrad_position_embedding *attrs = args->attrs;
    const enum sgrad_dtype type = args->view[0].dtype;
    const int64_t *dim = args->view[0].shape.dim, rows = dim[0] * dim[1], features = dim[2];
    float room[SGRAD_ROW];
    if (args->data[1]) sgrad_row_move(type, args->data[0], 0, args->data[1], 0, rows * features, sgrad_adds(args, 1));
    if (!sgrad_adds(args, 2)) memset(args->data[2], 0, sgrad_view_bytes(&args->view[2]));
    for (int64_t r = 0; r < rows; r++) {
        float *dweight = (float *)args->data[2] + sgrad_zigzag_position(&attrs->rows, r % dim[1]) * features;
        for (int64_t i = 0, n; (n = sgrad_chunk(i, features)); i += n) {
            const float *dy = sgrad_row(type, args->data[0], r * features + i, n, room);
            for (int64_t j = 0; j < n; j++) dweight[i + j] += dy[j];
        }
    }
}

static void onnx(const struct sgrad_signature *signature, const void *attrs, FILE *to) {
    const struct sgrad_position_embedding *p = attrs;
    const int64_t rows = signature->x[0].shape.dim[1];
    if (p->cached) return;
    if (rows < p->context)
        fprintf(to, "first = Constant <value = int64[1] {0}> ()\nend = Constant <value = int64[1] {%lld}> ()\n"
                    "axis = Constant <value = int64[1] {%d}> ()\ntable = Slice (weight, first, end, axis)\n",
                (long long)rows, p->batched);
    fprintf(to, "y = Add (x, %s)", rows < p->context ? "table" : "weight");
}

const struct sgrad_op sgrad_position_embedding_op = {
    .name = "position_embedding",
    .summary = "sum of the features of each position and the table row of that position",
    .inputs = 1,
    .attrs_size = sizeof(struct sgrad_position_embedding),
    .infer = infer,
    .set_rank = set_rank,
    .onnx = onnx,
    .forward = { { { .name = "position_embedding forward", .kind = &sgrad_forward_kind, .cpu = forward,
                     .cuda = SGRAD_ON_CUDA(sgrad__position_embedding_forward_cuda) },
                   { SGRAD_IN(X, 0), SGRAD_IN(P, 0), SGRAD_OUT(Y, 0) } } },
    .backward = { { { .name = "position_embedding backward", .kind = &sgrad_backward_kind, .cpu = backward,
                     .cuda = SGRAD_ON_CUDA(sgrad__position_embedding_backward_cuda), .accumulates = true },
                    { SGRAD_IN(DY, 0), SGRAD_OUT(DX, 0), SGRAD_OUT(DP, 0) } } },
    .tests = {
        { "one sample of 5, context 5", { { 3, { 1, 5, 7 } } }, &(struct sgrad_position_embedding){ .context = 5 } },
        { "3 samples of 4, context 9", { { 3, { 3, 4, 16 } } }, &(struct sgrad_position_embedding){ .context = 9 } },
        { "longer than a row", { { 3, { 2, 3, 515 } } }, &(struct sgrad_position_embedding){ .context = 4 } },
        { "batched", { { 3, { 2, 3, 5 } } }, &(struct sgrad_position_embedding){ .context = 3, .batched = true } },
    },
};
