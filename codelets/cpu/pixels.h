/* pixels.h: convolution of small images, pixel by pixel (pixels.c). Private to codelets/. */
#ifndef SGRAD_CODELETS_CPU_PIXELS_H
#define SGRAD_CODELETS_CPU_PIXELS_H

#include "codelets/cpu/layer.h"

/* Returns true if this algorithm supports the layer: a two-dimensional convolution without groups, images of at most 64
 * pixels, a number of input channels that is a multiple of the vector length. */
bool sgrad__pixels_open(const struct sgrad__layer *layer);

/* workspace returns the size in bytes. run computes the layer. DATA: the layer's operands; the last argument: the workspace,
 * aligned to SGRAD_LINE. */
size_t sgrad__pixels_workspace(const struct sgrad__layer *layer);
void sgrad__pixels_run(const struct sgrad__layer *layer, void *const data[], float *room);

#endif
