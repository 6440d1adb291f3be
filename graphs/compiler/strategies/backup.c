/* backup.c: synchronous, except for the --backup slowest ranks. A server updates a shard by the first (ranks - backup) gradients
 * that are computed from its newest weights. Later gradients are dropped, and their ranks continue with the new weights. Three
 * ranks, one backup worker:
 *
 *     rank 0   gradients ──> server: held │ sum, update │ ────> weights
 *     rank 1   gradients ──────> server:  │ sum, update │ ────> weights
 *     rank 2   gradients ─────────────────> server:     │ drop ──> weights
 *
 * Without backup workers (--backup 0), this computes the same sums as sync.
 *
 * Limits: every rank runs every step, so this hides only temporary delays. A rank that is always slow is waited for once the
 * others are --staleness steps ahead of it. So is a slow server, because servers do the updates. */
#include "graphs/compiler/builder.h"

static void exchange(struct sgrad_builder *builder, struct sgrad_bucket *bucket, int number, const char *name) {
    sgrad__add_push(builder, bucket, 1, number, name);
}

static int first(const struct sgrad_program_options *options) { return sgrad__peer_count(options) - options->backup; }

const struct sgrad_strategy sgrad_backup_strategy = {
    .name = "backup",
    .summary = "servers update with the first gradients to arrive and drop those of the --backup slowest ranks",
    .source = "Chen et al., Revisiting distributed synchronous SGD, 2016",
    .options = (const char *const[]){ "servers", "backup", "staleness", NULL },
    .uses_servers = true,
    .asynchronous = true,
    .drops_stale = true,
    .ranks = first,
    .exchange = exchange,
};
