/* kernels.c: properties of kernels that the gradient checks of layers do not test: sums in a fixed tree, norms and clipping,
 * histograms, the probabilities of dropout, rows of bf16. */
#include "codelets/kernels.h"
#include "codelets/ops/drop_path.h"
#include "codelets/ops/dropout.h"
#include "codelets/updates.h"
#include "codelets/cpu/numbers.h"
#include "tests/codelets/check.h"

#include <float.h>
#include <math.h>

SGRAD_UPDATE_KERNEL(sgd);
SGRAD_UPDATE_KERNEL(adam);
SGRAD_UPDATE_KERNEL(adamw);

/* (COUNT) numbers, the same for the same stream, as TYPE keeps them */
static struct sgrad_view line(enum sgrad_dtype type, int64_t count) { return (struct sgrad_view){ type, { 1, { count } } }; }
static double *normals(uint32_t stream, enum sgrad_dtype type, int64_t count) {
    double *values = sgrad_xcalloc((size_t)count, sizeof *values);
    for (int64_t i = 0; i < count; i++) {
        values[i] = instance_normal(stream, i);
        if (type != SGRAD_F64) values[i] = (float)values[i];
        if (type == SGRAD_BF16) values[i] = sgrad_bf16_to_f32(sgrad_f32_to_bf16((float)values[i]));
    }
    return values;
}

/* ---- sums ---- */

/* The sum of those of the SPAN inputs at X that are there (not NULL): of the first half, and of the second. */
static bool halved(enum sgrad_dtype type, double *const *x, int span, int64_t i, double *sum) {
    double left, right;
    if (span == 1) return *x && (*sum = (*x)[i], true);
    if (!halved(type, x, span / 2, i, &left)) return false;
    if (!halved(type, x + span / 2, span / 2, i, &right)) return *sum = left, true;
    *sum = type == SGRAD_F64 ? left + right : (double)((float)left + (float)right);
    return true;
}

/* The sum of the inputs whose bit is set in PRESENT; of RUNS, of longer ones, each from an element of its own on. */
static void check_sum(enum sgrad_dtype type, unsigned present, int64_t count, bool runs) {
    struct sgrad_sum attrs = { 0 };
    struct operand operand[SGRAD_SUM_INPUTS + 1] = { 0 };
    double *x[SGRAD_SUM_INPUTS] = { 0 }, *input[SGRAD_SUM_INPUTS] = { 0 }, *sum = sgrad_xcalloc((size_t)count, sizeof *sum),
           wanted = 0;
    for (int k = 0; k < SGRAD_SUM_INPUTS; k++) {
        if (!(present >> k & 1)) continue;
        attrs.first[k] = runs ? 3 * k : 0;
        const int64_t length = count + (runs ? 4 * k : 0);
        input[k] = normals((uint32_t)k, type, length);
        x[k] = input[k] + attrs.first[k];
        x[k][0] = -0.0;
        operand[k] = (struct operand){ line(type, length), SGRAD_R, input[k] };
    }
    operand[SGRAD_SUM_INPUTS] = (struct operand){ line(type, count), SGRAD_W, sum };
    run_kernel(&sgrad_sum_kernel, runs ? &attrs : NULL, NULL, 0, operand, SGRAD_SUM_INPUTS + 1);
    for (int64_t i = 0; i < count; i++) {
        assert_true(halved(type, x, SGRAD_SUM_INPUTS, i, &wanted));
        if (type == SGRAD_BF16) wanted = sgrad_bf16_to_f32(sgrad_f32_to_bf16((float)wanted));
        if (memcmp(&sum[i], &wanted, sizeof wanted))
            fail_msg("sum of %x %s, element %lld of %lld, is %a, not %a", present, sgrad_dtype_name(type), (long long)i,
                     (long long)count, sum[i], wanted);
    }
    for (int k = 0; k < SGRAD_SUM_INPUTS; k++) free(input[k]);
    free(sum);
}

static void sums_are_trees(void **state) {
    (void)state;
    static const unsigned present[] = { 0x01, 0x03, 0x07, 0x0f, 0x1f, 0x3f, 0x7f, 0xff, 0x11, 0x55, 0x37, 0x77 };
    static const int64_t counts[] = { 1, 100, 1300 };
    for (size_t p = 0; p < sizeof present / sizeof *present; p++)
        for (int k = 0; k < 6; k++) {
            check_sum(SGRAD_F32, present[p], counts[k / 2], k % 2);
            check_sum(SGRAD_F64, present[p], counts[k / 2], k % 2);
            check_sum(SGRAD_BF16, present[p], counts[k / 2], k % 2);
        }
}

/* ---- norms, clipping ---- */

static void squared_norm(void **state) {
    (void)state;
    static const int64_t counts[] = { 1, 31, 32, 33, 5000 };
    for (int k = 0; k < 5; k++) {
        double *x = normals(1, SGRAD_F32, counts[k]), sum = 0, got = -1;
        for (int64_t i = 0; i < counts[k]; i++) sum += x[i] * x[i];
        run_kernel(&sgrad_squared_norm_kernel, NULL, NULL, 0,
                   (struct operand[]){ { line(SGRAD_F32, counts[k]), SGRAD_R, x }, { line(SGRAD_F64, 1), SGRAD_W, &got } }, 2);
        assert_true(near("Σ x²", &got, &sum, 1, 1e-12));
        free(x);
    }
}

/* Every finite number is in the bucket that its limits say. */
static void histogram(void **state) {
    (void)state;
    enum { COUNT = 2000 };
    const double *limits = sgrad_histogram_limits();
    double *x = normals(2, SGRAD_F32, COUNT), sum = 0;
    struct sgrad_histogram got, wanted = { .count = COUNT - 2 };
    x[0] = NAN, x[1] = -INFINITY, x[2] = 0, x[3] = FLT_MAX, x[4] = -FLT_MAX, x[5] = 1e-13f;
    run_kernel(&sgrad_histogram_kernel, NULL, NULL, 0,
               (struct operand[]){ { line(SGRAD_F32, COUNT), SGRAD_R, x },
                                   { line(SGRAD_F64, SGRAD_HISTOGRAM), SGRAD_W, (double *)&got } },
               2);
    for (int i = 2; i < COUNT; i++) {
        int bucket = 0;
        while (limits[bucket] <= (double)(float)x[i]) bucket++;
        wanted.bucket[bucket]++;
        sum += x[i];
    }
    assert_memory_equal(got.bucket, wanted.bucket, sizeof got.bucket);
    assert_equal(got.count, wanted.count);
    assert_equal(got.min, -FLT_MAX);
    assert_equal(got.max, FLT_MAX);
    assert_equal(got.sum, sum);
    assert_true(limits[0] == -DBL_MAX && limits[SGRAD_HISTOGRAM_BUCKETS / 2] == 0 &&
                limits[SGRAD_HISTOGRAM_BUCKETS - 1] == DBL_MAX);
    free(x);
}

enum { WEIGHTS = 40 };

/* The weight after one update by GRADIENT; SQUARES is the norm of all gradients, squared, or NULL. */
static void update(const struct sgrad_kernel *kernel, int states, float clip_norm, double *gradient, double *squares,
                   double *weight) {
    const struct sgrad_hyper hyper = {
        .momentum = 0.9f, .weight_decay = 0.01f, .beta1 = 0.9f, .beta2 = 0.999f, .eps = 0.1f, .clip_norm = clip_norm
    };
    const struct sgrad_step step = { .number = 1, .training = true, .lr = 0.1f };
    const struct sgrad_view view = line(SGRAD_F32, WEIGHTS);
    double state[2][WEIGHTS] = { { 0 } };
    for (int i = 0; i < WEIGHTS; i++) weight[i] = i;
    run_kernel(kernel, &hyper, &step, 0,
               (struct operand[]){ { view, SGRAD_RW, weight },
                                   { view, SGRAD_R, gradient },
                                   { line(SGRAD_F64, 1), SGRAD_R, squares },
                                   { view, SGRAD_RW, state[0] },
                                   { view, SGRAD_RW, state[1] } },
               3 + states);
}

/* Clipping scales the gradient, as torch.nn.utils.clip_grad_norm_ does, and only where the norm is too large. */
static void clipping(void **state) {
    (void)state;
    static const struct sgrad_kernel *const kernels[] = { &sgrad_sgd_kernel, &sgrad_adam_kernel, &sgrad_adamw_kernel };
    for (int k = 0; k < 3; k++)
        for (double norm = 0.5; norm < 10; norm *= 4) {
            double *gradient = normals(2, SGRAD_F32, WEIGHTS), scaled[WEIGHTS], clipped[WEIGHTS], wanted[WEIGHTS];
            for (int i = 0; i < WEIGHTS; i++) scaled[i] = gradient[i] * fmin(1, 2 / (norm + 1e-6));
            update(kernels[k], k ? 2 : 1, 2, gradient, (double[]){ norm * norm }, clipped);
            update(kernels[k], k ? 2 : 1, 0, scaled, NULL, wanted);
            assert_true(near("a clipped update", clipped, wanted, WEIGHTS, 1e-7));
            free(gradient);
        }
}

/* ---- dropout ---- */

enum { SAMPLES = 60, FEATURES = 1111, ELEMENTS = SAMPLES * FEATURES };

static double *dropped(const struct sgrad_task *task, const void *attrs, uint32_t step, int64_t first,
                       int64_t samples, double *x) {
    const struct sgrad_view view = { SGRAD_F32, { 2, { samples, FEATURES } } };
    double *y = sgrad_xcalloc((size_t)samples * FEATURES, sizeof *y);
    run_kernel(&task->kernel, attrs, &(struct sgrad_step){ .seed = 3, .number = step, .training = true }, first,
               (struct operand[]){ { view, SGRAD_R, x }, { view, SGRAD_W, y } }, 2);
    return y;
}

static int agreements(const double *a, const double *b) {
    int same = 0;
    for (int i = 0; i < ELEMENTS; i++) same += (a[i] == 0) == (b[i] == 0);
    return same;
}

static void dropout(void **state) {
    (void)state;
    const struct sgrad_op *op = &sgrad_dropout_op;
    const struct sgrad_dropout attrs = { .p = 0.25f, .stream = 1 }, other_layer = { .p = 0.25f, .stream = 2 };
    double *x = sgrad_xcalloc(ELEMENTS, sizeof *x), *y, *dx, *part, *same, *step, *layer;
    for (int i = 0; i < ELEMENTS; i++) x[i] = 3;
    y = dropped(&op->forward[0], &attrs, 1, 0, SAMPLES, x);
    int zeros = 0;
    for (int i = 0; i < ELEMENTS; i++) {
        zeros += y[i] == 0;
        assert_true(y[i] == 0 || y[i] == 4);
    }
    assert_in_range(zeros, ELEMENTS / 4 - 600, ELEMENTS / 4 + 600);     /* more than 5 deviations */

    dx = dropped(&op->backward[0], &attrs, 1, 0, SAMPLES, x);
    assert_memory_equal(dx, y, ELEMENTS * sizeof *y);
    part = dropped(&op->forward[0], &attrs, 1, 20, 10, x);      /* another micro-batch */
    assert_memory_equal(part, y + 20 * FEATURES, 10 * FEATURES * sizeof *y);
    same = dropped(&op->inference[0], &attrs, 1, 0, SAMPLES, x);
    assert_memory_equal(same, x, ELEMENTS * sizeof *x);

    step = dropped(&op->forward[0], &attrs, 2, 0, SAMPLES, x);
    layer = dropped(&op->forward[0], &other_layer, 1, 0, SAMPLES, x);
    const int by_chance = ELEMENTS * 10 / 16;       /* (1/4)² + (3/4)² */
    assert_in_range(agreements(y, step), by_chance - 700, by_chance + 700);
    assert_in_range(agreements(y, layer), by_chance - 700, by_chance + 700);
    double *all[] = { x, y, dx, part, same, step, layer };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

/* Samples are dropped whole. */
static void drop_path(void **state) {
    (void)state;
    const struct sgrad_op *op = &sgrad_drop_path_op;
    const struct sgrad_drop_path attrs = { .p = 0.25f, .stream = 1 };
    double *x = sgrad_xcalloc(ELEMENTS, sizeof *x), *y, *dx, *part, *same;
    for (int i = 0; i < ELEMENTS; i++) x[i] = 3;
    y = dropped(&op->forward[0], &attrs, 1, 0, SAMPLES, x);
    int zeros = 0;
    for (int i = 0; i < ELEMENTS; i++) {
        zeros += y[i] == 0;
        assert_true(y[i] == y[i / FEATURES * FEATURES] && (y[i] == 0 || y[i] == 4));
    }
    assert_in_range(zeros / FEATURES, 2, 28);       /* 4 deviations */
    dx = dropped(&op->backward[0], &attrs, 1, 0, SAMPLES, x);
    assert_memory_equal(dx, y, ELEMENTS * sizeof *y);
    part = dropped(&op->forward[0], &attrs, 1, 20, 10, x);      /* another micro-batch */
    assert_memory_equal(part, y + 20 * FEATURES, 10 * FEATURES * sizeof *y);
    same = dropped(&op->inference[0], &attrs, 1, 0, SAMPLES, x);
    assert_memory_equal(same, x, ELEMENTS * sizeof *x);
    double *all[] = { x, y, dx, part, same };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

/* Each of J ranks along axis rows, and of K along axis features, has a part of a sample (ROWS,WIDE). */
static void dropout_of_parts(void **state) {
    (void)state;
    enum { ROWS = 12, WIDE = 10, COUNT = ROWS * WIDE };
    static const struct { int j, k; } meshes[] = { { 2, 1 }, { 1, 2 }, { 4, 1 }, { 2, 2 }, { 3, 5 } };
    const struct sgrad_op *op = &sgrad_dropout_op;
    const struct sgrad_step step = { .seed = 3, .number = 1, .training = true };
    double x[2 * COUNT], whole[2 * COUNT];
    for (int i = 0; i < 2 * COUNT; i++) x[i] = 3;
    struct sgrad_view view = { SGRAD_F32, { 3, { 2, ROWS, WIDE } } };
    run_kernel(&op->forward[0].kernel, &(struct sgrad_dropout){ .p = 0.25f, .stream = 1 }, &step, 5,
               (struct operand[]){ { view, SGRAD_R, x }, { view, SGRAD_W, whole } }, 2);
    for (size_t m = 0; m < sizeof meshes / sizeof *meshes; m++) {
        const int j = meshes[m].j, k = meshes[m].k;
        const struct sgrad_mesh mesh = { 2, { { .name = "rows", .ranks = j }, { .name = "features", .ranks = k } } };
        view = (struct sgrad_view){ SGRAD_F32, { 3, { 2, ROWS / j, WIDE / k } } };
        for (int rank = 0; rank < j * k; rank++) {
            struct sgrad_dropout attrs = { .p = 0.25f, .stream = 1, .rows = "rows", .features = "features" };
            double y[2 * COUNT];
            op->set_rank(&(struct sgrad_signature){ .mesh = &mesh, .x = { view } }, rank, &attrs);
            run_kernel(&op->forward[0].kernel, &attrs, &step, 5,
                       (struct operand[]){ { view, SGRAD_R, x }, { view, SGRAD_W, y } }, 2);
            for (int i = 0; i < 2 * COUNT / (j * k); i++) {
                const int sample = i / (COUNT / (j * k)), row = i / (WIDE / k) % (ROWS / j), column = i % (WIDE / k);
                const int at = sample * COUNT + (rank / k * (ROWS / j) + row) * WIDE + rank % k * (WIDE / k) + column;
                if (y[i] != whole[at]) fail_msg("%d x %d, rank %d: element %d is %g, not %g", j, k, rank, i, y[i], whole[at]);
            }
        }
    }
}

/* ---- the exponential ---- */

enum { NUMBERS = 16 };      /* and the length of the longest vectors */

SGRAD_VECTOR(exponentials)(const struct sgrad_args *args) {
    float *x = args->data[0];
    for (int i = 0; i < NUMBERS; i++) x[i] = exp_of(x[i]);
}

static void exponential_of_everything(void **state) {
    (void)state;
    static const float x[NUMBERS] = {
        NAN, -NAN, INFINITY, -INFINITY, 89, -89, 88, -88, 0, -0.0f, 1, -1, 1e-30f, FLT_MAX, -FLT_MAX, 0.5f
    };
    float y[NUMBERS];
    struct sgrad_args a = { .data = (void *[]){ y } };
    memcpy(y, x, sizeof y);
    exponentials(&a);
    assert_true(isnan(y[0]) && isnan(y[1]));
    for (int i = 2; i < NUMBERS; i++) {
        const double right = exp(fmin((double)x[i], 88));
        assert_near(y[i], right < FLT_MIN ? 0 : right, 4e-7 * right + FLT_MIN);
    }
}

/* ---- sums along rows ---- */

/* sums[0]: Σ x, sums[1]: Σ x², sums[2]: the largest x, of COUNT numbers */
SGRAD_VECTOR(sums)(const struct sgrad_args *args) {
    const float *x = args->data[0];
    float *sum = args->data[1];
    const int64_t count = *(const int64_t *)args->data[2];
    sum[0] = sum_of(x, count), sum[1] = sum_of_products(x, x, count), sum[2] = largest(x, count);
}

static void sums_of_any_length(void **state) {
    (void)state;
    enum { MOST = 67 };
    double *x = normals(1, SGRAD_F32, MOST);
    for (int64_t count = 0; count <= MOST; count++) {
        float row[MOST], sum[3];
        double wanted[3] = { 0, 0, -INFINITY };
        for (int64_t i = 0; i < count; i++) {
            row[i] = (float)x[i];
            wanted[0] += row[i], wanted[1] += (double)row[i] * row[i], wanted[2] = fmax(wanted[2], row[i]);
        }
        struct sgrad_args a = { .data = (void *[]){ row, sum, &count } };
        sums(&a);
        assert_near(sum[0], wanted[0], 1e-5);
        assert_near(sum[1], wanted[1], 1e-5 * (1 + wanted[1]));
        assert_true(sum[2] == (float)wanted[2]);
        if (count) {
            row[count / 2] = NAN;
            sums(&a);
            assert_true(isnan(sum[0]) && isnan(sum[1]) && !isnan(sum[2]));
        }
    }
    free(x);
}

/* ---- rows of bf16 ---- */

/* To the bit, wherever a row begins, however long it is, and nothing beside it. */
static void rows_are_narrowed(void **state) {
    (void)state;
    enum { MOST = 300, BEFORE = 3 };
    static const int64_t counts[] = { 1, 7, 8, 15, 16, 17, 33, 256, MOST };
    static const float odd[] = { NAN, INFINITY, -INFINITY, -0.0f, 1.00390625f, 1.01171875f, -1.00390625f, 3.4e38f };    /* ties */
    for (int k = 0; k < 18; k++) {
        const int64_t count = counts[k / 2];
        const bool add = k % 2;
        double *x = normals(1, SGRAD_F32, count), *there = normals(2, SGRAD_F32, MOST + 2 * BEFORE);
        float row[MOST];
        uint16_t got[MOST + 2 * BEFORE], wanted[MOST + 2 * BEFORE];
        for (int64_t i = 0; i < count; i++) row[i] = i % 3 ? (float)x[i] : odd[i / 3 % 8];
        for (int i = 0; i < MOST + 2 * BEFORE; i++) got[i] = wanted[i] = sgrad_f32_to_bf16((float)there[i]);
        for (int64_t i = 0; i < count; i++)
            wanted[BEFORE + i] = sgrad_f32_to_bf16(add ? row[i] + sgrad_bf16_to_f32(wanted[BEFORE + i]) : row[i]);
        sgrad_row_narrow(row, count, got + BEFORE, add);
        for (int i = 0; i < MOST + 2 * BEFORE; i++)
            if (got[i] != wanted[i])
                fail_msg("element %d of %lld%s is %04x, not %04x", i - BEFORE, (long long)count, add ? ", added," : "", got[i],
                         wanted[i]);
        free(there);
        free(x);
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        sentence("the exponential of NaN is NaN, and that of a large number finite", exponential_of_everything),
        sentence("sums, squares and the largest number of rows of any length are right; sums of NaN are NaN", sums_of_any_length),
        sentence("rows are rounded to bf16 as single numbers are", rows_are_narrowed),
        sentence("sums are added in a fixed tree", sums_are_trees),
        sentence("the squared norm of a tensor is the sum of its squares", squared_norm),
        sentence("clipping scales a gradient as PyTorch does", clipping),
        sentence("dropout drops the documented fraction of values, the same ones in backward and in any micro-batch", dropout),
        sentence("drop_path drops whole samples, the same ones in backward and in any micro-batch", drop_path),
        sentence("dropout of a shard drops the same values as dropout of the whole sample", dropout_of_parts),
        sentence("a histogram counts every finite number in its bucket", histogram),
    };
    return run_on_devices(argc, argv, tests);
}
