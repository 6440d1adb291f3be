/* run.c: functions for all files that execute a run: agreement of the ranks, learning rate, options of programs. */
#include "graphs/engine/run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int sgrad__run_agree(struct sgrad__run *run, int error) {
    error = sgrad_ranks_agree(error);
    run->control.together |= error != 0;
    return error;
}

int sgrad__run_await(struct sgrad__run *run, int error, const char *what) {
    error = sgrad_ranks_await(error, what);
    run->control.together |= error != 0;
    return error;
}

struct sgrad__position sgrad__run_position(const struct sgrad__run *run, long done) {
    return (struct sgrad__position){ .step = done,
                                     .epoch = (int)(done / run->steps_per_epoch),
                                     .step_in_epoch = done % run->steps_per_epoch,
                                     .seed = run->options.training.seed };
}

bool sgrad__run_is_asked(const struct sgrad__run *run) {
    return run->files.error || sgrad__signal_caught() || sgrad__deadline_stops(run) ||
           sgrad__checkpoint_failed(run->files.checkpoint) || run->control.event_status;
}

double sgrad__run_lr(const struct sgrad__run *run, long step) {
    return sgrad_schedule_lr(&run->update.schedule, run->update.peak_lr, (double)step, (double)run->steps,
                             (double)run->steps_per_epoch);
}

/* Returns the hyperparameters of a parameter that an optimizer averages; NULL: there is none. */
static const struct sgrad_hyper *find_averaged(const struct sgrad__run *run) {
    for (int i = 0; i < run->graph->parameter_count; i++) {
        const struct sgrad__update *update = &run->training->update[i];
        if (update->optimizer && update->optimizer->average) return &update->hyper;
    }
    return NULL;
}

float sgrad__run_lr_share(const struct sgrad__run *run, struct sgrad__lr_sum *sum, long step) {
    const struct sgrad_hyper *hyper = find_averaged(run);
    double own = 0;
    if (!hyper) return 0;
    if (sum->steps > step) *sum = (struct sgrad__lr_sum){ 0 };
    while (sum->steps <= step) {
        const double lr = sgrad__run_lr(run, sum->steps++);
        own = lr * lr * (1 - pow(hyper->beta2, (double)sum->steps));
        sum->squares += own;
    }
    return sum->squares > 0 ? (float)(own / sum->squares) : 1;
}

double sgrad__run_damping(const struct sgrad__run *run, long step) {
    return sgrad_schedule_lr(&run->update.damping, run->options.optimizer.kfac.damping, (double)step, (double)run->steps,
                             (double)run->steps_per_epoch);
}

bool sgrad__run_shares_parameters(const struct sgrad__run *run) {
    return run->data.train && run->parallel.strategy && run->parallel.strategy->shards_parameters && run->context->ranks > 1;
}

struct sgrad_program_options sgrad__run_program_options(const struct sgrad__run *run, bool training, int64_t batch,
                                                        int64_t micro) {
    const struct sgrad_train_options *o = &run->options;
    const struct sgrad_context *c = run->context;
    const struct sgrad_lookahead lookahead = { o->training.lookahead.decay, o->training.lookahead.power,
                                               training ? o->training.lookahead.every : 0, run->steps };
    const bool gpus_alone =
        run->batch.gpu_samples && run->batch.gpu_samples == run->options.training.batch / run->parallel.local_batches;
    const int64_t evaluated_on_gpus = gpus_alone ? batch : 0;
    struct sgrad_dataset *samples = training ? run->data.train : run->data.test;
    return (struct sgrad_program_options){
        .batch = batch,
        .micro = micro,
        .group = run->batch.norm_group,
        .unit = training ? run->batch.unit : 0,
        .lanes = run->batch.lanes,
        .gpu_samples = training ? run->batch.gpu_samples : evaluated_on_gpus,
        .gpu_micro = training ? run->batch.gpu_micro : micro,
        .training = training ? run->training : NULL,
        .yields = !training,
        .rank = c->rank,
        .first = run->parallel.first_rank,
        .tags = run->parallel.tags,
        .peers = training ? c->all : NULL,
        .network = c->network,
        .allreduce = run->parallel.allreduce,
        .bucket = (int64_t)(o->parallel.bucket * 1e6),
        .strategy = run->parallel.strategy,
        .servers = run->parallel.servers,
        .group_ranks = run->parallel.group_ranks,
        .backup = sgrad__run_backup(run),
        .shares = sgrad__run_shares_parameters(run) ? run->training : NULL,
        .deterministic = o->training.deterministic,
        .tf32 = o->model.precision == SGRAD_PRECISION_TF32,
        .histograms = training && c->rank == 0 ? o->output.histograms : 0,
        .fuse = !o->parallel.no_fuse,
        .recorded = training && !o->parallel.no_cuda_graphs,
        .cpus = c->cpus,
        .gpus = c->gpus,
        .clip_norm = (float)o->training.clip_norm,
        .lookahead = lookahead,
        .ema = o->training.ema,
        .kfac = { .decay = o->optimizer.kfac.decay,
                  .factor_every = o->optimizer.kfac.factor_every,
                  .eigen_every = o->optimizer.kfac.eigen_every,
                  .lag = sgrad__run_lag(run),
                  .skip = o->optimizer.kfac.skip,
                  .inverse = o->optimizer.kfac.inverse,
                  .share = run->update.kfac_share,
                  .room = run->update.kfac_room },
        .window = sgrad__run_steps_in_flight(run),
        .limit = training ? run->batch.limit : (struct sgrad__memory_limit){ 0 },
        .source = training && run->data.placement ? sgrad__placement_source(run->data.placement) : sgrad__source_of(samples),
        .workers = run->files.workers,
    };
}

const char *sgrad__run_samples(const struct sgrad__run *run) {
    return sgrad_dataset_image(run->data.train) ? "images" : "samples";
}

struct sgrad_train_result sgrad__run_result(const struct sgrad__run *run) {
    struct sgrad_train_result result = run->result;
    result.rank = run->context->rank;
    result.metric = run->metric;
    result.test_samples = run->data.test ? run->data.test->count : 0;
    result.test_loss = result.test[0];
    result.test_top1 = NAN;
    for (int i = 0; i < result.metrics; i++)
        if (strcmp(run->metric[i].name, "top1") == 0) result.test_top1 = result.test[i];
    return result;
}
