/* rates.c: how many samples a second a GPU and a core make of a network, by the whole of its chain: what tasks of each took, as
 * StarPU has measured them. A run that both share cuts its batches by that as soon as it is known (sizes.c), and leaves it for
 * the next one:
 *
 *     run 1     shares by a matrix product's rate           62 on GPUs, 2 on CPUs
 *               after 16 steps: 4 ms a sample, 31 ms        57 on GPUs, 7 on CPUs
 *     run 2     shares by these                             57 on GPUs, 7 on CPUs
 *
 * Limits: what a task waits for, its copies for one, is not in it. StarPU measures a network's tasks until it knows them, so that
 * what changes later goes unseen, but for tasks of other sizes. */
#include "graphs/runs/run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const char topic[] = "shares";

/* This network in this precision, on such GPUs. Free it. */
static char *key_of(const struct sgrad__run *r) {
    const struct sgrad__work work = sgrad__graph_work(r->graph);
    return sgrad_format("1, %s, %.0f flops a sample, precision %d, %d GPUs",
                        r->options.model ? r->options.model : "(a program's)", work.flops, (int)r->options.precision,
                        r->context->cudas);
}

bool sgrad__rates_find(const struct sgrad__run *r, struct sgrad__rates *rates) {
    char *key = key_of(r), value[64];
    const bool found = sgrad_memo_find(topic, key, value, sizeof value) &&
                       sscanf(value, "%lf %lf", &rates->gpu, &rates->cpu) == 2 && rates->gpu > 0 && rates->cpu > 0 &&
                       isfinite(rates->gpu) && isfinite(rates->cpu);
    free(key);
    return found;
}

/* What IN takes on the first worker that may run it and has been measured; NAN: there is none. */
static double seconds_of(const struct sgrad__instruction *in) {
    const bool of_gpu = in->workers == SGRAD_GPU_WORKERS;
    double seconds = NAN;
    for (int w = 0, gpu = 0; w < sgrad_workers() && isnan(seconds); w++) {
        const bool is_gpu = sgrad_worker_is_cuda(w);
        gpu += is_gpu;
        if (is_gpu == of_gpu && (!in->gpu || in->gpu == gpu)) seconds = sgrad_call_expected(in->call, w);
    }
    return seconds;
}

/* Samples a second of one worker of a KIND; NAN: a task of theirs has not been measured. */
static double rate_of(const struct sgrad__program *p, enum sgrad_workers kind) {
    double seconds = 0;
    int64_t samples = 0;
    for (int m = 0; m < p->micros; m++)
        if (p->micro[m].workers == kind) samples += p->micro[m].samples;
    for (int i = 0; i < p->instruction_count; i++) {
        const struct sgrad__instruction *in = &p->instruction[i];
        if (in->workers == kind && in->call->codelet && !in->when.every) seconds += seconds_of(in);
    }
    return samples && seconds > 0 ? (double)samples / seconds : NAN;
}

bool sgrad__rates_measure(const struct sgrad__run *r, struct sgrad__rates *rates) {
    if (!r->gpu_samples || !r->program) return false;
    *rates = (struct sgrad__rates){ rate_of(r->program, SGRAD_GPU_WORKERS), rate_of(r->program, SGRAD_CPU_WORKERS) };
    return !isnan(rates->gpu) && !isnan(rates->cpu);
}

void sgrad__rates_keep(const struct sgrad__run *r) {
    struct sgrad__rates rates;
    if (!sgrad__rates_measure(r, &rates)) return;
    char *key = key_of(r), value[64];
    snprintf(value, sizeof value, "%.9g %.9g", rates.gpu, rates.cpu);
    sgrad_memo_add(topic, key, value);
    free(key);
}
