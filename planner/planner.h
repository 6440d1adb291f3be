/* planner.h: estimates of training on machines that are only described by a file, by closed formulas.
 *
 *     the work of a step (graphs/api/costs.h: sgrad_step_cost) ┐
 *     a machine, described by a file of machines/ ─────────────┼─> a row for each number of nodes: step, speed-up, memory, cost
 *     the kind of training: batch, strategy, overlap ──────────┘
 *
 *     #include "planner/planner.h"
 *
 *     struct sgrad_train_options options = sgrad_train_defaults();
 *     options.model.name = "resnet50";
 *     options.data.name = "synthetic:224x224x3,1000,1281167";
 *     struct sgrad_step_cost work;
 *     struct sgrad_machine *machine;
 *     struct sgrad_forecast forecast;
 *     SGRAD_TRY(sgrad_machine_read("iris-v100", &machine));
 *     SGRAD_TRY(sgrad_step_cost_find(&options, &work));
 *     const struct sgrad_plan_query query = { .train = &options, .machine = machine, .work = &work, .from = 1, .to = 64 };
 *     SGRAD_TRY(sgrad_forecast_make(&query, &forecast));
 *     for (int i = 0; i < forecast.rows; i++) printf("%d %.1f\n", forecast.row[i].nodes, forecast.row[i].speedup);
 *
 * A task takes the longer of its arithmetic and its memory traffic, at the machine's rates, plus the time to launch it. If the
 * machine's file contains a measured rate of the same network, all tasks are scaled to match it. Collectives cost the time that
 * their plans predict (collectives.h), with each device as a rank, and the devices of a node on one host. With overlap, a step
 * takes as long as the busiest of device, link, bus and input, or as the longest path from the use of a weight to its next value:
 *
 *     device   1f  2f  3f  loss  3b  2b  1b  1f  2f …         P = max(Σ tasks, Σ messages, arrival(l) − start(l), …)
 *     link                           3── 2─── 1─────          1f of the next step waits for 1
 *
 * Limits: all devices of a node are identical; no rank is slower than another; congestion of switches is modelled only if the
 * file describes the switches. */
#ifndef SGRAD_PLANNER_PLANNER_H
#define SGRAD_PLANNER_PLANNER_H

#include "graphs/api/costs.h"
#include "graphs/api/train.h"
#include "runtime/collectives.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- machines -------------------------------------------------------------------------------------------------- */

/* The fraction of the device's peak that the kernels of an operation reach. */
struct sgrad_efficiency {
    char *operation;            /* "conv2d" */
    double fraction;            /* the fraction, 0 to 1 */
};
/* A measured rate of one device with one network. */
struct sgrad_measured {
    char *model;                /* "resnet50"; with all of its options, as the plan prints it: "googlenet:aux=1,bn=0" */
    double samples_per_second, batch;
    enum sgrad_precision precision;
};
/* The measured time of a task with this kernel and hash (runtime.h: sgrad_bound_kernel): on one worker, during steps. */
struct sgrad_task_timing {
    char *kernel;
    uint32_t hash;
    double seconds;
};
/* The switches of one level. */
struct sgrad_switch_level {
    double nodes, uplink;       /* nodes below one switch; bytes per second, in each direction, of all its uplinks */
};
struct sgrad_machine {
    char *path, *name, *summary;
    struct {
        char *name;
        bool is_gpu;            /* false: the device is all cores of a node together */
        int count;              /* devices of a node */
        int workers;            /* CPUs: workers that use the device together, each for one task at a time */
        double flops[3];        /* peak per second, by enum sgrad_precision; 0: unknown */
        double memory, bandwidth;           /* bytes; bytes per second */
        double launch;          /* seconds that each task takes in addition to its work */
        double traffic_fraction;   /* fraction of the bandwidth that kernels reach */
        int efficiencies;
        struct sgrad_efficiency *efficiency;
    } device;
    double bus_latency, bus_bandwidth;      /* seconds, bytes per second: between devices of a node, and to its main memory */
    struct {
        double latency, bandwidth, hop;     /* of a node's link: seconds, bytes per second; seconds of each further hop */
        double cpu_seconds_per_byte;        /* seconds of a CPU worker for each byte that the link sends or receives */
        int dimensions;                     /* of a torus; 0: the network has switches */
        double most;                        /* largest number of nodes below the highest switch; 0: not stated */
        int levels;                         /* of switches, the lowest first; 0: one switch without congestion */
        struct sgrad_switch_level *level;
    } network;
    struct {
        double write, read;     /* bytes per second; 0: unknown */
    } disk;                     /* of a node, for train --spill */
    double input;               /* samples per second that a node can read and prepare; 0: unlimited */
    double price;               /* of a node for an hour; 0: unknown */
    char *currency;             /* NULL if the price is unknown */
    int measurements;
    struct sgrad_measured *measured;
    int timings;
    struct sgrad_task_timing *timed;      /* sorted by hash, then by kernel */
};
/* Reads a machine from a JSON file. NAME: as for sgrad_machine_find. Each figure in the file must state its source. The caller
 * must free *MACHINE (sgrad_machine_free). SGRAD_EIO: the file cannot be read. SGRAD_EFORMAT: it is malformed, keys are missing
 * or unknown, a figure has no source, or a value is impossible; one message names the file and all such keys. Other errors: as
 * sgrad_machine_find. */
int sgrad_machine_read(const char *name, struct sgrad_machine **machine);
void sgrad_machine_free(struct sgrad_machine *machine);         /* NULL: does nothing */

/* A machine file that belongs to Stargrad. */
struct sgrad_machine_file {
    char *name, *path, *summary;            /* "titan"; its file; its description in one line */
};
/* Returns the machine files that belong to Stargrad, in alphabetical order. The last element has the name NULL; it is the first
 * one if the files are not found. The caller must free the array (sgrad_machine_files_free). */
struct sgrad_machine_file *sgrad_machine_files(void);
void sgrad_machine_files_free(struct sgrad_machine_file *files);        /* NULL: does nothing */
/* Finds the file of a machine. NAME is the name of one of Stargrad's files, or else a path. A name with a '/' or with ".json" at
 * its end is always a path, which need not exist. The caller must free *PATH. SGRAD_ENAME: there is neither a machine nor a file
 * NAME; the message lists the known machines. */
int sgrad_machine_find(const char *name, char **path);

/* Key I of machine files, for their documentation. Returns false if there are no more keys. The caller must free type and
 * required. */
struct sgrad_machine_key {
    const char *path;           /* "device.flops.f32"; in the elements of a list: "measured[].model" */
    char *type;                 /* with unit and range: "figure, bytes/s, above 0" */
    char *required;             /* "required"; "optional; default: 1" */
    const char *meaning;
};
bool sgrad_machine_key(int i, struct sgrad_machine_key *key);

/* Returns the network between NODES nodes of MACHINE, with each device as a rank. The caller must free its member host. */
struct sgrad_network sgrad_machine_network(const struct sgrad_machine *machine, int nodes);

/* Returns the estimated seconds of a task of KERNEL on one device: the longer of arithmetic and memory traffic, plus the launch
 * time. FLOPS: operations of the task; BYTES: its memory traffic. */
double sgrad_machine_seconds(const struct sgrad_machine *machine, enum sgrad_precision precision, const char *kernel,
                             double flops, double bytes);

/* Returns the measured seconds of a task with this kernel and hash on one worker of the machine; NAN: not measured. */
double sgrad_machine_timed(const struct sgrad_machine *machine, const char *kernel, uint32_t hash);

/* Files for the simulation of SIMULATED of the NODES nodes of MACHINE, in the existing directory FOLDER: platform.xml for
 * SimGrid, hosts for its smpirun, and bus/HOST.*, StarPU's description of the devices of a node. Torus and switches are modelled
 * as in sgrad_machine_network: the same latency between any two nodes, and an equal fraction of the bandwidth of congested
 * switches for each node. SGRAD_EINVAL: a node has more than SGRAD_PLATFORM_GPUS GPUs. SGRAD_EIO: a file cannot be written. */
#define SGRAD_PLATFORM_HOST "simulated"
enum { SGRAD_PLATFORM_GPUS = 8, SGRAD_PLATFORM_WORKERS = 12 };      /* largest numbers of a simulated node */
int sgrad_platform_workers(const struct sgrad_machine *machine);    /* returns the number of CPU workers of a simulated node */
int sgrad_platform_write(const struct sgrad_machine *machine, int nodes, int simulated, const char *folder);

/* ---- forecasts ------------------------------------------------------------------------------------------------- */

struct sgrad_plan_query {
    const struct sgrad_train_options *train;    /* batch sizes, strategy and its options, allreduce, bucket, precision */
    const struct sgrad_machine *machine;
    const struct sgrad_step_cost *work;
    int from, to;                       /* nodes: FROM times 1, 2, 4, …, below TO; and TO */
    bool strong;                        /* train->batch is of all devices; false: each has micro_batch samples, or batch if 0 */
    bool no_overlap;                    /* communication starts after computation, and the next step after communication */
    double efficiency;                  /* compute the number of devices with this efficiency; 0: do not */
};

/* The bottleneck of a step. */
enum sgrad_limit { SGRAD_BY_COMPUTE, SGRAD_BY_NETWORK, SGRAD_BY_BUS, SGRAD_BY_INPUT, SGRAD_BY_MEMORY };
extern const char *const sgrad_limit_name[];    /* "compute", … */

struct sgrad_plan_row {
    int nodes, devices;
    double batch;                       /* samples of all devices */
    double step, compute, communication, exposed;       /* seconds; exposed: of the step, the time when a device is idle */
    double formula;                     /* the step by formula, if step is simulated; 0: step is by formula */
    double written, read, waiting;      /* of a simulated step: bytes that rank 0 moves to and from its disk; seconds that its
                                           workers wait for moves */
    double samples_per_second, speedup, efficiency;     /* speedup: over one device with the same batch; if not strong, with its
                                                           local batch. efficiency: speedup / devices */
    double memory, available;           /* bytes of a device: required; available */
    double most;                        /* largest local batch that fits into a device's memory */
    double hours, cost;                 /* of the whole training; cost 0: the price is unknown */
    const char *collective;             /* algorithm for gradients; "": none is used */
    double bucket;                      /* bytes summed at once */
    int servers;                        /* parameter servers that would hide the traffic of asynchronous training */
    enum sgrad_limit limit;
};
struct sgrad_forecast {
    int rows;                           /* number of rows */
    struct sgrad_plan_row *row;
    double scale;                       /* factor of all tasks that matches a measured rate; 0: there is no measured rate */
    double overhead;                    /* R_O of the lemma below that explains the speed-up of the last row; NAN: none does */
    double lemma_devices, devices;      /* with the queried efficiency: by the lemma, and by the formulas of the rows */
};
/* Computes a row for each number of nodes. With strong, numbers that do not divide the batch are omitted, with a warning. The
 * caller must free *FORECAST (sgrad_forecast_free); after an error there is nothing to free. SGRAD_EINVAL: the machine's switches
 * do not connect this number of nodes, no number of nodes divides the batch, the machine's file has no rate for the precision, or
 * an allreduce algorithm is set for a strategy with parameter servers. SGRAD_ENAME: the strategy or the allreduce algorithm is
 * unknown. */
int sgrad_forecast_make(const struct sgrad_plan_query *query, struct sgrad_forecast *forecast);
/* Returns 0 if the machine's switches connect NODES nodes. SGRAD_EINVAL: they do not. */
int sgrad_forecast_nodes(const struct sgrad_machine *machine, int nodes);
/* Replaces the step of ROW, which is by formula, by a simulated one of SECONDS. Updates exposed, samples_per_second, speedup,
 * efficiency, hours and cost; limit is unchanged. */
void sgrad_plan_row_simulated(struct sgrad_plan_row *row, double seconds);
void sgrad_forecast_free(struct sgrad_forecast *forecast);

/* ---- lemmas (Zou et al., Distributed Training Large-Scale Deep Architectures, arXiv:1709.06622) ------------------ */

/* OVERHEAD: seconds of work that cannot be hidden, of one device, for each second of computation. Returns the efficiency of
 * DEVICES devices, 0 to 1. */
double sgrad_lemma_efficiency(double overhead, double devices);
/* Returns the largest number of devices with at least this efficiency, not rounded; infinite without overhead. */
double sgrad_lemma_devices(double overhead, double efficiency);
double sgrad_lemma_overhead(double devices, double speedup);        /* returns the overhead that leads to a speed-up above 1 */
/* Returns the smallest number of parameter servers, each with BANDWIDTH bytes per second, through which WORKERS workers can each
 * push and pull BYTES while they compute for SECONDS. */
double sgrad_lemma_servers(double bytes, double workers, double bandwidth, double seconds);

/* ---- algorithms of layers, with bounded memory ------------------------------------------------------------------- */

struct sgrad_algorithm_plan {
    int *algorithm;                     /* by layer: index of its algorithm; free it */
    double seconds, bytes;              /* of all layers; of all workspaces, or of the largest one if the layers use the same */
};
/* Chooses an algorithm for each of LAYERS layers, with ALGORITHMS algorithms each: ALGORITHM[layer * algorithms + i]. The total
 * time is the shortest for which the workspaces have at most BOUND bytes. If SHARED is true, the layers use one workspace, and
 * the largest counts; otherwise their sum counts. Solves an integer program exactly (Zou et al., as above). SGRAD_ENOMEM: no
 * choice fits. SGRAD_ELIBRARY: this build has no solver; check returns only this error. */
int sgrad_algorithm_plan_check(void);
int sgrad_algorithm_plan_make(const struct sgrad_algorithm *algorithm, int layers, int algorithms, double bound, bool shared,
                              struct sgrad_algorithm_plan *choice);

#ifdef __cplusplus
}
#endif
#endif
