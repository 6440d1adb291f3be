/* onednn.h: a convolution or an inner product as a primitive of oneDNN. Private to codelets/.
 *
 * A *plan* is a primitive and its arguments. An argument has two layouts: that of the tensor and that of the primitive. If these
 * differ, the data is converted in the workspace. Example: a bf16 convolution, forward:
 *
 *     weight (K,R,S,C) f32 ── reorder ─> workspace: bf16, blocked as oneDNN prefers ──────┐
 *     x (N,H,W,C) bf16 ───────────────────────────────────────────────────────────────────┼─> primitive ─> y (N,P,Q,K) bf16
 *     bias (K) f32 ───────────────────────────────────────────────────────────────────────┘
 *
 * On processors without bf16 instructions, bf16 layers are computed in F32. Then the library converts the data, because oneDNN's
 * conversion takes longer than the layer. Running a plan only sets pointers and executes primitives. */
#ifndef SGRAD_CODELETS_CPU_ONEDNN_H
#define SGRAD_CODELETS_CPU_ONEDNN_H

#include "codelets/cpu/layer.h"

#include <oneapi/dnnl/dnnl.h>

struct sgrad__onednn_plan {
    dnnl_primitive_t primitive;
    dnnl_memory_t scratchpad;     /* of the primitive, at the start of the workspace */
    struct sgrad__argument {
        dnnl_memory_t ours;       /* in the layout of the tensor; NULL: no such operand */
        dnnl_memory_t theirs;     /* in the layout of the primitive, in the workspace; NULL: the primitive uses ours */
        dnnl_primitive_t reorder; /* ours to theirs; of an output theirs to ours; NULL: only the types differ, or nothing */
        int64_t count;            /* elements to convert if only the types differ: ours is bf16, theirs float; else 0 */
        bool added;               /* theirs is added to ours */
        size_t offset;            /* of theirs in the workspace, in bytes */
    } argument[SGRAD__PARTS];
    size_t workspace;             /* bytes; starts at a multiple of SGRAD_LINE */
    size_t packed;                /* bytes of the weight in the primitive's layout; 0: same layout, or an output */
};

/* create builds the plan of algorithm blocked, or plain, of algorithms.h in *PLAN, which must be zeroed. It returns false, and
 * leaves *PLAN zeroed, if oneDNN has no fast kernel for algorithm blocked; plain also accepts oneDNN's slow reference kernel.
 * destroy frees the contents of *PLAN, which may be zeroed. If oneDNN fails otherwise, these functions log SGRAD_EDEVICE and
 * abort the program. */
bool sgrad__onednn_create(const struct sgrad__layer *layer, bool blocked, struct sgrad__onednn_plan *plan);
void sgrad__onednn_destroy(struct sgrad__onednn_plan *plan);

/* Computes the layer on the calling worker. DATA: the layer's operands; the last argument: plan->workspace bytes, aligned to
 * SGRAD_LINE. */
void sgrad__onednn_run(const struct sgrad__layer *layer, const struct sgrad__onednn_plan *plan, void *const data[], void *room);

/* c (m,n) = alpha·a (m,k) b (k,n) + beta·c, row-major without gaps. The first two arguments are true if a is stored as (k,m),
 * and b as (n,k). */
void sgrad__onednn_multiply(bool a_turned, bool b_turned, int64_t m, int64_t n, int64_t k, float alpha, const float *a,
                            const float *b, float beta, float *c);

/* Writes WEIGHT to TO in the primitive's layout, for layers whose .packed names the plan's layer. plan->packed, the size of TO
 * in bytes, must not be 0. */
void sgrad__onednn_pack(const struct sgrad__onednn_plan *plan, const float *weight, void *to);

#endif
