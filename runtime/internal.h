/* internal.h: declarations that several files of runtime/ use. Private to runtime/. */
#ifndef SGRAD_RUNTIME_INTERNAL_H
#define SGRAD_RUNTIME_INTERNAL_H

#include "runtime/runtime.h"

#include <mpi.h>

/* Checks the variable STARGRAD_MAX_ISA. SGRAD_EINVAL: unknown name. SGRAD_EDEVICE: oneDNN can no longer be limited. */
int sgrad__isa_check(void);
int sgrad__worker(void);        /* index of the calling worker in per-worker arrays; SGRAD_MAX_WORKERS: any other thread */

/* The rank of this process. sgrad_ranks_narrow temporarily replaces rank, ranks and control by those of a group. */
struct sgrad__world {
    int rank, ranks;                        /* 0 and 1 until MPI has started */
    int rank_here, ranks_here;              /* counted among the ranks of this host; 0 and 1 until MPI has started */
    MPI_Comm control;                       /* for the collective calls of the main threads */
};
extern struct sgrad__world sgrad__world;
struct hwloc_topology;
struct hwloc_bitmap_s;
/* Binds the calling thread to this rank's cores of the host, unless the launcher has given the ranks different CPUs. Sets *CORES
 * to the number of cores, and rank_here and ranks_here of sgrad__world. Every rank must call it. SGRAD_EDEVICE: hwloc fails. */
int sgrad__cores_claim(int *cores);
/* Sets SLICE, allocated by the caller, to the CPUs for rank RANK of the RANKS ranks of a host. MASK[r] is the set of CPUs that
 * the launcher allows rank r. Ranks with equal masks get disjoint slices of its cores, with all CPUs of each core. If it has
 * fewer cores than ranks, its CPUs are divided; if it has fewer CPUs, each of them gets the whole mask. Returns the number of
 * cores in SLICE, at least 1; it is 1 if several ranks get the whole mask. */
int sgrad__cores_share(struct hwloc_topology *topology, struct hwloc_bitmap_s *const *mask, int ranks, int rank,
                       struct hwloc_bitmap_s *slice);

/* Stores in GPU the indices of the GPUs for rank RANK of the RANKS ranks of a host with ALL GPUs. WANTED: GPUs per rank;
 * negative: ALL / RANKS, at least 1. If there are fewer than the ranks want in total, several ranks get the same GPU. Returns the
 * number of GPUs of RANK; 0: there are fewer than one rank wants. */
int sgrad__gpus_share(int all, int wanted, int ranks, int rank, unsigned *gpu);

bool sgrad__launched(void);     /* returns true if a launcher started this process as one of several ranks */
/* Checks the environment before StarPU starts (environment.c). Corrects it with a warning where possible. SGRAD_EIO: no folder
 * for StarPU's measurements is writable. SGRAD_EINVAL: a number in a variable or in OPTIONS is out of StarPU's range. */
int sgrad__environment_settle(const struct sgrad_context_options *options);
void sgrad__early_hold(int rank);   /* starts the buffering of log lines on rank RANK, for sgrad_early_open (early.h) */
/* Print the buffered lines and empty the buffer; no effect without buffering. compare must be called by every rank of COMM: each
 * rank prints its lines that rank 0 does not have. flush prints all lines of this rank; rank 0 has printed its lines already. */
void sgrad__early_compare(MPI_Comm comm);
void sgrad__early_flush(void);
void sgrad__early_write(void);      /* writes all buffered lines, from a signal handler, before the process exits */

/* Start and stop MPI and StarPU, in this order. Without a launcher, only StarPU. start takes the latencies and bandwidths from
 * rank 0's file NETWORK, or measures them if it is NULL, and sets context->all and context->network. stop waits for all ranks.
 * SGRAD_EDEVICE: MPI has ended, lacks MPI_THREAD_MULTIPLE, or cannot start. SGRAD_EFORMAT: NETWORK is malformed. */
struct starpu_conf;
int sgrad__ranks_open(struct sgrad_context *context, struct starpu_conf *conf);    /* before StarPU starts: starts MPI */
int sgrad__ranks_init(struct starpu_conf *conf);                                    /* StarPU, StarPU-MPI; as starpu_init */
int sgrad__ranks_start(struct sgrad_context *context, const char *network);         /* after StarPU has started */
void sgrad__ranks_stop(void);                                                       /* stops StarPU-MPI, before StarPU stops */
void sgrad__ranks_close(void);                                                      /* after StarPU has stopped: stops MPI */
/* Sends *BYTES bytes at DATA from rank FROM, which must not be 0, to rank 0. Both must call it; it blocks. On rank 0, returns the
 * data, which the caller must free, and sets *BYTES to their size. On all other ranks, returns NULL. */
char *sgrad__rank_deliver(int from, const void *data, size_t *bytes);
extern int sgrad__message_limit;    /* maximum count of an MPI call: bytes of a message, elements of a sum; tests lower it */
void sgrad__messages_count(int64_t bytes, bool sent);  /* counts a message of a counted tensor between two ranks */
/* A sum of TENSOR over all ranks, computed by a library, and the functions of such a library. All ranks must begin their sums in
 * the same order (allreduce.c). */
struct sgrad__sum {
    struct sgrad_tensor *tensor;
    void *under_way;                            /* state of the library while the sum is in progress */
};
struct sgrad__summing {
    int (*node)(void);                          /* StarPU's memory node on which the tensor must be */
    void (*begin)(struct sgrad__sum *sum);      /* Starts the sum, without waiting for its end. */
    bool (*has_ended)(struct sgrad__sum *sum);  /* Returns true once the sum is complete, and frees its state. */
};
extern const struct sgrad__summing sgrad__nccl_summing;     /* nccl.c; all members are NULL without NCCL */
void sgrad__nccl_close(void);       /* no sum may be in progress; no effect if NCCL is not open */
void sgrad__allreduces_open(void);  /* prepares for allreduces by libraries (allreduce.c); requires MPI */
void sgrad__allreduces_close(void); /* waits for these allreduces, then releases their resources and closes NCCL */
struct sgrad_network;
void sgrad__watchdog_open(double patience); /* sets the timeout of waits, in seconds; 0: none */
/* Start and end the thread with which this rank shows others that it is alive, unless there is no timeout. Collective.
 * SGRAD_ENOMEM: it cannot be started. */
int sgrad__watchdog_start(void);
void sgrad__watchdog_stop(void);
/* MPI_Wait with that timeout. WHAT: the awaited event, for the log: "for a sum over all ranks". After the timeout, logs the ranks
 * that are responsible and ends all ranks. */
void sgrad__request_wait(MPI_Request *request, const char *what);
/* Like sgrad__request_wait, but at each timeout only the lowest waiting rank logs a warning, and the wait continues, unless a
 * rank gives no sign of life. Every rank must call it, in the same order as the other collective functions. */
void sgrad__request_await(MPI_Request *request, const char *what);
/* Set latency, bandwidth, host_latency and host_bandwidth of NETWORK. read takes them from a JSON object with these keys; without
 * the host_ keys, those between hosts are used. SGRAD_EFORMAT. measure times messages between two ranks, and requires ->ranks and
 * ->host; every rank of COMM must call it, with its number RANK. SGRAD_ENOMEM. */
int sgrad__network_read(const char *path, struct sgrad_network *network);
int sgrad__network_measure(int rank, struct sgrad_network *network, MPI_Comm comm);

/* Calls THEN(ARG) on any thread as soon as TENSOR is in memory node NODE (StarPU's number; 0: main memory), with the content that
 * the tasks submitted so far leave. From then until the release, it may be accessed there as ACCESS permits; memory returns its
 * address. release must be called once, with the same NODE. acquire returns 0 or StarPU's error. */
int sgrad__tensor_acquire(struct sgrad_tensor *tensor, int node, enum sgrad_access access, void (*then)(void *arg), void *arg);
void *sgrad__tensor_memory(const struct sgrad_tensor *tensor, int node);
void sgrad__tensor_release(struct sgrad_tensor *tensor, int node);
/* Moves the content of a persistent tensor, which no program uses yet, to MEMORY, a mapping of a file from byte AT on. The tensor
 * then owns the mapping. */
void sgrad__tensor_to_file(struct sgrad_tensor *tensor, void *memory, int64_t at);
/* Replaces that memory by other memory, which the tensor owns, and copies the content. SGRAD_ENOMEM. */
int sgrad__tensor_to_memory(struct sgrad_tensor *tensor);
/* Maps BYTES bytes of FILE from AT on, until sgrad__unmap. If they cannot be read later, the process prints NAME and the cause,
 * and ends. Returns 0 or a number of errno. */
int sgrad__map(int file, int64_t at, size_t bytes, const char *name, void **memory);
void sgrad__unmap(void *memory);
void sgrad__tensors_look(void);     /* updates sgrad_tensors_peak_bytes; called at the start of each task */

int sgrad__failure_take(void);      /* returns the error of sgrad_task_error and clears it */
/* Sets the error of FAILURE, unless it has one. NULL: the error of sgrad_task_error. */
void sgrad__failure_note(struct sgrad_failure *failure, int error);

/* Functions of a simulated trainer (simulation.h). model sets MODEL to the durations of struct sgrad_simulation; CALL_OF must
 * return the bound kernel of a task. gpus returns the number of GPUs per rank; 0 before sgrad_simulation_set. */
struct starpu_perfmodel;
struct starpu_task;
void sgrad__simulation_model(struct starpu_perfmodel *model,
                             const struct sgrad_bound_kernel *(*call_of)(const struct starpu_task *task));
int sgrad__simulation_gpus(void);
/* Returns MESSAGE with the rank that represents its peer, and with a tag that identifies the pair of represented ranks. */
struct sgrad_message sgrad__simulation_message(struct sgrad_message message);
double sgrad__simulation_carrying(void);      /* seconds of a CPU worker per byte of a message; 0: none */
double sgrad__simulation_seconds(const struct sgrad_bound_kernel *call); /* of a task of CALL; NAN: it is not a task */
double sgrad__simulation_disk(bool writes);                              /* bytes per second of a move to or from the disk */
/* The kernel of the tasks that take this time, and their kind in plots. */
extern const struct sgrad_kind sgrad__simulated_reduction;
extern const struct sgrad_kernel sgrad__simulated_carry;
/* Submits the task that models a worker's time for a submitted message (message_work.c). It reads the tensor of a sent message
 * (SGRAD_R), and reads and writes that of a received one (SGRAD_RW), so that it precedes every use. A message of a rank to itself
 * has one task, on receipt, which models a copy. No effect if the time per byte is 0. */
void sgrad__simulation_carry(const struct sgrad_message *message, enum sgrad_access access);

/* Must be called before and after the kernel of every task on a CPU, whether or not CALL is profiled (profile.h). The result of
 * begin must be passed to end. */
double sgrad__watch_begin(const struct sgrad_bound_kernel *call);
void sgrad__watch_end(const struct sgrad_bound_kernel *call, double begin);
/* A worker begins and ends a task. begins returns true if this is counted (sgrad_workers_watch); ends needs that value. */
bool sgrad__worker_begins(void);
void sgrad__worker_ends(bool watched);

/* Calls SEE with ARG for every kernel that has been prepared. MODEL: the kernel's name in traces (key "Model"). */
void sgrad__kernels_each(void (*see)(const char *model, const struct sgrad_kernel *kernel, void *arg), void *arg);
void sgrad__caches_clear(void);     /* destroys all objects of sgrad_cache_get; no task may be running */
void sgrad__devices_open(void);     /* starts the watch for CUDA faults; StarPU must be running */
void sgrad__devices_close(void);    /* stops it and destroys the workers' library handles; no task may be running */
/* Runs the CUDA kernel of CALL, or launches the CUDA graph that was recorded for the addresses in ARGS (recording.c). */
void sgrad__cuda_run(const struct sgrad_bound_kernel *call,
                     const struct sgrad_args *args);
struct sgrad_recordings *sgrad__recordings_create(void);                /* the CUDA graphs of a call; NULL without CUDA */
void sgrad__recordings_destroy(struct sgrad_recordings *recordings);    /* NULL is allowed */
/* Returns the address of a copy of STEP in the memory of this worker's device, valid for the kernels that are launched on its
 * stream from now on. NULL: STEP is NULL. Without CUDA, returns STEP. */
const struct sgrad_step *sgrad__cuda_step(const struct sgrad_step *step);
void sgrad__cuda_begin(const char *name);   /* sets the name of the task that this CUDA worker starts, for errors; copied */
int sgrad__cuda_devices(void);      /* number of usable CUDA devices; 0 without CUDA */

/* The trace of a context. prepare is called before StarPU starts, with the folder and kinds of struct sgrad_context_options; no
 * folder: no trace. SGRAD_ELIBRARY: StarPU was built without FxT. SGRAD_EIO: the folder cannot be created. collect sends the
 * events of all ranks to rank 0, and convert writes the trace files there; both only log errors. */
int sgrad__trace_prepare(const char *folder, const struct sgrad_kind *const *kinds);
void sgrad__trace_collect(const struct sgrad_context *context);     /* after StarPU has stopped, before MPI stops */
void sgrad__trace_convert(const struct sgrad_context *context);     /* after MPI has stopped */
/* Records the begin or the end of a move of tensor NAME between memory and a file. On any thread. */
void sgrad__trace_move(const char *name, bool writes, bool begins);
/* Corrects FOLDER/paje.trace for ViTE (paje.c), and warns of each rank whose events are incomplete. FOLDER must end in '/'. */
void sgrad__paje_mend(const char *folder, int ranks);

#endif
