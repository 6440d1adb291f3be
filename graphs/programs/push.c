/* push.c: gradients go to a parameter server, weights come back: the programs of both ends, for the strategies async, backup and
 * mixed.
 *
 *     worker   bucket ─> send ·                                                    · receive ─> weights
 *     server              · receive │ sum of members  spread  update… │ gather weights  send ·
 *
 * The server's program for a worker is run in parts (server.c): the update is by the pushes of one worker or of several, which
 * are lent to the program of one of them; a push that is dropped is followed by the weights alone. Workers wait for what a server
 * does, so its sums and updates go before its own training. */
#include "graphs/programs/builder.h"

#include <stdlib.h>

void sgrad__add_shard(struct sgrad__builder *b, const struct sgrad__bucket *bucket, int server, int64_t tag) {
    struct sgrad__program *p = b->p;
    p->shard = sgrad_grow(p->shard, p->shards, sizeof *p->shard);
    struct sgrad__shard *s = &p->shard[p->shards++];
    *s = (struct sgrad__shard){ .server = server, .tag = tag, .bucket_bytes = p->bucket_bytes };
    s->parameter = sgrad__bucket_parameters(bucket, &s->count);
}

/* A chunk's way: to the group's first rank, in a sum, to the server, whose weights come back the same way. */
static int push_chunk(struct sgrad__builder *b, int chunk, int server, int ranks, int64_t tag, int priority, const char *name) {
    const struct sgrad_group group = sgrad__peers(b, b->place - b->place % ranks, ranks);
    const int first = group.rank[0];
    chunk = sgrad__add_collective(b, SGRAD_REDUCE, &group, first, chunk, priority, name);
    if (first == b->o->rank) {
        sgrad__add_send(b, chunk, server, tag, priority, name);
        chunk = sgrad__add_receive(b, b->p->buffer[chunk].view, server, tag + 1, priority, name);
    }
    return sgrad__add_collective(b, SGRAD_BROADCAST, &group, first, chunk, priority, name);
}

void sgrad__add_push(struct sgrad__builder *b, struct sgrad__bucket *bucket, int ranks, int number, const char *name) {
    const int server = b->o->peers->rank[number % b->o->servers], priority = SGRAD__PRIORITY_UPDATE + number,
              chunks = sgrad__bucket_cuts(b, bucket);
    const int64_t tag = sgrad__next_tag(b);
    int *chunk = sgrad_alloc((size_t)chunks, sizeof *chunk);
    sgrad__bucket_gather(b, bucket, chunk, chunks, name);
    sgrad__add_shard(b, bucket, server, tag);
    for (int c = 0; c < chunks; c++) chunk[c] = push_chunk(b, chunk[c], server, ranks, tag + 2 * c, priority, name);
    sgrad__bucket_weights(b, bucket);
    sgrad__bucket_take(b, bucket, chunk, chunks);
    free(chunk);
}

/* Chunk C of the pushes of all members, which are lent, in one sum. */
static int add_members(struct sgrad__builder *b, struct sgrad__service *s, int c, int members) {
    const struct sgrad_view view = b->p->buffer[s->push[c]].view;
    for (int i = 0; i < members; i++) s->member[i * s->chunks + c] = sgrad__add_lent(b, "member", view);
    int *list = sgrad_alloc((size_t)members, sizeof *list);
    for (int i = 0; i < members; i++) list[i] = s->member[i * s->chunks + c];
    const int sum = sgrad__add_sum(b, list, members, "members");
    free(list);
    return sum;
}

/* A push is there until the next one: whoever sums it, and if nobody does. */
static void add_pushes(struct sgrad__builder *b, struct sgrad__service *s, const struct sgrad__bucket *bucket, int worker,
                       int64_t tag) {
    for (int c = 0; c < s->chunks; c++) {
        const struct sgrad_view view = { SGRAD_F32, { 1, { sgrad__bucket_chunk(bucket, s->chunks, c) } } };
        s->push[c] = sgrad__add_receive(b, view, worker, tag + 2 * c, SGRAD__PRIORITY_UPDATE, "push");
        b->p->buffer[s->push[c]].lifetime = SGRAD_PERSISTENT;
    }
}

struct sgrad__service sgrad__service_create(struct sgrad_graph *g, const struct sgrad__program_options *o,
                                            const struct sgrad__shard *shard, int worker, int members,
                                            struct sgrad_tensor *const *master) {
    struct sgrad__program *p = sgrad__program_create();
    p->graph = g;
    p->batch = (struct sgrad_batch){ o->batch, o->group, o->batch };
    p->training = true;
    p->bucket_bytes = shard->bucket_bytes;
    int *parameter = sgrad_alloc((size_t)g->parameter_count, sizeof *parameter);
    int *gradient = sgrad_alloc((size_t)shard->count, sizeof *gradient);
    struct sgrad__builder b = { .p = p, .g = g, .o = o, .parameter = parameter, .peers = o->peers->count, .norm = -1 };
    struct sgrad__bucket *bucket = sgrad__bucket_open(SGRAD_F32, *o->peers);
    for (int i = 0; i < shard->count; i++) {
        const struct sgrad__parameter *w = &g->parameter[shard->parameter[i]];
        parameter[shard->parameter[i]] = sgrad__lend_buffer(&b, master[shard->parameter[i]]);
        sgrad__bucket_put(bucket, -1, (struct sgrad_view){ SGRAD_F32, w->is.shape }, &gradient[i], shard->parameter[i], w->name);
    }
    struct sgrad__service s = { .program = p, .chunks = sgrad__bucket_cuts(&b, bucket) };
    const size_t chunks = (size_t)s.chunks;
    int *chunk = sgrad_alloc(chunks, sizeof *chunk);
    s.push = sgrad__own(p, sgrad_alloc(chunks, sizeof *s.push));
    s.member = sgrad__own(p, sgrad_alloc(chunks * (size_t)members, sizeof *s.member));
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
