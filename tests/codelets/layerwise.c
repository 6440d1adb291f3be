/* layerwise.c: layer-wise optimizers, and others that PyTorch does not have, against the algorithms of their papers in double
 * precision. (PyTorch has Muon only in bf16.) A test trains a parameter for several steps with random gradients, then compares
 * weights and states.
 *
 *     LARS   You, Gitman, Ginsburg 2017, algorithm 1, with its rate and momentum
 *     LAMB   You et al. 2019, algorithm 2, φ(z) = z
 *     Muon   Jordan et al. 2024, with the published coefficients of its five steps
 *     NorMuon  Li et al. 2025, with the norm of its authors' implementation
 *     schedule-free AdamW  Defazio et al. 2024, algorithm 1, with all three sequences
 *
 * As in the implementations of LARS and LAMB, the ratio is 1 for vectors and if a norm is zero. */
#include "codelets/updates.h"
#include "tests/codelets/check.h"

SGRAD_UPDATE_KERNEL(lars);
SGRAD_UPDATE_KERNEL(lamb);
SGRAD_UPDATE_KERNEL(muon);
SGRAD_UPDATE_KERNEL(normuon);
SGRAD_UPDATE_KERNEL(schedulefree);
SGRAD_UPDATE_KERNEL(schedulefree_average);

enum { STEPS = 5, MOST = 12150 };

static double norm(const double *x, int64_t count) {
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += x[i] * x[i];
    return sqrt(sum);
}

struct parameter {
    struct sgrad_view view;
    int64_t count;
    double w[MOST], state[2][MOST];
    double x[MOST], z[MOST], sum;       /* of schedule-free training; sum of γ² */
};

/* G is the gradient, clipped. */
typedef void plain(struct parameter *p, const double *g, const struct sgrad_hyper *h, double rate, int t);

static void lars(struct parameter *parameter, const double *g, const struct sgrad_hyper *hyper, double rate, int t) {
    const double decay = hyper->weight_decay, momentum = hyper->momentum, w = norm(parameter->w, parameter->count),
                 dw = norm(g, parameter->count);
    const double local = parameter->view.shape.rank > 1 && w > 0 && dw > 0 ? hyper->trust * w / (dw + decay * w) : 1;
    (void)t;
    for (int64_t i = 0; i < parameter->count; i++) {
        const double step = rate * local * (g[i] + decay * parameter->w[i]), v = momentum * parameter->state[0][i] + step;
        parameter->w[i] -= hyper->nesterov ? momentum * v + step : v;
        parameter->state[0][i] = v;
    }
}

static void lamb(struct parameter *parameter, const double *g, const struct sgrad_hyper *hyper, double rate, int t) {
    double u[MOST], *m = parameter->state[0], *v = parameter->state[1];
    for (int64_t i = 0; i < parameter->count; i++) {
        m[i] = (double)hyper->beta1 * m[i] + (1 - (double)hyper->beta1) * g[i];
        v[i] = (double)hyper->beta2 * v[i] + (1 - (double)hyper->beta2) * g[i] * g[i];
        u[i] = m[i] / (1 - pow(hyper->beta1, t)) / (sqrt(v[i] / (1 - pow(hyper->beta2, t))) + hyper->eps) +
               hyper->weight_decay * parameter->w[i];
    }
    const double w_norm = norm(parameter->w, parameter->count), u_norm = norm(u, parameter->count);
    const double ratio = parameter->view.shape.rank > 1 && w_norm > 0 && u_norm > 0 ? w_norm / u_norm : 1;
    for (int64_t i = 0; i < parameter->count; i++) parameter->w[i] -= rate * ratio * u[i];
}

/* C = left (m,k) right (k,n) */
static void multiply(int m, int n, int k, const double *left, const double *right, double *c) {
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            c[i * n + j] = 0;
            for (int l = 0; l < k; l++) c[i * n + j] += left[i * k + l] * right[l * n + j];
        }
}

/* X (rows,columns), any, by five steps of Newton and Schulz, written with X Xᵀ on the left whatever the shape. */
static void orthogonalise(int rows, int columns, double *x) {
    double *turned = calloc((size_t)(rows * columns), sizeof *x), *a = calloc((size_t)(rows * rows), sizeof *a),
           *squared = calloc((size_t)(rows * rows), sizeof *a), *more = calloc((size_t)(rows * columns), sizeof *x);
    const double length = norm(x, rows * columns) + 1e-7;
    for (int i = 0; i < rows * columns; i++) x[i] /= length;
    for (int step = 0; step < 5; step++) {
        for (int i = 0; i < rows; i++)
            for (int j = 0; j < columns; j++) turned[j * rows + i] = x[i * columns + j];
        multiply(rows, rows, columns, x, turned, a);
        multiply(rows, rows, rows, a, a, squared);
        for (int i = 0; i < rows * rows; i++) a[i] = -4.7750 * a[i] + 2.0315 * squared[i];
        multiply(rows, columns, rows, a, x, more);
        for (int i = 0; i < rows * columns; i++) x[i] = 3.4445 * x[i] + more[i];
    }
    free(turned), free(a), free(squared), free(more);
}

/* Divides each row of X (rows,columns) by the root of V, its mean square over all steps, and keeps the norm of X. */
static void even_out(int rows, int columns, double beta2, double *x, double *v) {
    const double before = norm(x, rows * columns);
    for (int i = 0; i < rows; i++) {
        const double length = norm(x + i * columns, columns);
        v[i] = beta2 * v[i] + (1 - beta2) * length * length / columns;
        for (int j = 0; j < columns; j++) x[i * columns + j] /= sqrt(v[i]) + 1e-10;
    }
    const double after = norm(x, rows * columns);
    for (int i = 0; i < rows * columns; i++) x[i] *= before / (after + 1e-10);
}

static void muons(struct parameter *parameter, const double *g, const struct sgrad_hyper *hyper, double rate, bool even) {
    double u[MOST], *b = parameter->state[0], longer = 1;
    for (int64_t i = 0; i < parameter->count; i++) {
        b[i] = hyper->momentum * b[i] + g[i];
        u[i] = hyper->nesterov ? g[i] + hyper->momentum * b[i] : b[i];
    }
    if (parameter->view.shape.rank > 1) {
        const int rows = parameter->view.shape.dim[0], columns = (int)parameter->count / rows;
        orthogonalise(rows, columns, u);
        if (even) even_out(rows, columns, hyper->beta2, u, parameter->state[1]);
        longer = sqrt(fmax(1, (double)rows / columns));
    }
    for (int64_t i = 0; i < parameter->count; i++)
        parameter->w[i] -= rate * (hyper->weight_decay * parameter->w[i] + longer * u[i]);
}

static void muon(struct parameter *parameter, const double *g, const struct sgrad_hyper *hyper, double rate, int t) {
    (void)t;
    muons(parameter, g, hyper, rate, false);
}

static void normuon(struct parameter *parameter, const double *g, const struct sgrad_hyper *hyper, double rate, int t) {
    (void)t;
    muons(parameter, g, hyper, rate, true);
}

/* The gradients are those at y = w. */
static void schedulefree(struct parameter *parameter, const double *g, const struct sgrad_hyper *hyper, double rate, int t) {
    const double beta1 = hyper->beta1, beta2 = hyper->beta2, gamma = rate * sqrt(1 - pow(beta2, t));
    parameter->sum += gamma * gamma;
    const double c = gamma * gamma / parameter->sum;
    for (int64_t i = 0; i < parameter->count; i++) {
        double *w = &parameter->w[i], *v = &parameter->state[1][i], *z = &parameter->z[i], *x = &parameter->x[i];
        if (t == 1) *z = *x = *w;
        *v = beta2 * *v + (1 - beta2) * g[i] * g[i];
        *z -= gamma * (g[i] / (sqrt(*v) + hyper->eps) + hyper->weight_decay * *w);
        *x = (1 - c) * *x + c * *z;
        *w = (1 - beta1) * *z + beta1 * *x;
        parameter->state[0][i] = t > 1 ? *z - *w : 0;       /* not its rounding error */
    }
}

/* What is tried: the shape, how large weights and gradients are, the rule's numbers. */
struct trial {
    const char *name;
    struct sgrad_shape shape;
    double weight, gradient;
    float momentum, decay, clip_norm;
    bool nesterov;
};
static const struct trial trials[] = {
    { "a matrix", { 2, { 64, 16 } }, 1, 0.1, 0.9f, 1e-2f, 0, false },
    { "a filter of odd size", { 4, { 5, 3, 3, 7 } }, 1, 0.1, 0.9f, 1e-2f, 0, false },
    { "one row", { 2, { 1, 1 } }, 1, 1, 0.9f, 1e-2f, 0, false },
    { "a large matrix", { 2, { 150, 81 } }, 0.05, 10, 0.9f, 1e-4f, 0, false },
    { "without momentum and decay", { 2, { 30, 33 } }, 1, 0.1, 0, 0, 0, false },
    { "Nesterov's momentum", { 2, { 30, 33 } }, 1, 0.1, 0.9f, 1e-2f, 0, true },
    { "clipped", { 2, { 64, 16 } }, 1, 3, 0.9f, 1e-2f, 2, false },
    { "not clipped", { 2, { 64, 16 } }, 1, 0.01, 0.9f, 1e-2f, 2, false },
    { "zero weights", { 2, { 64, 16 } }, 0, 0.1, 0.9f, 1e-2f, 0, false },
    { "zero gradients", { 2, { 64, 16 } }, 1, 0, 0.9f, 1e-2f, 0, false },
    { "zero weights and gradients", { 2, { 64, 16 } }, 0, 0, 0.9f, 1e-2f, 2, false },
    { "a vector", { 1, { 100 } }, 1, 0.1, 0.9f, 1e-2f, 0, false },
};

static void submit(const struct sgrad_kernel *kernel, int states, struct parameter *parameter, double *dw, double *squares,
                   const struct sgrad_hyper *hyper, double rate, int t) {
    const double gamma = rate * sqrt(1 - pow(hyper->beta2, t));
    parameter->sum += gamma * gamma;
    const struct sgrad_step step = { .number = (uint32_t)t, .training = true, .lr = (float)rate,
                                     .lr_share = (float)(gamma * gamma / parameter->sum) };
    run_kernel(kernel, hyper, &step, 0,
               (struct operand[]){ { parameter->view, SGRAD_RW, parameter->w },
                                   { parameter->view, SGRAD_R, dw },
                                   { { SGRAD_F64, { 1, { 1 } } }, SGRAD_R, squares },
                                   { parameter->view, SGRAD_RW, parameter->state[0] },
                                   { parameter->view, SGRAD_RW, parameter->state[1] } },
               3 + states);
    if (kernel != &sgrad_schedulefree_kernel) return;
    run_kernel(&sgrad_schedulefree_average_kernel, hyper, &step, 0,
               (struct operand[]){ { parameter->view, SGRAD_R, parameter->w }, { parameter->view, SGRAD_RW, parameter->x } }, 2);
}

static void train(const struct sgrad_kernel *kernel, plain *rule, int states, const struct trial *trial, double tolerance) {
    const struct sgrad_hyper h = { .momentum = trial->momentum,
                                   .weight_decay = trial->decay,
                                   .beta1 = 0.9f,
                                   .beta2 = 0.99f,
                                   .eps = 1e-6f,
                                   .trust = 0.02f,
                                   .clip_norm = trial->clip_norm,
                                   .nesterov = trial->nesterov };
    struct parameter got = { .view = { SGRAD_F32, trial->shape }, .count = sgrad_shape_count(&trial->shape) }, wanted;
    char text[128];
    for (int64_t i = 0; i < got.count; i++) got.w[i] = (float)(trial->weight * instance_normal(1, i));
    wanted = got;
    for (int k = 1; k <= STEPS; k++) {
        double dw[MOST], g[MOST], squares, rate = (float)(0.5 / k);
        for (int64_t i = 0; i < got.count; i++) dw[i] = (float)(trial->gradient * instance_normal((uint32_t)k + 1, i));
        squares = norm(dw, got.count) * norm(dw, got.count);
        const double clip = trial->clip_norm > 0 ? fmin(1, trial->clip_norm / (sqrt(squares) + 1e-6)) : 1;
        for (int64_t i = 0; i < got.count; i++) g[i] = clip * dw[i];
        submit(kernel, states, &got, dw, trial->clip_norm > 0 ? &squares : NULL, &h, rate, k);
        rule(&wanted, g, &h, rate, k);
        snprintf(text, sizeof text, "%s, %s, weights after step %d", kernel->name, trial->name, k);
        assert_true(near(text, got.w, wanted.w, got.count, tolerance));
        for (int s = 0; s < states; s++) {
            snprintf(text, sizeof text, "%s, %s, state %d after step %d", kernel->name, trial->name, s, k);
            assert_true(near(text, got.state[s], wanted.state[s], got.count, tolerance));
        }
        snprintf(text, sizeof text, "%s, %s, average after step %d", kernel->name, trial->name, k);
        assert_true(near(text, got.x, wanted.x, got.count, tolerance));
    }
}

static void lars_is_the_papers(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof trials / sizeof *trials; i++) train(&sgrad_lars_kernel, lars, 1, &trials[i], 1e-5);
}

static void lamb_is_the_papers(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof trials / sizeof *trials; i++) train(&sgrad_lamb_kernel, lamb, 2, &trials[i], 1e-5);
}

/* Small singular values grow nearly 500 times, and the rounding errors of small ones with them. */
static void muon_is_the_published(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof trials / sizeof *trials; i++) train(&sgrad_muon_kernel, muon, 1, &trials[i], 2e-4);
}

static void normuon_is_the_published(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof trials / sizeof *trials; i++) train(&sgrad_normuon_kernel, normuon, 2, &trials[i], 5e-4);
}

static void schedulefree_is_the_papers(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof trials / sizeof *trials; i++)
        train(&sgrad_schedulefree_kernel, schedulefree, 2, &trials[i], 1e-5);
}

/* What the ratio is for: how long a step is does not depend on how large the gradient is. */
static void scale_of_gradients(void **state) {
    (void)state;
    static const struct sgrad_kernel *const kernels[] = { &sgrad_lars_kernel, &sgrad_lamb_kernel };
    const struct sgrad_hyper h = { .momentum = 0.9f, .beta1 = 0.9f, .beta2 = 0.99f, .eps = 1e-20f, .trust = 0.02f };
    for (int k = 0; k < 2; k++) {
        struct parameter small = { .view = { SGRAD_F32, { 2, { 20, 30 } } }, .count = 600 }, large;
        double dw[600], times[600];
        for (int64_t i = 0; i < 600; i++) {
            small.w[i] = (float)instance_normal(1, i);
            dw[i] = (float)instance_normal(2, i);
            times[i] = 1024 * dw[i];
        }
        large = small;
        submit(kernels[k], k + 1, &small, dw, NULL, &h, 0.1, 1);
        submit(kernels[k], k + 1, &large, times, NULL, &h, 0.1, 1);
        assert_true(near("weights, the gradient 1024 times as large", large.w, small.w, 600, 1e-6));
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        sentence("LARS computes what its paper says", lars_is_the_papers),
        sentence("LAMB computes what its paper says", lamb_is_the_papers),
        sentence("Muon computes what its authors published", muon_is_the_published),
        sentence("NorMuon computes what its authors published", normuon_is_the_published),
        sentence("schedule-free AdamW computes what its paper says", schedulefree_is_the_papers),
        sentence("the steps of LARS and LAMB do not depend on the scale of gradients", scale_of_gradients),
    };
    return run_on_devices(argc, argv, tests);
}
