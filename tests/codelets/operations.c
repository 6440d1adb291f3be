/* operations.c: every operation on all test shapes of its record:
 *
 *     gradients, accumulate, adds, bf16     as in graphs/api/check.c
 *     CUDA         forward, inference, backward and accumulation on a GPU against a CPU, if there is a GPU
 *
 * A convolution and an inner product have several algorithms (algorithms.h). These operations are tested with each of them.
 *
 *     OPERATIONS=relu,conv2d build/tests/codelets/operations       tests only these, and prints the name of each case first */
#include "codelets/ops/conv2d.h"
#include "codelets/ops/conv3d.h"
#include "codelets/cpu/passes.h"
#include "codelets/cpu/algorithms.h"
#include "graphs/api/instance.h"
#include "tests/asserts.h"

#include <sys/wait.h>
#include <unistd.h>

static struct sgrad_context *context;

/* What is being checked, for messages. */
static struct {
    const struct sgrad_op *op;
    const struct sgrad_test *test;
    const char *check, *types;
    enum sgrad__algorithm way;  /* of layers that have several */
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
             context->gpus ? "GPU" : "CPU", has_ways(now.op) ? ", way: " : "",
             !has_ways(now.op)                 ? ""
             : now.way < SGRAD__ALGORITHMS           ? sgrad__algorithm_name[now.way]
                                               : "the fastest");
    return text;
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

/* One that is in the library, which says what is wrong; here is said of which case. */
static bool passes(int error) {
    if (error) print_error("%s: %s\n", case_text(), sgrad_strerror(error));
    return !error;
}
static bool check_gradients(const struct sgrad_op *op, const struct sgrad_test *test) {
    return passes(sgrad__check_gradients(op, test));
}
static bool on_cuda(const struct sgrad_task tasks[SGRAD_MAX_TASKS]) {
    for (int k = 0; k < SGRAD_MAX_TASKS && tasks[k].kernel.name; k++)
        if (!tasks[k].kernel.cuda) return false;
    return true;
}

/* What has no kernels for GPUs, CPUs compute. */
static bool runs_here(const struct sgrad_op *op) {
    return !context->gpus || (on_cuda(op->forward) && on_cuda(op->backward) && on_cuda(op->inference) && on_cuda(op->finish));
}

static bool check_accumulate(const struct sgrad_op *op, const struct sgrad_test *test) {
    return !runs_here(op) || passes(sgrad__check_accumulate(op, test));
}
static bool check_adds(const struct sgrad_op *op, const struct sgrad_test *test) { return passes(sgrad__check_adds(op, test)); }

/* A convolution's training in bf16, where it may go Winograd's way, has noise. */
static bool check_bf16(const struct sgrad_op *op, const struct sgrad_test *test) {
    const bool winograd =
        (op == &sgrad_conv2d_op || op == &sgrad_conv3d_op) && (now.way == SGRAD__WINOGRAD || now.way == SGRAD__ALGORITHMS);
    return passes(sgrad__check_bf16(op, test, winograd ? SGRAD__WINOGRAD_TOLERANCE : SGRAD__BF16_TOLERANCE));
}

static void gradients(void **state) {
    (void)state;
    assert_true(for_each("gradients", "f32", check_gradients));
}

static void adds(void **state) {
    (void)state;
    assert_true(for_each("adds", "f32", check_adds));
}

static void accumulate(void **state) {
    (void)state;
    assert_true(for_each("accumulate", "f32", check_accumulate));
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
    must(sgrad__instance_run_whole(&t));
    for (size_t k = 0; k < sizeof roles / sizeof *roles; k++)
        for (int i = 0; i < SGRAD_MAX_INPUTS; i++)
            if (t.tensor[roles[k]][i]) r->value[roles[k]][i] = instance_read(t.tensor[roles[k]][i]);
    if (op->inference[0].kernel.name && t.tensor[SGRAD_Y][0]) {  /* not of a loss */
        must(instance_run(&t, op->inference, 0));
        r->inference = instance_read(t.tensor[SGRAD_Y][0]);
    }
    instance_close(&t);
    return true;
}

static bool check_cuda(const struct sgrad_op *op, const struct sgrad_test *test) {
    struct instance t;
    struct result *r = &results[result_dtype][result_count++];
    if (!runs_here(op)) return true;
    double tolerance = result_dtype == SGRAD_F32 ? 1e-4 : 0.02;
    bool good = true;
    must(instance_open(&t, op, test, result_dtype));
    must(sgrad__instance_run_whole(&t));
    for (int role = 0; role < ROLES; role++)
        for (int i = 0; i < SGRAD_MAX_INPUTS && good; i++)
            if (r->value[role][i])
                good = passes(sgrad__instance_compare(&t, role, i, t.tensor[role][i], r->value[role][i], tolerance));
    if (r->inference && good) {
        must(instance_run(&t, op->inference, 0));
        good = passes(sgrad__instance_compare(&t, SGRAD_Y, 0, t.tensor[SGRAD_Y][0], r->inference, tolerance));
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
    return sgrad_context_open(&(struct sgrad_context_options){ .cpus = cpus, .gpus = cudas, .scheduler = "eager" }, &context);
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
static void announce(enum sgrad__algorithm way) {
    if (way == SGRAD__PLAIN)
        print_message("---- every operation on CPUs; layers that have several ways go the plain one\n");
    else if (way < SGRAD__ALGORITHMS)
        print_message("---- again, layers that have several ways: the %s one where it is open, else the plain one\n",
                      sgrad__algorithm_name[way]);
    else
        print_message("---- again, layers that have several ways: the one that is the fastest here\n");
    fflush(stdout);
}

int main(int argc, char **argv) {
    const struct CMUnitTest every_way[] = {
        sentence("gradients of every operation equal finite differences", gradients),
        sentence("gradients of every operation can be added to another gradient", accumulate),
        sentence("every operation can add to the old values of its output", adds),
        sentence("every operation in bf16 is close to f32", bf16),
    };
    const struct CMUnitTest devices[] = { sentence("every operation on a GPU equals the CPU", cuda) };
    const bool some = count_sentences(argc, argv, every_way) > 0;
    int failed = 0;
    if (!all_are_known()) return 1;
    for (enum sgrad__algorithm way = SGRAD__PLAIN; way <= SGRAD__ALGORITHMS; way++) {
        now.way = way;
        now.again = way != SGRAD__PLAIN;
        if (!some || !any_is_wanted()) continue;
        announce(way);
        const pid_t child = fork();     /* plans are kept for the life of a context, and StarPU is best started once a process */
        if (child == 0) {
            setenv("STARGRAD_CPU_ALGORITHM", way < SGRAD__ALGORITHMS ? sgrad__algorithm_name[way] : "measured", 1);
            return run_sentences_named("one way", argc, argv, every_way, open_only, teardown);
        }
        int status = -1;
        waitpid(child, &status, 0);
        failed += status != 0;
    }
    if (some && !count_sentences(argc, argv, devices)) return failed;
    now.again = false;
    print_message("---- every operation on a GPU against a CPU, where there is one, in f32 and in bf16\n");
    now.way = SGRAD__PLAIN;     /* the most exact */
    setenv("STARGRAD_CPU_ALGORITHM", sgrad__algorithm_name[now.way], 1);
    return failed + run_sentences(argc, argv, devices, setup, teardown);
}
