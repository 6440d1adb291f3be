/* task.c: creates and submits StarPU tasks for kernels.
 *
 *     kernel ──once──> codelet          (name, colour, functions, performance model)
 *     kernel + shapes ──once──> call    (costs, workspace, hash)
 *     call + tensors ──each time──> task
 *
 * All codelets use one CPU function and one CUDA function, which fill struct sgrad_args and call the kernel. */
#include "config.h"
#include "runtime/gate.h"
#include "runtime/internal.h"
#include "runtime/profile.h"
#include "runtime/runtime.h"

#include <assert.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <starpu.h>

_Static_assert(STARPU_NMAXBUFS > SGRAD_FEW_OPERANDS,
               "StarPU was built for too few buffers per task; configure it with --enable-maxbuffers=16, as ./quickstart does");

/* The argument of a task; StarPU frees it with the task. */
struct argument {
    const struct sgrad_bound_kernel *call;
    const struct sgrad_step *step;
    int64_t first;
    struct sgrad_failure *failure;
    struct sgrad_gate *gate;
    uint64_t present;       /* bit i: operand i is not NULL */
    bool has_workspace, stays;
    bool watched;            /* of a simulated task: its worker is counted as busy */
    void (*done)(void *arg); /* of a simulated task, as in struct sgrad_submission */
    void *done_arg;
};

/* ---- gates ---- */

enum { OPEN, SHUT, HELD, CANCELLED };

/* Changes the state of an open gate to TO; a gate that is not open is unchanged. Returns the new state. */
static int gate_turn(struct sgrad_gate *gate, int to) {
    int is = OPEN;
    if (__atomic_compare_exchange_n(&gate->state, &is, to, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) is = to;
    return is;
}

void sgrad_gate_open(struct sgrad_gate *gate) { __atomic_store_n(&gate->state, OPEN, __ATOMIC_SEQ_CST); }

bool sgrad_gate_hold(struct sgrad_gate *gate) { return gate_turn(gate, HELD) == HELD; }
void sgrad_gate_release(struct sgrad_gate *gate, bool cancel) {
    __atomic_store_n(&gate->state, cancel ? CANCELLED : OPEN, __ATOMIC_SEQ_CST);
}

/* Returns false if the step is cancelled, so that the task must not run. A task that changes data outliving the step (STAYS)
 * shuts the gate. If the gate is held, it first waits until the ranks have agreed. */
static bool passes(struct sgrad_gate *gate, bool stays) {
    if (!gate) return true;
    if (!stays) return __atomic_load_n(&gate->state, __ATOMIC_SEQ_CST) != CANCELLED;
    int is;
    while ((is = gate_turn(gate, SHUT)) == HELD) nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    return is != CANCELLED;
}

/* ---- running ---- */

static void run(void *buffers[], void *cl_arg, bool cuda) {
    const struct argument *argument = cl_arg;
    const struct sgrad_bound_kernel *call = argument->call;
    void *data[SGRAD_MAX_OPERANDS];
    struct sgrad_view absent[SGRAD_MAX_OPERANDS];
    const struct sgrad_view *view = call->view;
    int buffer = 0;

    sgrad__tensors_look();
    if (argument->failure ? sgrad_failure_error(argument->failure) : sgrad_task_error()) return;
    if (!passes(argument->gate, argument->stays)) return;
    for (int i = 0; i < call->operands; i++)
        data[i] = argument->present >> i & 1 ? (void *)STARPU_VARIABLE_GET_PTR(buffers[buffer++]) : NULL;
    if (argument->present != (UINT64_C(1) << call->operands) - 1) {
        memcpy(absent, call->view, sizeof *absent * (size_t)call->operands);
        for (int i = 0; i < call->operands; i++)
            if (!data[i]) absent[i].shape.rank = -1;
        view = absent;
    }
    struct sgrad_args args = sgrad_bound_kernel_args(call);
    args.view = view;
    args.data = data;
    args.step = cuda ? sgrad__cuda_step(argument->step) : argument->step;
    args.first = argument->first;
    if (argument->has_workspace) {
        args.workspace = (void *)((const struct starpu_variable_interface *)buffers[buffer])->ptr;
        args.workspace_size = cuda ? call->gpu_workspace : call->workspace;
    }
    if (SGRAD_SIMULATED) return;
    if (cuda) {
        sgrad__cuda_run(call, &args);
        return;
    }
    const bool watched = sgrad__worker_begins();
    const double begin = sgrad__watch_begin(call);
    call->kernel->cpu(&args);
    sgrad__watch_end(call, begin);
    sgrad__worker_ends(watched);
}

/* StarPU does not call the function of a simulated task, but these, when its worker begins and ends it. */
static void simulated_begins(void *arg) { ((struct argument *)arg)->watched = sgrad__worker_begins(); }
static void simulated_ends(void *arg) {
    const struct argument *argument = arg;
    sgrad__worker_ends(argument->watched);
    if (argument->done) argument->done(argument->done_arg);
}

static void run_cpu(void *buffers[], void *cl_arg) { run(buffers, cl_arg, false); }
static void run_cuda(void *buffers[], void *cl_arg) {
    const struct starpu_task *task = starpu_task_get_current();
    sgrad__cuda_begin(task && task->name ? task->name : ((const struct argument *)cl_arg)->call->kernel->name);
    run(buffers, cl_arg, true);
}

static const struct sgrad_bound_kernel *call_of(const struct starpu_task *task) {
    return ((const struct argument *)task->cl_arg)->call;
}

/* The key in StarPU's history of measured times. It distinguishes calls of a kernel with equal sizes and different attributes. */
static uint32_t footprint(struct starpu_task *task) {
    return call_of(task)->hash;
}

/* ---- codelets: one per kernel, created on first use, never freed ---- */

struct codelet {
    const struct sgrad_kernel *kernel;
    struct starpu_codelet cl;
    struct starpu_perfmodel model;
    struct codelet *next;
};
static struct codelet *codelets[256];
static pthread_mutex_t codelets_lock = PTHREAD_MUTEX_INITIALIZER;

static struct starpu_codelet *codelet_of(const struct sgrad_kernel *kernel) {
    size_t bucket = ((uintptr_t)kernel >> 4) % 256;
    pthread_mutex_lock(&codelets_lock);
    struct codelet *c = codelets[bucket];
    while (c && c->kernel != kernel) c = c->next;
    if (!c) {
        c = sgrad_xcalloc(1, sizeof *c);
        c->kernel = kernel;
        c->model.type = STARPU_HISTORY_BASED;
        c->model.footprint = footprint;
        if (SGRAD_SIMULATED) sgrad__simulation_model(&c->model, call_of);
        char *symbol = sgrad_format("stargrad_%s", kernel->name);
        for (char *s = symbol; *s; s++)
            if (*s == ' ') *s = '_';
        c->model.symbol = symbol;
        starpu_codelet_init(&c->cl);
        c->cl.name = kernel->name;
        c->cl.color = kernel->kind ? kernel->kind->color : 0;
        c->cl.model = &c->model;
        c->cl.nbuffers = STARPU_VARIABLE_NBUFFERS;
        if (!kernel->cpu && !kernel->cuda) c->cl.where = STARPU_NOWHERE;
        if (kernel->cpu) {
            c->cl.cpu_funcs[0] = run_cpu;
            c->cl.cpu_funcs_name[0] = "run_cpu";
            c->cl.where |= STARPU_CPU;
        }
        if (kernel->cuda) {
            c->cl.cuda_funcs[0] = run_cuda;
            c->cl.cuda_flags[0] = STARPU_CUDA_ASYNC;
            c->cl.where |= STARPU_CUDA;
        }
        c->next = codelets[bucket];
        codelets[bucket] = c;
    }
    pthread_mutex_unlock(&codelets_lock);
    return &c->cl;
}

void sgrad__kernels_each(void (*see)(const char *model, const struct sgrad_kernel *kernel, void *arg), void *arg) {
    for (size_t bucket = 0; bucket < sizeof codelets / sizeof *codelets; bucket++)
        for (const struct codelet *c = codelets[bucket]; c; c = c->next) see(c->model.symbol, c->kernel, arg);
}

/* ---- calls ---- */

struct sgrad_args sgrad_bound_kernel_args(const struct sgrad_bound_kernel *call) {
    return (struct sgrad_args){ .view = call->view, .attrs = call->attrs, .batch = call->batch, .accumulate = call->accumulate,
                                .packing = call->packing, .deterministic = call->deterministic, .tf32 = call->tf32 };
}

double sgrad_no_flops(const struct sgrad_args *args) { return (void)args, 0; }

double sgrad_kernel_flops(const struct sgrad_kernel *kernel, const struct sgrad_args *args) {
    return kernel->flops ? kernel->flops(args) : (double)sgrad_shape_count(&args->view[0].shape);
}

double sgrad_kernel_bytes(const struct sgrad_kernel *kernel, const struct sgrad_args *args, int operands) {
    if (kernel->bytes) return kernel->bytes(args);
    double bytes = 0;
    for (int i = 0; i < operands; i++)
        if (args->view[i].shape.rank >= 0) bytes += (double)sgrad_view_bytes(&args->view[i]);
    return bytes;
}

void sgrad_bound_kernel_prepare(struct sgrad_bound_kernel *call) {
    struct sgrad_args args = sgrad_bound_kernel_args(call);
    call->workspace = call->kernel->workspace ? call->kernel->workspace(&args) : 0;
    call->gpu_workspace = call->kernel->gpu_workspace ? call->kernel->gpu_workspace(&args) : call->workspace;
    call->flops = sgrad_kernel_flops(call->kernel, &args);
    call->bytes = sgrad_kernel_bytes(call->kernel, &args, call->operands);
    call->hash = 0;
    for (int i = 0; i < call->operands; i++) {
        const struct sgrad_view *v = &call->view[i];
        call->hash = starpu_hash_crc32c_be(v->dtype, call->hash);
        if (v->shape.rank > 0)
            call->hash = starpu_hash_crc32c_be_n(v->shape.dim, sizeof *v->shape.dim * (size_t)v->shape.rank, call->hash);
    }
    uint64_t cost[] = { (uint64_t)call->flops, (uint64_t)call->bytes, call->tf32 };
    call->hash = starpu_hash_crc32c_be_n(cost, sizeof cost, call->hash);
    call->codelet = codelet_of(call->kernel);
    call->recordings = call->recorded && !SGRAD_SIMULATED ? sgrad__recordings_create() : NULL;
}

void sgrad_bound_kernel_release(struct sgrad_bound_kernel *call) {
    sgrad__recordings_destroy(call->recordings);
    free(call->tally);
    call->recordings = NULL;
    call->tally = NULL;
}

/* Reads the measurements of earlier runs, which StarPU otherwise does when the first task of CALL is submitted. */
static void load_measurements(const struct sgrad_bound_kernel *call, struct starpu_perfmodel_arch *arch) {
    struct starpu_task task;
    struct argument argument = { .call = call };
    starpu_task_init(&task);
    task.cl = call->codelet;
    task.cl_arg = &argument;
    starpu_task_expected_length(&task, arch, 0);
    starpu_task_clean(&task);
}

double sgrad_bound_kernel_expected(const struct sgrad_bound_kernel *call, int worker) {
    struct starpu_perfmodel_arch *arch = starpu_worker_get_perf_archtype(worker, 0);
    if (!call->codelet->model->is_loaded) load_measurements(call, arch);
    return 1e-6 * starpu_perfmodel_history_based_expected_perf(call->codelet->model, arch, call->hash);
}

double sgrad_bound_kernel_mean(const struct sgrad_bound_kernel *call, int worker) {
    if (SGRAD_SIMULATED) return sgrad__simulation_seconds(call);
    struct starpu_perfmodel_arch *arch = starpu_worker_get_perf_archtype(worker, 0);
    if (!call->codelet->model->is_loaded) load_measurements(call, arch);
    const struct starpu_perfmodel_per_arch *measured = starpu_perfmodel_get_model_per_arch(call->codelet->model, arch, 0);
    for (const struct starpu_perfmodel_history_list *l = measured ? measured->list : NULL; l; l = l->next)
        if (l->entry->footprint == call->hash && l->entry->nsample > 0) return 1e-6 * l->entry->mean;
    return NAN;
}

/* ---- tasks ---- */

/* Restricts TASK to GPU, counted from 1. StarPU requires a bitmap of workers, which must outlive the task. */
static void keep_on_gpu(struct starpu_task *task, int gpu) {
    enum { BITS = 32, WORDS = (SGRAD_MAX_WORKERS + BITS - 1) / BITS };
    static uint32_t only[SGRAD_MAX_WORKERS][WORDS];     /* only[w]: bit w, set on first use, then constant */
    const int worker = starpu_worker_get_by_type(STARPU_CUDA_WORKER, gpu - 1);
    if (worker < 0) return;
    __atomic_store_n(&only[worker][worker / BITS], 1u << worker % BITS, __ATOMIC_RELAXED);
    task->where = STARPU_CUDA;
    task->workerids = only[worker];
    task->workerids_len = WORDS;
}

int sgrad_task_submit(const struct sgrad_submission *submission) {
    static const enum starpu_data_access_mode modes[] = { [SGRAD_R] = STARPU_R, [SGRAD_W] = STARPU_W, [SGRAD_RW] = STARPU_RW };
    const struct sgrad_bound_kernel *call = submission->call;
    struct argument *argument = sgrad_xcalloc(1, sizeof *argument);
    struct starpu_task *task = starpu_task_create();
    int buffer = 0;

    argument->call = call;
    argument->step = submission->step;
    argument->first = submission->first;
    argument->failure = submission->failure;
    argument->gate = submission->gate;
    argument->stays = submission->stays;
    if (call->operands > SGRAD_FEW_OPERANDS) {
        task->dyn_handles = sgrad_xcalloc((size_t)call->operands + 1, sizeof *task->dyn_handles);   /* StarPU frees them */
        task->dyn_modes = sgrad_xcalloc((size_t)call->operands + 1, sizeof *task->dyn_modes);
    }
    starpu_data_handle_t *handle = task->dyn_handles ? task->dyn_handles : task->handles;
    enum starpu_data_access_mode *mode = task->dyn_modes ? task->dyn_modes : task->modes;
    for (int i = 0; i < call->operands; i++) {
        struct sgrad_tensor *tensor = submission->operand[i];
        if (!tensor) continue;
        argument->present |= UINT64_C(1) << i;
        handle[buffer] = tensor->handle;
        mode[buffer++] = modes[call->access[i]];
    }
    if (call->workspace || call->gpu_workspace) {
        assert(submission->workspace);
        argument->has_workspace = true;
        handle[buffer] = submission->workspace->handle;
        mode[buffer++] = STARPU_SCRATCH;
    }
    task->nbuffers = buffer;
    task->cl = call->codelet;
    task->cl_arg = argument;
    task->cl_arg_size = sizeof *argument;
    task->cl_arg_free = 1;
    task->priority = submission->priority;
    task->name = submission->name;
    task->flops = call->flops;
    /* The results of a GPU and a CPU differ in their last bits, so the scheduler must not choose if results must be reproducible.
     * Simulated CPUs only run tasks that have no GPU version. */
    if ((call->deterministic || SGRAD_SIMULATED) && call->kernel->cuda && starpu_cuda_worker_get_count() > 0)
        task->where = STARPU_CUDA;
    if (submission->workers == SGRAD_CPU_WORKERS) task->where = STARPU_CPU;
    if (submission->workers == SGRAD_GPU_WORKERS && call->kernel->cuda) task->where = STARPU_CUDA;
    if (submission->gpu && call->kernel->cuda) keep_on_gpu(task, submission->gpu);
    task->callback_func = submission->done;
    task->callback_arg = submission->done_arg;
    if (SGRAD_SIMULATED) {
        argument->done = submission->done, argument->done_arg = submission->done_arg;
        task->prologue_callback_pop_func = simulated_begins, task->callback_func = simulated_ends;
        task->prologue_callback_pop_arg = task->callback_arg = argument;
    }
    int error = starpu_task_submit(task);
    if (error) {
        task->destroy = 0;
        starpu_task_destroy(task);
        return sgrad_log_error(SGRAD_EDEVICE, "task %s: no CPU or GPU worker can run it; see 'stargrad doctor'",
                               submission->name ? submission->name : call->kernel->name);
    }
    return 0;
}

void sgrad_task_fail(int error) {
    const struct starpu_task *task = starpu_task_get_current();
    sgrad__failure_note(task ? ((const struct argument *)task->cl_arg)->failure : NULL, error);
}

int sgrad_wait_all(void) {
    starpu_task_wait_for_all();
    return sgrad__failure_take();
}

int sgrad_task_run(const struct sgrad_kernel *kernel, struct sgrad_tensor *const *operand,
                   const enum sgrad_access *access, int operands) {
    struct sgrad_bound_kernel call = { .kernel = kernel, .operands = operands };
    struct sgrad_tensor *workspace = NULL;
    for (int i = 0; i < operands; i++) {
        call.view[i] = operand[i]->view;
        call.access[i] = access[i];
    }
    sgrad_bound_kernel_prepare(&call);
    SGRAD_TRY(sgrad_workspace_create(call.workspace, call.gpu_workspace, &workspace));
    int error = sgrad_task_submit(&(struct sgrad_submission){ .call = &call, .operand = operand, .workspace = workspace });
    if (!error) error = sgrad_wait_all();
    sgrad_tensor_destroy(workspace);
    return error;
}
