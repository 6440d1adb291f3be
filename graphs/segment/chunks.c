/* chunks.c: processes the chunks of a volume one after another: selects their patches, and submits them in batches.
 *
 * A block of the output is blank if all of its voxels, or of its mask, are zero. Zeros are written for it, and patches that
 * overlap only blank blocks are not processed by the network. Blocks are those of the output format, not chunks, so that the
 * output does not depend on the size of chunks.
 *
 * If chunks come from a queue (queue.h), a chunk that cannot be read is reported there, and the others are continued; any other
 * error ends the process. Without a queue every error does.
 */
#include "graphs/segment/segment.h"

#include <stdlib.h>
#include <string.h>

static struct sgrad_box box_of(const struct sgrad__segment *segment, int64_t number) {
    const int64_t at[3] = { number / (segment->chunks[1] * segment->chunks[2]), number / segment->chunks[2] % segment->chunks[1],
                            number % segment->chunks[2] };
    struct sgrad_box box = { { 0 }, { 1 } };
    for (int d = 0; d < 3; d++) {
        box.from[1 + d] = at[d] * segment->size[d];
        box.size[1 + d] =
            box.from[1 + d] + segment->size[d] < segment->dim[d] ? segment->size[d] : segment->dim[d] - box.from[1 + d];
    }
    return box;
}

/* ---- blank blocks ------------------------------------------------------------------------------------------------- */

/* Returns the voxels of the mask that cover BOX of the volume. */
static struct sgrad_box mask_of(const struct sgrad__segment *segment, const struct sgrad_box *box) {
    struct sgrad_box cover = { { 0 }, { 1 } };
    for (int d = 0; d < 3; d++) {
        const int64_t share = segment->dim[d] / segment->mask->dim[1 + d];
        cover.from[1 + d] = box->from[1 + d] / share;
        cover.size[1 + d] = (box->from[1 + d] + box->size[1 + d] + share - 1) / share - cover.from[1 + d];
    }
    return cover;
}

static int read_mask(const struct sgrad__segment *segment, struct sgrad__chunk *chunk) {
    if (!segment->mask) return 0;
    chunk->mask_box = mask_of(segment, &chunk->box);
    chunk->mask = sgrad_xcalloc((size_t)sgrad_box_count(&chunk->mask_box), sizeof *chunk->mask);
    return sgrad_volume_read(segment->mask, &chunk->mask_box, SGRAD_VOXEL_F32, chunk->mask);
}

static bool is_masked(const struct sgrad__segment *segment, const struct sgrad__chunk *chunk, const struct sgrad_box *block) {
    if (!segment->mask) return false;
    const struct sgrad_box cover = mask_of(segment, block);
    const int64_t count = sgrad_box_count(&cover);
    float *voxel = sgrad_xcalloc((size_t)count, sizeof *voxel);
    int64_t i = 0;
    sgrad_box_copy(&cover, sizeof *voxel, &chunk->mask_box, chunk->mask, &cover, voxel);
    while (i < count && voxel[i] == 0) i++;
    free(voxel);
    return i == count;
}

/* *ZERO: all voxels of BOX are zero. */
static int is_zero(const struct sgrad__segment *segment, const struct sgrad_box *box, bool *zero) {
    const size_t bytes = (size_t)sgrad_box_count(box) * sgrad_dtype_size(segment->pixel);
    char *pixel = sgrad_xcalloc(bytes, 1);
    size_t i = 0;
    int error = sgrad_volume_read_pixels(segment->in, box, pixel);
    while (i < bytes && !pixel[i]) i++;
    *zero = i == bytes;
    free(pixel);
    return error;
}

/* *BLANK: all voxels of the block are zero. For most blocks, one slice in the middle suffices to see that they are not. */
static int find_blank(const struct sgrad__segment *segment, const struct sgrad_box *block, bool *blank) {
    struct sgrad_box middle = *block;
    middle.from[1] += middle.size[1] / 2;
    middle.size[1] = 1;
    SGRAD_TRY(is_zero(segment, &middle, blank));
    return *blank ? is_zero(segment, block, blank) : 0;
}

/* Determines which blocks of the chunk are computed; *ANY: at least one. */
static int find_shown(const struct sgrad__segment *segment, struct sgrad__chunk *chunk, bool *any) {
    int64_t count = 1;
    for (int d = 0; d < 3; d++) count *= chunk->blocks[d] = (chunk->box.size[1 + d] + segment->block[d] - 1) / segment->block[d];
    chunk->shown = sgrad_xcalloc((size_t)count, sizeof *chunk->shown);
    *any = false;
    SGRAD_TRY(read_mask(segment, chunk));
    for (int64_t i = 0; i < count; i++) {
        const int64_t at[3] = { i / (chunk->blocks[1] * chunk->blocks[2]), i / chunk->blocks[2] % chunk->blocks[1],
                                i % chunk->blocks[2] };
        struct sgrad_box block = { { 0 }, { 1 } };
        bool blank;
        for (int d = 0; d < 3; d++) {
            const int64_t end = chunk->box.from[1 + d] + chunk->box.size[1 + d];
            block.from[1 + d] = chunk->box.from[1 + d] + at[d] * segment->block[d];
            block.size[1 + d] = block.from[1 + d] + segment->block[d] < end ? segment->block[d] : end - block.from[1 + d];
        }
        blank = is_masked(segment, chunk, &block);
        if (!blank) SGRAD_TRY(find_blank(segment, &block, &blank));
        chunk->shown[i] = !blank;
        *any |= !blank;
        segment->result->blank += blank;
    }
    return 0;
}

/* Returns true if patch NUMBER of the chunk overlaps a block that is computed. */
static bool meets_shown(const struct sgrad__segment *segment, const struct sgrad__chunk *chunk, int64_t number) {
    const int64_t at[3] = { number / (chunk->count[1] * chunk->count[2]), number / chunk->count[2] % chunk->count[1],
                            number % chunk->count[2] };
    int64_t first[3], end[3];
    for (int d = 0; d < 3; d++) {
        const int64_t from = segment->patches.axis[d].from[chunk->first[d] + at[d]] - chunk->box.from[1 + d],
                      to = from + segment->o->patch[d];
        first[d] = from > 0 ? from / segment->block[d] : 0;
        end[d] = to < chunk->box.size[1 + d] ? (to + segment->block[d] - 1) / segment->block[d] : chunk->blocks[d];
    }
    for (int64_t z = first[0]; z < end[0]; z++)
        for (int64_t y = first[1]; y < end[1]; y++)
            for (int64_t x = first[2]; x < end[2]; x++)
                if (chunk->shown[(z * chunk->blocks[1] + y) * chunk->blocks[2] + x]) return true;
    return false;
}

/* ---- the loop over chunks ----------------------------------------------------------------------------------------- */

static bool is_there(const struct sgrad__segment *segment, int64_t number) {
    struct sgrad_box box = box_of(segment, number);
    box.size[0] = segment->classes;
    return !segment->o->redo && sgrad_volume_has(segment->out, &box);
}

/* Returns the next chunk that is not in the output yet. -1: none. -2: other processes have the remaining chunks of the queue. */
static int next_chunk(struct sgrad__segment *segment, bool may_wait, int64_t *number) {
    const int64_t all = segment->chunks[0] * segment->chunks[1] * segment->chunks[2];
    for (;;) {
        if (segment->queue) SGRAD_TRY(sgrad_queue_take(segment->queue, may_wait, number));
        else *number = segment->next < all ? segment->next++ : -1;
        if (*number < 0 || !is_there(segment, *number)) return 0;
        segment->result->skipped++;
        if (segment->queue) SGRAD_TRY(sgrad_queue_done(segment->queue, *number));
    }
}

static int wait_step(struct sgrad__segment *segment) {
    const struct sgrad__slot *done;
    SGRAD_TRY(sgrad__runner_wait(segment->runner, &done));
    return segment->error;
}

/* Submits the batch, which may be incomplete. */
static int submit(struct sgrad__segment *segment) {
    if (!segment->pendings) return 0;
    while (segment->pendings < segment->program->share)
        segment->pending[segment->pendings++] = (struct sgrad_sample){ .index = SGRAD__NO_CHUNK };
    if (segment->runner->submitted - segment->runner->finished == SGRAD__BATCHES) SGRAD_TRY(wait_step(segment));
    segment->pendings = 0;
    return sgrad__runner_submit(segment->runner, &(struct sgrad_step){ .number = 1 }, segment->pending);
}

/* Returns the index of an unused element of chunk[]; waits for one if necessary. */
static int free_place(struct sgrad__segment *segment, int *place) {
    for (;;) {
        for (int i = 0; i < SGRAD__CHUNKS; i++)
            if (!segment->chunk[i].busy) return *place = i, 0;
        if (segment->runner->submitted == segment->runner->finished) SGRAD_TRY(submit(segment));
        SGRAD_TRY(wait_step(segment));
    }
}

static void open_chunk(struct sgrad__segment *segment, struct sgrad__chunk *chunk, int64_t number) {
    chunk->number = number;
    chunk->box = box_of(segment, number);
    for (int d = 0; d < 3; d++)
        sgrad_patches_meet(&segment->patches.axis[d], chunk->box.from[1 + d], chunk->box.from[1 + d] + chunk->box.size[1 + d],
                           &chunk->first[d], &chunk->count[d]);
    chunk->sum = NULL;
    chunk->plane = NULL;
    chunk->mask = NULL;
    chunk->busy = true;
    segment->result->voxels += sgrad_box_count(&chunk->box);
    segment->result->chunks++;
}

static void open_sums(const struct sgrad__segment *segment, struct sgrad__chunk *chunk) {
    chunk->sum = sgrad_xcalloc((size_t)(segment->classes * sgrad_box_count(&chunk->box)), sizeof *chunk->sum);
    chunk->plane = sgrad_xcalloc((size_t)chunk->box.size[1], sizeof *chunk->plane);
    for (int64_t z = 0; z < chunk->box.size[1]; z++) pthread_mutex_init(&chunk->plane[z], NULL);
}

/* Submits the patches of the chunk, with their mirror images. A chunk without patches ends immediately. */
static int submit_chunk(struct sgrad__segment *segment, int place) {
    struct sgrad__chunk *c = &segment->chunk[place];
    const int64_t patches = c->count[0] * c->count[1] * c->count[2];
    const double start = sgrad_time_monotonic();
    bool any;
    char reason[sizeof c->reason];
    c->error = 0;
    sgrad_log_capture(reason, sizeof reason);
    const int error = find_shown(segment, c, &any);
    sgrad_log_capture(NULL, 0);
    if (error) sgrad__segment_blame(c, error, reason);
    sgrad__segment_add_time(segment, SGRAD__LOAD, start);
    if (c->error || !any) {
        sgrad__segment_end(segment, c);
        return segment->error;
    }
    int64_t shown = 0;
    for (int64_t i = 0; i < patches; i++) shown += meets_shown(segment, c, i);
    open_sums(segment, c);
    c->left = shown * segment->mirrors;
    segment->result->patches += c->left;
    for (int64_t i = 0; shown; i++) {       /* the last patch ends the chunk and frees its memory */
        if (!meets_shown(segment, c, i)) continue;
        shown--;
        for (int mirror = 0; mirror < segment->mirrors; mirror++) {
            segment->pending[segment->pendings++] =
                (struct sgrad_sample){ .index = place, .view = i * segment->mirrors + mirror };
            if (segment->pendings == segment->program->share) SGRAD_TRY(submit(segment));
        }
    }
    return 0;
}

int sgrad__segment_run(struct sgrad__segment *segment) {
    for (;;) {
        int64_t number;
        int place;
        SGRAD_TRY(free_place(segment, &place));
        SGRAD_TRY(next_chunk(segment, false, &number));
        if (number < 0) {       /* first wait for the batches in flight; chunks of other processes may return to the queue */
            SGRAD_TRY(submit(segment));
            while (segment->runner->submitted > segment->runner->finished) SGRAD_TRY(wait_step(segment));
            if (number == -2) SGRAD_TRY(next_chunk(segment, true, &number));
            if (number < 0) return segment->error;
        }
        open_chunk(segment, &segment->chunk[place], number);
        SGRAD_TRY(submit_chunk(segment, place));
        if (segment->o->progress) segment->o->progress(segment->o, segment->result);
    }
}
