/* patches.c: reads patches of a volume, and blends the predictions of the network for them.
 *
 * Reading a patch is the task by which a program reads samples. The network ends with an operation that multiplies the prediction
 * for each voxel by the weight of the patch, converts it to an integer (multiples of 2^-30), and adds it to the chunk's sums.
 * The result therefore does not depend on the order of patches: any number of workers, in any number of processes, writes the
 * same. The last patch of a chunk writes the chunk.
 *
 * If mirror images are processed too, each has an equal fraction of the weight of the patch. Bits of its number specify the axes
 * that are reversed: 1 x, 2 y, 4 z. */
#include "codelets/kernels.h"
#include "graphs/segment/segment.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static float scale_of(const struct sgrad__segment *segment) { return segment->o->logits ? 0x1p20f : 0x1p30f; }
void sgrad__segment_add_time(struct sgrad__segment *segment, enum sgrad__spending stage, double since) {
    const int worker = sgrad_worker_here();
    atomic_fetch_add(&segment->spent[stage][worker < 0 ? SGRAD_MAX_WORKERS : worker],
                     (int64_t)(1e9 * (sgrad_time_monotonic() - since)));
}
void sgrad__segment_blame(struct sgrad__chunk *chunk, int error, const char *reason) {
    int none = 0;
    if (!atomic_compare_exchange_strong(&chunk->error, &none, error)) return;
    snprintf(chunk->reason, sizeof chunk->reason, "%s", reason);
    sgrad_log_error(error, "%s", reason);
}

/* ---- reading -------------------------------------------------------------------------------------------------------- */

/* For view NUMBER of a chunk (segment.h), returns along each axis the index of the patch, and whether the axis is
 * reversed. */
static void place_of(const struct sgrad__segment *segment, const struct sgrad__chunk *chunk, int64_t number, int64_t at[3],
                     bool turned[3]) {
    const int64_t mirror = number % segment->mirrors, patch = number / segment->mirrors;
    at[0] = chunk->first[0] + patch / (chunk->count[1] * chunk->count[2]);
    at[1] = chunk->first[1] + patch / chunk->count[2] % chunk->count[1];
    at[2] = chunk->first[2] + patch % chunk->count[2];
    for (int d = 0; d < 3; d++) turned[d] = mirror >> (2 - d) & 1;
}

/* Mirrors coordinates beyond the volume, if the volume is smaller than a patch. */
static int64_t mirrored(int64_t x, int64_t size) {
    const int64_t period = size > 1 ? 2 * (size - 1) : 1, at = x % period;
    return at < size ? at : period - at;
}

static int read_patch(struct sgrad__segment *segment, struct sgrad__chunk *chunk, int64_t number, void *data) {
    const int64_t *patch = segment->o->patch;
    const size_t size = sgrad_dtype_size(segment->pixel);
    int64_t at[3];
    bool turned[3];
    place_of(segment, chunk, number, at, turned);
    struct sgrad_box box = { { 0 }, { 1 } };
    for (int d = 0; d < 3; d++) {
        box.from[1 + d] = segment->patches.axis[d].from[at[d]];
        box.size[1 + d] = patch[d] < segment->dim[d] ? patch[d] : segment->dim[d];
    }
    int64_t *from[3];       /* along each axis: coordinates of the patch's voxels in the box */
    for (int d = 0; d < 3; d++) {
        from[d] = sgrad_xcalloc((size_t)patch[d], sizeof *from[d]);
        for (int64_t x = 0; x < patch[d]; x++) from[d][x] = mirrored(turned[d] ? patch[d] - 1 - x : x, box.size[1 + d]);
    }
    const bool as_it_is = !turned[2] && box.size[3] == patch[2];
    char *whole = sgrad_xcalloc((size_t)sgrad_box_count(&box), size), *to = data;
    int error = sgrad_volume_read_pixels(segment->in, &box, whole);
    for (int64_t z = 0; z < patch[0] && !error; z++)
        for (int64_t y = 0; y < patch[1]; y++, to += patch[2] * (int64_t)size) {
            const char *row = whole + (from[0][z] * box.size[2] + from[1][y]) * box.size[3] * (int64_t)size;
            if (as_it_is) memcpy(to, row, (size_t)patch[2] * size);
            else
                for (int64_t x = 0; x < patch[2]; x++) memcpy(to + x * (int64_t)size, row + from[2][x] * (int64_t)size, size);
        }
    for (int d = 0; d < 3; d++) free(from[d]);
    free(whole);
    return error;
}

int sgrad__segment_read(const struct sgrad_dataset *dataset, struct sgrad_sample sample, void *const *data) {
    struct sgrad__segment *s = dataset->state;
    if (sample.index == SGRAD__NO_CHUNK) return 0;
    struct sgrad__chunk *c = &s->chunk[sample.index];
    if (c->error) return 0;
    const double start = sgrad_time_monotonic();
    char reason[sizeof c->reason];
    sgrad_log_capture(reason, sizeof reason);
    int error = read_patch(s, c, sample.view, data[0]);
    sgrad_log_capture(NULL, 0);
    if (error) sgrad__segment_blame(c, error, reason);
    sgrad__segment_add_time(s, SGRAD__LOAD, start);
    return 0;
}

/* ---- writing -------------------------------------------------------------------------------------------------------- */

/* Returns true if the voxel of the chunk belongs to a block that is computed, and is not masked. */
static bool is_wanted(const struct sgrad__segment *segment, const struct sgrad__chunk *chunk, int64_t z, int64_t y, int64_t x) {
    const int64_t *b = segment->block;
    if (!chunk->shown[(z / b[0] * chunk->blocks[1] + y / b[1]) * chunk->blocks[2] + x / b[2]]) return false;
    if (!chunk->mask) return true;
    const int64_t at[3] = { z, y, x };
    int64_t place = 0;
    for (int d = 0; d < 3; d++) {
        const int64_t voxel = (chunk->box.from[1 + d] + at[d]) * segment->mask->dim[1 + d] / segment->dim[d];
        place = place * chunk->mask_box.size[1 + d] + voxel - chunk->mask_box.from[1 + d];
    }
    return chunk->mask[place] != 0;
}

static int write_chunk(struct sgrad__segment *segment, struct sgrad__chunk *chunk) {
    const double start = sgrad_time_monotonic();
    const int64_t *size = chunk->box.size + 1, voxels = sgrad_box_count(&chunk->box), count = segment->classes * voxels;
    const float scale = 1 / scale_of(segment) * (segment->o->bytes ? 255 : 1);
    struct sgrad_box box = chunk->box;
    float *value = sgrad_xcalloc((size_t)count, sizeof *value);
    box.size[0] = segment->classes;
    for (int64_t i = 0; i < voxels; i++) {
        const bool wanted = chunk->sum && is_wanted(segment, chunk, i / (size[1] * size[2]), i / size[2] % size[1], i % size[2]);
        for (int64_t k = i; k < count; k += voxels) value[k] = wanted ? (float)chunk->sum[k] * scale : 0;
    }
    int error = sgrad_volume_write(segment->out, &box, SGRAD_VOXEL_F32, value);
    free(value);
    sgrad__segment_add_time(segment, SGRAD__SAVE, start);
    return error;
}

/* Read errors concern only this chunk and are reported to the queue. Write errors end the process; its chunks return to the
 * queue. */
void sgrad__segment_end(struct sgrad__segment *segment, struct sgrad__chunk *chunk) {
    int error = chunk->error;
    if (error && segment->queue) error = sgrad_queue_failed(segment->queue, chunk->number, chunk->reason);
    else if (!error) {
        error = write_chunk(segment, chunk);
        if (!error && segment->queue) error = sgrad_queue_done(segment->queue, chunk->number);
    }
    if (error) segment->error = error;
    for (int64_t z = 0; chunk->plane && z < chunk->box.size[1]; z++) pthread_mutex_destroy(&chunk->plane[z]);
    free(chunk->sum);
    free(chunk->plane);
    free(chunk->shown);
    free(chunk->mask);
    chunk->busy = false;
}

/* ---- blending ------------------------------------------------------------------------------------------------------- */

/* Adds prediction · weight of one row of voxels to the sums, class by class. STEP, 1 or -1, is the direction in the output of
 * the network. Returns false if an output is NaN or infinite. */
static bool add_row(const struct sgrad__segment *segment, enum sgrad_dtype type, const void *x, int64_t from, int64_t step,
                    int64_t count, float weight, const float *weights, int32_t *sum, int64_t stride) {
    const int classes = segment->classes;
    const float scale = scale_of(segment) / (float)segment->mirrors;
    for (int64_t i = 0; i < count; i++) {
        float p[SGRAD_MAX_WEIGHTED], most = -INFINITY, all = 0;
        for (int c = 0; c < classes; c++) {
            p[c] = sgrad_get(type, x, (from + i * step) * classes + c);
            if (!isfinite(p[c])) return false;
        }
        for (int c = 0; c < classes; c++) most = fmaxf(most, p[c]);
        for (int c = 0; c < classes && !segment->o->logits; c++) all += p[c] = expf(p[c] - most);
        for (int c = 0; c < classes; c++) {
            const float value = segment->o->logits ? fminf(fmaxf(p[c], -1024), 1024) : p[c] / all;
            sum[c * stride + i] += (int32_t)lrintf(value * weight * weights[i] * scale);
        }
    }
    return true;
}

static void add_patch(struct sgrad__segment *segment, struct sgrad__chunk *chunk, int64_t number, enum sgrad_dtype type,
                      const void *x, int64_t voxel) {
    const int64_t *patch = segment->o->patch, *size = chunk->box.size + 1;
    int64_t at[3], from[3], begin[3], end[3];
    bool turned[3];
    place_of(segment, chunk, number, at, turned);
    for (int d = 0; d < 3; d++) {       /* the intersection with the chunk, in coordinates of the patch */
        from[d] = segment->patches.axis[d].from[at[d]] - chunk->box.from[1 + d];
        begin[d] = from[d] < 0 ? -from[d] : 0;
        end[d] = from[d] + patch[d] > size[d] ? size[d] - from[d] : patch[d];
    }
    bool finite = true;
    const int64_t first = turned[2] ? patch[2] - 1 - begin[2] : begin[2], step = turned[2] ? -1 : 1;
    for (int64_t z = begin[0]; z < end[0]; z++) {
        const float weight_z = segment->patches.axis[0].weight[at[0] * patch[0] + z];
        pthread_mutex_lock(&chunk->plane[from[0] + z]);
        for (int64_t y = begin[1]; y < end[1]; y++) {
            const int64_t own_z = turned[0] ? patch[0] - 1 - z : z, own_y = turned[1] ? patch[1] - 1 - y : y;
            finite &= add_row(segment, type, x, voxel + (own_z * patch[1] + own_y) * patch[2] + first, step, end[2] - begin[2],
                              weight_z * segment->patches.axis[1].weight[at[1] * patch[1] + y],
                              segment->patches.axis[2].weight + at[2] * patch[2] + begin[2],
                              chunk->sum + ((from[0] + z) * size[1] + from[1] + y) * size[2] + from[2] + begin[2],
                              size[0] * size[1] * size[2]);
        }
        pthread_mutex_unlock(&chunk->plane[from[0] + z]);
    }
    if (finite) return;
    char *reason =
        sgrad_format("segment: chunk %lld: an output of the network is not a finite number: its weights are damaged, or "
                     "do not fit the voxels",
                     (long long)chunk->number);
    sgrad__segment_blame(chunk, SGRAD_EFORMAT, reason);
    free(reason);
}

/* x (N,D,H,W,C), stat (2): 0, and the number of samples */
static int infer_blend(struct sgrad_signature *signature, void *attrs) {
    (void)attrs;
    signature->stat[0] = sgrad_shape(1, 2);
    return 0;
}
static void blend(const struct sgrad_args *args) {
    struct sgrad__segment *s = ((const struct sgrad__blend *)args->attrs)->segment;
    const struct sgrad_shape *shape = &args->view[0].shape;
    const int64_t voxels = sgrad_shape_count(shape) / shape->dim[0] / shape->dim[4];
    double *stat = args->data[1];
    for (int64_t i = 0; i < shape->dim[0]; i++) {
        const struct sgrad_sample sample = args->step->sample[args->first + i];
        if (sample.index == SGRAD__NO_CHUNK) continue;
        struct sgrad__chunk *c = &s->chunk[sample.index];
        const double start = sgrad_time_monotonic();
        if (!c->error) add_patch(s, c, sample.view, args->view[0].dtype, args->data[0], i * voxels);
        sgrad__segment_add_time(s, SGRAD__BLEND, start);
        if (atomic_fetch_sub(&c->left, 1) == 1) sgrad__segment_end(s, c);
    }
    stat[0] = 0;
    stat[1] = (double)shape->dim[0];
}
const struct sgrad_op sgrad__blend_op = {
    .name = "blend", .summary = "patch predictions, added to a volume", .inputs = 1,
    .attrs_size = sizeof(struct sgrad__blend), .infer = infer_blend, .not_differentiable = true,
    .forward = { { { .name = "blend", .kind = &sgrad_forward_kind, .cpu = blend, .flops = sgrad_no_flops },
                   .use = { SGRAD_IN(X, 0), SGRAD_OUT(STAT, 0) } } },
    .metrics = { { .name = "loss", .text = "loss", .title = "loss" } },
};
