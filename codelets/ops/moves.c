/* moves.c: shape rules of the operations that move values between ranks, and the tasks that split a value into shards and
 * concatenate them. */
#include "config.h"
#include "codelets/ops/moves.h"
#include "codelets/ops/all_gather.h"
#include "codelets/ops/take.h"

#include <string.h>

int sgrad__infer_move(struct sgrad_signature *signature, const char *axis) {
    const struct sgrad_axis *over = sgrad_mesh_axis(signature->mesh, axis);
    signature->y.shape = signature->x[0].shape;
    if (!*axis)
        return sgrad_log_error(SGRAD_EINVAL, "%s: .axis is empty; set it to the name of an axis of the mesh", signature->layer);
    if (over && !over->ranks)
        return sgrad_log_error(SGRAD_EINVAL, "%s: the mesh must have a number of ranks for axis %s; give --mesh %s=N",
                               signature->layer, axis, axis);
    if (!over || over->ranks == 1) {
        signature->view_of_input = true;
        return 0;
    }
    signature->axis = over;
    return 0;
}

int sgrad__infer_rooted(struct sgrad_signature *signature, const char *axis, int root) {
    SGRAD_TRY(sgrad__infer_move(signature, axis));
    const int ranks = signature->axis ? signature->axis->ranks : 1;
    if (root < 0 || root >= ranks)
        return sgrad_log_error(SGRAD_EINVAL, "%s: root %d is not one of the %d %s along axis %s, counted from 0",
                               signature->layer, root, ranks, sgrad_plural(ranks, "rank", "ranks"), axis);
    signature->root = root;
    return 0;
}

static int infer_pieces(struct sgrad_signature *signature, const char *axis, int *dimension, int sections, bool gather) {
    char text[SGRAD_SHAPE_TEXT];
    const struct sgrad_shape *x = &signature->x[0].shape;
    SGRAD_TRY(sgrad__infer_move(signature, axis));
    if (!*dimension) *dimension = x->rank - 1;
    if (*dimension < 1 || *dimension >= x->rank)
        return sgrad_log_error(
            SGRAD_EINVAL,
            "%s: cannot be split along dimension %d of %s; the dimension must exist and must not be 0, which counts the samples",
            signature->layer, *dimension, sgrad_shape_text(x, text));
    if (!signature->axis) return 0;
    const int ranks = signature->axis->ranks;
    const int64_t units = gather ? sections : (int64_t)ranks * sections;    /* must divide the dimension */
    int64_t *split = &signature->y.shape.dim[*dimension];
    if (ranks > SGRAD_MAX_INPUTS)
        return sgrad_log_error(SGRAD_EINVAL, "%s: values cannot be split over the %d ranks of axis %s; the maximum is %d",
                               signature->layer, ranks, axis, SGRAD_MAX_INPUTS);
    if (*split % units)
        return sgrad_log_error(SGRAD_ESHAPE,
                               "%s: dimension %d of %s cannot be split over the %d ranks of axis %s: it is not a multiple "
                               "of %lld",
                               signature->layer, *dimension, sgrad_shape_text(x, text), ranks, axis, (long long)units);
    *split = gather ? *split * ranks : *split / ranks;
    signature->shard = gather ? signature->x[0] : signature->y;
    return 0;
}

int sgrad__infer_cut(struct sgrad_signature *signature, void *attrs) {
    struct sgrad_take *is = attrs;
    if (!is->sections) is->sections = 1;
    return infer_pieces(signature, is->axis, &is->dimension, is->sections, false);
}

int sgrad__infer_join(struct sgrad_signature *signature, void *attrs) {
    struct sgrad_all_gather *is = attrs;
    if (!is->sections) is->sections = 1;
    return infer_pieces(signature, is->axis, &is->dimension, is->sections, true);
}

void sgrad__describe_pieces(const void *attrs, char *text, size_t size) {
    const struct sgrad_take *is = attrs;
    snprintf(text, size, "over %s, dimension %d%s", is->axis, is->dimension, is->sections > 1 ? ", by sections" : "");
}

/* Layout of a value and its shards: a value is ROWS rows, and a row is the concatenation of COUNT elements of each shard. */
struct runs {
    int64_t rows, count;
};
static struct runs runs_of(const struct sgrad_shape *whole, const struct sgrad_shape *piece, const void *attrs) {
    const int sections = attrs ? ((const struct sgrad_take *)attrs)->sections : 1;
    struct runs r = { 1, 1 };
    int d = 0;
    for (; whole->dim[d] == piece->dim[d]; d++) r.rows *= whole->dim[d];
    for (; d < piece->rank; d++) r.count *= piece->dim[d];
    r.rows *= sections;
    r.count /= sections;
    return r;
}

SGRAD_VECTOR(cut)(const struct sgrad_args *args) {
    const struct runs r = runs_of(&args->view[0].shape, &args->view[1].shape, args->attrs);
    int64_t from = 0;
    for (int64_t row = 0; row < r.rows; row++)
        for (int i = 1; i <= SGRAD_MAX_INPUTS && args->data[i]; i++, from += r.count)
            sgrad_row_move(args->view[0].dtype, args->data[0], from, args->data[i], row * r.count, r.count, false);
}

SGRAD_VECTOR(join)(const struct sgrad_args *args) {
    const struct runs r = runs_of(&args->view[SGRAD_MAX_INPUTS].shape, &args->view[0].shape, args->attrs);
    int64_t to = 0;
    for (int64_t row = 0; row < r.rows; row++)
        for (int i = 0; i < SGRAD_MAX_INPUTS && args->data[i]; i++, to += r.count)
            sgrad_row_move(args->view[0].dtype, args->data[i], row * r.count, args->data[SGRAD_MAX_INPUTS], to, r.count,
                           sgrad_adds(args, SGRAD_MAX_INPUTS));
}

void sgrad__cut(const struct sgrad_args *args) { cut(args); }
void sgrad__join(const struct sgrad_args *args) { join(args); }

const struct sgrad_kernel sgrad_cut_kernel = {
    .name = "cut", .kind = &sgrad_reduction_kind, .cpu = sgrad__cut, .flops = sgrad_no_flops
};
const struct sgrad_kernel sgrad_join_kernel = {
    .name = "join", .kind = &sgrad_reduction_kind, .cpu = sgrad__join, .flops = sgrad_no_flops
};
