/* sync.c: every rank gets the sum of all gradients, and does every update.
 *
 *     rank 0   gradients ─┐           ┌─ sum   update
 *     rank 1   gradients ─┼ allreduce ┼─ sum   update
 *     rank 2   gradients ─┘           └─ sum   update
 *
 * If updates are expensive, each is done by one rank, which sends the updated weights to the others (load_balance.c). */
#include "graphs/compiler/builder.h"

static void exchange(struct sgrad_builder *builder, struct sgrad_bucket *bucket, int number, const char *name) {
    sgrad__bucket_sum(builder, bucket, builder->o->allreduce, SGRAD__PRIORITY_UPDATE + number, name);
    sgrad__bucket_join(builder, bucket, name);
}

static int all(const struct sgrad_program_options *options) { return sgrad__peer_count(options); }

const struct sgrad_strategy sgrad_sync_strategy = {
    .name = "sync",
    .summary = "all ranks sum their gradients (--allreduce) and apply the same update",
    .options = (const char *const[]){ "allreduce", NULL },
    .balances_updates = true,
    .ranks = all,
    .exchange = exchange,
};
