/* bench.c: the limit of a step, which is that of its kernels, and how near to it steps come.
 *
 *     each operation of the program alone ──> best time × how often a step has it ──> sum over calls, over workers: the limit
 *     some steps, as in training ──> the median: what is reached
 *     the operands of each task ──> bytes / what memory gives all workers: what is in neither, as far as it is not hidden
 *     the same tasks, none of which computes ──> what one thread that submits them takes, and StarPU with so many workers */
#include "graphs/runs/run.h"
#include "runtime/watch.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WARM = 6, STEPS = 20 };

/* ---- what could be ---- */

static struct sgrad_bench_kernel *kernel_of(struct sgrad_bench_result *result, const char *name) {
    for (int i = 0; i < result->kernels; i++)
        if (strcmp(result->kernel[i].name, name) == 0) return &result->kernel[i];
    result->kernel = sgrad_grow(result->kernel, result->kernels, sizeof *result->kernel);
    result->kernel[result->kernels] = (struct sgrad_bench_kernel){ .name = name };
    return &result->kernel[result->kernels++];
}

/* A worker that has no kernel for a call leaves it to the others. Seconds on one worker, and tasks a second of all together. */
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

/* Every operation of a step, as often as it has it, those with one call side by side. */
static const struct sgrad_call **operations(const struct sgrad__program *p, int *count) {
    const struct sgrad_call **call = NULL;
    *count = 0;
    for (int i = 0; i < p->instruction_count; i++)
        for (int link = 0; link < sgrad__call_links(p->instruction[i].call); link++) {
            if (sgrad__is_message(p->instruction[i].call)) continue;
            call = sgrad_grow(call, *count, sizeof *call);
            call[(*count)++] = sgrad__call_link(p->instruction[i].call, link);
        }
    qsort(call, (size_t)*count, sizeof *call, sgrad__by_address);
    return call;
}

/* What the program's tasks took, each kind once. */
static void find_times(const struct sgrad__program *p, struct sgrad_bench_result *result) {
    int64_t tasks;
    for (int i = 0; i < p->call_count; i++) {
        const struct sgrad_call *call = p->call[i];
        const double took = sgrad_call_took(call, &tasks);
        int j = 0;
        if (!tasks) continue;
        while (j < result->calls &&
               (result->call[j].hash != call->hash || strcmp(result->call[j].kernel, call->kernel->name))) j++;
        if (j == result->calls) {
            result->call = sgrad_grow(result->call, result->calls, sizeof *result->call);
            result->call[result->calls++] =
                (struct sgrad_bench_call){ call->kernel->name, call->hash, call->flops, call->bytes, 0, 0 };
        }
        struct sgrad_bench_call *c = &result->call[j];
        c->seconds = (c->seconds * (double)c->tasks + took) / (double)(c->tasks + tasks);
        c->tasks += tasks;
    }
}

/* What workers spent beside tasks. Alone, each the same. Where ranks exchange, a task what a usual one takes, and the rest,
 * messages' work and whatever else is longer than usual, by the BYTES that a step sends and receives. */
static void find_overhead(double bytes, struct sgrad_bench_result *result) {
    const struct sgrad_overhead is = sgrad_workers_overhead();
    if (!is.tasks) return;
    result->beside = bytes > 0 ? is.usual : is.all / (double)is.tasks;
    if (bytes > 0) result->carrying = fmax(0, is.all - (double)is.tasks * is.usual) / STEPS / bytes;
}

static int time_kernels(struct sgrad__run *r, const struct sgrad_step *step, struct sgrad_bench_result *result) {
    double *seconds = sgrad_alloc((size_t)result->workers, sizeof *seconds);
    int all, error = 0;
    const struct sgrad_call **operation = operations(r->program, &all);
    for (int i = 0, count; i < all && !error; i += count) {
        const struct sgrad_call *call = operation[i];
        double mean, together;
        for (count = 1; i + count < all && operation[i + count] == call;) count++;
        error = sgrad_call_time(call, step, seconds);
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

/* What stays inside a task, in a core's caches, does not count; what a task reads of the one before, as if it did not. */
static int time_memory(struct sgrad__run *r, struct sgrad_bench_result *result) {
    struct sgrad__roof roof = { 0 };
    for (int i = 0; i < r->program->instruction_count; i++) {
        const struct sgrad_call *call = r->program->instruction[i].call;
        if (!sgrad__is_message(call)) result->memory_gbyte += 1e-9 * call->bytes;
    }
    SGRAD_TRY(sgrad__roof_measure(r->options.precision, &roof));
    for (int w = 0; w < roof.workers; w++) {
        result->gflops += roof.flops[w];
        result->gbytes += roof.bytes[w];
    }
    for (int i = 0; i < result->kernels; i++) result->gflop += result->kernel[i].gflop;
    result->arithmetic_ms = 1e3 * result->gflop / result->gflops;
    result->memory_ms = 1e3 * result->memory_gbyte / result->gbytes;
    return 0;
}

static void tell_network(const struct sgrad_network *net, struct sgrad_bench_result *result) {
    if (!net) return;
    result->latency = net->latency, result->bandwidth = net->bandwidth;
    result->host_latency = net->host_latency, result->host_bandwidth = net->host_bandwidth;
}

/* ---- what is ---- */

static int by_size(const void *a, const void *b) {
    return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

/* From here on what tasks take is added up, and how busy workers are. */
static void watch(struct sgrad__program *p) {
    for (int i = 0; i < p->call_count; i++) sgrad_call_watch(p->call[i]);
    sgrad_workers_watch();
}

/* Seconds that each of STEPS steps takes behind WARM others, not watched, from the end of one to the end of the next; and,
 * unless SUBMITS is NULL, of this thread, to submit it. */
static int time_steps(struct sgrad__run *r, long warm, long steps, double *seconds, double *submits) {
    const struct sgrad__slot *slot;
    const long window = sgrad__run_window(r);
    double before = 0;
    sgrad__server_expect(r->server, warm + steps, warm + steps);
    watch(r->program);
    for (long done = 0, next = 0; done < warm + steps; done++) {
        for (; next < warm + steps && next - done < window; next++) {
            const double start = sgrad_thread_now();
            SGRAD_TRY(sgrad__run_submit(r, next));
            if (submits && next >= warm) submits[next - warm] = sgrad_thread_now() - start;
        }
        SGRAD_TRY(sgrad__runner_wait(r->runner, &slot));
        if (done >= warm) seconds[done - warm] = slot->time - before;
        if (done + 1 == warm) watch(r->program);
        before = slot->time;
    }
    if (r->server) SGRAD_TRY(sgrad__server_settle(r));
    return sgrad_wait_all();
}

static double median_ms(double *seconds) {
    qsort(seconds, STEPS, sizeof *seconds, by_size);
    return 1e3 * seconds[STEPS / 2];
}

/* ---- what is left where nothing is computed ---- */

static void compute_nothing(const struct sgrad_args *args) { (void)args; }

/* On CPUs of one rank: elsewhere a step without its work is no step. Leaves the program so. */
static int time_tasks(struct sgrad__run *r, struct sgrad_bench_result *result) {
    static const struct sgrad_kernel nothing = { .name = "nothing", .cpu = compute_nothing };
    double took[STEPS];
    if (r->context->cudas || r->context->ranks > 1) return 0;
    for (int i = 0; i < r->program->call_count; i++) {
        struct sgrad_call *call = r->program->call[i];
        const size_t workspace = call->workspace, gpu_workspace = call->gpu_workspace;
        call->kernel = &nothing;
        sgrad_call_forget(call);
        sgrad_call_prepare(call);
        call->workspace = workspace, call->gpu_workspace = gpu_workspace;
    }
    SGRAD_TRY(time_steps(r, WARM, STEPS, took, NULL));
    result->tasks_ms = median_ms(took);
    return 0;
}

/* ---- all ---- */

static int longest_first(const void *one, const void *other) {
    const struct sgrad_bench_kernel *a = one, *b = other;
    return (a->ms < b->ms) - (a->ms > b->ms);
}

static int bench(struct sgrad__run *r, struct sgrad_bench_result *result) {
    double took[STEPS], submits[STEPS];
    SGRAD_TRY(sgrad__run_open_training(r));
    sgrad__run_tell_idle(r);
    if (r->context->rank == 0 && !r->options.json) sgrad__run_print(r, stdout);
    SGRAD_TRY(sgrad__run_open_runner(r, 0));
    result->batch = r->options.batch;
    result->ranks = r->context->ranks;
    result->workers = sgrad_workers();
    const int64_t bytes = sgrad_carried_bytes();
    SGRAD_TRY(time_steps(r, WARM, STEPS, took, submits));
    find_overhead((double)(sgrad_carried_bytes() - bytes) / (WARM + STEPS), result);
    find_times(r->program, result);
    result->step_ms = median_ms(took);
    result->submission_ms = median_ms(submits);
    result->tasks = r->program->instruction_count;
    snprintf(result->scheduler, sizeof result->scheduler, "%s", r->context->scheduler);
    SGRAD_TRY(time_kernels(r, &r->runner->slot[0].step, result));      /* its samples are there still */
    SGRAD_TRY(time_memory(r, result));
    SGRAD_TRY(time_tasks(r, result));
    tell_network(r->context->network, result);
    qsort(result->kernel, (size_t)result->kernels, sizeof *result->kernel, longest_first);
    return sgrad__run_agree(r, 0);
}

/* A run of so many steps, without a folder; and its end. */
static struct sgrad__run *open_run(const struct sgrad_train_options *options, long steps) {
    struct sgrad__run *r = sgrad_alloc(1, sizeof *r);
    r->options = *options;
    r->options.print = true;
    r->options.steps = steps;
    return r;
}

static int close_run(struct sgrad__run *r, int error) {
    if (error && !r->together) sgrad_ranks_abort(1);
    sgrad__run_close(r);
    free(r);
    return error;
}

int sgrad_bench(const struct sgrad_train_options *options, struct sgrad_bench_result *result) {
    struct sgrad__run *r = open_run(options, WARM + STEPS);
    *result = (struct sgrad_bench_result){ 0 };
    return close_run(r, bench(r, result));
}

static int run_steps(struct sgrad__run *r, long warm, long steps, double *seconds, int *rank) {
    SGRAD_TRY(sgrad__run_open_training(r));
    *rank = r->context->rank;
    SGRAD_TRY(sgrad__run_open_runner(r, 0));
    sgrad_trace_begin();
    SGRAD_TRY(time_steps(r, warm, steps, seconds, NULL));
    sgrad_trace_end();
    return sgrad__run_agree(r, 0);
}

int sgrad_steps_time(const struct sgrad_train_options *options, const char *trace, long warm, long steps, double *seconds,
                     int *rank) {
    struct sgrad__run *r = open_run(options, warm + steps);
    r->trace_folder = trace;
    return close_run(r, run_steps(r, warm, steps, seconds, rank));
}
