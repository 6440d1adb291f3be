/* segment.h: a network applied to a volume in overlapping patches. */
#ifndef SGRAD_GRAPHS_API_SEGMENT_H
#define SGRAD_GRAPHS_API_SEGMENT_H

#include "volumes/volumes.h"
#include "graphs/api/train.h"

#ifdef __cplusplus
extern "C" {
#endif

struct sgrad_segment_worker {           /* seconds by stage, of one worker or of "main", the thread that submits patches */
    char name[16];
    double load, compute, blend, save, wait;
};
/* A chunk is a box of voxels that is computed and written at once; it consists of whole blocks of the output file. */
struct sgrad_segment_result {
    int64_t chunk[3], block[3], all_chunks;     /* voxels along Z, Y, X: of a chunk, of a block; number of chunks of the volume */
    int64_t chunks, skipped;            /* chunks computed by this process; skipped, as they exist in the output */
    int64_t patches, voxels;            /* of the computed chunks: patches, mirror images included; voxels */
    int64_t blank;                      /* their blocks in which the volume or the mask is all zeros */
    double shown;                       /* mean number of times that the network processes a voxel */
    double memory;                      /* bytes of chunks and patches */
    double seconds;                     /* total time */
    int workers;
    struct sgrad_segment_worker sum, worker[SGRAD_MAX_WORKERS + 1];       /* sum; by worker, followed by "main" */
};
struct sgrad_segment_options {
    const char *model, *weights;        /* name; safetensors file in a run directory, NULL: initial weights */
    const char *in, *out;               /* volumes (volumes.h): pixels of one channel; (classes,Z,Y,X) */
    const char *mask;                   /* volume: zeros are written where it is 0; NULL: none */
    const struct sgrad_model *custom_model;     /* used instead of model; NULL: none */
    int classes;                        /* used without weights, which otherwise determine it */
    int64_t patch[3], overlap[3];       /* voxels along Z, Y, X */
    bool logits;                        /* write logits, clipped to -1024 to 1024; false: probabilities */
    bool bytes;                         /* write uint8, 0 to 255 for 0 to 1; false: f32 */
    bool flips;                         /* average over the mirror images of a patch along Z, Y and X */
    double memory;                      /* largest memory of chunks and patches, GB */
    long batch;                         /* patches of a task; 0: 1 */
    enum sgrad_precision precision;
    int cpus, gpus;                     /* workers; 0: all, -1: none */
    const char *scheduler;              /* name of StarPU's scheduler; NULL: chosen automatically */
    const char *queue;                  /* directory from which processes take chunks (runtime/files/queue.h); NULL: none */
    double lease;                       /* seconds without renewal after which another process takes a chunk; 0: 30 */
    bool redo;                          /* also compute chunks that exist in the output */
    /* Progress callback: called once before the first chunk, then once for each chunk. NULL: none. */
    void (*progress)(const struct sgrad_segment_options *options, const struct sgrad_segment_result *so_far);
};
/* Applies a network to a volume in overlapping patches, which are blended (volumes/patches.h). The output depends only on the
 * network, weights, volume, patch, overlap, mask, flips, precision and the type of the output, not on the number of workers or
 * processes. Blocks of 16x128x128 voxels in which the volume is all zeros are not computed: zeros are written. With queue,
 * several processes may compute chunks of one Zarr volume. SGRAD_EINVAL: patch, overlap or memory do not fit, there are several
 * ranks, or queue is used with an output other than Zarr. SGRAD_ENAME: the model or a volume format is unknown. SGRAD_ESHAPE: the
 * network or the mask does not fit the volume. SGRAD_EIO: a file cannot be read or written. SGRAD_EFORMAT: a file is malformed,
 * an output of the network is NaN or infinite, or chunks of the queue have failed. */
int sgrad_segment(const struct sgrad_segment_options *options, struct sgrad_segment_result *result);

#ifdef __cplusplus
}
#endif
#endif
