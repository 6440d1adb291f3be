/* segment.c: applies a network to a volume of any size, patch by patch: opens and closes volumes, network and program. Their
 * use is in chunks.c and patches.c; segment.h gives an overview. */
#include "codelets/kernels.h"
#include "graphs/api/segment.h"
#include "codelets/ops/image.h"
#include "graphs/segment/segment.h"
#include "runtime/ranks/early.h"
#include "runtime/profile.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- opening ------------------------------------------------------------------------------------------------------ */

/* The number of classes is that of the channels of the last layer, "out". */
static int find_classes(struct sgrad__segment *segment, const struct sgrad_safetensors *weights) {
    const struct sgrad_entry *out = sgrad_safetensors_find(weights, "out.weight");
    if (!out || out->view.shape.rank < 1 || out->view.shape.dim[0] < 1 || out->view.shape.dim[0] > SGRAD_MAX_WEIGHTED)
        return sgrad_log_error(
            SGRAD_EFORMAT,
            "%s: has no tensor out.weight with 1 to %d classes: these are not the weights of a segmentation network",
            weights->path, SGRAD_MAX_WEIGHTED);
    segment->classes = (int)out->view.shape.dim[0];
    return 0;
}

static int add_layers(struct sgrad__segment *segment, const struct sgrad_model *model) {
    double mean[SGRAD_MAX_CHANNELS] = { 0 }, deviation[SGRAD_MAX_CHANNELS] = { 1, 1, 1, 1 };
    struct sgrad_graph *g = segment->graph =
        sgrad_graph_create(segment->o->precision == SGRAD_PRECISION_BF16 ? SGRAD_BF16 : SGRAD_F32);
    SGRAD_TRY(sgrad__graph_set_model(g, model, segment->o->custom_model ? NULL : segment->o->model));
    if (segment->o->weights) {
        bool found;
        char *folder = sgrad_format("%s", segment->o->weights), *slash = strrchr(folder, '/');
        if (slash) *slash = 0;
        int error = sgrad__config_input(slash ? folder : ".", 1, mean, deviation, &found);
        if (!error && !found)
            error = sgrad_log_error(SGRAD_EIO, "%s: its folder has no config.json, which specifies the normalisation of pixels",
                                    segment->o->weights);
        free(folder);
        SGRAD_TRY(error);
    }
    int x = sgrad_graph_input(g, "pixels", segment->pixel, segment->data.field[0].shape);
    x = sgrad_layer(g, image, "augment", (x), .full_scale = segment->data.full_scale, .mean = { (float)mean[0] },
                    .deviation = { (float)deviation[0] });
    x = model->build(g, x, segment->classes);
    const struct sgrad_shape *p = &segment->data.field[0].shape, y = sgrad_graph_shape(g, x);
    char text[SGRAD_SHAPE_TEXT];
    SGRAD_TRY(sgrad_graph_error(g));
    if (y.rank != 5 || memcmp(y.dim + 1, p->dim, 3 * sizeof *p->dim) || y.dim[4] != segment->classes)
        return sgrad_log_error(
            SGRAD_ESHAPE, "model %s: has output %s for a patch of %lldx%lldx%lld, but must have the classes of each voxel",
            model->name, sgrad_shape_text(&y, text), (long long)p->dim[0], (long long)p->dim[1], (long long)p->dim[2]);
    sgrad_graph_apply(g, &sgrad__blend_op, "blend", &x, 1, &(struct sgrad__blend){ segment });
    SGRAD_TRY(sgrad_graph_finalize(g));
    return sgrad__parameters_allocate(g, 1);
}

static int open_network(struct sgrad__segment *segment) {
    const struct sgrad_segment_options *o = segment->o;
    const struct sgrad_model *model = o->custom_model ? o->custom_model : sgrad_model_find(o->model);
    struct sgrad_safetensors weights;
    const int64_t *p = o->patch;
    if (!model) return SGRAD_ENAME;
    if (p[1] < model->min_image_side || p[2] < model->min_image_side)
        return sgrad_log_error(SGRAD_EINVAL, "--patch %lldx%lldx%lld: must be at least %d along y and x for model %s",
                               (long long)p[0], (long long)p[1], (long long)p[2], model->min_image_side, model->name);
    if (model->side_multiple && (p[1] % model->side_multiple || p[2] % model->side_multiple))
        return sgrad_log_error(SGRAD_EINVAL, "--patch %lldx%lldx%lld: must be multiples of %d along y and x for model %s",
                               (long long)p[0], (long long)p[1], (long long)p[2], model->side_multiple, model->name);
    segment->reader = (struct sgrad_reader){ .name = "patches", .read = sgrad__segment_read };
    segment->data = (struct sgrad_dataset){ .reader = &segment->reader, .count = SGRAD__NO_CHUNK + 1,
                                           .full_scale = segment->pixel == SGRAD_U8 ? 255 : 65535, .state = segment };
    segment->data.field[0] = (struct sgrad_field){ "pixels", segment->pixel, { 4, { p[0], p[1], p[2], 1 } }, NULL };
    segment->classes = o->classes;
    if (!o->weights) return add_layers(segment, model);
    SGRAD_TRY(sgrad_safetensors_open(o->weights, &weights));
    int error = find_classes(segment, &weights);
    if (!error) error = sgrad__weights_checksum(&weights, segment->weights);
    if (!error) error = add_layers(segment, model);
    if (!error) error = sgrad__weights_load(segment->graph, sgrad__parameters_list(segment->graph), &weights, NULL);
    sgrad_safetensors_close(&weights);
    return error;
}

/* Chooses the chunk size: a block, doubled along its shortest axis as long as SGRAD__CHUNKS chunks, and one that is being
 * written, fit into half of the memory; the other half is for patches. */
static void choose_chunk(struct sgrad__segment *segment) {
    const double room = segment->o->memory * 1e9 / 2 / (SGRAD__CHUNKS + 1) / (sizeof(int32_t) * (double)segment->classes);
    for (int d = 0; d < 3; d++) segment->size[d] = segment->block[d];
    for (int least = 0; least >= 0;) {
        least = -1;
        for (int d = 2; d >= 0; d--)
            if (segment->size[d] < segment->dim[d] && (least < 0 || segment->size[d] < segment->size[least])) least = d;
        if (least < 0 || 2.0 * (double)segment->size[0] * (double)segment->size[1] * (double)segment->size[2] > room) break;
        segment->size[least] *= 2;
    }
    for (int d = 0; d < 3; d++) segment->chunks[d] = (segment->dim[d] + segment->size[d] - 1) / segment->size[d];
}

/* Chunks are adapted to the memory limit, patches are not: an error is returned before anything is written. */
static int check_memory(struct sgrad__segment *segment) {
    const struct sgrad__memory m = sgrad__program_memory(segment->program, segment->context->cpus + segment->context->gpus, NULL);
    const double chunk = (double)segment->size[0] * (double)segment->size[1] * (double)segment->size[2] *
                         (double)sizeof(int32_t) * segment->classes;
    const double all = segment->result->memory =
        sgrad__memory_all(&m) + sgrad__graph_memory(segment->graph) + (SGRAD__CHUNKS + 1) * chunk;
    if (all <= segment->o->memory * 1e9) return 0;
    return sgrad_log_error(SGRAD_EINVAL,
                           "segment: patches and chunks require %.3g GB, more than --memory %g; use smaller patches, a smaller "
                           "--batch, fewer --cpus or more --memory",
                           all / 1e9, segment->o->memory);
}

static int open_program(struct sgrad__segment *segment) {
    const struct sgrad_segment_options *o = segment->o;
    const int workers = segment->context->cpus + segment->context->gpus, micro = o->batch ? (int)o->batch : 1;
    const struct sgrad_program_options how = {
        .batch = (int64_t)micro * (workers > 0 ? workers : 1), .micro = micro, .group = micro, .fuse = true,
        .cpus = segment->context->cpus, .gpus = segment->context->gpus, .window = SGRAD__BATCHES, .deterministic = true,
        .tf32 = o->precision == SGRAD_PRECISION_TF32, .source = sgrad__source_of(&segment->data),
    };
    SGRAD_TRY(sgrad__program_build(segment->graph, &how, &segment->program));
    SGRAD_TRY(check_memory(segment));
    SGRAD_TRY(sgrad__program_allocate(segment->program));
    segment->pending = sgrad_xcalloc((size_t)segment->program->share, sizeof *segment->pending);
    segment->runner = sgrad__runner_create(segment->program, NULL);
    return 0;
}

/* Returns the number of voxels that the network processes, relative to the voxels of the volume. */
static double shown_share(const struct sgrad__segment *segment) {
    double shown = 1;
    for (int d = 0; d < 3; d++) {
        int64_t along = 0;
        for (int64_t c = 0; c < segment->chunks[d]; c++) {
            int64_t first, count;
            const int64_t from = c * segment->size[d],
                          end = from + segment->size[d] < segment->dim[d] ? from + segment->size[d] : segment->dim[d];
            sgrad_patches_meet(&segment->patches.axis[d], from, end, &first, &count);
            along += count * segment->o->patch[d];
        }
        shown *= (double)along / (double)segment->dim[d];
    }
    return shown;
}

/* The mask must have the size of the volume, or sizes that divide it along each axis. */
static int open_mask(struct sgrad__segment *segment) {
    SGRAD_TRY(sgrad_volume_open(segment->o->mask, &segment->mask));
    const int64_t *dim = segment->mask->dim;
    bool fits = dim[0] == 1;
    for (int d = 0; d < 3; d++) fits &= dim[1 + d] <= segment->dim[d] && segment->dim[d] % dim[1 + d] == 0;
    if (fits) return 0;
    return sgrad_log_error(SGRAD_ESHAPE,
                           "--mask: %s is %lldx%lldx%lldx%lld, but %s is %lldx%lldx%lld: the mask must have one channel "
                           "and the same sides, or sides that divide these",
                           segment->o->mask, (long long)dim[0], (long long)dim[1], (long long)dim[2], (long long)dim[3],
                           segment->o->in, (long long)segment->dim[0], (long long)segment->dim[1], (long long)segment->dim[2]);
}

static int open_volumes(struct sgrad__segment *segment) {
    const struct sgrad_segment_options *o = segment->o;
    static const int64_t least[3] = { 16, 128, 128 };
    SGRAD_TRY(sgrad_volume_open(o->in, &segment->in));
    SGRAD_TRY(sgrad_volume_pixels(segment->in, &segment->pixel));
    for (int d = 0; d < 3; d++) {
        segment->dim[d] = segment->in->dim[1 + d];
        segment->block[d] = least[d] < segment->dim[d] ? least[d] : segment->dim[d];
    }
    segment->mirrors = o->patch[0] > 1 ? 8 : 4;
    if (!o->flips) segment->mirrors = 1;
    SGRAD_TRY(sgrad_patches_open(segment->dim, o->patch, o->overlap, &segment->patches));
    return o->mask ? open_mask(segment) : 0;
}

static const char *name_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

/* Returns a description of all options on which the output depends. Files are described without their directories, which may
 * have other names on other hosts. The caller must free it. */
static char *describe(const struct sgrad__segment *segment) {
    const struct sgrad_segment_options *o = segment->o;
    const int64_t *d = segment->dim, *p = o->patch, *l = o->overlap;
    return sgrad_format("stargrad segment of %s, %lldx%lldx%lld, by %s%s%s, %s, patches %lldx%lldx%lld, overlap %lldx%lldx%lld, "
                        "%d classes%s%s%s%s%s",
                        name_of(o->in), (long long)d[0], (long long)d[1], (long long)d[2],
                        o->custom_model ? o->custom_model->name : o->model, *segment->weights ? " with weights " : "",
                        segment->weights, sgrad_precision_name(o->precision), (long long)p[0], (long long)p[1], (long long)p[2],
                        (long long)l[0], (long long)l[1], (long long)l[2], segment->classes, o->bytes ? ", bytes" : "",
                        o->logits ? ", logits" : "", o->flips ? ", flips" : "", o->mask ? ", mask " : "",
                        o->mask ? name_of(o->mask) : "");
}

static int open_queue(struct sgrad__segment *segment, const char *work) {
    const struct sgrad_segment_options *o = segment->o;
    if (!sgrad_volume_is_shared(segment->out))
        return sgrad_log_error(SGRAD_EINVAL, "--queue requires a Zarr volume as output, not %s", o->out);
    char *whole = sgrad_format("%s, chunks %lldx%lldx%lld, to %s\n", work, (long long)segment->size[0],
                               (long long)segment->size[1], (long long)segment->size[2], name_of(o->out));
    int error = sgrad_queue_open(o->queue, whole, segment->result->all_chunks, o->lease > 0 ? o->lease : 30, &segment->queue);
    free(whole);
    return error;
}

static int open_output(struct sgrad__segment *segment) {
    const struct sgrad_segment_options *o = segment->o;
    SGRAD_TRY(sgrad_volume_create(o->out, o->bytes ? SGRAD_VOXEL_U8 : SGRAD_VOXEL_F32,
                                  (const int64_t[]){ segment->classes, segment->dim[0], segment->dim[1], segment->dim[2] },
                                  (const int64_t[]){ segment->classes, segment->block[0], segment->block[1], segment->block[2] },
                                  &segment->out));
    for (int d = 0; d < 3; d++) segment->result->chunk[d] = segment->size[d], segment->result->block[d] = segment->block[d];
    segment->result->all_chunks = segment->chunks[0] * segment->chunks[1] * segment->chunks[2];
    segment->result->shown = shown_share(segment) * segment->mirrors;
    char *work = describe(segment);
    int error = sgrad_volume_sign(segment->out, work, o->redo);
    if (!error && o->queue) error = open_queue(segment, work);
    free(work);
    return error;
}

static int open_all(struct sgrad__segment *segment) {
    const struct sgrad_context_options how = {
        .cpus = segment->o->cpus, .gpus = segment->o->gpus, .scheduler = segment->o->scheduler, .kinds = sgrad_kinds
    };
    SGRAD_TRY(open_volumes(segment));
    SGRAD_TRY(sgrad_context_open(&how, &segment->context));
    sgrad_early_close();
    if (segment->context->ranks > 1)
        return sgrad_log_error(SGRAD_EINVAL, "segment: must be one process, not %d ranks; start several processes with --queue",
                               segment->context->ranks);
    SGRAD_TRY(open_network(segment));
    choose_chunk(segment);
    SGRAD_TRY(open_program(segment));
    return open_output(segment);
}

/* Returns an error if chunks have failed: they are missing from the output. */
static int check_queue(const struct sgrad__segment *segment) {
    struct sgrad_queue_state state;
    if (!segment->queue) return 0;
    SGRAD_TRY(sgrad_queue_look(segment->o->queue, &state));
    const int64_t failed = state.failed;
    sgrad_queue_forget(&state);
    if (!failed) return 0;
    return sgrad_log_error(
        SGRAD_EFORMAT, "%s: %lld of %lld chunks failed and are missing in %s; list them with 'stargrad queue %s'",
        segment->o->queue, (long long)failed, (long long)segment->result->all_chunks, segment->o->out, segment->o->queue);
}

static void close_all(struct sgrad__segment *segment) {
    if (segment->context) sgrad_wait_all();
    for (int i = 0; i < SGRAD__CHUNKS; i++)
        if (segment->chunk[i].busy)
            free(segment->chunk[i].sum), free(segment->chunk[i].plane), free(segment->chunk[i].shown),
                free(segment->chunk[i].mask);
    sgrad__runner_destroy(segment->runner);
    sgrad__program_destroy(segment->program);
    sgrad_graph_destroy(segment->graph);
    sgrad_queue_close(segment->queue);
    if (segment->context) sgrad_context_close(segment->context);
    sgrad_volume_close(segment->in);
    sgrad_volume_close(segment->out);
    sgrad_volume_close(segment->mask);
    sgrad_patches_close(&segment->patches);
    free(segment->pending);
}

/* Returns the time of worker I by stage, in seconds. BUSY: its seconds in tasks. */
static struct sgrad_segment_worker spent_by(const struct sgrad__segment *segment, int i, const char *name, double busy) {
    struct sgrad_segment_worker w = { .load = (double)segment->spent[SGRAD__LOAD][i] / 1e9,
                                      .blend = (double)segment->spent[SGRAD__BLEND][i] / 1e9,
                                      .save = (double)segment->spent[SGRAD__SAVE][i] / 1e9 };
    snprintf(w.name, sizeof w.name, "%s", name);
    w.compute = fmax(busy - w.load - w.blend - w.save, 0);
    w.wait = fmax(segment->result->seconds - w.load - w.compute - w.blend - w.save, 0);
    return w;
}

static void count_time(struct sgrad__segment *segment) {
    struct sgrad_segment_result *r = segment->result;
    char name[16];
    double share;
    for (int i = 0; i < SGRAD_MAX_WORKERS && sgrad_worker_busy(i, name, sizeof name, &share); i++)
        r->worker[r->workers++] = spent_by(segment, i, name, share * r->seconds);
    r->worker[r->workers] = spent_by(segment, SGRAD_MAX_WORKERS, "main", 0);
    for (int i = 0; i <= r->workers; i++) {
        const struct sgrad_segment_worker *w = &r->worker[i];
        r->sum.load += w->load, r->sum.compute += w->compute, r->sum.blend += w->blend, r->sum.save += w->save;
        if (i < r->workers) r->sum.wait += w->wait;
    }
}

int sgrad_segment(const struct sgrad_segment_options *options, struct sgrad_segment_result *result) {
    struct sgrad__segment *s = sgrad_xcalloc(1, sizeof *s);
    memset(result, 0, sizeof *result);
    s->o = options;
    s->result = result;
    int error = open_all(s);
    if (!error && options->progress) options->progress(options, result);
    if (!error) sgrad_workers_profile();
    const double start = sgrad_time_monotonic();
    if (!error) error = sgrad__segment_run(s);
    result->seconds = sgrad_time_monotonic() - start;
    if (!error) count_time(s);
    if (!error) error = sgrad_volume_finish(s->out);
    if (!error) error = check_queue(s);
    close_all(s);
    free(s);
    return error;
}
