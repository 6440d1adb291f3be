/* fusion.h: the task of several fused operations. Private to graphs/compiler/. */
#ifndef SGRAD_GRAPHS_COMPILER_PASSES_FUSION_H
#define SGRAD_GRAPHS_COMPILER_PASSES_FUSION_H

#include "graphs/compiler/program.h"

/* Limits of a task: operations on CPUs; operations on GPUs; buffers. */
enum { SGRAD__LINKS = 12, SGRAD__GPU_LINKS = 96, SGRAD__BUFFERS = SGRAD_MAX_OPERANDS + SGRAD__LINKS };

/* The attributes of a fused task: operations (links) that run one after another for each slice of the samples. */
struct sgrad__fusion {
    int links, slices;                              /* number of each; slices differ by at most one sample, larger ones first */
    int64_t samples;                                /* of all slices */
    bool backwards;                                 /* slices are processed from the last to the first */
    double flops;
    size_t workspace, gpu_workspace;
    int inner;                                      /* number of buffers in the workspace, each for one slice */
    size_t room[SGRAD__BUFFERS + 1];                /* their offsets; then the offset of the workspace for the links */
    size_t row[SGRAD_MAX_OPERANDS];                 /* per operand of the task: bytes of a sample; 0: it has none */
    uint64_t own;                                   /* bit i: only this task uses operand i; its previous content is not used */
    struct sgrad__link {
        const struct sgrad_bound_kernel *whole;     /* the call for all samples */
        /* slice[i][j]: the call for a larger (i = 0) or smaller (1) slice; j = 0: for the first slice, 1: for later ones, which
         * add to sums. */
        const struct sgrad_bound_kernel *slice[2][2];
        int operand[SGRAD_MAX_OPERANDS];            /* of the task; from SGRAD_MAX_OPERANDS on: in the workspace; -1: absent */
        int with;                                   /* number of links that follow and are done by the same launch */
    } link[SGRAD__GPU_LINKS];
};

/* Returns true if both do the same operations on the same buffers. */
bool sgrad__fusion_same(const struct sgrad__fusion *one, const struct sgrad__fusion *other);
/* For the links of a GPU task. Moves the first consumer of a link's output directly after this link, if the consumer is
 * independent of the links between and the link's kernel may run both (cuda_fused). Moves independent links of one kernel with
 * .batched next to each other, and sets .with, so that one launch does them. */
void sgrad__fusion_gather(struct sgrad__fusion *fusion);
/* Returns the kernel that runs fused tasks of KIND, on CPUs only or, if CUDA is set, on CPUs and GPUs. */
const struct sgrad_kernel *sgrad__fusion_kernel(const struct sgrad_kind *kind, bool cuda);
/* Returns the maximum number of samples of a slice. */
static inline int64_t sgrad__fusion_slice(const struct sgrad__fusion *fusion) {
    return (fusion->samples + fusion->slices - 1) / fusion->slices;
}

#endif
