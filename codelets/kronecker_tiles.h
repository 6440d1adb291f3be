/* kronecker_tiles.h: K-FAC's factors by AMX's tiles. Private to codelets/. */
#ifndef SGRAD_CODELETS_KRONECKER_TILES_H
#define SGRAD_CODELETS_KRONECKER_TILES_H

#include "codelets/kronecker.h"

/* What sgrad_kronecker_factor_kernel does: bytes of the workspace, 0 where it is not open; and does it. */
size_t sgrad__factor_tiles_workspace(const struct sgrad_args *args);
void sgrad__factor_tiles(const struct sgrad_args *args);

#endif
