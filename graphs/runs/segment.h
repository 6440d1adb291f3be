/* segment.h: what the files that segment volumes share: segment.c, chunks.c, patches.c. Private to graphs/runs/.
 *
 *     chunk    whole blocks of the output: what is worked on, and written, at once
 *     patch    what the network is shown: those that meet a chunk are, some of them for the next chunk once more
 *
 *     patches    0  1  2  3 │ 4  5  6  7 │ …         batches of them in flight, across the ends of chunks
 *     sums       ── added ──┴─ chunk 0 written ─ …   three chunks at a time, at most
 */
#ifndef SGRAD_GRAPHS_SEGMENT_H
#define SGRAD_GRAPHS_SEGMENT_H

#include "datasets/datasets.h"
#include "graphs/runs/files.h"
#include "graphs/runs/runner.h"
#include "runtime/queue.h"
#include "volumes/patches.h"

#include <pthread.h>
#include <stdatomic.h>

enum { SGRAD__CHUNKS = 3, SGRAD__BATCHES = 2 };         /* in flight */
#define SGRAD__PLACES    ((int64_t)1 << 40)             /* sample: the chunk's place times this, and the patch's number in it */
#define SGRAD__NO_SAMPLE (SGRAD__CHUNKS * SGRAD__PLACES)

struct sgrad__chunk {
    int64_t number;
    struct sgrad_box box;                   /* (1,Z,Y,X) of it */
    int64_t first[3], count[3];             /* of the patches that meet it, along each axis */
    int64_t blocks[3];                      /* along each axis */
    bool *shown;                            /* by block: has it voxels that are wanted, and not all 0? */
    struct sgrad_box mask_box;              /* of the mask, what covers the chunk */
    float *mask;                            /* NULL: there is none */
    int32_t *sum;                           /* (classes,Z,Y,X) */
    pthread_mutex_t *plane;                 /* by slice of it */
    _Atomic int64_t left;                   /* patches that are not added yet */
    _Atomic int error;
    char reason[512];                       /* of the error */
    atomic_bool busy;
};

enum sgrad__spending { SGRAD__LOAD, SGRAD__BLEND, SGRAD__SAVE, SGRAD__STAGES };

struct sgrad__segment {
    const struct sgrad_segment_options *o;
    struct sgrad_context *context;
    struct sgrad_volume *in, *out, *mask;
    enum sgrad_dtype pixel;                 /* of what is read */
    struct sgrad_patches_of patches;
    char weights[SGRAD_CHECKSUM];           /* what tells them apart; "" where there are none */
    int classes, mirrors;                   /* mirrors: images of a patch that the network is shown: 1, 4 or 8 */
    int64_t dim[3], block[3], size[3], chunks[3];       /* of the volume, a block, a chunk; chunks along each axis */
    struct sgrad_reader reader;
    struct sgrad_dataset data;
    struct sgrad_graph *graph;
    struct sgrad__program *program;
    struct sgrad__runner *runner;
    struct sgrad_queue *queue;
    struct sgrad__chunk chunk[SGRAD__CHUNKS];
    int64_t *pending;                       /* samples of the batch that comes next */
    int64_t pendings, next;                 /* next: chunk, without a queue */
    _Atomic int error;                      /* that ends the work */
    _Atomic int64_t spent[SGRAD__STAGES][SGRAD_MAX_WORKERS + 1];   /* nanoseconds, by worker; the last: of none of them */
    struct sgrad_segment_result *result;
};

/* ---- patches.c ------------------------------------------------------------------------------------------------- */

/* The operation that a network ends with here, and its attributes. */
struct sgrad__blend {
    struct sgrad__segment *segment;
};
extern const struct sgrad_op sgrad__blend_op;
/* As a data set reads samples. */
int sgrad__segment_read(const struct sgrad_dataset *dataset, int64_t sample, void *const *data);
/* All patches of the chunk are added, or there are none: it is written, and its place is free. */
void sgrad__segment_end(struct sgrad__segment *segment, struct sgrad__chunk *chunk);
/* Adds the seconds SINCE a time to what this worker spent in a stage. */
void sgrad__segment_add_time(struct sgrad__segment *segment, enum sgrad__spending stage, double since);
/* The chunk cannot be read, for a REASON; the first counts. */
void sgrad__segment_blame(struct sgrad__chunk *chunk, int error, const char *reason);

/* ---- chunks.c -------------------------------------------------------------------------------------------------- */

/* Works on all chunks that are not there yet. */
int sgrad__segment_run(struct sgrad__segment *segment);

#endif
