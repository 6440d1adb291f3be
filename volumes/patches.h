/* patches.h: overlapping patches that cover a volume, and the weights that blend their predictions. The functions only compute;
 * they give the same result on every worker.
 *
 * Along an axis, a patch begins every patch - overlap voxels; the last patch ends with the volume. A volume that is smaller than
 * a patch has one patch, which extends beyond it. The value of a voxel is the mean over the patches that contain it, weighted by
 * the height of a bump at its position in the patch:
 *
 *     exp(-1/(1-z²) - 1/(1-y²) - 1/(1-x²)),   z, y, x from -1 to 1 across the patch
 *
 * The bump is a product over the axes, and so is its sum over all patches. Therefore the weights along each axis are scaled to a
 * sum of 1. (J. Wu et al., Chunkflow, Nature Methods 2021.) The outermost quarter of an overlap, where a patch has the least
 * context, has weight 0: a network whose receptive field extends no farther than that leaves no seam.
 *
 *     weight of patch 0   ‾‾‾‾‾‾\                        patch 0   [         ]
 *                                \___                    patch 1         [         ]
 *     weight of patch 1       ___/‾‾‾‾‾\                 patch 2              [         ] */
#ifndef SGRAD_VOLUMES_PATCHES_H
#define SGRAD_VOLUMES_PATCHES_H

#include "volumes/volumes.h"

#ifdef __cplusplus
extern "C" {
#endif

struct sgrad_axis_patches {
    int64_t dim, patch, count;      /* voxels of the volume; voxels of a patch; number of patches */
    int64_t *from;                  /* index of the first voxel of each patch */
    float *weight;                  /* (count,patch) */
};
struct sgrad_patches_of {
    struct sgrad_axis_patches axis[3];      /* Z, Y, X */
};
/* Computes the patches and weights. The caller must free them with sgrad_patches_close. SGRAD_EINVAL: an overlap is negative or
 * not less than its patch, or a patch is empty. */
int sgrad_patches_open(const int64_t dim[3], const int64_t patch[3], const int64_t overlap[3], struct sgrad_patches_of *patches);
void sgrad_patches_close(struct sgrad_patches_of *patches);
/* Finds the patches along AXIS that have voxels from FROM to END - 1: sets *FIRST to the index of the first, and *COUNT. */
void sgrad_patches_meet(const struct sgrad_axis_patches *axis, int64_t from, int64_t end, int64_t *first, int64_t *count);

#ifdef __cplusplus
}
#endif
#endif
