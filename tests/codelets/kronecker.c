/* kronecker.c: K-FAC kernels against plain ones in double precision: factors of images with odd sizes, strides, dilations and
 * groups; decompositions multiplied together again; preconditioned gradients; the step. */
#include "codelets/kfac/kronecker.h"
#include "codelets/updates.h"
#include "tests/codelets/check.h"

SGRAD_UPDATE_KERNEL(kfac);

static double *normals(uint32_t stream, enum sgrad_dtype type, int64_t count) {
    double *values = sgrad_xcalloc((size_t)count, sizeof *values);
    for (int64_t i = 0; i < count; i++) {
        const float x = (float)instance_normal(stream, i);
        values[i] = type == SGRAD_BF16 ? (double)sgrad_bf16_to_f32(sgrad_f32_to_bf16(x)) : (double)x;
    }
    return values;
}

/* ---- factors ---- */

struct trial {
    const char *name;
    struct sgrad_shape x;
    struct sgrad_kronecker_factor how;
};
static const struct trial trials[] = {
    { "3x3 of 3 channels, bias", { 4, { 2, 7, 6, 3 } }, { { 3, 1, 1, 1, 1 }, true } },
    { "3x3 of 16 channels", { 4, { 3, 8, 8, 16 } }, { { 3, 1, 1, 1, 1 }, false } },
    { "3x3 of 40 channels, bias", { 4, { 2, 5, 4, 40 } }, { { 3, 1, 1, 1, 1 }, true } },
    { "3x3 without padding", { 4, { 2, 7, 9, 5 } }, { { 3, 1, 0, 1, 1 }, true } },
    { "3x3, padding 2", { 4, { 1, 5, 6, 17 } }, { { 3, 1, 2, 1, 1 }, false } },
    { "3x3 stride 2, odd image", { 4, { 3, 7, 5, 5 } }, { { 3, 2, 1, 1, 1 }, true } },
    { "3x3 stride 2, even image", { 4, { 2, 8, 6, 16 } }, { { 3, 2, 1, 1, 1 }, false } },
    { "3x3 stride 3 without padding", { 4, { 2, 8, 11, 4 } }, { { 3, 3, 0, 1, 1 }, true } },
    { "1x1", { 4, { 2, 3, 5, 17 } }, { { 1, 1, 0, 1, 1 }, true } },
    { "1x1 stride 2", { 4, { 2, 6, 5, 16 } }, { { 1, 2, 0, 1, 1 }, true } },
    { "5x5 dilation 2", { 4, { 1, 10, 11, 2 } }, { { 5, 1, 1, 2, 1 }, true } },
    { "3x3 dilation 2, padding 2", { 4, { 2, 6, 7, 9 } }, { { 3, 1, 2, 2, 1 }, false } },
    { "3x3 in 2 groups, bias", { 4, { 2, 5, 6, 6 } }, { { 3, 1, 1, 1, 2 }, true } },
    { "3x3 depthwise, stride 2", { 4, { 2, 7, 7, 5 } }, { { 3, 2, 1, 1, 5 }, false } },
    { "7x7 stride 2 pad 3", { 4, { 1, 9, 11, 3 } }, { { 7, 2, 3, 1, 1 }, false } },
    { "filter as large as the padded image", { 4, { 2, 3, 3, 4 } }, { { 5, 1, 1, 1, 1 }, true } },
    { "one pixel", { 4, { 2, 1, 1, 3 } }, { { 3, 1, 1, 1, 1 }, true } },
    { "3x3 on slices", { 5, { 2, 3, 5, 4, 5 } }, { { 3, 1, 1, 1, 1 }, true } },
    { "1x1 stride 2 on slices", { 5, { 1, 2, 5, 4, 3 } }, { { 1, 2, 0, 1, 1 }, true } },
    { "rows, bias", { 2, { 8, 64 } }, { { .groups = 1 }, true } },
    { "rows of rows", { 3, { 2, 5, 19 } }, { { .groups = 1 }, true } },
    { "one row of one", { 2, { 1, 1 } }, { { .groups = 1 }, false } },
    { "many rows", { 4, { 3, 50, 50, 33 } }, { { .groups = 1 }, false } },
    { "rows of 3 groups", { 4, { 3, 5, 4, 12 } }, { { .groups = 3 }, false } },
    /* As many samples as AMX takes. */
    { "3x3 of 16 channels, 8 samples", { 4, { 8, 8, 6, 16 } }, { { 3, 1, 1, 1, 1 }, true } },
    { "3x3 of 24 channels, 37 samples", { 4, { 37, 5, 4, 24 } }, { { 3, 1, 1, 1, 1 }, false } },
    { "3x3 stride 2, 67 samples, bias", { 4, { 67, 7, 8, 5 } }, { { 3, 2, 1, 1, 1 }, true } },
    { "1x1 stride 2, 9 samples", { 4, { 9, 6, 5, 33 } }, { { 1, 2, 0, 1, 1 }, false } },
    { "3x3 in 2 groups, 33 samples, bias", { 4, { 33, 5, 6, 38 } }, { { 3, 1, 1, 1, 2 }, true } },
    { "5x5 dilation 2, 10 samples", { 4, { 10, 12, 11, 2 } }, { { 5, 1, 1, 2, 1 }, true } },
    { "3x3 of large images, in bands", { 4, { 8, 24, 22, 17 } }, { { 3, 1, 1, 1, 1 }, true } },
    { "3x3 stride 2 in bands", { 4, { 9, 25, 23, 17 } }, { { 3, 2, 1, 1, 1 }, false } },
    { "3x3 on 8 slices", { 5, { 2, 4, 5, 4, 5 } }, { { 3, 1, 1, 1, 1 }, true } },
    { "rows in bands, bias", { 2, { 9000, 70 } }, { { .groups = 1 }, true } },
};

/* Element E of the patch of group GROUP at (p,q) of image n. */
static double element(const struct trial *trial, const double *x, int64_t group, int64_t n, int64_t p, int64_t q, int64_t e) {
    const struct sgrad_patches *how = &trial->how.patches;
    const int64_t *dim = trial->x.dim, of_group = dim[3] / how->groups, c = e % of_group, tap = e / of_group;
    const int64_t h = p * how->stride + tap / how->kernel * how->dilation - how->padding,
                  w = q * how->stride + tap % how->kernel * how->dilation - how->padding;
    if (tap == (int64_t)how->kernel * how->kernel) return 1;
    if (h < 0 || h >= dim[1] || w < 0 || w >= dim[2]) return 0;
    return x[((n * dim[1] + h) * dim[2] + w) * dim[3] + group * of_group + c];
}

static int64_t positions(const struct sgrad_patches *how, int64_t extent) {
    return (extent + 2 * how->padding - (how->kernel - 1) * how->dilation - 1) / how->stride + 1;
}

/* SUM += the products of all patches; of rows as of images of one pixel. */
static void plain_factor(const struct trial *given, const double *x, double *sum) {
    struct trial t = *given;
    if (!t.how.patches.kernel) {
        const int64_t channels = t.x.dim[t.x.rank - 1];
        t.x = (struct sgrad_shape){ 4, { sgrad_shape_count(&t.x) / channels, 1, 1, channels } };
        t.how.patches = (struct sgrad_patches){ 1, 1, 0, 1, t.how.patches.groups };
    }
    if (t.x.rank == 5) t.x = (struct sgrad_shape){ 4, { t.x.dim[0] * t.x.dim[1], t.x.dim[2], t.x.dim[3], t.x.dim[4] } };
    const struct sgrad_patches *how = &t.how.patches;
    const int64_t n = sgrad__patch_length(how, t.x.dim[3], t.how.bias);
    for (int64_t g = 0; g < how->groups; g++)
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = i; j < n; j++, sum++)
                for (int64_t k = 0; k < t.x.dim[0]; k++)
                    for (int64_t p = 0; p < positions(how, t.x.dim[1]); p++)
                        for (int64_t q = 0; q < positions(how, t.x.dim[2]); q++)
                            *sum += element(&t, x, g, k, p, q, i) * element(&t, x, g, k, p, q, j);
}

static void check_factor(const struct trial *trial, enum sgrad_dtype type, bool added) {
    const int64_t count = sgrad_shape_count(&trial->x), groups = trial->how.patches.groups,
                  n = sgrad__patch_length(&trial->how.patches, trial->x.dim[trial->x.rank - 1], trial->how.bias),
                  size = groups * sgrad__triangle(n);
    const struct sgrad_view view = { SGRAD_F32, { 2, { groups, sgrad__triangle(n) } } };
    double *x = normals(1, type, count), *got = normals(2, SGRAD_F32, size), *wanted = normals(2, SGRAD_F32, size);
    for (int64_t i = 0; i < size && !added; i++) wanted[i] = 0;
    plain_factor(trial, x, wanted);
    struct sgrad_kernel kernel = sgrad_kronecker_factor_kernel;
    struct sgrad_bound_kernel call = { .kernel = &kernel, .attrs = &trial->how, .operands = 2, .accumulate = added ? 2 : 0,
                               .view = { { type, trial->x }, view }, .access = { SGRAD_R, added ? SGRAD_RW : SGRAD_W } };
    struct sgrad_tensor *tensor[2], *workspace;
    sgrad_bound_kernel_prepare(&call);
    assert_true(call.flops > 0);
    for (int i = 0; i < 2; i++)
        assert_done(sgrad_tensor_create("operand", call.view[i].dtype, call.view[i].shape, SGRAD_PERSISTENT, &tensor[i]));
    assert_done(sgrad_workspace_create(call.workspace, call.gpu_workspace, &workspace));
    instance_write(tensor[0], x);
    instance_write(tensor[1], got);
    const struct sgrad_submission task = { .call = &call, .operand = tensor, .workspace = workspace };
    assert_done(sgrad_task_submit(&task));
    assert_done(sgrad_wait_all());
    free(got);
    got = instance_read(tensor[1]);
    if (!near(trial->name, got, wanted, size, 1e-5)) fail_msg("%s, %s", trial->name, sgrad_dtype_name(type));
    for (int i = 0; i < 2; i++) sgrad_tensor_destroy(tensor[i]);
    sgrad_tensor_destroy(workspace);
    free(x);
    free(got);
    free(wanted);
}

static void factors(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof trials / sizeof *trials; i++) {
        check_factor(&trials[i], SGRAD_F32, false);
        check_factor(&trials[i], SGRAD_F32, true);
        check_factor(&trials[i], SGRAD_BF16, false);
    }
}

/* ---- averages ---- */

static void average(uint32_t step, double x, double *y, const struct sgrad_running_average *how) {
    const struct sgrad_view view = { SGRAD_F32, { 1, { 600 } } };
    double all[600], to[600];
    for (int i = 0; i < 600; i++) all[i] = i == 577 ? x : 1, to[i] = *y;
    run_kernel(&sgrad_running_average_kernel, how, &(struct sgrad_step){ .number = step }, 0,
               (struct operand[]){ { view, SGRAD_R, all }, { view, SGRAD_RW, to } }, 2);
    *y = to[577];
}

static void averages(void **state) {
    (void)state;
    struct sgrad_factor_health health = { .name = "conv1 A" };
    const struct sgrad_running_average how = { 0.75, 0.5, &health };
    double y = 100;
    average(1, 8, &y, &how);
    assert_equal(y, 4);
    average(11, 16, &y, &how);
    assert_equal(y, 5);
    average(21, NAN, &y, &how);
    average(31, INFINITY, &y, &how);
    assert_equal(y, 5);
    assert_equal(health.infinite, 2);
}

/* ---- decompositions ---- */

/* Σ over RANK vectors of length N: half positive definite, where there are as many. */
static double *matrices(int64_t groups, int64_t n, int64_t rank) {
    double *factor = sgrad_xcalloc((size_t)(groups * sgrad__triangle(n)), sizeof *factor), *to = factor;
    for (int64_t g = 0; g < groups; g++) {
        double *x = normals((uint32_t)g + 1, SGRAD_F32, rank * n);
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = i; j < n; j++, to++) {
                for (int64_t k = 0; k < rank; k++) *to += x[k * n + i] * x[k * n + j] / (double)n;
                *to = (float)*to;
            }
        free(x);
    }
    return factor;
}

static const float DAMPING = 0.01f;
static struct sgrad_factor_health health = { .name = "conv1 A" };

/* What KERNEL makes of it, where there were sevens, of ROWS rows. */
static double *make(const struct sgrad_kernel *kernel, int64_t groups, int64_t n, int64_t rows, double *factor) {
    const int64_t size = groups * rows * n;
    struct sgrad_factor_health *attrs = &health;
    double *made = sgrad_xcalloc((size_t)size, sizeof *made);
    for (int64_t i = 0; i < size; i++) made[i] = 7;
    run_kernel(kernel, &attrs, &(struct sgrad_step){ .number = 1, .damping = DAMPING }, 0,
               (struct operand[]){ { { SGRAD_F32, { 2, { groups, sgrad__triangle(n) } } }, SGRAD_R, factor },
                                   { { SGRAD_F32, { 3, { groups, rows, n } } }, SGRAD_RW, made } }, 2);
    return made;
}

static double *decompose(int64_t groups, int64_t n, double *factor) {
    return make(&sgrad_eigendecomposition_kernel, groups, n, n + 1, factor);
}

static double *invert(int64_t groups, int64_t n, double *factor) {
    return make(&sgrad_damped_inverse_kernel, groups, n, n, factor);
}

static void decompositions(void **state) {
    (void)state;
    static const int64_t shapes[][3] = { { 1, 1, 1 }, { 1, 2, 2 }, { 1, 37, 60 }, { 1, 65, 20 }, { 3, 9, 20 }, { 1, 145, 300 } };
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        const int64_t groups = shapes[s][0], n = shapes[s][1], rank = shapes[s][2];
        double *factor = matrices(groups, n, rank), *eigen = decompose(groups, n, factor);
        for (int64_t g = 0; g < groups; g++) {
            const double *d = eigen + g * (n + 1) * n, *q = d + n, *f = factor + g * sgrad__triangle(n);
            double most = 0, unlike = 0, skew = 0;
            for (int64_t i = 0; i < n; i++) {
                assert_true(d[i] >= 0 && (i == 0 || d[i] >= d[i - 1]));
                for (int64_t j = i; j < n; j++, f++) {
                    double sum = 0, product = 0;
                    for (int64_t k = 0; k < n; k++) {
                        sum += q[k * n + i] * d[k] * q[k * n + j];
                        product += q[i * n + k] * q[j * n + k];
                    }
                    most = fmax(most, fabs(*f));
                    unlike = fmax(unlike, fabs(sum - *f));
                    skew = fmax(skew, fabs(product - (i == j)));
                }
            }
            assert_true(unlike <= 1e-6 * most && skew <= 1e-6);
        }
        free(factor);
        free(eigen);
    }
}

/* What is no matrix leaves its eigen, and the others' are made. */
static void no_decomposition(void **state) {
    (void)state;
    double *factor = matrices(2, 5, 8);
    factor[3] = NAN;
    double *eigen = decompose(2, 5, factor);
    for (int i = 0; i < 30; i++) assert_true(eigen[i] == 7 && eigen[30 + i] != 7);
    assert_int_equal(health.unmade, 1);
    double *inverse = invert(2, 5, factor);
    for (int i = 0; i < 25; i++) assert_true(inverse[i] == 7 && inverse[25 + i] != 7);
    assert_int_equal(health.unmade, 2);
    free(factor);
    free(eigen);
    free(inverse);
}

/* (F + γI)(F + γI)⁻¹ = I, to what γ is to the largest eigenvalue; singular ones, too. */
static void inverses(void **state) {
    (void)state;
    static const int64_t shapes[][3] = { { 1, 1, 1 }, { 1, 2, 2 }, { 1, 37, 60 }, { 1, 65, 20 }, { 3, 9, 20 }, { 1, 145, 300 } };
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        const int64_t groups = shapes[s][0], n = shapes[s][1];
        double *factor = matrices(groups, n, shapes[s][2]), *inverse = invert(groups, n, factor);
        for (int64_t g = 0; g < groups; g++) {
            const double *f = factor + g * sgrad__triangle(n), *is = inverse + g * n * n;
            for (int64_t i = 0; i < n; i++)
                for (int64_t j = 0; j < n; j++) {
                    double sum = DAMPING * is[i * n + j], size = fabs(sum);
                    for (int64_t k = 0; k < n; k++) {
                        const double term = f[k < i ? sgrad__triangle_at(n, k, i) : sgrad__triangle_at(n, i, k)] * is[k * n + j];
                        sum += term, size += fabs(term);
                    }
                    assert_true(fabs(sum - (i == j)) <= 1e-6 * (size + 1) && is[i * n + j] == is[j * n + i]);
                }
        }
        free(factor);
        free(inverse);
    }
}

/* More than rounding has made is counted; an inverse there is as long as the damping is more. */
static void negative_curvature(void **state) {
    (void)state;
    double little[] = { 1, 0, -0.005 }, much[] = { 1, 0, -0.5 };
    double *eigen = decompose(1, 2, little), *inverse = invert(1, 2, little), *none = invert(1, 2, much);
    assert_true(eigen[0] == 0 && eigen[1] == 1 && fabs(inverse[3] - 1 / (DAMPING - 0.005)) < 1e-3 && none[0] == 7);
    assert_int_equal(health.negative, 2);
    free(eigen);
    free(inverse);
    free(none);
}

/* Of zeros all eigenvalues are zero, and of what rounding has made negative, too. */
static void no_curvature(void **state) {
    (void)state;
    double factor[] = { 0, 0, 0, 0, 0, 0, 1, 0, 0, -1e-12, 0, 5e-11 }, *eigen = decompose(2, 3, factor);
    for (int i = 0; i < 3; i++) assert_true(eigen[i] == 0 && eigen[12 + i] == (i == 2));
    free(eigen);
}

/* ---- preconditioned gradients ---- */

static void plain_precondition(int64_t groups, int64_t k, int64_t n, const double *gradient, const double *a, const double *g,
                               double damping, double *v) {
    for (int64_t j = 0; j < groups; j++, gradient += k * n, v += k * n, a += (n + 1) * n, g += (k + 1) * k) {
        double *u = sgrad_xcalloc((size_t)(k * n), sizeof *u);
        for (int64_t b = 0; b < k; b++)
            for (int64_t c = 0; c < n; c++) {
                for (int64_t i = 0; i < k; i++)
                    for (int64_t l = 0; l < n; l++) u[b * n + c] += g[(b + 1) * k + i] * gradient[i * n + l] * a[(c + 1) * n + l];
                u[b * n + c] /= g[b] * a[c] + damping;
            }
        for (int64_t i = 0; i < k; i++)
            for (int64_t l = 0; l < n; l++) {
                v[i * n + l] = 0;
                for (int64_t b = 0; b < k; b++)
                    for (int64_t c = 0; c < n; c++) v[i * n + l] += g[(b + 1) * k + i] * u[b * n + c] * a[(c + 1) * n + l];
            }
        free(u);
    }
}

/* The same by what plainly inverts both. */
static void plain_by_inverse(int64_t groups, int64_t k, int64_t n, const double *gradient, const double *a, const double *g,
                             double *v) {
    for (int64_t j = 0; j < groups; j++, gradient += k * n, v += k * n, a += n * n, g += k * k)
        for (int64_t i = 0; i < k; i++)
            for (int64_t l = 0; l < n; l++) {
                v[i * n + l] = 0;
                for (int64_t b = 0; b < k; b++)
                    for (int64_t c = 0; c < n; c++) v[i * n + l] += g[i * k + b] * gradient[b * n + c] * a[c * n + l];
            }
}

static void check_precondition(int64_t groups, int64_t k, int64_t n, bool bias, bool inverse) {
    const int64_t count = groups * k * n, of_weight = n - bias, rows = groups * k;
    double *fa = matrices(groups, n, n), *fg = matrices(groups, k, k);
    double *a = inverse ? invert(groups, n, fa) : decompose(groups, n, fa);
    double *g = inverse ? invert(groups, k, fg) : decompose(groups, k, fg);
    double *gradient = normals(9, SGRAD_F32, count), *wanted = normals(1, SGRAD_F32, count);
    double *weight = normals(1, SGRAD_F32, count), *db = normals(1, SGRAD_F32, rows), *v = normals(1, SGRAD_F32, count),
           *vb = normals(1, SGRAD_F32, rows);
    if (inverse) plain_by_inverse(groups, k, n, gradient, a, g, wanted);
    else plain_precondition(groups, k, n, gradient, a, g, DAMPING, wanted);
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t l = 0; l < of_weight; l++) weight[i * of_weight + l] = gradient[i * n + l];
        db[i] = gradient[i * n + n - 1];
    }
    const struct sgrad_view of_w = { SGRAD_F32, { 2, { rows, of_weight } } }, of_b = { SGRAD_F32, { 1, { rows } } };
    run_kernel(inverse ? &sgrad_precondition_by_inverse_kernel : &sgrad_precondition_kernel, NULL,
               &(struct sgrad_step){ .number = 1, .damping = DAMPING }, 0,
               (struct operand[]){ { of_w, SGRAD_R, weight },
                                   { of_b, SGRAD_R, bias ? db : NULL },
                                   { { SGRAD_F32, { 3, { groups, n + !inverse, n } } }, SGRAD_R, a },
                                   { { SGRAD_F32, { 3, { groups, k + !inverse, k } } }, SGRAD_R, g },
                                   { of_w, SGRAD_W, v },
                                   { of_b, SGRAD_W, bias ? vb : NULL } }, 6);
    double *all = sgrad_xcalloc((size_t)count, sizeof *all);
    for (int64_t i = 0; i < rows; i++) {
        memcpy(all + i * n, v + i * of_weight, (size_t)of_weight * sizeof *all);
        if (bias) all[i * n + n - 1] = vb[i];
    }
    assert_true(near("preconditioned gradient", all, wanted, count, 2e-5));
    void *list[] = { fa, fg, a, g, gradient, wanted, weight, db, v, vb, all };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) free(list[i]);
}

static void preconditioned(void **state) {
    (void)state;
    for (int inverse = 0; inverse < 2; inverse++) {
        check_precondition(1, 16, 28, true, inverse);
        check_precondition(1, 17, 45, false, inverse);
        check_precondition(1, 1, 1, false, inverse);
        check_precondition(1, 1, 9, true, inverse);
        check_precondition(3, 5, 10, true, inverse);
        check_precondition(5, 1, 9, false, inverse);
    }
}

static void inner_products(void **state) {
    (void)state;
    for (int64_t count = 1; count < 100; count += 31) {
        const struct sgrad_view view = { SGRAD_F32, { 1, { count } } };
        double *x = normals(1, SGRAD_F32, count), *y = normals(2, SGRAD_F32, count), got = 0, wanted = 0;
        for (int64_t i = 0; i < count; i++) wanted += x[i] * y[i];
        run_kernel(&sgrad_inner_product_kernel, NULL, &(struct sgrad_step){ .number = 1 }, 0,
                   (struct operand[]){ { view, SGRAD_R, x },
                                       { view, SGRAD_R, y },
                                       { { SGRAD_F64, { 1, { 1 } } }, SGRAD_W, &got } }, 3);
        assert_true(near("inner product", &got, &wanted, 1, 1e-12));
        free(x);
        free(y);
    }
}

/* ---- the step ---- */

static void step(void **state) {
    (void)state;
    const struct sgrad_view view = { SGRAD_F32, { 2, { 30, 33 } } };
    double *v = normals(1, SGRAD_F32, 990), *w = normals(2, SGRAD_F32, 990), *b = normals(3, SGRAD_F32, 990);
    const double products[] = { 40, -40, 1e-3 };
    for (int clipped = 0; clipped < 5; clipped++) {
        const bool nesterov = clipped % 2;
        const struct sgrad_hyper h = { .momentum = 0.9f, .weight_decay = 0.01f, .kl_clip = 0.001f, .nesterov = nesterov };
        double *got = normals(2, SGRAD_F32, 990), *momentum = normals(3, SGRAD_F32, 990), wanted[990];
        const double product = clipped < 3 ? products[clipped] : 0, all = 0.1 * 0.1 * fabs(product);
        const double scale = clipped < 2 ? sqrt(0.001 / all) : 1;
        run_kernel(&sgrad_kfac_kernel, &h, &(struct sgrad_step){ .number = 1, .lr = 0.1f }, 0,
                   (struct operand[]){ { view, SGRAD_RW, got }, { view, SGRAD_R, v },
                                       { { SGRAD_F64, { 1, { 1 } } }, SGRAD_R, clipped < 4 ? (double[]){ product } : NULL },
                                       { view, SGRAD_RW, momentum } }, 4);
        for (int i = 0; i < 990; i++) {
            const double g = scale * v[i] + 0.01 * w[i], m = 0.9 * b[i] + g;
            wanted[i] = w[i] - 0.1 * (nesterov ? g + 0.9 * m : m);
        }
        assert_true(near("weights", got, wanted, 990, 1e-6));
        free(got);
        free(momentum);
    }
    free(v);
    free(w);
    free(b);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        sentence("Kronecker factors equal a plain sum over patches", factors),
        sentence("running averages start and decay as documented, and leave out infinite values", averages),
        sentence("an eigendecomposition multiplied together is the factor", decompositions),
        sentence("a factor with NaN does not replace the old decomposition", no_decomposition),
        sentence("a factor of zeros has eigenvalues of zero", no_curvature),
        sentence("a damped inverse times its factor is the identity", inverses),
        sentence("preconditioned gradients equal a plain product", preconditioned),
        sentence("inner products equal a plain sum", inner_products),
        sentence("the K-FAC step clips and decays as documented", step),
        sentence("negative eigenvalues beyond rounding are counted", negative_curvature),
    };
    return run_sentences(argc, argv, tests, check_on_cpus, check_close);
}
