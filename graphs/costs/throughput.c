/* throughput.c: computes the samples per second of a GPU and of a core from the durations of a network's tasks, as measured by
 * StarPU. A run that uses both divides its batches in this proportion as soon as it is known (sizes.c), and stores it for later
 * runs:
 *
 *     run 1     divided by the throughput of a matrix product     62 on GPUs, 2 on CPUs
 *               after 16 steps: 4 ms per sample, 31 ms            57 on GPUs, 7 on CPUs
 *     run 2     divided by these durations                        57 on GPUs, 7 on CPUs
 *
 * Limits: the time that a task waits, for example for copies of its data, is not included. StarPU measures a task until its
 * duration is known; later changes are not detected, except for tasks of other sizes. */
#include "graphs/costs/costs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const char topic[] = "shares";

/* Returns the key in the tuning cache: network, precision, number of GPUs. The caller must free it. */
static char *key_of(const struct sgrad__run *run) {
    const struct sgrad__work work = sgrad__graph_work(run->graph);
    return sgrad_format("1, %s, %.0f flops a sample, precision %d, %d GPUs",
                        run->options.model.name ? run->options.model.name : "(a program's)", work.flops,
                        (int)run->options.model.precision, run->context->gpus);
}

bool sgrad__throughput_find(const struct sgrad__run *run, struct sgrad__throughput *rates) {
    char *key = key_of(run), value[64];
    const bool found = sgrad_tuning_cache_get(topic, key, value, sizeof value) &&
                       sscanf(value, "%lf %lf", &rates->gpu, &rates->cpu) == 2 && rates->gpu > 0 && rates->cpu > 0 &&
                       isfinite(rates->gpu) && isfinite(rates->cpu);
    free(key);
    return found;
}

/* Returns the duration of IN on the first worker that may execute it and has been measured; NAN: no such worker. */
static double seconds_of(const struct sgrad__instruction *in) {
    const bool of_gpu = in->workers == SGRAD_GPU_WORKERS;
    double seconds = NAN;
    for (int w = 0, gpu = 0; w < sgrad_workers() && isnan(seconds); w++) {
        const bool is_gpu = sgrad_worker_is_cuda(w);
        gpu += is_gpu;
        if (is_gpu == of_gpu && (!in->gpu || in->gpu == gpu)) seconds = sgrad_bound_kernel_expected(in->call, w);
    }
    return seconds;
}

/* Returns the samples per second of one worker of a KIND; NAN: a task of such workers has not been measured. */
static double rate_of(const struct sgrad__program *program, enum sgrad_workers kind) {
    double seconds = 0;
    int64_t samples = 0;
    for (int m = 0; m < program->micros; m++)
        if (program->micro[m].workers == kind) samples += program->micro[m].samples;
    for (int i = 0; i < program->instruction_count; i++) {
        const struct sgrad__instruction *in = &program->instruction[i];
        if (in->workers == kind && in->call->codelet && !in->when.every) seconds += seconds_of(in);
    }
    return samples && seconds > 0 ? (double)samples / seconds : NAN;
}

bool sgrad__throughput_measure(const struct sgrad__run *run, struct sgrad__throughput *rates) {
    if (!run->batch.gpu_samples || !run->program) return false;
    *rates = (struct sgrad__throughput){ rate_of(run->program, SGRAD_GPU_WORKERS), rate_of(run->program, SGRAD_CPU_WORKERS) };
    return !isnan(rates->gpu) && !isnan(rates->cpu);
}

void sgrad__throughput_keep(const struct sgrad__run *run) {
    struct sgrad__throughput rates;
    if (!sgrad__throughput_measure(run, &rates)) return;
    char *key = key_of(run), value[64];
    snprintf(value, sizeof value, "%.9g %.9g", rates.gpu, rates.cpu);
    sgrad_tuning_cache_put(topic, key, value);
    free(key);
}
