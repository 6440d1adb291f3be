/* kronecker_tiles.h: K-FAC's factors on the processor's matrix unit, AMX. Private to codelets/. */
#ifndef SGRAD_CODELETS_KFAC_KRONECKER_TILES_H
#define SGRAD_CODELETS_KFAC_KRONECKER_TILES_H

#include "codelets/kfac/kronecker.h"

/* Implementation of sgrad_kronecker_factor_kernel with AMX. The first function returns the workspace in bytes; 0 if this
 * implementation cannot be used: the processor has no AMX, x is not BF16, or there are fewer than 8 samples (pixels if each
 * pixel is a patch). The second one computes the factor; the workspace must not be 0. */
size_t sgrad__factor_tiles_workspace(const struct sgrad_args *args);
void sgrad__factor_tiles(const struct sgrad_args *args);

#endif
