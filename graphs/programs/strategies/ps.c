/* ps.c: parameter servers, in step: bucket i is the business of rank i mod --servers, which has the optimizer's state for it.
 *
 *     rank 0   gradients ───────────┐                     ┌─> weights
 *     rank 1   gradients ─> sum of all, update, weights ──┼─> weights                 a bucket of server 1
 *     rank 2   gradients ───────────┘                     └─> weights
 *
 * The server adds in the tree made by halving, so that 2^k ranks give the bits of one where --bn-group does not depend on them.
 *
 * Limits: a server takes in and gives out ranks - 1 times its buckets: allreduce moves fewer bytes. */
#include "graphs/programs/builder.h"

#include <stdlib.h>

/* Chunk CHUNK of every rank's bucket, in one sum. */
static int sum_ranks(struct sgrad__builder *b, int chunk, int64_t tag, int priority, const char *name) {
    int *list = sgrad_alloc((size_t)b->o->ranks, sizeof *list);
    for (int r = 0; r < b->o->ranks; r++)
        list[r] = r == b->o->rank ? chunk : sgrad__add_receive(b, b->p->buffer[chunk].view, r, tag, priority, name);
    const int sum = sgrad__add_sum(b, list, b->o->ranks, name);
    free(list);
    return sum;
}

static void serve(struct sgrad__builder *b, struct sgrad__bucket *bucket, int *chunk, int chunks, int64_t tag, int priority,
                  const char *name) {
    for (int c = 0; c < chunks; c++) chunk[c] = sum_ranks(b, chunk[c], tag + 2 * c, priority, name);
    sgrad__bucket_spread(b, bucket, chunk, chunks);
    sgrad__bucket_weights(b, bucket, chunk, chunks, name);
    for (int r = 0; r < b->o->ranks; r++)
        for (int c = 0; c < chunks && r != b->o->rank; c++) sgrad__add_send(b, chunk[c], r, tag + 2 * c + 1, priority, name);
}

static void ask(struct sgrad__builder *b, struct sgrad__bucket *bucket, int *chunk, int chunks, int server, int64_t tag,
                int priority, const char *name) {
    for (int c = 0; c < chunks; c++) {
        sgrad__add_send(b, chunk[c], server, tag + 2 * c, priority, name);
        chunk[c] = sgrad__add_receive(b, b->p->buffer[chunk[c]].view, server, tag + 2 * c + 1, priority, name);
    }
    sgrad__bucket_take(b, bucket, chunk, chunks);
}

static void exchange(struct sgrad__builder *b, struct sgrad__bucket *bucket, int number, const char *name) {
    const int server = number % b->o->servers, priority = SGRAD__PRIORITY_UPDATE + number, chunks = sgrad__bucket_cuts(b, bucket);
    const int64_t tag = sgrad__next_tag(b);
    int *chunk = sgrad_alloc((size_t)chunks, sizeof *chunk);
    sgrad__bucket_gather(b, bucket, chunk, chunks, name);
    sgrad__add_shard(b, bucket, server, tag);
    if (server == b->o->rank) serve(b, bucket, chunk, chunks, tag, priority, name);
    else ask(b, bucket, chunk, chunks, server, tag, priority, name);
    free(chunk);
}

static int all(const struct sgrad__program_options *o) { return o->ranks; }

const struct sgrad_strategy sgrad_ps_strategy = {
    .name = "ps",
    .summary = "parameter servers: --servers ranks share the updates; all ranks in step",
    .source = "Li et al., Scaling distributed machine learning with the parameter server, 2014",
    .options = (const char *const[]){ "servers", NULL },
    .sharded = true,
    .ranks = all,
    .exchange = exchange,
};
