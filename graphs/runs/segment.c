/* segment.c: a network run over a volume of any size, patch by patch.
 *
 *     chunk    whole blocks of the output: what is worked on, and written, at once
 *     patch    what the network is shown: those that meet a chunk are, some of them for the next chunk once more
 *
 *     patches    0  1  2  3 │ 4  5  6  7 │ …         batches of them in flight, across the ends of chunks
 *     sums       ── added ──┴─ chunk 0 written ─ …   three chunks at a time, at most
 *
 * Reading a patch is the task by which a program reads samples; the network ends with an operation that takes what is said of
 * each voxel, as whole numbers of 2^-30, times the patch's weight, and adds it to the chunk's sums, so that the order in which
 * patches come does not matter: any number of workers, here or elsewhere, writes the same. The last patch of a chunk writes it.
 * StarPU does all that side by side.
 *
 * Where chunks come from a queue (queue.h), what fails is reported there, and the others go on; else the first failure ends all.
 */
#include "codelets/kernels.h"
#include "codelets/ops/image.h"
#include "datasets/datasets.h"
#include "graphs/runs/files.h"
#include "graphs/runs/runner.h"
#include "runtime/queue.h"
#include "volumes/patches.h"

#include <assert.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS = 3, WINDOW = 2 };         /* chunks, batches in flight */
#define PLACES ((int64_t)1 << 40)       /* sample: slot times this, and the patch's number in its chunk */
#define NOTHING (SLOTS * PLACES)        /* a sample that is none */

struct chunk {
    int64_t number;
    struct sgrad_box box;                   /* (1,Z,Y,X) of it */
    int64_t first[3], count[3];             /* of the patches that meet it, along each axis */
    int32_t *sum;                           /* (classes,Z,Y,X) */
    pthread_mutex_t *plane;                 /* by slice of it */
    _Atomic int64_t left;                   /* patches that are not added yet */
    _Atomic int error;
    atomic_bool busy;
};

struct segment {
    const struct sgrad_segment_options *o;
    struct sgrad_context *context;
    struct sgrad_volume *in, *out;
    struct sgrad_patches_of patches;
    int classes;
    int64_t dim[3], block[3], size[3], chunks[3];       /* of the volume, a block, a chunk; chunks along each axis */
    struct sgrad_reader reader;
    struct sgrad_dataset data;
    struct sgrad_graph *graph;
    struct sgrad__program *program;
    struct sgrad__runner *runner;
    struct sgrad_queue *queue;
    struct chunk slot[SLOTS];
    int64_t *pending;                       /* samples of the batch that comes next */
    int64_t pendings, next;                 /* next: chunk, without a queue */
    _Atomic int error;
    _Atomic int64_t load, blend, save;      /* nanoseconds of workers */
    struct sgrad_segment_result *result;
};

static float scale_of(const struct segment *s) { return s->o->logits ? 0x1p20f : 0x1p30f; }
static void add_time(_Atomic int64_t *to, double since) { atomic_fetch_add(to, (int64_t)(1e9 * (sgrad_now() - since))); }

/* ---- patches: read ------------------------------------------------------------------------------------------------- */

/* Along each axis, which patch of all it is. */
static void place_of(const struct chunk *c, int64_t number, int64_t at[3]) {
    at[0] = c->first[0] + number / (c->count[1] * c->count[2]);
    at[1] = c->first[1] + number / c->count[2] % c->count[1];
    at[2] = c->first[2] + number % c->count[2];
}

/* Beyond the volume, where that is smaller than a patch, it is mirrored. */
static int64_t mirrored(int64_t x, int64_t size) {
    const int64_t period = size > 1 ? 2 * (size - 1) : 1, at = x % period;
    return at < size ? at : period - at;
}

static int read_patch(const struct sgrad_dataset *dataset, int64_t index, void *const *data) {
    struct segment *s = dataset->state;
    if (index == NOTHING) return 0;
    struct chunk *c = &s->slot[index / PLACES];
    if (c->error) return 0;
    const double start = sgrad_now();
    const int64_t *patch = s->o->patch;
    int64_t at[3];
    place_of(c, index % PLACES, at);
    struct sgrad_box box = { { 0 }, { 1 } };
    for (int d = 0; d < 3; d++) {
        box.from[1 + d] = s->patches.axis[d].from[at[d]];
        box.size[1 + d] = patch[d] < s->dim[d] ? patch[d] : s->dim[d];
    }
    uint8_t *whole = sgrad_alloc((size_t)sgrad_box_count(&box), 1), *to = data[0];
    int error = sgrad_volume_read(s->in, &box, SGRAD_VOXEL_U8, whole);
    for (int64_t z = 0; z < patch[0] && !error; z++)
        for (int64_t y = 0; y < patch[1]; y++)
            for (int64_t x = 0; x < patch[2]; x++)
                *to++ = whole[(mirrored(z, box.size[1]) * box.size[2] + mirrored(y, box.size[2])) * box.size[3] +
                              mirrored(x, box.size[3])];
    free(whole);
    if (error) c->error = error;
    add_time(&s->load, start);
    return 0;
}

/* ---- what is said of patches: blended ------------------------------------------------------------------------------ */

static int write_chunk(struct segment *s, struct chunk *c) {
    const double start = sgrad_now();
    const int64_t voxels = sgrad_box_count(&c->box), count = s->classes * voxels;
    const float scale = 1 / scale_of(s) * (s->o->bytes ? 255 : 1);
    struct sgrad_box box = c->box;
    float *value = sgrad_alloc((size_t)count, sizeof *value);
    box.size[0] = s->classes;
    for (int64_t i = 0; i < count; i++) value[i] = (float)c->sum[i] * scale;
    int error = sgrad_volume_write(s->out, &box, SGRAD_VOXEL_F32, value);
    free(value);
    add_time(&s->save, start);
    return error;
}

/* The chunk's last patch is there, or could not be read. */
static void end_chunk(struct segment *s, struct chunk *c) {
    int error = c->error ? c->error : write_chunk(s, c);
    if (s->queue)
        error = error ? sgrad_queue_failed(s->queue, c->number, sgrad_strerror(error)) : sgrad_queue_done(s->queue, c->number);
    if (error) s->error = error;
    free(c->sum);
    for (int64_t z = 0; z < c->box.size[1]; z++) pthread_mutex_destroy(&c->plane[z]);
    free(c->plane);
    c->busy = false;
}

/* Sums += p · weight of one row of voxels, class by class. */
static void add_row(const struct segment *s, enum sgrad_dtype type, const void *x, int64_t from, int64_t count, float weight,
                    const float *weights, int32_t *sum, int64_t stride) {
    const int classes = s->classes;
    const float scale = scale_of(s);
    for (int64_t i = 0; i < count; i++) {
        float p[SGRAD_MAX_WEIGHTED], most = -INFINITY, all = 0;
        for (int c = 0; c < classes; c++) p[c] = sgrad_get(type, x, (from + i) * classes + c);
        for (int c = 0; c < classes; c++) most = fmaxf(most, p[c]);
        for (int c = 0; c < classes && !s->o->logits; c++) all += p[c] = expf(p[c] - most);
        for (int c = 0; c < classes; c++) {
            const float value = s->o->logits ? fminf(fmaxf(p[c], -1024), 1024) : p[c] / all;
            sum[c * stride + i] += (int32_t)lrintf(value * weight * weights[i] * scale);
        }
    }
}

static void add_patch(struct segment *s, struct chunk *c, int64_t number, enum sgrad_dtype type, const void *x, int64_t voxel) {
    const int64_t *patch = s->o->patch, *size = c->box.size + 1;
    int64_t at[3], from[3], begin[3], end[3];
    place_of(c, number, at);
    for (int d = 0; d < 3; d++) {       /* of the chunk, what the patch has; in the patch */
        from[d] = s->patches.axis[d].from[at[d]] - c->box.from[1 + d];
        begin[d] = from[d] < 0 ? -from[d] : 0;
        end[d] = from[d] + patch[d] > size[d] ? size[d] - from[d] : patch[d];
    }
    for (int64_t z = begin[0]; z < end[0]; z++) {
        const float weight_z = s->patches.axis[0].weight[at[0] * patch[0] + z];
        pthread_mutex_lock(&c->plane[from[0] + z]);
        for (int64_t y = begin[1]; y < end[1]; y++)
            add_row(s, type, x, voxel + (z * patch[1] + y) * patch[2] + begin[2], end[2] - begin[2],
                    weight_z * s->patches.axis[1].weight[at[1] * patch[1] + y],
                    s->patches.axis[2].weight + at[2] * patch[2] + begin[2],
                    c->sum + ((from[0] + z) * size[1] + from[1] + y) * size[2] + from[2] + begin[2], size[0] * size[1] * size[2]);
        pthread_mutex_unlock(&c->plane[from[0] + z]);
    }
}

/* x (N,D,H,W,C), stat (2): nothing, and samples */
struct blend {
    struct segment *segment;
};
static int infer_blend(struct sgrad_signature *g, void *attrs) {
    (void)attrs;
    g->stat[0] = sgrad_shape(1, 2);
    return 0;
}
static void blend(const struct sgrad_args *a) {
    struct segment *s = ((const struct blend *)a->attrs)->segment;
    const struct sgrad_shape *shape = &a->view[0].shape;
    const int64_t voxels = sgrad_shape_count(shape) / shape->dim[0] / shape->dim[4];
    double *stat = a->data[1];
    for (int64_t i = 0; i < shape->dim[0]; i++) {
        const int64_t index = a->step->sample[a->first - a->step->first + i];
        if (index == NOTHING) continue;
        struct chunk *c = &s->slot[index / PLACES];
        const double start = sgrad_now();
        if (!c->error) add_patch(s, c, index % PLACES, a->view[0].dtype, a->data[0], i * voxels);
        add_time(&s->blend, start);
        if (atomic_fetch_sub(&c->left, 1) == 1) end_chunk(s, c);
    }
    stat[0] = 0;
    stat[1] = (double)shape->dim[0];
}
static const struct sgrad_op blend_op = {
    .name = "blend", .summary = "what is said of patches, added to a volume", .inputs = 1, .attrs_size = sizeof(struct blend),
    .infer = infer_blend, .not_differentiable = true,
    .forward = { { { .name = "blend", .kind = &sgrad_forward_kind, .cpu = blend, .flops = sgrad_no_flops },
                   { SGRAD_IN(X, 0), SGRAD_OUT(STAT, 0) } } },
    .metrics = { { "loss", "loss", "loss", false } },
};

/* ---- chunks ------------------------------------------------------------------------------------------------------- */

static struct sgrad_box box_of(const struct segment *s, int64_t number) {
    const int64_t at[3] = { number / (s->chunks[1] * s->chunks[2]), number / s->chunks[2] % s->chunks[1], number % s->chunks[2] };
    struct sgrad_box box = { { 0 }, { 1 } };
    for (int d = 0; d < 3; d++) {
        box.from[1 + d] = at[d] * s->size[d];
        box.size[1 + d] = box.from[1 + d] + s->size[d] < s->dim[d] ? s->size[d] : s->dim[d] - box.from[1 + d];
    }
    return box;
}

static void open_chunk(struct segment *s, struct chunk *c, int64_t number) {
    c->number = number;
    c->box = box_of(s, number);
    c->left = 1;
    for (int d = 0; d < 3; d++) {
        sgrad_patches_meet(&s->patches.axis[d], c->box.from[1 + d], c->box.from[1 + d] + c->box.size[1 + d], &c->first[d],
                           &c->count[d]);
        c->left *= c->count[d];
    }
    c->sum = sgrad_alloc((size_t)(s->classes * sgrad_box_count(&c->box)), sizeof *c->sum);
    c->plane = sgrad_alloc((size_t)c->box.size[1], sizeof *c->plane);
    for (int64_t z = 0; z < c->box.size[1]; z++) pthread_mutex_init(&c->plane[z], NULL);
    c->error = 0;
    c->busy = true;
    s->result->voxels += sgrad_box_count(&c->box);
    s->result->patches += c->left;
    s->result->chunks++;
}

static bool is_there(const struct segment *s, int64_t number) {
    struct sgrad_box box = box_of(s, number);
    box.size[0] = s->classes;
    return !s->o->redo && sgrad_volume_has(s->out, &box);
}

/* The chunk that comes next, which is not there yet. -1: none. -2: others have what is left of the queue. */
static int next_chunk(struct segment *s, bool may_wait, int64_t *number) {
    const int64_t all = s->chunks[0] * s->chunks[1] * s->chunks[2];
    for (;;) {
        if (s->queue) SGRAD_TRY(sgrad_queue_take(s->queue, may_wait, number));
        else *number = s->next < all ? s->next++ : -1;
        if (*number < 0 || !is_there(s, *number)) return 0;
        s->result->skipped++;
        if (s->queue) SGRAD_TRY(sgrad_queue_done(s->queue, *number));
    }
}

static int wait_step(struct segment *s) {
    const struct sgrad__slot *done;
    SGRAD_TRY(sgrad__runner_wait(s->runner, &done));
    return s->error && !s->queue ? s->error : 0;
}

/* The batch goes off, whole or not. */
static int submit(struct segment *s) {
    if (!s->pendings) return 0;
    while (s->pendings < s->program->share) s->pending[s->pendings++] = NOTHING;
    if (s->runner->submitted - s->runner->finished == WINDOW) SGRAD_TRY(wait_step(s));
    s->pendings = 0;
    return sgrad__runner_submit(s->runner, &(struct sgrad_step){ .number = 1 }, s->pending);
}

/* A slot that no chunk has; waits for one. */
static int free_slot(struct segment *s, int *slot) {
    for (;;) {
        for (int i = 0; i < SLOTS; i++)
            if (!s->slot[i].busy) return *slot = i, 0;
        if (s->runner->submitted == s->runner->finished) SGRAD_TRY(submit(s));
        SGRAD_TRY(wait_step(s));
    }
}

static int run_chunks(struct segment *s) {
    for (;;) {
        int64_t number;
        int slot;
        SGRAD_TRY(free_slot(s, &slot));
        SGRAD_TRY(next_chunk(s, false, &number));
        if (number < 0) {       /* what is under way ends first, and what others have may come back */
            SGRAD_TRY(submit(s));
            while (s->runner->submitted > s->runner->finished) SGRAD_TRY(wait_step(s));
            if (number == -2) SGRAD_TRY(next_chunk(s, true, &number));
            if (number < 0) return s->error && !s->queue ? s->error : 0;
        }
        struct chunk *c = &s->slot[slot];
        open_chunk(s, c, number);
        for (int64_t i = 0, count = c->left; i < count; i++) {
            s->pending[s->pendings++] = slot * PLACES + i;
            if (s->pendings == s->program->share) SGRAD_TRY(submit(s));
        }
        if (s->o->tell) s->o->tell(s->o, s->result);
    }
}

/* ---- opening ------------------------------------------------------------------------------------------------------ */

/* Classes are as many as the last layer, "out", has channels. */
static int find_classes(struct segment *s, const struct sgrad_safetensors *weights) {
    const struct sgrad_entry *out = sgrad_safetensors_find(weights, "out.weight");
    if (!out || out->view.shape.rank < 1 || out->view.shape.dim[0] < 1 || out->view.shape.dim[0] > SGRAD_MAX_WEIGHTED)
        return sgrad_fail(SGRAD_EFORMAT, "%s: has no out.weight of 1 to %d classes: not the weights of a network that segments",
                          weights->path, SGRAD_MAX_WEIGHTED);
    s->classes = (int)out->view.shape.dim[0];
    return 0;
}

static int add_layers(struct segment *s, const struct sgrad_model *model) {
    double mean[SGRAD_MAX_CHANNELS] = { 0 }, deviation[SGRAD_MAX_CHANNELS] = { 1, 1, 1, 1 };
    struct sgrad_graph *g = s->graph = sgrad_graph_create(s->o->precision == SGRAD_PRECISION_BF16 ? SGRAD_BF16 : SGRAD_F32);
    SGRAD_TRY(sgrad__graph_set_model(g, model, s->o->custom_model ? NULL : s->o->model));
    if (s->o->weights) {
        bool found;
        char *folder = sgrad_format("%s", s->o->weights), *slash = strrchr(folder, '/');
        if (slash) *slash = 0;
        int error = sgrad__config_input(slash ? folder : ".", 1, mean, deviation, &found);
        if (!error && !found)
            error =
                sgrad_fail(SGRAD_EIO, "%s: has no config.json beside it, which says how pixels are normalised", s->o->weights);
        free(folder);
        SGRAD_TRY(error);
    }
    int x = sgrad_graph_input(g, "pixels", SGRAD_U8, s->data.field[0].shape);
    x = sgrad_layer(g, image, "augment", (x), .full_scale = 255, .mean = { (float)mean[0] },
                    .deviation = { (float)deviation[0] });
    x = model->build(g, x, s->classes);
    const struct sgrad_shape *p = &s->data.field[0].shape, y = sgrad_graph_shape(g, x);
    char text[SGRAD_SHAPE_TEXT];
    SGRAD_TRY(sgrad_graph_error(g));
    if (y.rank != 5 || memcmp(y.dim + 1, p->dim, 3 * sizeof *p->dim) || y.dim[4] != s->classes)
        return sgrad_fail(
            SGRAD_ESHAPE, "model %s: says %s of a patch of %lldx%lldx%lld: a network that segments says classes of each voxel",
            model->name, sgrad_shape_text(&y, text), (long long)p->dim[0], (long long)p->dim[1], (long long)p->dim[2]);
    sgrad_graph_apply(g, &blend_op, "blend", &x, 1, &(struct blend){ s });
    SGRAD_TRY(sgrad_graph_end(g));
    return sgrad__parameters_allocate(g, NULL, 1);
}

static int open_network(struct segment *s) {
    const struct sgrad_segment_options *o = s->o;
    const struct sgrad_model *model = o->custom_model ? o->custom_model : sgrad_model_find(o->model);
    struct sgrad_safetensors weights;
    const int64_t *p = o->patch;
    if (!model) return SGRAD_ENAME;
    if (model->side_multiple && (p[1] % model->side_multiple || p[2] % model->side_multiple))
        return sgrad_fail(SGRAD_EINVAL, "segment: a patch of %lldx%lldx%lld: model %s takes multiples of %d along y and x",
                          (long long)p[0], (long long)p[1], (long long)p[2], model->name, model->side_multiple);
    s->reader = (struct sgrad_reader){ .name = "patches", .read = read_patch };
    s->data = (struct sgrad_dataset){ .reader = &s->reader, .count = INT64_MAX, .full_scale = 255, .state = s };
    s->data.field[0] = (struct sgrad_field){ "pixels", SGRAD_U8, { 4, { p[0], p[1], p[2], 1 } }, NULL };
    s->classes = o->classes;
    if (!o->weights) return add_layers(s, model);
    SGRAD_TRY(sgrad_safetensors_open(o->weights, &weights));
    int error = find_classes(s, &weights);
    if (!error) error = add_layers(s, model);
    if (!error) error = sgrad__weights_load(s->graph, &weights, false, NULL);
    sgrad_safetensors_close(&weights);
    return error;
}

static int open_program(struct segment *s) {
    const struct sgrad_segment_options *o = s->o;
    const int workers = s->context->cpus + s->context->cudas, micro = o->batch ? (int)o->batch : 1;
    const struct sgrad__program_options how = {
        .batch = (int64_t)micro * (workers > 0 ? workers : 1), .micro = micro, .group = micro, .fuse = true,
        .cpus = s->context->cpus, .cudas = s->context->cudas, .window = WINDOW, .deterministic = true,
        .tf32 = o->precision == SGRAD_PRECISION_TF32, .source = sgrad__source_of(&s->data),
    };
    SGRAD_TRY(sgrad__program_build(s->graph, &how, &s->program));
    SGRAD_TRY(sgrad__program_allocate(s->program));
    s->pending = sgrad_alloc((size_t)s->program->share, sizeof *s->pending);
    s->runner = sgrad__runner_create(s->program, NULL);
    return 0;
}

/* A chunk is a block, doubled along the axis where it is the shortest, while there is memory for SLOTS of it, and as they are
 * written, and half of it is left for patches. */
static void choose_chunk(struct segment *s) {
    const double room = s->o->memory * 1e9 / 2 / (SLOTS + 1) / (sizeof(int32_t) * (double)s->classes);
    for (int d = 0; d < 3; d++) s->size[d] = s->block[d];
    for (int least = 0; least >= 0;) {
        least = -1;
        for (int d = 2; d >= 0; d--)
            if (s->size[d] < s->dim[d] && (least < 0 || s->size[d] < s->size[least])) least = d;
        if (least < 0 || 2.0 * (double)s->size[0] * (double)s->size[1] * (double)s->size[2] > room) break;
        s->size[least] *= 2;
    }
    for (int d = 0; d < 3; d++) s->chunks[d] = (s->dim[d] + s->size[d] - 1) / s->size[d];
}

/* How many times as many voxels the network is shown as there are. */
static double shown_share(const struct segment *s) {
    double shown = 1;
    for (int d = 0; d < 3; d++) {
        int64_t along = 0;
        for (int64_t c = 0; c < s->chunks[d]; c++) {
            int64_t first, count;
            const int64_t from = c * s->size[d], end = from + s->size[d] < s->dim[d] ? from + s->size[d] : s->dim[d];
            sgrad_patches_meet(&s->patches.axis[d], from, end, &first, &count);
            along += count * s->o->patch[d];
        }
        shown *= (double)along / (double)s->dim[d];
    }
    return shown;
}

static int open_volumes(struct segment *s) {
    const struct sgrad_segment_options *o = s->o;
    static const int64_t least[3] = { 16, 128, 128 };
    SGRAD_TRY(sgrad_volume_open(o->in, &s->in));
    if (s->in->dim[0] != 1 || s->in->voxel != SGRAD_VOXEL_U8)
        return sgrad_fail(SGRAD_EFORMAT, "%s: has %lld channels of %s: takes one of uint8", o->in, (long long)s->in->dim[0],
                          sgrad_voxel_name(s->in->voxel));
    for (int d = 0; d < 3; d++) {
        s->dim[d] = s->in->dim[1 + d];
        s->block[d] = least[d] < s->dim[d] ? least[d] : s->dim[d];
    }
    SGRAD_TRY(sgrad_patches_open(s->dim, o->patch, o->overlap, &s->patches));
    return 0;
}

static int open_output(struct segment *s) {
    const struct sgrad_segment_options *o = s->o;
    SGRAD_TRY(sgrad_volume_create(o->out, o->bytes ? SGRAD_VOXEL_U8 : SGRAD_VOXEL_F32,
                                  (const int64_t[]){ s->classes, s->dim[0], s->dim[1], s->dim[2] },
                                  (const int64_t[]){ s->classes, s->block[0], s->block[1], s->block[2] }, &s->out));
    choose_chunk(s);
    for (int d = 0; d < 3; d++) s->result->chunk[d] = s->size[d];
    s->result->all_chunks = s->chunks[0] * s->chunks[1] * s->chunks[2];
    s->result->shown = shown_share(s);
    if (!o->queue) return 0;
    if (!sgrad_volume_is_shared(s->out))
        return sgrad_fail(SGRAD_EINVAL, "--queue: several processes write Zarr alone, not %s", o->out);
    char *work =
        sgrad_format("segment %s to %s, patches %lldx%lldx%lld, overlap %lldx%lldx%lld, chunks %lldx%lldx%lld, %d classes%s\n",
                     o->in, o->out, (long long)o->patch[0], (long long)o->patch[1], (long long)o->patch[2],
                     (long long)o->overlap[0], (long long)o->overlap[1], (long long)o->overlap[2], (long long)s->size[0],
                     (long long)s->size[1], (long long)s->size[2], s->classes, o->bytes ? ", bytes" : "");
    int error = sgrad_queue_open(o->queue, work, s->result->all_chunks, o->lease > 0 ? o->lease : 30, &s->queue);
    free(work);
    return error;
}

static int open_all(struct segment *s) {
    const struct sgrad_context_options how = {
        .cpus = s->o->cpus, .cudas = s->o->gpus, .scheduler = s->o->scheduler, .kinds = sgrad_kinds
    };
    SGRAD_TRY(open_volumes(s));
    SGRAD_TRY(sgrad_context_open(&how, &s->context));
    if (s->context->ranks > 1)
        return sgrad_fail(SGRAD_EINVAL, "segment: one process at a time, not %d ranks: start several with --queue",
                          s->context->ranks);
    SGRAD_TRY(open_network(s));
    SGRAD_TRY(open_output(s));
    return open_program(s);
}

static void close_all(struct segment *s) {
    if (s->context) sgrad_wait_all();
    for (int i = 0; i < SLOTS; i++)
        if (s->slot[i].busy) free(s->slot[i].sum), free(s->slot[i].plane);
    sgrad__runner_destroy(s->runner);
    sgrad__program_destroy(s->program);
    sgrad_graph_destroy(s->graph);
    sgrad_queue_close(s->queue);
    if (s->context) sgrad_context_close(s->context);
    sgrad_volume_close(s->in);
    sgrad_volume_close(s->out);
    sgrad_patches_close(&s->patches);
    free(s->pending);
}

int sgrad_segment(const struct sgrad_segment_options *options, struct sgrad_segment_result *result) {
    struct segment *s = sgrad_alloc(1, sizeof *s);
    *result = (struct sgrad_segment_result){ 0 };
    s->o = options;
    s->result = result;
    int error = open_all(s);
    const double start = sgrad_now();
    if (!error) error = run_chunks(s);
    result->seconds = sgrad_now() - start;
    result->load = (double)s->load / 1e9, result->blend = (double)s->blend / 1e9, result->save = (double)s->save / 1e9;
    result->workers = s->context ? s->context->cpus + s->context->cudas : 0;
    close_all(s);
    free(s);
    return error;
}
