/* winograd.h: a convolution by Winograd's method: a quarter of the multiplications, with filters of 5x5 0.36 of them. Private to
 * codelets/. */
#ifndef SGRAD_CODELETS_WINOGRAD_H
#define SGRAD_CODELETS_WINOGRAD_H

#include "codelets/layer.h"

/* Can the layer be computed so? */
bool sgrad__winograd_open(const struct sgrad__layer *layer);

/* How many times fewer multiplications it takes than the plain way. */
double sgrad__winograd_saving(const struct sgrad__layer *layer);

/* DATA are the layer's operands; ROOM is aligned and has the workspace's bytes. */
size_t sgrad__winograd_workspace(const struct sgrad__layer *layer);
void sgrad__winograd_run(const struct sgrad__layer *layer, void *const data[], float *room);

#endif
