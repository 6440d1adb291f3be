/* rates.c: how many samples a second a GPU and a core make of a network, by the whole of its chain: what tasks of each took, as
 * StarPU has measured them. A run that both have shared leaves it for the next one, which cuts its batches by that:
 *
 *     run 1     shares by a matrix product's rate           62 on GPUs, 2 on CPUs
 *               at its end: 4 ms a sample, 31 ms
 *     run 2     shares by these                             57 on GPUs, 7 on CPUs
 *
 * Shares do not change while a run goes on: every step's sums keep their order.
 *
 * Limits: what a task waits for, its copies for one, is not in it. */
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

/* Samples a second of one worker of a KIND; NAN: a task of theirs has not been measured. */
static double rate_of(const struct sgrad__program *p, enum sgrad_workers kind, int worker) {
    double seconds = 0;
    int64_t samples = 0;
    for (int m = 0; m < p->micros; m++)
        if (p->micro[m].workers == kind) samples += p->micro[m].samples;
    for (int i = 0; i < p->instruction_count; i++) {
        const struct sgrad__instruction *in = &p->instruction[i];
        if (in->workers == kind && in->call->codelet && !in->when.every) seconds += sgrad_call_expected(in->call, worker);
    }
    return samples && seconds > 0 ? (double)samples / seconds : NAN;
}

void sgrad__rates_keep(const struct sgrad__run *r) {
    double rate[2] = { NAN, NAN };
    if (!r->gpu_samples || !r->program) return;
    for (int w = 0; w < sgrad_workers(); w++) {
        const bool gpu = sgrad_worker_is_cuda(w);
        if (isnan(rate[gpu])) rate[gpu] = rate_of(r->program, gpu ? SGRAD_GPU_WORKERS : SGRAD_CPU_WORKERS, w);
    }
    if (isnan(rate[0]) || isnan(rate[1])) return;
    char *key = key_of(r), value[64];
    snprintf(value, sizeof value, "%.9g %.9g", rate[1], rate[0]);
    sgrad_memo_add(topic, key, value);
    free(key);
}
