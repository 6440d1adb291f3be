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

static struct sgrad_box box_of(const struct sgrad__segment *s, int64_t number) {
    const int64_t at[3] = { number / (s->chunks[1] * s->chunks[2]), number / s->chunks[2] % s->chunks[1], number % s->chunks[2] };
    struct sgrad_box box = { { 0 }, { 1 } };
    for (int d = 0; d < 3; d++) {
        box.from[1 + d] = at[d] * s->size[d];
        box.size[1 + d] = box.from[1 + d] + s->size[d] < s->dim[d] ? s->size[d] : s->dim[d] - box.from[1 + d];
    }
    return box;
}

/* ---- blank blocks ------------------------------------------------------------------------------------------------- */

/* Returns the voxels of the mask that cover BOX of the volume. */
static struct sgrad_box mask_of(const struct sgrad__segment *s, const struct sgrad_box *box) {
    struct sgrad_box cover = { { 0 }, { 1 } };
    for (int d = 0; d < 3; d++) {
        const int64_t share = s->dim[d] / s->mask->dim[1 + d];
        cover.from[1 + d] = box->from[1 + d] / share;
        cover.size[1 + d] = (box->from[1 + d] + box->size[1 + d] + share - 1) / share - cover.from[1 + d];
    }
    return cover;
}

static int read_mask(const struct sgrad__segment *s, struct sgrad__chunk *c) {
    if (!s->mask) return 0;
    c->mask_box = mask_of(s, &c->box);
    c->mask = sgrad_xcalloc((size_t)sgrad_box_count(&c->mask_box), sizeof *c->mask);
    return sgrad_volume_read(s->mask, &c->mask_box, SGRAD_VOXEL_F32, c->mask);
}

static bool is_masked(const struct sgrad__segment *s, const struct sgrad__chunk *c, const struct sgrad_box *block) {
    if (!s->mask) return false;
    const struct sgrad_box cover = mask_of(s, block);
    const int64_t count = sgrad_box_count(&cover);
    float *voxel = sgrad_xcalloc((size_t)count, sizeof *voxel);
    int64_t i = 0;
    sgrad_box_copy(&cover, sizeof *voxel, &c->mask_box, c->mask, &cover, voxel);
    while (i < count && voxel[i] == 0) i++;
    free(voxel);
    return i == count;
}

/* *ZERO: all voxels of BOX are zero. */
static int is_zero(const struct sgrad__segment *s, const struct sgrad_box *box, bool *zero) {
    const size_t bytes = (size_t)sgrad_box_count(box) * sgrad_dtype_size(s->pixel);
    char *pixel = sgrad_xcalloc(bytes, 1);
    size_t i = 0;
    int error = sgrad_volume_read_pixels(s->in, box, pixel);
    while (i < bytes && !pixel[i]) i++;
    *zero = i == bytes;
    free(pixel);
    return error;
}

/* *BLANK: all voxels of the block are zero. For most blocks, one slice in the middle suffices to see that they are not. */
static int find_blank(const struct sgrad__segment *s, const struct sgrad_box *block, bool *blank) {
    struct sgrad_box middle = *block;
    middle.from[1] += middle.size[1] / 2;
    middle.size[1] = 1;
    SGRAD_TRY(is_zero(s, &middle, blank));
    return *blank ? is_zero(s, block, blank) : 0;
}

/* Determines which blocks of the chunk are computed; *ANY: at least one. */
static int find_shown(const struct sgrad__segment *s, struct sgrad__chunk *c, bool *any) {
    int64_t count = 1;
    for (int d = 0; d < 3; d++) count *= c->blocks[d] = (c->box.size[1 + d] + s->block[d] - 1) / s->block[d];
    c->shown = sgrad_xcalloc((size_t)count, sizeof *c->shown);
    *any = false;
    SGRAD_TRY(read_mask(s, c));
    for (int64_t i = 0; i < count; i++) {
        const int64_t at[3] = { i / (c->blocks[1] * c->blocks[2]), i / c->blocks[2] % c->blocks[1], i % c->blocks[2] };
        struct sgrad_box block = { { 0 }, { 1 } };
        bool blank;
        for (int d = 0; d < 3; d++) {
            const int64_t end = c->box.from[1 + d] + c->box.size[1 + d];
            block.from[1 + d] = c->box.from[1 + d] + at[d] * s->block[d];
            block.size[1 + d] = block.from[1 + d] + s->block[d] < end ? s->block[d] : end - block.from[1 + d];
        }
        blank = is_masked(s, c, &block);
        if (!blank) SGRAD_TRY(find_blank(s, &block, &blank));
        c->shown[i] = !blank;
        *any |= !blank;
        s->result->blank += blank;
    }
    return 0;
}

/* Returns true if patch NUMBER of the chunk overlaps a block that is computed. */
static bool meets_shown(const struct sgrad__segment *s, const struct sgrad__chunk *c, int64_t number) {
    const int64_t at[3] = { number / (c->count[1] * c->count[2]), number / c->count[2] % c->count[1], number % c->count[2] };
    int64_t first[3], end[3];
    for (int d = 0; d < 3; d++) {
        const int64_t from = s->patches.axis[d].from[c->first[d] + at[d]] - c->box.from[1 + d], to = from + s->o->patch[d];
        first[d] = from > 0 ? from / s->block[d] : 0;
        end[d] = to < c->box.size[1 + d] ? (to + s->block[d] - 1) / s->block[d] : c->blocks[d];
    }
    for (int64_t z = first[0]; z < end[0]; z++)
        for (int64_t y = first[1]; y < end[1]; y++)
            for (int64_t x = first[2]; x < end[2]; x++)
                if (c->shown[(z * c->blocks[1] + y) * c->blocks[2] + x]) return true;
    return false;
}

/* ---- the loop over chunks ----------------------------------------------------------------------------------------- */

static bool is_there(const struct sgrad__segment *s, int64_t number) {
    struct sgrad_box box = box_of(s, number);
    box.size[0] = s->classes;
    return !s->o->redo && sgrad_volume_has(s->out, &box);
}

/* Returns the next chunk that is not in the output yet. -1: none. -2: other processes have the remaining chunks of the queue. */
static int next_chunk(struct sgrad__segment *s, bool may_wait, int64_t *number) {
    const int64_t all = s->chunks[0] * s->chunks[1] * s->chunks[2];
    for (;;) {
        if (s->queue) SGRAD_TRY(sgrad_queue_take(s->queue, may_wait, number));
        else *number = s->next < all ? s->next++ : -1;
        if (*number < 0 || !is_there(s, *number)) return 0;
        s->result->skipped++;
        if (s->queue) SGRAD_TRY(sgrad_queue_done(s->queue, *number));
    }
}

static int wait_step(struct sgrad__segment *s) {
    const struct sgrad__slot *done;
    SGRAD_TRY(sgrad__runner_wait(s->runner, &done));
    return s->error;
}

/* Submits the batch, which may be incomplete. */
static int submit(struct sgrad__segment *s) {
    if (!s->pendings) return 0;
    while (s->pendings < s->program->share) s->pending[s->pendings++] = (struct sgrad_sample){ .index = SGRAD__NO_CHUNK };
    if (s->runner->submitted - s->runner->finished == SGRAD__BATCHES) SGRAD_TRY(wait_step(s));
    s->pendings = 0;
    return sgrad__runner_submit(s->runner, &(struct sgrad_step){ .number = 1 }, s->pending);
}

/* Returns the index of an unused element of chunk[]; waits for one if necessary. */
static int free_place(struct sgrad__segment *s, int *place) {
    for (;;) {
        for (int i = 0; i < SGRAD__CHUNKS; i++)
            if (!s->chunk[i].busy) return *place = i, 0;
        if (s->runner->submitted == s->runner->finished) SGRAD_TRY(submit(s));
        SGRAD_TRY(wait_step(s));
    }
}

static void open_chunk(struct sgrad__segment *s, struct sgrad__chunk *c, int64_t number) {
    c->number = number;
    c->box = box_of(s, number);
    for (int d = 0; d < 3; d++)
        sgrad_patches_meet(&s->patches.axis[d], c->box.from[1 + d], c->box.from[1 + d] + c->box.size[1 + d], &c->first[d],
                           &c->count[d]);
    c->sum = NULL;
    c->plane = NULL;
    c->mask = NULL;
    c->busy = true;
    s->result->voxels += sgrad_box_count(&c->box);
    s->result->chunks++;
}

static void open_sums(const struct sgrad__segment *s, struct sgrad__chunk *c) {
    c->sum = sgrad_xcalloc((size_t)(s->classes * sgrad_box_count(&c->box)), sizeof *c->sum);
    c->plane = sgrad_xcalloc((size_t)c->box.size[1], sizeof *c->plane);
    for (int64_t z = 0; z < c->box.size[1]; z++) pthread_mutex_init(&c->plane[z], NULL);
}

/* Submits the patches of the chunk, with their mirror images. A chunk without patches ends immediately. */
static int submit_chunk(struct sgrad__segment *s, int place) {
    struct sgrad__chunk *c = &s->chunk[place];
    const int64_t patches = c->count[0] * c->count[1] * c->count[2];
    const double start = sgrad_time_monotonic();
    bool any;
    char reason[sizeof c->reason];
    c->error = 0;
    sgrad_log_capture(reason, sizeof reason);
    const int error = find_shown(s, c, &any);
    sgrad_log_capture(NULL, 0);
    if (error) sgrad__segment_blame(c, error, reason);
    sgrad__segment_add_time(s, SGRAD__LOAD, start);
    if (c->error || !any) {
        sgrad__segment_end(s, c);
        return s->error;
    }
    int64_t shown = 0;
    for (int64_t i = 0; i < patches; i++) shown += meets_shown(s, c, i);
    open_sums(s, c);
    c->left = shown * s->mirrors;
    s->result->patches += c->left;
    for (int64_t i = 0; shown; i++) {       /* the last patch ends the chunk and frees its memory */
        if (!meets_shown(s, c, i)) continue;
        shown--;
        for (int mirror = 0; mirror < s->mirrors; mirror++) {
            s->pending[s->pendings++] = (struct sgrad_sample){ .index = place, .view = i * s->mirrors + mirror };
            if (s->pendings == s->program->share) SGRAD_TRY(submit(s));
        }
    }
    return 0;
}

int sgrad__segment_run(struct sgrad__segment *s) {
    for (;;) {
        int64_t number;
        int place;
        SGRAD_TRY(free_place(s, &place));
        SGRAD_TRY(next_chunk(s, false, &number));
        if (number < 0) {       /* first wait for the batches in flight; chunks of other processes may return to the queue */
            SGRAD_TRY(submit(s));
            while (s->runner->submitted > s->runner->finished) SGRAD_TRY(wait_step(s));
            if (number == -2) SGRAD_TRY(next_chunk(s, true, &number));
            if (number < 0) return s->error;
        }
        open_chunk(s, &s->chunk[place], number);
        SGRAD_TRY(submit_chunk(s, place));
        if (s->o->tell) s->o->tell(s->o, s->result);
    }
}
