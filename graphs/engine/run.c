/* run.c: functions for all files that execute a run: agreement of the ranks, learning rate, options of programs. */
#include "graphs/engine/run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int sgrad__run_agree(struct sgrad__run *r, int error) {
    error = sgrad_ranks_agree(error);
    r->together |= error != 0;
    return error;
}

int sgrad__run_await(struct sgrad__run *r, int error, const char *what) {
    error = sgrad_ranks_await(error, what);
    r->together |= error != 0;
    return error;
}

bool sgrad__run_is_asked(const struct sgrad__run *r) {
    return r->unwritten || sgrad__signal_caught() || sgrad__deadline_stops(r) || sgrad__checkpoint_failed(r->checkpoint);
}

double sgrad__run_lr(const struct sgrad__run *r, long step) {
    return sgrad_schedule_lr(&r->schedule, r->peak, (double)step, (double)r->steps, (double)r->steps_per_epoch);
}

double sgrad__run_damping(const struct sgrad__run *r, long step) {
    return sgrad_schedule_lr(&r->damping, r->options.kfac_damping, (double)step, (double)r->steps,
                             (double)r->steps_per_epoch);
}

struct sgrad_program_options sgrad__run_program_options(const struct sgrad__run *r, bool training, int64_t batch,
                                                        int64_t micro) {
    const struct sgrad_train_options *o = &r->options;
    const struct sgrad_context *c = r->context;
    const struct sgrad_lookahead lookahead = { o->lookahead.decay, o->lookahead.power, training ? o->lookahead.every : 0, r->steps };
    const bool gpus_alone = r->gpu_samples && r->gpu_samples == r->options.batch / r->parts;
    const int64_t evaluated_on_gpus = gpus_alone ? batch : 0;
    struct sgrad_dataset *samples = training ? r->train : r->test;
    return (struct sgrad_program_options){
        .batch = batch, .micro = micro, .group = r->group, .unit = training ? r->unit : 0, .lanes = r->lanes,
        .gpu_samples = training ? r->gpu_samples : evaluated_on_gpus, .gpu_micro = training ? r->gpu_micro : micro,
        .training = training ? r->training : NULL, .yields = !training, .rank = c->rank, .first = r->first, .tags = r->tags,
        .peers = training ? c->all : NULL, .network = c->network,
        .allreduce = r->allreduce, .bucket = (int64_t)(o->bucket * 1e6), .strategy = r->strategy, .servers = r->servers,
        .group_ranks = r->group_ranks, .backup = sgrad__run_backup(r), .deterministic = o->deterministic,
        .tf32 = o->precision == SGRAD_PRECISION_TF32, .histograms = training && c->rank == 0 ? o->histograms : 0,
        .fuse = !o->no_fuse, .recorded = training && !o->no_cuda_graphs, .cpus = c->cpus, .gpus = c->gpus,
        .clip_norm = (float)o->clip_norm, .lookahead = lookahead, .ema = o->ema,
        .kfac = { .decay = o->kfac_decay, .factor_every = o->kfac_factor_every, .eigen_every = o->kfac_eigen_every,
                  .lag = sgrad__run_lag(r), .skip = o->kfac_skip, .inverse = o->kfac_inverse, .share = r->share,
                  .room = r->room },
        .window = sgrad__run_steps_in_flight(r),
        .source = training && r->placement ? sgrad__placement_source(r->placement) : sgrad__source_of(samples),
        .workers = r->workers,
    };
}

const char *sgrad__run_samples(const struct sgrad__run *r) { return sgrad_dataset_image(r->train) ? "images" : "samples"; }

struct sgrad_train_result sgrad__run_result(const struct sgrad__run *r) {
    struct sgrad_train_result result = r->result;
    result.rank = r->context->rank;
    result.metric = r->metric;
    result.test_loss = result.test[0];
    result.test_top1 = NAN;
    for (int i = 0; i < result.metrics; i++)
        if (strcmp(r->metric[i].name, "top1") == 0) result.test_top1 = result.test[i];
    return result;
}
