/* devices.c: the library handles of each worker: oneDNN, CUDA, cuDNN, cuBLAS. Made on a worker's first use of them. */
#include "config.h"
#include "runtime/internal.h"
#include "runtime/runtime.h"

#include <oneapi/dnnl/dnnl.h>
#include <pthread.h>
#include <stdlib.h>
#include <starpu.h>
#ifdef SGRAD_HAVE_CUDA
#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <cudnn.h>
#include <starpu_cuda.h>
#endif

_Static_assert(STARPU_NMAXWORKERS <= SGRAD_MAX_WORKERS, "StarPU was built for more workers than SGRAD_MAX_WORKERS of runtime.h");

struct handles {
    dnnl_stream_t dnnl;
#ifdef SGRAD_HAVE_CUDA
    cudnnHandle_t cudnn;
    cublasHandle_t cublas;
#endif
};
static struct handles handles[SGRAD_MAX_WORKERS + 1];
static dnnl_engine_t engine;
static pthread_once_t engine_once = PTHREAD_ONCE_INIT;

int sgrad__worker(void) {
    int worker = starpu_is_initialized() ? starpu_worker_get_id() : -1;
    return worker < 0 ? SGRAD_MAX_WORKERS : worker;
}

static void make_engine(void) {
    sgrad_isa();    /* before oneDNN's first use, after which it cannot be limited any more */
    if (dnnl_engine_create(&engine, dnnl_cpu, 0) != dnnl_success) abort();
}

struct dnnl_engine *sgrad_dnnl_engine(void) {
    pthread_once(&engine_once, make_engine);
    return engine;
}

struct dnnl_stream *sgrad_dnnl_stream(void) {
    struct handles *h = &handles[sgrad__worker()];
    if (!h->dnnl && dnnl_stream_create(&h->dnnl, sgrad_dnnl_engine(), dnnl_stream_default_flags) != dnnl_success) abort();
    return h->dnnl;
}

#ifdef SGRAD_HAVE_CUDA
int sgrad__cuda_devices(void) {
    int count = 0;
    return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

struct CUstream_st *sgrad_cuda_stream(void) { return starpu_cuda_get_local_stream(); }

struct cudnnContext *sgrad_cudnn(void) {
    struct handles *h = &handles[sgrad__worker()];
    if (!h->cudnn && (cudnnCreate(&h->cudnn) != CUDNN_STATUS_SUCCESS ||
                      cudnnSetStream(h->cudnn, sgrad_cuda_stream()) != CUDNN_STATUS_SUCCESS))
        abort();
    return h->cudnn;
}

struct cublasContext *sgrad_cublas(void) {
    struct handles *h = &handles[sgrad__worker()];
    if (!h->cublas && (cublasCreate(&h->cublas) != CUBLAS_STATUS_SUCCESS ||
                       cublasSetStream(h->cublas, sgrad_cuda_stream()) != CUBLAS_STATUS_SUCCESS))
        abort();
    return h->cublas;
}

/* Handles are of one device, which has to be the thread's when they go. */
static void close_cuda(struct handles *h, int worker) {
    if (h->cudnn || h->cublas) starpu_cuda_set_device((unsigned)starpu_worker_get_devid(worker));
    if (h->cudnn) cudnnDestroy(h->cudnn);
    if (h->cublas) cublasDestroy(h->cublas);
}
#else
int sgrad__cuda_devices(void) { return SGRAD_SIMULATED ? sgrad__simulation_gpus() : 0; }
static void close_cuda(struct handles *h, int worker) { (void)h, (void)worker; }
#endif

void sgrad__devices_close(void) {
    for (int w = 0; w <= SGRAD_MAX_WORKERS; w++) {
        if (handles[w].dnnl) dnnl_stream_destroy(handles[w].dnnl);
        close_cuda(&handles[w], w);
        handles[w] = (struct handles){ 0 };
    }
}
