/* hierarchical.c: allreduce in three phases: within each host to its first rank, between the first ranks, and back within each
 * host (Jia et al. 2018).
 *
 * Six ranks on hosts X, Y, Z. Ranks may be in any order, and hosts of any size. Each host has one network link, which one message
 * uses at a time:
 *
 *     host             X           Y           Z
 *     ranks         0  2  3      1  5          4
 *     up            0<─2  │      1<─5          4           tree.c, on the ranks of a host
 *                   0<────┘
 *     between       0 <────────> 1 <────────>  4           halving.c on 2^k hosts or of one chunk, else ring.c
 *     down          0─>2, 3      1─>5                      tree.c
 *
 * Chunks are independent: one may be sent between hosts while another is sent within hosts. Cost: that of the algorithm between
 * hosts, plus that of sending all chunks up and down in sequence. With one host: tree.c.
 *
 * Limits: there are two levels only. Additions follow the binary tree ((0+1)+(2+3))+… only if each host has 2^k consecutive
 * ranks, so .tree_order is not set. */
#include "config.h"
#include "runtime/collectives/internal.h"

#include <stdlib.h>

extern const struct sgrad_collective sgrad_doubling_allreduce, sgrad_halving_allreduce, sgrad_ring_allreduce,
    sgrad_tree_allreduce;

static struct sgrad_network between_hosts(const struct sgrad_network *net) {
    int first[net->ranks];
    struct sgrad_network hosts = *net;
    hosts.ranks = sgrad__hosts(net, first, NULL);
    hosts.host = NULL;
    return hosts;
}

static const struct sgrad_collective *method_between(int hosts, int chunks) {
    return hosts & (hosts - 1) && chunks > 1 ? &sgrad_ring_allreduce : &sgrad_halving_allreduce;
}

static int chunks(double bytes, const struct sgrad_network *net) {
    const struct sgrad_network hosts = between_hosts(net);
    if (hosts.ranks == 1) return sgrad_tree_allreduce.chunks(bytes, net);
    if (hosts.ranks & (hosts.ranks - 1) &&
        sgrad_doubling_allreduce.cost(bytes, &hosts) <= sgrad_ring_allreduce.cost(bytes, &hosts))
        return 1;
    return method_between(hosts.ranks, hosts.ranks)->chunks(bytes, &hosts);
}

/* Seconds for one chunk from all ranks to the first rank of their host. */
static double up_seconds(double bytes, const struct sgrad_network *net) {
    int first[net->ranks], order[net->ranks];
    sgrad__hosts(net, first, order);
    struct sgrad__round round = sgrad__round_begin(net, bytes);
    for (int i = 0, begin = 0; i < net->ranks; i++) {
        if (first[order[i]] == order[i])
            begin = i;
        else
            sgrad__round_send(&round, order[i], order[begin + sgrad__tree_parent(i - begin)]);
    }
    return sgrad__round_end(&round);
}

static double cost(double bytes, const struct sgrad_network *net) {
    const struct sgrad_network hosts = between_hosts(net);
    if (hosts.ranks == 1) return sgrad_tree_allreduce.cost(bytes, net);
    const int n = chunks(bytes, net);
    const double between =
        n == 1 ? sgrad_doubling_allreduce.cost(bytes, &hosts) : method_between(hosts.ranks, n)->cost(bytes, &hosts);
    return between + 2 * n * up_seconds(bytes / n, net);
}

/* Appends the plan of rank LEADER[index] for the phase between hosts. LEADER[i] is the first rank of host i. */
static void add_between(struct sgrad_plan *plan, int index, const int *leader, const struct sgrad_network *net) {
    const struct sgrad_network hosts = between_hosts(net);
    struct sgrad_plan between = { .chunks = plan->chunks };
    method_between(hosts.ranks, plan->chunks)->schedule(&between, index, &hosts);
    for (const struct sgrad_action *a = between.action; a < between.action + between.count; a++)
        sgrad_plan_add_chunks(plan, a->kind, leader[a->peer], a->chunk, a->count);
    free(between.action);
}

static void schedule(struct sgrad_plan *plan, int rank, const struct sgrad_network *net) {
    int first[net->ranks], order[net->ranks], leader[net->ranks];
    int begin = 0, place = 0, members = 0, hosts = 0, index = 0;
    sgrad__hosts(net, first, order);
    for (int i = 0; i < net->ranks; i++) {
        const int r = order[i];
        if (r == rank) place = members;
        if (r == first[rank]) {
            begin = i;
            index = hosts;
        }
        members += first[r] == first[rank];
        if (first[r] == r) leader[hosts++] = r;
    }
    if (hosts == 1) {
        sgrad_tree_allreduce.schedule(plan, rank, net);
        return;
    }
    const int *member = order + begin;
    for (int c = 0; c < plan->chunks; c++) sgrad__tree_up(plan, c, place, members, member);
    if (place == 0) add_between(plan, index, leader, net);
    for (int c = 0; c < plan->chunks; c++) sgrad__tree_down(plan, c, place, members, member);
}

const struct sgrad_collective sgrad_hierarchical_allreduce = {
    .name = "hierarchical",
    .kind = SGRAD_ALLREDUCE,
    .summary = "reduce within each host, halving or ring between hosts, broadcast within each host",
    .source = "Jia et al. 2018, arXiv:1807.11205",
    .cost = cost,
    .chunks = chunks,
    .schedule = schedule,
};
