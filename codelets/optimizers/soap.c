/* soap.c: SOAP (N. Vyas and others, SOAP: improving and stabilizing Shampoo using Adam, 2024, algorithm 3): Adam in the
 * eigenbasis of Shampoo's preconditioner. For a matrix, or a filter as a matrix with one row for each of its outputs, with
 * G = c·dw:
 *
 *     G' = Uᵀ G V      M = beta1·M + (1-beta1)·G      S = beta2·S + (1-beta2)·G'²
 *     w = (1 - rate·decay)·w - rate·U (M'/(1-beta1^t) / (√(S/(1-beta2^t)) + eps)) Vᵀ          M' = Uᵀ M V
 *     L = beta2·L + (1-beta2)·G Gᵀ      R = beta2·R + (1-beta2)·Gᵀ G
 *     every few steps: U = Q of the QR decomposition of L U      V = Q of that of R V
 *
 * As in the implementation of the authors, the first step of a run only determines L, R and their eigenvectors U and V, so that
 * no gradient is rotated to its own eigenvectors; t counts from the second step. Before a decomposition, the columns of U and V,
 * and with them the elements of S, are sorted by the estimated eigenvalues, the diagonals of Uᵀ L U and Vᵀ R V. All states start
 * as zeros. rate is the learning rate; c is the clip factor, as in sgd.c.
 *
 * Vectors (biases, batch norm) and sides longer than SGRAD_SOAP_SIDE are not rotated. (The authors' limit is 10000, at which a
 * decomposition takes minutes on a core.) Limits: CPUs only. */
#include "config.h"
#include "codelets/cpu/lapack.h"
#include "codelets/cpu/onednn.h"
#include "codelets/kernels.h"
#include "codelets/updates.h"

#include <math.h>
#include <stdlib.h>

enum { EVERY = 10, BLOCK = 64 };        /* default interval of decompositions; of LAPACK's workspace, per row */

/* A side of the matrix. All matrices are (length,length). */
struct side {
    int64_t length;
    bool rows;              /* the rows of the matrix are rotated; else its columns */
    float *sum, *basis;     /* L or R, U or V; NULL: the side is not rotated */
};
struct problem {
    int64_t rows, columns;
    struct side side[2];    /* rows, columns */
    float *second;          /* S */
};

static int64_t rotated(const struct sgrad_shape *shape, int64_t length) {
    return shape->rank > 1 && length <= SGRAD_SOAP_SIDE ? length : 0;
}

static struct problem problem_of(const struct sgrad_args *args) {
    const struct sgrad_shape *shape = &args->view[0].shape;
    const int64_t rows = shape->dim[0], columns = sgrad_shape_count(shape) / rows;
    struct problem p = { .rows = rows, .columns = columns, .second = args->data[4],
                         .side = { { .length = rows, .rows = true }, { .length = columns } } };
    for (int i = 0; i < 2; i++)
        if (rotated(shape, p.side[i].length)) p.side[i].sum = args->data[5 + i], p.side[i].basis = args->data[7 + i];
    return p;
}

/* Y = Uᵀ X V; BACK: Y = U X Vᵀ. ROOM: a matrix. All are (rows,columns). */
static void rotate(const struct problem *p, bool back, const float *x, float *room, float *y) {
    const float *u = p->side[0].basis, *v = p->side[1].basis;
    if (u) sgrad__onednn_multiply(!back, false, p->rows, p->columns, p->rows, 1, u, x, 0, v ? room : y);
    if (v) sgrad__onednn_multiply(false, back, p->rows, p->columns, p->columns, 1, u ? room : x, v, 0, y);
    if (!u && !v) memcpy(y, x, (size_t)(p->rows * p->columns) * sizeof *y);
}

/* L = beta·L + (1-beta)·G Gᵀ; R likewise. */
static void add_outer_products(const struct problem *p, float beta, const float *g) {
    for (const struct side *s = p->side; s < p->side + 2; s++)
        if (s->sum)
            sgrad__onednn_multiply(!s->rows, s->rows, s->length, s->length, s->rows ? p->columns : p->rows, 1 - beta, g, g, beta,
                                   s->sum);
}

static bool is_finite(const struct side *side) {
    float bad = 0;
    for (int64_t i = 0; i < side->length * side->length; i++) bad += 0 * side->sum[i];
    return bad == 0;
}

/* Sets the basis to the eigenvectors, in the order of decreasing eigenvalues; to the identity, if there are none. */
static void decompose(const struct side *side, float *room) {
    const int64_t n = side->length;
    const int rows = (int)n, size = (int)(1 + 6 * n + 2 * n * n), more = (int)(3 + 5 * n);
    float *matrix = room, *values = matrix + n * n, *work = values + n;
    int info = 1;
    memcpy(matrix, side->sum, (size_t)(n * n) * sizeof *matrix);
    if (is_finite(side)) ssyevd_("V", "L", &rows, matrix, &rows, values, work, &size, (int *)(work + size), &more, &info, 1, 1);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) side->basis[i * n + j] = info ? i == j : matrix[(n - 1 - j) * n + i];
}

struct estimate {
    float value;
    int32_t index;
};

static int by_value(const void *a, const void *b) {
    const struct estimate *one = a, *other = b;
    if (one->value != other->value) return one->value < other->value ? 1 : -1;
    return one->index - other->index;
}

/* X(i,j) = X(i,ORDER j), or of rows X(i,j) = X(ORDER i,j). X and ROOM are (rows,columns). */
static void reorder(float *x, int64_t rows, int64_t columns, bool of_rows, const struct estimate *order, float *room) {
    memcpy(room, x, (size_t)(rows * columns) * sizeof *room);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            x[i * columns + j] = of_rows ? room[order[i].index * columns + j] : room[i * columns + order[j].index];
}

/* Improves the basis by a step of orthogonal iteration. ROOM: that of a decomposition; MATRIX: a matrix (rows,columns). */
static void refine(const struct problem *p, const struct side *side, float *room, float *matrix) {
    const int64_t n = side->length;
    const int rows = (int)n, size = BLOCK * rows;
    struct estimate *estimate = (struct estimate *)room;
    float *product = room + 2 * n, *spare = product + n * n, *scales = spare, *work = scales + n;
    int info = 0;
    if (!is_finite(side)) return;
    sgrad__onednn_multiply(false, false, n, n, n, 1, side->sum, side->basis, 0, product);
    for (int64_t j = 0; j < n; j++) estimate[j] = (struct estimate){ .index = (int32_t)j };
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) estimate[j].value += side->basis[i * n + j] * product[i * n + j];
    qsort(estimate, (size_t)n, sizeof *estimate, by_value);
    reorder(product, n, n, false, estimate, spare);
    /* LAPACK's matrices are column-major: the rows of this LQ decomposition are the columns of the QR decomposition. */
    sgelqf_(&rows, &rows, product, &rows, scales, work, &size, &info);
    if (!info) sorglq_(&rows, &rows, &rows, product, &rows, scales, work, &size, &info);
    if (info) return;
    memcpy(side->basis, product, (size_t)(n * n) * sizeof *product);
    reorder(p->second, p->rows, p->columns, side->rows, estimate, matrix);
}

/* Operands: w, dw, Σ g² over all parameters (1) or absent, M, S, L, R, U, V. */
SGRAD_VECTOR(soap)(const struct sgrad_args *args) {
    const struct sgrad_hyper *h = args->attrs;
    const struct problem p = problem_of(args);
    const int64_t count = p.rows * p.columns, t = (int64_t)args->step->number - 1, every = h->every > 0 ? h->every : EVERY;
    float *g = (float *)sgrad_aligned((size_t)args->workspace), *x = g + count, *y = x + count, *room = y + count;
    float *restrict w = args->data[0], *restrict m = args->data[3], *restrict s = p.second;
    const float *restrict dw = args->data[1];
    const float c = sgrad_clip_factor(h, args->data[2]), beta1 = h->beta1, beta2 = h->beta2, eps = h->eps, rate = sgrad_lr(args);
    const float keep = 1 - rate * h->weight_decay, size = (float)(rate / (1 - pow(beta1, (double)t)));
    const float root = (float)(1 / sqrt(1 - pow(beta2, (double)t)));
    sgrad__lapack_alone();
    for (int64_t i = 0; i < count; i++) g[i] = c * dw[i];
    if (t > 0) {
        rotate(&p, false, g, y, x);
        for (int64_t i = 0; i < count; i++) {
            m[i] = beta1 * m[i] + (1 - beta1) * g[i];
            s[i] = beta2 * s[i] + (1 - beta2) * x[i] * x[i];
        }
        rotate(&p, false, m, y, x);
        for (int64_t i = 0; i < count; i++) x[i] = size * x[i] / (sqrtf(s[i]) * root + eps);
        float *const step = room;
        rotate(&p, true, x, y, step);
        for (int64_t i = 0; i < count; i++) w[i] = keep * w[i] - step[i];
    }
    add_outer_products(&p, beta2, g);
    for (const struct side *side = p.side; side < p.side + 2; side++) {
        if (side->sum && t == 0) decompose(side, room);
        else if (side->sum && t % every == 0) refine(&p, side, room, x);
    }
}

/* The longest rotated side; 0: there is none. */
static int64_t longest(const struct sgrad_args *args) {
    const struct sgrad_shape *shape = &args->view[0].shape;
    const int64_t rows = rotated(shape, shape->dim[0]), columns = rotated(shape, sgrad_shape_count(shape) / shape->dim[0]);
    return rows > columns ? rows : columns;
}

/* Three matrices (rows,columns), and the larger of: a fourth; those of a decomposition. */
static size_t workspace(const struct sgrad_args *args) {
    const size_t count = (size_t)sgrad_shape_count(&args->view[0].shape), n = (size_t)longest(args);
    const size_t decomposition = 3 * n * n + (BLOCK + 12) * n + 4;
    return SGRAD_LINE + (3 * count + (decomposition > count ? decomposition : count)) * sizeof(float);
}

/* Six products for rotations and two for L and R; the decomposition takes 14/3 n³ operations. */
static double flops(const struct sgrad_args *args) {
    const struct sgrad_hyper *h = args->attrs;
    const struct sgrad_shape *shape = &args->view[0].shape;
    const double count = (double)sgrad_shape_count(shape), rows = (double)rotated(shape, shape->dim[0]),
                 columns = (double)rotated(shape, sgrad_shape_count(shape) / shape->dim[0]);
    const double every = h && h->every > 0 ? h->every : EVERY;
    return 18 * count + 8 * count * (rows + columns) + 14. / 3 * (pow(rows, 3) + pow(columns, 3)) / every;
}

const struct sgrad_kernel sgrad_soap_kernel = {
    .name = "soap",
    .kind = &sgrad_update_kind,
    .cpu = soap,
    .workspace = workspace,
    .flops = flops,
};
