/* collectives.h: what ranks do together, as plans: sums, shares, copies.
 *
 * A *group* is ranks in an order; its *places* count from 0. A *plan* is what one rank of a group does, in order, so that in the
 * end every place holds, of every numbered chunk of a buffer, what the kind of collective promises:
 *
 *     allreduce         every place: the sum over all                                 before   A0 B0    A1 B1     (two places)
 *     reduce_scatter    place i: the sum of chunk i                                   after    A*            B*
 *     all_gather        every place: place i's chunk i                                after    A0 B1    A0 B1
 *     reduce            the root: the sum over all                                    after    A* B*
 *     broadcast         every place: the root's                                       after    A0 B0    A0 B0     (root 0)
 *
 * It is data: it can be printed, checked for any number of ranks in one process, and executed by whoever has messages and sums.
 * Doubling, an allreduce, on four ranks and one chunk, as rank 1 sees it:
 *
 *     send 0 to 0    add 0 from 0    send 0 to 3    add 0 from 3
 *
 * The n-th SEND of a to b is received by the n-th ADD or COPY of b from a; both name the same chunk, or the same several
 * neighbouring ones, which go as one message. A SEND sends what the rank holds at that place of its plan. Nothing here includes
 * mpi.h or starpu.h. */
#ifndef SGRAD_COLLECTIVES_H
#define SGRAD_COLLECTIVES_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

enum sgrad_action_kind {
    SGRAD_SEND,         /* the rank's present value of the chunk, to PEER */
    SGRAD_ADD,          /* PEER's value is received and added to the rank's own */
    SGRAD_COPY,         /* PEER's value is received and takes the place of the rank's own */
    SGRAD_WHOLE,        /* one call of a library does everything: the only action of its plan */
};
struct sgrad_action {
    enum sgrad_action_kind kind;
    int peer, chunk, count;         /* COUNT chunks from CHUNK on */
};
struct sgrad_plan {
    int chunks;                     /* the buffer is cut into so many nearly equal pieces */
    int root;                       /* place, where the kind has one */
    bool on_gpus;                   /* as the method has it: by ncclAllReduce, else by MPI_Iallreduce */
    int count;
    struct sgrad_action *action;
};

/* Ranks, in order. */
struct sgrad_group {
    int count;
    const int *rank;
};
int sgrad_group_place(const struct sgrad_group *group, int rank);     /* -1: it is no member */

/* From one to the other what ranks decide together (runtime.h) is the GROUP's alone, whose members all call both; rank i is then
 * its i-th. */
void sgrad_ranks_narrow(const struct sgrad_group *group);
void sgrad_ranks_widen(void);

/* Ranks with coordinates. Those of the last axis are neighbours; the ranks that differ in one coordinate alone are a group along
 * its axis. Six ranks as data=2,tensor=3:
 *
 *              tensor 0  1  2
 *     data 0          0  1  2        along tensor: 0 1 2, and 3 4 5
 *     data 1          3  4  5        along data:   0 3, 1 4, and 2 5
 *
 * An axis may be a square or a cube: tensor=2d:2 is the axes tensor.samples and tensor, of 2 ranks each, and tensor=3d:2 these
 * and tensor.features. Ranks along the axis that takes what is left, data, and along .samples have different samples. */
#define SGRAD_MAX_AXES 6
struct sgrad_axis {
    char name[16];
    int ranks;                      /* 0: not known yet */
    int dimensions;                 /* of a line 1, a square 2, a cube 3; 0: it is one of these that has a point in its name */
    bool samples;                   /* its ranks have different samples */
};
struct sgrad_mesh {
    int axes;
    struct sgrad_axis axis[SGRAD_MAX_AXES];
};
/* "data=2,tensor=3", or "data=2,tensor=1d:3", or "tensor=2d:2". Where axis REST is not named it comes first, and has the ranks
 * that are left. */
int sgrad_mesh_parse(const char *text, const char *rest, struct sgrad_mesh *mesh);
int sgrad_mesh_fit(struct sgrad_mesh *mesh, int ranks);     /* to so many; an error where that cannot be */
#define SGRAD_MESH_TEXT 160
const char *sgrad_mesh_text(const struct sgrad_mesh *mesh, char text[SGRAD_MESH_TEXT]);     /* "data=2,tensor=2d:2" */
const struct sgrad_axis *sgrad_mesh_axis(const struct sgrad_mesh *mesh, const char *name);    /* NULL: there is none */
/* AXES are a set, bit i of which is axis i. That of which AXIS is one of the mesh's own; those whose ranks have different
 * samples; all. */
unsigned sgrad_mesh_bit(const struct sgrad_mesh *mesh, const struct sgrad_axis *axis);
unsigned sgrad_mesh_sampled(const struct sgrad_mesh *mesh);
unsigned sgrad_mesh_all(const struct sgrad_mesh *mesh);
int sgrad_mesh_ranks(const struct sgrad_mesh *mesh, unsigned axes);     /* that differ in these coordinates alone */
/* RANK's place among them, and they, in the order of their numbers, which is that of their places, in MEMBER. */
int sgrad_mesh_place(const struct sgrad_mesh *mesh, unsigned axes, int rank);
struct sgrad_group sgrad_mesh_group(const struct sgrad_mesh *mesh, unsigned axes, int rank, int *member);

/* What is known of the machine. The author of a plan and its cost see a group's: its ranks are the places. */
struct sgrad_network {
    int ranks;
    const int *host;                /* of each rank: a number; NULL: each rank is a host */
    double latency;                 /* seconds until a message of no length is there */
    double bandwidth;               /* bytes a second between two hosts, each way */
    double host_latency, host_bandwidth;    /* the same between two ranks of one host */
};

enum sgrad_collective_kind { SGRAD_ALLREDUCE, SGRAD_REDUCE_SCATTER, SGRAD_ALL_GATHER, SGRAD_REDUCE, SGRAD_BROADCAST };
const char *sgrad_collective_kind_name(enum sgrad_collective_kind kind);      /* "allreduce", … */

/* A way to do one of them. */
struct sgrad_collective {
    const char *name, *summary, *source;
    enum sgrad_collective_kind kind;
    bool halving;                   /* with 2^k ranks, sums follow the tree made by halving: ((0+1)+(2+3))+… */
    const char *library;            /* that does it, for all ranks or none; taken by its name only; NULL: its own plan does */
    bool on_gpus;                   /* by NCCL, which has to be open */
    bool alike;                     /* with 2^k ranks: what a place does with place ^ d, all do with theirs, at the same time */
    /* Seconds for a buffer of BYTES on NET, by the model latency + bytes / bandwidth for each message; infinite where the method
     * does not serve so many ranks. */
    double (*cost)(double bytes, const struct sgrad_network *net);
    /* How many chunks serve best; of reduce_scatter and all_gather always one a place. */
    int (*chunks)(double bytes, const struct sgrad_network *net);
    /* Appends what PLACE does (sgrad_plan_add), to peers that are places. PLAN->chunks and ->root are set. */
    void (*schedule)(struct sgrad_plan *plan, int place, const struct sgrad_network *net);
};
extern const struct sgrad_collective *const *sgrad_collectives;  /* all of collectives.def, and of plug-ins; ends with NULL */

/* NCCL, for all ranks, until the context ends: every rank calls it, together. Before: why it cannot be, in one line; NULL: it was
 * built in. */
struct sgrad_context;
int sgrad_nccl_open(const struct sgrad_context *context);
const char *sgrad_nccl_lacks(void);

/* The method NAME of a kind; NULL, and one line that says so, when there is none. */
const struct sgrad_collective *sgrad_collective_find(enum sgrad_collective_kind kind, const char *name);

/* What is asked of a collective. GROUP NULL: all ranks of the network. */
struct sgrad_exchange {
    double bytes;                   /* of the whole buffer */
    int limit;                      /* chunks at most; 0: as many as serve best */
    const struct sgrad_group *group;
    int root;                       /* rank, where the kind has one */
    bool halving;                   /* sums have to keep to the tree */
};
/* The cheapest method on NET that wants no more chunks. A library's is never it. */
const struct sgrad_collective *sgrad_collective_cheapest(enum sgrad_collective_kind kind, const struct sgrad_exchange *what,
                                                         const struct sgrad_network *net);
double sgrad_collective_cost(const struct sgrad_collective *method, const struct sgrad_exchange *what,
                             const struct sgrad_network *net);
/* The plan of RANK, a member of the group; peers are ranks. Free plan.action. */
struct sgrad_plan sgrad_plan_make(const struct sgrad_collective *method, const struct sgrad_exchange *what, int rank,
                                  const struct sgrad_network *net);
void sgrad_plan_add(struct sgrad_plan *plan, enum sgrad_action_kind kind, int peer, int chunk);
void sgrad_plan_add_chunks(struct sgrad_plan *plan, enum sgrad_action_kind kind, int peer, int chunk, int count);
/* Makes one chunk of those that none of the plan's actions tells apart: with PLAN->chunks as few, chunk i is now what FIRST[i] to
 * FIRST[i + 1] - 1 were. FIRST has room for one more than there are chunks. */
void sgrad_plan_join(struct sgrad_plan *plan, int *first);

#ifdef __cplusplus
}
#endif
#endif
