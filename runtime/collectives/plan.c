/* plan.c: creates the plan of one rank by one algorithm for a group of ranks, and computes the algorithm's cost for the group. */
#include "config.h"
#include "runtime/collectives/internal.h"
#include "runtime/runtime.h"

#include <assert.h>
#include <stdlib.h>

int sgrad_group_index(const struct sgrad_group *group, int rank) {
    for (int place = 0; place < group->count; place++)
        if (group->rank[place] == rank) return place;
    return -1;
}

static int place_of(const struct sgrad_exchange *what, int rank) {
    return what->group ? sgrad_group_index(what->group, rank) : rank;
}

/* Returns the network of the group: its ranks are indices. The caller must free *HOST, the hosts of the members, or NULL. */
static struct sgrad_network seen_by(const struct sgrad_group *group, const struct sgrad_network *net, int **host) {
    struct sgrad_network own = *net;
    *host = NULL;
    if (!group) return own;
    own.ranks = group->count;
    if (!net->host) return own;
    own.host = *host = sgrad_xcalloc((size_t)group->count, sizeof **host);
    for (int place = 0; place < group->count; place++) (*host)[place] = net->host[group->rank[place]];
    return own;
}

int sgrad__collective_chunks(const struct sgrad_collective *method, const struct sgrad_exchange *what,
                             const struct sgrad_network *net) {
    int *host;
    const struct sgrad_network own = seen_by(what->group, net, &host);
    const int chunks = own.ranks > 1 ? method->chunks(what->bytes, &own) : 1;
    free(host);
    return chunks;
}

double sgrad_collective_cost(const struct sgrad_collective *method, const struct sgrad_exchange *what,
                             const struct sgrad_network *net) {
    int *host;
    const struct sgrad_network own = seen_by(what->group, net, &host);
    const double seconds = own.ranks > 1 ? method->cost(what->bytes, &own) : 0;
    free(host);
    return seconds;
}

void sgrad_plan_add_chunks(struct sgrad_plan *plan, enum sgrad_action_kind kind, int peer, int chunk, int count) {
    plan->action = sgrad_array_grow(plan->action, plan->count, sizeof *plan->action);
    plan->action[plan->count++] = (struct sgrad_action){ kind, peer, chunk, count };
}

void sgrad_plan_add(struct sgrad_plan *plan, enum sgrad_action_kind kind, int peer, int chunk) {
    sgrad_plan_add_chunks(plan, kind, peer, chunk, 1);
}

void sgrad_plan_join(struct sgrad_plan *plan, int *first) {
    int *number = sgrad_xcalloc((size_t)plan->chunks + 1, sizeof *number), joined = 0;
    number[0] = number[plan->chunks] = 1;       /* at first: 1 if a new chunk begins here */
    for (const struct sgrad_action *a = plan->action; a < plan->action + plan->count; a++)
        number[a->chunk] = number[a->chunk + a->count] = 1;
    for (int c = 0; c <= plan->chunks; c++) {
        if (number[c]) first[joined++] = c;
        number[c] = joined - 1;
    }
    for (struct sgrad_action *a = plan->action; a < plan->action + plan->count; a++)
        *a = (struct sgrad_action){ a->kind, a->peer, number[a->chunk], number[a->chunk + a->count] - number[a->chunk] };
    plan->chunks = joined - 1;
    free(number);
}

/* Returns true for the kinds in which chunk i belongs to the member with index i. */
static bool shares(enum sgrad_collective_kind kind) { return kind == SGRAD_REDUCE_SCATTER || kind == SGRAD_ALL_GATHER; }

static bool is_rooted(enum sgrad_collective_kind kind) { return kind == SGRAD_REDUCE || kind == SGRAD_BROADCAST; }

struct sgrad_plan sgrad_plan_make(const struct sgrad_collective *method, const struct sgrad_exchange *what, int rank,
                                  const struct sgrad_network *net) {
    int *host;
    const struct sgrad_network own = seen_by(what->group, net, &host);
    const int place = place_of(what, rank), root = is_rooted(method->kind) ? place_of(what, what->root) : 0;
    struct sgrad_plan plan = { .chunks = shares(method->kind) ? own.ranks : 1, .root = root, .on_gpus = method->on_gpus };
    assert(place >= 0 && place < own.ranks && root >= 0);
    if (own.ranks > 1) {
        plan.chunks = method->chunks(what->bytes, &own);
        if (what->limit && plan.chunks > what->limit && !shares(method->kind)) plan.chunks = what->limit;
        method->schedule(&plan, place, &own);
    }
    for (int i = 0; i < plan.count && what->group; i++) plan.action[i].peer = what->group->rank[plan.action[i].peer];
    free(host);
    return plan;
}
