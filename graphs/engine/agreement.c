/* agreement.c: checks that all ranks have built the same program. They compare their lists of messages
 * (graphs/compiler/communication/messages.h) before the first message is sent. If one rank sent a message that another one does
 * not expect, both could wait forever or receive wrong values.
 *
 *     rank 0   hashes of its messages to and from ranks 1, 2, … ─┐
 *     rank 1   hashes of its messages to and from ranks 0, 2, … ─┴─ exchanged, and compared by each rank
 *
 * Limits: trials of a search build their programs while other ranks train, and do not compare them. */
#include "graphs/compiler/communication/messages.h"
#include "graphs/engine/runner.h"

#include <stdlib.h>

/* Hashes that a rank sends to another one: of the messages between them, in both directions, and of the allreduces of all
 * ranks. */
struct hashes {
    uint64_t sent, received, sums;
};
enum { SENT, SUMS, KINDS };

/* Returns the first list that differs, as (FROM · ranks + TO) · KINDS + kind, the same on every rank; -1: no list differs. */
static int first_difference(const struct sgrad__messages *messages, int rank) {
    struct hashes *mine = sgrad_xcalloc((size_t)messages->ranks, sizeof *mine);
    struct hashes *theirs = sgrad_xcalloc((size_t)messages->ranks, sizeof *theirs);
    int first = INT_MAX;
    for (int r = 0; r < messages->ranks; r++)
        mine[r] = (struct hashes){ sgrad__message_list_hash(&messages->sent[r]), sgrad__message_list_hash(&messages->received[r]),
                                 sgrad__message_list_hash(&messages->sums) };
    sgrad_ranks_swap(mine, theirs, sizeof *mine);
    for (int r = messages->ranks - 1; r >= 0; r--) {
        const int to_here = (r * messages->ranks + rank) * KINDS;
        if (mine[r].sums != theirs[r].sums && to_here + SUMS < first) first = to_here + SUMS;
        if (mine[r].received != theirs[r].sent && to_here + SENT < first) first = to_here + SENT;
    }
    free(mine);
    free(theirs);
    first = sgrad_ranks_least(first);
    return first == INT_MAX ? -1 : first;
}

/* Logs the first difference between MINE, the list of rank FROM, and OTHER, the corresponding list of rank TO. */
static void log_difference(const struct sgrad__message_list *mine, const struct sgrad__message_list *other, int from, int to,
                           int kind) {
    const int at = sgrad__message_list_difference(mine, other);
    char *first = at < mine->count ? sgrad_format("\"%s\" of %lld bytes", mine->name[at], (long long)mine->message[at].bytes)
                                   : sgrad_format("a message of %lld bytes that rank %d does not have",
                                                  (long long)other->message[at].bytes, from);
    sgrad_log_error(SGRAD_EINVAL,
                    "ranks %d and %d have built different programs: rank %d %s %d messages of %.0f bytes in total, rank %d %s %d "
                    "of %.0f bytes; the first difference is %s; this is a bug in Stargrad; please report it with the "
                    "command line",
                    from, to, from, kind == SUMS ? "sums" : "sends", mine->count, sgrad__message_list_bytes(mine), to,
                    kind == SUMS ? "sums" : "expects", other->count, sgrad__message_list_bytes(other), first);
    free(first);
}

/* Sends the list of rank TO to all ranks; rank FROM logs the difference. */
static void find_difference(const struct sgrad__messages *messages, int rank, int from, int to, int kind) {
    struct sgrad__message_list other = kind == SUMS ? messages->sums : messages->received[from];
    sgrad_ranks_broadcast(&other.count, sizeof other.count, to);
    if (rank != to) other.message = sgrad_xcalloc((size_t)other.count + 1, sizeof *other.message);
    sgrad_ranks_broadcast(other.message, (size_t)other.count * sizeof *other.message, to);
    if (rank == from) log_difference(kind == SUMS ? &messages->sums : &messages->sent[to], &other, from, to, kind);
    if (rank != to) free(other.message);
}

int sgrad__programs_compare(const struct sgrad_context *context, const struct sgrad__program *const *program, int count) {
    if (context->ranks == 1 || SGRAD_SIMULATED) return 0;
    struct sgrad__messages *m = sgrad__messages_list(program, count, context->ranks);
    const int first = first_difference(m, context->rank), pair = first / KINDS;
    if (first >= 0) find_difference(m, context->rank, pair / context->ranks, pair % context->ranks, first % KINDS);
    sgrad__messages_free(m);
    return first < 0 ? 0 : SGRAD_EINVAL;
}
