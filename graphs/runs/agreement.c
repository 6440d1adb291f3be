/* agreement.c: all ranks have built the same program: they compare their lists of messages (graphs/programs/messages.h) before
 * the first is sent. A message that one rank sends and another does not expect would leave both waiting, or bring other values.
 *
 *     rank 0   hashes of what it sends to 1, 2, …, and receives from them ─┐
 *     rank 1   hashes of what it sends to 0, 2, …, and receives from them ─┴─ swapped, and compared by each
 *
 * Limits: candidates of a search build their programs while others train, and do not compare them. */
#include "graphs/programs/messages.h"
#include "graphs/runs/runner.h"

#include <stdlib.h>

/* What a rank tells another one of the messages between them, and of the sums of all ranks. */
struct told {
    uint64_t sent, received, sums;
};
enum { SENT, SUMS, KINDS };

/* Of all lists that differ, the first, as (FROM · ranks + TO) · KINDS + kind, the same on every rank; -1: none does. */
static int first_difference(const struct sgrad__messages *m, int rank) {
    struct told *mine = sgrad_alloc((size_t)m->ranks, sizeof *mine), *theirs = sgrad_alloc((size_t)m->ranks, sizeof *theirs);
    int first = INT_MAX;
    for (int r = 0; r < m->ranks; r++)
        mine[r] = (struct told){ sgrad__message_list_hash(&m->sent[r]), sgrad__message_list_hash(&m->received[r]),
                                 sgrad__message_list_hash(&m->sums) };
    sgrad_ranks_swap(mine, theirs, sizeof *mine);
    for (int r = m->ranks - 1; r >= 0; r--) {
        const int to_here = (r * m->ranks + rank) * KINDS;
        if (mine[r].sums != theirs[r].sums && to_here + SUMS < first) first = to_here + SUMS;
        if (mine[r].received != theirs[r].sent && to_here + SENT < first) first = to_here + SENT;
    }
    free(mine);
    free(theirs);
    first = sgrad_ranks_least(first);
    return first == INT_MAX ? -1 : first;
}

/* MINE is what rank FROM has, and OTHER what rank TO has in place of it. */
static void tell(const struct sgrad__message_list *mine, const struct sgrad__message_list *other, int from, int to, int kind) {
    const int at = sgrad__message_list_difference(mine, other);
    char *first = at < mine->count ? sgrad_format("\"%s\" of %lld bytes", mine->name[at], (long long)mine->message[at].bytes)
                                   : sgrad_format("one of %lld bytes that rank %d does not have",
                                                  (long long)other->message[at].bytes, from);
    sgrad_fail(SGRAD_EINVAL,
               "ranks %d and %d have built different programs: rank %d %s %d messages with %.0f bytes, rank %d %s %d "
               "with %.0f; the first that differs is %s: please report this fault of Stargrad, with the command",
               from, to, from, kind == SUMS ? "adds up" : "sends", mine->count, sgrad__message_list_bytes(mine), to,
               kind == SUMS ? "adds up" : "expects", other->count, sgrad__message_list_bytes(other), first);
    free(first);
}

/* Rank TO's list comes to all, and rank FROM tells what differs. */
static void tell_difference(const struct sgrad__messages *m, int rank, int from, int to, int kind) {
    struct sgrad__message_list other = kind == SUMS ? m->sums : m->received[from];
    sgrad_ranks_broadcast(&other.count, sizeof other.count, to);
    if (rank != to) other.message = sgrad_alloc((size_t)other.count + 1, sizeof *other.message);
    sgrad_ranks_broadcast(other.message, (size_t)other.count * sizeof *other.message, to);
    if (rank == from) tell(kind == SUMS ? &m->sums : &m->sent[to], &other, from, to, kind);
    if (rank != to) free(other.message);
}

int sgrad__programs_compare(const struct sgrad_context *c, const struct sgrad__program *const *program, int count) {
    if (c->ranks == 1 || SGRAD_SIMULATED) return 0;
    struct sgrad__messages *m = sgrad__messages_list(program, count, c->ranks);
    const int first = first_difference(m, c->rank), pair = first / KINDS;
    if (first >= 0) tell_difference(m, c->rank, pair / c->ranks, pair % c->ranks, first % KINDS);
    sgrad__messages_free(m);
    return first < 0 ? 0 : SGRAD_EINVAL;
}
