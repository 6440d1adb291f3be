/* rows: trains a network whose linear layers work on the channels of pixels (rows). Two of them share their parameters, and
 * the network adds a value to itself:
 *
 *     x (N,H,W,C) ─ mix ─ twice ─ relu ─ twice ─ relu ─ + itself ─ mean over H,W ─ fc
 *
 *     rows                                      a run that must succeed
 *     rows DATA WEIGHTS MICRO-BATCH FOLDER      ten steps that are compared with PyTorch (tests/train/reference.py) */
#include "config.h"
#include "graphs/graphs.h"
#include "tests/scratch.h"

#include <stdlib.h>

static int build(struct sgrad_graph *graph, int x, int classes) {
    x = sgrad_layer(graph, linear, "mix", (x), .features = 6, .bias = true);
    x = sgrad_layer(graph, linear, "twice", (x), .features = 6, .bias = true);
    x = sgrad_layer(graph, relu, "relu1", (x));
    sgrad_graph_tie(graph, "again.weight", "twice.weight");
    sgrad_graph_tie(graph, "again.bias", "twice.bias");
    x = sgrad_layer(graph, linear, "again", (x), .features = 6, .bias = true);
    x = sgrad_layer(graph, relu, "relu2", (x));
    x = sgrad_layer(graph, add, "double", (x, x));
    x = sgrad_layer(graph, global_average_pool, "pool", (x));
    return sgrad_layer(graph, linear, "fc", (x), .features = classes, .bias = true);
}

static const struct sgrad_model model = { .name = "rows", .summary = "linear layers on rows", .build = build };

int main(int argc, char **argv) {
    struct sgrad_train_options options = sgrad_train_defaults();
    struct sgrad_train_result result = { 0 };
    if (argc == 1 && scratch_open(NULL)) return 1;
    options.model.custom = &model;
    options.data.name = argc > 1 ? argv[1] : "synthetic:8x8x3,10,160";
    options.model.init = argc > 2 ? argv[2] : NULL;
    options.training.batch = 16;
    options.training.micro_batch = argc > 3 ? atol(argv[3]) : 4;
    options.output.folder = argc > 4 ? argv[4] : scratch_path("run");
    options.training.steps = 10;
    options.optimizer.lr = 0.05;
    options.data.augment = "none";
    options.data.no_shuffle = options.training.deterministic = true;
    options.checkpoint.every = 0;
    int error = sgrad_train(&options, &result);
    free(result.folder);
    if (argc == 1 && scratch_close(NULL)) return 1;
    return error ? 1 : 0;
}
