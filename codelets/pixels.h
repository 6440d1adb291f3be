/* pixels.h: a convolution of small images, pixel by pixel. Private to codelets/. */
#ifndef SGRAD_CODELETS_PIXELS_H
#define SGRAD_CODELETS_PIXELS_H

#include "codelets/layer.h"

/* Can the layer be computed so? */
bool sgrad__pixels_open(const struct sgrad__layer *layer);

/* DATA are the layer's operands; ROOM is aligned and has the workspace's bytes. */
size_t sgrad__pixels_workspace(const struct sgrad__layer *layer);
void sgrad__pixels_run(const struct sgrad__layer *layer, void *const data[], float *room);

#endif
