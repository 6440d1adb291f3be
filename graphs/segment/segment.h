/* segment.h: segmentation of volumes, declarations of segment.c, chunks.c and patches.c. Private to graphs/.
 *
 *     chunk    a number of blocks of the output, processed and written together
 *     patch    an input of the network; a patch is processed for each chunk that it overlaps
 *
 *     patches    0  1  2  3 │ 4  5  6  7 │ …         in batches, several of which are in flight, also of different chunks
 *     sums       ── added ──┴─ chunk 0 written ─ …   of at most three chunks at a time */
#ifndef SGRAD_GRAPHS_SEGMENT_SEGMENT_H
#define SGRAD_GRAPHS_SEGMENT_SEGMENT_H

#include "graphs/api/segment.h"
#include "datasets/datasets.h"
#include "graphs/rundir/rundir.h"
#include "graphs/engine/runner.h"
#include "runtime/files/queue.h"
#include "volumes/patches.h"

#include <pthread.h>
#include <stdatomic.h>

enum { SGRAD__CHUNKS = 3, SGRAD__BATCHES = 2 };         /* chunks and batches in flight, at most */

/* Samples are chunks in flight: the index is that of chunk[]. Their views are the patches that overlap the chunk and, after each,
 * its mirror images. Samples with the index SGRAD__NO_CHUNK fill incomplete batches; nothing is computed for them. */
enum { SGRAD__NO_CHUNK = SGRAD__CHUNKS };

/* A chunk in flight; its memory is freed by sgrad__segment_end. */
struct sgrad__chunk {
    int64_t number;                         /* of the chunk in the volume */
    struct sgrad_box box;                   /* its voxels (1,Z,Y,X) */
    int64_t first[3], count[3];             /* patches that overlap it, along each axis: the first one; their number */
    int64_t blocks[3];                      /* number of blocks along each axis */
    bool *shown;                            /* by block: false if the volume or the mask is all zeros there: it is not computed */
    struct sgrad_box mask_box;              /* voxels of the mask that cover the chunk */
    float *mask;                            /* their values; NULL: no mask */
    int32_t *sum;                           /* (classes,Z,Y,X): sums over patches, in fixed point */
    pthread_mutex_t *plane;                 /* by slice along Z: protects its sums */
    _Atomic int64_t left;                   /* number of patches (mirror images included) that have not been added to the sums */
    _Atomic int error;                      /* SGRAD_E… code of the first error; 0: none */
    char reason[512];                       /* message of this error */
    atomic_bool busy;                       /* false: the record is not in use */
};

/* Stages of the work whose time is measured. */
enum sgrad__spending { SGRAD__LOAD, SGRAD__BLEND, SGRAD__SAVE, SGRAD__STAGES };

struct sgrad__segment {
    const struct sgrad_segment_options *o;  /* borrowed */
    struct sgrad_context *context;
    struct sgrad_volume *in, *out, *mask;   /* mask may be NULL */
    enum sgrad_dtype pixel;                 /* type of the voxels of the input */
    struct sgrad_patches_of patches;
    char weights[SGRAD_CHECKSUM];           /* checksum of the weights; "": initial weights */
    int classes, mirrors;                   /* number of classes; of mirror images of a patch, itself included: 1, 4 or 8 */
    /* voxels: of the volume, of a block, of a chunk; number of chunks along each axis */
    int64_t dim[3], block[3], size[3], chunks[3];
    struct sgrad_reader reader;             /* sgrad__segment_read */
    struct sgrad_dataset data;              /* its samples are chunk[], whose views are patches */
    struct sgrad_graph *graph;
    struct sgrad__program *program;
    struct sgrad__runner *runner;
    struct sgrad_queue *queue;              /* NULL: this process computes all chunks */
    struct sgrad__chunk chunk[SGRAD__CHUNKS];
    struct sgrad_sample *pending;           /* samples of the next batch */
    int64_t pendings, next;                 /* number of these samples; without a queue: number of the next chunk */
    _Atomic int error;                      /* error that ends the work; 0: none */
    _Atomic int64_t spent[SGRAD__STAGES][SGRAD_MAX_WORKERS + 1];   /* nanoseconds, by worker; last element: other threads */
    struct sgrad_segment_result *result;    /* borrowed; updated during the work */
};

/* ---- patches.c ------------------------------------------------------------------------------------------------- */

/* The last operation of the network, with its attributes: it adds the outputs for patches to the sums of their chunks. */
struct sgrad__blend {
    struct sgrad__segment *segment;
};
extern const struct sgrad_op sgrad__blend_op;
/* Reads a patch into data[0], as the read function of a data set (struct sgrad_reader). An error is recorded in the chunk;
 * returns 0. */
int sgrad__segment_read(const struct sgrad_dataset *dataset, struct sgrad_sample sample, void *const *data);
/* Writes a chunk when all of its patches have been added, or if it needs none; then frees its memory, and the record can be used
 * for another chunk. If the chunk has an error, the task is returned to the queue as failed instead; without a queue, or if
 * writing fails, SEGMENT gets the error. */
void sgrad__segment_end(struct sgrad__segment *segment, struct sgrad__chunk *chunk);
/* Adds the time since SINCE (sgrad_time_monotonic) to the time of this thread in a stage. */
void sgrad__segment_add_time(struct sgrad__segment *segment, enum sgrad__spending stage, double since);
/* Records an error of a chunk and its message REASON, and logs it. Only the first error of a chunk is recorded. */
void sgrad__segment_blame(struct sgrad__chunk *chunk, int error, const char *reason);

/* ---- chunks.c -------------------------------------------------------------------------------------------------- */

/* Computes and writes all chunks that do not exist in the output, with options.redo also existing ones; with a queue, those that
 * this process takes from it. Returns the first error that ends the work. */
int sgrad__segment_run(struct sgrad__segment *segment);

#endif
