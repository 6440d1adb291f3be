/* ps.c: synchronous parameter servers. The server of bucket i is rank i mod --servers, which stores the optimizer's states for
 * it.
 *
 *     rank 0   gradients ───────────┐                     ┌─> weights
 *     rank 1   gradients ─> sum of all, update, weights ──┼─> weights                 a bucket of server 1
 *     rank 2   gradients ───────────┘                     └─> weights
 *
 * Gradients are summed by the cheapest reduce, and weights are sent by the cheapest broadcast (runtime/collectives.h). The sums
 * of a tree have the same bits as those of allreduce.
 *
 * Limits: the server with the most buckets receives and sends more than with allreduce, and the others wait while it updates. */
#include "graphs/compiler/builder.h"

#include <stdlib.h>

static void exchange(struct sgrad_builder *builder, struct sgrad_bucket *bucket, int number, const char *name) {
    const int server = builder->o->peers->rank[number % builder->o->servers], priority = SGRAD__PRIORITY_UPDATE + number;
    const int chunks = sgrad__bucket_cuts(builder, bucket);
    int *chunk = sgrad_xcalloc((size_t)chunks, sizeof *chunk);
    sgrad__bucket_gather(builder, bucket, chunk, chunks, name);
    sgrad__add_shard(builder, bucket, server, sgrad__next_tag(builder));
    for (int c = 0; c < chunks; c++)
        chunk[c] = sgrad__add_collective(builder, SGRAD_REDUCE, builder->o->peers, server, chunk[c], priority, name);
    if (server == builder->o->rank) sgrad__bucket_spread(builder, bucket, chunk, chunks);
    sgrad__bucket_weights(builder, bucket);
    sgrad__bucket_broadcast(builder, bucket, server, priority, name);
    free(chunk);
}

static int all(const struct sgrad_program_options *options) { return sgrad__peer_count(options); }

const struct sgrad_strategy sgrad_ps_strategy = {
    .name = "ps",
    .summary = "synchronous parameter servers: --servers ranks apply the updates",
    .source = "Li et al., Scaling distributed machine learning with the parameter server, 2014",
    .options = (const char *const[]){ "servers", NULL },
    .uses_servers = true,
    .ranks = all,
    .exchange = exchange,
};
