/* internal.h: what the files of runtime/ share. */
#ifndef SGRAD_RUNTIME_INTERNAL_H
#define SGRAD_RUNTIME_INTERNAL_H

#include "runtime/runtime.h"

/* Index of the calling worker in per-worker arrays; SGRAD_MAX_WORKERS for any other thread. */
int sgrad__isa_check(void);     /* 0, or what is wrong with STARGRAD_MAX_ISA */
int sgrad__worker(void);

/* This process among those that make one program. */
struct ompi_communicator_t;
struct sgrad__world {
    int rank, ranks;                        /* 0 and 1 before there are several */
    int rank_here, ranks_here;              /* of this host; 0 and 1, likewise */
    struct ompi_communicator_t *control;    /* MPI_Comm of the collective calls of main threads */
};
extern struct sgrad__world sgrad__world;
struct hwloc_topology;
struct hwloc_bitmap_s;
/* Binds this rank to its share of the host, where no launcher has; tells how many cores that is. */
int sgrad__cores_claim(int *cores);
/* SLICE becomes what is RANK's of a host whose RANKS the launcher has left these MASKs of CPUs. Returns its number of cores. */
int sgrad__cores_share(struct hwloc_topology *topology, struct hwloc_bitmap_s *const *mask, int ranks, int rank,
                       struct hwloc_bitmap_s *slice);

/* GPU becomes which of a host's ALL are its rank RANK's, of RANKS: WANTED, or its share (negative). Returns how many that is; 0:
 * there are not so many. */
int sgrad__gpus_share(int all, int wanted, int ranks, int rank, unsigned *gpu);

bool sgrad__launched(void);     /* has a launcher started this process as one of several? */
/* Checks and mends the environment (environment.c); an error that cannot be mended. */
int sgrad__environment_settle(const struct sgrad_context_options *options);
void sgrad__early_hold(int rank);   /* what sgrad_early_open does on this RANK of several */
/* Of early.c, while lines are held. Every rank of COMM: prints those that rank 0 has not. One rank: prints all of its own. */
void sgrad__early_compare(struct ompi_communicator_t *comm);
void sgrad__early_flush(void);
void sgrad__early_write(void);      /* the same, in a signal's handler, before the process ends */

struct starpu_conf;
int sgrad__ranks_open(struct sgrad_context *context, struct starpu_conf *conf);    /* before StarPU starts: MPI */
int sgrad__ranks_init(struct starpu_conf *conf);                                    /* StarPU, with StarPU-MPI; as starpu_init */
int sgrad__ranks_start(struct sgrad_context *context, const char *network);         /* after: the network's measures */
void sgrad__ranks_stop(void);                                                       /* before StarPU stops: StarPU-MPI */
void sgrad__ranks_close(void);                                                      /* after: MPI */
/* BYTES of DATA, which rank FROM gives, reach rank 0, who owns what is returned, and is told how many. All others: NULL. */
char *sgrad__rank_deliver(int from, const void *data, size_t *bytes);
extern int sgrad__message_limit;    /* what MPI counts in one call: bytes of a message, elements of a sum. Tests lower it. */
/* A sum of a tensor over all ranks by a library, which counts on the order of calls (allreduce.c), and a way to do it: the memory
 * node where the tensor has to be; it begins, without waiting; it has ended. UNDER_WAY is the way's own. */
struct sgrad__sum {
    struct sgrad_tensor *tensor;
    void *under_way;
};
struct sgrad__summing {
    int (*node)(void);
    void (*begin)(struct sgrad__sum *sum);
    bool (*has_ended)(struct sgrad__sum *sum);
};
extern const struct sgrad__summing sgrad__nccl_summing;     /* nccl.c; of NULLs without it */
void sgrad__nccl_close(void);       /* when no sum is under way; nothing, if it was not opened */
void sgrad__messages_open(void);
void sgrad__messages_close(void);
struct sgrad_network;
struct ompi_request_t;
void sgrad__stall_open(double patience);
/* MPI_Wait with an end to its patience; WHAT is waited for. */
void sgrad__request_wait(struct ompi_request_t **request, const char *what);
/* The same with patience that does not end: when it would, the lowest rank that waits warns of it. Every rank calls it, in the
 * same order as other collective calls. */
void sgrad__request_await(struct ompi_request_t **request, const char *what);
/* Fill latencies and bandwidths: from a JSON object of those names; by measuring, where every rank calls it. */
int sgrad__network_read(const char *path, struct sgrad_network *network);
int sgrad__network_measure(int rank, struct sgrad_network *network, struct ompi_communicator_t *comm);

/* THEN(ARG) is called, on any thread, when the tensor is in the memory of NODE, StarPU's number, 0: main memory, as the tasks
 * submitted so far leave it, and may be touched there until the release. 0, or StarPU's error. */
int sgrad__tensor_acquire(struct sgrad_tensor *tensor, int node, enum sgrad_access access, void (*then)(void *arg), void *arg);
void *sgrad__tensor_memory(const struct sgrad_tensor *tensor, int node);
void sgrad__tensor_release(struct sgrad_tensor *tensor, int node);
void sgrad__tensors_look(void);     /* at how much memory they have */

int sgrad__failure_take(void);      /* the error that sgrad_task_error tells, which is over with that */
void sgrad__failure_note(struct sgrad_failure *failure, int error);     /* NULL: that one */

/* A regular file of 1 to LIMIT bytes; close it. BYTES of it from AT on; an error where it has become shorter. */
int sgrad__file_open(const char *path, size_t limit, int *file, size_t *size);
int sgrad__file_read(int file, const char *path, size_t at, size_t bytes, void *to);

/* Of a simulated trainer (simulation.h), and called there alone: MODEL says how long tasks take, each of the call that CALL_OF
 * finds; GPUs that a rank has. */
struct starpu_perfmodel;
struct starpu_task;
void sgrad__simulation_model(struct starpu_perfmodel *model, const struct sgrad_call *(*call_of)(const struct starpu_task *task));
int sgrad__simulation_gpus(void);
struct sgrad_message sgrad__simulation_message(struct sgrad_message message);     /* to whoever stands for its peer */
double sgrad__simulation_carrying(void);      /* seconds of a worker for a byte of a message; 0: none */
/* The kernel whose tasks last as long as that, and the kind of such work in pictures. */
extern const struct sgrad_kind sgrad__simulated_reduction;
extern const struct sgrad_kernel sgrad__simulated_carry;
/* What a worker does about a message that has been submitted: it reads what goes (SGRAD_R), makes what came (SGRAD_RW) usable
 * (carrying.c). */
void sgrad__simulation_carry(const struct sgrad_message *message, enum sgrad_access access);

/* Around a task's kernel on a CPU, whether or not anybody watches its call; begin returns what end takes. */
double sgrad__watch_begin(const struct sgrad_call *call);
void sgrad__watch_end(const struct sgrad_call *call, double begin);

/* Every kernel that had tasks, by the name that traces give it ("Model"). */
void sgrad__kernels_each(void (*see)(const char *model, const struct sgrad_kernel *kernel, void *arg), void *arg);
void sgrad__caches_clear(void);     /* when no task runs any more */
void sgrad__devices_open(void);     /* when StarPU has started */
void sgrad__devices_close(void);    /* as caches */
void sgrad__cuda_run(const struct sgrad_call *call, const struct sgrad_args *args);    /* its kernel, or what it has recorded */
struct sgrad_recordings *sgrad__recordings_create(void);
void sgrad__recordings_destroy(struct sgrad_recordings *recordings);    /* NULL: nothing */
/* Where this worker's device has STEP, when the stream comes to what is launched from here on. */
const struct sgrad_step *sgrad__cuda_step(const struct sgrad_step *step);
void sgrad__cuda_begin(const char *name);   /* of a CUDA worker: the task that it begins now; the name is copied */
int sgrad__cuda_devices(void);      /* CUDA devices that could be used; 0 without CUDA */

/* Before StarPU starts; NULL: no trace. KINDS as in the options of a context. */
int sgrad__trace_prepare(const char *folder, const struct sgrad_kind *const *kinds);
void sgrad__trace_collect(const struct sgrad_context *context);     /* after it has stopped, while there is MPI */
void sgrad__trace_convert(const struct sgrad_context *context);     /* after that */
void sgrad__paje_mend(const char *folder, int ranks);               /* FOLDER/paje.trace; FOLDER ends in '/' */

#endif
