/* chains.h: selects the instructions that become one task. Private to graphs/compiler/. */
#ifndef SGRAD_GRAPHS_COMPILER_PASSES_CHAINS_H
#define SGRAD_GRAPHS_COMPILER_PASSES_CHAINS_H

#include "graphs/compiler/builder.h"
#include "graphs/compiler/passes/fusion.h"

struct sgrad__task_made;

/* A chain: instructions (links) that become one task, at the position of the first one. */
struct sgrad__chain {
    int start, links, link[SGRAD__GPU_LINKS];
    const struct sgrad_kind *kind;
    bool backwards, sliced, gpus;
    const struct sgrad__chain *repeats;     /* the chain that this one recomputes; NULL: it is not a recomputation */
    double flops;
    const void *heavy;                      /* attributes of its only layer with more flops than bytes; NULL: none yet */
    int touched;
    struct sgrad__touched {
        int buffer, times, links, last;     /* number of uses; number of links that use it; the last such link */
        struct sgrad_view view;             /* the view that kernels get: packed, if it is a packed factor */
        bool rows, written, first_written;
    } buffer[SGRAD__BUFFERS];               /* operands of the task, and buffers that only its links use */
};

/* The last writer and the last reader of a buffer so far. The index of a link is that of the first link of its chain. */
struct sgrad__accesses {
    int write, read;
};

struct sgrad__fuser {
    struct sgrad_builder *b;
    struct sgrad__program *p;
    struct sgrad__chain **chain;            /* by instruction; NULL: it is not fused */
    struct sgrad__accesses *history;        /* by buffer */
    struct sgrad__chain **open;             /* chain that may grow, by micro-batch; for updates; for sums, by GPU (0: any);
                                               NULL: none */
    int *uses;                              /* by buffer: number of uses in the whole program */
    int *again;                             /* by buffer: the instruction that recomputes it; -1: none */
    struct sgrad__instruction *list;        /* the new program */
    int count;
    bool *put;                              /* by instruction: it, or the chain that begins with it, is in the new program */
    struct sgrad__task_made *made[256];     /* hash table by the first link; of fuse.c */
};

/* Return true if operand I is written; if it has a row per sample. */
static inline bool sgrad__writes(const struct sgrad_bound_kernel *call, int i) { return call->access[i] != SGRAD_R; }
static inline bool sgrad__has_rows(const struct sgrad_bound_kernel *call, int i) { return call->rows >> i & 1; }
/* Returns true if CALL writes an operand without samples. */
bool sgrad__leaves_sums(const struct sgrad_bound_kernel *call);
/* owns: returns true if only the chain uses the buffer, in TIMES operands. hides: the same, and the buffer need not exist outside
 * the task. */
bool sgrad__chain_owns(const struct sgrad__fuser *fuser, const struct sgrad__touched *touched, int times);
bool sgrad__chain_hides(const struct sgrad__fuser *fuser, const struct sgrad__chain *chain, const struct sgrad__touched *touched,
                        int times);
/* Sets fuser->chain, uses and again, whose memory must exist. */
void sgrad__find_chains(struct sgrad__fuser *fuser);

#endif
