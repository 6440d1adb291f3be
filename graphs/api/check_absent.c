/* check_absent.c: checks that backward works without gradients that are not needed. A layer after frozen ones gets no memory for
 * the gradient of its input, and a kernel that writes there crashes. Each backward task with several outputs is executed on
 * copies, once without each gradient of an input and once without all of them, in a child process, because it may crash. Its
 * other outputs must not change. */
#include "config.h"
#include "graphs/api/instance.h"
#include "graphs/api/train.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

struct trial {
    struct instance *t;
    const struct sgrad_task *task;
    int operands;
    struct sgrad_view view[SGRAD_MAX_OPERANDS];
    void *before[SGRAD_MAX_OPERANDS], *after[SGRAD_MAX_OPERANDS];   /* contents before and after the task */
};

static bool is_gradient(const struct sgrad_use *use) { return use->role == SGRAD_DX && use->access != SGRAD_R; }

/* Copies the present contents of the operands. */
static void copy(const struct trial *trial, void **to) {
    for (int j = 0; j < trial->operands; j++) {
        const struct sgrad_use *use = &trial->task->use[j];
        struct sgrad_tensor *tensor = trial->view[j].shape.rank < 0 ? NULL : trial->t->tensor[use->role][use->index];
        to[j] = tensor ? sgrad_xcalloc(1, sgrad_view_bytes(&tensor->view)) : NULL;
        if (tensor && sgrad_tensor_read(tensor, to[j])) abort();
    }
}

/* Returns element I of operand J; sums and gradients have one of these types, other types are not compared. */
static double element(const struct trial *trial, void *const *data, int j, int64_t i) {
    if (trial->view[j].dtype == SGRAD_F64) return ((const double *)data[j])[i];
    return trial->view[j].dtype == SGRAD_F32 ? ((const float *)data[j])[i] : 0;
}

/* In the child process: returns 0 if the remaining outputs are the same as with all operands, else 1. */
static int run_without(const struct trial *trial, uint64_t absent) {
    const int64_t samples = trial->t->is.x[0].shape.dim[0];
    const struct sgrad_batch batch = { samples, samples, samples };
    struct sgrad_view view[SGRAD_MAX_OPERANDS];
    void *data[SGRAD_MAX_OPERANDS];
    for (int j = 0; j < trial->operands; j++) {
        view[j] = trial->view[j];
        data[j] = trial->before[j];
        if (absent >> j & 1) data[j] = NULL, view[j].shape.rank = -1;
    }
    struct sgrad_args args = { .view = view, .data = data, .attrs = trial->t->attrs, .step = &trial->t->step, .batch = &batch };
    args.workspace_size = trial->task->kernel.workspace ? trial->task->kernel.workspace(&args) : 0;
    args.workspace = sgrad_xcalloc(args.workspace_size + 1, 1);
    trial->task->kernel.cpu(&args);
    for (int j = 0; j < trial->operands; j++) {
        if (trial->task->use[j].access == SGRAD_R || !data[j]) continue;
        for (int64_t i = 0; i < sgrad_shape_count(&view[j].shape); i++) {
            const double is = element(trial, data, j, i), wanted = element(trial, trial->after, j, i);
            if (!(fabs(is - wanted) <= 1e-5 + 1e-4 * fabs(wanted))) return 1;
        }
    }
    return 0;
}

static int check_without(const struct trial *trial, uint64_t absent, const char *what) {
    enum { LONG = 60 };     /* seconds */
    int status = 0;
    const pid_t child = fork();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL), signal(SIGBUS, SIG_DFL);
        alarm(LONG);        /* a lock of another thread is never released in the child */
        _exit(run_without(trial, absent));
    }
    if (child < 0 || waitpid(child, &status, 0) != child) return 0;     /* no child process: not checked */
    if (!WIFEXITED(status))
        return sgrad_log_error(
            SGRAD_EINVAL, "operation %s, %s: %s crashes without %s: %s; a kernel must not use outputs that are NULL",
            trial->t->op->name, trial->t->test->name, trial->task->kernel.name, what, strsignal(WTERMSIG(status)));
    if (WEXITSTATUS(status))
        return sgrad_log_error(SGRAD_EINVAL, "operation %s, %s: the other outputs of %s differ if it runs without %s",
                               trial->t->op->name, trial->t->test->name, trial->task->kernel.name, what);
    return 0;
}

/* Omits each gradient of an input, then all of them; at least one output must remain. */
static int check_task(const struct trial *trial) {
    uint64_t written = 0, gradients = 0;
    for (int j = 0; j < trial->operands; j++) {
        if (trial->view[j].shape.rank < 0 || trial->task->use[j].access == SGRAD_R) continue;
        written |= UINT64_C(1) << j;
        if (is_gradient(&trial->task->use[j])) gradients |= UINT64_C(1) << j;
    }
    for (int j = 0; j < trial->operands; j++) {
        char what[64];
        snprintf(what, sizeof what, "a gradient for input %d", trial->task->use[j].index);
        if (gradients >> j & 1 && written != UINT64_C(1) << j) SGRAD_TRY(check_without(trial, UINT64_C(1) << j, what));
    }
    return gradients && gradients != written ? check_without(trial, gradients, "gradients for its inputs") : 0;
}

static int check(struct instance *instance) {
    instance_fill(instance);
    SGRAD_TRY(instance_run(instance, instance->op->forward, 0));
    for (int k = 0; k < SGRAD_MAX_TASKS && instance->op->backward[k].kernel.name; k++) {
        const struct sgrad_task alone[2] = { instance->op->backward[k] };
        struct trial r = { .t = instance, .task = &instance->op->backward[k] };
        for (; r.operands < SGRAD_MAX_OPERANDS && r.task->use[r.operands].role; r.operands++) {
            const struct sgrad_use *use = &r.task->use[r.operands];
            struct sgrad_tensor *tensor = use->if_recomputed ? NULL : instance->tensor[use->role][use->index];
            r.view[r.operands] = tensor ? tensor->view : (struct sgrad_view){ .shape.rank = -1 };
        }
        copy(&r, r.before);
        int error = instance_run(instance, alone, 0);
        copy(&r, r.after);
        if (!error && r.task->kernel.cpu && !r.task->move) error = check_task(&r);
        for (int j = 0; j < r.operands; j++) free(r.before[j]), free(r.after[j]);
        SGRAD_TRY(error);
    }
    return 0;
}

int sgrad__check_absent(const struct sgrad_op *op, const struct sgrad_test *test) {
    struct instance t;
    if (SGRAD_SIMULATED || !op->backward[0].kernel.name) return 0;
    SGRAD_TRY(instance_open(&t, op, test, SGRAD_F32));
    const int error = t.is.view_of_input ? 0 : check(&t);
    instance_close(&t);
    return error;
}
