/* constants.h: the numbers of a tensor that is known when a file is read, and the nodes that are computed then. */
#ifndef SGRAD_GRAPHS_NETWORKS_ONNX_CONSTANTS_H
#define SGRAD_GRAPHS_NETWORKS_ONNX_CONSTANTS_H

#include "graphs/networks/onnx/reader.h"

/* Maximum number of elements of a result. */
enum { SGRAD__CONSTANT_LIMIT = 1 << 24 };

struct sgrad__constant {
    int32_t type;
    int rank;
    int64_t dim[SGRAD__DIMENSIONS], count;
    double *x;
    bool first_two_samples;     /* it is computed for these only, */
    int samples;                /* and this is their dimension */
};

/* A node, its inputs, and its result. */
struct sgrad__fold {
    const struct sgrad__reader *reader;
    const Onnx__Node *n;
    int inputs;
    struct sgrad__constant in[SGRAD_MAX_INPUTS], out;
};

/* ---- constant_operators.c ---- */

/* Allocates the elements, which the caller must free; type and dimensions are set. Returns false if there are too many. */
bool sgrad__constant_allocate(struct sgrad__constant *is);
/* Converts to an integer. The largest integers mean "to the end"; a double rounds them up. */
int64_t sgrad__constant_integer(double x);
/* Computes the result from the inputs. Returns false if the operator, or these inputs, cannot be computed. */
bool sgrad__constant_compute(struct sgrad__fold *f);

#endif
