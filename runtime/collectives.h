/* collectives.h: sums over ranks, as plans.
 *
 * A *plan* is what one rank does, in order, so that in the end every rank holds, of every numbered chunk, the sum over all
 * ranks. It is data: it can be printed, checked for any number of ranks in one process, and executed by whoever has messages
 * and sums. Doubling, on four ranks and one chunk, as rank 1 sees it:
 *
 *     send 0 to 0    reduce 0 from 0    send 0 to 3    reduce 0 from 3
 *
 * The n-th SEND of a to b is received by the n-th REDUCE or COPY of b from a; both name the same chunk. A SEND sends what
 * the rank holds at that place of its plan. Nothing here includes mpi.h or starpu.h. */
#ifndef SGRAD_COLLECTIVES_H
#define SGRAD_COLLECTIVES_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

enum sgrad_action_kind {
    SGRAD_SEND,         /* the rank's present value of the chunk, to PEER */
    SGRAD_REDUCE,       /* PEER's value is received and added to the rank's own */
    SGRAD_COPY,         /* PEER's value is received and takes the place of the rank's own */
    SGRAD_WHOLE,        /* one call of MPI_Iallreduce does everything: the only action of its plan */
};
struct sgrad_action {
    enum sgrad_action_kind kind;
    int peer, chunk;
};
struct sgrad_plan {
    int chunks;                     /* the buffer is cut into so many nearly equal pieces */
    int count;
    struct sgrad_action *action;
};

/* What a plan's author and its cost know of the machine. */
struct sgrad_network {
    int ranks;
    const int *host;                /* of each rank: a number; NULL: each rank is a host */
    double latency;                 /* seconds until a message of no length is there */
    double bandwidth;               /* bytes a second between two hosts, each way */
    double host_latency, host_bandwidth;    /* the same between two ranks of one host */
};

struct sgrad_allreduce {
    const char *name, *summary, *source;
    bool halving;                   /* with 2^k ranks, sums follow the tree made by halving: ((0+1)+(2+3))+… */
    /* Seconds for BYTES on NET, by the model latency + bytes / bandwidth for each message. */
    double (*cost)(double bytes, const struct sgrad_network *net);
    /* How many chunks serve best. */
    int (*chunks)(double bytes, const struct sgrad_network *net);
    /* Appends what RANK does (sgrad_plan_add). PLAN->chunks is set. */
    void (*schedule)(struct sgrad_plan *plan, int rank, const struct sgrad_network *net);
};
extern const struct sgrad_allreduce *const sgrad_allreduces[];      /* all of collectives.def; ends with NULL */

void sgrad_plan_add(struct sgrad_plan *plan, enum sgrad_action_kind kind, int peer, int chunk);
/* The plan of RANK for a buffer of BYTES: chunks chosen by the method, but never more than LIMIT. Free plan->action. */
struct sgrad_plan sgrad_plan_make(const struct sgrad_allreduce *method, double bytes, int limit, int rank,
                                  const struct sgrad_network *net);
/* The cheapest for BYTES on NET; with HALVING, of those that keep to the tree. */
const struct sgrad_allreduce *sgrad_allreduce_cheapest(double bytes, const struct sgrad_network *net, bool halving);

#ifdef __cplusplus
}
#endif
#endif
