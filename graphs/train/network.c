/* network.c: builds the network of a run, with the loss that suits the data. */
#include "codelets/ops/convert.h"
#include "codelets/ops/image.h"
#include "codelets/ops/softmax_cross_entropy.h"
#include "codelets/ops/token_cross_entropy.h"
#include "codelets/ops/voxel_loss.h"
#include "datasets/datasets.h"
#include "graphs/train/setup.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Returns height, width and channels of the samples: images, or features with three dimensions. NULL: they are others. */
static const int64_t *plane_of(const struct sgrad_dataset *dataset) {
    const struct sgrad_field *image = sgrad_dataset_image(dataset), *first = &dataset->field[0];
    if (image) return sgrad_field_plane(image);
    return first->dtype == SGRAD_F32 && first->shape.rank == 3 ? first->shape.dim : NULL;
}

/* Returns how to make images of features that may be some, for a message. */
static const char *hint_of_images(const struct sgrad_dataset *dataset) {
    const struct sgrad_field *first = &dataset->field[0];
    if (first->dtype != SGRAD_F32 || first->shape.rank != 2) return "";
    return "; for grey images (n,H,W) of floating-point numbers, add a dimension of one channel: x[..., None] in Python, or "
           "--data npy:FILE,images";
}

/* Checks the size of the images. A layer whose input is too small would report an error as well, but neither the network nor
 * the size that it needs. */
static int check_images(const struct sgrad__run *run, const struct sgrad_dataset *dataset) {
    const struct sgrad_field *image = sgrad_dataset_image(dataset);
    const int64_t *plane = plane_of(dataset);
    const char *option = run->model->side_option;
    const int least = option ? (int)sgrad_graph_option(run->graph, option) : run->model->min_image_side;
    const int multiple = run->model->side_multiple;
    if (run->model->volumes && !(image && image->shape.rank == 4))
        return sgrad_log_error(SGRAD_ESHAPE, "model %s requires volumes (--data volume:DIR), but %s has none", run->model->name,
                               run->options.data.name);
    if (plane && multiple && (plane[0] % multiple || plane[1] % multiple))
        return sgrad_log_error(SGRAD_ESHAPE,
                               "model %s requires images whose sides are multiples of %d, but those of %s have %dx%d pixels",
                               run->model->name, multiple, run->options.data.name, (int)plane[0], (int)plane[1]);
    if (!least || (plane && plane[0] >= least && plane[1] >= least)) return 0;
    if (!plane)
        return sgrad_log_error(SGRAD_ESHAPE, "model %s requires images, but %s has %s%s", run->model->name,
                               run->options.data.name, dataset->field[0].name, hint_of_images(dataset));
    return sgrad_log_error(SGRAD_ESHAPE,
                           "model %s requires images of %dx%d or more, but those of %s have %dx%d; use another model (stargrad "
                           "list models), or resize the images of a folder with --image-size %d",
                           run->model->name, least, least, run->options.data.name, (int)plane[0], (int)plane[1], least);
}

/* Checks that the network has one logit per class; one of TOKENS may have more. If the targets are numbers, the loss itself
 * checks the shapes. */
static int check_logits(const struct sgrad__run *run, const struct sgrad_dataset *dataset, int logits, bool tokens) {
    const struct sgrad_shape shape = sgrad_graph_shape(run->graph, logits);
    const int64_t width = shape.dim[shape.rank - 1];
    char text[SGRAD_SHAPE_TEXT];
    if (sgrad_graph_error(run->graph) || !dataset->classes) return sgrad_graph_error(run->graph);
    if (shape.rank == 2 + sgrad_dataset_target(dataset)->shape.rank &&
        (width == dataset->classes || (tokens && width > dataset->classes)))
        return 0;
    return sgrad_log_error(SGRAD_ESHAPE, "model %s returns %s, but %s has %d classes; .build must return (N,%s%d)",
                           run->model->name, sgrad_shape_text(&shape, text), run->options.data.name, dataset->classes,
                           sgrad_dataset_target(dataset)->shape.rank ? "…," : "", dataset->classes);
}

/* Checks that a network uses the documents of --attend document. */
static int check_documents(const struct sgrad__run *run) {
    const struct sgrad_graph *g = run->graph;
    const int documents = sgrad_graph_documents(g);
    for (int n = 0; n < g->node_count && documents >= 0; n++)
        for (int i = 0; i < g->node[n].is.inputs; i++)
            if (g->node[n].input[i] == documents) return 0;
    if (documents < 0 || sgrad_graph_error(g)) return 0;
    return sgrad_log_error(SGRAD_EINVAL, "--attend document: model %s has no attention that supports it; use gpt, gpt2 or llama",
                           run->model_text);
}

/* Adds the loss for labels of pixels or voxels. --class-weights must have one number per class. */
static int add_voxel_loss(struct sgrad__run *run, int y, int target) {
    const struct sgrad_train_options *o = &run->options;
    const char *weights = o->training.class_weights;
    const int classes = (run->data.train ? run->data.train : run->data.test)->classes;
    struct sgrad_voxel_loss loss = { .dice = (float)o->training.dice };
    if (weights && !strcmp(weights, "balanced"))
        return sgrad_log_error(SGRAD_EINVAL, "--class-weights balanced requires one class per sample; for the labels of %s, give "
                                             "%d numbers", o->data.name, classes);
    if (weights && classes <= SGRAD_MAX_WEIGHTED)
        SGRAD_TRY(sgrad__class_weights_parse(weights, classes, o->data.name, loss.weight));
    sgrad_graph_apply(run->graph, &sgrad_voxel_loss_op, "loss", (const int[]){ y, target }, 2, &loss);
    return sgrad_graph_finalize(run->graph);
}

/* Adds the loss for samples with one class, or mixtures of two. FIELD: label, and of mixtures the other label and the fraction
 * of the first. */
static int add_class_loss(struct sgrad__run *run, int y, const int *field, bool mixed) {
    const struct sgrad_softmax_cross_entropy loss = { .label_smoothing = (float)run->options.training.label_smoothing,
                                                      .focal_gamma = (float)run->options.training.focal_gamma,
                                                      .class_weight = run->data.class_weight };
    const int input[] = { y, field[0], mixed ? field[1] : -1, mixed ? field[2] : -1 };
    sgrad_graph_apply(run->graph, &sgrad_softmax_cross_entropy_op, "loss", input, mixed ? 4 : 2, &loss);
    return sgrad_graph_finalize(run->graph);
}

/* Adds the loss of Y. FIELD: the fields of the data set from the target on. */
static int add_loss(struct sgrad__run *run, const struct sgrad_dataset *dataset, int y, const int *field) {
    if (sgrad__graph_own_loss(run->graph)) {
        if (dataset->mixed)
            return sgrad_log_error(SGRAD_EINVAL,
                                   "--augment %s mixes classes, but %s has its own loss, which does not support that",
                                   run->options.data.augment, run->model_text);
        run->model->loss(run->graph, y, *field);
        return sgrad_graph_finalize(run->graph);
    }
    if (run->generation.rows) { /* the loss is not used, but networks end with one */
        sgrad_layer(run->graph, token_cross_entropy, "loss", (y, *field), 0);
        return sgrad_graph_finalize(run->graph);
    }
    const bool tokens = run->model->from_file && dataset->field[0].dtype == SGRAD_I32 &&
                        sgrad_dataset_target(dataset)->shape.rank == 1;
    SGRAD_TRY(check_logits(run, dataset, y, tokens));
    if (tokens) {
        sgrad_layer(run->graph, token_cross_entropy, "loss", (y, *field), 0);
        return sgrad_graph_finalize(run->graph);
    }
    if (sgrad_dataset_target(dataset)->shape.rank >= 2 && dataset->classes) return add_voxel_loss(run, y, *field);
    if (dataset->classes) return add_class_loss(run, y, field, dataset->mixed);
    return sgrad_graph_loss(run->graph, y, *field, (float)run->options.training.label_smoothing);
}

/* Sets the metrics of the loss and, of classifiers of whole samples, those of classes. */
static int set_metrics(struct sgrad__run *run, const struct sgrad_dataset *dataset) {
    const struct sgrad_shape logits = sgrad_graph_shape(run->graph, sgrad__graph_logits(run->graph));
    run->metric = sgrad__graph_metrics(run->graph, &run->loss_metrics);
    run->result.metrics = run->loss_metrics;
    if (dataset->classes && !sgrad_dataset_target(dataset)->shape.rank && !run->generation.rows &&
        logits.dim[logits.rank - 1] == dataset->classes && !strcmp(run->metric[run->loss_metrics > 1].name, "top1"))
        run->metric = sgrad__class_metrics_add(run->metric, &run->result.metrics);
    return sgrad__best_choose_metric(run);
}

int sgrad__run_build_graph(struct sgrad__run *run) {
    const struct sgrad_train_options *o = &run->options;
    const struct sgrad_dataset *d = run->data.train ? run->data.train : run->data.test;
    const enum sgrad_dtype type = o->model.precision == SGRAD_PRECISION_BF16 ? SGRAD_BF16 : SGRAD_F32;
    struct sgrad_graph *g = run->graph = sgrad_graph_create(type);
    SGRAD_TRY(sgrad__graph_set_model(g, run->model, o->model.name));
    SGRAD_TRY(check_images(run, d));
    run->model_text = sgrad__graph_model_text(g);
    sgrad__graph_set_mesh(g, &run->parallel.mesh);
    g->cached = run->generation.rows, g->sequences = run->generation.sequences;
    SGRAD_TRY(sgrad__run_adapt(run));
    int field[SGRAD_MAX_FIELDS], x;
    for (int f = 0; d->field[f].name; f++) {
        field[f] = sgrad_graph_input(g, d->field[f].name, d->field[f].dtype, d->field[f].shape);
        if (strcmp(d->field[f].name, SGRAD_DOCUMENT_FIELD) == 0) g->documents = field[f];
    }
    x = field[0];
    if (sgrad_dataset_image(d))
        x = sgrad_layer(g, image, "augment", (x), .full_scale = d->full_scale);
    else if (d->field[0].dtype == SGRAD_F32 && type != SGRAD_F32)
        x = sgrad_layer(g, convert, "convert", (x), 0);
    const int64_t numbers = sgrad_shape_count(&sgrad_dataset_target(d)->shape);
    const int y = run->model->build(g, x, d->classes ? d->classes : (int)numbers);
    if (g->imported && g->imported->softmax && !d->classes)
        return sgrad_log_error(
            SGRAD_EINVAL,
            "%s: ends with Softmax, a layer for classes, but the targets are numbers (regression); export the network without it",
            g->file);
    SGRAD_TRY(check_documents(run));
    SGRAD_TRY(add_loss(run, d, y, &field[sgrad_dataset_own_fields(d) - 1]));
    run->training = sgrad__training_create(g, run->update.optimizer);
    run->training->hooks = sgrad__layer_hooks_of(run->update.optimizer);
    if (run->data.train) SGRAD_TRY(sgrad__run_fine_tune(run));
    if (o->model.recompute) run->recomputed = sgrad__graph_recompute_blocks(g);
    SGRAD_TRY(set_metrics(run, d));
    if (run->data.train) SGRAD_TRY(sgrad__run_check_views(run));
    return 0;
}
