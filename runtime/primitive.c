/* primitive.c: measures the time of a call on each worker without other load, which is a lower bound for any schedule. */
#include "config.h"
#include "runtime/handles.h"
#include "runtime/internal.h"
#include "runtime/runtime.h"

#include <math.h>
#include <stdlib.h>
#include <starpu.h>
#include <string.h>
#ifdef SGRAD_HAVE_CUDA
#include <cuda_runtime.h>
#include <starpu_cuda.h>
#endif

enum { LEAST_TIMES = 4, MOST_TIMES = 400 };
static const double ENOUGH = 15e-3;     /* seconds */

struct trial {
    const struct sgrad_bound_kernel *call;
    const struct sgrad_step *step;
    double *seconds;
};

/* The time of a kernel in seconds: by the clock of the host; and, on a GPU, between two events on its stream, which excludes the
 * launch. On a CPU both are equal. */
struct took {
    double host, device;
};

/* Fills DATA with numbers of normal size, because kernels may skip zeros, and are slower with denormal numbers. */
static void fill(void *data, const struct sgrad_view *view) {
    const int64_t count = sgrad_shape_count(&view->shape);
    memset(data, 0, sgrad_view_bytes(view));
    for (int64_t i = 0; i < count; i++) {
        const float value = 0.25f + (float)(i * 2654435761 >> 7 & 1023) / 1024;
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        if (view->dtype == SGRAD_F32) ((float *)data)[i] = value;
        else if (view->dtype == SGRAD_F64) ((double *)data)[i] = 1;
        else if (view->dtype == SGRAD_BF16) ((uint16_t *)data)[i] = (uint16_t)(bits >> 16);
        else if (view->dtype == SGRAD_U8) ((uint8_t *)data)[i] = (uint8_t)(i * 2654435761 >> 7);
    }
}

static void *put(const struct sgrad_view *view, unsigned node) {
    const size_t bytes = sgrad_view_bytes(view);
    void *data = (void *)starpu_malloc_on_node(node, bytes);
    if (!data || starpu_node_get_kind(node) == STARPU_CPU_RAM) {
        if (data) fill(data, view);
        return data;
    }
#ifdef SGRAD_HAVE_CUDA
    void *host = sgrad_xcalloc(bytes, 1);
    fill(host, view);
    cudaMemcpy(data, host, bytes, cudaMemcpyHostToDevice);
    free(host);
#endif
    return data;
}

/* Allocates and fills the packed operand of KERNEL. Sets *BYTES to its size. NULL: no memory. */
static void *put_packed(const struct sgrad_bound_kernel *kernel, unsigned node, size_t *bytes) {
    const struct sgrad_args args = sgrad_bound_kernel_args(kernel);
    const struct sgrad_view *view = &kernel->view[kernel->kernel->weight_operand];
    void *from = put(view, node), *to = NULL;
    kernel->kernel->pack_layout(&args, bytes);
    if (from) to = (void *)starpu_malloc_on_node(node, *bytes);
    if (to) kernel->kernel->pack(&args, from, to);
    if (from) starpu_free_on_node(node, (uintptr_t)from, sgrad_view_bytes(view));
    return to;
}

#ifdef SGRAD_HAVE_CUDA
static struct took run_on_gpu(void (*kernel)(const struct sgrad_args *args), const struct sgrad_args *args) {
    const double start = starpu_timing_now();
    cudaStream_t stream = starpu_cuda_get_local_stream();
    cudaEvent_t begin = NULL, end = NULL;
    float ms = 0;
    cudaError_t status = cudaEventCreateWithFlags(&begin, cudaEventDefault);
    if (!status) status = cudaEventCreateWithFlags(&end, cudaEventDefault);
    if (!status) status = cudaEventRecord(begin, stream);
    if (!status) kernel(args);
    if (!status) status = cudaEventRecord(end, stream);
    if (!status) status = cudaEventSynchronize(end);
    if (!status) status = cudaEventElapsedTime(&ms, begin, end);
    if (status) sgrad_cuda_fail(cudaGetErrorString(status), "a time measurement");
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    return (struct took){ 1e-6 * (starpu_timing_now() - start), 1e-3 * ms };
}
#endif

static struct took run_once(void (*kernel)(const struct sgrad_args *args), const struct sgrad_args *args, bool cuda) {
#ifdef SGRAD_HAVE_CUDA
    if (cuda) return run_on_gpu(kernel, args);
#else
    (void)cuda;
#endif
    const double start = starpu_timing_now();
    kernel(args);
    const double took = 1e-6 * (starpu_timing_now() - start);
    return (struct took){ took, took };
}

static double least_of_many(void (*kernel)(const struct sgrad_args *args), const struct sgrad_args *args, bool cuda) {
    double least = INFINITY, all = 0;
    run_once(kernel, args, cuda);       /* fills the caches of primitives */
    for (int i = 0; i < MOST_TIMES && (i < LEAST_TIMES || all < ENOUGH); i++) {
        const struct took took = run_once(kernel, args, cuda);
        least = fmin(least, took.device);
        all += took.host;
    }
    return least;
}

static void measure(void *arg) {
    const struct trial *t = arg;
    const struct sgrad_bound_kernel *c = t->call;
    const int worker = starpu_worker_get_id();
    const unsigned node = starpu_worker_get_memory_node((unsigned)worker);
    const bool cuda = starpu_worker_get_type(worker) == STARPU_CUDA_WORKER;
    void (*kernel)(const struct sgrad_args *args) = cuda ? c->kernel->cuda : c->kernel->cpu;
    void *data[SGRAD_MAX_OPERANDS] = { 0 };
    size_t size[SGRAD_MAX_OPERANDS] = { 0 };
    bool room = kernel != NULL;
    for (int i = 0; i < c->operands && room; i++) {
        if (c->view[i].shape.rank < 0) continue;
        const bool packed = !cuda && c->packing && i == c->kernel->weight_operand;
        size[i] = sgrad_view_bytes(&c->view[i]);
        room = (data[i] = packed ? put_packed(c, node, &size[i]) : put(&c->view[i], node)) != NULL;
    }
    struct sgrad_args args = sgrad_bound_kernel_args(c);
    args.data = data;
    args.step = cuda ? sgrad__cuda_step(t->step) : t->step;
    const size_t bytes = args.workspace_size = cuda ? c->gpu_workspace : c->workspace;
    if (room && bytes) room = (args.workspace = (void *)starpu_malloc_on_node(node, bytes)) != NULL;
    t->seconds[worker] = room ? least_of_many(kernel, &args, cuda) : INFINITY;
    if (args.workspace) starpu_free_on_node(node, (uintptr_t)args.workspace, bytes);
    for (int i = 0; i < c->operands; i++)
        if (data[i]) starpu_free_on_node(node, (uintptr_t)data[i], size[i]);
}

int sgrad_bound_kernel_time(const struct sgrad_bound_kernel *call, const struct sgrad_step *step, double *seconds) {
    return sgrad_bound_kernel_time_on(call, step, SGRAD_ANY_WORKER, seconds);
}

int sgrad_bound_kernel_time_on(const struct sgrad_bound_kernel *call, const struct sgrad_step *step, enum sgrad_workers workers,
                               double *seconds) {
    static const uint32_t where[] = { [SGRAD_ANY_WORKER] = STARPU_CPU | STARPU_CUDA,
                                      [SGRAD_CPU_WORKERS] = STARPU_CPU, [SGRAD_GPU_WORKERS] = STARPU_CUDA };
    struct trial trial = { call, step, seconds };
    SGRAD_TRY(sgrad_wait_all());
    starpu_execute_on_each_worker(measure, &trial, where[workers]);
    return sgrad_wait_all();
}

int sgrad_workers(void) { return (int)starpu_worker_get_count(); }
int sgrad_cuda_workers(void) { return starpu_is_initialized() ? (int)starpu_cuda_worker_get_count() : 0; }
