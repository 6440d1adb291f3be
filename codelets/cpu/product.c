/* product.c: linear layers, and 1x1 convolutions of stride 1, which are equivalent: x (R,C), w (K,C), y (R,K), where R is the
 * number of samples, or of the pixels of all samples.
 *
 *     forward           y  = x wᵀ        R × K sums over C          w is transposed; if R is small, yᵀ = w xᵀ is computed
 *                                                                   instead, and x and y are transposed
 *     backward-data     dx = dy w        R × C sums over K
 *     backward-weight   dw = dyᵀ x       K × C sums over R
 *
 * Sums stay in registers: a few rows of the left factor by two vectors of the right one, a panel. The terms of the sums are
 * processed in chunks. For each chunk, a block of rows of the left factor stays in the second-level cache while it is multiplied
 * by all panels, each of which stays in the first-level cache meanwhile:
 *
 *                     right   ┌─────┬──┬───────────┐  chunk
 *                             ├─────┼──┼───────────┤
 *     left ┌────┬───────┐     └─────┴──┴───────────┘
 *     block│    │       │             panel
 *          └────┴───────┘
 *
 * In wide products, blocks and panels are copied, because rows at distances of a power of two map to few sets of a cache. In
 * others they are read from the tensors. All computation is in F32: bf16 is converted to F32, a block of rows at a time, and
 * results are rounded once. The y and dx of a row have the same bits for any other rows in the call, except that the bits differ
 * between few and many rows.
 *
 * Source: K. Goto and R. van de Geijn, Anatomy of high-performance matrix multiplication, 2008. */
#include "config.h"
#include "codelets/cpu/isa.h"
#include "codelets/cpu/product.h"

static int64_t rows_of(const int32_t *dim, int rank) { return rank == 2 ? dim[0] : (int64_t)dim[0] * dim[1] * dim[2]; }

static struct product product_of(const struct sgrad__layer *layer) {
    enum { BLOCK = 96 };
    const bool wide = layer->dtype != SGRAD_F32;
    const int lanes = sgrad__level()->lanes;
    struct product p = { .rows = rows_of(layer->x, layer->rank),
                         .in = layer->w[3 * (layer->rank == 4) + (layer->rank == 2)],
                         .out = layer->w[0] };
    int64_t left = 0, right = 0, sums = 0;      /* floats */
    p.few = layer->pass == SGRAD__FORWARD && p.rows * (p.in + p.out) < p.in * p.out;
    p.block = layer->pass == SGRAD__BACKWARD_WEIGHT ? PIECE : BLOCK;
    if (p.block > p.rows) p.block = p.rows;
    p.padded = ((p.few ? p.rows : p.out) + lanes - 1) / lanes * lanes;
    if (p.few) right = p.in * p.padded, sums = p.out * p.padded;
    else if (layer->pass == SGRAD__FORWARD) {
        p.aside = wide || p.padded != p.out;
        left = wide ? p.block * p.in : 0, right = p.in * p.padded, sums = p.aside ? p.block * p.padded : 0;
    } else if (layer->pass == SGRAD__BACKWARD_DATA) {
        p.aside = wide;
        left = wide ? p.block * p.out : 0, sums = wide ? p.block * p.in : 0;
    } else left = wide ? p.block * p.out : 0, right = wide ? p.block * p.in : 0;
    p.right = left;
    p.sums = left + right;
    p.size = left + right + sums;
    return p;
}

bool sgrad__product_open(const struct sgrad__layer *layer) {
    const struct sgrad__level *level = sgrad__level();
    const bool product = layer->rank == 2 || (layer->rank == 4 && layer->w[1] == 1 && layer->w[2] == 1 && layer->stride == 1 &&
                                              layer->padding == 0 && layer->groups == 1);
    return level && product && (layer->pass == SGRAD__FORWARD || layer->x[layer->rank == 2 ? 1 : 3] % level->lanes == 0);
}

size_t sgrad__product_workspace(const struct sgrad__layer *layer) { return (size_t)product_of(layer).size * sizeof(float); }

void sgrad__product_run(const struct sgrad__layer *layer, void *const data[], float *room) {
    sgrad__level()->product[layer->pass](layer, product_of(layer), data, room);
}
