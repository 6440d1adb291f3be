/* collectives: the plans of all ranks, executed in one process: every contribution counts once, no rank waits for ever, every
 * message is received, every rank ends with the defined result of the kind. The choice of an algorithm follows the costs. */
#include "runtime/runtime.h"
#include "tests/runtime/world.h"

static bool is_sum(enum sgrad_collective_kind kind) { return kind != SGRAD_ALL_GATHER && kind != SGRAD_BROADCAST; }

/* Has RANK a result in CHUNK? */
static bool has_result(enum sgrad_collective_kind kind, int rank, int chunk, int root) {
    return kind == SGRAD_REDUCE_SCATTER ? rank == chunk : kind == SGRAD_REDUCE ? rank == root : true;
}

static void check_results(const struct world *world, const struct sgrad_collective *method, int root) {
    const uint64_t all = ((uint64_t)1 << world->ranks) - 1;
    for (int c = 0; c < world->chunks; c++) {
        const int owner = method->kind == SGRAD_ALL_GATHER || method->kind == SGRAD_REDUCE_SCATTER ? c : root;
        const bool tree = method->tree_order && power_of_two(world->ranks);
        const float sum = tree ? halving_sum(0, world->ranks, c) : world->value[owner * world->chunks + c];
        const float expected = is_sum(method->kind) ? sum : contribution(owner, c);
        for (int r = 0; r < world->ranks; r++) {
            if (!has_result(method->kind, r, c, root)) continue;
            assert_int_equal(world->set[r * world->chunks + c], is_sum(method->kind) ? all : (uint64_t)1 << owner);
            assert_memory_equal(&world->value[r * world->chunks + c], &expected, sizeof expected);
        }
    }
}

static void check_plans(const struct sgrad_collective *method, const struct sgrad_exchange *what,
                        const struct sgrad_network *net) {
    struct world w = world_open(method, what, net);
    const size_t size = (size_t)(w.ranks * w.chunks) * sizeof(float);
    float *first = malloc(size);
    for (enum mode mode = IN_ORDER; mode < MODES; mode++) {
        run_all(&w, mode);
        check_results(&w, method, what->root);
        if (mode == IN_ORDER) memcpy(first, w.value, size);
        assert_memory_equal(first, w.value, size);
    }
    free(first);
    world_close(&w);
}

static bool is_whole(const struct sgrad_collective *method) { return method->library; }

/* Methods serve some numbers of ranks. */
static bool serves(const struct sgrad_collective *method, const struct sgrad_network *net) {
    return !is_whole(method) && isfinite(method->cost(1, net));
}

/* Every root of few ranks, some of many. */
static void check_roots(const struct sgrad_collective *method, struct sgrad_exchange what, const struct sgrad_network *net) {
    const bool rooted = method->kind == SGRAD_REDUCE || method->kind == SGRAD_BROADCAST;
    for (what.root = 0; what.root < (rooted ? net->ranks : 1); what.root += net->ranks < 10 ? 1 : 7)
        check_plans(method, &what, net);
}

static void results_are_right(void **state) {
    (void)state;
    static const double bytes[] = { 4, 1e5, 1e8 };
    static const int limits[] = { 1, 2, 3, 5, 19, 1000 };
    int host[RANKS];
    for (int m = 0; sgrad_collectives[m]; m++)
        for (int ranks = 1; ranks <= RANKS; ranks++)
            for (int l = 0; l < LAYOUTS; l++)
                for (size_t b = 0; b < sizeof bytes / sizeof *bytes; b++)
                    for (size_t limit = 0; limit < sizeof limits / sizeof *limits; limit++) {
                        const struct sgrad_network net = network(ranks, layout(l, ranks, host));
                        if (!serves(sgrad_collectives[m], &net)) break;
                        if (limit && sgrad_collectives[m]->chunks(bytes[b], &net) <= limits[limit - 1]) break;
                        const struct sgrad_exchange what = { .bytes = bytes[b], .limit = limits[limit] };
                        check_roots(sgrad_collectives[m], what, &net);
                    }
}

static void every_kind_serves_any_number(void **state) {
    (void)state;
    for (enum sgrad_collective_kind kind = SGRAD_ALLREDUCE; kind <= SGRAD_BROADCAST; kind++)
        for (int ranks = 1; ranks <= RANKS; ranks++)
            for (int halving = 0; halving < 2; halving++) {
                const struct sgrad_network net = network(ranks, NULL);
                const struct sgrad_exchange what = { .bytes = 1e6, .halving = halving };
                const struct sgrad_collective *best = sgrad_collective_cheapest(kind, &what, &net);
                assert_non_null(best);
                assert_int_equal(best->kind, kind);
                assert_true(best->tree_order || !halving || !power_of_two(ranks));
            }
}

/* A group's plan is that of so many ranks on those hosts, with its members' numbers. */
static void groups_are_places(void **state) {
    (void)state;
    int host[RANKS], own_host[RANKS], member[RANKS];
    for (int m = 0; sgrad_collectives[m]; m++)
        for (int count = 2; count <= 11; count++) {
            const struct sgrad_network whole = network(RANKS, layout(3, RANKS, host));
            for (int i = 0; i < count; i++) own_host[i] = host[member[i] = RANKS - 1 - 3 * i];
            const struct sgrad_network own = network(count, own_host);
            const struct sgrad_group group = { count, member };
            if (!serves(sgrad_collectives[m], &own)) continue;
            const struct sgrad_exchange of_group = { .bytes = 1e6, .group = &group, .root = member[1] };
            const struct sgrad_exchange of_places = { .bytes = 1e6, .root = 1 };
            assert_true(sgrad_collective_cost(sgrad_collectives[m], &of_group, &whole) ==
                        sgrad_collective_cost(sgrad_collectives[m], &of_places, &own));
            for (int place = 0; place < count; place++) {
                struct sgrad_plan a = sgrad_plan_make(sgrad_collectives[m], &of_group, member[place], &whole);
                struct sgrad_plan b = sgrad_plan_make(sgrad_collectives[m], &of_places, place, &own);
                assert_int_equal(a.count, b.count);
                assert_int_equal(a.chunks, b.chunks);
                for (int i = 0; i < a.count; i++) {
                    assert_int_equal(a.action[i].kind, b.action[i].kind);
                    assert_int_equal(a.action[i].chunk, b.action[i].chunk);
                    assert_int_equal(a.action[i].count, b.action[i].count);
                    assert_int_equal(a.action[i].peer, member[b.action[i].peer]);
                }
                free(a.action);
                free(b.action);
            }
        }
}

static void one_rank_does_nothing(void **state) {
    (void)state;
    for (int m = 0; sgrad_collectives[m]; m++) {
        const struct sgrad_network net = network(1, NULL);
        const struct sgrad_exchange what = { .bytes = 1e6 };
        const struct sgrad_plan plan = sgrad_plan_make(sgrad_collectives[m], &what, 0, &net);
        assert_int_equal(plan.count, 0);
        assert_true(plan.chunks >= 1);
        assert_equal(sgrad_collective_cost(sgrad_collectives[m], &what, &net), 0);
    }
}

static const struct sgrad_collective *method_named(const char *name) {
    const struct sgrad_collective *method = sgrad_collective_find(SGRAD_ALLREDUCE, name);
    assert_non_null(method);
    return method;
}

static void mpi_is_one_call(void **state) {
    (void)state;
    for (int ranks = 2; ranks <= RANKS; ranks++) {
        const struct sgrad_network net = network(ranks, NULL);
        const struct sgrad_exchange what = { .bytes = 1e6 };
        const struct sgrad_plan plan = sgrad_plan_make(method_named("mpi"), &what, ranks - 1, &net);
        assert_int_equal(plan.chunks, 1);
        assert_int_equal(plan.count, 1);
        assert_int_equal(plan.action->kind, SGRAD_WHOLE);
        free(plan.action);
    }
}

/* ---- the shape of plans ------------------------------------------------------------------------------------------- */

/* Ranks that add something of the chunk. */
static uint64_t inside(const struct world *world, int chunk) {
    uint64_t set = 0;
    for (const struct event *e = world->event; e < world->event + world->events; e++)
        if (e->action.kind == SGRAD_ADD && chunk >= e->action.chunk && chunk < e->action.chunk + e->action.count)
            set |= (uint64_t)1 << e->rank;
    return set;
}

static void colours_are_disjoint(void **state) {
    (void)state;
    for (int ranks = 3; ranks <= RANKS; ranks++) {
        const struct sgrad_network net = network(ranks, NULL);
        struct world w = world_open(method_named("multicolor"), &(struct sgrad_exchange){ .bytes = 1e7 }, &net);
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
            struct world w = world_open(method_named("hierarchical"), &(struct sgrad_exchange){ .bytes = 1e7 }, &net);
            for (const struct event *e = w.event; e < w.event + w.events; e++)
                for (int r = 0; r < e->rank && host[e->rank] != host[e->action.peer]; r++)
                    assert_int_not_equal(host[r], host[e->rank]);
            world_close(&w);
        }
}

/* ---- costs -------------------------------------------------------------------------------------------------------- */

static bool same_host(const struct sgrad_network *net, int a, int b) { return net->host && net->host[a] == net->host[b]; }

/* When all is done that comes before EVENT with its chunks; infinite: it is not. */
static double free_from(const struct event *event) {
    double time = 0;
    for (int c = 0; c < event->action.count; c++)
        if (event->before_of[c]) time = fmax(time, event->before_of[c]->done ? event->before_of[c]->time : INFINITY);
    return time;
}

/* When the message of SEND can begin: both ends are there for it, one rank's port is free to send, the other's to receive. */
static double begins(const struct event *send, const double *out, const double *in) {
    const double there = send->partner->action.kind == SGRAD_COPY ? free_from(send->partner) : 0;
    return fmax(fmax(out[send->rank], in[send->action.peer]), fmax(free_from(send), there));
}

/* Sums take no time: whatever has received is done at once. */
static void settle(struct world *world) {
    for (bool more = true; more;) {
        more = false;
        for (struct event *e = world->event; e < world->event + world->events; e++) {
            if (e->done || e->action.kind == SGRAD_SEND || !e->partner->done || !is_free(e)) continue;
            e->time = fmax(e->partner->time, free_from(e));
            e->done = more = true;
        }
    }
}

/* Seconds that the plans take on NET, message by message: the earliest that can begin, and of those the first of its receiver. */
static double run_timed(struct world *world, double bytes, const struct sgrad_network *net) {
    double out[RANKS] = { 0 }, in[RANKS] = { 0 }, last = 0;
    for (int i = 0; i < world->events; i++) world->event[i].done = false;
    for (;;) {
        struct event *next = NULL;
        double least = INFINITY;
        for (struct event *e = world->event; e < world->event + world->events; e++) {
            if (e->done || e->action.kind != SGRAD_SEND) continue;
            const double time = begins(e, out, in);
            if (time > least || (time == least && (isinf(time) || e->partner > next->partner))) continue;
            next = e;
            least = time;
        }
        if (!next) return last;
        const bool inside_host = same_host(net, next->rank, next->action.peer);
        const double length = bytes * next->action.count / world->chunks;
        next->time = least + (inside_host ? net->host_latency + length / net->host_bandwidth
                                          : net->latency + length / net->bandwidth);
        next->done = true;
        last = out[next->rank] = in[next->action.peer] = next->time;
        settle(world);
    }
}

static void costs_are_what_plans_take(void **state) {
    (void)state;
    static const double bytes[] = { 4, 1e5, 1e6, 1e8 };
    int host[RANKS];
    for (int m = 0; sgrad_collectives[m]; m++)
        for (int ranks = 2; ranks <= 17; ranks += ranks < 9 ? 1 : 4)
            for (size_t b = 0; b < sizeof bytes / sizeof *bytes; b++)
                for (int l = 0; l < LAYOUTS; l++) {
                    const struct sgrad_network net = network(ranks, layout(l, ranks, host));
                    const struct sgrad_exchange what = { .bytes = bytes[b] };
                    if (!serves(sgrad_collectives[m], &net)) continue;
                    struct world w = world_open(sgrad_collectives[m], &what, &net);
                    const double seconds = run_timed(&w, bytes[b], &net), cost = sgrad_collectives[m]->cost(bytes[b], &net);
                    const bool one_wire_each = l == 0 || l == 4; /* else the cost knows what is not played here */
                    assert_true(cost >= 0.75 * seconds && (cost <= 1.001 * seconds || !one_wire_each));
                    world_close(&w);
                }
}

static const struct sgrad_collective *cheapest(double bytes, const struct sgrad_network *net, bool halving) {
    const struct sgrad_exchange what = { .bytes = bytes, .halving = halving };
    const struct sgrad_collective *best = sgrad_collective_cheapest(SGRAD_ALLREDUCE, &what, net);
    assert_true(best->tree_order || !halving);
    assert_false(is_whole(best));
    for (const struct sgrad_collective *const *m = sgrad_collectives; *m; m++)
        if ((*m)->kind == SGRAD_ALLREDUCE && !is_whole(*m) && ((*m)->tree_order || !halving))
            assert_true(sgrad_collective_cost(best, &what, net) <= sgrad_collective_cost(*m, &what, net));
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
    const struct sgrad_collective *doubling = method_named("doubling");
    assert_true(doubling->cost(1e8, &mixed) > 2 * doubling->cost(1e8, &spread));
    assert_true(doubling->cost(4, &blocks) < doubling->cost(4, &spread));
}

/* Neighbours are along the last axis; the axis that takes what is left comes first, unless it is named elsewhere. */
static const char *const sampled[] = { "rest", NULL };

static void ranks_on_a_mesh(void **state) {
    (void)state;
    struct sgrad_mesh mesh;
    int member[24];
    assert_done(sgrad_mesh_parse("a=3,b=2", sampled, &mesh));
    assert_done(sgrad_mesh_fit(&mesh, 24));
    const struct sgrad_axis *rest = sgrad_mesh_axis(&mesh, "rest"), *a = sgrad_mesh_axis(&mesh, "a"),
                            *b = sgrad_mesh_axis(&mesh, "b");
    assert_true(rest == mesh.axis && rest->ranks == 4 && a->ranks == 3 && b->ranks == 2 && !sgrad_mesh_axis(&mesh, "c"));
    for (int rank = 0; rank < 24; rank++) {
        assert_int_equal(rank, (sgrad_mesh_index(&mesh, 1, rank) * 3 + sgrad_mesh_index(&mesh, 2, rank)) * 2 +
                                   sgrad_mesh_index(&mesh, 4, rank));
        for (unsigned axes = 0; axes <= sgrad_mesh_all(&mesh); axes++) {
            const struct sgrad_group group = sgrad_mesh_group(&mesh, axes, rank, member);
            assert_int_equal(group.count, sgrad_mesh_ranks(&mesh, axes));
            assert_int_equal(group.rank[sgrad_mesh_index(&mesh, axes, rank)], rank);
        }
    }
    assert_equal(sgrad_mesh_bit(&mesh, a), 2);
    assert_equal(sgrad_mesh_sampled(&mesh), 1);
    assert_equal(sgrad_mesh_group(&mesh, 2, 9, member).rank[0], 7);
    assert_equal(member[1], 9);
    assert_equal(member[2], 11);
    assert_equal(sgrad_mesh_group(&mesh, 5, 9, member).rank[0], 2);
    assert_equal(member[1], 3);
    assert_equal(member[2], 8);
    assert_equal(member[7], 21);

    assert_done(sgrad_mesh_parse("a=2,rest=3", sampled, &mesh));
    assert_done(sgrad_mesh_fit(&mesh, 6));
    assert_int_equal(sgrad_mesh_index(&mesh, 2, 4), 1);
}

/* One name for several axes: ranks along one of them have other samples. */
static void squares_and_cubes(void **state) {
    (void)state;
    static const struct {
        const char *text, *whole;
        int axes, ranks;
    } are[] = { { "t=1d:3", "rest=2,t=3", 2, 6 }, { "t=2d:3", "rest=2,t=2d:3", 3, 18 }, { "t=3d:2", "rest=2,t=3d:2", 4, 16 },
                { "t=2d:2,rest=2,p=3", "t=2d:2,rest=2,p=3", 4, 24 } };
    struct sgrad_mesh mesh;
    char text[SGRAD_MESH_TEXT];
    for (size_t i = 0; i < sizeof are / sizeof *are; i++) {
        assert_done(sgrad_mesh_parse(are[i].text, sampled, &mesh));
        assert_done(sgrad_mesh_fit(&mesh, are[i].ranks));
        assert_int_equal(mesh.axes, are[i].axes);
        assert_string_equal(sgrad_mesh_text(&mesh, text), are[i].whole);
        const struct sgrad_axis *samples = sgrad_mesh_axis(&mesh, "t.samples"), *rest = sgrad_mesh_axis(&mesh, "rest");
        const unsigned other = samples ? sgrad_mesh_bit(&mesh, samples) : 0;
        assert_int_equal(sgrad_mesh_sampled(&mesh), other | sgrad_mesh_bit(&mesh, rest));
    }
}

static void meshes_that_are_none(void **state) {
    (void)state;
    static const char *const wrong[] = { "", "a", "a=", "=2", "a=0", "a=-1", "a=2x", "a=2,", ",a=2", "a=2,a=3",
                                         "a=99999999999999999999", "a=40000", "anaxisofalongname=2", "a=1,b=1,c=1,d=1,e=1,f=1",
                                         "a=1,b=1,c=1,d=1,e=1,f=1,g=1", "a=4d:2", "a=0d:2", "a=2d", "a=2d:", "a=2d:0", "a.b=2",
                                         "a=3d:1,b=3d:1", "alongname=2d:2" };
    struct sgrad_mesh mesh;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (sgrad_mesh_parse(wrong[i], sampled, &mesh) != SGRAD_EINVAL) fail_msg("'%s' is taken", wrong[i]);
    for (int ranks = 5; ranks < 8; ranks += 2) {
        assert_done(sgrad_mesh_parse("a=2,rest=3", sampled, &mesh));
        assert_int_equal(sgrad_mesh_fit(&mesh, ranks), SGRAD_EINVAL);
        assert_done(sgrad_mesh_parse("a=2", sampled, &mesh));
        assert_int_equal(sgrad_mesh_fit(&mesh, ranks), SGRAD_EINVAL);
    }
    assert_done(sgrad_mesh_parse("a=32768,b=32768,c=32768", sampled, &mesh));
    assert_int_equal(sgrad_mesh_fit(&mesh, 4), SGRAD_EINVAL);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        sentence("every collective gives the right result on any number of ranks and hosts", results_are_right),
        sentence("every kind of collective has a method for any number of ranks", every_kind_serves_any_number),
        sentence("a group of ranks has the plan of a world of the same size", groups_are_places),
        sentence("a single rank sends nothing", one_rank_does_nothing),
        sentence("the method mpi is one call of MPI", mpi_is_one_call),
        sentence("no rank adds in two colours of the method multicolor", colours_are_disjoint),
        sentence("hosts of the hierarchical method communicate through their first ranks", hosts_talk_through_their_first_ranks),
        sentence("the cost of a method is the time that its plan takes", costs_are_what_plans_take),
        sentence("the cheapest method is chosen", the_cheapest_is_chosen),
        sentence("short buffers take few steps, and long ones are sent few times", short_and_long_buffers),
        sentence("costs take into account that the ranks of a host share its link", crowded_hosts),
        sentence("ranks on a mesh have positions, groups and neighbours", ranks_on_a_mesh),
        sentence("an axis of two or three dimensions equals two or three axes", squares_and_cubes),
        sentence("a mesh that is malformed or does not fit the ranks is refused", meshes_that_are_none),
    };
    return run_sentences(argc, argv, tests, NULL, NULL);
}
