/* whitening.c: initial values that depend on the data: filters that whiten the first images of the training set, after
 * normalization (codelets/ops/whitening.h). Rank 0 computes them and sends them to the others. */
#include "codelets/ops/whitening.h"
#include "codelets/ops/conv2d.h"
#include "codelets/ops/image.h"
#include "datasets/datasets.h"
#include "graphs/train/setup.h"

#include <stdlib.h>

/* Normalizes COUNT values of PIXELS as for the first layer of the network. */
static void normalise(const struct sgrad__run *run, const void *pixels, int64_t count, float *image) {
    const struct sgrad_field *field = sgrad_dataset_image(run->data.train);
    const int channels = sgrad_dataset_channels(run->data.train);
    for (int64_t i = 0; i < count; i++) {
        const double pixel = field->dtype == SGRAD_U8 ? ((const uint8_t *)pixels)[i] : ((const uint16_t *)pixels)[i];
        image[i] = (float)((pixel / (double)run->data.train->full_scale - run->data.mean[i % channels]) /
                           run->data.deviation[i % channels]);
    }
}

static int add_images(const struct sgrad__run *run, struct sgrad_whitening *whitening) {
    const struct sgrad_dataset *d = run->data.train;
    const int64_t *dim = sgrad_field_plane(sgrad_dataset_image(d)), numbers = dim[0] * dim[1] * dim[2];
    const int64_t count = d->count < SGRAD_WHITENING_IMAGES ? d->count : SGRAD_WHITENING_IMAGES;
    float *image = sgrad_xcalloc((size_t)numbers, sizeof *image);
    void *data[SGRAD_MAX_FIELDS] = { NULL };
    int error = 0;
    for (int f = 0; d->field[f].name; f++) data[f] = sgrad_xcalloc(1, sgrad_field_bytes(&d->field[f]) + 1);
    for (int64_t i = 0; i < count && !error; i++) {
        error = sgrad_dataset_read(d, &(struct sgrad_sample){ .index = i }, 1, data);
        if (error) break;
        normalise(run, data[0], numbers, image);
        sgrad_whitening_add(whitening, image, (int)dim[0], (int)dim[1]);
    }
    for (int f = 0; d->field[f].name; f++) free(data[f]);
    free(image);
    return error;
}

static int make_filters(const struct sgrad__run *run, const struct sgrad__node *node, float *weight) {
    const struct sgrad_shape *filters = &node->is.p[0].shape;
    const int maker = run->graph->value[node->input[0]].maker;
    if (maker < 0 || run->graph->node[maker].op != &sgrad_image_op || node->is.x[0].shape.rank != 4)
        return sgrad_log_error(SGRAD_EINVAL, "%s whitens images, but its input is %s", node->name,
                               run->graph->value[node->input[0]].name);
    struct sgrad_whitening w = sgrad_whitening_create((int)filters->dim[1], (int)filters->dim[3]);
    int error = add_images(run, &w);
    if (!error) error = sgrad_whitening_filters(&w, (int)filters->dim[0] / 2, weight);
    sgrad_whitening_destroy(&w);
    return error;
}

static int whiten(struct sgrad__run *run, const struct sgrad__node *node) {
    const struct sgrad__parameter *p = &run->graph->parameter[node->p[0]];
    const size_t bytes = (size_t)sgrad_shape_count(&node->is.p[0].shape) * sizeof(float);
    float *weight = sgrad_xcalloc(1, bytes);
    const bool together = run->context->ranks > 1 && !run->beside;
    int error = together && run->context->rank ? 0 : make_filters(run, node, weight);
    if (together) error = sgrad__run_await(run, error, "for rank 0 to read the images that are whitened");
    if (!error && together) sgrad_ranks_broadcast(weight, bytes, 0);
    if (!error && p->tensor) /* NULL: it belongs to another pipeline stage */
        error = sgrad__parameter_take(run->graph, p, weight);
    free(weight);
    return error;
}

int sgrad__run_whiten(struct sgrad__run *run) {
    const struct sgrad_train_options *o = &run->options;
    for (const struct sgrad__node *n = run->graph->node; n < run->graph->node + run->graph->node_count; n++) {
        if (n->is.p[0].init != SGRAD_WHITENING || o->output.print || SGRAD_SIMULATED) continue;
        const bool given =
            (o->model.init || run->graph->imported) && !sgrad__is_listed(o->model.init_skip, run->graph->parameter[n->p[0]].name);
        if (!given) SGRAD_TRY(whiten(run, n));
    }
    return 0;
}
