/* tiles.h: bf16 layers on the processor's matrix unit, AMX (tiles.c). Private to codelets/. */
#ifndef SGRAD_CODELETS_CPU_TILES_H
#define SGRAD_CODELETS_CPU_TILES_H

#include "codelets/cpu/layer.h"

enum { SGRAD__TILES_ROOM = 32 << 20 };     /* maximum workspace in bytes for one image; for several 1.5 times that */

/* Returns true if the processor has AMX and this algorithm supports the layer: a linear layer or a two-dimensional convolution
 * in bf16, without groups. tiles.c lists the other limits. */
bool sgrad__tiles_open(const struct sgrad__layer *layer);

/* workspace returns the size in bytes. run computes the layer. DATA: the layer's operands; the last argument: the workspace,
 * aligned to SGRAD_LINE. */
size_t sgrad__tiles_workspace(const struct sgrad__layer *layer);
void sgrad__tiles_run(const struct sgrad__layer *layer, void *const data[], float *room);

/* packed returns the size of the packed weight in bytes; 0 for backward-weight, which reads no weight. pack writes it to TO,
 * which must be aligned to SGRAD_LINE. The result does not depend on the number of samples. */
size_t sgrad__tiles_packed(const struct sgrad__layer *layer);
void sgrad__tiles_pack(const struct sgrad__layer *layer, const float *weight, void *to);

#endif
