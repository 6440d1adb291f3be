/* tiles.c: convolutions and linear layers in bf16 by AMX, whose registers are tiles: C (16,16) += A (16,32) B (32,16), where A
 * and B are bf16 and C is float. The rows of B are stored in pairs: row j of the tile has terms 2j and 2j+1 of each column. A may
 * have fewer than 16 rows, and takes less time then.
 *
 * forward, backward-data
 *                           A is 16 pixels of an image row or, for small images, one pixel of 16 samples. Some images at a time
 *                           are copied, so that rows of A are aligned to cache lines and have a margin of zeros where filters
 *                           extend over the border. A tap then only shifts an address. A row contains the channels of all taps
 *                           of a filter's row one after another, a run of terms. B is the packed filter. Six tiles of sums use
 *                           each B, or three tiles of sums use each of two.
 *
 *                             in  ··┌──16 pixels──┐··      B (run, 16 out channels)    C: 16 pixels, 16 out channels
 *                                   └─ run ─┘
 *
 *                           Backward-data with stride s is computed as s·s such convolutions: one for each remainder of the
 *                           pixels' coordinates modulo s, with the taps that reach these pixels.
 *
 * backward-weight
 *                           The terms are the values of 32 samples at a pixel. x is packed in pairs of samples, and dy is
 *                           transposed, a few rows of the images at a time, so that both stay in the second-level cache. Six
 *                           pairs of a tap and 16 channels use each A.
 *
 * Sums are F32 in a fixed order, and products of bf16 are exact; denormals count as 0. The y and dx of a sample have the same
 * bits for any other samples in the call.
 *
 * Limits: no groups and no volumes. Backward-data requires an even number of filters, and a stride or a dilation of 1. Filters of
 * some 16 million weights, or images of few channels and some 500,000 pixels, need too much workspace. If an image contains an
 * infinity, NaNs may also appear at pixels near those that the filter reaches from it; if a filter contains one, at the image's
 * border.
 *
 * Source: Intel 64 and IA-32 Architectures Optimization Reference Manual, chapter "Intel AMX". */
#include "config.h"
#include "codelets/cpu/tiles_registers.h"

#include <string.h>

#if SGRAD_LEVELS

/* Returns a linear layer, or an equivalent convolution, as a convolution of images of one pixel, one for each row. */
static struct sgrad__layer as_rows(const struct sgrad__layer *layer) {
    struct sgrad__layer l = *layer;
    const bool matrix = l.rank == 2, dot = l.rank == 4 && l.w[1] == 1 && l.w[2] == 1 && l.stride == 1 && l.padding == 0;
    const int64_t rows = matrix ? l.x[0] : (int64_t)l.x[0] * l.x[1] * l.x[2];
    if ((!matrix && !dot) || rows > INT32_MAX) return l;
    const int32_t in = l.x[matrix ? 1 : 3], out = l.w[0];
    l.rank = 4, l.stride = l.dilation = 1;
    const int32_t x[] = { (int32_t)rows, 1, 1, in }, w[] = { out, 1, 1, in }, y[] = { (int32_t)rows, 1, 1, out };
    memcpy(l.x, x, sizeof x);
    memcpy(l.w, w, sizeof w);
    memcpy(l.y, y, sizeof y);
    return l;
}

bool sgrad__tiles_open(const struct sgrad__layer *layer) {
    struct sgrad__layer l = as_rows(layer);
    const bool can = sgrad_isa() >= SGRAD_AMX && l.dtype == SGRAD_BF16 && l.rank == 4 && l.groups == 1 && l.x[0] > 0;
    if (!can || (l.pass == SGRAD__BACKWARD_DATA && (l.y[3] % 2 != 0 || (l.stride != 1 && l.dilation != 1)))) return false;
    l.x[0] = l.y[0] = 1;
    return sgrad__tiles_workspace(&l) <= SGRAD__TILES_ROOM;
}

size_t sgrad__tiles_workspace(const struct sgrad__layer *layer) {
    const struct sgrad__layer l = as_rows(layer);
    return l.pass == SGRAD__BACKWARD_WEIGHT ? sgrad__tiles_weight_workspace(&l) : sgrad__tiles_sums_workspace(&l);
}

void sgrad__tiles_run(const struct sgrad__layer *layer, void *const data[], float *room) {
    const struct sgrad__layer l = as_rows(layer);
    if (l.pass == SGRAD__BACKWARD_WEIGHT) sgrad__tiles_weight(&l, data, (char *)room);
    else sgrad__tiles_sums(&l, data, (char *)room);
    release();
}

size_t sgrad__tiles_packed(const struct sgrad__layer *layer) {
    const struct sgrad__layer l = as_rows(layer);
    return l.pass == SGRAD__BACKWARD_WEIGHT ? 0 : sgrad__tiles_sums_packed(&l);
}

void sgrad__tiles_pack(const struct sgrad__layer *layer, const float *weight, void *to) {
    const struct sgrad__layer l = as_rows(layer);
    sgrad__tiles_sums_pack(&l, weight, to);
}

#else

bool sgrad__tiles_open(const struct sgrad__layer *layer) { return (void)layer, false; }
size_t sgrad__tiles_workspace(const struct sgrad__layer *layer) { return (void)layer, 0; }
void sgrad__tiles_run(const struct sgrad__layer *layer, void *const data[], float *room) { (void)layer, (void)data, (void)room; }
size_t sgrad__tiles_packed(const struct sgrad__layer *layer) { return (void)layer, 0; }
void sgrad__tiles_pack(const struct sgrad__layer *layer, const float *weight, void *to) { (void)layer, (void)weight, (void)to; }

#endif
