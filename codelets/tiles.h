/* tiles.h: layers on bf16 by a processor's matrix unit, AMX. Private to codelets/. */
#ifndef SGRAD_CODELETS_TILES_H
#define SGRAD_CODELETS_TILES_H

#include "codelets/layer.h"

enum { SGRAD__TILES_ROOM = 32 << 20 };     /* bytes that a worker may need for one image, at most; many take half as much more */

/* Can the layer be computed so, here? */
bool sgrad__tiles_open(const struct sgrad__layer *layer);

/* DATA are the layer's operands; ROOM is aligned and has the workspace's bytes. */
size_t sgrad__tiles_workspace(const struct sgrad__layer *layer);
void sgrad__tiles_run(const struct sgrad__layer *layer, void *const data[], float *room);

/* Bytes of the weight packed, which begins at a cache line; 0: backward-weight, which takes none. And packs it: the same for any
 * number of samples. */
size_t sgrad__tiles_packed(const struct sgrad__layer *layer);
void sgrad__tiles_pack(const struct sgrad__layer *layer, const float *weight, void *to);

#endif
