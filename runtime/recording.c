/* recording.c: what a task launches on a GPU, recorded once as a CUDA graph and launched as a whole from then on.
 *
 * A recording holds for the memory that the task had: it is looked for by the addresses of its operands. Such that come for the
 * first time may never come again, so the task launches what it launches, one by one, and makes on the way what it keeps (plans,
 * workspaces); the second time it is recorded, and every other time that is replayed:
 *
 *     step 1   x at 0x7e00…, w at 0x7e40…   launched: conv2d, stats, apply, conv2d, …
 *     step 2   the same                     recorded: conv2d, stats, apply, conv2d, …, and launched as one
 *     step 3   the same                     launched as one
 *     step 4   x elsewhere                  launched: conv2d, stats, apply, conv2d, …
 *
 * What differs from step to step, kernels read from a copy of the step in the device's memory. A worker has one such copy, and a
 * stream, which brings it up to date before the first task of another step.
 *
 * What cannot be recorded is launched one by one, after a warning. (CUDA programming guide, "Creating a graph using stream
 * capture": a capture that other threads cannot disturb, since it is of the stream of one thread, which does not synchronise with
 * the default one.) */
#include "config.h"
#include "runtime/handles.h"
#include "runtime/internal.h"
#include "runtime/runtime.h"

#ifdef SGRAD_HAVE_CUDA
#include <cuda_runtime.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 256 };    /* recordings of a call that a worker keeps: one call may be many tasks' */

/* Where a task's operands lie, its workspace, and the first of its samples. */
struct place {
    const void *data[SGRAD_MAX_OPERANDS], *workspace;
    int64_t first;
};

struct recording {
    struct place place;
    cudaGraphExec_t graph;      /* NULL: the place was seen once */
    long used;                  /* when: the number of the task */
};

/* Of one worker. */
struct reel {
    struct recording *recording;
    int count;
    long tasks;
    bool off;                   /* recording has failed */
};
struct sgrad_recordings {
    struct reel *reel[SGRAD_MAX_WORKERS + 1];
};

struct sgrad_recordings *sgrad__recordings_create(void) { return sgrad_alloc(1, sizeof(struct sgrad_recordings)); }

void sgrad__recordings_destroy(struct sgrad_recordings *r) {
    if (!r) return;
    for (int w = 0; w <= SGRAD_MAX_WORKERS; w++) {
        for (int i = 0; r->reel[w] && i < r->reel[w]->count; i++)
            if (r->reel[w]->recording[i].graph) cudaGraphExecDestroy(r->reel[w]->recording[i].graph);
        if (r->reel[w]) free(r->reel[w]->recording);
        free(r->reel[w]);
    }
    free(r);
}

/* ---- what goes wrong meanwhile ------------------------------------------------------------------------------------- */

static _Thread_local bool records;
static _Thread_local char excuse[200];     /* the first; "": there is none */

bool sgrad_cuda_excuses(const char *why, const char *where) {
    if (records && !*excuse) snprintf(excuse, sizeof excuse, "%s, in %s", why, where);
    return records;
}

/* ---- recording ----------------------------------------------------------------------------------------------------- */

static bool went(cudaError_t status, const char *what) {
    if (status != cudaSuccess && !*excuse) snprintf(excuse, sizeof excuse, "%s, in %s", cudaGetErrorString(status), what);
    return status == cudaSuccess;
}

/* NULL, with an excuse. */
static cudaGraphExec_t record(const struct sgrad_call *call, const struct sgrad_args *args) {
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

/* Where all is lost the launches themselves say so. */
static void give_up(struct reel *reel, const struct sgrad_call *call, const struct sgrad_args *args) {
    static atomic_flag warned = ATOMIC_FLAG_INIT;
    cudaGetLastError();     /* which is dealt with */
    reel->off = true;
    call->kernel->cuda(args);
    if (!atomic_flag_test_and_set(&warned))
        sgrad_warn("CUDA graphs: %s cannot be recorded: %s; what such tasks launch goes one by one", call->kernel->name, excuse);
}

/* The recording of PLACE; NULL: it was not seen before. */
static struct recording *find(struct reel *reel, const struct place *place) {
    for (struct recording *r = reel->recording; r < reel->recording + reel->count; r++)
        if (memcmp(&r->place, place, sizeof *place) == 0) return r;
    return NULL;
}

/* In the place of nobody, or of the one seen once that is the longest ago. Graphs stay, which may be under way. */
static void remember(struct reel *reel, const struct place *place) {
    struct recording *oldest = NULL;
    if (reel->count < MOST) {
        reel->recording = sgrad_grow(reel->recording, reel->count, sizeof *reel->recording);
        oldest = &reel->recording[reel->count++];
    } else
        for (struct recording *r = reel->recording; r < reel->recording + MOST; r++)
            if (!r->graph && (!oldest || r->used < oldest->used)) oldest = r;
    if (oldest) *oldest = (struct recording){ *place, NULL, reel->tasks };
}

void sgrad__cuda_run(const struct sgrad_call *call, const struct sgrad_args *args) {
    struct reel **own = call->recordings ? &call->recordings->reel[sgrad__worker()] : NULL;
    if (own && !*own) *own = sgrad_alloc(1, sizeof **own);
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
void sgrad__cuda_run(const struct sgrad_call *call, const struct sgrad_args *args) { call->kernel->cuda(args); }
#endif
