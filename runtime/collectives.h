/* collectives.h: collective communication between ranks as plans: groups, meshes, costs, and the algorithms of collectives.def.
 *
 * A *group* is an ordered list of ranks; a member's *index* counts from 0. A *plan* is the sequence of actions of one member. The
 * plans of all members together give the result of the collective for every numbered chunk of a buffer:
 *
 *     allreduce         every member: the sum over all members                        before   A0 B0    A1 B1     (two members)
 *     reduce_scatter    member i: the sum of chunk i                                  after    A*            B*
 *     all_gather        every member: chunk i of member i, for all i                  after    A0 B1    A0 B1
 *     reduce            the root: the sum over all members                            after    A* B*
 *     broadcast         every member: the chunks of the root                          after    A0 B0    A0 B0     (root 0)
 *
 * A plan is data: it can be printed, checked for any number of ranks in one process, and executed with messages and sums.
 * The plan of rank 1 for the allreduce "doubling", with four ranks and one chunk:
 *
 *     send 0 to 0    add 0 from 0    send 0 to 3    add 0 from 3
 *
 * The n-th SEND from a to b matches the n-th ADD or COPY of b from a. Both name the same chunk, or the same consecutive chunks,
 * which are sent as one message. A SEND transmits the value that the rank has at that point of its plan. This file and the
 * algorithms include neither mpi.h nor starpu.h. */
#ifndef SGRAD_RUNTIME_COLLECTIVES_H
#define SGRAD_RUNTIME_COLLECTIVES_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

enum sgrad_action_kind {
    SGRAD_SEND,         /* sends the current value of the chunk to PEER */
    SGRAD_ADD,          /* receives the value of PEER; adds it to the rank's value */
    SGRAD_COPY,         /* receives the value of PEER; replaces the rank's value by it */
    SGRAD_WHOLE,        /* one library call does the whole collective; it is the only action of its plan */
};
struct sgrad_action {
    enum sgrad_action_kind kind;
    int peer, chunk, count;         /* COUNT consecutive chunks; the first is CHUNK */
};
struct sgrad_plan {
    int chunks;                     /* number of chunks, of nearly equal size, that the buffer is divided into */
    int root;                       /* index in the group, for reduce and broadcast; else 0 */
    bool on_gpus;                   /* SGRAD_WHOLE is ncclAllReduce, else MPI_Iallreduce */
    int count;
    struct sgrad_action *action;
};

/* An ordered list of ranks. */
struct sgrad_group {
    int count;
    const int *rank;
};
int sgrad_group_index(const struct sgrad_group *group, int rank);     /* index of RANK in the group; -1: not a member */

/* Between narrow and widen, the collective functions of runtime.h apply only to the members of GROUP, and rank i is its i-th
 * member. All members must call both functions. Calls must not be nested. */
void sgrad_ranks_narrow(const struct sgrad_group *group);
void sgrad_ranks_widen(void);

/* A mesh assigns coordinates to ranks. Ranks with consecutive numbers are neighbours along the last axis. The ranks that differ
 * only in one coordinate form a group along that axis. Six ranks as data=2,tensor=3:
 *
 *              tensor 0  1  2
 *     data 0          0  1  2        along tensor: 0 1 2, and 3 4 5
 *     data 1          3  4  5        along data:   0 3, 1 4, and 2 5
 *
 * An axis may be a square or a cube. tensor=2d:2 stands for the axes tensor.samples and tensor, of 2 ranks each. tensor=3d:2 adds
 * the axis tensor.features. Ranks that differ along the data axis, which gets the remaining ranks, along another axis of
 * samples, or along a .samples axis process different samples. */
#define SGRAD_MAX_AXES 6
struct sgrad_axis {
    char name[16];
    int ranks;                      /* number of ranks along the axis; 0: not known yet, set by sgrad_mesh_fit */
    int dimensions;                 /* 1, 2 (square), 3 (cube); 0: an additional axis of a square or cube, "NAME.samples" */
    bool samples;                   /* its ranks process different samples */
};
struct sgrad_mesh {
    int axes;
    struct sgrad_axis axis[SGRAD_MAX_AXES];
};
/* Parses "data=2,tensor=3", "data=2,tensor=1d:3" or "tensor=2d:2". SAMPLED lists the axes whose ranks process different samples,
 * up to a NULL. If the first of these is not named, it becomes the first axis of the mesh, and gets the remaining ranks.
 * SGRAD_EINVAL: syntax error, duplicate axis, or too many axes or ranks. */
int sgrad_mesh_parse(const char *text, const char *const *sampled, struct sgrad_mesh *mesh);
int sgrad_mesh_fit(struct sgrad_mesh *mesh, int ranks);     /* fits the mesh to RANKS ranks; SGRAD_EINVAL: impossible */
#define SGRAD_MESH_TEXT 160
const char *sgrad_mesh_text(const struct sgrad_mesh *mesh, char text[SGRAD_MESH_TEXT]);     /* "data=2,tensor=2d:2" */
const struct sgrad_axis *sgrad_mesh_axis(const struct sgrad_mesh *mesh, const char *name);    /* NULL: no such axis, or no mesh */
/* AXES is a set of axes: bit i stands for axis i. bit returns the set of AXIS, an element of mesh->axis; sampled the set of axes
 * whose ranks process different samples; all the set of all axes. */
unsigned sgrad_mesh_bit(const struct sgrad_mesh *mesh, const struct sgrad_axis *axis);
unsigned sgrad_mesh_sampled(const struct sgrad_mesh *mesh);
unsigned sgrad_mesh_all(const struct sgrad_mesh *mesh);
int sgrad_mesh_ranks(const struct sgrad_mesh *mesh, unsigned axes);     /* number of ranks in a group along AXES */
/* The ranks that differ from RANK only in the coordinates AXES are its group along AXES. sgrad_mesh_index returns the index of
 * RANK in it. sgrad_mesh_group returns the group, with ranks in ascending order, in the caller's array MEMBER, which must have
 * sgrad_mesh_ranks elements. */
int sgrad_mesh_index(const struct sgrad_mesh *mesh, unsigned axes, int rank);
struct sgrad_group sgrad_mesh_group(const struct sgrad_mesh *mesh, unsigned axes, int rank, int *member);

/* The network between ranks. The functions of struct sgrad_collective receive the network of a group: its ranks are indices. */
struct sgrad_network {
    int ranks;
    const int *host;                /* per rank: the number of its host; NULL: each rank has a separate host */
    double latency;                 /* seconds for an empty message between two hosts */
    double bandwidth;               /* bytes per second between two hosts, in each direction */
    double host_latency, host_bandwidth;    /* the same between two ranks on one host */
};

enum sgrad_collective_kind { SGRAD_ALLREDUCE, SGRAD_REDUCE_SCATTER, SGRAD_ALL_GATHER, SGRAD_REDUCE, SGRAD_BROADCAST };
const char *sgrad_collective_kind_name(enum sgrad_collective_kind kind);      /* "allreduce", …; static */

/* An algorithm for one kind of collective. */
struct sgrad_collective {
    const char *name, *summary, *source;    /* source: the publication */
    enum sgrad_collective_kind kind;
    bool tree_order;                   /* with 2^k ranks, additions follow the binary tree ((0+1)+(2+3))+… */
    const char *library;            /* library that executes it, on all ranks; used only if selected by name; NULL: by its plan */
    bool on_gpus;                   /* with NCCL; requires sgrad_nccl_open */
    bool symmetric;                     /* with 2^k ranks: in each step all members i exchange with member i ^ d, for one d */
    /* Seconds for a buffer of BYTES on NET; each message takes latency + bytes / bandwidth. Infinite if the algorithm does not
     * support the number of ranks. */
    double (*cost)(double bytes, const struct sgrad_network *net);
    /* The best number of chunks. For reduce_scatter and all_gather it is always the number of ranks. */
    int (*chunks)(double bytes, const struct sgrad_network *net);
    /* Appends the actions of the member with index INDEX (sgrad_plan_add); peers are indices. PLAN->chunks and ->root are set. */
    void (*schedule)(struct sgrad_plan *plan, int index, const struct sgrad_network *net);
};
extern const struct sgrad_collective *const *sgrad_collectives;  /* those of collectives.def and of plug-ins, NULL-terminated */

/* Opens NCCL for all ranks until the context closes. Every rank must call it, and waits for the others. SGRAD_EDEVICE: built
 * without NCCL, a rank has no GPU, or NCCL fails. With one rank: no effect. lacks returns NULL if built in, else a reason. */
struct sgrad_context;
int sgrad_nccl_open(const struct sgrad_context *context);
const char *sgrad_nccl_lacks(void);

/* Returns the algorithm NAME of a kind. If it does not exist, logs an error and returns NULL. */
const struct sgrad_collective *sgrad_collective_find(enum sgrad_collective_kind kind, const char *name);

/* The parameters of a collective. */
struct sgrad_exchange {
    double bytes;                   /* size of the whole buffer */
    int limit;                      /* maximum number of chunks; 0: no limit */
    const struct sgrad_group *group;    /* NULL: all ranks of the network */
    int root;                       /* rank, for reduce and broadcast */
    bool halving;                   /* if an algorithm can: additions must follow the binary tree (struct sgrad_collective) */
};
/* Returns the cheapest algorithm on NET without a library whose best number of chunks is at most WHAT->limit; NULL: none. */
const struct sgrad_collective *sgrad_collective_cheapest(enum sgrad_collective_kind kind, const struct sgrad_exchange *what,
                                                         const struct sgrad_network *net);
double sgrad_collective_cost(const struct sgrad_collective *method, const struct sgrad_exchange *what,
                             const struct sgrad_network *net);      /* seconds; may be infinite */
/* Returns the plan of RANK, which must be a member of the group; peers are ranks. The caller must free plan.action. */
struct sgrad_plan sgrad_plan_make(const struct sgrad_collective *method, const struct sgrad_exchange *what, int rank,
                                  const struct sgrad_network *net);
void sgrad_plan_add(struct sgrad_plan *plan, enum sgrad_action_kind kind, int peer, int chunk);     /* appends an action */
void sgrad_plan_add_chunks(struct sgrad_plan *plan, enum sgrad_action_kind kind, int peer, int chunk, int count);
/* Merges consecutive chunks that no action of the plan separates, and reduces PLAN->chunks. New chunk i consists of the old
 * chunks FIRST[i] to FIRST[i + 1] - 1. FIRST must have space for one element more than the plan has chunks at the call. */
void sgrad_plan_join(struct sgrad_plan *plan, int *first);

#ifdef __cplusplus
}
#endif
#endif
