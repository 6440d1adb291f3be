/* sizes.c: how a run is cut: samples of a rank, of a group, of a micro-batch; steps of an epoch and of the whole. */
#include "codelets/ops/batchnorm.h"
#include "graphs/runs/run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int64_t sgrad__nearest_divisor(int64_t n, int64_t wanted) {
    int64_t best = 1;
    for (int64_t d = 1; d <= n; d++)
        if (n % d == 0 && llabs(d - wanted) < llabs(best - wanted)) best = d;
    return best;
}

/* The samples whose sums batch norm joins, the unit of tasks if it is given, and how long the run is, on RANKS ranks. */
int sgrad__run_check_sizes(struct sgrad__run *r, long ranks) {
    const struct sgrad_train_options *o = &r->options;
    if (o->batch > r->train->count)
        return sgrad_fail(SGRAD_EINVAL, "--batch %ld is more than the %lld samples of the training set", o->batch,
                          (long long)r->train->count);
    if (o->batch % ranks)
        return sgrad_fail(SGRAD_EINVAL, "--batch %ld cannot be shared by %ld ranks: %ld can", o->batch, ranks,
                          (o->batch / ranks + 1) * ranks);
    const int64_t share = o->batch / ranks, micro = o->micro_batch;
    const int64_t group = r->kept_group                         ? r->kept_group
                          : o->bn_group > 0                     ? o->bn_group
                          : o->bn_group == SGRAD_GROUP_GLOBAL   ? o->batch
                                                                : share;
    const int64_t here = group < share ? group : share;     /* samples of a group on one rank */
    if (r->kept_group && (o->batch % group || share % here || group % here))
        return sgrad_fail(SGRAD_EINVAL, "the run takes batch norm's statistics over groups of %lld samples, which a rank's share "
                                        "of %lld cannot form: other ranks can, or --bn-group rank takes the share",
                          (long long)group, (long long)share);
    if (o->batch % group || share % here || group % here)
        return sgrad_fail(SGRAD_EINVAL, "--bn-group %lld does not divide the %s of %lld: %lld does", (long long)group,
                          ranks > 1 ? "rank's share" : "batch", (long long)share,
                          (long long)sgrad__nearest_divisor(share, group));
    if (micro && here % micro)
        return sgrad_fail(SGRAD_EINVAL, "--micro-batch %lld does not divide %s of %lld: %lld does", (long long)micro,
                          here < share ? "the group" : "this rank's share", (long long)here,
                          (long long)sgrad__nearest_divisor(here, micro));
    r->micro = micro;
    r->group = group;
    r->steps_per_epoch = r->train->count / o->batch;
    r->steps = o->steps ? o->steps : (long)(o->epochs * (double)r->steps_per_epoch + 0.5);
    if (r->steps < 1) r->steps = 1;
    if (r->trace_first > r->steps)
        return sgrad_fail(SGRAD_EINVAL, "--trace begins with step %ld, the run ends with step %ld", r->trace_first, r->steps);
    return 0;
}

/* How many GPUs each rank has, if they have equally many. */
static int gpus_of_each(const struct sgrad__run *r) {
    double sum[] = { r->context->cudas, (double)r->context->cudas * r->context->cudas };
    sgrad_ranks_sum(sum, 2);
    return sum[0] * sum[0] == sum[1] * r->context->ranks ? r->context->cudas : 0;
}

/* Is GROUP enough for statistics, and whole micro-batches? */
static bool will_do(const struct sgrad__run *r, int64_t group) {
    enum { LEAST = 8 };
    return group >= LEAST && (!r->options.micro_batch || group % r->options.micro_batch == 0);
}

/* Of several GPUs each takes batch norm's statistics over its own part of the share, as where each is a process, if the parts are
 * equal, and bits may depend on the machine; a run that goes on keeps the groups that it began with. */
static bool asks_for_group(const struct sgrad__run *r) {
    for (const char *const *asked = r->options.asked; asked && *asked; asked++)
        if (!strcmp(*asked, "bn-group")) return true;
    return false;
}

/* A run that goes on, on other ranks perhaps: where a group is a rank's share, it is what the share was. */
static int keep_group(struct sgrad__run *r) {
    const struct sgrad_train_options *o = &r->options;
    const bool ranks = o->bn_group == SGRAD_GROUP_GPU || o->bn_group == SGRAD_GROUP_RANK;
    const bool may = ranks && o->resume && o->out && !asks_for_group(r) && !r->strategy->served;
    int64_t samples = 0;
    bool known = false;
    if (!may || !sgrad__has_groups(r->graph)) return 0;
    long group = SGRAD_GROUP_RANK;
    const int error = r->context->rank ? 0 : sgrad__config_group(o->out, &group, &samples, &known);
    SGRAD_TRY(sgrad__run_agree(r, error));
    if (group != SGRAD_GROUP_RANK || samples == o->batch / r->parts || (samples && o->batch % samples)) samples = 0;
    sgrad_ranks_broadcast(&samples, sizeof samples, 0);
    r->kept_group = samples;
    return 0;
}

int sgrad__run_choose_group(struct sgrad__run *r) {
    struct sgrad_train_options *o = &r->options;
    SGRAD_TRY(keep_group(r));
    if (o->bn_group != SGRAD_GROUP_GPU) return 0;
    const int64_t share = o->batch / r->parts;
    const int gpus = gpus_of_each(r);
    long group = SGRAD_GROUP_RANK;
    int64_t samples;
    bool known = false;
    const int error =
        o->resume && o->out && r->context->rank == 0 ? sgrad__config_group(o->out, &group, &samples, &known) : 0;
    if (!known && gpus > 1 && share % gpus == 0 && will_do(r, share / gpus) && !o->deterministic && r->copies == 1 &&
        r->graph->stages == 1 && sgrad__has_groups(r->graph))
        group = share / gpus;
    SGRAD_TRY(sgrad__run_agree(r, error));
    sgrad_ranks_broadcast(&group, sizeof group, 0);
    o->bn_group = group;
    return 0;
}

/* Samples that are worth a task (measured): 32, or 64 of a network so small that its activations stay in the caches, or where
 * the matrix unit makes tasks short. */
static int64_t good_samples(const struct sgrad__run *r) {
    const int64_t caches = 4 << 20;
    const bool by_tiles = r->options.precision == SGRAD_PRECISION_BF16 && sgrad_isa() >= SGRAD_AMX &&
                          r->options.bn_group != SGRAD_GROUP_MICRO;
    int64_t bytes = 0;
    for (int i = 0; i < r->graph->value_count; i++) bytes += (int64_t)sgrad_view_bytes(&r->graph->value[i].view);
    return by_tiles || 32 * bytes < caches ? 64 : 32;
}

/* A GPU does as much at once as it can: fewer tasks, and nothing to join. cuDNN counts elements in 32 bits. */
static int64_t most_of_gpu(const struct sgrad__run *r) {
    const int64_t elements = (int64_t)1 << 30;
    int64_t largest = 1;
    for (int i = 0; i < r->graph->value_count; i++) {
        const int64_t count = sgrad_shape_count(&r->graph->value[i].view.shape);
        if (count > largest) largest = count;
    }
    return largest < elements ? elements / largest : 1;
}

/* Seconds that a step in MICROS micro-batches takes at least: one thread submits the tasks, some of each layer and
 * micro-batch, and no more workers compute than there are micro-batches (a model to compare by: rates of a usual core). */
static double least_seconds(const struct sgrad__run *r, int64_t micros) {
    static const double submission = 8e-6, rate = 5e10;     /* of a task, measured; flops of a core */
    enum { TASKS = 3, PASSES = 3 };                         /* of a layer; forward, and backward twice */
    const struct sgrad__work work = sgrad__graph_work(r->graph);
    const double share = (double)r->options.batch / r->parts;
    const double workers = micros < r->context->cpus ? (double)micros : r->context->cpus;
    const double submits = (double)micros * TASKS * work.layers * submission;
    const double computes = PASSES * share * work.flops / rate / workers;
    return submits > computes ? submits : computes;
}

static int64_t greatest_common_divisor(int64_t a, int64_t b) { return b ? greatest_common_divisor(b, a % b) : a; }

/* A group of batch norm is whole micro-batches. --deterministic must not look at the machine. Unless the user sets micro-batches,
 * 1, 2, 4 and 8 ranks must cut the batch at the same samples: into 8 equal pieces, or into the 4 or 2 that divide it. */
static int64_t good_unit(const struct sgrad__run *r) {
    const struct sgrad_train_options *o = &r->options;
    const int64_t share = o->batch / r->parts, here = r->group < share ? r->group : share;
    if (!o->deterministic || o->micro_batch) return here;
    return greatest_common_divisor(here, o->batch / greatest_common_divisor(o->batch, 8));
}

/* Every worker should find a micro-batch, as long as tasks are not so short that submitting them takes longer than they do; with
 * GPUs, each of these. Of P stages each idles for P - 1 micro-batches. */
static int64_t good_micro_batch(const struct sgrad__run *r) {
    enum { IN_A_PIPE = 4 };
    const int64_t units = r->options.batch / r->parts / r->unit;
    const int64_t good = r->options.deterministic ? 32 : r->context->cudas ? most_of_gpu(r) : good_samples(r);
    int64_t pieces = sgrad__micros(r->unit, good);
    while (r->graph->stages > 1 && units * pieces < IN_A_PIPE * r->graph->stages && pieces < r->unit) pieces++;
    const int gpus = r->context->cudas, workers = gpus ? gpus : r->context->cpus;
    while (!r->options.deterministic && units * pieces < workers && pieces < r->unit &&
           (gpus || least_seconds(r, units * (pieces + 1)) <= least_seconds(r, units * pieces)))
        pieces++;
    return sgrad__micros(r->unit, pieces);
}

static double part_by(const struct sgrad__run *r, const struct sgrad__rates *rates) {
    const double of_cpus = r->context->cpus * rates->cpu;
    return of_cpus / (of_cpus + r->context->cudas * rates->gpu);
}

/* The CPUs' part of what all workers do in a time: as an earlier run has measured it of this network, else by matrix products. */
static int part_of_cpus(const struct sgrad__run *r, double *part) {
    struct sgrad__rates rates;
    struct sgrad__roof roof;
    double of_cpus = 0, all = 0;
    if (sgrad__rates_find(r, &rates)) return *part = part_by(r, &rates), 0;
    SGRAD_TRY(sgrad__roof_measure(r->options.precision, &roof));
    for (int w = 0; w < roof.workers; w++) {
        all += roof.flops[w];
        if (!sgrad_worker_is_cuda(w)) of_cpus += roof.flops[w];
    }
    *part = of_cpus / all;
    return 0;
}

static int64_t groups_here(const struct sgrad__run *r) { return r->options.batch / r->parts / r->unit; }

/* Of each group CPUs have PART, but for a sample. GPUs have all where a core would have less than one, or the CPUs together less
 * than a tenth: batch norm would wait for them, and more than they do cannot be won. */
static int64_t rest_by(const struct sgrad__run *r, double part) {
    const int64_t rest = llround((double)r->unit * part), most = r->unit - 1;
    return groups_here(r) * rest < r->context->cpus || 10 * rest < r->unit ? 0 : rest < most ? rest : most;
}

/* Of each group CPUs have REST samples, GPUs the others, cut as each likes its tasks. Of several groups each is one GPU's. */
static void cut(struct sgrad__run *r, int64_t rest) {
    const int64_t groups = groups_here(r), of_gpus = r->unit - rest, good = good_samples(r);
    const int tasks = sgrad__micros(of_gpus, most_of_gpu(r)), takers = groups > 1 ? 1 : r->context->cudas;
    r->gpu_samples = groups * of_gpus;
    r->gpu_micro = sgrad__micros(of_gpus, tasks > takers ? tasks : takers);
    r->micro = rest ? sgrad__micros(groups * rest, r->context->cpus) : r->gpu_micro;
    if (rest && r->micro > good) r->micro = good;
}

/* GPUs and CPUs have shares by their rates, or GPUs have all. Where bits must not depend on rates, or groups are not as many for
 * each GPU, whoever is free takes what there is. With deterministic, tasks that GPUs have kernels for are theirs in any case. */
static int share_out(struct sgrad__run *r) {
    const struct sgrad_train_options *o = &r->options;
    const int gpus = r->context->cudas;
    const bool uneven = gpus && groups_here(r) > 1 && groups_here(r) % gpus;
    const bool given = o->micro_batch || r->copies > 1 || o->bn_group == SGRAD_GROUP_MICRO;
    double part;
    if (!gpus || o->deterministic) return 0;
    if (o->gpus_only && given) {
        r->gpu_samples = o->batch / r->parts, r->gpu_micro = r->micro;
        return 0;
    }
    if (o->gpus_only) return cut(r, 0), 0;
    if (!r->context->cpus || given || uneven) return 0;
    SGRAD_TRY(part_of_cpus(r, &part));
    cut(r, rest_by(r, part));
    return 0;
}

bool sgrad__run_is_shared(const struct sgrad__run *r) {
    return r->gpu_samples && r->gpu_samples < r->options.batch / r->parts;
}

/* Of a step in which CPUs have REST samples of each group: until the last has computed its share. */
static double seconds_by(const struct sgrad__run *r, const struct sgrad__rates *rates, int64_t rest) {
    const double of_gpus = (double)(groups_here(r) * (r->unit - rest)) / (r->context->cudas * rates->gpu);
    const double of_cpus = (double)(groups_here(r) * rest) / (r->context->cpus * rates->cpu);
    return of_gpus > of_cpus ? of_gpus : of_cpus;
}

bool sgrad__run_correct_shares(struct sgrad__run *r) {
    struct sgrad__rates rates;
    if (!sgrad__run_is_shared(r) || !sgrad__rates_measure(r, &rates)) return false;
    const int64_t rest = r->unit - r->gpu_samples / groups_here(r), better = rest_by(r, part_by(r, &rates));
    if (seconds_by(r, &rates, rest) < 1.1 * seconds_by(r, &rates, better)) return false;
    sgrad__rates_keep(r);
    cut(r, better);
    return true;
}

/* A gradient for each micro-batch, so that none waits for another, where there is memory for so many; but the same eight over all
 * ranks where bits must not depend on the machine. */
static int good_lanes(const struct sgrad__run *r) {
    enum { LEAST = 8 };
    const double most = (double)((int64_t)1 << 30), bytes = (double)sgrad__parameters_count(r->graph) * sizeof(float);
    if (r->options.deterministic) return r->parts < LEAST ? LEAST / r->parts : 1;
    return bytes * LEAST < most ? (int)(most / bytes) : LEAST;
}

/* Ranks of unequal nodes may cut their shares otherwise. But where a micro-batch is a group, too, statistics are means over
 * groups, all of one size; they share an evaluation, batch by batch; and ranks of the same samples move values between each other
 * for each micro-batch: all these take rank 0's. */
static int check_pipe(const struct sgrad__run *r) {
    const int stages = r->graph->stages;
    const int64_t share = r->options.batch / r->parts, units = share / r->unit, micros = units * sgrad__micros(r->unit, r->micro);
    int64_t fits = r->unit;
    while (fits > 1 && (r->unit % fits || units * (r->unit / fits) < stages)) fits--;
    if (micros >= stages) return 0;
    if (share < stages)
        return sgrad_fail(SGRAD_EINVAL, "mesh %s: %lld %s of a rank cannot keep %d stages busy: --batch %d can", r->options.mesh,
                          (long long)share, sgrad_plural(share, "sample", "samples"), stages, stages * r->parts);
    return sgrad_fail(SGRAD_EINVAL, "mesh %s: %lld %s cannot keep %d stages busy: --micro-batch %lld makes %lld", r->options.mesh,
                      (long long)micros, sgrad_plural(micros, "micro-batch", "micro-batches"), stages, (long long)fits,
                      (long long)(share / fits));
}

/* Of one value a batch norm makes its bias, whatever the value: nothing below it is trained, and running variances come to 0. */
static int check_statistics(const struct sgrad__run *r) {
    const struct sgrad_train_options *o = &r->options;
    for (const struct sgrad__node *n = r->graph->node; n < r->graph->node + r->graph->node_count; n++) {
        if (n->op != &sgrad_batchnorm_op || r->group * ((const struct sgrad_batchnorm *)n->attrs)->area > 1) continue;
        const char *more = o->bn_group == SGRAD_GROUP_MICRO ? "--micro-batch 2 or more, or another --bn-group,"
                           : o->batch > 1                   ? "--bn-group of 2 samples or more"
                                                            : "--batch 2 or more";
        return sgrad_fail(SGRAD_EINVAL, "model %s: %s: batch norm over one value per channel, of 1 sample of 1 pixel, has no "
                                        "variance: %s, or larger images, would give it one", r->model->name, n->name, more);
    }
    return 0;
}

int sgrad__run_choose_micro_batch(struct sgrad__run *r) {
    r->unit = good_unit(r);
    if (!r->micro) r->micro = good_micro_batch(r);
    r->evaluated = r->micro;
    if (r->context->ranks > 1 && !r->beside) sgrad_ranks_broadcast(&r->evaluated, sizeof r->evaluated, 0);
    r->lanes = good_lanes(r);
    if (r->copies > 1) r->micro = r->evaluated;
    if (r->options.bn_group == SGRAD_GROUP_MICRO) {
        r->group = r->micro = r->options.micro_batch ? r->options.micro_batch : sgrad__nearest_divisor(r->unit, r->evaluated);
        r->unit = r->group;
    }
    SGRAD_TRY(check_statistics(r));
    if (r->graph->stages > 1) SGRAD_TRY(check_pipe(r));
    return share_out(r);
}
