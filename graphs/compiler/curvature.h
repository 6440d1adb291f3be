/* curvature.h: the layers that second-order training preconditions, and the ranks that do the work. Private to graphs/compiler/.
 *
 * The ranks form a grid, and each layer belongs to a column. The ranks of a column decompose the factors of its layers and store
 * the results. Each of them preconditions the gradients of these layers for the ranks of its row. Six ranks in three columns:
 *
 *     column    0   1   2
 *     row 0     0   1   2         a layer of column 1: ranks 1 and 4 store its eigenvectors; one of them decomposes A, the
 *     row 1     3   4   5         other G; in every step 1 sends the preconditioned gradient to 0 and 2, 4 to 3 and 5
 *
 * With one column, each rank preconditions every layer: new eigenvectors are sent when they are computed, and nothing in other
 * steps (opt). With one row, one rank preconditions each layer: only preconditioned gradients are sent, in every step, and the
 * eigenvectors of a layer are on one rank only (lw).
 *
 * Sources: Pauloski et al. 2020 (kronecker.h), for the two extremes; J. G. Pauloski et al., KAISA: An Adaptive Second-Order
 * Optimizer Framework for Deep Neural Networks, 2021, for the grids between them. */
#ifndef SGRAD_GRAPHS_COMPILER_CURVATURE_H
#define SGRAD_GRAPHS_COMPILER_CURVATURE_H

#include "codelets/kfac/kronecker.h"
#include "graphs/compiler/program.h"

enum { SGRAD__A, SGRAD__G, SGRAD__FACTORS };

/* A method of preconditioning: MAKE computes the result of a factor (eigenvectors or inverse), PRECONDITION applies two
 * results. */
struct sgrad__method {
    const char *made;                       /* name of the result: "eigen" */
    const struct sgrad_kernel *make, *precondition;
    int more;                               /* the result has shape (groups, n + more, n) */
    const char *used[SGRAD__FACTORS], *next[SGRAD__FACTORS];    /* results in use, next ones; names in checkpoints */
};

struct sgrad__curved_factor {
    struct sgrad_kronecker_factor how;      /* how a micro-batch's term of the sum is computed */
    int64_t length;                         /* n, the rows of the factor */
    struct sgrad_view view, made;           /* of the factor; of its result */
    double flops;                           /* of computing the result */
    int rank;                               /* the rank that stores the factor and computes the result */
};
struct sgrad__curved_layer {
    int node, column;
    struct sgrad__curved_factor factor[SGRAD__FACTORS];
    double flops;                           /* of preconditioning its gradient */
    int parameters;
    double bytes[2];                        /* of the gradient of each parameter */
};
/* The cost of a grid with ROWS rows. Seconds per step on average: computing on the busiest rank, sending of all messages. Bytes:
 * stored on the rank that stores most. */
struct sgrad__curvature_cost {
    int rows;
    double computing, sending, bytes;
};
enum { SGRAD__MOST_GRIDS = 64 };
struct sgrad__curvature {
    const struct sgrad__method *method;
    int ranks, rows, columns;
    int own;                                /* column of this rank */
    struct sgrad_group row, column;         /* the ranks of this rank's row and of its column */
    int grids;
    struct sgrad__curvature_cost grid[SGRAD__MOST_GRIDS];       /* the possible grids */
    const struct sgrad__curvature_cost *cost;                   /* of the selected grid */
    bool chosen, fits;                      /* selected by cost; its memory is within the limit */
    int layers;
    struct sgrad__curved_layer *layer;
};

/* Returns the assignment of layers to ranks, the same on every rank. options->peers must outlive it. The caller must free it with
 * free. */
struct sgrad__curvature *sgrad__curvature_of(const struct sgrad_graph *graph, const struct sgrad_program_options *options);
/* Returns a text with the layers, their costs and their ranks; the caller must free it. A run prints its first line. SENT: bytes
 * of factors that are summed over the ranks. */
char *sgrad__curvature_text(const struct sgrad__curvature *curvature, const struct sgrad_graph *graph,
                            const struct sgrad_program_options *options, int64_t sent);

#endif
