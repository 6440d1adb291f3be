/* shard.c: every rank has the sum of its share of the gradients, does its share of the updates, keeps its share of the states,
 * and tells all what became of the weights. Of a bucket of three parameters, on two ranks:
 *
 *     gradients   a a a a b b c c c c ─┐ reduce_   ┌─ rank 0: a a b c c   update ─┐ all_     ┌─ a a a a b b c c c c   weights
 *     gradients   a a a a b b c c c c ─┘ scatter   └─ rank 1: a a b c c   update ─┘ gather   └─ a a a a b b c c c c
 * Of an optimizer that takes whole parameters a share is some of these (dealing.c).
 *
 * (S. Rajbhandari et al., ZeRO: memory optimizations toward training trillion parameter models, 2020, stages 1 and 2.) */
#include "graphs/programs/builder.h"

static void exchange(struct sgrad__builder *b, struct sgrad__bucket *bucket, int number, const char *name) {
    sgrad__bucket_share(b, bucket, SGRAD__PRIORITY_UPDATE + number, name);
}

static int all(const struct sgrad__program_options *o) { return sgrad__peer_count(o); }

const struct sgrad_strategy sgrad_shard_strategy = {
    .name = "shard",
    .summary = "as sync, but each rank keeps a share of the optimizer's states, and does a share of the updates",
    .source = "S. Rajbhandari et al., ZeRO: memory optimizations toward training trillion parameter models, 2020",
    .options = (const char *const[]){ NULL },
    .shares = true,
    .ranks = all,
    .exchange = exchange,
};
