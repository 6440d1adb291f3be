/* convolution.h: the task of a convolution on a CUDA device: the interface between conv2d_cuda.cu, which computes it with
 * cuDNN's algorithms, and conv2d_graph_cuda.cu, which may fuse it with other tasks in a cuDNN graph. Private to these files. */
#ifndef SGRAD_CODELETS_CUDA_CONVOLUTION_H
#define SGRAD_CODELETS_CUDA_CONVOLUTION_H

#include <string>

#include "codelets/cuda/cuda.h"
#include "codelets/cuda/direct.h"
#include "codelets/pass.h"

/* The key of a plan and of its measurement. It is compared bytewise, so its padding must be zeroed. */
struct sgrad__convolution_key {
    size_t room;                              /* bytes of the workspace that cuDNN may use */
    int32_t pass, dtype, deterministic, tf32; /* enum sgrad__pass; type of activations; as in struct sgrad_args */
    struct shape shape;
};

/* A task: its plan, and the sections of its workspace. */
struct sgrad__convolution {
    struct sgrad__convolution_key key;
    struct plan *plan;
    const struct sgrad_args *args;
    int x, w, y;    /* indices of the operands x, weight and y, or of their gradients */
    bool direct;    /* cuDNN does not support the task; it is computed by direct.h */
    void *weight;   /* for the weight, or its gradient, in bf16; NULL: the task does not convert it */
    void *aside;    /* for a result that is then added to the output; NULL: the output is overwritten */
    float *vectors; /* SGRAD__VECTORS arrays with one float per channel, VECTOR floats apart, for graphs */
    int64_t vector;
    void *room; /* cuDNN's workspace, of the size in the key */
};
enum { SGRAD__VECTORS = 6 };

/* Returns the index of the operand that the task writes. */
static inline int sgrad__convolution_output(const struct sgrad__convolution *convolution) {
    if (convolution->key.pass == SGRAD__FORWARD) return convolution->y;
    return convolution->key.pass == SGRAD__BACKWARD_DATA ? convolution->x : convolution->w;
}

/* Returns the task of ARGS. The first task of a shape on a worker creates the plan, and measures cuDNN's algorithms unless the
 * run is deterministic or the tuning cache has the result. The plan lives until the context closes. If the workspace is too
 * small, the program is aborted. */
struct sgrad__convolution sgrad__convolution_of(enum sgrad__pass pass, const struct sgrad_args *args);

/* Enqueues the whole task, forward with its bias, by an algorithm of cuDNN, or by direct.h. */
void sgrad__convolution_unfused(const struct sgrad__convolution *convolution);

/* sgrad__convolution_round enqueues the conversion of the weight to the type of the activations, if it has another type.
 * sgrad__convolution_weight returns the address of the weight in that type, which is filled by the conversion; in
 * backward-weight, the address to which the gradient must be written in that type. */
void sgrad__convolution_round(const struct sgrad__convolution *convolution);
const void *sgrad__convolution_weight(const struct sgrad__convolution *convolution);

/* Returns the measurement's key in the tuning cache: model of the GPU, version of cuDNN, pass, types, shapes, workspace size. */
std::string sgrad__convolution_memo(const struct sgrad__convolution_key *key);

#endif
