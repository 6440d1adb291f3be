/* images.c: image files, and those in folders, as samples for saved weights. */
#include "config.h"
#include "codelets/ops/image.h"
#include "datasets/datasets.h"
#include "graphs/api/inference.h"
#include "graphs/networks/graph.h"
#include "graphs/rundir/rundir.h"

#include <stdlib.h>
#include <sys/stat.h>

enum { FULL_SCALE = 255 };

static void add(struct sgrad_image_files *files, char *name) {
    files->name = sgrad_array_grow(files->name, files->count, sizeof *files->name);
    files->name[files->count++] = name;
}

int sgrad_image_files_add(struct sgrad_image_files *files, const char *path) {
    struct stat status;
    struct sgrad_walk walk = { 0 };
    if (stat(path, &status) || !S_ISDIR(status.st_mode)) return add(files, sgrad_format("%s", path)), 0;
    int error = sgrad_walk(path, &walk);
    for (int64_t i = 0; i < walk.count && !error; i++) add(files, sgrad_format("%s/%s", path, walk.image[i].name));
    char *others = error ? NULL : sgrad_walk_others(&walk), *endings = sgrad_image_endings();
    if (!error && !walk.count) error = sgrad_log_error(SGRAD_EIO, "%s: contains no image (%s)", path, endings);
    else if (others && sgrad_launched_rank() == 0) sgrad_log_warning("%s: %s", path, others);
    free(others);
    free(endings);
    sgrad_walk_free(&walk);
    return error;
}

void sgrad_image_files_free(struct sgrad_image_files *files) {
    for (int i = 0; i < files->count; i++) free(files->name[i]);
    free(files->name);
    *files = (struct sgrad_image_files){ 0 };
}

/* Adds the network with this number of classes, for images that are large enough, to a new graph, which the caller must destroy,
 * also after an error. *LOGITS: the number of logits. */
static int build(const struct sgrad_train_options *options, int classes, struct sgrad_graph **graph, int64_t *logits) {
    const struct sgrad_model *model = options->model.custom ? options->model.custom : sgrad_model_find(options->model.name);
    struct sgrad_graph *g = *graph = sgrad_graph_create(SGRAD_F32);
    if (!model) return SGRAD_ENAME;
    SGRAD_TRY(sgrad__graph_set_model(g, model, options->model.name));
    const int64_t side = sgrad_clamp(options->data.image_size, model->min_image_side, INT32_MAX);
    const int pixels = sgrad_graph_input(g, "pixels", SGRAD_U8, sgrad_shape(3, side, side, 3));
    const int y = model->build(g, sgrad_layer(g, image, "augment", (pixels), .full_scale = FULL_SCALE), classes);
    SGRAD_TRY(sgrad_graph_error(g));
    const struct sgrad_shape shape = sgrad_graph_shape(g, y);
    *logits = shape.dim[shape.rank - 1];
    return 0;
}

/* Counts the classes by the parameter that has A elements for two classes and 3A/2 for three, as the bias of the last layer. */
static int count_in_file(const struct sgrad_graph *two, const struct sgrad_graph *three, const struct sgrad_safetensors *file,
                         int64_t *classes) {
    struct sgrad__items a = sgrad__network_list(two), b = sgrad__network_list(three);
    *classes = 0;
    for (int i = 0; i < a.count && i < b.count && !*classes; i++) {
        const int64_t elements = sgrad_shape_count(&a.item[i].view.shape), more = sgrad_shape_count(&b.item[i].view.shape);
        const struct sgrad_entry *entry = sgrad_safetensors_find(file, a.item[i].name);
        if (entry && 2 * more == 3 * elements) *classes = sgrad_shape_count(&entry->view.shape) / (more - elements);
    }
    sgrad__items_free(&a);
    sgrad__items_free(&b);
    return *classes > 0 ? 0
                        : sgrad_log_error(SGRAD_EFORMAT,
                                          "%s: has no tensor of model %s whose shape depends on the number of classes; check "
                                          "--model, or give --data", file->path, two->model->name);
}

/* Sets CLASSES to the number of classes of the weights. A file of a network without other weights has its own number. */
static int count_classes(const struct sgrad_train_options *options, int64_t *classes) {
    struct sgrad_graph *two = NULL, *three = NULL;
    struct sgrad_safetensors file;
    int64_t logits;
    if (!options->model.init) {
        int error = build(options, 0, &two, classes);
        sgrad_graph_destroy(two);
        return error;
    }
    SGRAD_TRY(sgrad_safetensors_open(options->model.init, &file));
    int error = build(options, 2, &two, &logits);
    if (!error) error = build(options, 3, &three, &logits);
    if (!error) error = count_in_file(two, three, &file, classes);
    sgrad_graph_destroy(two);
    sgrad_graph_destroy(three);
    sgrad_safetensors_close(&file);
    return error;
}

/* Describes the images by the options and the weights. */
static int describe_weights(const struct sgrad_train_options *options, struct sgrad_run_input *input) {
    const int side = options->data.image_size;
    int64_t classes;
    if (!side)
        return sgrad_log_error(SGRAD_EINVAL, "%s: no config.json beside it states the size of the images; give --image-size N, "
                                             "or --data",
                               options->model.init ? options->model.init : options->model.name);
    input->image = sgrad_shape(3, side, side, 3);
    input->full_scale = FULL_SCALE;
    SGRAD_TRY(count_classes(options, &classes));
    input->classes = (int)sgrad_clamp(classes, 1, INT32_MAX);
    return 0;
}

static int describe_data(const struct sgrad_train_options *options, struct sgrad_run_input *input) {
    struct sgrad_dataset *dataset;
    SGRAD_TRY(sgrad_run_open_samples(options, false, &dataset));
    const struct sgrad_field *image = sgrad_dataset_image(dataset);
    if (image) input->image = image->shape;
    input->full_scale = dataset->full_scale;
    input->classes = dataset->classes;
    sgrad_dataset_close(dataset);
    return 0;
}

int sgrad_run_open_images(const char *run, const struct sgrad_train_options *options, const char *const *file, int64_t count,
                          struct sgrad_dataset **dataset) {
    const struct sgrad_dataset_options how = sgrad__dataset_options(options);
    struct sgrad_run_input input = { 0 };
    char *of_weights = NULL;
    if (!run) SGRAD_TRY(sgrad_run_of_weights(options, &of_weights));
    int error;
    if (run || of_weights) error = sgrad_run_input(run ? run : of_weights, &input);
    else if (options->data.name) error = describe_data(options, &input);
    else error = describe_weights(options, &input);
    if (!error) error = sgrad_dataset_of_files(file, count, &input.image, input.full_scale, input.classes, &how, dataset);
    sgrad_run_input_free(&input);
    free(of_weights);
    return error;
}
