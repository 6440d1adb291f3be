/* devices.c: the library handles of each worker: oneDNN, CUDA, cuDNN, cuBLAS. Each is created on the worker's first use. */
#include "config.h"
#include "runtime/handles.h"
#include "runtime/internal.h"
#include "runtime/runtime.h"

#include <oneapi/dnnl/dnnl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <starpu.h>
#ifdef SGRAD_HAVE_CUDA
#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <cudnn.h>
#include <starpu_cuda.h>
#include <time.h>
#endif

_Static_assert(STARPU_NMAXWORKERS <= SGRAD_MAX_WORKERS, "StarPU was built for more workers than SGRAD_MAX_WORKERS; raise it in "
                                                        "runtime/runtime.h");

struct handles {
    dnnl_stream_t dnnl;
#ifdef SGRAD_HAVE_CUDA
    cudnnHandle_t cudnn;
    cublasHandle_t cublas;
    void *room;                                 /* the workspace of cuBLAS */
    struct sgrad_step *step;                    /* in device memory */
    unsigned char (*sent)[SGRAD_STEP_BYTES];    /* ring of sources for copies to it; pinned: asynchronous */
    unsigned copies;
#endif
};
static struct handles handles[SGRAD_MAX_WORKERS + 1];
static dnnl_engine_t engine;
static pthread_once_t engine_once = PTHREAD_ONCE_INIT;

int sgrad__worker(void) {
    int worker = starpu_is_initialized() ? starpu_worker_get_id() : -1;
    return worker < 0 ? SGRAD_MAX_WORKERS : worker;
}

/* Aborts the program unless MADE, because kernels require these handles. */
static void must(bool made, const char *what, const char *why) {
    if (made) return;
    sgrad_log_error(SGRAD_EDEVICE, "%s cannot be created: %s; see 'stargrad doctor'", what, why);
    abort();
}

static void make_engine(void) {
    sgrad_isa();    /* must precede the first use of oneDNN, which cannot be limited afterwards */
    must(dnnl_engine_create(&engine, dnnl_cpu, 0) == dnnl_success, "oneDNN's engine",
         "out of memory, or the CPU is not supported");
}

struct dnnl_engine *sgrad_dnnl_engine(void) {
    pthread_once(&engine_once, make_engine);
    return engine;
}

struct dnnl_stream *sgrad_dnnl_stream(void) {
    struct handles *h = &handles[sgrad__worker()];
    if (!h->dnnl)
        must(dnnl_stream_create(&h->dnnl, sgrad_dnnl_engine(), dnnl_stream_default_flags) == dnnl_success, "oneDNN's stream",
             "out of memory");
    return h->dnnl;
}

#ifdef SGRAD_HAVE_CUDA
enum { CUBLAS_ROOM = 32 << 20 };    /* bytes: the default of cuBLAS on Hopper GPUs; on others it is 4 MiB */

int sgrad__cuda_devices(void) {
    int count = 0;
    return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

struct CUstream_st *sgrad_cuda_stream(void) { return starpu_cuda_get_local_stream(); }

struct cudnnContext *sgrad_cudnn(void) {
    struct handles *h = &handles[sgrad__worker()];
    if (h->cudnn) return h->cudnn;
    cudnnStatus_t status = cudnnCreate(&h->cudnn);
    if (!status) status = cudnnSetStream(h->cudnn, sgrad_cuda_stream());
    must(!status, "cuDNN's handle", cudnnGetErrorString(status));
    return h->cudnn;
}

struct cublasContext *sgrad_cublas(void) {
    struct handles *h = &handles[sgrad__worker()];
    if (h->cublas) return h->cublas;
    cublasStatus_t status = cublasCreate(&h->cublas);
    if (!status) status = cublasSetStream(h->cublas, sgrad_cuda_stream());
    /* The internal workspace would be included in every recording (cuBLAS, "CUDA Graphs Support"). */
    if (!status && cudaMalloc(&h->room, CUBLAS_ROOM) == cudaSuccess) status = cublasSetWorkspace(h->cublas, h->room, CUBLAS_ROOM);
    must(!status, "cuBLAS's handle", cublasGetStatusString(status));
    return h->cublas;
}

/* A copy ends before the task that needs it, so at most as many copies are in progress as a worker has started tasks. */
const struct sgrad_step *sgrad__cuda_step(const struct sgrad_step *step) {
    enum { TURNS = 16 };    /* a worker of StarPU has at most four started tasks */
    struct handles *h = &handles[sgrad__worker()];
    cudaError_t status = cudaSuccess;
    if (!step) return NULL;
    if (!h->step) status = cudaMalloc((void **)&h->step, SGRAD_STEP_BYTES);
    if (!status && !h->sent) status = cudaHostAlloc((void **)&h->sent, TURNS * sizeof *h->sent, cudaHostAllocDefault);
    if (!status && (!h->copies || memcmp(h->sent[(h->copies - 1) % TURNS], step, SGRAD_STEP_BYTES) != 0)) {
        void *from = memcpy(h->sent[h->copies++ % TURNS], step, SGRAD_STEP_BYTES);
        status = cudaMemcpyAsync(h->step, from, SGRAD_STEP_BYTES, cudaMemcpyHostToDevice, sgrad_cuda_stream());
    }
    if (status) sgrad_cuda_fail(cudaGetErrorString(status), "the copy of a step's parameters to the GPU");
    return h->step;
}

/* ---- faults --------------------------------------------------------------------------------------------------------
 *
 * A fault of a kernel becomes visible only after its worker has started other tasks. A StarPU that was built without debugging
 * takes it for "not ready" and waits forever. Therefore a separate thread, the watchdog, checks every device periodically:
 *
 *     worker     task a ── task b ── (waits for b) ·······································
 *     watchdog       checks         checks         checks: the device has failed ─> logs b and a, ends the program
 *
 * A device that has failed returns its error from every call, so the watchdog queries a separate stream on it. It must not query
 * the streams of the workers, because that would invalidate graphs that they record. */

enum { IN_FLIGHT = 2 };     /* started tasks of a worker that have not ended (STARPU_CUDA_PIPELINE) */
static const long every = 100 * 1000 * 1000;    /* nanoseconds between two checks */
static struct begun {
    pthread_mutex_t lock;
    char name[IN_FLIGHT][96];       /* the most recent first */
} begun[SGRAD_MAX_WORKERS + 1];
static struct {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool runs, ends;
} watchdog = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

void sgrad__cuda_begin(const char *name) {
    struct begun *b = &begun[sgrad__worker()];
    pthread_mutex_lock(&b->lock);
    memmove(b->name[1], b->name[0], sizeof b->name[0] * (IN_FLIGHT - 1));
    snprintf(b->name[0], sizeof b->name[0], "%s", name);
    pthread_mutex_unlock(&b->lock);
}

/* Ends the program with an error that names the tasks that WORKER had started. */
static void fail_in(int worker, const char *why, const char *where) __attribute__((noreturn));
static void fail_in(int worker, const char *why, const char *where) {
    struct begun *b = &begun[worker];
    pthread_mutex_lock(&b->lock);
    sgrad_log_error(SGRAD_EDEVICE, "CUDA: %s, in %s, task %s%s%s%s", why, where, *b->name[0] ? b->name[0] : "(none)",
                    *b->name[1] ? " or, before it, " : "", b->name[1],
                    *b->name[1] ? "; set CUDA_LAUNCH_BLOCKING=1 STARPU_CUDA_PIPELINE=0 to find out which" : "");
    abort();
}

void sgrad_cuda_fail(const char *why, const char *where) { fail_in(sgrad__worker(), why, where); }

/* Creates a stream for the watchdog on the device of each CUDA worker; NULL: that failed. */
static void open_streams(cudaStream_t *stream, int workers) {
    for (int i = 0; i < workers; i++) {
        const int worker = starpu_worker_get_by_type(STARPU_CUDA_WORKER, i);
        stream[i] = NULL;
        if (cudaSetDevice(starpu_worker_get_devid(worker)) == cudaSuccess)
            cudaStreamCreateWithFlags(&stream[i], cudaStreamNonBlocking);
    }
}

static void look(const cudaStream_t *stream, int workers) {
    for (int i = 0; i < workers; i++) {
        const int worker = starpu_worker_get_by_type(STARPU_CUDA_WORKER, i);
        if (!stream[i]) continue;
        cudaSetDevice(starpu_worker_get_devid(worker));
        const cudaError_t status = cudaStreamQuery(stream[i]);
        if (status != cudaSuccess && status != cudaErrorNotReady) fail_in(worker, cudaGetErrorString(status), "a kernel");
    }
}

/* Waits until the next check. Returns false if the watchdog must end. */
static bool wait_to_look(void) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += every;
    until.tv_sec += until.tv_nsec / 1000000000, until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&watchdog.lock);
    while (!watchdog.ends && pthread_cond_timedwait(&watchdog.changed, &watchdog.lock, &until) == 0) continue;
    const bool goes_on = !watchdog.ends;
    pthread_mutex_unlock(&watchdog.lock);
    return goes_on;
}

static void *watch(void *arg) {
    cudaStream_t stream[STARPU_NMAXWORKERS];
    const int workers = (int)starpu_cuda_worker_get_count();
    (void)arg;
    open_streams(stream, workers);
    while (wait_to_look()) look(stream, workers);
    for (int i = 0; i < workers; i++)
        if (stream[i]) cudaStreamDestroy(stream[i]);
    return NULL;
}

void sgrad__devices_open(void) {
    for (int w = 0; w <= SGRAD_MAX_WORKERS; w++) begun[w] = (struct begun){ .lock = PTHREAD_MUTEX_INITIALIZER };
    watchdog.ends = false;
    watchdog.runs = starpu_cuda_worker_get_count() > 0 && pthread_create(&watchdog.thread, NULL, watch, NULL) == 0;
}

static void stop_looking(void) {
    if (!watchdog.runs) return;
    pthread_mutex_lock(&watchdog.lock);
    watchdog.ends = true;
    pthread_cond_signal(&watchdog.changed);
    pthread_mutex_unlock(&watchdog.lock);
    pthread_join(watchdog.thread, NULL);
    watchdog.runs = false;
}

/* Destroys the handles. Their device must be the current one of the thread. */
static void close_cuda(struct handles *handles, int worker) {
    if (handles->cudnn || handles->cublas || handles->step) starpu_cuda_set_device((unsigned)starpu_worker_get_devid(worker));
    if (handles->cudnn) cudnnDestroy(handles->cudnn);
    if (handles->cublas) cublasDestroy(handles->cublas);
    if (handles->room) cudaFree(handles->room);
    if (handles->step) cudaFree(handles->step);
    if (handles->sent) cudaFreeHost(handles->sent);
}
#else
int sgrad__cuda_devices(void) { return SGRAD_SIMULATED ? sgrad__simulation_gpus() : 0; }
void sgrad__cuda_begin(const char *name) { (void)name; }
const struct sgrad_step *sgrad__cuda_step(const struct sgrad_step *step) { return step; }
void sgrad__devices_open(void) {}
static void stop_looking(void) {}
static void close_cuda(struct handles *handles, int worker) { (void)handles, (void)worker; }
#endif

void sgrad__devices_close(void) {
    stop_looking();
    for (int w = 0; w <= SGRAD_MAX_WORKERS; w++) {
        if (handles[w].dnnl) dnnl_stream_destroy(handles[w].dnnl);
        close_cuda(&handles[w], w);
        handles[w] = (struct handles){ 0 };
    }
}
