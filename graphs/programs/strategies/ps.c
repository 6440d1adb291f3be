/* ps.c: parameter servers, in step: bucket i is the business of rank i mod --servers, which has the optimizer's state for it.
 *
 *     rank 0   gradients ───────────┐                     ┌─> weights
 *     rank 1   gradients ─> sum of all, update, weights ──┼─> weights                 a bucket of server 1
 *     rank 2   gradients ───────────┘                     └─> weights
 *
 * Sums come by the cheapest reduce, weights go by the cheapest broadcast (runtime/collectives.h): a tree's sums have the bits of
 * allreduce's.
 *
 * Limits: whoever serves most takes in and gives out more than with allreduce, and updates while others wait. */
#include "graphs/programs/builder.h"

#include <stdlib.h>

static void exchange(struct sgrad__builder *b, struct sgrad__bucket *bucket, int number, const char *name) {
    const int server = b->o->peers->rank[number % b->o->servers], priority = SGRAD__PRIORITY_UPDATE + number;
    const int chunks = sgrad__bucket_cuts(b, bucket);
    int *chunk = sgrad_alloc((size_t)chunks, sizeof *chunk);
    sgrad__bucket_gather(b, bucket, chunk, chunks, name);
    sgrad__add_shard(b, bucket, server, sgrad__next_tag(b));
    for (int c = 0; c < chunks; c++)
        chunk[c] = sgrad__add_collective(b, SGRAD_REDUCE, b->o->peers, server, chunk[c], priority, name);
    if (server == b->o->rank) sgrad__bucket_spread(b, bucket, chunk, chunks);
    sgrad__bucket_weights(b, bucket);
    sgrad__bucket_broadcast(b, bucket, server, priority, name);
    free(chunk);
}

static int all(const struct sgrad__program_options *o) { return sgrad__peer_count(o); }

const struct sgrad_strategy sgrad_ps_strategy = {
    .name = "ps",
    .summary = "parameter servers: --servers ranks share the updates; all ranks in step",
    .source = "Li et al., Scaling distributed machine learning with the parameter server, 2014",
    .options = (const char *const[]){ "servers", NULL },
    .sharded = true,
    .ranks = all,
    .exchange = exchange,
};
