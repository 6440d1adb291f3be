/* winograd.h: convolution by Winograd's method (winograd.c), with a quarter of the multiplications; 0.36 of them for filters
 * of 5x5. Private to codelets/. */
#ifndef SGRAD_CODELETS_CPU_WINOGRAD_H
#define SGRAD_CODELETS_CPU_WINOGRAD_H

#include "codelets/cpu/layer.h"

/* Returns true if this algorithm supports the layer: a convolution with filters of 3x3 or 5x5, stride 1, dilation 1, a padding
 * less than the filter's side, no groups, and at least one vector of input channels and of output channels. */
bool sgrad__winograd_open(const struct sgrad__layer *layer);

/* Returns the number of multiplications of direct convolution divided by that of this algorithm. The layer must be supported. */
double sgrad__winograd_saving(const struct sgrad__layer *layer);

/* workspace returns the size in bytes. run computes the layer. DATA: the layer's operands; the last argument: the workspace,
 * aligned to SGRAD_LINE. */
size_t sgrad__winograd_workspace(const struct sgrad__layer *layer);
void sgrad__winograd_run(const struct sgrad__layer *layer, void *const data[], float *room);

#endif
