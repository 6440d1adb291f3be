/* shard.c: every rank gets the sum of its shard of the gradients, updates its shard of the weights, stores its shard of the
 * optimizer states, and sends the updated weights to all ranks. A bucket of three parameters, on two ranks:
 *
 *     gradients   a a a a b b c c c c ─┐ reduce_   ┌─ rank 0: a a b c c   update ─┐ all_     ┌─ a a a a b b c c c c   weights
 *     gradients   a a a a b b c c c c ─┘ scatter   └─ rank 1: a a b c c   update ─┘ gather   └─ a a a a b b c c c c
 *
 * If the optimizer needs whole parameters, a shard consists of some of these (load_balance.c).
 *
 * (S. Rajbhandari et al., ZeRO: memory optimizations toward training trillion parameter models, 2020, stages 1 and 2.) */
#include "graphs/compiler/builder.h"

static void exchange(struct sgrad_builder *builder, struct sgrad_bucket *bucket, int number, const char *name) {
    sgrad__bucket_share(builder, bucket, SGRAD__PRIORITY_UPDATE + number, name);
}

static int all(const struct sgrad_program_options *options) { return sgrad__peer_count(options); }

const struct sgrad_strategy sgrad_shard_strategy = {
    .name = "shard",
    .summary = "like sync, with optimizer state and updates sharded over the ranks (ZeRO)",
    .source = "S. Rajbhandari et al., ZeRO: memory optimizations toward training trillion parameter models, 2020",
    .options = (const char *const[]){ NULL },
    .shards_optimizer = true,
    .ranks = all,
    .exchange = exchange,
};
