/* ring_attention.c: attention whose rows are split over the ranks of an axis. A rank has the rows of struct sgrad_zigzag:
 * x (N,T,C+2·K), or q (N,T,C), k and v (N,T,K), with T the rows of the rank. Its keys and values, joined to one block (N,T,2·K),
 * and those of the others pass through all ranks, which add the attention of their queries to each block:
 *
 *     rank      0           1           2            after a block with the sums s of its rows, y and log Σ exp are merged:
 *     step 0    k0 v0       k1 v1       k2 v2            l' = log(exp l + exp s),  y' = exp(l - l')·y + exp(s - l')·y_block
 *          1    k2 v2       k0 v0       k1 v1
 *          2    k1 v1       k2 v2       k0 v0        backward: the same, and dk dv of each block travel with it, one step later
 *
 * Blocks and products are those of attention.c. Causal: of another rank's block, all queries see the first half of the keys, if
 * the rank is lower; else the second half of the queries sees all keys. So every step is the same work. Gradients of blocks are
 * F32. With bf16 activations, y is rounded after each step.
 *
 * Sources: H. Liu, M. Zaharia, P. Abbeel, Ring attention with blockwise transformers for near-infinite context, 2023; W. Brandon
 * et al., Striped attention, 2023 (balance). */
#include "config.h"
#include "codelets/ops/attention_blocks.h"
#include "codelets/ops/moves.h"
#include "codelets/ops/ring_tasks.h"
#include "codelets/ops/zigzag.h"

enum { FORWARD_START = 4, BACKWARD_START = 7 };

static int refuse(const struct sgrad_signature *signature, const struct sgrad_ring_attention *attrs) {
    char text[SGRAD_SHAPE_TEXT];
    return sgrad_log_error(SGRAD_ESHAPE,
                           "%s: ring_attention requires rows (N,T,C) of %d heads of queries and %d of keys and of values, in one "
                           "input or three, not %s",
                           signature->layer, attrs->heads, attrs->kv_heads, sgrad_shape_text(&signature->x[0].shape, text));
}

int sgrad__ring_infer(struct sgrad_signature *signature, struct sgrad_ring_attention *attrs, int of_k) {
    const struct sgrad_shape *x = &signature->x[0].shape;
    const bool one = signature->inputs <= of_k;
    if (attrs->kv_heads == 0) attrs->kv_heads = attrs->heads;
    if (attrs->heads < 1 || attrs->kv_heads < 1 || attrs->heads % attrs->kv_heads) return refuse(signature, attrs);
    const int64_t parts = one ? attrs->heads + 2 * (int64_t)attrs->kv_heads : attrs->heads;
    SGRAD_TRY(sgrad__infer_move(signature, attrs->axis));
    signature->view_of_input = false;
    if (x->rank != 3 || x->dim[2] % parts || x->dim[2] / parts > SGRAD_ROW) return refuse(signature, attrs);
    const int64_t size = x->dim[2] / parts, kv = attrs->kv_heads * size;
    for (int i = of_k; !one && i < of_k + 2; i++) {
        const struct sgrad_shape *k = &signature->x[i].shape;
        if (signature->inputs != of_k + 2 || k->rank != 3 || k->dim[0] != x->dim[0] || k->dim[1] != x->dim[1] || k->dim[2] != kv)
            return refuse(signature, attrs);
    }
    if (signature->axis && x->dim[1] % 2)
        return sgrad_log_error(SGRAD_ESHAPE, "%s: ring_attention requires an even number of rows, not %lld", signature->layer,
                               (long long)x->dim[1]);
    signature->y.shape = (struct sgrad_shape){ 3, { x->dim[0], x->dim[1], attrs->heads * size } };
    signature->saved[0] = (struct sgrad_view){ SGRAD_F32, { 3, { x->dim[0], attrs->heads, x->dim[1] } } };
    signature->shard = (struct sgrad_view){ signature->y.dtype, { 3, { x->dim[0], x->dim[1], 2 * kv } } };
    return 0;
}

static int infer(struct sgrad_signature *signature, void *attrs) {
    ((struct sgrad_ring_attention *)attrs)->documents = false;
    return sgrad__ring_infer(signature, attrs, 1);
}

void sgrad__ring_set_rank(const struct sgrad_signature *signature, int rank, void *attributes) {
    struct sgrad_ring_attention *attrs = attributes;
    attrs->rank = attrs->of_keys = sgrad__place_on(signature->mesh, attrs->axis, rank, &attrs->ranks);
    attrs->rows = sgrad__zigzag_at(attrs->ranks, attrs->rank, signature->x[0].shape.dim[1]);
}

/* The rows become those of the keys. */
void sgrad__ring_set_shard(int place, void *attributes) {
    struct sgrad_ring_attention *attrs = attributes;
    attrs->of_keys = place;
    attrs->rows = sgrad__zigzag_at(attrs->ranks > 1 ? attrs->ranks : 1, place, 2 * (int64_t)attrs->rows.half);
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

/* x (N,T,C+2K) or q (N,T,C), block (N,T,2K), k and v (N,T,K) or absent */
SGRAD_VECTOR(join)(const struct sgrad_args *args) {
    const bool one = args->view[2].shape.rank < 0;
    const struct sgrad_shape *block = &args->view[1].shape;
    const int64_t rows = block->dim[0] * block->dim[1], both = block->dim[2], kv = both / 2, width = args->view[0].shape.dim[2];
    for (int64_t r = 0; r < rows; r++)
        if (one) sgrad_row_move(args->view[1].dtype, args->data[0], (r + 1) * width - both, args->data[1], r * both, both, false);
        else
            for (int i = 0; i < 2; i++)
                sgrad_row_move(args->view[1].dtype, args->data[2 + i], r * kv, args->data[1], r * both + i * kv, kv, false);
}

/* Writes COUNT numbers to Y, from element TO on, or adds them. */
SGRAD_ALWAYS_INLINE void put_row(const float *x, int64_t count, enum sgrad_dtype type, void *y, int64_t to, bool add) {
    float room[SGRAD_ROW];
    for (int64_t i = 0, n; (n = sgrad_chunk(i, count)); i += n) {
        float *row = sgrad_row_sum(type, y, to + i, n, add, room);
        for (int64_t j = 0; j < n; j++) row[j] += x[i + j];
        sgrad_row_done(type, y, to + i, n, row);
    }
}

/* dblock (N,T,2K) F32, dx (N,T,C+2K) or absent, dk, dv (N,T,K) or absent. In one input, dx already has dq. */
SGRAD_VECTOR(cut)(const struct sgrad_args *args) {
    const struct sgrad_ring_attention *attrs = args->attrs;
    const struct sgrad_shape *block = &args->view[0].shape;
    const int64_t rows = block->dim[0] * block->dim[1], kv = block->dim[2] / 2, width = kv / attrs->kv_heads * attrs->heads;
    const bool one = args->data[1] && args->view[1].shape.dim[2] > width;
    for (int64_t r = 0; r < 2 * rows; r++) {
        const int to = one ? 1 : 2 + (int)(r % 2);
        if (args->data[to])
            put_row((const float *)args->data[0] + r * kv, kv, args->view[to].dtype, args->data[to],
                    one ? r / 2 * (width + 2 * kv) + width + r % 2 * kv : r / 2 * kv, sgrad_adds(args, to));
    }
}

static struct head head_in_ring(const struct sgrad_args *args, bool backward) {
    const struct sgrad_ring_attention *attrs = args->attrs;
    return head_of(args, attrs->heads, attrs->kv_heads, backward);
}
size_t sgrad__ring_forward_workspace(const struct sgrad_args *args) {
    return SGRAD_LINE + (size_t)head_in_ring(args, false).all * sizeof(float);
}
size_t sgrad__ring_backward_workspace(const struct sgrad_args *args) {
    return SGRAD_LINE + (size_t)head_in_ring(args, true).all * sizeof(float);
}

/* Finds the rows of q in operand 0, those of k and v in operand BLOCK, and their gradients in operands SLOPE (0: none) and
 * BLOCK + 1. */
static void find_rows(const struct sgrad_args *args, const struct head *h, int block, int slope, struct rows of[3]) {
    const int64_t kv = h->kv * h->size;
    of[0] = (struct rows){ .data = args->data[0], .stride = args->view[0].shape.dim[2], .type = h->type };
    if (slope) of[0].slope = args->data[slope], of[0].add = sgrad_adds(args, slope);
    for (int i = 1; i < 3; i++) {
        of[i] = (struct rows){ .data = args->data[block], .stride = 2 * kv, .first = (i - 1) * kv, .type = SGRAD_F32 };
        if (slope) of[i].slope = args->data[block + 1];
    }
}

/* Returns the keys that the queries of sample N see. START: operand start, or NULL. */
static struct seen seen_in(const struct sgrad_args *args, const struct head *h, const int32_t *start, int64_t n) {
    const struct sgrad_ring_attention *attrs = args->attrs;
    const struct sgrad_zigzag *rows = &attrs->rows;
    return (struct seen){ .causal = attrs->causal,
                          .start = start ? start + n * h->count : NULL,
                          .order = attrs->of_keys - attrs->rank,
                          .half = rows->half,
                          .early = rows->early,
                          .late = rows->late + rows->half };
}

/* Merges ROWS rows of Y, from element AT on, and their log Σ exp in KEEP with those of a block, SUM and OWN. */
SGRAD_ALWAYS_INLINE void merge(const struct head *h, int64_t rows, const float *sum, const float *own, void *y, int64_t at,
                               float *keep) {
    float room[SGRAD_ROW];
    for (int64_t i = 0; i < rows; i++, at += h->width, sum += h->row) {
        if (own[i] == -INFINITY) continue;
        const float max = fmaxf(keep[i], own[i]), all = max + logf(expf(keep[i] - max) + expf(own[i] - max));
        const float of_y = expf(keep[i] - all), of_sum = expf(own[i] - all);
        float *row = sgrad_row_sum(h->type, y, at, h->size, true, room);
        for (int64_t c = 0; c < h->size; c++) row[c] = of_y * row[c] + of_sum * sum[c];
        sgrad_row_done(h->type, y, at, h->size, row);
        keep[i] = all;
    }
}

/* x or q (N,T,…), y (N,T,C), saved (N,heads,T): log Σ exp of each row of scores, block (N,T,2K), start (N,T) or absent */
SGRAD_VECTOR(forward)(const struct sgrad_args *args) {
    const struct sgrad_ring_attention *attrs = args->attrs;
    const struct head h = head_in_ring(args, false);
    const bool merges = sgrad_adds(args, 1);
    const int32_t *start = attrs->documents ? args->data[FORWARD_START] : NULL;
    float *room = (float *)sgrad_aligned((size_t)args->workspace), *keep = args->data[2];
    struct rows of[3];
    find_rows(args, &h, 3, 0, of);
    for (int64_t i = 0; i < args->view[1].shape.dim[0] * h.heads; i++, keep += h.count) {
        const int64_t n = i / h.heads, k = i % h.heads;
        const struct seen seen = seen_in(args, &h, start, n);
        if (k % h.group == 0) take_keys(&h, of, n, k / h.group, room);
        gather_left(&h, &of[0], begin(&h, &of[0], n, k), room + h.q);
        for (int64_t first = 0; first < h.count; first += BLOCK) {
            const int64_t rows = least(BLOCK, h.count - first), at = (n * h.count + first) * h.width + k * h.size;
            attend(&h, &seen, first, rows, room, merges ? room + h.own : keep);
            if (merges) merge(&h, rows, room + h.sum, room + h.own + first, args->data[1], at, keep + first);
            else scatter(room + h.sum, h.row, rows, h.size, 1, h.type, args->data[1], at, h.width, false);
        }
    }
}

/* Sets the last COUNT numbers of each row of X to 0. */
static void clear_ends(const struct sgrad_view *view, void *x, int64_t count) {
    const int64_t rows = view->shape.dim[0] * view->shape.dim[1], width = view->shape.dim[2];
    const size_t size = sgrad_dtype_size(view->dtype);
    for (int64_t r = 1; r <= rows; r++) memset((char *)x + (size_t)(r * width - count) * size, 0, (size_t)count * size);
}

/* x or q (N,T,…), y, dy (N,T,C), saved (N,heads,T), dx or dq or absent, block (N,T,2K), dblock (N,T,2K), start (N,T) or absent */
SGRAD_VECTOR(backward)(const struct sgrad_args *args) {
    const struct sgrad_ring_attention *attrs = args->attrs;
    const struct head h = head_in_ring(args, true);
    const int32_t *start = attrs->documents ? args->data[BACKWARD_START] : NULL;
    float *room = (float *)sgrad_aligned((size_t)args->workspace);
    struct rows of[3];
    find_rows(args, &h, 5, 4, of);
    if (args->data[4] && !sgrad_adds(args, 4) && of[0].stride > h.width)
        clear_ends(&args->view[4], args->data[4], of[0].stride - h.width);
    for (int64_t n = 0; n < args->view[1].shape.dim[0]; n++) {
        const struct seen seen = seen_in(args, &h, start, n);
        for (int64_t shared = 0; shared < h.kv; shared++) {
            take_keys_back(&h, of, n, shared, room);
            for (int64_t k = shared * h.group; k < (shared + 1) * h.group; k++) {
                take_slopes(&h, &of[0], args->data[1], args->data[2], n, k, room);
                slope_all(&h, &seen, room, (const float *)args->data[3] + (n * h.heads + k) * h.count);
                put(&h, room + h.dq, scale_of(&h), &of[0], begin(&h, &of[0], n, k));
            }
            put(&h, room + h.dk, scale_of(&h), &of[1], begin(&h, &of[1], n, shared));
            put(&h, room + h.dv, 1, &of[2], begin(&h, &of[2], n, shared));
        }
    }
}

void sgrad__ring_join(const struct sgrad_args *args) { join(args); }
void sgrad__ring_forward(const struct sgrad_args *args) { forward(args); }
void sgrad__ring_backward(const struct sgrad_args *args) { backward(args); }
void sgrad__ring_cut(const struct sgrad_args *args) { cut(args); }

/* ---- the record -------------------------------------------------------------------------------------------------- */

/* Of one block: as of attention.c, for the rows of a rank. */
static double flops(const struct sgrad_args *args, int products) {
    const struct sgrad_shape *y = &args->view[1].shape;
    const double scores = (double)(y->dim[0] * y->dim[1] * y->dim[1]);
    return 2.0 * products * scores * (double)y->dim[2] / (((const struct sgrad_ring_attention *)args->attrs)->causal ? 2 : 1);
}
double sgrad__ring_forward_flops(const struct sgrad_args *args) { return flops(args, 2); }
double sgrad__ring_backward_flops(const struct sgrad_args *args) { return flops(args, 5); }

void sgrad__ring_describe(const void *attributes, char *text, size_t size) {
    const struct sgrad_ring_attention *attrs = attributes;
    char shared[32] = "";
    if (attrs->kv_heads != attrs->heads) snprintf(shared, sizeof shared, ", %d of keys", attrs->kv_heads);
    snprintf(text, size, "%d %s%s%s, over %s", attrs->heads, attrs->heads == 1 ? "head" : "heads", shared,
             attrs->causal ? ", causal" : "", attrs->axis);
}

const struct sgrad_op sgrad_ring_attention_op = {
    .name = "ring_attention",
    .summary = "self-attention over the rows of samples that are split over the ranks of a mesh axis; keys and values travel",
    .source = "H. Liu, M. Zaharia, P. Abbeel, Ring attention with blockwise transformers for near-infinite context, 2023",
    .inputs = 1,
    .optional_inputs = 2,
    .attrs_size = sizeof(struct sgrad_ring_attention),
    .infer = infer,
    .set_rank = sgrad__ring_set_rank,
    .set_shard = sgrad__ring_set_shard,
    .describe = sgrad__ring_describe,
    SGRAD__RING_TASKS("ring_attention", 1, { 0 }),
    .tests = {
        { "2 heads of 5, causal", { { 3, { 2, 7, 30 } } },
          &(struct sgrad_ring_attention){ .axis = "context", .heads = 2, .causal = true } },
        { "three blocks", { { 3, { 1, 130, 24 } } }, &(struct sgrad_ring_attention){ .axis = "context", .heads = 2 } },
        { "three inputs, 6 heads, 2 of keys, causal", { { 3, { 2, 70, 96 } }, { 3, { 2, 70, 32 } }, { 3, { 2, 70, 32 } } },
          &(struct sgrad_ring_attention){ .axis = "context", .heads = 6, .kv_heads = 2, .causal = true } },
    },
};
