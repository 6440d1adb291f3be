/* check_collective.c: checks a collective: the plans of 1 to 33 ranks are executed in this process. Every SEND must match an ADD
 * or COPY, there must be no deadlock, every contribution must count once, and every rank must end with the result that the kind
 * specifies.
 *
 * Values are sets of ranks, as bits, and sums of numbers of different magnitudes, whose bits depend on the order of additions. */
#include "config.h"
#include "graphs/api/check.h"
#include "runtime/collectives.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 33, LAYOUTS = 3, SIZES = 2 };

struct value {
    uint64_t ranks;
    float sum;
};
struct event {
    struct sgrad_action action;
    int place;
    struct event *partner;      /* the other end of its message */
    bool done;
    struct value *sent;         /* of a SEND: values of each chunk */
};
struct rehearsal {
    const struct sgrad_collective *method;
    int places, chunks, root, events, *begin;   /* number of ranks, …; first event of each rank, and the end */
    struct event *event;        /* sorted by rank */
    struct value *value;        /* (ranks, chunks) */
};

#define WRONG(r, ...) wrong(r, sgrad_format(__VA_ARGS__))
static int wrong(const struct rehearsal *rehearsal, char *what) {
    const int error = sgrad_log_error(SGRAD_EINVAL, "collective %s, %s of %d ranks: %s", rehearsal->method->name,
                                      sgrad_collective_kind_name(rehearsal->method->kind), rehearsal->places, what);
    free(what);
    return error;
}

/* Returns the host of each rank: each rank is one (NULL); pairs; all on one. */
static const int *layout(int which, int ranks, int *host) {
    for (int i = 0; i < ranks; i++) host[i] = which == 1 ? i / 2 : 0;
    return which ? host : NULL;
}

static float contribution(int place, int chunk) {
    const uint32_t x = ((uint32_t)place * 33u + (uint32_t)chunk + 1u) * 2654435761u;
    return (float)(x >> 8) * ldexpf(1, -(int)(x % 7));
}

static float tree_sum(int first, int count, int chunk) {
    if (count == 1) return contribution(first, chunk);
    return tree_sum(first, count / 2, chunk) + tree_sum(first + count / 2, count / 2, chunk);
}

/* ---- plans ---- */

static int check_action(const struct rehearsal *rehearsal, const struct event *event) {
    const struct sgrad_action *a = &event->action;
    if (a->kind != SGRAD_SEND && a->kind != SGRAD_ADD && a->kind != SGRAD_COPY)
        return WRONG(rehearsal, "rank %d has an action that is not SEND, ADD or COPY", event->place);
    if (a->peer < 0 || a->peer >= rehearsal->places || a->peer == event->place)
        return WRONG(rehearsal, "rank %d has an action with rank %d, which is invalid", event->place, a->peer);
    if (a->chunk < 0 || a->count < 1 || a->chunk + a->count > rehearsal->chunks)
        return WRONG(rehearsal, "rank %d has an action with chunks %d to %d, but there are only %d", event->place, a->chunk,
                     a->chunk + a->count - 1, rehearsal->chunks);
    return 0;
}

static int make_plans(struct rehearsal *rehearsal, double bytes, const struct sgrad_network *net) {
    const bool shares = rehearsal->method->kind == SGRAD_REDUCE_SCATTER || rehearsal->method->kind == SGRAD_ALL_GATHER;
    rehearsal->chunks = shares || rehearsal->places == 1 ? rehearsal->places : rehearsal->method->chunks(bytes, net);
    if (rehearsal->chunks < 1) return WRONG(rehearsal, "has %d chunks, but must have at least 1", rehearsal->chunks);
    if (!shares && rehearsal->chunks > 256) rehearsal->chunks = 256;
    for (int place = 0; place < rehearsal->places; place++) {
        struct sgrad_plan plan = { .chunks = rehearsal->chunks, .root = rehearsal->root };
        if (rehearsal->places > 1) rehearsal->method->schedule(&plan, place, net);
        rehearsal->begin[place + 1] = rehearsal->events + plan.count;
        for (int i = 0; i < plan.count; i++) {
            rehearsal->event = sgrad_array_grow(rehearsal->event, rehearsal->events, sizeof *rehearsal->event);
            rehearsal->event[rehearsal->events++] = (struct event){ .action = plan.action[i], .place = place };
        }
        free(plan.action);
    }
    for (int i = 0; i < rehearsal->events; i++) {
        SGRAD_TRY(check_action(rehearsal, &rehearsal->event[i]));
        rehearsal->event[i].sent = sgrad_xcalloc((size_t)rehearsal->event[i].action.count, sizeof *rehearsal->event[i].sent);
    }
    return 0;
}

/* Connects the n-th SEND from a to b with the n-th ADD or COPY at b from a. */
static int connect(struct rehearsal *rehearsal) {
    for (int i = 0; i < rehearsal->events; i++) {
        struct event *e = &rehearsal->event[i];
        if (e->action.kind == SGRAD_SEND) continue;
        const int from = e->action.peer;
        for (int j = rehearsal->begin[from]; j < rehearsal->begin[from + 1] && !e->partner; j++)
            if (rehearsal->event[j].action.kind == SGRAD_SEND && rehearsal->event[j].action.peer == e->place &&
                !rehearsal->event[j].partner)
                e->partner = &rehearsal->event[j];
        if (!e->partner)
            return WRONG(rehearsal, "rank %d waits for chunk %d from rank %d, which does not send it", e->place,
                         e->action.chunk, from);
        if (e->partner->action.chunk != e->action.chunk || e->partner->action.count != e->action.count)
            return WRONG(rehearsal, "rank %d sends chunk %d to rank %d, which waits for chunk %d", from,
                         e->partner->action.chunk, e->place, e->action.chunk);
        e->partner->partner = e;
    }
    for (int i = 0; i < rehearsal->events; i++)
        if (!rehearsal->event[i].partner)
            return WRONG(rehearsal, "rank %d sends chunk %d to rank %d, which does not receive it", rehearsal->event[i].place,
                         rehearsal->event[i].action.chunk, rehearsal->event[i].action.peer);
    return 0;
}

/* ---- execution ---- */

static int perform(struct rehearsal *rehearsal, struct event *event) {
    for (int c = 0; c < event->action.count; c++) {
        struct value *own = &rehearsal->value[event->place * rehearsal->chunks + event->action.chunk + c];
        const struct value *came = event->action.kind == SGRAD_SEND ? NULL : &event->partner->sent[c];
        if (!came) event->sent[c] = *own;
        else if (event->action.kind == SGRAD_COPY) *own = *came;
        else if (own->ranks & came->ranks)
            return WRONG(rehearsal, "rank %d adds a value from rank %d that contains the data of a rank twice", event->place,
                         event->action.peer);
        else *own = (struct value){ own->ranks | came->ranks, own->sum + came->sum };
    }
    event->done = true;
    return 0;
}

/* Executes the actions of each rank in their order; sent values are buffered. */
static int run(struct rehearsal *rehearsal) {
    for (int i = 0; i < rehearsal->places * rehearsal->chunks; i++)
        rehearsal->value[i] =
            (struct value){ (uint64_t)1 << i / rehearsal->chunks, contribution(i / rehearsal->chunks, i % rehearsal->chunks) };
    int *at = sgrad_xcalloc((size_t)rehearsal->places, sizeof *at), left = rehearsal->events, error = 0;
    for (int before = -1; left && left != before && !error;) {
        before = left;
        for (int p = 0; p < rehearsal->places && !error; p++)
            for (struct event *e; rehearsal->begin[p] + at[p] < rehearsal->begin[p + 1] && !error; at[p]++, left--) {
                e = &rehearsal->event[rehearsal->begin[p] + at[p]];
                if (e->action.kind != SGRAD_SEND && !e->partner->done) break;
                error = perform(rehearsal, e);
            }
    }
    for (int p = 0; p < rehearsal->places && left && !error; p++)
        if (rehearsal->begin[p] + at[p] < rehearsal->begin[p + 1])
            error = WRONG(rehearsal, "deadlock: ranks wait for each other, rank %d for rank %d", p,
                          rehearsal->event[rehearsal->begin[p] + at[p]].action.peer);
    free(at);
    return error;
}

static int lowest_missing(uint64_t ranks) {
    int rank = 0;
    while (ranks >> rank & 1) rank++;
    return rank;
}

static int check_results(const struct rehearsal *rehearsal) {
    const enum sgrad_collective_kind kind = rehearsal->method->kind;
    const bool sums = kind != SGRAD_ALL_GATHER && kind != SGRAD_BROADCAST;
    const bool tree = rehearsal->method->tree_order && !(rehearsal->places & (rehearsal->places - 1));
    for (int i = 0; i < rehearsal->places * rehearsal->chunks; i++) {
        const int place = i / rehearsal->chunks, chunk = i % rehearsal->chunks,
                  owner = kind == SGRAD_ALL_GATHER ? chunk : rehearsal->root;
        if ((kind == SGRAD_REDUCE_SCATTER && place != chunk) || (kind == SGRAD_REDUCE && place != rehearsal->root)) continue;
        const struct value *is = &rehearsal->value[i], *first = &rehearsal->value[kind == SGRAD_ALLREDUCE ? chunk : i];
        const uint64_t all = ((uint64_t)1 << rehearsal->places) - 1;
        if (!sums && (is->ranks != (uint64_t)1 << owner || is->sum != contribution(owner, chunk)))
            return WRONG(rehearsal, "rank %d ends without the data of rank %d in chunk %d", place, owner, chunk);
        if (sums && is->ranks != all)
            return WRONG(rehearsal, "rank %d ends with a sum that lacks rank %d", place, lowest_missing(is->ranks));
        if (sums && is->sum != first->sum) return WRONG(rehearsal, "ranks 0 and %d end with sums of different bits", place);
        if (sums && tree && is->sum != tree_sum(0, rehearsal->places, chunk))
            return WRONG(rehearsal, "rank %d does not add in the order that .tree_order specifies", place);
    }
    return 0;
}

static int rehearse(const struct sgrad_collective *method, int places, int root, double bytes, const struct sgrad_network *net) {
    struct rehearsal r = { .method = method, .places = places, .root = root };
    r.begin = sgrad_xcalloc((size_t)places + 1, sizeof *r.begin);
    int error = make_plans(&r, bytes, net);
    if (!error) error = connect(&r);
    if (!error) {
        r.value = sgrad_xcalloc((size_t)(places * r.chunks), sizeof *r.value);
        error = run(&r);
    }
    if (!error) error = check_results(&r);
    for (int i = 0; i < r.events; i++) free(r.event[i].sent);
    free(r.event);
    free(r.begin);
    free(r.value);
    return error;
}

int sgrad_collective_check(const struct sgrad_collective *method) {
    const bool rooted = method->kind == SGRAD_REDUCE || method->kind == SGRAD_BROADCAST;
    int host[RANKS], compared = 0;
    if (method->library) return 0;      /* of a library: it has no plan */
    for (int i = 0; i < RANKS * LAYOUTS * SIZES; i++) {
        const int ranks = i / (LAYOUTS * SIZES) + 1;
        const double bytes = i % SIZES ? 4e6 : 64;
        const struct sgrad_network net = { ranks, layout(i / SIZES % LAYOUTS, ranks, host), 50e-6, 1e9, 5e-6, 8e9 };
        const double cost = ranks > 1 ? method->cost(bytes, &net) : 0;
        if (isnan(cost) || cost < 0)
            return sgrad_log_error(SGRAD_EINVAL, "collective %s: .cost is %g seconds for %d ranks, but must be 0 or more",
                                   method->name, cost, ranks);
        if (isinf(cost)) continue;      /* does not support this number of ranks */
        compared += ranks > 1;
        SGRAD_TRY(rehearse(method, ranks, 0, bytes, &net));
        if (rooted && ranks > 1) SGRAD_TRY(rehearse(method, ranks, ranks - 1, bytes, &net));
    }
    return compared ? 0
                  : sgrad_log_error(SGRAD_EINVAL, "collective %s: supports no number of ranks from 2 to %d", method->name, RANKS);
}
