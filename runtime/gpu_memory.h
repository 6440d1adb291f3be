/* gpu_memory.h: blocks of a GPU's memory in which a program places its tensors itself, and copies between them and main memory.
 * Private to Stargrad.
 *
 *     StarPU      ├ weights ┤├ inputs ┤ …         allocates and frees each tensor when it is used
 *     a program   ├────────── block ──────────┤   tensors at fixed addresses, several in the same bytes at different times
 *
 * StarPU sees a tensor in a block as data whose first copy is on the GPU. It copies it to main memory if a CPU uses it, but never
 * evicts it. Without CUDA there is no GPU, and none of these functions may be called. */
#ifndef SGRAD_RUNTIME_GPU_MEMORY_H
#define SGRAD_RUNTIME_GPU_MEMORY_H

#include "runtime/runtime.h"

/* Bytes on a GPU beside the tensors and blocks: the workspace of cuBLAS, and small data of cuDNN and of each step. CUDA's own
 * memory, such as the code of kernels, is not included. */
enum { SGRAD_GPU_LIBRARIES = 40 << 20 };

/* Limits the memory of each GPU to BYTES, those of the libraries included: StarPU evicts its tensors, or fails, rather than use
 * more. Must be called before the context opens. A variable STARPU_LIMIT_CUDA_MEM of the user has precedence. */
void sgrad_gpu_memory_limit(size_t bytes);
/* Returns the bytes of memory of this process's first GPU; 0: there is none. */
double sgrad_gpu_memory(void);
/* Returns the bytes by which StarPU's memory on a GPU may exceed that of its tensors: it allocates small ones in chunks. */
double sgrad_gpu_memory_chunks(void);
int sgrad_gpu_worker(void);     /* index of the worker of the first GPU; below 0: there is none */
/* Creates a block of BYTES bytes, with any content, on the first GPU. sgrad_tensor_create_in creates tensors in it.
 * SGRAD_ENOMEM. */
int sgrad_gpu_block_create(const char *name, size_t bytes, struct sgrad_tensor **block);
/* Sets the bandwidths of copies from the first GPU to main memory and back, in bytes per second, as StarPU has measured them. */
void sgrad_gpu_bandwidths(double *from, double *to);

/* A stream of copies of one thread. open returns NULL if CUDA fails. close must be called by the same thread; NULL is allowed. */
struct sgrad_gpu_copier;
struct sgrad_gpu_copier *sgrad_gpu_copier_open(void);
void sgrad_gpu_copier_close(struct sgrad_gpu_copier *copier);
/* Copies BYTES bytes from or TO_GPU, and waits for the end. MEMORY is pinned main memory. Returns NULL, or CUDA's error. */
const char *sgrad_gpu_copy(struct sgrad_gpu_copier *copier, bool to_gpu, void *on_gpu, void *memory, size_t bytes);

#endif
