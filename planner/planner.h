/* planner.h: what machines that one does not have would make of a training, by closed formulas.
 *
 *     what a step is made of (graphs/runs/runs.h: sgrad_work) ─┐
 *     a machine, as a file of machines/ describes it ──────────┼─> a point for each number of nodes: step, speed-up, memory, cost
 *     how it is trained: batch, strategy, overlap ─────────────┘
 *
 *     #include "planner/planner.h"
 *
 *     struct sgrad_train_options options = sgrad_train_defaults();
 *     options.model = "resnet50";
 *     options.data = "synthetic:224x224x3,1000,1281167";
 *     struct sgrad_work work;
 *     struct sgrad_machine *machine;
 *     struct sgrad_forecast forecast;
 *     SGRAD_TRY(sgrad_machine_read("machines/iris-v100.json", &machine));
 *     SGRAD_TRY(sgrad_work_find(&options, &work));
 *     const struct sgrad_question question = { .train = &options, .machine = machine, .work = &work, .from = 1, .to = 64 };
 *     SGRAD_TRY(sgrad_forecast_make(&question, &forecast));
 *     for (int i = 0; i < forecast.points; i++) printf("%d %.1f\n", forecast.point[i].nodes, forecast.point[i].speedup);
 *
 * A task takes the longer of its arithmetic and its traffic at the rates that the machine has for it, and what it takes to start
 * one. Where the machine's file has a measured rate of the very network, all tasks are scaled to that. Sums over ranks cost what
 * their plans say (collectives.h), with each device as a rank, those of a node on one host. With overlap, a step takes as long as
 * the busiest of device, wire, bus and input, or as the longest way from a weight round to its next value:
 *
 *     device   1f  2f  3f  loss  3b  2b  1b  1f  2f …         P = max(Σ tasks, Σ messages, arrival(l) − start(l), …)
 *     wire                           3── 2─── 1─────          1f of the next step waits for 1
 *
 * Limits: every device of a node is alike; ranks wait for none that is slow; switches are crowded only where the file says so. */
#ifndef SGRAD_PLANNER_H
#define SGRAD_PLANNER_H

#include "graphs/runs/runs.h"
#include "runtime/collectives.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- machines -------------------------------------------------------------------------------------------------- */

/* A share of the device's peak that an operation's kernels reach. */
struct sgrad_efficiency {
    char *operation;            /* "conv2d" */
    double share;
};
/* What one device made of one network. */
struct sgrad_measured {
    char *model;                /* "resnet50"; with all of its options, as the plan names it: "googlenet:aux=1,bn=0" */
    double samples_per_second, batch;
    enum sgrad_precision precision;
};
/* What a task took there, of which kernel and hash are known (runtime.h: sgrad_call): on one worker, in steps. */
struct sgrad_timed {
    char *kernel;
    uint32_t hash;
    double seconds;
};
/* Switches of one level, and what lies above. */
struct sgrad_switch {
    double nodes, uplink;       /* that one such switch has below it; bytes a second, each way, of all its links upwards */
};
struct sgrad_machine {
    char *path, *name, *summary;
    struct {
        char *name;
        bool is_gpu;            /* else all cores of a node together */
        int count;              /* of a node */
        int workers;            /* of CPUs: that share all of this, each with a task at a time */
        double flops[3];        /* a second, at most, by enum sgrad_precision; 0: not known */
        double memory, bandwidth;           /* bytes; a second */
        double launch;          /* seconds that a task takes whatever it does */
        double traffic_share;   /* of the bandwidth, that kernels reach */
        int efficiencies;
        struct sgrad_efficiency *efficiency;
    } device;
    double bus_latency, bus_bandwidth;      /* seconds, bytes a second: between devices of a node, and to its main memory */
    struct {
        double latency, bandwidth, hop;     /* of a node's link; seconds that each further hop takes */
        double carrying;                    /* seconds that a CPU worker spends on a byte that goes or comes over it */
        int dimensions;                     /* of a torus; 0: there are switches */
        double most;                        /* nodes that the highest switch has room for; 0: not stated */
        int levels;                         /* of switches, the lowest first; 0: one, that is never crowded */
        struct sgrad_switch *level;
    } network;
    double input;               /* samples a second that a node can read and prepare; 0: as many as are wanted */
    double price;               /* of a node, an hour; 0: not known */
    char *currency;
    int measurements;
    struct sgrad_measured *measured;
    int timings;
    struct sgrad_timed *timed;      /* by hash, by kernel */
};
/* Every figure of the file has its source, or is refused, as is what no machine can be; errors name file and field. */
int sgrad_machine_read(const char *path, struct sgrad_machine **machine);
void sgrad_machine_free(struct sgrad_machine *machine);         /* NULL: nothing */
/* Its network as NODES of them see it, each device a rank: free host. */
struct sgrad_network sgrad_machine_network(const struct sgrad_machine *machine, int nodes);

/* That a task of KERNEL takes on one device: the longer of arithmetic and traffic, and what any task takes. */
double sgrad_machine_seconds(const struct sgrad_machine *machine, enum sgrad_precision precision, const char *kernel,
                             double flops, double bytes);

/* That such a task took on one of the machine's workers; NAN: nobody has measured it. */
double sgrad_machine_timed(const struct sgrad_machine *machine, const char *kernel, uint32_t hash);

/* SIMULATED of MACHINE's NODES, as files of FOLDER that a simulated trainer is started with: platform.xml for SimGrid, hosts for
 * its smpirun, and bus/HOST.*, what StarPU knows of a node's devices. Torus and switches are as sgrad_machine_network has them:
 * the same latency between any two nodes, and a node's share of what crowded switches let through. */
#define SGRAD_PLATFORM_HOST "simulated"
enum { SGRAD_PLATFORM_GPUS = 8, SGRAD_PLATFORM_WORKERS = 12 };      /* of a node, at most */
int sgrad_platform_workers(const struct sgrad_machine *machine);    /* CPU workers of a simulated node */
int sgrad_platform_write(const struct sgrad_machine *machine, int nodes, int simulated, const char *folder);

/* ---- forecasts ------------------------------------------------------------------------------------------------- */

struct sgrad_question {
    const struct sgrad_train_options *train;    /* batch, strategy, servers, allreduce, bucket, precision */
    const struct sgrad_machine *machine;
    const struct sgrad_work *work;
    int from, to;                       /* nodes: powers of two times FROM, and TO */
    bool strong;                        /* train->batch is that of all devices; else each has micro_batch, or as much as batch */
    bool no_overlap;                    /* computing, then sums, then computing */
    double efficiency;                  /* for which the number of devices is sought; 0: it is not */
};

enum sgrad_limit { SGRAD_BY_COMPUTE, SGRAD_BY_NETWORK, SGRAD_BY_BUS, SGRAD_BY_INPUT, SGRAD_BY_MEMORY };
extern const char *const sgrad_limit_name[];    /* "compute", … */

struct sgrad_point {
    int nodes, devices;
    double batch;                       /* of all */
    double step, compute, communication, exposed;       /* seconds; exposed: that devices stand still */
    double formula;                     /* the step by formula, where a simulated one took its place; 0: none did */
    double samples_per_second, speedup, efficiency;     /* over one device with the same batch, or its own */
    double memory, room;                /* bytes of a device: wanted; there */
    double most;                        /* samples a device has room for */
    double hours, cost;                 /* of the whole training; cost 0: no price is known */
    const char *collective;             /* "" where there is none */
    double bucket;                      /* bytes summed at once */
    int servers;                        /* that would hide the traffic of asynchronous training */
    enum sgrad_limit limit;
};
struct sgrad_forecast {
    int points;
    struct sgrad_point *point;
    double scale;                       /* of tasks, by a measured rate; 0: none was there */
    double overhead;                    /* R_O as the lemma has it, that makes the last point what it is; NAN: nothing does */
    double lemma_devices, devices;      /* for the efficiency that is sought: by the lemma; by the points' own formulas */
};
/* SGRAD_EINVAL: the machine's switches have no room for so many nodes, or no number of them can share the batch equally. */
int sgrad_forecast_make(const struct sgrad_question *question, struct sgrad_forecast *forecast);
int sgrad_forecast_nodes(const struct sgrad_machine *machine, int nodes);      /* have the switches room for them? */
/* A step of POINT takes so many seconds, as simulated machines say: all that follows from it is found anew. */
void sgrad_point_simulated(struct sgrad_point *point, double seconds);
void sgrad_forecast_free(struct sgrad_forecast *forecast);

/* ---- lemmas (Zou et al., Distributed Training Large-Scale Deep Architectures, arXiv:1709.06622) ------------------ */

/* Of G devices, where one has OVERHEAD seconds of what nothing hides for each second of computing. */
double sgrad_lemma_efficiency(double overhead, double devices);
double sgrad_lemma_devices(double overhead, double efficiency);     /* at most; not rounded */
double sgrad_lemma_overhead(double devices, double speedup);        /* that makes a speed-up, above 1, what it is */
/* Parameter servers, at least, for WORKERS to push and pull BYTES each while they compute for SECONDS. */
double sgrad_lemma_servers(double bytes, double workers, double bandwidth, double seconds);

/* ---- ways of computing layers, under a bound of memory ----------------------------------------------------------- */

struct sgrad_choice {
    int *way;                           /* by layer; free it */
    double seconds, bytes;              /* of all layers; of workspace, all together, or the largest */
};
/* The ways that take least time, of LAYERS layers with WAYS each (WAY[layer * ways + i]), where workspaces are at most BOUND
 * bytes: the largest, where layers SHARE one, else all together. An integer program, solved exactly. SGRAD_ENOMEM: there are
 * none. */
int sgrad_choice_make(const struct sgrad_way *way, int layers, int ways, double bound, bool share, struct sgrad_choice *choice);

#ifdef __cplusplus
}
#endif
#endif
