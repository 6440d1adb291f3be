/* rows: trains a network whose linear layers work on the channels of pixels (rows), of which two share their parameters, and
 * which adds a value to itself:
 *
 *     x (N,H,W,C) ─ mix ─ twice ─ relu ─ twice ─ relu ─ + itself ─ mean over H,W ─ fc
 *
 *     rows                                      a run that has to succeed
 *     rows DATA WEIGHTS MICRO-BATCH FOLDER      ten steps to compare with PyTorch's (tests/train/reference.py) */
#include "config.h"
#include "graphs/graphs.h"
#include "tests/scratch.h"

#include <stdlib.h>

static int build(struct sgrad_graph *g, int x, int classes) {
    x = sgrad_layer(g, linear, "mix", (x), .features = 6, .bias = true);
    x = sgrad_layer(g, linear, "twice", (x), .features = 6, .bias = true);
    x = sgrad_layer(g, relu, "relu1", (x));
    sgrad_graph_tie(g, "again.weight", "twice.weight");
    sgrad_graph_tie(g, "again.bias", "twice.bias");
    x = sgrad_layer(g, linear, "again", (x), .features = 6, .bias = true);
    x = sgrad_layer(g, relu, "relu2", (x));
    x = sgrad_layer(g, add, "double", (x, x));
    x = sgrad_layer(g, global_average_pool, "pool", (x));
    return sgrad_layer(g, linear, "fc", (x), .features = classes, .bias = true);
}

static const struct sgrad_model model = { .name = "rows", .summary = "linear layers on rows", .build = build };

int main(int argc, char **argv) {
    struct sgrad_train_options options = sgrad_train_defaults();
    struct sgrad_train_result result = { 0 };
    if (argc == 1 && scratch_open(NULL)) return 1;
    options.custom_model = &model;
    options.data = argc > 1 ? argv[1] : "synthetic:8x8x3,10,160";
    options.init = argc > 2 ? argv[2] : NULL;
    options.batch = 16;
    options.micro_batch = argc > 3 ? atol(argv[3]) : 4;
    options.out = argc > 4 ? argv[4] : scratch_path("run");
    options.steps = 10;
    options.lr = 0.05;
    options.augment = "none";
    options.no_shuffle = options.deterministic = true;
    options.checkpoint_every = 0;
    int error = sgrad_train(&options, &result);
    free(result.folder);
    if (argc == 1 && scratch_close(NULL)) return 1;
    return error ? 1 : 0;
}
