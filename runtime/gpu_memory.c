/* gpu_memory.c: blocks of a GPU's memory, and copies between them and main memory (gpu_memory.h). */
#include "config.h"
#include "runtime/environment.h"
#include "runtime/gpu_memory.h"
#include "runtime/internal.h"

#include <stdlib.h>
#include <string.h>
#include <starpu.h>

int sgrad_gpu_worker(void) { return starpu_worker_get_by_type(STARPU_CUDA_WORKER, 0); }

#ifdef SGRAD_HAVE_CUDA
#include <cuda_runtime.h>

double sgrad_gpu_memory(void) {
    size_t available, total;
    if (!starpu_cuda_worker_get_count()) return 0;
    if (cudaSetDevice(starpu_worker_get_devid(sgrad_gpu_worker())) || cudaMemGetInfo(&available, &total)) return 0;
    return (double)total;
}

int sgrad_gpu_block_create(const char *name, size_t bytes, struct sgrad_tensor **block) {
    struct sgrad_tensor *t = sgrad_xcalloc(1, sizeof *t);
    t->name = sgrad_format("%s", name);
    t->view = (struct sgrad_view){ SGRAD_U8, { 1, { (int64_t)bytes } } };
    t->lifetime = SGRAD_PERSISTENT;
    t->node = (int)starpu_worker_get_memory_node((unsigned)sgrad_gpu_worker());
    t->home = (void *)starpu_malloc_on_node((unsigned)t->node, bytes);
    if (!t->home) {
        free(t->name);
        free(t);
        return sgrad_log_error(SGRAD_ENOMEM,
                               "%s: no memory for %.2f MB on the GPU; other programs may use it: give a lower --gpu-memory", name,
                               1e-6 * (double)bytes);
    }
    starpu_variable_data_register(&t->handle, t->node, (uintptr_t)t->home, bytes);
    starpu_data_set_name(t->handle, t->name);
    *block = t;
    return 0;
}

void sgrad_gpu_bandwidths(double *from, double *to) {
    static const double SUPPOSED = 10e9;    /* if StarPU has measured nothing: PCIe 3 with 16 lanes */
    const unsigned node = starpu_worker_get_memory_node((unsigned)sgrad_gpu_worker());
    *from = 1e6 * starpu_transfer_bandwidth(node, STARPU_MAIN_RAM);
    *to = 1e6 * starpu_transfer_bandwidth(STARPU_MAIN_RAM, node);
    if (!(*from > 0)) *from = SUPPOSED;
    if (!(*to > 0)) *to = SUPPOSED;
}

struct sgrad_gpu_copier {
    cudaStream_t stream;
};

struct sgrad_gpu_copier *sgrad_gpu_copier_open(void) {
    struct sgrad_gpu_copier *copier = sgrad_xcalloc(1, sizeof *copier);
    if (!cudaSetDevice(starpu_worker_get_devid(sgrad_gpu_worker())) &&
        !cudaStreamCreateWithFlags(&copier->stream, cudaStreamNonBlocking))
        return copier;
    free(copier);
    return NULL;
}

void sgrad_gpu_copier_close(struct sgrad_gpu_copier *copier) {
    if (copier) cudaStreamDestroy(copier->stream);
    free(copier);
}

const char *sgrad_gpu_copy(struct sgrad_gpu_copier *copier, bool to_gpu, void *on_gpu, void *memory, size_t bytes) {
    cudaError_t status = to_gpu ? cudaMemcpyAsync(on_gpu, memory, bytes, cudaMemcpyHostToDevice, copier->stream)
                                : cudaMemcpyAsync(memory, on_gpu, bytes, cudaMemcpyDeviceToHost, copier->stream);
    if (!status) status = cudaStreamSynchronize(copier->stream);
    return status ? cudaGetErrorString(status) : NULL;
}
#else
double sgrad_gpu_memory(void) { return 0; }
int sgrad_gpu_block_create(const char *name, size_t bytes, struct sgrad_tensor **block) {
    return (void)bytes, (void)block, sgrad_log_error(SGRAD_EDEVICE, "%s: Stargrad was built without CUDA", name);
}
void sgrad_gpu_bandwidths(double *from, double *to) { *from = *to = 0; }
struct sgrad_gpu_copier *sgrad_gpu_copier_open(void) { return NULL; }
void sgrad_gpu_copier_close(struct sgrad_gpu_copier *copier) { (void)copier; }
const char *sgrad_gpu_copy(struct sgrad_gpu_copier *copier, bool to_gpu, void *on_gpu, void *memory, size_t bytes) {
    return (void)copier, (void)to_gpu, (void)on_gpu, (void)memory, (void)bytes, "Stargrad was built without CUDA";
}
#endif

void sgrad_gpu_memory_limit(size_t bytes) {
    enum { MIB = 1 << 20 };
    char *text = sgrad_format("%zu", bytes > SGRAD_GPU_LIBRARIES + MIB ? (bytes - SGRAD_GPU_LIBRARIES) / MIB : 1);
    setenv("STARPU_LIMIT_CUDA_MEM", text, 0);
    free(text);
}

double sgrad_gpu_memory_chunks(void) {
    static const double CHUNK = 32 << 20;   /* of StarPU's suballocator; the last one of each size is not full */
    const char *used = sgrad_variable("STARPU_SUBALLOCATOR");
    return used && !atoi(used) ? 0 : 2 * CHUNK;
}
