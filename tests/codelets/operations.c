/* operations.c: every operation on every one of its test shapes:
 *
 *     gradients    backward against finite differences of forward, for inputs and parameters
 *     accumulate   a gradient that is added to is the old one plus the new
 *     adds         and so is what is no sample's, of kernels that say that they add
 *     bf16         forward and backward in bf16 against f32, on the same (bf16) numbers
 *     CUDA         forward, inference and backward on a GPU against a CPU, and accumulate there, where there is a GPU
 *
 * A convolution and an inner product have several ways to go (codelets/ways.h): they come again for each, the others do not.
 *
 *     OPERATIONS=relu,conv2d build/tests/codelets/operations       these alone, and each case by its name before it begins */
#include "codelets/ops/conv2d.h"
#include "codelets/passes.h"
#include "codelets/ways.h"
#include "tests/codelets/instance.h"

#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static struct sgrad_context *context;

/* What is being checked, for messages. */
static struct {
    const struct sgrad_op *op;
    const struct sgrad_test *test;
    const char *check, *types;
    enum sgrad__way way;        /* of layers that have several */
    bool again;     /* of a round in which only layers with several ways come */
} now;

static bool has_ways(const struct sgrad_op *op) {
    for (int k = 0; k < SGRAD_MAX_TASKS; k++)
        if (op->forward[k].kernel.cpu == sgrad__pass_forward) return true;
    return false;
}

/* "conv2d, 3x3 stride 2, (2,9,9,3): gradients, f32, on a CPU, way: blocked" */
static const char *case_text(void) {
    static char text[512];
    char shapes[256] = "", shape[SGRAD_SHAPE_TEXT];
    for (int i = 0; i < SGRAD_MAX_INPUTS && now.test->x[i].rank; i++) {
        const size_t used = strlen(shapes);
        snprintf(shapes + used, sizeof shapes - used, "%s%s", i ? " " : "", sgrad_shape_text(&now.test->x[i], shape));
    }
    snprintf(text, sizeof text, "%s, %s, %s: %s, %s, on a %s%s%s", now.op->name, now.test->name, shapes, now.check, now.types,
             context->cudas ? "GPU" : "CPU", has_ways(now.op) ? ", way: " : "",
             !has_ways(now.op)                 ? ""
             : now.way < SGRAD__WAYS           ? sgrad__way_name[now.way]
                                               : "the fastest");
    return text;
}

static bool say(const char *what, double got, double wanted) {
    print_error("%s: %s is %.9g, not %.9g\n", case_text(), what, got, wanted);
    return false;
}

/* What has to work for there to be anything to compare. */
static void must(int error) {
    if (error) fail_msg("%s: %s", case_text(), sgrad_strerror(error));
}

/* Is NAME one of those that OPERATIONS lists? */
static bool is_asked_for(const char *name) {
    const char *word = getenv("OPERATIONS");
    if (!word || !*word) return true;
    for (size_t n;; word += n + 1) {
        n = strcspn(word, ",");
        if (n == strlen(name) && !strncmp(word, name, n)) return true;
        if (!word[n]) return false;
    }
}

/* False, and said: OPERATIONS has a word that names none. */
static bool all_are_known(void) {
    const char *word = getenv("OPERATIONS");
    bool known = true;
    for (size_t n; word && *word; word += n + (word[n] == ',')) {
        n = strcspn(word, ",");
        char *name = sgrad_format("%.*s", (int)n, word);
        if (!sgrad_op_find(name))
            known = false, print_error("OPERATIONS: no operation is called '%s': stargrad list ops\n", name);
        free(name);
    }
    return known;
}

static bool is_wanted(const struct sgrad_op *op) { return is_asked_for(op->name) && (!now.again || has_ways(op)); }

/* CHECK on every test shape of every operation, and one line that says of which. */
static bool for_each(const char *name, const char *types,
                     bool (*check)(const struct sgrad_op *op, const struct sgrad_test *test)) {
    char done[2048] = "";
    bool good = true;
    now.check = name;
    now.types = types;
    for (int k = 0; sgrad_ops[k]; k++) {
        const struct sgrad_op *op = now.op = sgrad_ops[k];
        int shapes = 0;
        assert_non_null(op->tests[0].name);
        if (!is_wanted(op)) continue;
        for (; shapes < SGRAD_MAX_TESTS && op->tests[shapes].name; shapes++) {
            now.test = &op->tests[shapes];
            if (getenv("OPERATIONS")) print_message("%s\n", case_text()), fflush(stdout);
            good &= check(op, now.test);
        }
        const size_t used = strlen(done);
        snprintf(done + used, sizeof done - used, "%s %s %d", used ? "," : "", op->name, shapes);
    }
    print_message("%s, %s, shapes of each:%s\n", name, types, done);
    return good;
}

/* What backward differentiates: Σ dy·y, or the loss itself. */
static double objective(struct instance *t) {
    double sum = 0;
    must(instance_run(t, t->op->forward, 0));
    if (!t->tensor[SGRAD_Y][0]) {
        double *stat = instance_read(t->tensor[SGRAD_STAT][0]);
        sum = stat[0] / (double)sgrad_shape_count(&t->is.x[1].shape);
        free(stat);
        return sum;
    }
    double *y = instance_read(t->tensor[SGRAD_Y][0]), *dy = instance_read(t->tensor[SGRAD_DY][0]);
    for (int64_t i = 0; i < instance_count(t->tensor[SGRAD_Y][0]); i++) sum += y[i] * dy[i];
    free(y);
    free(dy);
    return sum;
}

/* (objective(x_i + h) - objective(x_i - h)) / 2h */
static double difference(struct instance *t, struct sgrad_tensor *variable, double *x, int64_t i, double h) {
    double at = x[i];
    x[i] = at + h;
    instance_write(variable, x);
    double up = objective(t);
    x[i] = at - h;
    instance_write(variable, x);
    double down = objective(t);
    x[i] = at;
    instance_write(variable, x);
    return (up - down) / (2 * h);
}

/* A dozen elements of GRADIENT against differences of the objective along them in VARIABLE. A step may lead across the kink of a
 * ReLU, so a shorter one may decide; too short a one drowns in rounding. */
static bool check_differences(struct instance *t, const char *what, struct sgrad_tensor *variable,
                              struct sgrad_tensor *gradient) {
    static const double steps[] = { 1.0 / 128, 1.0 / 1024, 1.0 / 8192 };
    double *x = instance_read(variable), *g = instance_read(gradient), scale = 1e-3, d = 0;
    int64_t count = instance_count(variable), stride = count / 12 + 1;
    bool good = true;
    for (int64_t i = 0; i < count; i++) scale = fmax(scale, fabs(g[i]));
    for (int64_t i = count > 12 ? 3 % stride : 0; i < count && good; i += stride) {
        good = false;
        for (size_t s = 0; s < sizeof steps / sizeof *steps && !good; s++) {
            d = difference(t, variable, x, i, steps[s]);
            good = fabs(d - g[i]) <= 2e-3 * scale + 1e-3 * fabs(g[i]);
        }
        if (!good) say(what, g[i], d);
    }
    free(x);
    free(g);
    return good;
}

static bool check_gradients(const struct sgrad_op *op, const struct sgrad_test *test) {
    struct instance t;
    bool good = true;
    char what[64];
    if (op->not_differentiable) return true;
    must(instance_open(&t, op, test, SGRAD_F32));
    if (t.is.view_of_input) {
        instance_close(&t);
        return true;
    }
    instance_fill(&t);
    objective(&t);
    must(instance_run(&t, op->backward, 0));
    for (int i = 0; i < SGRAD_MAX_INPUTS && good; i++) {
        snprintf(what, sizeof what, "a derivative by input %d", i);
        if (instance_has_gradient(&t, i)) good = check_differences(&t, what, t.tensor[SGRAD_X][i], t.tensor[SGRAD_DX][i]);
    }
    for (int i = 0; i < SGRAD_MAX_PARAMETERS && good; i++) {
        snprintf(what, sizeof what, "a derivative by %s", t.is.p[i].name);
        if (t.tensor[SGRAD_P][i]) good = check_differences(&t, what, t.tensor[SGRAD_P][i], t.tensor[SGRAD_DP][i]);
    }
    instance_close(&t);
    return good;
}

static void gradients(void **state) {
    (void)state;
    assert_true(for_each("gradients", "f32", check_gradients));
}

/* TENSOR holds twice what it held ONCE. */
static bool check_doubled(const char *what, const double *once, struct sgrad_tensor *tensor) {
    double *twice = instance_read(tensor);
    bool good = true;
    for (int64_t k = 0; k < instance_count(tensor) && good; k++)
        if (fabs(twice[k] - 2 * once[k]) > 1e-5 + 1e-5 * fabs(once[k])) good = say(what, twice[k], 2 * once[k]);
    free(twice);
    return good;
}

static bool check_accumulate(const struct sgrad_op *op, const struct sgrad_test *test) {
    struct instance t;
    bool good = true;
    must(instance_open(&t, op, test, SGRAD_F32));
    if (!t.is.view_of_input && op->backward[0].kernel.name) {
        instance_fill(&t);
        objective(&t);
        must(instance_run(&t, op->backward, 0));
        double *once[SGRAD_MAX_INPUTS] = { 0 };
        for (int i = 0; i < t.is.inputs; i++)
            if (instance_has_gradient(&t, i)) once[i] = instance_read(t.tensor[SGRAD_DX][i]);
        must(instance_run(&t, op->backward, 1u << SGRAD_DX));
        for (int i = 0; i < t.is.inputs; i++) {
            if (!once[i]) continue;
            if (good) good = check_doubled("a gradient added to itself", once[i], t.tensor[SGRAD_DX][i]);
            free(once[i]);
        }
    }
    instance_close(&t);
    return good;
}

/* Where a kernel says that it adds, doing it twice leaves twice as much of what is no samples'. On CPUs: a GPU need not. */
static bool check_adding(struct instance *t, const struct sgrad_task *task) {
    const struct sgrad_task alone[2] = { *task };
    bool good = true;
    must(instance_run(t, alone, 0));
    for (int j = 0; j < SGRAD_MAX_OPERANDS && task->use[j].role && good; j++) {
        struct sgrad_use use = task->use[j];
        struct sgrad_tensor *tensor = t->tensor[use.role][use.index];
        if (!tensor || use.access == SGRAD_R || (use.role != SGRAD_PART && use.role != SGRAD_DP)) continue;
        double *once = instance_read(tensor);
        must(instance_run(t, alone, 1u << use.role));
        good = check_doubled("a sum added to itself", once, tensor);
        must(instance_run(t, alone, 0));
        free(once);
    }
    return good;
}

static bool check_adds(const struct sgrad_op *op, const struct sgrad_test *test) {
    struct instance t;
    bool good = true;
    if (context->cudas) return true;
    must(instance_open(&t, op, test, SGRAD_F32));
    instance_fill(&t);
    if (!t.is.view_of_input) objective(&t);
    if (!t.is.view_of_input && op->backward[0].kernel.name) must(instance_run(&t, op->backward, 0));
    for (int k = 0; k < SGRAD_MAX_TASKS && good && !t.is.view_of_input; k++) {
        if (op->backward[k].kernel.adds) good = check_adding(&t, &op->backward[k]);
        if (op->forward[k].kernel.adds && good) good = check_adding(&t, &op->forward[k]);
    }
    instance_close(&t);
    return good;
}

static void adds(void **state) {
    (void)state;
    assert_true(for_each("adds", "f32", check_adds));
}

static void accumulate(void **state) {
    (void)state;
    assert_true(for_each("accumulate", "f32", check_accumulate));
}

/* ---- one instance against another ---- */

/* Elements may differ by TOLERANCE of the tensor's root mean square, and by as much of themselves. */
static bool compare(enum sgrad_role role, int i, struct sgrad_tensor *got, struct sgrad_tensor *wanted,
                    double tolerance) {
    static const char *const names[ROLES] = { [SGRAD_Y] = "output",
                                              [SGRAD_DX] = "input gradient",
                                              [SGRAD_DP] = "parameter gradient",
                                              [SGRAD_STAT] = "statistic",
                                              [SGRAD_S] = "state" };
    char what[64];
    double *a = instance_read(got), *b = instance_read(wanted), square = 0;
    int64_t count = instance_count(got);
    bool good = true;
    for (int64_t k = 0; k < count; k++) square += b[k] * b[k];
    double scale = sqrt(square / (double)count);
    for (int64_t k = 0; k < count && good; k++) {
        if (fabs(a[k] - b[k]) <= tolerance * (scale + fabs(b[k]))) continue;
        snprintf(what, sizeof what, "%s %d, element %lld,", names[role], i, (long long)k);
        good = say(what, a[k], b[k]);
    }
    free(a);
    free(b);
    return good;
}

/* A convolution's gradients in bf16, where it may go Winograd's way, have noise of 1.2 % of the root mean square. */
static double tolerance_of_bf16(const struct sgrad_op *op, enum sgrad_role role) {
    const bool gradient = role == SGRAD_DX || role == SGRAD_DP,
               winograd = now.way == SGRAD__WINOGRAD || now.way == SGRAD__WAYS;
    return op == &sgrad_conv2d_op && gradient && winograd ? 0.08 : 0.03;
}

static bool compare_all(struct instance *got, struct instance *wanted) {
    static const enum sgrad_role roles[] = { SGRAD_Y, SGRAD_STAT, SGRAD_DX, SGRAD_DP, SGRAD_S };
    for (size_t r = 0; r < sizeof roles / sizeof *roles; r++)
        for (int i = 0; i < SGRAD_MAX_INPUTS; i++)
            if (wanted->tensor[roles[r]][i] && !compare(roles[r], i, got->tensor[roles[r]][i], wanted->tensor[roles[r]][i],
                                                        tolerance_of_bf16(got->op, roles[r])))
                return false;
    return true;
}

static void run_whole(struct instance *t) {
    instance_fill(t);
    if (t->is.view_of_input) return;
    must(instance_run(t, t->op->forward, 0));
    must(instance_run(t, t->op->backward, 0));
    must(instance_run(t, t->op->finish, 0));
}

/* bf16 has 8 bits: a product chain is right to a few of 2^-8 of its size. Where ReLU or a maximum decides, both decide alike,
 * because both see the same numbers; sums of many rounded terms stay near the root mean square. */
static bool check_bf16(const struct sgrad_op *op, const struct sgrad_test *test) {
    struct instance half, whole;
    must(instance_open(&half, op, test, SGRAD_BF16));
    must(instance_open(&whole, op, test, SGRAD_F32));
    run_whole(&half);
    run_whole(&whole);
    bool good = compare_all(&half, &whole);
    instance_close(&half);
    instance_close(&whole);
    return good;
}

static void bf16(void **state) {
    (void)state;
    assert_true(for_each("values", "bf16 against f32", check_bf16));
}

/* ---- CUDA against CPU ---- */

#define MOST 512
static struct result {
    double *value[ROLES][SGRAD_MAX_INPUTS];
    double *inference;
} results[2][MOST];
static int result_count;
static enum sgrad_dtype result_dtype;

static bool keep_results(const struct sgrad_op *op, const struct sgrad_test *test) {
    static const enum sgrad_role roles[] = { SGRAD_Y, SGRAD_STAT, SGRAD_DX, SGRAD_DP, SGRAD_S };
    struct instance t;
    struct result *r = &results[result_dtype][result_count++];
    assert_in_range(result_count, 1, MOST);
    must(instance_open(&t, op, test, result_dtype));
    run_whole(&t);
    for (size_t k = 0; k < sizeof roles / sizeof *roles; k++)
        for (int i = 0; i < SGRAD_MAX_INPUTS; i++)
            if (t.tensor[roles[k]][i]) r->value[roles[k]][i] = instance_read(t.tensor[roles[k]][i]);
    if (op->inference[0].kernel.name) {
        must(instance_run(&t, op->inference, 0));
        r->inference = instance_read(t.tensor[SGRAD_Y][0]);
    }
    instance_close(&t);
    return true;
}

static bool check_result(struct sgrad_tensor *tensor, const double *wanted, enum sgrad_role role, int i,
                         double tolerance) {
    struct sgrad_tensor *copy;
    assert_int_equal(sgrad_tensor_create("wanted", SGRAD_F64, tensor->view.shape, SGRAD_PERSISTENT, &copy), 0);
    instance_write(copy, wanted);
    bool good = compare(role, i, tensor, copy, tolerance);
    sgrad_tensor_destroy(copy);
    return good;
}

static bool check_cuda(const struct sgrad_op *op, const struct sgrad_test *test) {
    struct instance t;
    struct result *r = &results[result_dtype][result_count++];
    double tolerance = result_dtype == SGRAD_F32 ? 1e-4 : 0.02;
    bool good = true;
    must(instance_open(&t, op, test, result_dtype));
    run_whole(&t);
    for (int role = 0; role < ROLES; role++)
        for (int i = 0; i < SGRAD_MAX_INPUTS && good; i++)
            if (r->value[role][i]) good = check_result(t.tensor[role][i], r->value[role][i], role, i, tolerance);
    if (r->inference && good) {
        must(instance_run(&t, op->inference, 0));
        good = check_result(t.tensor[SGRAD_Y][0], r->inference, SGRAD_Y, 0, tolerance);
    }
    instance_close(&t);
    return good;
}

static bool for_each_dtype(const char *name, bool (*check)(const struct sgrad_op *op, const struct sgrad_test *test)) {
    bool good = true;
    for (result_dtype = SGRAD_F32; result_dtype <= SGRAD_BF16; result_dtype++) {
        result_count = 0;
        good &= for_each(name, sgrad_dtype_name(result_dtype), check);
    }
    return good;
}

static int open_with(int cpus, int cudas) {
    return sgrad_context_open(&(struct sgrad_context_options){ .cpus = cpus, .cudas = cudas, .scheduler = "eager" }, &context);
}

static void cuda(void **state) {
    (void)state;
    sgrad_context_close(context);
    context = NULL;
    int error = open_with(-1, 0);
    if (error) {
        print_message("skipped: no CUDA device, so CUDA kernels are not compared with CPU kernels\n");
        skip();
    }
    bool good = for_each_dtype("values against a CPU's", check_cuda);
    good &= for_each("accumulate", "f32", check_accumulate);
    assert_true(good);
}

static int setup(void **state) {
    (void)state;
    int error = open_with(0, -1);
    if (!error) for_each_dtype("values, kept for a GPU to compare with", keep_results);
    return error;
}

static int open_only(void **state) {
    (void)state;
    return open_with(0, -1);
}

static int teardown(void **state) {
    (void)state;
    sgrad_context_close(context);
    return 0;
}

static bool any_is_wanted(void) {
    for (int k = 0; sgrad_ops[k]; k++)
        if (is_wanted(sgrad_ops[k])) return true;
    return false;
}

/* Why this round is there. */
static void announce(enum sgrad__way way) {
    if (way == SGRAD__PLAIN)
        print_message("---- every operation on CPUs; layers that have several ways go the plain one\n");
    else if (way < SGRAD__WAYS)
        print_message("---- again, layers that have several ways: the %s one where it is open, else the plain one\n",
                      sgrad__way_name[way]);
    else
        print_message("---- again, layers that have several ways: the one that is the fastest here\n");
    fflush(stdout);
}

int main(void) {
    const struct CMUnitTest every_way[] = {
        cmocka_unit_test(gradients), cmocka_unit_test(accumulate), cmocka_unit_test(adds), cmocka_unit_test(bf16),
    };
    int failed = 0;
    if (!all_are_known()) return 1;
    for (enum sgrad__way way = SGRAD__PLAIN; way <= SGRAD__WAYS; way++) {
        now.way = way;
        now.again = way != SGRAD__PLAIN;
        if (!any_is_wanted()) continue;
        announce(way);
        const pid_t child = fork();     /* plans are kept for the life of a context, and StarPU is best started once a process */
        if (child == 0) {
            setenv("STARGRAD_WAYS", way < SGRAD__WAYS ? sgrad__way_name[way] : "measured", 1);
            return cmocka_run_group_tests_name("one way", every_way, open_only, teardown);
        }
        int status = -1;
        waitpid(child, &status, 0);
        failed += status != 0;
    }
    now.again = false;
    print_message("---- every operation on a GPU against a CPU, where there is one, in f32 and in bf16\n");
    const struct CMUnitTest devices[] = { cmocka_unit_test(cuda) };
    now.way = SGRAD__PLAIN;     /* the most exact */
    setenv("STARGRAD_WAYS", sgrad__way_name[now.way], 1);
    return failed + cmocka_run_group_tests(devices, setup, teardown);
}
