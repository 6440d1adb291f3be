/* sizes.c: chooses the sizes of a run: samples of a rank, of a batch-normalization group, of a micro-batch; steps of an epoch
 * and of the run. */
#include "codelets/ops/batchnorm.h"
#include "graphs/train/setup.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int64_t sgrad__nearest_divisor(int64_t n, int64_t wanted) {
    int64_t best = 1;
    for (int64_t d = 1; d <= n; d++)
        if (n % d == 0 && llabs(d - wanted) < llabs(best - wanted)) best = d;
    return best;
}

/* Sets, for RANKS local batches, the samples of a batch-normalization group, those of a micro-batch if specified, and the
 * number of steps. */
int sgrad__run_check_sizes(struct sgrad__run *run, long ranks) {
    const struct sgrad_train_options *o = &run->options;
    if (o->training.batch > run->data.train->count)
        return sgrad_log_error(SGRAD_EINVAL,
                               "--batch %ld exceeds the %lld samples of the training set; give --batch %lld or less",
                               o->training.batch, (long long)run->data.train->count, (long long)run->data.train->count);
    if (o->training.batch % ranks)
        return sgrad_log_error(SGRAD_EINVAL, "--batch %ld cannot be divided among %ld ranks; give --batch %ld", o->training.batch,
                               ranks, (o->training.batch / ranks + 1) * ranks);
    const int64_t share = o->training.batch / ranks, micro = o->training.micro_batch;
    int64_t group = share;
    if (run->batch.resumed_group) group = run->batch.resumed_group;
    else if (o->training.bn_group > 0) group = o->training.bn_group;
    else if (o->training.bn_group == SGRAD_GROUP_GLOBAL) group = o->training.batch;
    const int64_t here = group < share ? group : share;     /* samples of a group on one rank */
    const char *samples_of = ranks > 1 ? "each rank's batch" : "the batch";
    if (run->batch.resumed_group && (o->training.batch % group || share % here || group % here))
        return sgrad_log_error(SGRAD_EINVAL,
                               "the run computes batch-norm statistics over groups of %lld samples, but the %lld samples of a "
                               "rank cannot be divided into such groups; use another number of ranks, or give --bn-group rank",
                               (long long)group, (long long)share);
    if (o->training.batch % group || share % here || group % here)
        return sgrad_log_error(SGRAD_EINVAL, "--bn-group %lld does not divide the %lld samples of %s; give --bn-group %lld",
                               (long long)group, (long long)share, samples_of,
                               (long long)sgrad__nearest_divisor(share, group));
    if (micro && here % micro)
        return sgrad_log_error(SGRAD_EINVAL, "--micro-batch %lld does not divide the %lld samples of %s; give --micro-batch %lld",
                               (long long)micro, (long long)here, here < share ? "a batch-norm group" : samples_of,
                               (long long)sgrad__nearest_divisor(here, micro));
    run->batch.micro = micro;
    run->batch.norm_group = group;
    run->steps_per_epoch = run->data.train->count / o->training.batch;
    run->steps = o->training.steps ? o->training.steps : (long)(o->training.epochs * (double)run->steps_per_epoch + 0.5);
    if (run->steps < 1) run->steps = 1;
    if (run->options.output.trace.first > run->steps)
        return sgrad_log_error(SGRAD_EINVAL, "--trace begins with step %ld, but the run ends with step %ld",
                               run->options.output.trace.first, run->steps);
    return 0;
}

/* Returns the number of GPUs of each rank; 0 if the ranks have different numbers. */
static int gpus_of_each(const struct sgrad__run *run) {
    double sum[] = { run->context->gpus, (double)run->context->gpus * run->context->gpus };
    sgrad_ranks_sum(sum, 2);
    return sum[0] * sum[0] == sum[1] * run->context->ranks ? run->context->gpus : 0;
}

/* Returns true if GROUP has enough samples for statistics and consists of complete micro-batches. */
static bool will_do(const struct sgrad__run *run, int64_t group) {
    enum { LEAST = 8 };
    return group >= LEAST && (!run->options.training.micro_batch || group % run->options.training.micro_batch == 0);
}

/* Returns true if --bn-group is set explicitly. */
static bool asks_for_group(const struct sgrad__run *run) {
    for (const char *const *asked = run->options.output.explicit_options; asked && *asked; asked++)
        if (!strcmp(*asked, "bn-group")) return true;
    return false;
}

/* Preserves the group size of a resumed run, which may have another number of ranks now: a group of one local batch retains
 * the size that it had at the start. If --bn-group is set explicitly, the size changes with the ranks, with a warning. */
static int keep_group(struct sgrad__run *run) {
    const struct sgrad_train_options *o = &run->options;
    const bool ranks = o->training.bn_group == SGRAD_GROUP_GPU || o->training.bn_group == SGRAD_GROUP_RANK;
    const bool may = ranks && o->checkpoint.resume && o->output.folder && !run->parallel.strategy->asynchronous;
    const long long share = o->training.batch / run->parallel.local_batches;
    int64_t samples = 0;
    bool known = false;
    if (!may || !sgrad__has_groups(run->graph)) return 0;
    long group = SGRAD_GROUP_RANK;
    const int error = run->context->rank ? 0 : sgrad__config_group(o->output.folder, &group, &samples, &known);
    SGRAD_TRY(sgrad__run_agree(run, error));
    if (group != SGRAD_GROUP_RANK || samples == share || (samples && o->training.batch % samples)) samples = 0;
    if (samples && asks_for_group(run)) {       /* only on rank 0, which has read the number */
        sgrad_log_warning("batch norm has groups of %lld samples from here on, instead of %lld, because the number of ranks has "
                          "changed; leave out --bn-group to retain their size", share, (long long)samples);
        samples = 0;
    }
    sgrad_ranks_broadcast(&samples, sizeof samples, 0);
    run->batch.resumed_group = samples;
    return 0;
}

/* With several GPUs per rank, each GPU gets a batch-normalization group of its fraction of the local batch, as if it were a
 * process, if the fractions are equal and results may depend on the machine. A resumed run uses the groups of its start. */
int sgrad__run_choose_group(struct sgrad__run *run) {
    struct sgrad_train_options *o = &run->options;
    SGRAD_TRY(keep_group(run));
    if (o->training.bn_group != SGRAD_GROUP_GPU) return 0;
    const int64_t share = o->training.batch / run->parallel.local_batches;
    const int gpus = gpus_of_each(run);
    long group = SGRAD_GROUP_RANK;
    int64_t samples;
    bool known = false;
    const int error = o->checkpoint.resume && o->output.folder && run->context->rank == 0
                          ? sgrad__config_group(o->output.folder, &group, &samples, &known)
                          : 0;
    if (!known && gpus > 1 && share % gpus == 0 && will_do(run, share / gpus) && !o->training.deterministic &&
        !run->parallel.joint && run->graph->stages == 1 && sgrad__has_groups(run->graph))
        group = share / gpus;
    SGRAD_TRY(sgrad__run_agree(run, error));
    sgrad_ranks_broadcast(&group, sizeof group, 0);
    o->training.bn_group = group;
    return 0;
}

/* Returns the samples of a task that are efficient on CPUs (measured): 32; or 64 if the activations of 32 samples fit into the
 * caches, or if a matrix unit (AMX) makes tasks short. */
static int64_t good_samples(const struct sgrad__run *run) {
    const int64_t caches = 4 << 20;
    const bool by_tiles = run->options.model.precision == SGRAD_PRECISION_BF16 && sgrad_isa() >= SGRAD_AMX &&
                          run->options.training.bn_group != SGRAD_GROUP_MICRO;
    int64_t bytes = 0;
    for (int i = 0; i < run->graph->value_count; i++) bytes += (int64_t)sgrad_view_bytes(&run->graph->value[i].view);
    return by_tiles || 32 * bytes < caches ? 64 : 32;
}

/* Returns the maximum number of samples of a GPU task. Large tasks use a GPU best, and leave fewer results to combine. The
 * limit is that of cuDNN, which counts elements in 32 bits. */
static int64_t most_of_gpu(const struct sgrad__run *run) {
    const int64_t elements = (int64_t)1 << 30;
    int64_t largest = 1;
    for (int i = 0; i < run->graph->value_count; i++) {
        const int64_t count = sgrad_shape_count(&run->graph->value[i].view.shape);
        if (count > largest) largest = count;
    }
    return largest < elements ? elements / largest : 1;
}

/* Returns a lower bound of the time of a step with MICROS micro-batches, in seconds. One thread submits the tasks, several for
 * each layer and micro-batch; no more workers can compute than there are micro-batches. Only for comparisons: it assumes the
 * rate of a typical core. */
static double least_seconds(const struct sgrad__run *run, int64_t micros) {
    static const double submission = 8e-6, rate = 5e10;     /* per task, measured; flops per second of a core */
    enum { TASKS = 3, PASSES = 3 };                         /* per layer; forward, and backward twice */
    const struct sgrad__work work = sgrad__graph_work(run->graph);
    const double share = (double)run->options.training.batch / run->parallel.local_batches;
    const double workers = micros < run->context->cpus ? (double)micros : run->context->cpus;
    const double submits = (double)micros * TASKS * work.layers * submission;
    const double computes = PASSES * share * work.flops / rate / workers;
    return submits > computes ? submits : computes;
}

static int64_t greatest_common_divisor(int64_t a, int64_t b) { return b ? greatest_common_divisor(b, a % b) : a; }

/* Returns the unit of tasks, whose samples must be divided into complete micro-batches: a batch-normalization group.
 * --deterministic must not depend on the machine: unless --micro-batch is set, 1, 2, 4 and 8 ranks must divide the batch at
 * the same samples, into 8 equal chunks, or into 4 or 2 if 8 does not divide it. */
static int64_t good_unit(const struct sgrad__run *run) {
    const struct sgrad_train_options *o = &run->options;
    const int64_t share = o->training.batch / run->parallel.local_batches,
                  here = run->batch.norm_group < share ? run->batch.norm_group : share;
    if (!o->training.deterministic || o->training.micro_batch) return here;
    return greatest_common_divisor(here, o->training.batch / greatest_common_divisor(o->training.batch, 8));
}

/* Returns the samples of a micro-batch. Each worker (with GPUs: each GPU) should get a micro-batch, unless submitting the
 * tasks would then take longer than executing them. With P pipeline stages each stage is idle for P - 1 micro-batches, so that
 * more micro-batches are used. */
static int64_t good_micro_batch(const struct sgrad__run *run) {
    enum { IN_A_PIPE = 4 };
    const int64_t units = run->options.training.batch / run->parallel.local_batches / run->batch.unit;
    int64_t good = 32;
    if (!run->options.training.deterministic) good = run->context->gpus ? most_of_gpu(run) : good_samples(run);
    int64_t pieces = sgrad__micros(run->batch.unit, good);
    while (run->graph->stages > 1 && units * pieces < IN_A_PIPE * run->graph->stages && pieces < run->batch.unit) pieces++;
    const int gpus = run->context->gpus, workers = gpus ? gpus : run->context->cpus;
    while (!run->options.training.deterministic && units * pieces < workers && pieces < run->batch.unit &&
           (gpus || least_seconds(run, units * (pieces + 1)) <= least_seconds(run, units * pieces)))
        pieces++;
    return sgrad__micros(run->batch.unit, pieces);
}

static double part_by(const struct sgrad__run *run, const struct sgrad__throughput *rates) {
    const double of_cpus = run->context->cpus * rates->cpu;
    return of_cpus / (of_cpus + run->context->gpus * rates->gpu);
}

/* Sets *PART to the fraction of the throughput of all workers that the CPUs provide: as measured for this network by an
 * earlier run, else by matrix products. */
static int part_of_cpus(const struct sgrad__run *run, double *part) {
    struct sgrad__throughput rates;
    struct sgrad__roof roof;
    double of_cpus = 0, all = 0;
    if (sgrad__throughput_find(run, &rates)) return *part = part_by(run, &rates), 0;
    SGRAD_TRY(sgrad__roof_measure(run->options.model.precision, &roof));
    for (int w = 0; w < roof.workers; w++) {
        all += roof.flops[w];
        if (!sgrad_worker_is_cuda(w)) of_cpus += roof.flops[w];
    }
    *part = of_cpus / all;
    return 0;
}

static int64_t groups_here(const struct sgrad__run *run) {
    return run->options.training.batch / run->parallel.local_batches / run->batch.unit;
}

/* Returns the samples of each group for the CPUs, at most all but one, if they get the fraction PART. Returns 0 if a core
 * would get less than one sample, or the CPUs together less than a tenth: no more than that could be gained, and batch
 * normalization would have to wait for the CPUs. */
static int64_t rest_by(const struct sgrad__run *run, double part) {
    const int64_t rest = llround((double)run->batch.unit * part), most = run->batch.unit - 1;
    if (groups_here(run) * rest < run->context->cpus || 10 * rest < run->batch.unit) return 0;
    return rest < most ? rest : most;
}

/* Divides the batch: REST samples of each group for the CPUs, the others for GPUs, in tasks of efficient sizes. With several
 * groups, each group belongs to one GPU. */
static void cut(struct sgrad__run *run, int64_t rest) {
    const int64_t groups = groups_here(run), of_gpus = run->batch.unit - rest, good = good_samples(run);
    const int tasks = sgrad__micros(of_gpus, most_of_gpu(run)), takers = groups > 1 ? 1 : run->context->gpus;
    run->batch.gpu_samples = groups * of_gpus;
    run->batch.gpu_micro = sgrad__micros(of_gpus, tasks > takers ? tasks : takers);
    run->batch.micro = rest ? sgrad__micros(groups * rest, run->context->cpus) : run->batch.gpu_micro;
    if (rest && run->batch.micro > good) run->batch.micro = good;
}

/* Divides the batch between GPUs and CPUs by their throughput, or gives all of it to the GPUs. No division if results must not
 * depend on throughput (--deterministic), or if the GPUs would get different numbers of groups: any idle worker may then run
 * any task. With --deterministic, tasks with a GPU kernel run on GPUs in any case. */
static int share_out(struct sgrad__run *run) {
    const struct sgrad_train_options *o = &run->options;
    const int gpus = run->context->gpus;
    const bool uneven = gpus && groups_here(run) > 1 && groups_here(run) % gpus;
    const bool given = o->training.micro_batch || run->parallel.joint || o->training.bn_group == SGRAD_GROUP_MICRO;
    double part;
    if (!gpus || o->training.deterministic) return 0;
    if (o->parallel.gpus_only && given) {
        run->batch.gpu_samples = o->training.batch / run->parallel.local_batches, run->batch.gpu_micro = run->batch.micro;
        return 0;
    }
    if (o->parallel.gpus_only) return cut(run, 0), 0;
    if (!run->context->cpus || given || uneven) return 0;
    SGRAD_TRY(part_of_cpus(run, &part));
    cut(run, rest_by(run, part));
    return 0;
}

bool sgrad__run_is_shared(const struct sgrad__run *run) {
    return run->batch.gpu_samples && run->batch.gpu_samples < run->options.training.batch / run->parallel.local_batches;
}

/* Returns the seconds of a step in which the CPUs compute REST samples of each group: the maximum of CPUs and GPUs. */
static double seconds_by(const struct sgrad__run *run, const struct sgrad__throughput *rates, int64_t rest) {
    const double of_gpus = (double)(groups_here(run) * (run->batch.unit - rest)) / (run->context->gpus * rates->gpu);
    const double of_cpus = (double)(groups_here(run) * rest) / (run->context->cpus * rates->cpu);
    return of_gpus > of_cpus ? of_gpus : of_cpus;
}

bool sgrad__run_correct_shares(struct sgrad__run *run) {
    struct sgrad__throughput rates;
    if (!sgrad__run_is_shared(run) || !sgrad__throughput_measure(run, &rates)) return false;
    const int64_t rest = run->batch.unit - run->batch.gpu_samples / groups_here(run), better = rest_by(run, part_by(run, &rates));
    if (seconds_by(run, &rates, rest) < 1.1 * seconds_by(run, &rates, better)) return false;
    sgrad__throughput_keep(run);
    cut(run, better);
    return true;
}

/* Returns the number of gradient-accumulation buffers. With one per micro-batch no task waits for another; memory limits their
 * number. If results must not depend on the machine, there are eight over all ranks. */
static int good_lanes(const struct sgrad__run *run) {
    enum { LEAST = 8 };
    const double most = (double)((int64_t)1 << 30), bytes = (double)sgrad__parameters_count(run->graph) * sizeof(float);
    if (run->options.training.deterministic) return run->parallel.local_batches < LEAST ? LEAST / run->parallel.local_batches : 1;
    return bytes * LEAST < most ? (int)(most / bytes) : LEAST;
}

/* Returns an error if there are fewer micro-batches than pipeline stages. */
static int check_pipe(const struct sgrad__run *run) {
    const int stages = run->graph->stages;
    const int64_t share = run->options.training.batch / run->parallel.local_batches, units = share / run->batch.unit,
                  micros = units * sgrad__micros(run->batch.unit, run->batch.micro);
    int64_t fits = run->batch.unit;
    while (fits > 1 && (run->batch.unit % fits || units * (run->batch.unit / fits) < stages)) fits--;
    if (micros >= stages) return 0;
    if (share < stages)
        return sgrad_log_error(SGRAD_EINVAL, "mesh %s: %lld %s per rank cannot keep %d stages busy; give --batch %d",
                               run->options.parallel.mesh, (long long)share, sgrad_plural(share, "sample", "samples"), stages,
                               stages * run->parallel.local_batches);
    return sgrad_log_error(SGRAD_EINVAL,
                           "mesh %s: %lld %s cannot keep %d stages busy; give --micro-batch %lld for %lld micro-batches",
                           run->options.parallel.mesh, (long long)micros, sgrad_plural(micros, "micro-batch", "micro-batches"),
                           stages, (long long)fits, (long long)(share / fits));
}

/* Returns an error if batch normalization has only one value per channel. Its output would be the bias for any input: layers
 * before it would not be trained, and running variances would become 0. */
static int check_statistics(const struct sgrad__run *run) {
    const struct sgrad_train_options *o = &run->options;
    for (const struct sgrad__node *n = run->graph->node; n < run->graph->node + run->graph->node_count; n++) {
        if (n->op != &sgrad_batchnorm_op || run->batch.norm_group * ((const struct sgrad_batchnorm *)n->attrs)->area > 1)
            continue;
        const char *more = o->training.batch > 1 ? "--bn-group with 2 samples or more" : "--batch 2 or more";
        if (o->training.bn_group == SGRAD_GROUP_MICRO) more = "--micro-batch 2 or more, or another --bn-group";
        return sgrad_log_error(SGRAD_EINVAL,
                               "model %s: %s: batch norm over one value per channel (1 sample of 1 pixel) has no variance; give "
                               "%s, or larger images",
                               run->model->name, n->name, more);
    }
    return 0;
}

/* Ranks of unequal nodes may divide their local batches differently. The micro-batch of rank 0 is used by all ranks in three
 * cases: if a micro-batch is a batch-normalization group, because statistics are means over groups of one size; for evaluations,
 * whose batches are distributed over the ranks; and if ranks exchange values for each micro-batch. */
int sgrad__run_choose_micro_batch(struct sgrad__run *run) {
    run->batch.unit = good_unit(run);
    if (!run->batch.micro) run->batch.micro = good_micro_batch(run);
    run->evaluation.micro = run->batch.micro;
    if (run->context->ranks > 1 && !run->beside) sgrad_ranks_broadcast(&run->evaluation.micro, sizeof run->evaluation.micro, 0);
    run->batch.lanes = good_lanes(run);
    if (run->parallel.joint) run->batch.micro = run->evaluation.micro;
    if (run->options.training.bn_group == SGRAD_GROUP_MICRO) {
        run->batch.norm_group = run->batch.micro = run->options.training.micro_batch
                                                       ? run->options.training.micro_batch
                                                       : sgrad__nearest_divisor(run->batch.unit, run->evaluation.micro);
        run->batch.unit = run->batch.norm_group;
    }
    SGRAD_TRY(check_statistics(run));
    if (run->graph->stages > 1) SGRAD_TRY(check_pipe(run));
    return share_out(run);
}
