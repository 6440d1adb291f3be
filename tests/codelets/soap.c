/* soap.c: SOAP against algorithm 3 of its paper (Vyas et al. 2024) in double precision. The eigenvectors of the first step are
 * not unique: those of the kernel are checked, and used. */
#include "codelets/updates.h"
#include "tests/codelets/check.h"

SGRAD_UPDATE_KERNEL(soap);

enum { STEPS = 8, MOST = 1200, SIDE = 40, STATES = 6 };

/* C = left (m,k) right (k,n), or with the transpose of one of them. */
static void multiply(bool left_turned, bool right_turned, int m, int n, int k, const double *left, const double *right,
                     double *c) {
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            double sum = 0;
            for (int l = 0; l < k; l++)
                sum += (left_turned ? left[l * m + i] : left[i * k + l]) * (right_turned ? right[j * k + l] : right[l * n + j]);
            c[i * n + j] = sum;
        }
}

/* M, S, L, R, U, V are the states, in the order of the operands. */
struct parameter {
    int rows, columns;
    double w[MOST], m[MOST], s[MOST], side[4][SIDE * SIDE];
};

/* Y = Uᵀ X V; BACK: U X Vᵀ. */
static void rotate(const struct parameter *p, bool back, const double *x, double *y) {
    double half[MOST];
    multiply(!back, false, p->rows, p->columns, p->rows, p->side[2], x, half);
    multiply(false, back, p->rows, p->columns, p->columns, half, p->side[3], y);
}

/* Makes the columns of X (n,n) orthonormal, one after the other. */
static void orthonormalise(int n, double *x) {
    for (int j = 0; j < n; j++)
        for (int twice = 0; twice < 2; twice++) {
            for (int k = 0; k < j; k++) {
                double along = 0;
                for (int i = 0; i < n; i++) along += x[i * n + k] * x[i * n + j];
                for (int i = 0; i < n; i++) x[i * n + j] -= along * x[i * n + k];
            }
            double square = 0;
            for (int i = 0; i < n; i++) square += x[i * n + j] * x[i * n + j];
            for (int i = 0; i < n && square > 0; i++) x[i * n + j] /= sqrt(square);
        }
}

/* U = QR(L U), with its columns, and the rows of S, in the order of decreasing (Uᵀ L U)(j,j); of columns likewise. */
static void refine(struct parameter *p, int which) {
    const int n = which ? p->columns : p->rows;
    double product[SIDE * SIDE], sorted[SIDE * SIDE], value[SIDE] = { 0 }, s[MOST];
    int order[SIDE];
    multiply(false, false, n, n, n, p->side[which], p->side[2 + which], product);
    for (int j = 0; j < n; j++)
        for (int i = 0; i < n; i++) value[j] += p->side[2 + which][i * n + j] * product[i * n + j];
    for (int j = 0; j < n; j++) {
        int place = 0;
        for (int k = 0; k < n; k++) place += value[k] > value[j] || (value[k] == value[j] && k < j);
        order[place] = j;
    }
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) sorted[i * n + j] = product[i * n + order[j]];
    orthonormalise(n, sorted);
    memcpy(p->side[2 + which], sorted, (size_t)(n * n) * sizeof *sorted);
    memcpy(s, p->s, sizeof s);
    for (int i = 0; i < p->rows; i++)
        for (int j = 0; j < p->columns; j++)
            p->s[i * p->columns + j] = s[(which ? i : order[i]) * p->columns + (which ? order[j] : j)];
}

static void soap(struct parameter *p, const double *g, const struct sgrad_hyper *h, double rate, int step) {
    const double beta1 = h->beta1, beta2 = h->beta2;
    const int count = p->rows * p->columns, t = step - 1;
    double x[MOST], product[SIDE * SIDE];
    rotate(p, false, g, x);
    for (int i = 0; i < count && t; i++) {
        p->m[i] = beta1 * p->m[i] + (1 - beta1) * g[i];
        p->s[i] = beta2 * p->s[i] + (1 - beta2) * x[i] * x[i];
    }
    rotate(p, false, p->m, x);
    for (int i = 0; i < count && t; i++)
        x[i] = x[i] / (1 - pow(beta1, t)) / (sqrt(p->s[i] / (1 - pow(beta2, t))) + h->eps);
    rotate(p, true, x, x);
    for (int i = 0; i < count && t; i++) p->w[i] -= rate * (h->weight_decay * p->w[i] + x[i]);
    for (int which = 0; which < 2; which++) {
        const int n = which ? p->columns : p->rows;
        multiply(which, !which, n, n, which ? p->rows : p->columns, g, g, product);
        for (int i = 0; i < n * n; i++) p->side[which][i] = beta2 * p->side[which][i] + (1 - beta2) * product[i];
        if (t && t % h->every == 0) refine(p, which);
    }
}

static void submit(struct parameter *p, struct sgrad_shape shape, double *dw, double *squares, const struct sgrad_hyper *hyper,
                   double rate, int t) {
    const struct sgrad_step step = { .number = (uint32_t)t, .training = true, .lr = (float)rate };
    const struct sgrad_view view = { SGRAD_F32, shape }, left = { SGRAD_F32, { 2, { p->rows, p->rows } } },
                            right = { SGRAD_F32, { 2, { p->columns, p->columns } } };
    run_kernel(&sgrad_soap_kernel, hyper, &step, 0,
               (struct operand[]){ { view, SGRAD_RW, p->w },
                                   { view, SGRAD_R, dw },
                                   { { SGRAD_F64, { 1, { 1 } } }, SGRAD_R, squares },
                                   { view, SGRAD_RW, p->m },
                                   { view, SGRAD_RW, p->s },
                                   { left, SGRAD_RW, p->side[0] },
                                   { right, SGRAD_RW, p->side[1] },
                                   { left, SGRAD_RW, p->side[2] },
                                   { right, SGRAD_RW, p->side[3] } },
               3 + STATES);
}

/* Returns true if the columns of U are eigenvectors of L, orthonormal, in the order of decreasing eigenvalues. */
static bool are_eigenvectors(int n, const double *l, const double *u) {
    double half[SIDE * SIDE], x[SIDE * SIDE], most = 0;
    multiply(true, false, n, n, n, u, u, x);
    for (int i = 0; i < n * n; i++)
        if (fabs(x[i] - (i % (n + 1) == 0)) > 1e-5) return false;
    multiply(true, false, n, n, n, u, l, half);
    multiply(false, false, n, n, n, half, u, x);
    for (int i = 0; i < n * n; i++) most = fmax(most, fabs(x[i]));
    for (int i = 0; i < n * n; i++)
        if (i % (n + 1) && fabs(x[i]) > 1e-5 * most) return false;
    for (int i = 1; i < n; i++)
        if (x[i * n + i] > x[(i - 1) * n + i - 1] + 1e-5 * most) return false;
    return true;
}

struct trial {
    const char *name;
    struct sgrad_shape shape;
    double gradient;
    float decay, clip_norm;
};

static void train(const struct trial *trial) {
    const struct sgrad_hyper h = { .weight_decay = trial->decay, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-6f, .every = 3,
                                   .clip_norm = trial->clip_norm };
    const int rows = trial->shape.dim[0], count = (int)sgrad_shape_count(&trial->shape);
    struct parameter *got = calloc(1, sizeof *got), *wanted = calloc(1, sizeof *wanted);
    *got = (struct parameter){ .rows = rows, .columns = count / rows };
    for (int i = 0; i < count; i++) got->w[i] = (float)instance_normal(1, i);
    *wanted = *got;
    for (int k = 1; k <= STEPS; k++) {
        double dw[MOST], g[MOST], squares = 0;
        for (int i = 0; i < count; i++) {
            dw[i] = (float)(trial->gradient * (1 + i % 7) * instance_normal((uint32_t)k + 1, i));
            squares += dw[i] * dw[i];
        }
        const double clip = trial->clip_norm > 0 ? fmin(1, trial->clip_norm / (sqrt(squares) + 1e-6)) : 1;
        for (int i = 0; i < count; i++) g[i] = clip * dw[i];
        submit(got, trial->shape, dw, trial->clip_norm > 0 ? &squares : NULL, &h, (float)(0.5 / k), k);
        soap(wanted, g, &h, (float)(0.5 / k), k);
        for (int i = 0; i < 2 && k == 1; i++) {
            assert_true(are_eigenvectors(i ? got->columns : rows, got->side[i], got->side[2 + i]));
            memcpy(wanted->side[2 + i], got->side[2 + i], sizeof got->side[0]);
        }
        char text[128];
        snprintf(text, sizeof text, "%s, after step %d", trial->name, k);
        assert_true(near(text, got->w, wanted->w, count, 1e-4));
        assert_true(near(text, got->m, wanted->m, count, 1e-5));
        assert_true(near(text, got->s, wanted->s, count, 2e-4));
        assert_true(near(text, got->side[0], wanted->side[0], (int64_t)rows * rows, 1e-5));
        assert_true(near(text, got->side[1], wanted->side[1], (int64_t)got->columns * got->columns, 1e-5));
    }
    free(got), free(wanted);
}

static void is_the_papers(void **state) {
    (void)state;
    static const struct trial trials[] = {
        { "a matrix", { 2, { 30, 33 } }, 0.1, 1e-2f, 0 },
        { "a square", { 2, { 16, 16 } }, 1, 0, 0 },
        { "a filter", { 4, { 12, 2, 2, 4 } }, 10, 1e-2f, 0 },
        { "one element", { 2, { 1, 1 } }, 1, 1e-2f, 0 },
        { "clipped", { 2, { 20, 16 } }, 3, 1e-2f, 2 },
        { "without gradients", { 2, { 8, 8 } }, 0, 1e-2f, 0 },
    };
    for (size_t i = 0; i < sizeof trials / sizeof *trials; i++) train(&trials[i]);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = { sentence("SOAP computes what its paper says", is_the_papers) };
    return run_on_devices(argc, argv, tests);
}
