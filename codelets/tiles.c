/* tiles.c: convolutions and linear layers on bf16 by AMX, whose registers are tiles: C (16,16) += A (16,32) B (32,16), A and B of
 * bf16, C of floats. B's rows lie in pairs: tile row j has terms 2j and 2j+1 of each column. A may have fewer rows, and takes
 * less time then.
 *
 * forward, backward-data    A is 16 pixels of an image row, or, of small images, a pixel of 16 samples. Images are copied, some
 *                           at a time, so that rows of A begin at cache lines, with a margin of zeros where filters look over
 *                           the border; what a tap shifts is an address then. Beside each other in a row lie the channels of
 *                           all taps of a filter's row, a run of terms. B is the filter, packed. Six tiles of sums share each B,
 *                           or three each of two.
 *
 *                             in  ··┌──16 pixels──┐··      B (run, 16 out channels)    C: 16 pixels, 16 out channels
 *                                   └─ run ─┘
 *
 *                           Backward-data of stride s is s·s such convolutions, of the pixels with a like remainder, each with
 *                           the taps that reach them.
 * backward-weight           the terms are 32 samples' values of a pixel: x packed in pairs of samples, dy turned, a few rows of
 *                           the images at a time, so that both stay in the second-level cache. Six taps and channels share an A.
 *
 * Sums are F32 in a fixed order, products of bf16 exact; denormals count as 0. A sample's y and dx have the same bits whatever
 * else is in the call.
 *
 * Limits: no groups, no volumes; backward-data takes an even number of filters, and no stride with a dilation; filters of some
 * 16 million weights, or images of few channels and some 500,000 pixels, need too much room. Where an image has an infinity, NaNs
 * may reach pixels beside those that a filter would take them to; where a filter has one, the image's border.
 *
 * Source: Intel 64 and IA-32 Architectures Optimization Reference Manual, chapter "Intel AMX". */
#include "config.h"
#include "codelets/tiles_registers.h"

#include <string.h>

#if SGRAD_LEVELS

/* A linear layer, and what is the same, is of so many images of a pixel. */
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
