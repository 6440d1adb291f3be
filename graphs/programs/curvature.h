/* curvature.h: which layers second-order training preconditions, and which rank does what of that. Private to graphs/programs/.
 *
 * The ranks stand in a grid, and each layer belongs to a column: the ranks there decompose its factors, keep what comes of that,
 * and precondition its gradient, each for the ranks of its row. Six ranks in three columns:
 *
 *     column    0   1   2
 *     row 0     0   1   2         a layer of column 1: ranks 1 and 4 keep its eigenvectors, which one of them makes of A, the
 *     row 1     3   4   5         other of G; in every step 1 sends what it makes of its gradient to 0 and 2, 4 to 3 and 5
 *
 * One column, and each rank preconditions every layer: eigenvectors are sent, when there are new ones, and in other steps nothing
 * (opt). One row, and one rank does: nothing but preconditioned gradients is sent, in every step, and eigenvectors are in one
 * place (lw).
 *
 * Sources: Pauloski et al. 2020 (kronecker.h), for the two ends; J. G. Pauloski et al., KAISA: An Adaptive Second-Order Optimizer
 * Framework for Deep Neural Networks, 2021, for what is between. */
#ifndef SGRAD_GRAPHS_CURVATURE_H
#define SGRAD_GRAPHS_CURVATURE_H

#include "codelets/kronecker.h"
#include "graphs/programs/program.h"

enum { SGRAD__A, SGRAD__G, SGRAD__FACTORS };

/* How gradients are preconditioned, and what of each factor. */
struct sgrad__method {
    const char *made;                       /* of a factor: "eigen" */
    const struct sgrad_kernel *make, *precondition;
    int more;                               /* what is made is (groups, n + more, n) */
    const char *used[SGRAD__FACTORS], *next[SGRAD__FACTORS];    /* in checkpoints */
};

struct sgrad__curved_factor {
    struct sgrad_kronecker_factor how;      /* of a micro-batch's part */
    int64_t length;                         /* n */
    struct sgrad_view view, made;
    double flops;                           /* of what is made of it */
    int rank;                               /* who makes it, and has the factor */
};
struct sgrad__curved_layer {
    int node, column;
    struct sgrad__curved_factor factor[SGRAD__FACTORS];
    double flops;                           /* of its gradient */
    int parameters;
    double bytes[2];                        /* of each one's gradient */
};
/* What a grid of so many rows costs: seconds a step, on average, of the rank that has most to do; bytes kept on the one that has
 * most to keep. */
struct sgrad__curvature_cost {
    int rows;
    double computing, sending, bytes;
};
enum { SGRAD__MOST_GRIDS = 64 };
struct sgrad__curvature {
    const struct sgrad__method *method;
    int ranks, rows, columns;
    int own;                                /* this rank's column */
    struct sgrad_group row, column;         /* the ranks of its row, and of its column */
    int grids;
    struct sgrad__curvature_cost grid[SGRAD__MOST_GRIDS];       /* those there can be */
    const struct sgrad__curvature_cost *cost;                   /* of the one that it is */
    bool chosen, fits;                      /* by cost; it had room, or none has */
    int layers;
    struct sgrad__curved_layer *layer;
};

/* The same on every rank; free it. */
struct sgrad__curvature *sgrad__curvature_of(const struct sgrad_graph *graph, const struct sgrad__program_options *options);
/* The layers, what each costs, and whose they are: lines, of which a run shows the first; free it. SENT: bytes of factors. */
char *sgrad__curvature_text(const struct sgrad__curvature *curvature, const struct sgrad_graph *graph,
                            const struct sgrad__program_options *options, int64_t sent);

#endif
