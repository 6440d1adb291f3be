/* tiles.h: layers on bf16 by a processor's matrix unit, AMX. Private to codelets/. */
#ifndef SGRAD_CODELETS_TILES_H
#define SGRAD_CODELETS_TILES_H

#include "codelets/layer.h"

/* Can the layer be computed so, here? */
bool sgrad__tiles_open(const struct sgrad__layer *layer);

/* DATA are the layer's operands; ROOM is aligned and has the workspace's bytes. */
size_t sgrad__tiles_workspace(const struct sgrad__layer *layer);
void sgrad__tiles_run(const struct sgrad__layer *layer, void *const data[], float *room);

#endif
