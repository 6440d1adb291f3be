/* regularized: trains a network with batch norm over the global batch, dropout and augmented images for a few steps, into the
 * folder of its argument. tests/train/ranks.py compares the results of different numbers of ranks. Without an argument, it is
 * a run that must succeed. */
#include "config.h"
#include "graphs/graphs.h"
#include "tests/scratch.h"

#include <stdio.h>
#include <stdlib.h>

static int build(struct sgrad_graph *graph, int x, int classes) {
    x = sgrad_layer(graph, conv2d, "conv1", (x), .channels = 16, .kernel = 3, .padding = 1);
    x = sgrad_layer(graph, batchnorm, "bn1", (x), .relu = true);
    x = sgrad_layer(graph, dropout, "drop1", (x), .p = 0.3f);
    x = sgrad_layer(graph, conv2d, "conv2", (x), .channels = 32, .kernel = 3, .stride = 2, .padding = 1);
    x = sgrad_layer(graph, batchnorm, "bn2", (x), .relu = true);
    x = sgrad_layer(graph, global_average_pool, "pool", (x));
    x = sgrad_layer(graph, dropout, "drop2", (x), .p = 0.5f);
    return sgrad_layer(graph, linear, "fc", (x), .features = classes, .bias = true);
}

static const struct sgrad_model model = { .name = "regularized", .summary = "batch norm and dropout", .build = build };

int main(int argc, char **argv) {
    struct sgrad_train_options options = sgrad_train_defaults();
    struct sgrad_train_result result = { 0 };
    if (argc == 1 && scratch_open(NULL)) return 1;
    options.model.custom = &model;
    options.data.name = "synthetic:16x16x3,10,256";
    options.data.augment = "crop:4,flip,rotate:10,mixup,cutmix";
    options.training.batch = 64;
    options.training.steps = 6;
    options.training.bn_group = SGRAD_GROUP_GLOBAL;
    options.training.deterministic = true;
    options.parallel.cpus = 1;
    options.output.folder = argc > 1 ? argv[1] : scratch_path("run");
    int error = sgrad_train(&options, &result);
    free(result.folder);
    if (argc == 1 && scratch_close(NULL)) return 1;
    return error ? 1 : 0;
}
