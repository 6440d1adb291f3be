/* packed.c: tasks that read a packed factor give the same bits as tasks that read it unpacked, also with fewer samples than it
 * was packed for. The test uses the default algorithms, or STARGRAD_CPU_ALGORITHM. */
#include "tests/codelets/check.h"

#include <stdlib.h>

/* The task of TASK on the first SAMPLES of the instance; with FOR, its factor as that call's tasks want it. */
static void run(const struct instance *instance, const struct sgrad_task *task, int64_t samples,
                const struct sgrad_bound_kernel *packed_for) {
    const struct sgrad_batch batch = { samples, samples, samples };
    struct sgrad_bound_kernel call = { .kernel = &task->kernel, .attrs = instance->attrs, .batch = &batch }, pack;
    struct sgrad_tensor *operand[SGRAD_MAX_OPERANDS], *packed = NULL, *workspace = NULL;
    for (int j = 0; j < SGRAD_MAX_OPERANDS && task->use[j].role; j++, call.operands++) {
        const struct sgrad_use use = task->use[j];
        const bool rows = use.role == SGRAD_X || use.role == SGRAD_Y || use.role == SGRAD_DX || use.role == SGRAD_DY;
        operand[j] = instance->tensor[use.role][use.index];
        call.view[j] = operand[j] ? operand[j]->view : (struct sgrad_view){ .shape.rank = -1 };
        if (rows) call.view[j].shape.dim[0] = samples;
        call.access[j] = use.access;
        if (!use.factor || !packed_for) continue;
        size_t bytes;
        const struct sgrad_args args = sgrad_bound_kernel_args(packed_for);
        call.packing = packed_for->kernel->pack_layout(&args, &bytes);
        pack = (struct sgrad_bound_kernel){ .kernel = &sgrad_pack_kernel, .attrs = packed_for, .operands = 2,
                                    .access = { SGRAD_R, SGRAD_W },
                                    .view = { operand[j]->view, { SGRAD_U8, { 1, { (int64_t)bytes } } } } };
        assert_done(sgrad_tensor_create("packed", SGRAD_U8, pack.view[1].shape, SGRAD_TRANSIENT, &packed));
        sgrad_bound_kernel_prepare(&pack);
        struct sgrad_tensor *both[] = { operand[j], packed };
        assert_done(sgrad_task_submit(&(struct sgrad_submission){ .call = &pack, .operand = both }));
        operand[j] = packed;
    }
    sgrad_bound_kernel_prepare(&call);
    assert_done(sgrad_workspace_create(call.workspace, call.gpu_workspace, &workspace));
    assert_done(sgrad_task_submit(&(struct sgrad_submission){ .call = &call, .operand = operand, .workspace = workspace,
                                                              .step = &instance->step, .name = task->kernel.name }));
    assert_done(sgrad_wait_all());
    sgrad_tensor_destroy(workspace);
    sgrad_tensor_destroy(packed);
}

/* The call of TASK on all samples, packed as its kernel says. */
static struct sgrad_bound_kernel call_of(const struct instance *instance, const struct sgrad_task *task) {
    struct sgrad_bound_kernel call = { .kernel = &task->kernel, .attrs = instance->attrs };
    size_t bytes = 0;
    for (int j = 0; j < SGRAD_MAX_OPERANDS && task->use[j].role; j++, call.operands++) {
        const struct sgrad_tensor *is = instance->tensor[task->use[j].role][task->use[j].index];
        call.view[j] = is ? is->view : (struct sgrad_view){ .shape.rank = -1 };
    }
    const struct sgrad_args args = sgrad_bound_kernel_args(&call);
    call.packing = task->kernel.pack_layout(&args, &bytes);
    assert_true(!call.packing == !bytes);
    return call;
}

/* Is it packed? */
static bool check(struct instance *instance, const struct sgrad_task *task) {
    if (!task->kernel.pack_layout) return false;
    const struct sgrad_bound_kernel call = call_of(instance, task);
    struct sgrad_tensor *out = NULL;
    if (!call.packing) return false;
    for (int j = 0; task->use[j].role; j++)
        if (task->use[j].access != SGRAD_R) out = instance->tensor[task->use[j].role][task->use[j].index];
    const int64_t all = instance->is.x[0].shape.dim[0];
    for (int64_t samples = all; samples > 0; samples -= all > 2 ? all / 2 : 1) {
        run(instance, task, samples, NULL);
        double *wanted = instance_read(out);
        run(instance, task, samples, &call);
        double *got = instance_read(out);
        const bool same = near(instance->test->name, got, wanted, instance_count(out) / all * samples, 0);
        free(wanted);
        free(got);
        if (!same) fail_msg("%s of %lld samples", task->kernel.name, (long long)samples);
    }
    return true;
}

static void the_same(void **state) {
    int count = 0;
    (void)state;
    for (int k = 0; sgrad_ops[k]; k++) {
        const struct sgrad_op *op = sgrad_ops[k];
        for (const struct sgrad_test *test = op->tests; test < op->tests + SGRAD_MAX_TESTS && test->name; test++) {
            struct instance t;
            assert_done(instance_open(&t, op, test, SGRAD_BF16));
            instance_fill(&t);
            count += check(&t, &op->forward[0]) + check(&t, &op->inference[0]) + check(&t, &op->backward[0]);
            instance_close(&t);
        }
    }
    print_message("%d packed\n", count);
    assert_in_range(count, 30, 1000);
}

int main(int argc, char **argv) {
    struct sgrad_context *context;
    const struct CMUnitTest tests[] = {
        sentence("tasks with packed factors give the same bits as without", the_same),
    };
    setenv("STARGRAD_CPU_ALGORITHM", "rule", 0);
    if (sgrad_context_open(&(struct sgrad_context_options){ .cpus = 1, .gpus = -1 }, &context)) return 99;
    const int failed = run_sentences(argc, argv, tests, NULL, NULL);
    sgrad_context_close(context);
    return failed;
}
