/* strategy.c: chooses the strategy by which the ranks of a run train together, and checks that options suit it. */
#include "graphs/train/setup.h"

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
    return sgrad_log_error(SGRAD_EINVAL,
                           "--kfac-variant %s: takes auto, opt, lw, or the share of ranks that precondition a layer, "
                           "above 0 and up to 1",
                           text);
}

/* Limits the memory of K-FAC to a quarter of this rank's fraction of the memory of its host. All ranks use the value of rank
 * 0. */
void sgrad__run_measure_room(struct sgrad__run *r) {
    const int beside = r->context->network ? host_ranks(r->context->network) : 1;
    r->room = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE) / 4 / beside;
    sgrad_ranks_broadcast(&r->room, sizeof r->room, 0);
}

bool sgrad__updates_are_independent(const struct sgrad_optimizer *is) {
    for (const struct sgrad_state *s = is->states; s && s->name; s++)
        if (s->shape) return false;
    return !sgrad__layer_hooks_of(is);
}

int sgrad__run_check_shares(const struct sgrad__run *r, const struct sgrad_optimizer *is, const char *option) {
    if (!r->strategy->shards_optimizer || !is->needs_full_tensor || sgrad__updates_are_independent(is)) return 0;
    return sgrad_log_error(SGRAD_EINVAL, "--%s %s takes all parameters at once, and --shard has each rank update some", option,
                           is->name);
}

/* Checks the combinations that are invalid for any number of ranks. */
int sgrad__run_check_strategy(struct sgrad__run *r) {
    const struct sgrad_train_options *o = &r->options;
    const char *name = r->strategy->name;
    const bool sharded = r->strategy->uses_servers, layers = sgrad__layer_hooks_of(r->optimizer);
    if (o->allreduce && sharded) return sgrad_log_error(SGRAD_EINVAL, "--allreduce goes with --strategy sync, not with %s", name);
    if (r->allreduce && r->allreduce->on_gpus && sgrad_nccl_lacks())
        return sgrad_log_error(SGRAD_EINVAL, "--allreduce %s: %s", o->allreduce, sgrad_nccl_lacks());
    if (o->clip_norm > 0 && sharded)
        return sgrad_log_error(SGRAD_EINVAL, "--clip-norm goes with --strategy sync, not with %s", name);
    if (layers && sharded)
        return sgrad_log_error(SGRAD_EINVAL, "--optimizer %s goes with --strategy sync, not with %s", r->optimizer->name, name);
    if (layers && o->clip_norm > 0)
        return sgrad_log_error(SGRAD_EINVAL, "--clip-norm does not go with --optimizer %s, which clips by --kfac-clip",
                               r->optimizer->name);
    if ((o->allreduce || o->histograms) && r->strategy->shards_optimizer)
        return sgrad_log_error(SGRAD_EINVAL, "--%s does not go with --shard: gradients are nowhere whole",
                               o->allreduce ? "allreduce" : "histograms");
    SGRAD_TRY(sgrad__run_check_shares(r, r->optimizer, "optimizer"));
    SGRAD_TRY(parse_variant(o->kfac_variant, &r->share));
    if (layers && sgrad__run_lag(r) > o->kfac_eigen_every)
        return sgrad_log_error(SGRAD_EINVAL, "--kfac-lag %ld is more than --kfac-eigen-every %ld: no decomposition would be used",
                               o->kfac_lag, o->kfac_eigen_every);
    if (o->histograms && !o->tensorboard)
        return sgrad_log_error(SGRAD_EINVAL, "--histograms needs --tensorboard, which shows them");
    if (o->histograms && sharded)
        return sgrad_log_error(SGRAD_EINVAL,
                               "--histograms goes with --strategy sync, not with %s: gradients are each at its server", name);
    if (o->ema > 0 && r->strategy->asynchronous)
        return sgrad_log_error(SGRAD_EINVAL, "--ema goes with --strategy sync and ps, not with %s", name);
    if (o->backup_workers >= 0 && !r->strategy->drops_stale)
        return sgrad_log_error(SGRAD_EINVAL, "--backup goes with --strategy backup, not with %s", name);
    if (o->deterministic && r->strategy->asynchronous)
        return sgrad_log_error(SGRAD_EINVAL, "--deterministic cannot go with --strategy %s: who comes first decides", name);
    if (o->deterministic && r->allreduce && !r->allreduce->tree_order)
        return sgrad_log_error(SGRAD_EINVAL,
                               "--allreduce %s does not keep to one order of sums, as --deterministic needs: doubling, "
                               "halving and tree do",
                               o->allreduce);
    return 0;
}

int sgrad__run_choose_strategy(struct sgrad__run *r) {
    const struct sgrad_train_options *o = &r->options;
    const int ranks = r->context->ranks;
    const char *words = sgrad_plural(ranks, "rank", "ranks");
    r->servers = o->servers ? o->servers : ranks;
    r->group_ranks = r->context->network ? host_ranks(r->context->network) : 1;
    if (o->group_ranks) r->group_ranks = o->group_ranks;
    if (r->allreduce && r->allreduce->library && (r->copies > 1 || r->graph->stages > 1))
        return sgrad_log_error(SGRAD_EINVAL,
                               "--allreduce %s sums over all ranks, and mesh %s has gradients that some of them share: "
                               "another --allreduce does that",
                               o->allreduce, o->mesh);
    if (r->servers > ranks)
        return sgrad_log_error(SGRAD_EINVAL, "--servers %d are more than the %d %s", r->servers, ranks, words);
    if (ranks % r->group_ranks)
        return sgrad_log_error(SGRAD_EINVAL, "--group %d does not divide the %d %s: %d does", r->group_ranks, ranks, words,
                               (int)sgrad__nearest_divisor(ranks, r->group_ranks));
    if (o->backup_workers >= ranks)
        return sgrad_log_error(SGRAD_EINVAL, "--backup %d leaves none of the %d %s", o->backup_workers, ranks, words);
    const struct sgrad_program_options how = { .peers = r->context->all,
                                                .group_ranks = r->group_ranks,
                                                .backup = sgrad__run_backup(r) };
    r->push_ranks = r->strategy->drops_stale ? 1 : r->strategy->ranks(&how);
    if (r->strategy->asynchronous && r->group > o->batch / r->parts * r->push_ranks)
        return sgrad_log_error(SGRAD_EINVAL, "--bn-group spans ranks that --strategy %s does not keep in step",
                               r->strategy->name);
    return 0;
}
