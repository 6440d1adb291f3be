/* fusion.h: the task that several operations are. Private to graphs/programs/. */
#ifndef SGRAD_GRAPHS_FUSION_H
#define SGRAD_GRAPHS_FUSION_H

#include "graphs/programs/program.h"

/* Of a task, at most: its operations, on CPUs and on GPUs, and what they use. */
enum { SGRAD__LINKS = 12, SGRAD__GPU_LINKS = 96, SGRAD__BUFFERS = SGRAD_MAX_OPERANDS + SGRAD__LINKS };

/* Operations, one after another, for each slice of the samples: a call's attributes. */
struct sgrad__fusion {
    int links, slices;                              /* as equal as can be, the larger ones first */
    int64_t samples;                                /* of all slices */
    bool backwards;                                 /* the last slice comes first */
    double flops;
    size_t workspace, gpu_workspace;
    int inner;                                      /* buffers in the workspace, each for one slice */
    size_t room[SGRAD__BUFFERS + 1];                /* where they begin; then the links' own workspace */
    size_t row[SGRAD_MAX_OPERANDS];                 /* of the task's operands: bytes of a sample; 0: they have none */
    uint64_t own;                                   /* bit i: nobody else uses operand i, whatever it held before */
    struct sgrad__link {
        const struct sgrad_call *whole;             /* on all samples */
        const struct sgrad_call *slice[2][2];       /* on a larger slice, a smaller one; each the first one, and later, where sums
                                                       are added to */
        int operand[SGRAD_MAX_OPERANDS];            /* of the task; from SGRAD_MAX_OPERANDS on: inner ones; -1: absent */
        int with;                                   /* so many of the next are done at once with this one */
    } link[SGRAD__GPU_LINKS];
};

/* The same operations, on the same buffers. */
bool sgrad__fusion_same(const struct sgrad__fusion *a, const struct sgrad__fusion *b);
/* Links of a GPU's task that are of one kernel, and could as well come one right after the other, do, and are done at once; so
 * does what a kernel could do with its own. */
void sgrad__fusion_gather(struct sgrad__fusion *fusion);
/* The kernel that runs one, for a kind of task, on CPUs alone or on both. */
const struct sgrad_kernel *sgrad__fusion_kernel(const struct sgrad_kind *kind, bool cuda);
/* Samples of a slice, at most. */
static inline int64_t sgrad__fusion_slice(const struct sgrad__fusion *f) { return (f->samples + f->slices - 1) / f->slices; }

#endif
