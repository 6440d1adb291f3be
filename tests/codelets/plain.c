/* plain.c: the most important operations, written again as plain loops in double precision, and compared with the real ones on
 * all test shapes of their records. A loop does forward and backward at once: y = f(x) and dx = (∂y/∂x)ᵀ·dy. */
#include "codelets/ops/average_pool.h"
#include "codelets/ops/batchnorm.h"
#include "codelets/ops/conv2d.h"
#include "codelets/ops/linear.h"
#include "codelets/ops/max_pool.h"
#include "codelets/ops/mean_squared_error.h"
#include "codelets/ops/softmax_cross_entropy.h"
#include "tests/codelets/check.h"

/* The values of an instance's tensors, by role and index; absent ones are NULL. A loop reads x, p, s, dy from IN and adds to
 * what is wanted in OUT, which starts as zeros. */
struct values {
    double *of[ROLES][SGRAD_MAX_INPUTS];
};
typedef void plain(const struct instance *t, const struct values *in, struct values *out);

/* ---- the loops ---- */

/* (N,H,W,C) of images; of the slices of volumes (N,D,H,W,C), each an image, with D for N. */
static const int64_t *image(const struct sgrad_shape *shape) { return shape->dim + shape->rank - 4; }

/* x (N,H,W,C), w (K,R,S,C/groups), y (N,P,Q,K) */
static void conv2d(const struct instance *instance, const struct values *in, struct values *out) {
    const struct sgrad_conv2d *a = instance->attrs;
    const int64_t *x = image(&instance->is.x[0].shape), *y = image(&instance->is.y.shape), K = a->channels, R = a->kernel,
                  C = x[3] / a->groups;
    for (int64_t i = 0; i < sgrad_shape_count(&instance->is.y.shape); i++) {
        const int64_t n = i / (y[1] * y[2] * K), p = i / (y[2] * K) % y[1], q = i / K % y[2], k = i % K,
                      group = k / (K / a->groups);
        const double dy = in->of[SGRAD_DY][0][i];
        if (a->bias) {
            out->of[SGRAD_Y][0][i] = in->of[SGRAD_P][1][k];
            out->of[SGRAD_DP][1][k] += dy;
        }
        for (int64_t tap = 0; tap < R * R * C; tap++) {
            const int64_t r = tap / (R * C), s = tap / C % R, c = tap % C;
            const int64_t h = p * a->stride + r * a->dilation - a->padding, v = q * a->stride + s * a->dilation - a->padding;
            if (h < 0 || h >= x[1] || v < 0 || v >= x[2]) continue;
            const int64_t at = ((n * x[1] + h) * x[2] + v) * x[3] + group * C + c, w = k * R * R * C + tap;
            out->of[SGRAD_Y][0][i] += in->of[SGRAD_P][0][w] * in->of[SGRAD_X][0][at];
            out->of[SGRAD_DX][0][at] += in->of[SGRAD_P][0][w] * dy;
            out->of[SGRAD_DP][0][w] += in->of[SGRAD_X][0][at] * dy;
        }
    }
}

/* x (N,…,C), w (K,C), y (N,…,K) */
static void linear(const struct instance *instance, const struct values *in, struct values *out) {
    const struct sgrad_linear *a = instance->attrs;
    const struct sgrad_shape *shape = &instance->is.x[0].shape;
    const int64_t C = shape->dim[shape->rank - 1], N = sgrad_shape_count(shape) / C, K = a->features;
    for (int64_t n = 0; n < N; n++)
        for (int64_t k = 0; k < K; k++) {
            const double dy = in->of[SGRAD_DY][0][n * K + k];
            if (a->bias) {
                out->of[SGRAD_Y][0][n * K + k] = in->of[SGRAD_P][1][k];
                out->of[SGRAD_DP][1][k] += dy;
            }
            for (int64_t c = 0; c < C; c++) {
                out->of[SGRAD_Y][0][n * K + k] += in->of[SGRAD_P][0][k * C + c] * in->of[SGRAD_X][0][n * C + c];
                out->of[SGRAD_DX][0][n * C + c] += in->of[SGRAD_P][0][k * C + c] * dy;
                out->of[SGRAD_DP][0][k * C + c] += in->of[SGRAD_X][0][n * C + c] * dy;
            }
        }
}

/* y = relu?((x - mean) / √(var + eps) · weight + bias + r?) of channel C; returns 1 / √(var + eps) */
static double normalise(const struct instance *instance, const struct values *in, struct values *out, int64_t c, double mean,
                        double variance) {
    const struct sgrad_batchnorm *a = instance->attrs;
    const int64_t count = sgrad_shape_count(&instance->is.y.shape), C = instance->is.y.shape.dim[instance->is.y.shape.rank - 1];
    const double inverse = 1 / sqrt(variance + (double)a->eps), *r = in->of[SGRAD_X][1];
    for (int64_t i = c; i < count; i += C) {
        const double y =
            (in->of[SGRAD_X][0][i] - mean) * inverse * in->of[SGRAD_P][0][c] + in->of[SGRAD_P][1][c] + (r ? r[i] : 0);
        out->of[SGRAD_Y][0][i] = a->relu && y < 0 ? 0 : y;
    }
    return inverse;
}

static void batchnorm(const struct instance *instance, const struct values *in, struct values *out) {
    const struct sgrad_batchnorm *a = instance->attrs;
    const int64_t count = sgrad_shape_count(&instance->is.y.shape), C = instance->is.y.shape.dim[instance->is.y.shape.rank - 1];
    const double *x = in->of[SGRAD_X][0], n = (double)(count / C), momentum = (double)a->momentum;
    for (int64_t c = 0; c < C; c++) {
        double mean = 0, variance = 0, bias = 0, weight = 0;
        for (int64_t i = c; i < count; i += C) mean += x[i] / n;
        for (int64_t i = c; i < count; i += C) variance += (x[i] - mean) * (x[i] - mean) / n;
        const double inverse = normalise(instance, in, out, c, mean, variance);
        for (int64_t i = c; i < count; i += C) {
            const double dz = a->relu && out->of[SGRAD_Y][0][i] <= 0 ? 0 : in->of[SGRAD_DY][0][i];
            if (out->of[SGRAD_DX][1]) out->of[SGRAD_DX][1][i] = dz;
            out->of[SGRAD_DX][0][i] = dz;
            bias += dz;
            weight += dz * (x[i] - mean) * inverse;
        }
        for (int64_t i = c; i < count; i += C)
            out->of[SGRAD_DX][0][i] = in->of[SGRAD_P][0][c] * inverse *
                                      (out->of[SGRAD_DX][0][i] - bias / n - (x[i] - mean) * inverse * weight / n);
        out->of[SGRAD_DP][0][c] = weight;
        out->of[SGRAD_DP][1][c] = bias;
        out->of[SGRAD_STAT][0][c] = mean;
        out->of[SGRAD_STAT][0][C + c] = variance * n / (n - 1);
        for (int i = 0; i < 2; i++)
            out->of[SGRAD_S][i][c] = (1 - momentum) * in->of[SGRAD_S][i][c] + momentum * out->of[SGRAD_STAT][0][i * C + c];
    }
    out->of[SGRAD_S][2][0] = in->of[SGRAD_S][2][0] + 1;
}

static void batchnorm_inference(const struct instance *instance, const struct values *in, struct values *out) {
    for (int64_t c = 0; c < instance->is.y.shape.dim[instance->is.y.shape.rank - 1]; c++)
        normalise(instance, in, out, c, in->of[SGRAD_S][0][c], in->of[SGRAD_S][1][c]);
}

/* Where, in x (N,H,W,C), tap (R,S) of output I of y (N,P,Q,C) lies; -1: in the padding. */
static int64_t tap(const struct instance *instance, int stride, int padding, int64_t i, int64_t r, int64_t s) {
    const int64_t *x = image(&instance->is.x[0].shape), *y = image(&instance->is.y.shape), C = y[3];
    const int64_t n = i / (y[1] * y[2] * C), h = i / (y[2] * C) % y[1] * stride - padding + r,
                  v = i / C % y[2] * stride - padding + s;
    return h < 0 || h >= x[1] || v < 0 || v >= x[2] ? -1 : ((n * x[1] + h) * x[2] + v) * C + i % C;
}

static void max_pool(const struct instance *instance, const struct values *in, struct values *out) {
    const struct sgrad_max_pool *a = instance->attrs;
    for (int64_t i = 0; i < sgrad_shape_count(&instance->is.y.shape); i++) {
        int64_t best = -1;
        for (int64_t k = 0; k < a->kernel * a->kernel; k++) {
            const int64_t at = tap(instance, a->stride, a->padding, i, k / a->kernel, k % a->kernel);
            if (at >= 0 && (best < 0 || in->of[SGRAD_X][0][at] > in->of[SGRAD_X][0][best])) best = at;
        }
        out->of[SGRAD_Y][0][i] = in->of[SGRAD_X][0][best];
        out->of[SGRAD_DX][0][best] += in->of[SGRAD_DY][0][i];
    }
}

static void average_pool(const struct instance *instance, const struct values *in, struct values *out) {
    const struct sgrad_average_pool *a = instance->attrs;
    const int taps = a->kernel * a->kernel;
    for (int64_t i = 0; i < sgrad_shape_count(&instance->is.y.shape); i++) {
        int inside = 0;
        for (int k = 0; k < taps; k++) inside += tap(instance, a->stride, a->padding, i, k / a->kernel, k % a->kernel) >= 0;
        for (int k = 0; k < taps; k++) {
            const int64_t at = tap(instance, a->stride, a->padding, i, k / a->kernel, k % a->kernel);
            if (at < 0) continue;
            out->of[SGRAD_Y][0][i] += in->of[SGRAD_X][0][at] / (a->exclude_padding ? inside : taps);
            out->of[SGRAD_DX][0][at] += in->of[SGRAD_DY][0][i] / (a->exclude_padding ? inside : taps);
        }
    }
}

/* Returns w q of class C of row N: its target, smoothed and weighted. COUNT: number of classes. */
static double weighted_target(const struct instance *instance, const struct values *in, int64_t n, int64_t c, int64_t count) {
    const struct sgrad_softmax_cross_entropy *a = instance->attrs;
    const double smoothing = (double)a->label_smoothing, share = in->of[SGRAD_X][3] ? in->of[SGRAD_X][3][n] : 1;
    const int64_t label = (int64_t)in->of[SGRAD_X][1][n], other = in->of[SGRAD_X][2] ? (int64_t)in->of[SGRAD_X][2][n] : label;
    const double q = smoothing / (double)count + (share * (c == label) + (1 - share) * (c == other)) * (1 - smoothing);
    return in->of[SGRAD_S][0] ? q * in->of[SGRAD_S][0][c] : q;
}

/* x (N,…,C), labels (N,…), state: weights of classes (C), statistic: Σ loss, correct, of 20 classes or more those among the best
 * five, rows; dx is of the mean loss */
static void softmax_cross_entropy(const struct instance *instance, const struct values *in, struct values *out) {
    const struct sgrad_softmax_cross_entropy *a = instance->attrs;
    const int64_t N = sgrad_shape_count(&instance->is.x[1].shape), C = sgrad_shape_count(&instance->is.x[0].shape) / N;
    double *statistic = out->of[SGRAD_STAT][0], gamma = (double)a->focal_gamma;
    for (int64_t c = 0; c < C && in->of[SGRAD_S][0]; c++) out->of[SGRAD_S][0][c] = in->of[SGRAD_S][0][c];
    for (int64_t n = 0; n < N; n++) {
        const double *x = in->of[SGRAD_X][0] + n * C, share = in->of[SGRAD_X][3] ? in->of[SGRAD_X][3][n] : 1;
        const int64_t major = (int64_t)in->of[SGRAD_X][share >= 0.5 ? 1 : 2][n];
        double sum = 0, mass = 0;
        int larger = 0;
        for (int64_t c = 0; c < C; c++) sum += exp(x[c]), mass += weighted_target(instance, in, n, c, C);
        const double t = exp(x[major]) / sum, focus = gamma > 0 ? pow(1 - t, gamma) : 1;
        const double slope = gamma > 0 ? focus - gamma * t * pow(1 - t, gamma - 1) * log(t) : 1;
        for (int64_t c = 0; c < C; c++) {
            const double p = exp(x[c]) / sum, q = weighted_target(instance, in, n, c, C);
            statistic[0] -= focus * q * log(p);
            out->of[SGRAD_DX][0][n * C + c] = slope * (p * mass - q) / (double)N;
            larger += x[c] > x[major];
        }
        statistic[1] += larger == 0;
        if (C >= 20) statistic[2] += larger < 5;
        statistic[C < 20 ? 2 : 3]++;
    }
}

/* y and t of any shape, statistic: Σ (y-t)², Σ |y-t|, elements; dy is of the mean loss */
static void mean_squared_error(const struct instance *instance, const struct values *in, struct values *out) {
    const int64_t count = sgrad_shape_count(&instance->is.x[0].shape);
    double *statistic = out->of[SGRAD_STAT][0];
    for (int64_t i = 0; i < count; i++) {
        const double d = in->of[SGRAD_X][0][i] - in->of[SGRAD_X][1][i];
        statistic[0] += d * d;
        statistic[1] += fabs(d);
        statistic[2]++;
        out->of[SGRAD_DX][0][i] = 2 * d / (double)count;
    }
}

/* ---- the comparison ---- */

static const struct {
    const struct sgrad_op *op;
    plain *training, *inference;    /* NULL: evaluation gives the same y */
} loops[] = {
    { &sgrad_conv2d_op, conv2d, NULL },
    { &sgrad_linear_op, linear, NULL },
    { &sgrad_batchnorm_op, batchnorm, batchnorm_inference },
    { &sgrad_max_pool_op, max_pool, NULL },
    { &sgrad_average_pool_op, average_pool, NULL },
    { &sgrad_softmax_cross_entropy_op, softmax_cross_entropy, NULL },
    { &sgrad_mean_squared_error_op, mean_squared_error, NULL },
};

/* What the tensors hold, or as many zeros. */
static struct values values_of(const struct instance *instance, bool zeros) {
    struct values v = { 0 };
    for (int role = 0; role < ROLES; role++)
        for (int i = 0; i < SGRAD_MAX_INPUTS; i++) {
            struct sgrad_tensor *tensor = instance->tensor[role][i];
            if (tensor)
                v.of[role][i] = zeros ? sgrad_xcalloc((size_t)instance_count(tensor), sizeof(double)) : instance_read(tensor);
        }
    return v;
}

static void free_values(struct values *values) {
    for (int role = 0; role < ROLES; role++)
        for (int i = 0; i < SGRAD_MAX_INPUTS; i++) free(values->of[role][i]);
}

/* The tensors of ROLE against what the loop found. */
static bool compare(const struct instance *instance, enum sgrad_role role, const struct values *wanted) {
    static const char *const names[ROLES] = {
        [SGRAD_Y] = "y", [SGRAD_STAT] = "statistic", [SGRAD_DX] = "dx", [SGRAD_DP] = "dp", [SGRAD_S] = "state"
    };
    bool good = true;
    for (int i = 0; i < SGRAD_MAX_INPUTS; i++) {
        if (!instance->tensor[role][i]) continue;
        char *what = sgrad_format("%s, %s: %s %d", instance->op->name, instance->test->name, names[role], i);
        double *got = instance_read(instance->tensor[role][i]);
        good &= near(what, got, wanted->of[role][i], instance_count(instance->tensor[role][i]), 1e-4);
        free(got);
        free(what);
    }
    return good;
}

static bool check_row(struct instance *instance, plain *training, plain *inference) {
    struct values in = values_of(instance, false), out = values_of(instance, true);
    bool good = true;
    training(instance, &in, &out);
    assert_done(instance_run(instance, instance->op->forward, 0));
    assert_done(instance_run(instance, instance->op->backward, 0));
    good &= compare(instance, SGRAD_Y, &out) & compare(instance, SGRAD_STAT, &out) & compare(instance, SGRAD_DX, &out) &
            compare(instance, SGRAD_DP, &out);

    if (inference) inference(instance, &in, &out);
    if (instance->op->inference[0].kernel.name) {
        assert_done(instance_run(instance, instance->op->inference, 0));
        good &= compare(instance, SGRAD_Y, &out);
    }
    assert_done(instance_run(instance, instance->op->finish, 0)); /* after evaluation, which reads the states that it changes */
    good &= compare(instance, SGRAD_S, &out);
    free_values(&in);
    free_values(&out);
    return good;
}

static void loops_agree(void **state) {
    (void)state;
    bool good = true;
    for (size_t k = 0; k < sizeof loops / sizeof *loops; k++)
        for (int i = 0; i < SGRAD_MAX_TESTS && loops[k].op->tests[i].name; i++) {
            struct instance t;
            assert_done(instance_open(&t, loops[k].op, &loops[k].op->tests[i], SGRAD_F32));
            instance_fill(&t);
            good &= check_row(&t, loops[k].training, loops[k].inference);
            instance_close(&t);
        }
    assert_true(good);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        sentence("operations equal plain loops in double precision", loops_agree),
    };
    return run_on_devices(argc, argv, tests);
}
