/* handles.h: what a kernel finds of its worker: the libraries' handles, made once. Called from inside a kernel only. */
#ifndef SGRAD_RUNTIME_HANDLES_H
#define SGRAD_RUNTIME_HANDLES_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

struct dnnl_engine;
struct dnnl_stream;
struct dnnl_engine *sgrad_dnnl_engine(void);        /* dnnl_engine_t */
struct dnnl_stream *sgrad_dnnl_stream(void);        /* dnnl_stream_t: one thread, in order */

struct CUstream_st;
struct cudnnContext;
struct cublasContext;
struct CUstream_st *sgrad_cuda_stream(void);        /* cudaStream_t */
struct cudnnContext *sgrad_cudnn(void);             /* cudnnHandle_t, on that stream */
struct cublasContext *sgrad_cublas(void);           /* cublasHandle_t, on that stream */
/* Ends the program, after a line that names the worker's task: what comes after a failed launch means nothing. */
void sgrad_cuda_fail(const char *why, const char *where) __attribute__((noreturn));
bool sgrad_cuda_excuses(const char *why, const char *where);   /* does it end no more than a recording of the task? */

#ifdef __cplusplus
}
#endif
#endif
