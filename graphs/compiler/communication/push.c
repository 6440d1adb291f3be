/* push.c: gradients are sent to a parameter server, which returns weights: the programs of worker and server, for the strategies
 * async, backup and mixed.
 *
 *     worker   bucket ─> send ·                                                    · receive ─> weights
 *     server              · receive │ sum of members  spread  update… │ gather weights  send ·
 *
 * The server runs its program for a worker in sections (server.c). An update uses the push of one worker, or those of several:
 * they are external buffers of the program of one of them. After a push that is dropped, only the weights are sent. Workers wait
 * for the server, so its sums and updates have priority over its training tasks. */
#include "graphs/compiler/builder.h"

#include <stdlib.h>

void sgrad__add_shard(struct sgrad_builder *builder, const struct sgrad_bucket *bucket, int server, int64_t tag) {
    struct sgrad__program *p = builder->p;
    p->shard = sgrad_array_grow(p->shard, p->shards, sizeof *p->shard);
    struct sgrad__shard *s = &p->shard[p->shards++];
    *s = (struct sgrad__shard){ .server = server, .tag = tag, .bucket_bytes = p->bucket_bytes };
    s->parameter = sgrad__bucket_parameters(bucket, &s->count);
}

/* Sends a chunk, summed over its group, from the group's first rank to the server. The weights return on the same path. */
static int push_chunk(struct sgrad_builder *builder, int chunk, int server, int ranks, int64_t tag, int priority,
                      const char *name) {
    const struct sgrad_group group = sgrad__peers(builder, builder->place - builder->place % ranks, ranks);
    const int first = group.rank[0];
    chunk = sgrad__add_collective(builder, SGRAD_REDUCE, &group, first, chunk, priority, name);
    if (first == builder->o->rank) {
        sgrad__add_send(builder, chunk, server, tag, priority, name);
        chunk = sgrad__add_receive(builder, builder->p->buffer[chunk].view, server, tag + 1, priority, name);
    }
    return sgrad__add_collective(builder, SGRAD_BROADCAST, &group, first, chunk, priority, name);
}

void sgrad__add_push(struct sgrad_builder *builder, struct sgrad_bucket *bucket, int ranks, int number, const char *name) {
    const int server = builder->o->peers->rank[number % builder->o->servers], priority = SGRAD__PRIORITY_UPDATE + number,
              chunks = sgrad__bucket_cuts(builder, bucket);
    const int64_t tag = sgrad__next_tag(builder);
    int *chunk = sgrad_xcalloc((size_t)chunks, sizeof *chunk);
    sgrad__bucket_gather(builder, bucket, chunk, chunks, name);
    sgrad__add_shard(builder, bucket, server, tag);
    for (int c = 0; c < chunks; c++) chunk[c] = push_chunk(builder, chunk[c], server, ranks, tag + 2 * c, priority, name);
    sgrad__bucket_weights(builder, bucket);
    sgrad__bucket_take(builder, bucket, chunk, chunks);
    free(chunk);
}

/* Adds the sum of chunk C of the pushes of all members, which are external buffers. */
static int add_members(struct sgrad_builder *builder, struct sgrad__service *service, int c, int members) {
    const struct sgrad_view view = builder->p->buffer[service->push[c]].view;
    for (int i = 0; i < members; i++) service->member[i * service->chunks + c] = sgrad__add_lent(builder, "member", view);
    int *list = sgrad_xcalloc((size_t)members, sizeof *list);
    for (int i = 0; i < members; i++) list[i] = service->member[i * service->chunks + c];
    const int sum = sgrad__add_sum(builder, list, members, "members");
    free(list);
    return sum;
}

/* A push must exist until the next one, because another program may sum it, or none. */
static void add_pushes(struct sgrad_builder *builder, struct sgrad__service *service, const struct sgrad_bucket *bucket,
                       int worker, int64_t tag) {
    for (int c = 0; c < service->chunks; c++) {
        const struct sgrad_view view = { SGRAD_F32, { 1, { sgrad__bucket_chunk(bucket, service->chunks, c) } } };
        service->push[c] = sgrad__add_receive(builder, view, worker, tag + 2 * c, SGRAD__PRIORITY_UPDATE, "push");
        builder->p->buffer[service->push[c]].lifetime = SGRAD_PERSISTENT;
    }
}

struct sgrad__service sgrad__service_create(struct sgrad_graph *graph, const struct sgrad_program_options *options,
                                            const struct sgrad__shard *shard, int worker, int members,
                                            struct sgrad_tensor *const *master) {
    struct sgrad__program *p = sgrad__program_create();
    p->graph = graph;
    p->batch = (struct sgrad_batch){ options->batch, options->group, options->batch };
    p->training = true;
    p->bucket_bytes = shard->bucket_bytes;
    int *parameter = sgrad_xcalloc((size_t)graph->parameter_count, sizeof *parameter);
    int *gradient = sgrad_xcalloc((size_t)shard->count, sizeof *gradient);
    struct sgrad_builder b = {
        .p = p, .g = graph, .o = options, .parameter = parameter, .peers = options->peers->count, .norm = -1
    };
    struct sgrad_bucket *bucket = sgrad__bucket_open(SGRAD_F32, *options->peers);
    for (int i = 0; i < shard->count; i++) {
        const struct sgrad__parameter *w = &graph->parameter[shard->parameter[i]];
        parameter[shard->parameter[i]] = sgrad__lend_buffer(&b, master[shard->parameter[i]]);
        sgrad__bucket_put(bucket, -1, (struct sgrad_view){ SGRAD_F32, w->is.shape }, &gradient[i], shard->parameter[i], w->name);
    }
    struct sgrad__service s = { .program = p, .chunks = sgrad__bucket_cuts(&b, bucket) };
    const size_t chunks = (size_t)s.chunks;
    int *chunk = sgrad_xcalloc(chunks, sizeof *chunk);
    s.push = sgrad__own(p, sgrad_xcalloc(chunks, sizeof *s.push));
    s.member = sgrad__own(p, sgrad_xcalloc(chunks * (size_t)members, sizeof *s.member));
    add_pushes(&b, &s, bucket, worker, shard->tag);
    for (int c = 0; c < s.chunks; c++) chunk[c] = add_members(&b, &s, c, members);
    sgrad__bucket_spread(&b, bucket, chunk, s.chunks);
    s.reply = p->instruction_count;
    sgrad__bucket_weights(&b, bucket);
    sgrad__bucket_gather(&b, bucket, chunk, s.chunks, "weights");
    for (int c = 0; c < s.chunks; c++)
        sgrad__add_send(&b, chunk[c], worker, shard->tag + 2 * c + 1, SGRAD__PRIORITY_UPDATE, "weights");
    sgrad__mark_last_uses(p);
    sgrad__bucket_free(bucket);
    free(chunk);
    free(parameter);
    free(gradient);
    return s;
}
