/* decisions.c: exchange of values and common decisions of all ranks: blocking collective calls of their main threads. */
#include "config.h"
#include "runtime/collectives.h"
#include "runtime/internal.h"
#include "runtime/runtime.h"

#include <mpi.h>
#include <stdlib.h>
#include <string.h>

static const struct sgrad__world *const world = &sgrad__world;

static void reduce(void *value, int count, MPI_Datatype type, MPI_Op op, const char *what) {
    MPI_Request request;
    if (world->ranks == 1) return;
    MPI_Iallreduce(MPI_IN_PLACE, value, count, type, op, world->control, &request);
    sgrad__request_wait(&request, what);
}

void sgrad_ranks_sum(double *value, int count) { reduce(value, count, MPI_DOUBLE, MPI_SUM, "for a sum over all ranks"); }

void sgrad_ranks_swap(const void *mine, void *theirs, size_t bytes) {
    MPI_Request request;
    if (world->ranks == 1) {
        memcpy(theirs, mine, bytes);
        return;
    }
    MPI_Ialltoall(mine, (int)bytes, MPI_BYTE, theirs, (int)bytes, MPI_BYTE, world->control, &request);
    sgrad__request_wait(&request, "for all ranks to exchange data");
}

int sgrad_ranks_least(int value) {
    reduce(&value, 1, MPI_INT, MPI_MIN, "for the minimum over all ranks");
    return value;
}

/* Data is sent in chunks, so that the timeout applies to one chunk, which takes only seconds on any network. */
void sgrad_ranks_broadcast(void *data, size_t bytes, int from) {
    enum { PIECE = 64 << 20 };
    char what[64];
    snprintf(what, sizeof what, "for data from rank %d", from);
    for (size_t at = 0, piece; world->ranks > 1 && at < bytes; at += piece) {
        piece = bytes - at < PIECE ? bytes - at : PIECE;
        MPI_Request request;
        MPI_Ibcast((char *)data + at, (int)piece, MPI_BYTE, from, world->control, &request);
        sgrad__request_wait(&request, what);
    }
}

char *sgrad__rank_deliver(int from, const void *data, size_t *bytes) {
    enum { PIECE = 1 << 30 };
    char *received = NULL;
    uint64_t size = *bytes;
    if (world->rank == from) MPI_Send(&size, 1, MPI_UINT64_T, 0, 0, world->control);
    if (world->rank == 0) MPI_Recv(&size, 1, MPI_UINT64_T, from, 0, world->control, MPI_STATUS_IGNORE);
    if (world->rank == 0) received = sgrad_xcalloc(size, 1);
    for (uint64_t at = 0; at < size; at += PIECE) {
        int piece = (int)(size - at < PIECE ? size - at : PIECE);
        if (world->rank == from) MPI_Send((const char *)data + at, piece, MPI_BYTE, 0, 0, world->control);
        if (world->rank == 0) MPI_Recv(received + at, piece, MPI_BYTE, from, 0, world->control, MPI_STATUS_IGNORE);
    }
    *bytes = size;
    return received;
}

int sgrad_ranks_agree(int error) {
    int worst = error;
    reduce(&worst, 1, MPI_INT, MPI_MIN, "for all ranks to reach this point");
    if (world->ranks > 1) sgrad__early_compare(world->control);
    return error ? error : worst;
}

int sgrad_ranks_await(int error, const char *what) {
    int worst = error;
    MPI_Request request;
    if (world->ranks == 1) return error;
    MPI_Iallreduce(MPI_IN_PLACE, &worst, 1, MPI_INT, MPI_MIN, world->control, &request);
    sgrad__request_await(&request, what);
    sgrad__early_compare(world->control);
    return error ? error : worst;
}

/* Skips the spaces at the start of *LINE. Returns the length of the line without a comma at its end. */
static int trim(const char **line) {
    *line += strspn(*line, " ");
    int length = (int)strcspn(*line, "\n");
    return length && (*line)[length - 1] == ',' ? length - 1 : length;
}

/* Logs the first line in which MINE, the text of this rank, differs from FIRST, the text of rank 0. */
static void log_difference(const char *first, const char *mine) {
    while (*first && *mine) {
        size_t a = strcspn(first, "\n"), b = strcspn(mine, "\n");
        if (a != b || strncmp(first, mine, a)) break;
        first += a + (first[a] != 0);
        mine += b + (mine[b] != 0);
    }
    int a = trim(&first), b = trim(&mine);
    sgrad_log_error(SGRAD_EINVAL,
                    "rank %d has %.*s, but rank 0 has %.*s; start all ranks with the same program, options and data", world->rank,
                    b, mine, a, first);
}

int sgrad_ranks_compare(const char *text) {
    size_t size = strlen(text) + 1;
    int lowest = world->ranks;
    if (world->ranks == 1) return 0;
    sgrad_ranks_broadcast(&size, sizeof size, 0);
    char *first = sgrad_xcalloc(size, 1);
    if (world->rank == 0) memcpy(first, text, size);
    sgrad_ranks_broadcast(first, size, 0);
    if (strcmp(first, text)) lowest = world->rank;
    reduce(&lowest, 1, MPI_INT, MPI_MIN, "for all ranks to compare their options");
    if (lowest == world->rank) log_difference(first, text);
    if (lowest < world->ranks) sgrad__early_compare(world->control);
    free(first);
    return lowest < world->ranks ? SGRAD_EINVAL : 0;
}

static struct sgrad__world wide;    /* the world of all ranks, between narrow and widen */

void sgrad_ranks_narrow(const struct sgrad_group *group) {
    MPI_Group all, some;
    wide = *world;
    sgrad__world.ranks = group->count;
    sgrad__world.rank = sgrad_group_index(group, wide.rank);
    if (group->count == 1) return;
    MPI_Comm_group(wide.control, &all);
    MPI_Group_incl(all, group->count, group->rank, &some);
    MPI_Comm_create_group(wide.control, some, 0, &sgrad__world.control);
    MPI_Group_free(&some);
    MPI_Group_free(&all);
}

void sgrad_ranks_widen(void) {
    if (world->ranks > 1) MPI_Comm_free(&sgrad__world.control);
    sgrad__world = wide;
}
