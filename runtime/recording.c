/* recording.c: records the GPU kernels of a task as a CUDA graph, and launches the graph instead from then on.
 *
 * A recording is valid only for the addresses of the operands and the workspace with which it was made, so these are its key.
 * When addresses occur for the first time, they may not occur again. The task then launches its kernels one by one, and creates
 * the objects that it caches (plans, workspaces). The second time it is recorded, and after that the recording is launched:
 *
 *     step 1   x at 0x7e00…, w at 0x7e40…   launched: conv2d, stats, apply, conv2d, …
 *     step 2   the same                     recorded: conv2d, stats, apply, conv2d, …, and launched as one
 *     step 3   the same                     launched as one
 *     step 4   x elsewhere                  launched: conv2d, stats, apply, conv2d, …
 *
 * Values that change from step to step are read by the kernels from a copy of the step in device memory. Each worker has one such
 * copy, and updates it on its stream before the first task of another step.
 *
 * If a recording fails, the kernels are launched one by one, after a warning. Source: CUDA programming guide, "Creating a graph
 * using stream capture". Other threads cannot disturb the capture, because it is limited to the stream of one thread, which does
 * not synchronise with the default stream. */
#include "config.h"
#include "runtime/handles.h"
#include "runtime/internal.h"
#include "runtime/runtime.h"

#ifdef SGRAD_HAVE_CUDA
#include <cuda_runtime.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 256 };    /* recordings per call and worker: many tasks may have the same call */

/* The key of a recording: the addresses of the operands and the workspace, and the index of the first sample. */
struct place {
    const void *data[SGRAD_MAX_OPERANDS], *workspace;
    int64_t first;
};

struct recording {
    struct place place;
    cudaGraphExec_t graph;      /* NULL: the key has occurred once */
    long used;                  /* number of the last task that used it */
};

/* The recordings of a call on one worker. */
struct reel {
    struct recording *recording;
    int count;
    long tasks;
    bool off;                   /* a recording has failed */
};
struct sgrad_recordings {
    struct reel *reel[SGRAD_MAX_WORKERS + 1];
};

struct sgrad_recordings *sgrad__recordings_create(void) { return sgrad_xcalloc(1, sizeof(struct sgrad_recordings)); }

void sgrad__recordings_destroy(struct sgrad_recordings *recordings) {
    if (!recordings) return;
    for (int w = 0; w <= SGRAD_MAX_WORKERS; w++) {
        for (int i = 0; recordings->reel[w] && i < recordings->reel[w]->count; i++)
            if (recordings->reel[w]->recording[i].graph) cudaGraphExecDestroy(recordings->reel[w]->recording[i].graph);
        if (recordings->reel[w]) free(recordings->reel[w]->recording);
        free(recordings->reel[w]);
    }
    free(recordings);
}

/* ---- errors during a recording ------------------------------------------------------------------------------------- */

static _Thread_local bool records;
static _Thread_local char excuse[200];     /* the first error; "": none */

bool sgrad_cuda_excuses(const char *why, const char *where) {
    if (records && !*excuse) snprintf(excuse, sizeof excuse, "%s, in %s", why, where);
    return records;
}

/* ---- recording ----------------------------------------------------------------------------------------------------- */

static bool went(cudaError_t status, const char *what) {
    if (status != cudaSuccess && !*excuse) snprintf(excuse, sizeof excuse, "%s, in %s", cudaGetErrorString(status), what);
    return status == cudaSuccess;
}

/* Returns the recording of a task; NULL, with EXCUSE set, if that fails. */
static cudaGraphExec_t record(const struct sgrad_bound_kernel *call, const struct sgrad_args *args) {
    const cudaStream_t stream = sgrad_cuda_stream();
    cudaGraph_t graph = NULL;
    cudaGraphExec_t made = NULL;
    if (!went(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture")) return NULL;
    records = true;
    call->kernel->cuda(args);
    records = false;
    if (went(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture") && !*excuse)
        went(cudaGraphInstantiate(&made, graph, 0), "cudaGraphInstantiate");
    if (graph) cudaGraphDestroy(graph);
    return made;
}

/* Disables recordings of CALL on this worker, and launches the kernels one by one. If the device has failed, these launches
 * report it. */
static void give_up(struct reel *reel, const struct sgrad_bound_kernel *call, const struct sgrad_args *args) {
    static atomic_flag warned = ATOMIC_FLAG_INIT;
    cudaGetLastError();     /* clears the error */
    reel->off = true;
    call->kernel->cuda(args);
    if (!atomic_flag_test_and_set(&warned))
        sgrad_log_warning("CUDA graphs: task %s cannot be recorded: %s; the kernels of such tasks are launched one by one",
                          call->kernel->name, excuse);
}

/* Returns the recording with key PLACE; NULL: the key has not occurred before. */
static struct recording *find(struct reel *reel, const struct place *place) {
    for (struct recording *r = reel->recording; r < reel->recording + reel->count; r++)
        if (memcmp(&r->place, place, sizeof *place) == 0) return r;
    return NULL;
}

/* Adds the key PLACE without a graph. If the table is full, it replaces the least recently used key without a graph. Graphs are
 * never replaced, because they may still be executing; if all keys have one, PLACE is not added. */
static void remember(struct reel *reel, const struct place *place) {
    struct recording *oldest = NULL;
    if (reel->count < MOST) {
        reel->recording = sgrad_array_grow(reel->recording, reel->count, sizeof *reel->recording);
        oldest = &reel->recording[reel->count++];
    } else
        for (struct recording *r = reel->recording; r < reel->recording + MOST; r++)
            if (!r->graph && (!oldest || r->used < oldest->used)) oldest = r;
    if (oldest) *oldest = (struct recording){ *place, NULL, reel->tasks };
}

void sgrad__cuda_run(const struct sgrad_bound_kernel *call, const struct sgrad_args *args) {
    struct reel **own = call->recordings ? &call->recordings->reel[sgrad__worker()] : NULL;
    if (own && !*own) *own = sgrad_xcalloc(1, sizeof **own);
    struct reel *reel = own ? *own : NULL;
    if (!reel || reel->off) {
        call->kernel->cuda(args);
        return;
    }
    struct place place = { .workspace = args->workspace, .first = args->first };
    for (int i = 0; i < call->operands; i++) place.data[i] = args->data[i];
    struct recording *known = find(reel, &place);
    *excuse = 0;
    reel->tasks++;
    if (known) known->used = reel->tasks;
    else remember(reel, &place);
    if (known && !known->graph) known->graph = record(call, args);
    if (known && known->graph && went(cudaGraphLaunch(known->graph, sgrad_cuda_stream()), "cudaGraphLaunch")) return;
    if (known) give_up(reel, call, args);
    else call->kernel->cuda(args);
}
#else
struct sgrad_recordings *sgrad__recordings_create(void) { return NULL; }
void sgrad__recordings_destroy(struct sgrad_recordings *recordings) { (void)recordings; }
void sgrad__cuda_run(const struct sgrad_bound_kernel *call, const struct sgrad_args *args) { call->kernel->cuda(args); }
#endif
