/* allreduce: all ranks' plans in one process: every contribution counts once, nothing waits for ever, no message is left unread,
 * and the choice among methods is what their costs say. */
#include "config.h"
#include "runtime/collectives.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    struct event *before, *before_of_chunk; /* of the same rank; of the same rank and chunk */
    bool done;
    double time;  /* when it was done */
    uint64_t set; /* what a SEND sends: whose contributions, and their sum */
    float value;
};
struct world {
    int ranks, chunks, events;
    struct event *event; /* rank after rank */
    int *begin;          /* of each rank, and the end */
    uint64_t *set;       /* (ranks, chunks) */
    float *value;
};

static struct event *next_send(const struct world *w, int from, int to, int *cursor) {
    for (; w->begin[from] + *cursor < w->begin[from + 1]; ++*cursor) {
        struct event *e = &w->event[w->begin[from] + *cursor];
        if (e->action.kind == SGRAD_SEND && e->action.peer == to) return ++*cursor, e;
    }
    return NULL;
}

/* The n-th SEND of a to b meets the n-th REDUCE or COPY of b from a, with the same chunk; none is left over. */
static void connect(struct world *w) {
    int *cursor = calloc((size_t)(w->ranks * w->ranks), sizeof *cursor);
    int sends = 0, receives = 0;
    for (struct event *e = w->event; e < w->event + w->events; e++) {
        const struct sgrad_action *a = &e->action;
        assert_in_range(a->chunk, 0, w->chunks - 1);
        assert_in_range(a->peer, 0, w->ranks - 1);
        assert_int_not_equal(a->peer, e->rank);
        assert_in_range(a->kind, SGRAD_SEND, SGRAD_COPY);
        sends += a->kind == SGRAD_SEND;
        receives += a->kind != SGRAD_SEND;
        if (a->kind == SGRAD_SEND) continue;
        e->partner = next_send(w, a->peer, e->rank, &cursor[a->peer * w->ranks + e->rank]);
        assert_non_null(e->partner);
        assert_int_equal(e->partner->action.chunk, a->chunk);
        e->partner->partner = e;
    }
    assert_int_equal(sends, receives);
    free(cursor);
}

static void order(struct world *w, int rank) {
    struct event **last = calloc((size_t)w->chunks, sizeof *last);
    for (int i = w->begin[rank]; i < w->begin[rank + 1]; i++) {
        struct event *e = &w->event[i];
        if (i > w->begin[rank]) e->before = e - 1;
        e->before_of_chunk = last[e->action.chunk];
        last[e->action.chunk] = e;
    }
    free(last);
}

static struct world world_open(const struct sgrad_allreduce *method, double bytes, int limit, const struct sgrad_network *net) {
    struct world w = { .ranks = net->ranks };
    struct sgrad_plan *plan = calloc((size_t)w.ranks, sizeof *plan);
    w.begin = calloc((size_t)w.ranks + 1, sizeof *w.begin);
    for (int r = 0; r < w.ranks; r++) {
        plan[r] = sgrad_plan_make(method, bytes, limit, r, net);
        assert_int_equal(plan[r].chunks, plan[0].chunks);
        assert_in_range(plan[r].chunks, 1, limit);
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

static void world_close(struct world *w) {
    free(w->event);
    free(w->begin);
    free(w->set);
    free(w->value);
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

static bool is_done(const struct event *e) { return !e || e->done; }

/* A REDUCE has a place of its own for what it receives; a COPY's place is the chunk. */
static bool can_run(const struct event *e, enum mode mode) {
    const bool send = e->action.kind == SGRAD_SEND;
    if (mode == IN_ORDER) return is_done(e->before) && (send || e->partner->done);
    if (!is_done(e->before_of_chunk)) return false;
    if (!send) return e->partner->done;
    return e->partner->action.kind == SGRAD_REDUCE || is_done(e->partner->before_of_chunk);
}

static void perform(struct world *w, struct event *e) {
    const int at = e->rank * w->chunks + e->action.chunk;
    switch (e->action.kind) {
    case SGRAD_SEND:
        e->set = w->set[at];
        e->value = w->value[at];
        break;
    case SGRAD_REDUCE:
        assert_int_equal(w->set[at] & e->partner->set, 0);
        w->set[at] |= e->partner->set;
        w->value[at] += e->partner->value;
        break;
    default: w->set[at] = e->partner->set; w->value[at] = e->partner->value;
    }
    e->done = true;
}

static void run_all(struct world *w, enum mode mode) {
    for (int r = 0; r < w->ranks; r++)
        for (int c = 0; c < w->chunks; c++) {
            w->set[r * w->chunks + c] = (uint64_t)1 << r;
            w->value[r * w->chunks + c] = contribution(r, c);
        }
    for (int i = 0; i < w->events; i++) w->event[i].done = false;
    for (int left = w->events, before = -1; left && left != before;) {
        before = left;
        for (int i = 0; i < w->events; i++) {
            struct event *e = &w->event[mode == BACKWARDS ? w->events - 1 - i : i];
            if (e->done || !can_run(e, mode)) continue;
            perform(w, e);
            left--;
        }
        assert_int_not_equal(left, before);
    }
}

static void check_sums(const struct world *w, bool halving) {
    const uint64_t all = ((uint64_t)1 << w->ranks) - 1;
    for (int c = 0; c < w->chunks; c++) {
        const float expected = halving && power_of_two(w->ranks) ? halving_sum(0, w->ranks, c) : w->value[c];
        for (int r = 0; r < w->ranks; r++) {
            assert_int_equal(w->set[r * w->chunks + c], all);
            assert_memory_equal(&w->value[r * w->chunks + c], &expected, sizeof expected);
        }
    }
}

static void check_plans(const struct sgrad_allreduce *method, double bytes, int limit, const struct sgrad_network *net) {
    struct world w = world_open(method, bytes, limit, net);
    float *first = calloc((size_t)w.chunks, sizeof *first);
    for (enum mode mode = IN_ORDER; mode < MODES; mode++) {
        run_all(&w, mode);
        check_sums(&w, method->halving);
        if (mode == IN_ORDER) memcpy(first, w.value, (size_t)w.chunks * sizeof *first);
        assert_memory_equal(first, w.value, (size_t)w.chunks * sizeof *first);
    }
    free(first);
    world_close(&w);
}

static bool is_whole(const struct sgrad_allreduce *method) { return !strcmp(method->name, "mpi"); }

static void sums_are_right(void **state) {
    (void)state;
    static const double bytes[] = { 4, 1e5, 1e8 };
    static const int limits[] = { 1, 2, 3, 5, 19, 1000 };
    int host[RANKS];
    for (int m = 0; sgrad_allreduces[m]; m++)
        for (int ranks = 1; ranks <= RANKS && !is_whole(sgrad_allreduces[m]); ranks++)
            for (int l = 0; l < LAYOUTS; l++)
                for (size_t b = 0; b < sizeof bytes / sizeof *bytes; b++)
                    for (size_t limit = 0; limit < sizeof limits / sizeof *limits; limit++) {
                        const struct sgrad_network net = network(ranks, layout(l, ranks, host));
                        if (limit && sgrad_allreduces[m]->chunks(bytes[b], &net) <= limits[limit - 1]) break;
                        check_plans(sgrad_allreduces[m], bytes[b], limits[limit], &net);
                    }
}

static void one_rank_does_nothing(void **state) {
    (void)state;
    for (int m = 0; sgrad_allreduces[m]; m++) {
        const struct sgrad_network net = network(1, NULL);
        const struct sgrad_plan plan = sgrad_plan_make(sgrad_allreduces[m], 1e6, 100, 0, &net);
        assert_int_equal(plan.count, 0);
        assert_true(plan.chunks >= 1);
        assert_true(sgrad_allreduces[m]->cost(1e6, &net) == 0);
    }
}

static void mpi_is_one_call(void **state) {
    (void)state;
    for (int ranks = 2; ranks <= RANKS; ranks++) {
        const struct sgrad_network net = network(ranks, NULL);
        int m = 0;
        while (!is_whole(sgrad_allreduces[m])) m++;
        const struct sgrad_plan plan = sgrad_plan_make(sgrad_allreduces[m], 1e6, 100, ranks - 1, &net);
        assert_int_equal(plan.chunks, 1);
        assert_int_equal(plan.count, 1);
        assert_int_equal(plan.action->kind, SGRAD_WHOLE);
        free(plan.action);
    }
}

/* ---- the shape of plans ------------------------------------------------------------------------------------------- */

static const struct sgrad_allreduce *method_named(const char *name) {
    int m = 0;
    while (strcmp(sgrad_allreduces[m]->name, name)) m++;
    return sgrad_allreduces[m];
}

/* Ranks that add something of the chunk. */
static uint64_t inside(const struct world *w, int chunk) {
    uint64_t set = 0;
    for (const struct event *e = w->event; e < w->event + w->events; e++)
        if (e->action.kind == SGRAD_REDUCE && e->action.chunk == chunk) set |= (uint64_t)1 << e->rank;
    return set;
}

static void colours_are_disjoint(void **state) {
    (void)state;
    for (int ranks = 3; ranks <= RANKS; ranks++) {
        const struct sgrad_network net = network(ranks, NULL);
        struct world w = world_open(method_named("multicolor"), 1e7, 1000, &net);
        uint64_t colour[4], taken = 0;
        int colours = 0;
        for (int chunk = 0; chunk < w.chunks; chunk++) {
            const uint64_t set = inside(&w, chunk);
            int c = 0;
            while (c < colours && colour[c] != set) c++;
            if (c < colours) continue;
            assert_int_equal(set & taken, 0);
            assert_in_range(colours, 0, 3);
            colour[colours++] = set;
            taken |= set;
        }
        assert_in_range(colours, 2, 4);
        if (ranks % 4 == 0) assert_int_equal(colours, 4);
        world_close(&w);
    }
}

static void hosts_talk_through_their_first_ranks(void **state) {
    (void)state;
    int host[RANKS];
    for (int ranks = 2; ranks <= RANKS; ranks++)
        for (int l = 1; l < LAYOUTS; l++) {
            const struct sgrad_network net = network(ranks, layout(l, ranks, host));
            struct world w = world_open(method_named("hierarchical"), 1e7, 1000, &net);
            for (const struct event *e = w.event; e < w.event + w.events; e++)
                for (int r = 0; r < e->rank && host[e->rank] != host[e->action.peer]; r++)
                    assert_int_not_equal(host[r], host[e->rank]);
            world_close(&w);
        }
}

/* ---- costs -------------------------------------------------------------------------------------------------------- */

static bool same_host(const struct sgrad_network *net, int a, int b) { return net->host && net->host[a] == net->host[b]; }

/* When the message of SEND can begin: both ends are there for it, one rank's port is free to send, the other's to receive. */
static double begins(const struct event *send, const double *out, const double *in) {
    const struct event *there = send->partner->action.kind == SGRAD_COPY ? send->partner->before_of_chunk : NULL;
    if (!is_done(send->before_of_chunk) || !is_done(there)) return INFINITY;
    double time = fmax(out[send->rank], in[send->action.peer]);
    if (send->before_of_chunk) time = fmax(time, send->before_of_chunk->time);
    return there ? fmax(time, there->time) : time;
}

/* Sums take no time: whatever has received is done at once. */
static void settle(struct world *w) {
    for (bool more = true; more;) {
        more = false;
        for (struct event *e = w->event; e < w->event + w->events; e++) {
            if (e->done || e->action.kind == SGRAD_SEND || !e->partner->done || !is_done(e->before_of_chunk)) continue;
            e->time = e->before_of_chunk ? fmax(e->partner->time, e->before_of_chunk->time) : e->partner->time;
            e->done = more = true;
        }
    }
}

/* Seconds that the plans take on NET, message by message: the earliest that can begin, and of those the first of its receiver. */
static double run_timed(struct world *w, double bytes, const struct sgrad_network *net) {
    double out[RANKS] = { 0 }, in[RANKS] = { 0 }, last = 0;
    for (int i = 0; i < w->events; i++) w->event[i].done = false;
    for (;;) {
        struct event *next = NULL;
        double least = INFINITY;
        for (struct event *e = w->event; e < w->event + w->events; e++) {
            if (e->done || e->action.kind != SGRAD_SEND) continue;
            const double time = begins(e, out, in);
            if (time > least || (time == least && (isinf(time) || e->partner > next->partner))) continue;
            next = e;
            least = time;
        }
        if (!next) return last;
        const bool inside_host = same_host(net, next->rank, next->action.peer);
        next->time = least + (inside_host ? net->host_latency + bytes / w->chunks / net->host_bandwidth
                                          : net->latency + bytes / w->chunks / net->bandwidth);
        next->done = true;
        last = out[next->rank] = in[next->action.peer] = next->time;
        settle(w);
    }
}

static void costs_are_what_plans_take(void **state) {
    (void)state;
    static const double bytes[] = { 4, 1e5, 1e6, 1e8 };
    int host[RANKS];
    for (int m = 0; sgrad_allreduces[m]; m++)
        for (int ranks = 2; ranks <= 17 && !is_whole(sgrad_allreduces[m]); ranks += ranks < 9 ? 1 : 4)
            for (size_t b = 0; b < sizeof bytes / sizeof *bytes; b++)
                for (int l = 0; l < LAYOUTS; l++) {
                    const struct sgrad_network net = network(ranks, layout(l, ranks, host));
                    struct world w = world_open(sgrad_allreduces[m], bytes[b], 1000, &net);
                    const double seconds = run_timed(&w, bytes[b], &net), cost = sgrad_allreduces[m]->cost(bytes[b], &net);
                    const bool one_wire_each = l == 0 || l == 4; /* else the cost knows what is not played here */
                    assert_true(cost >= 0.75 * seconds && (cost <= 1.001 * seconds || !one_wire_each));
                    world_close(&w);
                }
}

static const struct sgrad_allreduce *cheapest(double bytes, const struct sgrad_network *net, bool halving) {
    const struct sgrad_allreduce *best = sgrad_allreduce_cheapest(bytes, net, halving);
    assert_true(best->halving || !halving);
    assert_false(is_whole(best));
    for (int m = 0; sgrad_allreduces[m]; m++)
        if (!is_whole(sgrad_allreduces[m]) && (sgrad_allreduces[m]->halving || !halving))
            assert_true(best->cost(bytes, net) <= sgrad_allreduces[m]->cost(bytes, net));
    return best;
}

static void the_cheapest_is_chosen(void **state) {
    (void)state;
    int host[RANKS];
    for (int ranks = 1; ranks <= RANKS; ranks++)
        for (int l = 0; l < LAYOUTS; l++)
            for (double bytes = 1; bytes < 1e10; bytes *= 17) {
                const struct sgrad_network net = network(ranks, layout(l, ranks, host));
                cheapest(bytes, &net, false);
                cheapest(bytes, &net, true);
            }
}

/* Short buffers take as few steps as there can be, long ones cross as seldom as they can. */
static void short_and_long_buffers(void **state) {
    (void)state;
    for (int ranks = 2; ranks <= RANKS; ranks++) {
        const struct sgrad_network net = network(ranks, NULL);
        const double steps = floor(log2(ranks)) + (power_of_two(ranks) ? 0 : 2);
        assert_true(cheapest(4, &net, false)->cost(4, &net) <= 1.001 * steps * net.latency);
        const double least = 2 * (ranks - 1.) / ranks * 1e9 / net.bandwidth;
        assert_true(cheapest(1e9, &net, false)->cost(1e9, &net) <= 1.02 * least);
        if (power_of_two(ranks)) assert_true(cheapest(1e9, &net, true)->cost(1e9, &net) <= 1.02 * least);
    }
}

/* The ranks of a host share its wire, so one of them speaks for all, or, where they are neighbours, pairs halve inside first. */
static void crowded_hosts(void **state) {
    (void)state;
    int dealt[32], neighbours[32];
    for (int r = 0; r < 32; r++) {
        dealt[r] = r % 4;
        neighbours[r] = r / 8;
    }
    const struct sgrad_network spread = network(32, NULL), mixed = network(32, dealt), blocks = network(32, neighbours);
    assert_string_equal(cheapest(1e5, &mixed, false)->name, "hierarchical");
    assert_string_equal(cheapest(1e8, &blocks, false)->name, "halving");
    const struct sgrad_allreduce *doubling = method_named("doubling");
    assert_true(doubling->cost(1e8, &mixed) > 2 * doubling->cost(1e8, &spread));
    assert_true(doubling->cost(4, &blocks) < doubling->cost(4, &spread));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_right),
        cmocka_unit_test(one_rank_does_nothing),
        cmocka_unit_test(mpi_is_one_call),
        cmocka_unit_test(colours_are_disjoint),
        cmocka_unit_test(hosts_talk_through_their_first_ranks),
        cmocka_unit_test(costs_are_what_plans_take),
        cmocka_unit_test(the_cheapest_is_chosen),
        cmocka_unit_test(short_and_long_buffers),
        cmocka_unit_test(crowded_hosts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
