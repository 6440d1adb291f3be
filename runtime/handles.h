/* handles.h: the library handles of a worker. Call these functions only inside a kernel.
 *
 * A handle is created at its first use and destroyed when the context closes: do not free it. If it cannot be created, the
 * program logs the reason and aborts. The CUDA functions exist only in builds with CUDA. */
#ifndef SGRAD_RUNTIME_HANDLES_H
#define SGRAD_RUNTIME_HANDLES_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

struct dnnl_engine;
struct dnnl_stream;
struct dnnl_engine *sgrad_dnnl_engine(void);        /* dnnl_engine_t of the CPU; one per process, never destroyed */
struct dnnl_stream *sgrad_dnnl_stream(void);        /* dnnl_stream_t of the worker: one thread, in order */

struct CUstream_st;
struct cudnnContext;
struct cublasContext;
struct CUstream_st *sgrad_cuda_stream(void);        /* cudaStream_t of the worker, owned by StarPU */
struct cudnnContext *sgrad_cudnn(void);             /* cudnnHandle_t, on that stream */
struct cublasContext *sgrad_cublas(void);           /* cublasHandle_t, on that stream */
/* Logs error WHY in WHERE with the worker's task and aborts the program: results after a failed launch are undefined. */
void sgrad_cuda_fail(const char *why, const char *where) __attribute__((noreturn));
/* Returns true if the worker is recording the task as a CUDA graph. The error WHY in WHERE then ends only the recording: the
 * caller must return, and the task is run again without a graph. If it returns false, call sgrad_cuda_fail. */
bool sgrad_cuda_excuses(const char *why, const char *where);

#ifdef __cplusplus
}
#endif
#endif
