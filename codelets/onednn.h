/* onednn.h: convolution and inner product through oneDNN, made once per shape and worker. Private to codelets/.
 *
 * A *plan* is one oneDNN primitive (or winograd.c) with its arguments: how each lies in our tensors, and how the primitive wants it.
 * Where the two differ, it passes through the workspace. A bf16 convolution, forward:
 *
 *     weight (K,R,S,C) f32 ── reorder ─> workspace: bf16, blocked as the primitive likes ─┐
 *     x (N,H,W,C) bf16 ───────────────────────────────────────────────────────────────────┼─> primitive ─> y (N,P,Q,K) bf16
 *     bias (K) f32 ───────────────────────────────────────────────────────────────────────┘
 *
 * In the steady state only pointers are set and primitives executed. */
#ifndef SGRAD_CODELETS_ONEDNN_H
#define SGRAD_CODELETS_ONEDNN_H

#include "codelets/kernels.h"

enum sgrad__pass { SGRAD__FORWARD, SGRAD__BACKWARD_DATA, SGRAD__BACKWARD_WEIGHT };

/* All that a plan depends on, and the key under which it is kept: no padding, so it compares byte by byte.
 * Operands, absent ones included:
 *     forward          x, weight, bias, y
 *     backward-data    dy, weight, dx
 *     backward-weight  x, dy, dweight, dbias */
struct sgrad__layer {
    int32_t pass;                              /* enum sgrad__pass */
    int32_t rank;                              /* 4: convolution, 2: inner product */
    int32_t dtype;                             /* of x, y and their gradients: SGRAD_F32 or SGRAD_BF16 */
    int32_t bias, accumulate, deterministic;   /* is there a bias; are outputs added to; may no measurement decide */
    int32_t stride, dilation, padding, groups; /* convolution only */
    int32_t x[4], w[4], y[4];                  /* (N,H,W,C), (K,R,S,C/groups), (N,P,Q,K); or (N,C), (K,C), (N,K) */
};

/* Fills what the views tell: everything but stride, dilation, padding and groups. */
struct sgrad__layer sgrad__layer_of(enum sgrad__pass pass, const struct sgrad_args *args);

size_t sgrad__layer_workspace(const struct sgrad__layer *layer);
double sgrad__layer_flops(const struct sgrad__layer *layer);
void sgrad__layer_run(const struct sgrad__layer *layer, const struct sgrad_args *args);

/* ---- ways to compute a layer -------------------------------------------------------------------------------------
 * plain      a convolution of images as they lie, channels-last, the weight as oneDNN likes it best; an inner product all as it lies
 * blocked    a convolution of images in blocks of 16 channels, which of 16 channels is the same but another kernel; an inner product
 *            with the weight as oneDNN likes it best
 * winograd   winograd.c: a quarter of the multiplications, rounding errors of 1e-6 of the largest output against 7e-7; gradients of bf16
 *            images, where the processor has instructions for them, with noise of 1.2 % of the root mean square */
enum sgrad__way { SGRAD__PLAIN, SGRAD__BLOCKED, SGRAD__WINOGRAD, SGRAD__WAYS };

/* Of tests: the way of all layers that can go it. SGRAD__WAYS: each its own. */
extern enum sgrad__way sgrad__way_forced;

/* ways.c: whether the layer can go that way, if oneDNN has the other two; and the way it goes. */
bool sgrad__way_open(const struct sgrad__layer *layer, enum sgrad__way way);
enum sgrad__way sgrad__way_of(const struct sgrad__layer *layer);

/* winograd.c: the third way. Its saving: how many times fewer multiplications than the plain way's. Data are the layer's operands; ROOM is
 * aligned and has the workspace's bytes. */
bool sgrad__winograd_open(const struct sgrad__layer *layer);
double sgrad__winograd_saving(const struct sgrad__layer *layer);
size_t sgrad__winograd_workspace(const struct sgrad__layer *layer);
void sgrad__winograd_run(const struct sgrad__layer *layer, void *const data[], float *room);

/* onednn.c: does oneDNN use all these instructions (of dnnl_cpu_isa_t) here? */
bool sgrad__has_isa(unsigned isa);

/* onednn.c: seconds that the layer takes each way, at best, on fewer samples where they are many. INFINITY: oneDNN has no such way.
 * Of a way that takes far more than another, the figure is rough. */
void sgrad__ways_time(const struct sgrad__layer *layer, double seconds[SGRAD__WAYS]);

#endif
