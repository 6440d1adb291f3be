/* backup.c: in step, but for the --backup slowest: a server updates a shard by the first ranks - backup gradients that come of
 * its newest weights; those that come later are dropped, and their ranks go on with the new weights. Three ranks, one backup
 * worker:
 *
 *     rank 0   gradients ──> server: held │ sum, update │ ────> weights
 *     rank 1   gradients ──────> server:  │ sum, update │ ────> weights
 *     rank 2   gradients ─────────────────> server:     │ drop ──> weights
 *
 * Without backup workers (--backup 0) it is another way to the sums of sync.
 *
 * Limits: every rank turns every step, so this hides hiccups, of a rank that is now late and now is not. One that is always slow
 * is waited for once the others are --staleness steps ahead of it. So is a server that is slow: servers do the updates. */
#include "graphs/programs/builder.h"

static void exchange(struct sgrad__builder *b, struct sgrad__bucket *bucket, int number, const char *name) {
    sgrad__add_push(b, bucket, 1, number, name);
}

static int first(const struct sgrad__program_options *o) { return sgrad__peer_count(o) - o->backup; }

const struct sgrad_strategy sgrad_backup_strategy = {
    .name = "backup",
    .summary = "servers update by the first gradients that come, and drop those of the --backup slowest ranks",
    .source = "Chen et al., Revisiting distributed synchronous SGD, 2016",
    .options = (const char *const[]){ "servers", "backup", "staleness", NULL },
    .sharded = true,
    .served = true,
    .fresh = true,
    .ranks = first,
    .exchange = exchange,
};
