/* muon.c: orthogonalized momentum (K. Jordan and others, Muon: an optimizer for hidden layers in neural networks, 2024). For a
 * matrix, or a filter as a matrix with one row for each of its outputs:
 *
 *     b = momentum·b + c·dw      u = nesterov ? c·dw + momentum·b : b      X = u / (‖u‖ + 1e-7)
 *     five times: A = X Xᵀ      X = 3.4445·X + (-4.7750·A + 2.0315·A²) X
 *     w = (1 - rate·decay)·w - rate·√max(1, rows / columns)·X
 *
 * rate is the learning rate; c is the clip factor, as in sgd.c; b starts as zeros. The five steps are Newton-Schulz iterations
 * with coefficients that were selected for speed. They bring every singular value of X near 1, to 0.7 … 1.2, so that a step
 * changes all directions by similar amounts. Vectors (biases, batch norm) are updated as in sgd.c, except for the decay.
 *
 * NorMuon (Z. Li and others, NorMuon: making Muon more efficient and scalable, 2025) also gives all rows of a matrix steps of
 * similar size. For each row i:
 *
 *     v_i = beta2·v_i + (1 - beta2)·mean of the squares of X_i      Y_i = X_i / (√v_i + 1e-10)      Y = Y · ‖X‖ / (‖Y‖ + 1e-10)
 *
 * Y takes the place of X; v starts as zeros. As in the implementation of its authors, ‖X‖ is kept, so that a learning rate of
 * Muon suits NorMuon (the paper scales Y to the norm 0.2·√(rows · columns) instead). Limits: CPUs only. */
#include "config.h"
#include "codelets/optimizers/norms.h"
#include "codelets/cpu/onednn.h"

#include <math.h>

enum { STEPS = 5 };
static const float linear = 3.4445f, cubic = -4.7750f, quintic = 2.0315f;

SGRAD_ALWAYS_INLINE void add_momentum(const struct sgrad_args *args, int64_t count, float *restrict u) {
    const struct sgrad_hyper *h = args->attrs;
    float *restrict b = args->data[3];
    const float *restrict dw = args->data[1];
    const float c = sgrad_clip_factor(h, args->data[2]), momentum = h->momentum;
    const bool nesterov = h->nesterov;
    for (int64_t i = 0; i < count; i++) {
        const float g = c * dw[i];
        b[i] = momentum * b[i] + g;
        u[i] = nesterov ? g + momentum * b[i] : b[i];
    }
}

/* Scales X to norm 1, so that no singular value is larger than 1. */
SGRAD_ALWAYS_INLINE void shorten(float *x, int64_t count) {
    double lane[SGRAD_LANES] = { 0 };
    sgrad__add_products(x, x, count, lane);
    const float by = (float)(1 / (sqrt(sgrad__join_lanes(lane)) + 1e-7));
    for (int64_t i = 0; i < count; i++) x[i] *= by;
}

/* Orthogonalizes X (rows,columns). Returns the buffer with the result, X or Y. A and B: buffers for intermediate results, each of
 * the square of the smaller dimension. */
static float *orthogonal(int64_t rows, int64_t columns, float *x, float *y, float *a, float *b) {
    const bool wide = rows <= columns;
    const int64_t side = wide ? rows : columns, sum = wide ? columns : rows;
    for (int i = 0; i < STEPS; i++) {
        sgrad__onednn_multiply(!wide, wide, side, side, sum, 1, x, x, 0, a);
        memcpy(b, a, (size_t)(side * side) * sizeof *b);
        sgrad__onednn_multiply(false, false, side, side, side, quintic, a, a, cubic, b);
        memcpy(y, x, (size_t)(rows * columns) * sizeof *y);
        if (wide) sgrad__onednn_multiply(false, false, rows, columns, side, 1, b, x, linear, y);
        else sgrad__onednn_multiply(false, false, rows, columns, side, 1, x, b, linear, y);
        float *const new = y;
        y = x;
        x = new;
    }
    return x;
}

/* Makes the rows of X (rows,columns) similar in size, at the same norm of X. V (rows): mean squares of the rows of earlier X. */
SGRAD_ALWAYS_INLINE void normalize_rows(int64_t rows, int64_t columns, float beta2, float *restrict x, float *restrict v) {
    double before = 0, after = 0;
    for (int64_t i = 0; i < rows; i++) {
        double lane[SGRAD_LANES] = { 0 };
        sgrad__add_products(x + i * columns, x + i * columns, columns, lane);
        const double squares = sgrad__join_lanes(lane);
        v[i] = beta2 * v[i] + (1 - beta2) * (float)(squares / (double)columns);
        const double by = 1 / (sqrt(v[i]) + 1e-10);
        before += squares;
        after += by * by * squares;
    }
    const double scale = sqrt(before) / (sqrt(after) + 1e-10);
    for (int64_t i = 0; i < rows; i++) {
        const float by = (float)(scale / (sqrt(v[i]) + 1e-10));
        for (int64_t j = 0; j < columns; j++) x[i * columns + j] *= by;
    }
}

/* Operands: w, dw, Σ g² over all parameters (1) or absent, b; if the rows are NORMALIZED, v (rows). */
SGRAD_ALWAYS_INLINE void update(const struct sgrad_args *args, bool normalized) {
    const struct sgrad_hyper *h = args->attrs;
    const struct sgrad_shape *shape = &args->view[0].shape;
    const int64_t count = sgrad_shape_count(shape), rows = shape->dim[0], columns = count / rows;
    const int64_t side = rows < columns ? rows : columns;
    float *restrict w = args->data[0], *u = (float *)sgrad_aligned((size_t)args->workspace);
    float rate = sgrad_lr(args);
    const float keep = 1 - rate * h->weight_decay;
    float *restrict step = u;
    add_momentum(args, count, u);
    if (shape->rank > 1) {
        float *y = u + count, *of_side = y + count;
        shorten(u, count);
        step = orthogonal(rows, columns, u, y, of_side, of_side + side * side);
        if (normalized) normalize_rows(rows, columns, h->beta2, step, args->data[4]);
        if (rows > columns) rate *= sqrtf((float)rows / (float)columns);
    }
    for (int64_t i = 0; i < count; i++) w[i] = keep * w[i] - rate * step[i];
}

SGRAD_VECTOR(muon)(const struct sgrad_args *args) { update(args, false); }
SGRAD_VECTOR(normuon)(const struct sgrad_args *args) { update(args, true); }

static size_t workspace(const struct sgrad_args *args) {
    const struct sgrad_shape *shape = &args->view[0].shape;
    const size_t count = (size_t)sgrad_shape_count(shape), rows = (size_t)shape->dim[0], columns = count / rows;
    const size_t side = rows < columns ? rows : columns;
    return SGRAD_LINE + (shape->rank > 1 ? 2 * (count + side * side) : count) * sizeof(float);
}

static double flops(const struct sgrad_args *args) {
    const struct sgrad_shape *shape = &args->view[0].shape;
    const double count = (double)sgrad_shape_count(shape), rows = (double)shape->dim[0], columns = count / rows;
    const double side = fmin(rows, columns);
    return 8 * count + (shape->rank > 1 ? STEPS * side * (4 * count + 2 * side * side) : 0);
}

const struct sgrad_kernel sgrad_muon_kernel = {
    .name = "muon",
    .kind = &sgrad_update_kind,
    .cpu = muon,
    .workspace = workspace,
    .flops = flops,
};
const struct sgrad_kernel sgrad_normuon_kernel = {
    .name = "normuon",
    .kind = &sgrad_update_kind,
    .cpu = normuon,
    .workspace = workspace,
    .flops = flops,
};
