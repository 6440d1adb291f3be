/* check.h: functions that the tests of codelets share, in addition to instances: compare arrays, run a kernel without a graph,
 * run a group of tests on each kind of device. */
#ifndef SGRAD_TESTS_CHECK_H
#define SGRAD_TESTS_CHECK_H

#include "graphs/api/instance.h"
#include "tests/asserts.h"

/* Elements may differ by TOLERANCE of the root mean square of WANTED. */
static inline bool near(const char *what, const double *got, const double *wanted, int64_t count, double tolerance) {
    double square = 0;
    for (int64_t i = 0; i < count; i++) square += wanted[i] * wanted[i];
    const double most = tolerance * sqrt(square / (double)count);
    for (int64_t i = 0; i < count; i++) {
        if (fabs(got[i] - wanted[i]) <= most) continue;
        print_error("%s, element %lld, is %.9g, not %.9g\n", what, (long long)i, got[i], wanted[i]);
        return false;
    }
    return true;
}

/* An operand of a kernel that is run alone. */
struct operand {
    struct sgrad_view view;
    enum sgrad_access access;
    double *values;     /* NULL: absent */
};

/* One task on the COUNT operands: what it reads goes in, what it wrote comes back. FIRST is the index, in the batch, of the first
 * sample. */
static inline void run_kernel(const struct sgrad_kernel *kernel, const void *attrs, const struct sgrad_step *step, int64_t first,
                              const struct operand *operand, int count) {
    struct sgrad_bound_kernel call = { .kernel = kernel, .attrs = attrs, .operands = count };
    struct sgrad_tensor *tensor[SGRAD_MAX_OPERANDS] = { NULL };
    for (int i = 0; i < count; i++) {
        call.view[i] = operand[i].view;
        call.access[i] = operand[i].access;
        if (!operand[i].values) call.view[i].shape.rank = -1;
        else if (sgrad_tensor_create("operand", operand[i].view.dtype, operand[i].view.shape, SGRAD_PERSISTENT, &tensor[i]))
            abort();
        if (operand[i].values && operand[i].access != SGRAD_W) instance_write(tensor[i], operand[i].values);
    }
    sgrad_bound_kernel_prepare(&call);
    struct sgrad_tensor *workspace = NULL;
    if (sgrad_workspace_create(call.workspace, call.gpu_workspace, &workspace)) abort();
    assert_done(sgrad_task_submit(&(struct sgrad_submission){ .call = &call, .operand = tensor, .workspace = workspace,
                                                              .step = step, .first = first }));
    assert_done(sgrad_wait_all());
    sgrad_tensor_destroy(workspace);
    for (int i = 0; i < count; i++) {
        if (!tensor[i]) continue;
        if (operand[i].access != SGRAD_R) {
            double *values = instance_read(tensor[i]);
            memcpy(operand[i].values, values, (size_t)instance_count(tensor[i]) * sizeof *values);
            free(values);
        }
        sgrad_tensor_destroy(tensor[i]);
    }
}

/* ---- devices ---- */

static struct sgrad_context *check_context;

static inline int check_open(int cpus, int cudas) {
    return sgrad_context_open(&(struct sgrad_context_options){ .cpus = cpus, .gpus = cudas, .scheduler = "eager" },
                              &check_context);
}
static inline int check_on_cpus(void **state) {
    (void)state;
    return check_open(1, -1);
}
static inline int check_on_gpus(void **state) {
    (void)state;
    return check_open(-1, 1);
}
static inline int check_close(void **state) {
    (void)state;
    sgrad_context_close(check_context);
    return 0;
}

static inline bool check_gpu(void) {
    if (check_on_gpus(NULL)) {
        print_message("skipped: no CUDA device, so only CPU kernels were checked\n");
        return false;
    }
    check_close(NULL);
    return true;
}

/* The TESTS (an array) on a CPU, then on a GPU where there is one: how many failed. */
#define run_on_devices(argc, argv, tests)                                                           \
    (run_sentences_named("on a CPU", argc, argv, tests, check_on_cpus, check_close) +               \
     (check_gpu() ? run_sentences_named("on a GPU", argc, argv, tests, check_on_gpus, check_close) : 0))

#endif
