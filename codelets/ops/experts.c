/* experts.c: a mixture of experts, which are gated layers (SwiGLU). Of each row only the experts with a weight are computed:
 *
 *     g = gate_e x     u = up_e x     h = silu(g)·u     y = Σ w_e down_e h        over the experts e whose weight w_e is not 0
 *
 * with x, y (N,…,C), w (N,…,E), gate and up (E,F,C), down (E,C,F). At most ACTIVE experts of a row are computed, those with the
 * smallest numbers. An expert may have any number of rows; no row is left out. The rows of an expert are copied next to each
 * other, multiplied by its matrices, and added to the result. Experts take turns in the order of their numbers:
 *
 *     x   0 1 2 3 4 5        expert 0   rows 1 4      ── gate, up, h, down ──  y 1 4
 *     w   1 0 2 1 0 2        expert 1   rows 0 3      ── gate, up, h, down ──  y 0 3
 *                            expert 2   rows 2 5      ── gate, up, h, down ──  y 2 5
 *
 * g and u of each row and expert are saved. With G = downᵀ dy, the gradients of w, h, g and u are Σ G·h, w·G, and those of SiLU.
 *
 * In files, each expert has its own tensors, "experts.0.gate_proj.weight". A layer with .single is one expert; its tensors are
 * "gate_proj.weight", and have no dimension E.
 *
 * All products are in F32; bf16 is converted. CPUs only.
 *
 * Source: T. Gale et al., MegaBlocks: efficient sparse training with mixture-of-experts, 2022 (no row is left out). */
#include "config.h"
#include "codelets/cpu/numbers.h"
#include "codelets/cpu/onednn.h"
#include "codelets/ops/experts.h"

#include <math.h>

/* ---- shapes ------------------------------------------------------------------------------------------------------ */

static struct sgrad_parameter matrix(const struct sgrad_experts *attrs, const char *name, int64_t count, int64_t out, int64_t in,
                                     float deviation) {
    struct sgrad_parameter p = { .name = name, .init = deviation > 0 ? SGRAD_NORMAL : SGRAD_UNIFORM, .fan = (double)in,
                                 .deviation = (double)deviation, .shape = { 3, { count, out, in } }, .layout = SGRAD_STACKED };
    if (attrs->single) p.shape = (struct sgrad_shape){ 2, { out, in } }, p.layout = SGRAD_AS_IS;
    return p;
}

static int infer(struct sgrad_signature *signature, void *attributes) {
    struct sgrad_experts *attrs = attributes;
    const struct sgrad_shape *x = &signature->x[0].shape, *w = &signature->x[1].shape;
    char text[2][SGRAD_SHAPE_TEXT];
    bool fits = x->rank >= 2 && w->rank == x->rank;
    for (int i = 0; i < x->rank - 1 && fits; i++) fits = x->dim[i] == w->dim[i];
    if (!fits)
        return sgrad_log_error(SGRAD_ESHAPE, "%s: experts requires rows (N,…,C) and weights of experts (N,…,E), not %s and %s",
                               signature->layer, sgrad_shape_text(x, text[0]), sgrad_shape_text(w, text[1]));
    const int64_t width = x->dim[x->rank - 1], count = w->dim[x->rank - 1], hidden = attrs->features;
    if (attrs->active < 1 || attrs->active > count || hidden < 1 || (attrs->single && count != 1))
        return sgrad_log_error(SGRAD_EINVAL,
                               "%s: experts: active=%d must be from 1 to the number of experts, %d%s, and features=%d at least 1",
                               signature->layer, attrs->active, (int)count, attrs->single ? ", which must be 1" : "",
                               attrs->features);
    if (attrs->expected == 0) attrs->expected = (float)attrs->active;
    const bool one = attrs->single;
    signature->y.shape = *x;
    signature->p[0] = matrix(attrs, one ? "gate_proj.weight" : "experts.*.gate_proj.weight", count, hidden, width,
                             attrs->deviation);
    signature->p[1] = matrix(attrs, one ? "up_proj.weight" : "experts.*.up_proj.weight", count, hidden, width, attrs->deviation);
    signature->p[2] = matrix(attrs, one ? "down_proj.weight" : "experts.*.down_proj.weight", count, width, hidden,
                             attrs->last_deviation);
    const int64_t rows = sgrad_shape_count(x) / x->dim[0] / width;
    signature->saved[0] = (struct sgrad_view){ signature->y.dtype, { 3, { x->dim[0], rows * attrs->active, 2 * hidden } } };
    return 0;
}

struct sizes {
    int64_t rows, width, experts, hidden;       /* N·…, C, E, F */
    int active;
    enum sgrad_dtype type;
};

/* Operands 0 and 1 of all tasks are x and w. */
static struct sizes sizes_of(const struct sgrad_args *args) {
    const struct sgrad_experts *attrs = args->attrs;
    const struct sgrad_shape *x = &args->view[0].shape, *w = &args->view[1].shape;
    const int64_t width = x->dim[x->rank - 1];
    return (struct sizes){ sgrad_shape_count(x) / width, width, w->dim[w->rank - 1], attrs->features, attrs->active,
                           args->view[0].dtype };
}

/* ---- workspace --------------------------------------------------------------------------------------------------- */

/* The rows of one expert: their numbers in x and in SAVED, their weights, and their values. Forward has no dy and slope. */
struct room {
    int32_t *taken;                     /* per row of x: experts that were computed */
    int32_t *row, *place;
    float *weight;
    float *x, *dy, *out;                /* (rows,C) */
    float *gate, *up, *slope;           /* (rows,F) */
    float *sum;                         /* (rows,C) of x: the result, if it is not F32 */
};

/* Divides the workspace FROM. Sets *BYTES, its size, unless BYTES is NULL. */
static struct room room_of(const struct sizes *is, bool backward, const void *from, size_t *bytes) {
    const size_t numbers = sgrad_aligned((size_t)is->rows * sizeof(float));
    const size_t wide = sgrad_aligned((size_t)(is->rows * is->width) * sizeof(float));
    const size_t hidden = sgrad_aligned((size_t)(is->rows * is->hidden) * sizeof(float));
    const size_t size[] = { numbers, numbers, numbers, numbers, wide, backward ? wide : 0, wide, hidden, hidden,
                            backward ? hidden : 0, is->type == SGRAD_F32 ? 0 : wide };
    enum { PARTS = sizeof size / sizeof *size };
    void *part[PARTS];
    size_t at = sgrad_aligned((size_t)from);
    for (int i = 0; i < PARTS; at += size[i++]) part[i] = (void *)at;
    if (bytes) *bytes = at - (size_t)from + SGRAD_LINE;
    return (struct room){ part[0], part[1], part[2], part[3], part[4], part[5], part[6], part[7], part[8], part[9], part[10] };
}

static size_t forward_workspace(const struct sgrad_args *args) {
    const struct sizes is = sizes_of(args);
    size_t bytes;
    room_of(&is, false, NULL, &bytes);
    return bytes;
}

static size_t backward_workspace(const struct sgrad_args *args) {
    const struct sizes is = sizes_of(args);
    size_t bytes;
    room_of(&is, true, NULL, &bytes);
    return bytes;
}

/* ---- rows of an expert ------------------------------------------------------------------------------------------- */

/* Lists the rows of EXPERT; returns their number. Experts must be listed in the order of their numbers. */
SGRAD_ALWAYS_INLINE int64_t list_rows(const struct sizes *is, int64_t expert, const void *weights, struct room *room) {
    int64_t count = 0;
    if (expert == 0) memset(room->taken, 0, (size_t)is->rows * sizeof *room->taken);
    for (int64_t r = 0; r < is->rows; r++) {
        const float weight = sgrad_get(is->type, weights, r * is->experts + expert);
        if (weight == 0 || room->taken[r] == is->active) continue;
        room->row[count] = (int32_t)r;
        room->place[count] = (int32_t)r * is->active + room->taken[r]++;
        room->weight[count++] = weight;
    }
    return count;
}

/* Copies COUNT rows of DATA, which have LENGTH elements each, to TO. A row of TO is elements FROM to FROM + WIDTH of one. */
SGRAD_ALWAYS_INLINE void collect(enum sgrad_dtype type, const void *data, const int32_t *row, int64_t count, int64_t length,
                                 int64_t from, int64_t width, float *to) {
    float buffer[SGRAD_ROW];
    for (int64_t i = 0; i < count; i++)
        for (int64_t j = 0, n; (n = sgrad_chunk(j, width)); j += n)
            memcpy(to + i * width + j, sgrad_row(type, data, row[i] * length + from + j, n, buffer), (size_t)n * sizeof *to);
}

/* The inverse. */
SGRAD_ALWAYS_INLINE void distribute(enum sgrad_dtype type, const float *values, const int32_t *row, int64_t count, int64_t length,
                                    int64_t from, int64_t width, void *data) {
    for (int64_t i = 0; i < count; i++) {
        const int64_t at = row[i] * length + from;
        if (type == SGRAD_F32) memcpy((float *)data + at, values + i * width, (size_t)width * sizeof *values);
        else sgrad_row_narrow(values + i * width, width, (uint16_t *)data + at, false);
    }
}

/* Adds the rows of OUT, each multiplied by its weight (WEIGHT NULL: 1), to rows of SUM. */
SGRAD_ALWAYS_INLINE void add_rows(const struct room *room, const float *weight, int64_t count, int64_t width, float *sum) {
    for (int64_t i = 0; i < count; i++) {
        const float scale = weight ? weight[i] : 1, *out = room->out + i * width;
        float *to = sum + room->row[i] * width;
        for (int64_t j = 0; j < width; j++) to[j] += scale * out[j];
    }
}

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

/* gate = silu(gate)·up */
SGRAD_ALWAYS_INLINE void activate(float *gate, const float *up, int64_t count) {
    for (int64_t i = 0; i < count; i++) gate[i] = gate[i] * sigmoid(gate[i]) * up[i];
}

/* x (N,…,C), w (N,…,E), gate, up, down, y (N,…,C), saved (N,…·ACTIVE,2F) or absent */
SGRAD_ALWAYS_INLINE void compute(const struct sgrad_args *args, void *saved) {
    const struct sizes is = sizes_of(args);
    const int64_t c = is.width, f = is.hidden;
    const float *gate = args->data[2], *up = args->data[3], *down = args->data[4];
    struct room room = room_of(&is, false, args->workspace, NULL);
    float *sum = sgrad_row_sum(is.type, args->data[5], 0, is.rows * c, false, room.sum);
    for (int64_t e = 0, count; e < is.experts; e++) {
        if (!(count = list_rows(&is, e, args->data[1], &room))) continue;
        collect(is.type, args->data[0], room.row, count, c, 0, c, room.x);
        sgrad__onednn_multiply(false, true, count, f, c, 1, room.x, gate + e * f * c, 0, room.gate);
        sgrad__onednn_multiply(false, true, count, f, c, 1, room.x, up + e * f * c, 0, room.up);
        if (saved) distribute(is.type, room.gate, room.place, count, 2 * f, 0, f, saved);
        if (saved) distribute(is.type, room.up, room.place, count, 2 * f, f, f, saved);
        activate(room.gate, room.up, count * f);
        sgrad__onednn_multiply(false, true, count, c, f, 1, room.gate, down + e * f * c, 0, room.out);
        add_rows(&room, room.weight, count, c, sum);
    }
    sgrad_row_done(is.type, args->data[5], 0, is.rows * c, sum);
}
SGRAD_VECTOR(forward)(const struct sgrad_args *args) { compute(args, args->data[6]); }
SGRAD_VECTOR(inference)(const struct sgrad_args *args) { compute(args, NULL); }

/* From g, u and G of COUNT rows, computes w·h in slope, and dg and du in gate and up. Adds the gradients of the weights of EXPERT
 * to DWEIGHTS, unless that is NULL. */
SGRAD_ALWAYS_INLINE void differentiate(const struct sizes *is, int64_t expert, const struct room *room, int64_t count,
                                       void *dweights) {
    float term[SGRAD_ROW];
    for (int64_t i = 0; i < count; i++) {
        const float w = room->weight[i];
        float sum = 0;
        for (int64_t j = 0, n; (n = sgrad_chunk(j, is->hidden)); j += n) {
            float *gate = room->gate + i * is->hidden + j, *up = room->up + i * is->hidden + j;
            float *slope = room->slope + i * is->hidden + j;
            for (int64_t k = 0; k < n; k++) {
                const float s = sigmoid(gate[k]), silu = gate[k] * s, h = silu * up[k], dh = w * slope[k];
                term[k] = slope[k] * h;
                slope[k] = w * h;
                gate[k] = dh * up[k] * (s + silu * (1 - s));
                up[k] = dh * silu;
            }
            sum += sum_of(term, n);
        }
        const int64_t at = room->row[i] * is->experts + expert;
        if (dweights) sgrad_put(is->type, dweights, at, sgrad_get(is->type, dweights, at) + sum);
    }
}

/* The gradient of the matrix of EXPERT in DP, operand J: (OUT,IN) = OUTSᵀ INS, or added to it; absent if DP is NULL. */
static void matrix_gradient(const struct sgrad_args *args, int j, int64_t expert, int64_t count, int64_t out, int64_t in,
                            const float *outs, const float *ins) {
    if (!args->data[j]) return;
    float *to = (float *)args->data[j] + expert * out * in;
    if (count) sgrad__onednn_multiply(true, false, out, in, count, 1, outs, ins, sgrad_adds(args, j), to);
    else if (!sgrad_adds(args, j)) memset(to, 0, (size_t)(out * in) * sizeof *to);
}

/* x, w, gate, up, down, saved, dy; dx (N,…,C), dw (N,…,E), dgate, dup, ddown, each of which may be absent */
SGRAD_VECTOR(backward)(const struct sgrad_args *args) {
    const struct sizes is = sizes_of(args);
    const int64_t c = is.width, f = is.hidden;
    const float *gate = args->data[2], *up = args->data[3], *down = args->data[4];
    struct room room = room_of(&is, true, args->workspace, NULL);
    float *sum = args->data[7] ? sgrad_row_sum(is.type, args->data[7], 0, is.rows * c, sgrad_adds(args, 7), room.sum) : NULL;
    if (args->data[8] && !sgrad_adds(args, 8)) memset(args->data[8], 0, sgrad_view_bytes(&args->view[8]));
    for (int64_t e = 0; e < is.experts; e++) {
        const int64_t count = list_rows(&is, e, args->data[1], &room);
        collect(is.type, args->data[0], room.row, count, c, 0, c, room.x);
        collect(is.type, args->data[6], room.row, count, c, 0, c, room.dy);
        collect(is.type, args->data[5], room.place, count, 2 * f, 0, f, room.gate);
        collect(is.type, args->data[5], room.place, count, 2 * f, f, f, room.up);
        if (count) sgrad__onednn_multiply(false, false, count, f, c, 1, room.dy, down + e * f * c, 0, room.slope);
        differentiate(&is, e, &room, count, args->data[8]);
        matrix_gradient(args, 9, e, count, f, c, room.gate, room.x);
        matrix_gradient(args, 10, e, count, f, c, room.up, room.x);
        matrix_gradient(args, 11, e, count, c, f, room.dy, room.slope);
        if (!count || !sum) continue;
        sgrad__onednn_multiply(false, false, count, c, f, 1, room.gate, gate + e * f * c, 0, room.out);
        sgrad__onednn_multiply(false, false, count, c, f, 1, room.up, up + e * f * c, 1, room.out);
        add_rows(&room, NULL, count, c, sum);
    }
    if (sum) sgrad_row_done(is.type, args->data[7], 0, is.rows * c, sum);
}

/* ---- the record -------------------------------------------------------------------------------------------------- */

/* The work of the active experts only; an estimate, if rows are sent here that have fewer of them. */
static double forward_flops(const struct sgrad_args *args) {
    const struct sizes is = sizes_of(args);
    const double experts = (double)((const struct sgrad_experts *)args->attrs)->expected;
    return 6.0 * (double)is.rows * experts * (double)(is.width * is.hidden);
}
static double backward_flops(const struct sgrad_args *args) { return 2 * forward_flops(args); }

static void describe(const void *attributes, char *text, size_t size) {
    const struct sgrad_experts *attrs = attributes;
    snprintf(text, size, attrs->single ? "%d features" : "%d features, %d active", attrs->features, attrs->active);
}

/* Weights are far from 0, where an expert would not be computed. */
static void fill(const struct sgrad_test *test, int input, void *data) { sgrad_fill_nonzero(test, input, data); }

const struct sgrad_op sgrad_experts_op = {
    .name = "experts",
    .summary = "mixture of experts: the weighted sum of gated layers (SwiGLU), of which each row has its own",
    .source = "N. Shazeer et al., Outrageously large neural networks: the sparsely-gated mixture-of-experts layer, 2017",
    .inputs = 2,
    .attrs_size = sizeof(struct sgrad_experts),
    .infer = infer,
    .describe = describe,
    .forward = { { { .name = "experts forward", .kind = &sgrad_forward_kind, .cpu = forward, .workspace = forward_workspace,
                     .flops = forward_flops },
                   { SGRAD_IN(X, 0), SGRAD_IN(X, 1), SGRAD_IN(P, 0), SGRAD_IN(P, 1), SGRAD_IN(P, 2), SGRAD_OUT(Y, 0),
                     SGRAD_OUT(SAVED, 0) } } },
    .backward = { { { .name = "experts backward", .kind = &sgrad_backward_kind, .cpu = backward, .accumulates = true,
                      .workspace = backward_workspace, .flops = backward_flops },
                    { SGRAD_IN(X, 0), SGRAD_IN(X, 1), SGRAD_IN(P, 0), SGRAD_IN(P, 1), SGRAD_IN(P, 2), SGRAD_IN(SAVED, 0),
                      SGRAD_IN(DY, 0), SGRAD_OUT(DX, 0), SGRAD_OUT(DX, 1), SGRAD_OUT(DP, 0), SGRAD_OUT(DP, 1),
                      SGRAD_OUT(DP, 2) } } },
    .inference = { { { .name = "experts inference", .kind = &sgrad_forward_kind, .cpu = inference, .workspace = forward_workspace,
                       .flops = forward_flops },
                     { SGRAD_IN(X, 0), SGRAD_IN(X, 1), SGRAD_IN(P, 0), SGRAD_IN(P, 1), SGRAD_IN(P, 2), SGRAD_OUT(Y, 0) } } },
    .fill = fill,
    .tests = {
        { "3 experts", { { 3, { 2, 5, 7 } }, { 3, { 2, 5, 3 } } }, &(struct sgrad_experts){ .features = 9, .active = 3 } },
        { "one expert", { { 2, { 4, 17 } }, { 2, { 4, 1 } } }, &(struct sgrad_experts){ .features = 5, .active = 1 } },
        { "single", { { 2, { 3, 8 } }, { 2, { 3, 1 } } },
          &(struct sgrad_experts){ .features = 16, .active = 1, .single = true } },
        { "longer than a row", { { 2, { 2, 6 } }, { 2, { 2, 2 } } }, &(struct sgrad_experts){ .features = 521, .active = 2 } },
        { "many rows", { { 3, { 3, 37, 32 } }, { 3, { 3, 37, 4 } } }, &(struct sgrad_experts){ .features = 48, .active = 4 } },
    },
};
