/* patches.h: a volume covered by overlapping patches, and how what is said of each is blended. Arithmetic alone: the same for
 * every worker.
 *
 * Along an axis patches begin every patch - overlap voxels, the last where it still fits; a volume that is smaller than a patch
 * has one, which reaches beyond it. A voxel's value is the mean over the patches that have it, by a bump's height there:
 *
 *     exp(-1/(1-z²) - 1/(1-y²) - 1/(1-x²)),   z, y, x from -1 to 1 across the patch
 *
 * which is a product over the axes, and so is the sum over all patches: the weights along each axis are made to add up to 1.
 * (J. Wu et al., Chunkflow, Nature Methods 2021.) The outermost quarter of an overlap, where a patch sees least of what is
 * around, counts nothing: a network that looks no farther than that leaves no seam.
 *
 *     weight of patch 0   ‾‾‾‾‾‾\                        patch 0   [         ]
 *                                \___                    patch 1         [         ]
 *     weight of patch 1       ___/‾‾‾‾‾\                 patch 2              [         ]
 */
#ifndef SGRAD_VOLUMES_PATCHES_H
#define SGRAD_VOLUMES_PATCHES_H

#include "volumes/volumes.h"

#ifdef __cplusplus
extern "C" {
#endif

struct sgrad_axis_patches {
    int64_t dim, patch, count;      /* voxels of the volume and of a patch; patches */
    int64_t *from;                  /* where each begins */
    float *weight;                  /* (count,patch) */
};
struct sgrad_patches_of {
    struct sgrad_axis_patches axis[3];      /* Z, Y, X */
};
/* SGRAD_EINVAL: an overlap is not less than its patch. */
int sgrad_patches_open(const int64_t dim[3], const int64_t patch[3], const int64_t overlap[3], struct sgrad_patches_of *patches);
void sgrad_patches_close(struct sgrad_patches_of *patches);
/* The patches along AXIS that have voxels from FROM up to, but without, END: the first, and how many. */
void sgrad_patches_meet(const struct sgrad_axis_patches *axis, int64_t from, int64_t end, int64_t *first, int64_t *count);

#ifdef __cplusplus
}
#endif
#endif
