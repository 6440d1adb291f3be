/* onednn.h: a convolution or an inner product as a primitive of oneDNN. Private to codelets/.
 *
 * A *plan* is a primitive with its arguments: how each lies in our tensors, and how the primitive wants it. Where the two differ,
 * it passes through the workspace. A bf16 convolution, forward:
 *
 *     weight (K,R,S,C) f32 ── reorder ─> workspace: bf16, blocked as the primitive likes ─┐
 *     x (N,H,W,C) bf16 ───────────────────────────────────────────────────────────────────┼─> primitive ─> y (N,P,Q,K) bf16
 *     bias (K) f32 ───────────────────────────────────────────────────────────────────────┘
 *
 * Where bf16 is computed in f32, for want of instructions, our own code converts: oneDNN's takes longer than the layer. In the
 * steady state only pointers are set and primitives executed. */
#ifndef SGRAD_CODELETS_ONEDNN_H
#define SGRAD_CODELETS_ONEDNN_H

#include "codelets/layer.h"

#include <oneapi/dnnl/dnnl.h>

struct sgrad__onednn_plan {
    dnnl_primitive_t primitive;
    dnnl_memory_t scratchpad;     /* at the start of the workspace */
    struct sgrad__argument {
        dnnl_memory_t ours;       /* as the tensor lies; NULL: no such operand */
        dnnl_memory_t theirs;     /* as the primitive wants it, in the workspace; NULL: the same */
        dnnl_primitive_t reorder; /* ours to theirs, or theirs to ours for an output; NULL: they differ in type alone */
        int64_t count;            /* of elements, then; ours are bf16, theirs are floats */
        bool added;               /* theirs are added to ours */
        size_t offset;            /* of theirs in the workspace */
    } argument[SGRAD__PARTS];
    size_t workspace;             /* bytes, the first of them aligned */
    size_t packed;                /* bytes of the weight as the primitive wants it; 0: that is as it lies, or it is an output */
};

/* BLOCKED: images are computed in blocks of 16 channels, an inner product with the weight as oneDNN likes it best; else as they
 * lie. False: blocked, oneDNN has nothing fast for it. PLAN is zeros at first. */
bool sgrad__onednn_create(const struct sgrad__layer *layer, bool blocked, struct sgrad__onednn_plan *plan);
void sgrad__onednn_destroy(struct sgrad__onednn_plan *plan);

/* DATA are the layer's operands; ROOM is aligned and has the workspace's bytes. */
void sgrad__onednn_run(const struct sgrad__layer *layer, const struct sgrad__onednn_plan *plan, void *const data[], void *room);

/* c (m,n) = alpha a (m,k) b (k,n) + beta c, whose rows lie one after another; A_TURNED: a lies as (k,m), B_TURNED: b as (n,k). */
void sgrad__onednn_multiply(bool a_turned, bool b_turned, int64_t m, int64_t n, int64_t k, float alpha, const float *a,
                            const float *b, float beta, float *c);

/* TO becomes the WEIGHT as layers take it that come packed for the plan's. */
void sgrad__onednn_pack(const struct sgrad__onednn_plan *plan, const float *weight, void *to);

#endif
