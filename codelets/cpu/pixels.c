/* pixels.c: convolution of images of few pixels and many channels, as in the last layers of networks, where filters cause most of
 * the memory traffic. A tap of the filter connects an input pixel to an output pixel, in all samples: a matrix product. Taps that
 * read outside the image are left out: for 3x3 on images of 2x2, 16 of 36 products for four pixels remain.
 *
 *     x (N, pixels, C)   q ─┐                      forward           y_p  += x_q w_tᵀ     as y_pᵀ += w_t x_qᵀ, x transposed once
 *     w (K, taps, C)        ├─ tap t ─> (p, q)     backward-data     dx_q += dy_p w_t
 *     y (N, pixels, K)   p ─┘                      backward-weight   dw_t  = Σ dy_pᵀ x_q
 *
 * All pairs of pixels of a tap are processed together, some rows of the filter at a time, so that w and dw are read or written
 * once. All computation is in F32: bf16 inputs are converted to F32, and results are rounded once. */
#include "config.h"
#include "codelets/cpu/isa.h"
#include "codelets/cpu/pixels.h"

enum { MOST_PIXELS = 64 };      /* maximum per image: the workspace has all pixels of all samples */

static struct pixels pixels_of(const struct sgrad__layer *layer) {
    const int lanes = sgrad__level()->lanes;
    const bool wide = layer->dtype != SGRAD_F32;
    struct pixels p = { .samples = layer->x[0], .in = layer->x[3], .out = layer->y[3], .ins = (int64_t)layer->x[1] * layer->x[2],
                        .outs = (int64_t)layer->y[1] * layer->y[2], .taps = (int64_t)layer->w[1] * layer->w[2] };
    const int64_t x = p.samples * p.ins * p.in, y = p.samples * p.outs * p.out;
    p.padded = (p.samples + lanes - 1) / lanes * lanes;
    switch (layer->pass) {
    case SGRAD__FORWARD:
        p.left = p.ins * p.in * p.padded;
        p.size = p.left + p.outs * p.out * p.padded;
        break;
    case SGRAD__BACKWARD_DATA:
        p.left = wide ? y : 0;
        p.sums = p.left + PIECE * p.in;
        p.size = p.sums + (wide ? x : 0);
        break;
    default:
        p.left = p.samples * p.outs * p.out;
        p.size = p.left + p.samples * p.outs * p.in;
    }
    return p;
}

bool sgrad__pixels_open(const struct sgrad__layer *layer) {
    const struct sgrad__level *level = sgrad__level();
    return level && layer->rank == 4 && layer->groups == 1 && layer->x[3] % level->lanes == 0 &&
           layer->x[1] * layer->x[2] <= MOST_PIXELS && layer->y[1] * layer->y[2] <= MOST_PIXELS;
}

size_t sgrad__pixels_workspace(const struct sgrad__layer *layer) { return (size_t)pixels_of(layer).size * sizeof(float); }

void sgrad__pixels_run(const struct sgrad__layer *layer, void *const data[], float *room) {
    sgrad__level()->pixels[layer->pass](layer, pixels_of(layer), data, room);
}
