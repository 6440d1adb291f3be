/* check.c: checks an operation, on each of its test shapes:
 *
 *     gradients    backward against finite differences of forward, for inputs and parameters
 *     accumulate   a gradient that is added to an existing one is the sum of both
 *     adds         the same of outputs that belong to no sample, for kernels with .accumulates
 *     absent       backward without gradients that are not needed, as after frozen layers (check_absent.c)
 *     bf16         forward and backward in bf16 against f32, on the same (bf16) numbers                                */
#include "config.h"
#include "graphs/api/instance.h"
#include "graphs/api/check.h"

/* Logs an error that starts with "operation swish, 7 samples of 17: ". */
static int wrong(const struct instance *instance, const char *what, double is, const char *but, double expected) {
    return sgrad_log_error(SGRAD_EINVAL, "operation %s, %s: %s is %.9g, %s %.9g", instance->op->name, instance->test->name, what,
                           is, but, expected);
}

/* Computes the function that backward differentiates: Σ dy·y, or the loss itself. */
static int objective(struct instance *instance, double *sum) {
    struct sgrad_tensor *of = instance->tensor[instance->tensor[SGRAD_Y][0] ? SGRAD_Y : SGRAD_STAT][0];
    SGRAD_TRY(instance_run(instance, instance->op->forward, 0));
    double *y = instance_read(of);
    if (of == instance->tensor[SGRAD_STAT][0]) {
        *sum = y[0] / (double)sgrad_shape_count(&instance->is.x[1].shape);
    } else {
        double *dy = instance_read(instance->tensor[SGRAD_DY][0]);
        *sum = 0;
        for (int64_t i = 0; i < instance_count(of); i++) *sum += y[i] * dy[i];
        free(dy);
    }
    free(y);
    return 0;
}

/* *SLOPE: (objective(x_i + h) - objective(x_i - h)) / 2h. */
static int difference(struct instance *instance, struct sgrad_tensor *variable, double *x, int64_t i, double h, double *slope) {
    const double at = x[i];
    double up, down;
    x[i] = at + h;
    instance_write(variable, x);
    SGRAD_TRY(objective(instance, &up));
    x[i] = at - h;
    instance_write(variable, x);
    SGRAD_TRY(objective(instance, &down));
    x[i] = at;
    instance_write(variable, x);
    *slope = (up - down) / (2 * h);
    return 0;
}

/* Compares a dozen elements of GRADIENT with differences of the objective in VARIABLE. A step may cross the kink of a ReLU, in
 * which case a shorter one decides; very short ones are dominated by rounding. */
static int check_differences(struct instance *instance, const char *what, struct sgrad_tensor *variable,
                             struct sgrad_tensor *gradient) {
    static const double steps[] = { 1.0 / 128, 1.0 / 1024, 1.0 / 8192 };
    double *x = instance_read(variable), *g = instance_read(gradient), scale = 1e-3, d = 0;
    const int64_t count = instance_count(variable), stride = count / 12 + 1;
    int error = 0;
    for (int64_t i = 0; i < count; i++) scale = fmax(scale, fabs(g[i]));
    for (int64_t i = count > 12 ? 3 % stride : 0; i < count && !error; i += stride) {
        bool good = false;
        for (size_t s = 0; s < sizeof steps / sizeof *steps && !good && !error; s++) {
            error = difference(instance, variable, x, i, steps[s], &d);
            good = fabs(d - g[i]) <= 2e-3 * scale + 1e-3 * fabs(g[i]);
        }
        if (!good && !error) error = wrong(instance, what, g[i], "but finite differences give", d);
    }
    free(x);
    free(g);
    return error;
}

static int check_all_differences(struct instance *instance) {
    double sum;
    char what[64];
    instance_fill(instance);
    SGRAD_TRY(objective(instance, &sum));
    SGRAD_TRY(instance_run(instance, instance->op->backward, 0));
    for (int i = 0; i < SGRAD_MAX_INPUTS; i++) {
        snprintf(what, sizeof what, "the derivative with respect to input %d", i);
        if (instance_has_gradient(instance, i))
            SGRAD_TRY(check_differences(instance, what, instance->tensor[SGRAD_X][i], instance->tensor[SGRAD_DX][i]));
    }
    for (int i = 0; i < SGRAD_MAX_PARAMETERS; i++) {
        snprintf(what, sizeof what, "the derivative with respect to %s", instance->is.p[i].name);
        if (instance->tensor[SGRAD_P][i])
            SGRAD_TRY(check_differences(instance, what, instance->tensor[SGRAD_P][i], instance->tensor[SGRAD_DP][i]));
    }
    return 0;
}

/* Executes CHECK on a new instance, unless the operation is a view, which computes nothing. */
static int with_instance(const struct sgrad_op *op, const struct sgrad_test *test, int (*check)(struct instance *instance)) {
    struct instance instance;
    SGRAD_TRY(instance_open(&instance, op, test, SGRAD_F32));
    const int error = instance.is.view_of_input ? 0 : check(&instance);
    instance_close(&instance);
    return error;
}

int sgrad__check_gradients(const struct sgrad_op *op, const struct sgrad_test *test) {
    return op->not_differentiable ? 0 : with_instance(op, test, check_all_differences);
}

/* Checks that TENSOR contains twice the values ONCE. The tolerance is relative to the largest value: elements are sums, and
 * the rounding of a sum grows with its largest terms. */
static int check_doubled(const struct instance *instance, const char *what, const double *once, struct sgrad_tensor *tensor) {
    double *twice = instance_read(tensor), largest = 1;
    int error = 0;
    for (int64_t k = 0; k < instance_count(tensor); k++) largest = fmax(largest, fabs(once[k]));
    for (int64_t k = 0; k < instance_count(tensor) && !error; k++)
        if (!(fabs(twice[k] - 2 * once[k]) <= 1e-5 * largest)) error = wrong(instance, what, twice[k], "not", 2 * once[k]);
    free(twice);
    return error;
}

static int check_input_gradients(struct instance *instance) {
    double sum, *once[SGRAD_MAX_INPUTS] = { 0 };
    if (!instance->op->backward[0].kernel.name) return 0;
    instance_fill(instance);
    SGRAD_TRY(objective(instance, &sum));
    SGRAD_TRY(instance_run(instance, instance->op->backward, 0));
    for (int i = 0; i < instance->is.inputs; i++)
        if (instance_has_gradient(instance, i)) once[i] = instance_read(instance->tensor[SGRAD_DX][i]);
    int error = instance_run(instance, instance->op->backward, 1u << SGRAD_DX);
    for (int i = 0; i < instance->is.inputs; i++) {
        if (once[i] && !error)
            error = check_doubled(instance, "a gradient added to itself", once[i], instance->tensor[SGRAD_DX][i]);
        free(once[i]);
    }
    return error;
}

int sgrad__check_accumulate(const struct sgrad_op *op, const struct sgrad_test *test) {
    return with_instance(op, test, check_input_gradients);
}

/* Checks a kernel with .accumulates: after two executions, outputs that belong to no sample must be doubled. */
static int check_adding(struct instance *instance, const struct sgrad_task *task) {
    const struct sgrad_task alone[2] = { *task };
    SGRAD_TRY(instance_run(instance, alone, 0));
    for (int j = 0; j < SGRAD_MAX_OPERANDS && task->use[j].role; j++) {
        const struct sgrad_use use = task->use[j];
        struct sgrad_tensor *tensor = instance->tensor[use.role][use.index];
        if (!tensor || use.access == SGRAD_R || (use.role != SGRAD_PARTIAL && use.role != SGRAD_DP)) continue;
        double *once = instance_read(tensor);
        int error = instance_run(instance, alone, 1u << use.role);
        if (!error) error = check_doubled(instance, "a sum added to itself", once, tensor);
        if (!error) error = instance_run(instance, alone, 0);
        free(once);
        SGRAD_TRY(error);
    }
    return 0;
}

static int check_all_adding(struct instance *instance) {
    double sum;
    instance_fill(instance);
    SGRAD_TRY(objective(instance, &sum));
    if (instance->op->backward[0].kernel.name) SGRAD_TRY(instance_run(instance, instance->op->backward, 0));
    for (int k = 0; k < SGRAD_MAX_TASKS; k++) {
        if (instance->op->backward[k].kernel.accumulates) SGRAD_TRY(check_adding(instance, &instance->op->backward[k]));
        if (instance->op->forward[k].kernel.accumulates) SGRAD_TRY(check_adding(instance, &instance->op->forward[k]));
    }
    return 0;
}

/* Only on CPUs: GPU kernels may ignore .accumulates. */
int sgrad__check_adds(const struct sgrad_op *op, const struct sgrad_test *test) {
    return sgrad_cuda_workers() ? 0 : with_instance(op, test, check_all_adding);
}

/* ---- comparison of two instances ---- */

int sgrad__instance_compare(const struct instance *instance, enum sgrad_role role, int i, struct sgrad_tensor *got,
                            const double *wanted, double tolerance) {
    static const char *const names[ROLES] = { [SGRAD_Y] = "output",
                                              [SGRAD_DX] = "input gradient",
                                              [SGRAD_DP] = "parameter gradient",
                                              [SGRAD_STAT] = "statistic",
                                              [SGRAD_S] = "state" };
    char what[64];
    double *is = instance_read(got), square = 0;
    const int64_t count = instance_count(got);
    int error = 0;
    for (int64_t k = 0; k < count; k++) square += wanted[k] * wanted[k];
    const double scale = sqrt(square / (double)count);
    for (int64_t k = 0; k < count && !error; k++) {
        if (fabs(is[k] - wanted[k]) <= tolerance * (scale + fabs(wanted[k]))) continue;
        snprintf(what, sizeof what, "%s %d in %s, element %lld,", names[role], i, sgrad_dtype_name(instance->is.y.dtype),
                 (long long)k);
        error = wrong(instance, what, is[k], "not", wanted[k]);
    }
    free(is);
    return error;
}

int sgrad__instance_run_whole(struct instance *instance) {
    instance_fill(instance);
    if (instance->is.view_of_input) return 0;
    SGRAD_TRY(instance_run(instance, instance->op->forward, 0));
    SGRAD_TRY(instance_run(instance, instance->op->backward, 0));
    return instance_run(instance, instance->op->finish, 0);
}

static int compare(struct instance *got, struct instance *wanted, enum sgrad_role role, double tolerance) {
    for (int i = 0; i < SGRAD_MAX_INPUTS; i++) {
        if (!wanted->tensor[role][i]) continue;
        double *values = instance_read(wanted->tensor[role][i]);
        const int error = sgrad__instance_compare(got, role, i, got->tensor[role][i], values, tolerance);
        free(values);
        SGRAD_TRY(error);
    }
    return 0;
}

static int compare_training(struct instance *got, struct instance *wanted, double tolerance) {
    static const enum sgrad_role roles[] = { SGRAD_Y, SGRAD_STAT, SGRAD_DX, SGRAD_DP, SGRAD_S };
    SGRAD_TRY(sgrad__instance_run_whole(got));
    SGRAD_TRY(sgrad__instance_run_whole(wanted));
    for (size_t r = 0; r < sizeof roles / sizeof *roles; r++) SGRAD_TRY(compare(got, wanted, roles[r], tolerance));
    return 0;
}

/* Inference has no random noise. */
static int compare_inference(struct instance *got, struct instance *wanted) {
    if (!got->op->inference[0].kernel.name) return 0;
    SGRAD_TRY(instance_run(got, got->op->inference, 0));
    SGRAD_TRY(instance_run(wanted, wanted->op->inference, 0));
    return compare(got, wanted, SGRAD_Y, SGRAD__BF16_TOLERANCE);
}

/* bf16 has 8 significant bits: the result of a chain of products has an error of a few 2^-8 of its size. A ReLU or a maximum
 * makes the same decision in both types, because both get the same numbers. Sums of many rounded terms have errors relative to
 * the root mean square. */
int sgrad__check_bf16(const struct sgrad_op *op, const struct sgrad_test *test, double tolerance) {
    struct instance half, whole;
    SGRAD_TRY(instance_open(&half, op, test, SGRAD_BF16));
    int error = instance_open(&whole, op, test, SGRAD_F32);
    if (!error) error = compare_training(&half, &whole, tolerance);
    if (!error) error = compare_inference(&half, &whole);
    instance_close(&half);
    instance_close(&whole);
    return error;
}

int sgrad_op_check(const struct sgrad_op *op) {
    /* Winograd's algorithm may be chosen, which in bf16 has noise of 1.2 % of the root mean square. */
    const double tolerance = op->patches ? SGRAD__WINOGRAD_TOLERANCE : SGRAD__BF16_TOLERANCE;
    if (!op->tests[0].name)
        return sgrad_log_error(SGRAD_EINVAL, "operation %s: has no .tests; add shapes for the checks", op->name);
    for (int i = 0; i < SGRAD_MAX_TESTS && op->tests[i].name; i++) {
        SGRAD_TRY(sgrad__check_gradients(op, &op->tests[i]));
        SGRAD_TRY(sgrad__check_accumulate(op, &op->tests[i]));
        SGRAD_TRY(sgrad__check_adds(op, &op->tests[i]));
        SGRAD_TRY(sgrad__check_absent(op, &op->tests[i]));
        SGRAD_TRY(sgrad__check_bf16(op, &op->tests[i], tolerance));
    }
    return 0;
}
