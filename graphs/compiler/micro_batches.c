/* micro_batches.c: divides the local batch of a rank into micro-batches, the unit of tasks.
 *
 * A micro-batch does not cross the boundary of a unit: a group of batch norm or, if different numbers of ranks must give the same
 * bits, the samples of a lane. A unit is divided into as few micro-batches as the maximum number of samples per task allows;
 * their sizes differ by at most one. A local batch of 20, units of 10, at most 4 per task:
 *
 *     unit      0 ················ 9 │ 10 ··············· 19
 *     micro     0123 │ 456 │ 789     │ …
 *
 * GPUs may process the beginning of each unit, and CPUs the rest, in separate micro-batches. A local batch of 20, of which GPUs
 * process 16, at most 8 per task, and CPUs at most 2 per task:
 *
 *     one unit  0 ······ 7 │ 8 ······ 15 │ 16 17 │ 18 19
 *     GPU           1      │      2      │
 *     two       0 ······ 7 │ 8 9 │ 10 ······ 17 │ 18 19
 *     GPU           1      │     │       2      │
 *
 * With several GPUs, micro-batches that only GPUs process are each assigned to one GPU, round-robin; with several units, all of a
 * unit's micro-batches are assigned to the same GPU. Then the preallocated activations and the launches that are recorded for
 * them are on one GPU, and only sums of gradients move between GPUs. */
#include "graphs/compiler/builder.h"

#include <assert.h>
#include <stdlib.h>

int sgrad__micros(int64_t samples, int64_t most) { return (int)((samples + most - 1) / most); }

static int last_size(const struct sgrad__program *program) {
    int last = 0;
    for (int m = 0; m < program->micros; m++)
        if (program->micro[m].size > last) last = program->micro[m].size;
    return last;
}

/* Divides SAMPLES samples from FIRST on into micro-batches of at most MOST samples. */
static void cut(struct sgrad__program *program, int64_t first, int64_t samples, int64_t most, enum sgrad_workers workers) {
    const int pieces = sgrad__micros(samples, most);
    for (int i = 0; i < pieces; i++) {
        struct sgrad__micro m = { .first = first, .samples = samples / pieces + (i < samples % pieces), .workers = workers };
        m.size = program->micros ? last_size(program) + 1 : 0;
        for (int other = 0; other < program->micros; other++)
            if (program->micro[other].samples == m.samples && program->micro[other].workers == workers)
                m.size = program->micro[other].size;
        assert(m.size < SGRAD__SIZES);
        program->micro = sgrad_array_grow(program->micro, program->micros, sizeof *program->micro);
        program->micro[program->micros++] = m;
        first += m.samples;
    }
}

void sgrad__cut_share(struct sgrad__program *program, const struct sgrad_program_options *options, int64_t unit) {
    const int64_t units = program->share / unit,
                  of_gpus = (options->gpu_samples < program->share ? options->gpu_samples : program->share) / units;
    assert(options->micro > 0 && program->share % unit == 0 && options->gpu_samples % units == 0);
    for (int64_t first = 0; first < program->share; first += unit) {
        if (of_gpus) cut(program, first, of_gpus, options->gpu_micro, SGRAD_GPU_WORKERS);
        cut(program, first + of_gpus, unit - of_gpus, options->micro, of_gpus ? SGRAD_CPU_WORKERS : SGRAD_ANY_WORKER);
    }
    const bool of_gpus_alone = options->gpu_samples || options->deterministic;
    for (int m = 0; m < program->micros && of_gpus_alone && options->training && options->gpus > 1; m++)
        if (program->micro[m].workers != SGRAD_CPU_WORKERS)
            program->micro[m].gpu =
                (int)((options->gpu_samples && units > 1 ? program->micro[m].first / unit : m) % options->gpus) + 1;
}

/* Returns the sizes of the micro-batches of WORKERS, "25 or 24"; NULL: there are none. The caller must free it. */
static char *sizes_of(const struct sgrad__program *program, enum sgrad_workers workers) {
    int64_t most = 0, least = 0;
    for (int m = 0; m < program->micros; m++) {
        if (program->micro[m].workers != workers) continue;
        if (!most) most = least = program->micro[m].samples;
        if (program->micro[m].samples < least) least = program->micro[m].samples;
    }
    if (!most) return NULL;
    if (most == least) return sgrad_format("%lld", (long long)most);
    return sgrad_format("%lld or %lld", (long long)most, (long long)least);
}

char *sgrad__micros_text(const struct sgrad__program *program) {
    char *any = sizes_of(program, SGRAD_ANY_WORKER), *gpus = sizes_of(program, SGRAD_GPU_WORKERS),
         *cpus = sizes_of(program, SGRAD_CPU_WORKERS);
    char *text = any;
    if (!any) text = cpus ? sgrad_format("%s on GPUs, %s on CPUs", gpus, cpus) : sgrad_format("%s on GPUs", gpus);
    free(gpus);
    free(cpus);
    return text;
}

int sgrad__micros_at_once(const struct sgrad_builder *builder, bool few) {
    const int workers = builder->o->cpus + builder->o->gpus,
              wanted = few && builder->g->stages == 1 ? workers : sgrad__micros_in_flight(builder->g, builder->g->stage, workers);
    if (builder->o->gpu_samples || builder->o->shares) return builder->micros;
    const int groups = (wanted + builder->group_micros - 1) / builder->group_micros, many = groups * builder->group_micros;
    return builder->p->micro->gpu ? sgrad__micros(many, builder->o->gpus) * builder->o->gpus
                                  : many; /* two GPUs never use the same memory */
}
