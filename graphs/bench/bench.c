/* bench.c: measures the time of a training step and compares it with lower bounds.
 *
 *     each kernel call of the program, timed without other tasks
 *         best time × calls per step, summed over calls, divided among the workers ──> limit of the kernels
 *     WARM + STEPS training steps
 *         median of the last STEPS ──> time of a step
 *     bytes of the operands of all tasks
 *         divided by the memory bandwidth of all workers ──> memory time; not in the limit; it adds to a step unless hidden
 *     the same tasks with a kernel that does nothing
 *         ──> overhead of submission and of StarPU with this number of workers */
#include "graphs/train/setup.h"
#include "graphs/api/bench.h"
#include "runtime/profile.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WARM = 6, STEPS = 20 };

/* ---- lower bounds ---- */

static struct sgrad_bench_kernel *kernel_of(struct sgrad_bench_result *result, const char *name) {
    for (int i = 0; i < result->kernels; i++)
        if (strcmp(result->kernel[i].name, name) == 0) return &result->kernel[i];
    result->kernel = sgrad_array_grow(result->kernel, result->kernels, sizeof *result->kernel);
    result->kernel[result->kernels] = (struct sgrad_bench_kernel){ .name = name };
    return &result->kernel[result->kernels++];
}

/* Combines the times of one call on each worker; a worker without a kernel for the call (infinite time) is ignored. *MEAN:
 * seconds per call of one worker. *TOGETHER: seconds per call if all workers execute such calls in parallel. */
static void combine(const double *seconds, int workers, double *mean, double *together) {
    double sum = 0, rate = 0;
    int can = 0;
    for (int w = 0; w < workers; w++) {
        if (!isfinite(seconds[w])) continue;
        sum += seconds[w];
        rate += 1 / fmax(seconds[w], 1e-9);
        can++;
    }
    *mean = can ? sum / can : 0;
    *together = rate > 0 ? 1 / rate : 0;
}

/* Returns the kernel calls of a step, one entry per execution, sorted so that executions of the same call are adjacent.
 * Messages are excluded. The caller must free the array. */
static const struct sgrad_bound_kernel **operations(const struct sgrad__program *program, int *count) {
    const struct sgrad_bound_kernel **call = NULL;
    *count = 0;
    for (int i = 0; i < program->instruction_count; i++)
        for (int link = 0; link < sgrad__call_links(program->instruction[i].call); link++) {
            if (sgrad__is_message(program->instruction[i].call)) continue;
            call = sgrad_array_grow(call, *count, sizeof *call);
            call[(*count)++] = sgrad__call_link(program->instruction[i].call, link);
        }
    qsort(call, (size_t)*count, sizeof *call, sgrad__by_address);
    return call;
}

/* Adds the measured mean durations of the program's tasks to RESULT; calls with the same kernel and hash are combined. */
static void find_times(const struct sgrad__program *program, struct sgrad_bench_result *result) {
    int64_t tasks;
    for (int i = 0; i < program->call_count; i++) {
        const struct sgrad_bound_kernel *call = program->call[i];
        const double took = sgrad_bound_kernel_took(call, &tasks);
        int j = 0;
        if (!tasks) continue;
        while (j < result->calls &&
               (result->call[j].hash != call->hash || strcmp(result->call[j].kernel, call->kernel->name))) j++;
        if (j == result->calls) {
            result->call = sgrad_array_grow(result->call, result->calls, sizeof *result->call);
            result->call[result->calls++] =
                (struct sgrad_bench_call){ call->kernel->name, call->hash, call->flops, call->bytes, 0, 0 };
        }
        struct sgrad_bench_call *c = &result->call[j];
        c->seconds = (c->seconds * (double)c->tasks + took) / (double)(c->tasks + tasks);
        c->tasks += tasks;
    }
}

/* Computes the overhead of the workers outside tasks. One rank: the total divided by the number of tasks. Several ranks, for
 * which BYTES, sent and received per step, is positive: the overhead of a task is the usual gap between two tasks; the rest of
 * the total, the work for messages and longer gaps, is divided by BYTES. */
static void find_overhead(double bytes, struct sgrad_bench_result *result) {
    const struct sgrad_overhead is = sgrad_workers_overhead();
    if (!is.tasks) return;
    result->task_overhead = bytes > 0 ? is.usual : is.all / (double)is.tasks;
    if (bytes > 0) result->seconds_per_byte = fmax(0, is.all - (double)is.tasks * is.usual) / STEPS / bytes;
}

static int time_kernels(struct sgrad__run *run, const struct sgrad_step *step, struct sgrad_bench_result *result) {
    double *seconds = sgrad_xcalloc((size_t)result->workers, sizeof *seconds);
    int all, error = 0;
    const struct sgrad_bound_kernel **operation = operations(run->program, &all);
    for (int i = 0, count; i < all && !error; i += count) {
        const struct sgrad_bound_kernel *call = operation[i];
        double mean, together;
        for (count = 1; i + count < all && operation[i + count] == call;) count++;
        error = sgrad_bound_kernel_time(call, step, seconds);
        combine(seconds, result->workers, &mean, &together);
        struct sgrad_bench_kernel *k = kernel_of(result, call->kernel->name);
        k->calls += count;
        k->ms += 1e3 * (double)count * mean;
        k->gflop += 1e-9 * (double)count * call->flops;
        k->gbyte += 1e-9 * (double)count * call->bytes;
        result->limit_ms += 1e3 * (double)count * together;
    }
    free(operation);
    free(seconds);
    return error;
}

/* Computes the memory time. Data that stay inside a task, in the caches of a core, are not counted; data that a task reads
 * from the preceding one are counted as if they had left the caches. */
static int time_memory(struct sgrad__run *run, struct sgrad_bench_result *result) {
    struct sgrad__roof roof = { 0 };
    for (int i = 0; i < run->program->instruction_count; i++) {
        const struct sgrad_bound_kernel *call = run->program->instruction[i].call;
        if (!sgrad__is_message(call)) result->memory_gbyte += 1e-9 * call->bytes;
    }
    SGRAD_TRY(sgrad__roof_measure(run->options.model.precision, &roof));
    for (int w = 0; w < roof.workers; w++) {
        result->gflops += roof.flops[w];
        result->gbytes += roof.bytes[w];
    }
    for (int i = 0; i < result->kernels; i++) result->gflop += result->kernel[i].gflop;
    result->arithmetic_ms = 1e3 * result->gflop / result->gflops;
    result->memory_ms = 1e3 * result->memory_gbyte / result->gbytes;
    return 0;
}

static void set_network(const struct sgrad_network *net, struct sgrad_bench_result *result) {
    if (!net) return;
    result->latency = net->latency, result->bandwidth = net->bandwidth;
    result->host_latency = net->host_latency, result->host_bandwidth = net->host_bandwidth;
}

/* ---- measured steps ---- */

static int by_size(const void *a, const void *b) {
    return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

/* Resets and starts the measurement of task durations and of worker utilization. */
static void watch(struct sgrad__program *program) {
    for (int i = 0; i < program->call_count; i++) sgrad_bound_kernel_profile(program->call[i]);
    sgrad_workers_profile();
}

/* Runs WARM steps and then STEPS steps, of which only the latter are measured. SUBMITS: by step, CPU time of this thread for its
 * submission; NULL: not measured. */
static int time_steps(struct sgrad__run *run, long warm, long steps, struct sgrad_timed_step *step, double *submits) {
    const struct sgrad__slot *slot;
    const long window = sgrad__run_steps_in_flight(run);
    double before = 0;
    sgrad__server_expect(run->parallel.server, warm + steps, warm + steps);
    watch(run->program);
    for (long done = 0, next = 0; done < warm + steps; done++) {
        for (; next < warm + steps && next - done < window; next++) {
            const double start = sgrad_time_thread_cpu();
            SGRAD_TRY(sgrad__run_submit(run, next));
            if (submits && next >= warm) submits[next - warm] = sgrad_time_thread_cpu() - start;
        }
        SGRAD_TRY(sgrad__runner_wait(run->runner, &slot));
        if (done >= warm)
            step[done - warm] = (struct sgrad_timed_step){ slot->time - before, slot->moves.written, slot->moves.read,
                                                           slot->moves.active, slot->moves.awaited };
        if (done + 1 == warm) watch(run->program);
        before = slot->time;
    }
    if (run->parallel.server) SGRAD_TRY(sgrad__server_settle(run));
    return sgrad_wait_all();
}

static double median(double *value) {
    qsort(value, STEPS, sizeof *value, by_size);
    return value[STEPS / 2];
}

static double median_ms(const struct sgrad_timed_step *step) {
    double seconds[STEPS];
    for (int i = 0; i < STEPS; i++) seconds[i] = step[i].seconds;
    return 1e3 * median(seconds);
}

/* ---- tasks without computation ---- */

static void compute_nothing(const struct sgrad_args *args) { (void)args; }

/* Measures steps whose kernels do nothing. Only for one rank without GPUs: elsewhere such a step would not be comparable. The
 * program cannot be used for training afterwards. */
static int time_tasks(struct sgrad__run *run, struct sgrad_bench_result *result) {
    static const struct sgrad_kernel nothing = { .name = "nothing", .cpu = compute_nothing };
    struct sgrad_timed_step took[STEPS];
    if (run->context->gpus || run->context->ranks > 1) return 0;
    for (int i = 0; i < run->program->call_count; i++) {
        struct sgrad_bound_kernel *call = run->program->call[i];
        const size_t workspace = call->workspace, gpu_workspace = call->gpu_workspace;
        call->kernel = &nothing;
        sgrad_bound_kernel_release(call);
        sgrad_bound_kernel_prepare(call);
        call->workspace = workspace, call->gpu_workspace = gpu_workspace;
    }
    SGRAD_TRY(time_steps(run, WARM, STEPS, took, NULL));
    result->tasks_ms = median_ms(took);
    return 0;
}

/* ---- the benchmark ---- */

static int longest_first(const void *one, const void *other) {
    const struct sgrad_bench_kernel *a = one, *b = other;
    return (a->ms < b->ms) - (a->ms > b->ms);
}

static int bench(struct sgrad__run *run, struct sgrad_bench_result *result) {
    struct sgrad_timed_step took[STEPS];
    double submits[STEPS];
    SGRAD_TRY(sgrad__run_open_training(run));
    sgrad__run_warn_unused(run);
    if (run->context->rank == 0 && !run->options.output.json) sgrad__run_print(run, stdout);
    SGRAD_TRY(sgrad__run_open_runner(run, 0));
    result->batch = run->options.training.batch;
    result->ranks = run->context->ranks;
    result->workers = sgrad_workers();
    const int64_t bytes = sgrad_remote_bytes();
    SGRAD_TRY(time_steps(run, WARM, STEPS, took, submits));
    find_overhead((double)(sgrad_remote_bytes() - bytes) / (WARM + STEPS), result);
    find_times(run->program, result);
    result->step_ms = median_ms(took);
    result->submission_ms = 1e3 * median(submits);
    result->tasks = run->program->instruction_count;
    snprintf(result->scheduler, sizeof result->scheduler, "%s", run->context->scheduler);
    SGRAD_TRY(time_kernels(run, &run->runner->slot[0].step, result));  /* the slot still contains the samples of its last step */
    SGRAD_TRY(time_memory(run, result));
    SGRAD_TRY(time_tasks(run, result));
    set_network(run->context->network, result);
    qsort(result->kernel, (size_t)result->kernels, sizeof *result->kernel, longest_first);
    return sgrad__run_agree(run, 0);
}

/* Creates a run of STEPS steps without a run directory. close_run frees it. */
static struct sgrad__run *open_run(const struct sgrad_train_options *options, long steps) {
    struct sgrad__run *r = sgrad_xcalloc(1, sizeof *r);
    r->options = *options;
    r->options.output.print = true;
    r->options.training.steps = steps;
    return r;
}

static int close_run(struct sgrad__run *run, int error) {
    if (error && !run->control.together) sgrad_ranks_abort(1);
    sgrad__run_close(run);
    free(run);
    return error;
}

int sgrad_bench(const struct sgrad_train_options *options, struct sgrad_bench_result *result) {
    struct sgrad__run *r = open_run(options, WARM + STEPS);
    *result = (struct sgrad_bench_result){ 0 };
    return close_run(r, bench(r, result));
}

static int run_steps(struct sgrad__run *run, long warm, long steps, struct sgrad_timed_step *step, int *rank) {
    SGRAD_TRY(sgrad__run_open_training(run));
    *rank = run->context->rank;
    SGRAD_TRY(sgrad__run_open_runner(run, 0));
    sgrad_trace_begin();
    SGRAD_TRY(time_steps(run, warm, steps, step, NULL));
    sgrad_trace_end();
    return sgrad__run_agree(run, 0);
}

int sgrad_steps_time(const struct sgrad_train_options *options, const char *trace, long warm, long steps,
                     struct sgrad_timed_step *step, int *rank) {
    struct sgrad__run *r = open_run(options, warm + steps);
    r->files.trace_folder = trace;
    return close_run(r, run_steps(r, warm, steps, step, rank));
}
