/* world.h: the plans of a collective for all ranks, executed in one process in several orders. */
#ifndef SGRAD_TESTS_WORLD_H
#define SGRAD_TESTS_WORLD_H

#include "config.h"
#include "runtime/collectives.h"
#include "tests/asserts.h"

#include <limits.h>

enum { RANKS = 33, LAYOUTS = 5 };

/* Hosts: every rank one; two ranks each; 1, 2, 3, … ranks; ranks dealt out to three in turn; a single one. */
static const int *layout(int which, int ranks, int *host) {
    for (int r = 0, number = 0, room = 1; r < ranks; r++, room--) {
        if (room == 0) room = ++number + 1;
        host[r] = which == 1 ? r / 2 : which == 2 ? number : which == 3 ? 7 - 5 * (r % 3) : 4;
    }
    return which ? host : NULL;
}

static struct sgrad_network network(int ranks, const int *host) {
    return (struct sgrad_network){ ranks, host, 50e-6, 1e9, 5e-6, 8e9 };
}

static bool power_of_two(int n) { return (n & (n - 1)) == 0; }

/* ---- a world of ranks, each with its plan ------------------------------------------------------------------------ */

struct event {
    struct sgrad_action action;
    int rank;
    struct event *partner;                  /* the other end of its message */
    struct event *before, **before_of;      /* of the same rank; of the same rank and each of the action's chunks */
    bool done;
    double time;   /* when it was done */
    uint64_t *set; /* what a SEND sends, of each chunk: whose contributions, and their sum */
    float *value;
};
struct world {
    int ranks, chunks, events;
    struct event *event; /* rank after rank */
    int *begin;          /* of each rank, and the end */
    uint64_t *set;       /* (ranks, chunks) */
    float *value;
};

static struct event *next_send(const struct world *world, int from, int to, int *cursor) {
    for (; world->begin[from] + *cursor < world->begin[from + 1]; ++*cursor) {
        struct event *e = &world->event[world->begin[from] + *cursor];
        if (e->action.kind == SGRAD_SEND && e->action.peer == to) return ++*cursor, e;
    }
    return NULL;
}

/* The n-th SEND of a to b meets the n-th REDUCE or COPY of b from a, with the same chunk; none is left over. */
static void connect(struct world *world) {
    int *cursor = calloc((size_t)(world->ranks * world->ranks), sizeof *cursor);
    int sends = 0, receives = 0;
    for (struct event *e = world->event; e < world->event + world->events; e++) {
        const struct sgrad_action *a = &e->action;
        assert_in_range(a->chunk, 0, world->chunks - 1);
        assert_in_range(a->count, 1, world->chunks - a->chunk);
        assert_in_range(a->peer, 0, world->ranks - 1);
        assert_int_not_equal(a->peer, e->rank);
        assert_in_range(a->kind, SGRAD_SEND, SGRAD_COPY);
        sends += a->kind == SGRAD_SEND;
        receives += a->kind != SGRAD_SEND;
        if (a->kind == SGRAD_SEND) continue;
        e->partner = next_send(world, a->peer, e->rank, &cursor[a->peer * world->ranks + e->rank]);
        assert_non_null(e->partner);
        assert_int_equal(e->partner->action.chunk, a->chunk);
        assert_int_equal(e->partner->action.count, a->count);
        e->partner->partner = e;
    }
    assert_int_equal(sends, receives);
    free(cursor);
}

static void order(struct world *world, int rank) {
    struct event **last = calloc((size_t)world->chunks, sizeof *last);
    for (int i = world->begin[rank]; i < world->begin[rank + 1]; i++) {
        struct event *e = &world->event[i];
        if (i > world->begin[rank]) e->before = e - 1;
        const size_t count = (size_t)e->action.count;
        e->before_of = calloc(count, sizeof(struct event *));
        e->set = calloc(count, sizeof *e->set);
        e->value = calloc(count, sizeof *e->value);
        memcpy(e->before_of, &last[e->action.chunk], count * sizeof(struct event *));
        for (int c = 0; c < e->action.count; c++) last[e->action.chunk + c] = e;
    }
    free(last);
}

static struct world world_open(const struct sgrad_collective *method, const struct sgrad_exchange *what,
                               const struct sgrad_network *net) {
    const int limit = what->limit ? what->limit : INT_MAX;
    const bool shares = method->kind == SGRAD_REDUCE_SCATTER || method->kind == SGRAD_ALL_GATHER;
    struct world w = { .ranks = net->ranks };
    struct sgrad_plan *plan = calloc((size_t)w.ranks, sizeof *plan);
    w.begin = calloc((size_t)w.ranks + 1, sizeof *w.begin);
    for (int r = 0; r < w.ranks; r++) {
        plan[r] = sgrad_plan_make(method, what, r, net);
        assert_int_equal(plan[r].chunks, plan[0].chunks);
        if (shares) assert_int_equal(plan[r].chunks, net->ranks);
        else assert_in_range(plan[r].chunks, 1, limit);
        w.begin[r + 1] = w.begin[r] + plan[r].count;
    }
    w.chunks = plan[0].chunks;
    w.events = w.begin[w.ranks];
    w.event = calloc((size_t)w.events + 1, sizeof *w.event);
    for (int r = 0; r < w.ranks; r++) {
        for (int i = 0; i < plan[r].count; i++)
            w.event[w.begin[r] + i] = (struct event){ .action = plan[r].action[i], .rank = r };
        free(plan[r].action);
        order(&w, r);
    }
    free(plan);
    connect(&w);
    w.set = calloc((size_t)(w.ranks * w.chunks), sizeof *w.set);
    w.value = calloc((size_t)(w.ranks * w.chunks), sizeof *w.value);
    return w;
}

static void world_close(struct world *world) {
    for (struct event *e = world->event; e < world->event + world->events; e++) free(e->before_of), free(e->set), free(e->value);
    free(world->event);
    free(world->begin);
    free(world->set);
    free(world->value);
}

/* ---- runs --------------------------------------------------------------------------------------------------------- */

/* Of several magnitudes, so that another order of sums gives other bits. */
static float contribution(int rank, int chunk) {
    const uint32_t x = ((uint32_t)rank * 33u + (uint32_t)chunk + 1u) * 2654435761u;
    return (float)(x >> 8) * ldexpf(1, -(int)(x % 7));
}

/* The sum of ranks FIRST … FIRST + COUNT − 1 by the tree made by halving. */
static float halving_sum(int first, int count, int chunk) {
    if (count == 1) return contribution(first, chunk);
    return halving_sum(first, count / 2, chunk) + halving_sum(first + count / 2, count / 2, chunk);
}

enum mode {
    IN_ORDER,  /* each rank does one action after the other; a SEND leaves its message behind and goes on */
    DETACHED,  /* each chunk goes its own way; nothing is buffered: a message moves when a place waits for it */
    BACKWARDS, /* the same, from the last action of the last rank on */
    MODES
};

static bool is_done(const struct event *event) { return !event || event->done; }

/* Has its rank done all that comes before it with its chunks? */
static bool is_free(const struct event *event) {
    for (int c = 0; c < event->action.count; c++)
        if (!is_done(event->before_of[c])) return false;
    return true;
}

/* A REDUCE has a place of its own for what it receives; a COPY's place is the chunk. */
static bool can_run(const struct event *event, enum mode mode) {
    const bool send = event->action.kind == SGRAD_SEND;
    if (mode == IN_ORDER) return is_done(event->before) && (send || event->partner->done);
    if (!is_free(event)) return false;
    if (!send) return event->partner->done;
    return event->partner->action.kind == SGRAD_ADD || is_free(event->partner);
}

static void perform(struct world *world, struct event *event) {
    for (int c = 0, at = event->rank * world->chunks + event->action.chunk; c < event->action.count; c++, at++)
        switch (event->action.kind) {
        case SGRAD_SEND:
            event->set[c] = world->set[at];
            event->value[c] = world->value[at];
            break;
        case SGRAD_ADD:
            assert_int_equal(world->set[at] & event->partner->set[c], 0);
            world->set[at] |= event->partner->set[c];
            world->value[at] += event->partner->value[c];
            break;
        default: world->set[at] = event->partner->set[c]; world->value[at] = event->partner->value[c];
        }
    event->done = true;
}

static void run_all(struct world *world, enum mode mode) {
    for (int r = 0; r < world->ranks; r++)
        for (int c = 0; c < world->chunks; c++) {
            world->set[r * world->chunks + c] = (uint64_t)1 << r;
            world->value[r * world->chunks + c] = contribution(r, c);
        }
    for (int i = 0; i < world->events; i++) world->event[i].done = false;
    for (int left = world->events, before = -1; left && left != before;) {
        before = left;
        for (int i = 0; i < world->events; i++) {
            struct event *e = &world->event[mode == BACKWARDS ? world->events - 1 - i : i];
            if (e->done || !can_run(e, mode)) continue;
            perform(world, e);
            left--;
        }
        assert_int_not_equal(left, before);
    }
}

#endif
