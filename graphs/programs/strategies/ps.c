/* ps.c: parameter servers, in step: bucket i is the business of rank i mod --servers, which has the optimizer's state for it.
 *
 *     rank 0   gradients ───────────┐                     ┌─> weights
 *     rank 1   gradients ─> sum of all, update, weights ──┼─> weights                 a bucket of server 1
 *     rank 2   gradients ───────────┘                     └─> weights
 *
 * The server adds in the tree made by halving, so that 2^k ranks give the bits of one.
 *
 * Limits: a server takes in and gives out ranks - 1 times its buckets: allreduce moves fewer bytes. */
#include "graphs/programs/builder.h"

#include <stdlib.h>

static void serve(struct sgrad__builder *b, struct sgrad__bucket *bucket, int whole, int64_t tag, int priority, const char *name) {
    int *part = sgrad_alloc((size_t)b->o->ranks, sizeof *part);
    for (int r = 0; r < b->o->ranks; r++)
        part[r] = r == b->o->rank ? whole : sgrad__add_receive(b, b->p->buffer[whole].view, r, tag, priority, name);
    sgrad__bucket_spread(b, bucket, sgrad__add_sum(b, part, b->o->ranks, name));
    int weights = sgrad__bucket_weights(b, bucket, name);
    for (int r = 0; r < b->o->ranks; r++)
        if (r != b->o->rank) sgrad__add_send(b, weights, r, tag + 1, priority, name);
    free(part);
}

static void exchange(struct sgrad__builder *b, struct sgrad__bucket *bucket, int number, const char *name) {
    const int server = number % b->o->servers, priority = SGRAD__PRIORITY_UPDATE + number;
    const int64_t tag = sgrad__next_tag(b);
    int whole = sgrad__bucket_gather(b, bucket, name);
    sgrad__add_shard(b, bucket, server, tag);
    if (server == b->o->rank) {
        serve(b, bucket, whole, tag, priority, name);
        return;
    }
    sgrad__add_send(b, whole, server, tag, priority, name);
    sgrad__bucket_take(b, bucket, sgrad__add_receive(b, b->p->buffer[whole].view, server, tag + 1, priority, name));
}

static int all(const struct sgrad__program_options *o) { return o->ranks; }

const struct sgrad_strategy sgrad_ps_strategy = {
    .name = "ps",
    .summary = "parameter servers: --servers ranks share the updates; all ranks in step",
    .source = "Li et al., Scaling distributed machine learning with the parameter server, 2014",
    .sharded = true,
    .ranks = all,
    .exchange = exchange,
};
