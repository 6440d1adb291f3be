/* costs.h: the work of a training step (operations, traffic, memory), for planners; the cost of meshes; layers' algorithms. */
#ifndef SGRAD_GRAPHS_API_COSTS_H
#define SGRAD_GRAPHS_API_COSTS_H

#include "codelets/codelets.h"
#include "graphs/api/train.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The work of a training step, from which planners (planner/planner.h) estimate its cost on other machines: the tasks of one rank
 * that trains all samples in one micro-batch, with a task for each operation, in the order of submission. All quantities are
 * linear in the number of samples. */
struct sgrad_linear_cost {
    double fixed, each;             /* independent of the samples; for each sample */
};
/* How several ranks execute a task. OWN: each rank, with the samples of its local batch. SUMMED: likewise, and the results are
 * summed over all ranks. ASSIGNED: one of all ranks, which sends the result to the ranks that need it. ASSIGNED_BY_LAYER: the
 * ranks in the layer's column of the grid that --kfac-variant chooses; each of them sends the result to the ranks of its row. */
enum sgrad_cost_distribution { SGRAD_COST_OWN, SGRAD_COST_SUMMED, SGRAD_COST_ASSIGNED, SGRAD_COST_ASSIGNED_BY_LAYER };
struct sgrad_step_cost_task {
    const char *kernel;             /* "conv2d forward": the operation first; owned by the library */
    struct sgrad_linear_cost flops, bytes;   /* bytes: of all operands */
    double often;                   /* fraction of the steps that run this task */
    bool curvature;                 /* true: only K-FAC has this task */
    enum sgrad_cost_distribution distribution;
    double sent;                    /* bytes of the result, if other ranks receive it */
};
struct sgrad_step_cost_gradient {
    double bytes;                   /* of the gradient of a parameter */
    int made, needed;               /* tasks: the one that completes the gradient; the first that uses the updated parameter */
};
enum { SGRAD_COST_FIELDS = 4 };
struct sgrad_step_cost {
    char *model;                    /* Its name with all of its options. */
    int64_t samples;                /* of an epoch */
    double epochs;                  /* of the run */
    int64_t batch;                  /* samples of a step, as in the options */
    int tasks, gradients;
    struct sgrad_step_cost_task *task;
    struct sgrad_step_cost_gradient *gradient;   /* in the order in which the tasks complete them */
    double rows;                    /* K-FAC: fraction of the ranks that precondition a layer; 0: one rank; < 0: the cheapest */
    bool joint;                     /* no parameter is updated before all gradients are complete */
    int fields, classes;            /* fields of a sample; classes of its label, 0: it has no label */
    struct sgrad_step_cost_field {
        char *name;
        struct sgrad_view view;     /* of one sample */
    } field[SGRAD_COST_FIELDS];
    double parameters;              /* number of trained values */
    double kept_bytes;              /* memory that is allocated between steps: parameters, optimizer states, statistics */
    struct sgrad_linear_cost peak_bytes; /* peak of all other memory */
    struct sgrad_linear_cost input_bytes;   /* of the samples that a step reads */
};
/* Computes the work of a step of OPTIONS. The number of ranks, and options that depend on it (strategy, micro_batch, …), have no
 * effect; batch and steps affect only the members batch and epochs. Opens the data set, but reads no samples; trains nothing. The
 * caller must free *WORK (sgrad_step_cost_free); after an error it is empty. The errors are those of sgrad_train. */
int sgrad_step_cost_find(const struct sgrad_train_options *options, struct sgrad_step_cost *work);
void sgrad_step_cost_free(struct sgrad_step_cost *work);

/* The algorithms for each layer's tasks (codelets.h: sgrad_kernel_algorithms). Their times are measured on one core of this
 * machine, which takes seconds. */
struct sgrad_measured_layer {
    char *name;                     /* "conv1 backward-weight" */
    struct sgrad_algorithm algorithm[SGRAD_MAX_ALGORITHMS];
};
struct sgrad_layer_algorithms {
    int layers, algorithms;         /* number of layers; number of algorithms of each layer */
    struct sgrad_measured_layer *layer;
};
/* Measures the algorithms in a step of SAMPLES samples. The caller must free the result (sgrad_layer_algorithms_free); after an
 * error it is empty. The errors are those of sgrad_train. */
int sgrad_layer_algorithms_measure(const struct sgrad_train_options *options, int64_t samples,
                                   struct sgrad_layer_algorithms *algorithms);
void sgrad_layer_algorithms_free(struct sgrad_layer_algorithms *algorithms);

/* Returns the number of bytes, at most BYTES, that training sums at once over the ranks of NETWORK, if all gradients have BYTES.
 * METHOD: the allreduce algorithm; NULL: the cheapest. */
struct sgrad_network;
struct sgrad_collective;
double sgrad_step_cost_bucket(double bytes, const struct sgrad_network *network, const struct sgrad_collective *method);

/* A query for the cost of meshes (--mesh auto). The ranks are identical. */
struct sgrad_mesh_query {
    int ranks, workers;             /* workers: of a rank */
    const char *mesh;               /* the only mesh to evaluate; NULL: all meshes of these ranks */
    const struct sgrad_network *network;    /* the ranks are its first ones */
    int64_t batch;                  /* samples, of all ranks */
    double flops, bandwidth;        /* of a rank, all workers together: operations per second; bytes per second of its memory */
    double memory;                  /* bytes of a rank; 0: unlimited */
};
struct sgrad_mesh_cost {
    char mesh[64];                  /* "data=2,pipe=2,tensor=1d:2" */
    double step, computing, sending, waiting;       /* seconds: of a step; of its slowest stage. The last three overlap */
    double memory;                  /* bytes of the rank that needs most */
    char *error;                    /* reason why the mesh cannot be used (the network's shapes, memory); NULL: it can be used */
};
struct sgrad_mesh_result {
    int costs, best;                /* number of meshes; index of the fastest usable one, -1: none is usable */
    struct sgrad_mesh_cost *cost;
};
/* Computes the costs of meshes for the network of OPTIONS. Opens the data set, but reads no samples; trains nothing. The caller
 * must free *CHOICE (sgrad_mesh_result_free); after an error it is empty. The errors are those of sgrad_train. */
int sgrad_mesh_choose(const struct sgrad_train_options *options, const struct sgrad_mesh_query *query,
                      struct sgrad_mesh_result *choice);
void sgrad_mesh_result_free(struct sgrad_mesh_result *choice);

/* A query for the ways in which a step fits into the memory of a rank. The rank has only CPUs. */
struct sgrad_memory_query {
    double bytes;                   /* memory of the rank */
    int ranks;                      /* number of ranks, which divide the batch of the options */
    int workers;                    /* of a rank */
    double flops, bandwidth;        /* of a rank, all workers together: operations per second; bytes per second of its memory */
    double seconds;                 /* of all tasks of a step of a rank with the options as they are; 0: by these rates */
    double write, read;             /* bandwidths of its disk, bytes per second; 0: no disk */
    bool only;                      /* the options as they are, without --shard, are the only choice */
};
struct sgrad_memory_choice {
    long micro;                     /* samples of a micro-batch */
    bool recomputes;                /* --recompute */
    int recomputed;                 /* number of layers that are recomputed because of the limit, without this option */
    const char *shard;              /* --shard; NULL: nothing is sharded */
    double memory;                  /* bytes that the rank needs without a limit */
    double process;                 /* of these, its process without parameters and optimizer states */
    bool fits, moves;               /* it fits; activations must be moved to the disk */
    double step, waiting;           /* seconds: of the step, if it fits; of these, the time that moves add */
    double written, read;           /* bytes of a step */
};
/* The bytes that a rank uses during a step, and its moves: of the options as they are. */
struct sgrad_memory_curve {
    int points;
    double *seconds, *bytes;        /* (points): the bytes from this time on */
    double end;                     /* seconds of the step */
    int count;
    struct sgrad_memory_move {
        double begin, end;          /* seconds; sorted by begin */
        bool reads;
    } *move;
};
struct sgrad_memory_result {
    int choices, best;              /* best: index of the fastest choice that fits; -1: none fits */
    struct sgrad_memory_choice *choice;
    struct sgrad_memory_curve whole, limited;   /* without and with the limit; limited.points is 0 if the limit is too low */
};
/* Predicts the memory and the time of a step: with smaller micro-batches (unless the options have a micro-batch), with
 * --recompute, with --shard, and, where these do not suffice, with moves to the disk. QUERY may restrict the choices. Opens the
 * data set, but reads no samples; trains nothing. The caller must free *RESULT (sgrad_memory_result_free); after an error it is
 * empty. The errors are those of sgrad_train. */
int sgrad_memory_choose(const struct sgrad_train_options *options, const struct sgrad_memory_query *query,
                        struct sgrad_memory_result *result);
void sgrad_memory_result_free(struct sgrad_memory_result *result);

#ifdef __cplusplus
}
#endif
#endif
