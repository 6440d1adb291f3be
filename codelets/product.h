/* product.h: linear layers, and convolutions of 1x1, as matrix products of our own. Private to codelets/. */
#ifndef SGRAD_CODELETS_PRODUCT_H
#define SGRAD_CODELETS_PRODUCT_H

#include "codelets/layer.h"

/* Can the layer be computed so? */
bool sgrad__product_open(const struct sgrad__layer *layer);

/* DATA are the layer's operands; ROOM is aligned and has the workspace's bytes. */
size_t sgrad__product_workspace(const struct sgrad__layer *layer);
void sgrad__product_run(const struct sgrad__layer *layer, void *const data[], float *room);

#endif
