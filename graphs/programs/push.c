/* push.c: gradients go to a parameter server, weights come back: the programs of both ends, for the strategies async, backup and mixed.
 *
 *     worker   bucket ─> send ·                                                    · receive ─> weights
 *     server              · receive │ sum of members  spread  update… │ gather weights  send ·
 *
 * The server's program for a worker is run in parts (server.c): the update is by the pushes of one worker or of several, which
 * are lent to the program of one of them; a push that is dropped is followed by the weights alone. */
#include "graphs/programs/builder.h"
#include "graphs/runs/train.h"

#include <stdlib.h>

void sgrad__add_shard(struct sgrad__builder *b, const struct sgrad__bucket *bucket, int server, int64_t tag) {
    struct sgrad__program *p = b->p;
    p->shard = sgrad_grow(p->shard, p->shards, sizeof *p->shard);
    struct sgrad__shard *s = &p->shard[p->shards++];
    *s = (struct sgrad__shard){ .server = server, .tag = tag };
    s->parameter = sgrad__bucket_parameters(bucket, &s->count);
}

void sgrad__add_push(struct sgrad__builder *b, struct sgrad__bucket *bucket, int ranks, int number, const char *name) {
    const int server = number % b->o->servers, priority = SGRAD__PRIORITY_UPDATE + number;
    const int first = b->o->rank - b->o->rank % ranks;
    const int64_t tag = sgrad__next_tag(b);
    int whole = sgrad__bucket_gather(b, bucket, name), weights;
    struct sgrad_view view = b->p->buffer[whole].view;
    sgrad__add_shard(b, bucket, server, tag);
    if (ranks > 1) whole = sgrad__add_rank_sum(b, whole, first, ranks, name);
    if (first == b->o->rank) {
        sgrad__add_send(b, whole, server, tag, priority, name);
        weights = sgrad__add_receive(b, view, server, tag + 1, priority, name);
        for (int r = first + 1; r < first + ranks; r++) sgrad__add_send(b, weights, r, tag + 2, priority, name);
    } else {
        weights = sgrad__add_receive(b, view, first, tag + 2, priority, name);
    }
    sgrad__bucket_take(b, bucket, weights);
}

/* A push is there until the next one: whoever sums it, and if nobody does. */
static int add_push(struct sgrad__builder *b, struct sgrad_view view, const struct sgrad__shard *shard, int worker) {
    const int push = sgrad__add_receive(b, view, worker, shard->tag, SGRAD__PRIORITY_UPDATE, "push");
    b->p->buffer[push].lifetime = SGRAD_PERSISTENT;
    return push;
}

static int add_member(struct sgrad__builder *b, struct sgrad_view view, int number) {
    const int member = sgrad__add_buffer(b, sgrad_format("member %d", number), view);
    b->p->buffer[member].lent = true;
    b->p->buffer[member].lifetime = SGRAD_PERSISTENT;
    return member;
}

struct sgrad__service sgrad__service_create(struct sgrad__run *r, const struct sgrad__shard *shard, int worker, int members,
                                            struct sgrad_tensor *const *master) {
    struct sgrad__program_options o = sgrad__run_program_options(r, true, r->options.batch, r->micro);
    struct sgrad__program *p = sgrad_alloc(1, sizeof *p);
    *p = (struct sgrad__program){ .graph = r->graph, .batch = o.batch, .window = 1, .votes = -1, .training = true };
    struct sgrad__service s = { .program = p, .member = sgrad__own(p, sgrad_alloc((size_t)members, sizeof *s.member)) };
    int *parameter = sgrad_alloc((size_t)r->graph->parameter_count, sizeof *parameter), *gradient = sgrad_alloc((size_t)shard->count, sizeof *gradient);
    struct sgrad__builder b = { .p = p, .g = r->graph, .o = &o, .parameter = parameter, .norm = -1 };
    struct sgrad__bucket *bucket = sgrad__bucket_open(SGRAD_F32);
    for (int i = 0; i < shard->count; i++) {
        const struct sgrad__parameter *w = &r->graph->parameter[shard->parameter[i]];
        parameter[shard->parameter[i]] = sgrad__lend_buffer(&b, master[shard->parameter[i]]);
        sgrad__bucket_put(bucket, -1, (struct sgrad_view){ SGRAD_F32, w->is.shape }, &gradient[i], shard->parameter[i], w->name);
    }
    const struct sgrad_view view = { SGRAD_F32, { 1, { sgrad__bucket_bytes(bucket) / (int64_t)sizeof(float) } } };
    s.push = add_push(&b, view, shard, worker);
    for (int i = 0; i < members; i++) s.member[i] = add_member(&b, view, i);
    sgrad__bucket_spread(&b, bucket, sgrad__add_sum(&b, s.member, members, "members"));
    s.reply = p->instruction_count;
    sgrad__add_send(&b, sgrad__bucket_weights(&b, bucket, "weights"), worker, shard->tag + 1, SGRAD__PRIORITY_UPDATE, "weights");
    sgrad__mark_last_uses(p);
    sgrad__bucket_free(bucket);
    free(parameter);
    free(gradient);
    return s;
}
