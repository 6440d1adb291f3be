/* convolution.h: a convolution's task on a CUDA device, between conv2d_cuda.cu, where cuDNN's algorithms compute it, and
 * conv2d_graph_cuda.cu, where it may be part of a graph. Private to these. */
#ifndef SGRAD_CODELETS_CONVOLUTION_H
#define SGRAD_CODELETS_CONVOLUTION_H

#include <string>

#include "codelets/cuda.h"
#include "codelets/direct.h"
#include "codelets/pass.h"

/* What a plan is made for, and measured. Compared byte by byte, so padding has to be cleared. */
struct sgrad__convolution_key {
    size_t room; /* bytes that are cuDNN's own */
    int32_t pass, dtype, deterministic, tf32;
    struct shape shape;
};

struct sgrad__convolution {
    struct sgrad__convolution_key key;
    struct plan *plan;
    const struct sgrad_args *args;
    int x, w, y;    /* the operands that these, or their gradients, are */
    bool direct;    /* cuDNN does not support it */
    void *weight;   /* bf16: the weight, or its gradient, in the workspace; NULL: it is not rounded here */
    void *aside;    /* where what is added may be written first; NULL: nothing is added */
    float *vectors; /* SGRAD__VECTORS, of as many floats as there are channels, each VECTOR after the other */
    int64_t vector;
    void *room;
};
enum { SGRAD__VECTORS = 6 };

/* The task of ARGS. */
struct sgrad__convolution sgrad__convolution_of(enum sgrad__pass pass, const struct sgrad_args *args);

/* Does it by an algorithm of cuDNN's, or without cuDNN. */
void sgrad__convolution_apart(const struct sgrad__convolution *c);

/* Enqueues that its weight, in the type of the activations, becomes what sgrad__convolution_weight says; of backward-weight that
 * is where the gradient is written. */
void sgrad__convolution_round(const struct sgrad__convolution *c);
const void *sgrad__convolution_weight(const struct sgrad__convolution *c);

/* What a measurement holds for: this kind of GPU, this cuDNN, this pass on these shapes with this room. */
std::string sgrad__convolution_memo(const struct sgrad__convolution_key *key);

#endif
