/* product.h: linear layers and 1x1 convolutions as matrix products (product.c). Private to codelets/. */
#ifndef SGRAD_CODELETS_CPU_PRODUCT_H
#define SGRAD_CODELETS_CPU_PRODUCT_H

#include "codelets/cpu/layer.h"

/* Returns true if this algorithm supports the layer: a linear layer, or a 1x1 convolution of stride 1 without padding and
 * groups. In the backward passes the number of input channels must be a multiple of the vector length. */
bool sgrad__product_open(const struct sgrad__layer *layer);

/* workspace returns the size in bytes. run computes the layer. DATA: the layer's operands; the last argument: the workspace,
 * aligned to SGRAD_LINE. */
size_t sgrad__product_workspace(const struct sgrad__layer *layer);
void sgrad__product_run(const struct sgrad__layer *layer, void *const data[], float *room);

#endif
