/* strategy.c: chooses the strategy by which the ranks of a run train together, and checks that options suit it. */
#include "graphs/train/setup.h"
#include "graphs/networks/layers/layers.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int host_ranks(const struct sgrad_network *net) {
    int count = 0;
    for (int i = 0; i < net->ranks; i++) count += net->host[i] == net->host[0];
    return count;
}

/* Parses --kfac-variant, the fraction of ranks that precondition a layer. lw: 0, which stands for one rank, the minimum; opt:
 * 1; auto: -1, chosen by cost. */
static int parse_variant(const char *text, double *share) {
    static const struct { const char *name; double share; } names[] = { { "auto", -1 }, { "lw", 0 }, { "opt", 1 } };
    char *end;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(text, names[i].name) == 0) return *share = names[i].share, 0;
    *share = strtod(text, &end);
    if (end > text && !*end && *share > 0 && *share <= 1) return 0;
    return sgrad_log_error(
        SGRAD_EINVAL,
        "--kfac-variant %s must be auto, opt, lw, or a number above 0 and up to 1, the fraction of ranks that precondition a "
        "layer", text);
}

/* Limits the memory of K-FAC to a quarter of this rank's fraction of the memory of its host. All ranks use the value of rank
 * 0. */
void sgrad__run_measure_room(struct sgrad__run *run) {
    const int beside = run->context->network ? host_ranks(run->context->network) : 1;
    run->update.kfac_room = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE) / 4 / beside;
    sgrad_ranks_broadcast(&run->update.kfac_room, sizeof run->update.kfac_room, 0);
}

/* Returns an error if the optimizer averages the weights, and another option does not suit this. */
static int check_average(const struct sgrad__run *run, const struct sgrad_optimizer *is, const char *option) {
    const bool ema = run->options.training.ema > 0;
    if (!is->average) return 0;
    if (ema || run->options.training.lookahead.every)
        return sgrad_log_error(SGRAD_EINVAL, "--%s cannot be combined with --%s %s, which averages the weights itself",
                               ema ? "ema" : "lookahead", option, is->name);
    if (run->parallel.strategy->asynchronous)
        return sgrad_log_error(SGRAD_EINVAL, "--%s %s requires --strategy sync or ps, not %s", option, is->name,
                               run->parallel.strategy->name);
    return 0;
}

int sgrad__run_check_optimizer(const struct sgrad__run *run, const struct sgrad_optimizer *is, const char *option) {
    SGRAD_TRY(check_average(run, is, option));
    if (!run->parallel.strategy->shards_optimizer || !sgrad__layer_hooks_of(is)) return 0;
    return sgrad_log_error(SGRAD_EINVAL, "--%s %s requires all parameters at once; it cannot be combined with --shard", option,
                           is->name);
}

/* Checks the combinations that are invalid for any number of ranks. */
int sgrad__run_check_strategy(struct sgrad__run *run) {
    const struct sgrad_train_options *o = &run->options;
    const char *name = run->parallel.strategy->name;
    const bool sharded = run->parallel.strategy->uses_servers, layers = sgrad__layer_hooks_of(run->update.optimizer);
    if (o->parallel.allreduce && sharded)
        return sgrad_log_error(SGRAD_EINVAL, "--allreduce requires --strategy sync, not %s", name);
    if (run->parallel.allreduce && run->parallel.allreduce->on_gpus && sgrad_nccl_lacks())
        return sgrad_log_error(SGRAD_EINVAL, "--allreduce %s: %s", o->parallel.allreduce, sgrad_nccl_lacks());
    if (o->training.clip_norm > 0 && sharded)
        return sgrad_log_error(SGRAD_EINVAL, "--clip-norm requires --strategy sync, not %s", name);
    if (layers && sharded)
        return sgrad_log_error(SGRAD_EINVAL, "--optimizer %s requires --strategy sync, not %s", run->update.optimizer->name,
                               name);
    if (layers && o->training.clip_norm > 0)
        return sgrad_log_error(SGRAD_EINVAL, "--clip-norm cannot be combined with --optimizer %s, which clips with --kfac-clip",
                               run->update.optimizer->name);
    if ((o->parallel.allreduce || o->output.histograms) && run->parallel.strategy->shards_optimizer)
        return sgrad_log_error(SGRAD_EINVAL, "--%s cannot be combined with --shard: no rank has whole gradients",
                               o->parallel.allreduce ? "allreduce" : "histograms");
    if (o->evaluation.best && run->parallel.strategy->shards_parameters)
        return sgrad_log_error(SGRAD_EINVAL,
                               "--best cannot be combined with --shard parameters: no rank has all weights; use optimizer");
    SGRAD_TRY(sgrad__run_check_optimizer(run, run->update.optimizer, "optimizer"));
    SGRAD_TRY(parse_variant(o->optimizer.kfac.variant, &run->update.kfac_share));
    if (layers && sgrad__run_lag(run) > o->optimizer.kfac.eigen_every)
        return sgrad_log_error(SGRAD_EINVAL,
                               "--kfac-lag %ld must not exceed --kfac-eigen-every %ld: no decomposition would be used",
                               o->optimizer.kfac.lag, o->optimizer.kfac.eigen_every);
    if (o->output.histograms && !o->output.tensorboard)
        return sgrad_log_error(SGRAD_EINVAL, "--histograms requires --tensorboard");
    if (o->output.histograms && sharded)
        return sgrad_log_error(SGRAD_EINVAL,
                               "--histograms requires --strategy sync, not %s, which leaves gradients on the servers", name);
    if (o->training.ema > 0 && run->parallel.strategy->asynchronous)
        return sgrad_log_error(SGRAD_EINVAL, "--ema requires --strategy sync or ps, not %s", name);
    if (o->parallel.backup_workers >= 0 && !run->parallel.strategy->drops_stale)
        return sgrad_log_error(SGRAD_EINVAL, "--backup requires --strategy backup, not %s", name);
    if (o->training.deterministic && run->parallel.strategy->asynchronous)
        return sgrad_log_error(SGRAD_EINVAL,
                               "--deterministic cannot be combined with --strategy %s: its result depends on timing", name);
    if (o->training.deterministic && run->parallel.allreduce && !run->parallel.allreduce->tree_order)
        return sgrad_log_error(
            SGRAD_EINVAL,
            "--allreduce %s cannot be combined with --deterministic: its order of sums varies; use doubling, halving or tree",
            o->parallel.allreduce);
    return 0;
}

/* A library sums over all ranks. Those along axis context have the same parameters. NCCL has not been tested with this axis. */
static int check_library(const struct sgrad__run *run) {
    const struct sgrad_collective *is = run->parallel.allreduce;
    const struct sgrad_axis *context = sgrad_mesh_axis(&run->parallel.mesh, SGRAD__CONTEXT);
    const struct sgrad_axis *expert = sgrad_mesh_axis(&run->parallel.mesh, SGRAD__EXPERT);
    const int alike = context ? context->ranks : 1;
    if (!is || !is->library) return 0;
    if (run->parallel.copies > alike || run->graph->stages > 1 || (expert && expert->ranks > 1))
        return sgrad_log_error(
            SGRAD_EINVAL,
            "--allreduce %s sums over all ranks, but mesh %s requires sums over some of them; use another --allreduce", is->name,
            run->options.parallel.mesh);
    if (is->on_gpus && alike > 1)
        return sgrad_log_error(SGRAD_EINVAL, "--allreduce %s cannot be combined with axis " SGRAD__CONTEXT " of mesh %s",
                               is->name, run->options.parallel.mesh);
    return 0;
}

int sgrad__run_choose_strategy(struct sgrad__run *run) {
    const struct sgrad_train_options *o = &run->options;
    const int ranks = run->context->ranks;
    const char *words = sgrad_plural(ranks, "rank", "ranks");
    run->parallel.servers = o->parallel.servers ? o->parallel.servers : ranks;
    run->parallel.group_ranks = run->context->network ? host_ranks(run->context->network) : 1;
    if (o->parallel.group_ranks) run->parallel.group_ranks = o->parallel.group_ranks;
    SGRAD_TRY(check_library(run));
    if (run->parallel.servers > ranks)
        return sgrad_log_error(SGRAD_EINVAL, "--servers %d exceeds the %d %s", run->parallel.servers, ranks, words);
    if (ranks % run->parallel.group_ranks)
        return sgrad_log_error(SGRAD_EINVAL, "--group %d does not divide the %d %s; give --group %d", run->parallel.group_ranks,
                               ranks, words, (int)sgrad__nearest_divisor(ranks, run->parallel.group_ranks));
    if (o->parallel.backup_workers >= ranks)
        return sgrad_log_error(SGRAD_EINVAL, "--backup %d must be less than the %d %s", o->parallel.backup_workers, ranks, words);
    const struct sgrad_program_options how = { .peers = run->context->all,
                                                .group_ranks = run->parallel.group_ranks,
                                                .backup = sgrad__run_backup(run) };
    run->parallel.push_ranks = run->parallel.strategy->drops_stale ? 1 : run->parallel.strategy->ranks(&how);
    if (run->parallel.strategy->asynchronous &&
        run->batch.norm_group > o->training.batch / run->parallel.local_batches * run->parallel.push_ranks)
        return sgrad_log_error(SGRAD_EINVAL,
                               "--bn-group spans ranks that --strategy %s does not synchronise; give --bn-group rank",
                               run->parallel.strategy->name);
    return 0;
}
