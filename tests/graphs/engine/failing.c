/* failing: trains a network on several ranks; a kernel of one rank fails in a step. tests/train/failure.py checks the
 * checkpoints in FOLDER:
 *
 *     mpirun -n 2 failing FOLDER              rank 1 fails in step 4; every earlier step writes a checkpoint
 *     mpirun -n 2 failing FOLDER evaluating   rank 1 fails in the evaluation after step 8, during later steps; step 8
 *                                             writes a checkpoint */
#include "config.h"
#include "graphs/graphs.h"

#include <string.h>

enum { FAILS = 4 };
static bool evaluating;

/* x, y of one shape: y = x */
static void forward(const struct sgrad_args *args) {
    const bool here = evaluating ? !args->step->training : args->step->training && args->step->number == FAILS;
    if (here && sgrad_launched_rank() == 1) sgrad_task_fail(SGRAD_EIO);
    memcpy(args->data[1], args->data[0], sgrad_view_bytes(&args->view[0]));
}
/* dy, dx */
static void backward(const struct sgrad_args *args) { memcpy(args->data[1], args->data[0], sgrad_view_bytes(&args->view[0])); }

static const struct sgrad_op fragile = {
    .name = "fragile",
    .inputs = 1,
    .infer = sgrad_infer_same,
    .forward = { { { .name = "fragile forward", .kind = &sgrad_forward_kind, .cpu = forward },
                   { SGRAD_IN(X, 0), SGRAD_OUT(Y, 0) } } },
    .backward = { { { .name = "fragile backward", .kind = &sgrad_backward_kind, .cpu = backward },
                    { SGRAD_IN(DY, 0), SGRAD_OUT(DX, 0) } } },
};

static int build(struct sgrad_graph *graph, int x, int classes) {
    x = sgrad_layer(graph, flatten, "flat", (x));
    x = sgrad_layer(graph, linear, "fc1", (x), .features = 8);
    x = sgrad_graph_apply(graph, &fragile, "fragile", &x, 1, NULL);
    return sgrad_layer(graph, linear, "fc2", (x), .features = classes);
}

static const struct sgrad_model model = { .name = "failing", .summary = "fails on rank 1", .build = build };

int main(int argc, char **argv) {
    struct sgrad_train_options options = sgrad_train_defaults();
    struct sgrad_train_result result = { 0 };
    if (argc == 1) return 0;
    options.model.custom = &model;
    options.data.name = "synthetic:4x4x1,3,256";
    options.training.batch = 32;
    evaluating = argc > 2;
    options.training.steps = evaluating ? 1000000 : 8;
    options.checkpoint.every = 1;
    options.checkpoint.in_steps = !evaluating;
    options.checkpoint.keep = 100;
    options.parallel.cpus = 1;
    options.output.folder = argv[1];
    return sgrad_train(&options, &result) ? 1 : 0;
}
