/* 02-train.c: training your own network.
 *
 *     02-train            trains it for five epochs on the digits that come with Stargrad
 *     02-train --print    prints the network and all tasks of a training step in the order of submission, without training
 *
 * Each option of the command `stargrad train` is a field of struct sgrad_train_options (graphs/api/train.h).
 *
 * The run's folder contains:
 *     config.json          its options
 *     metrics.jsonl        a line for each step and each evaluation
 *     checkpoint-*         its checkpoints
 *     model.safetensors    the final weights
 *
 * `stargrad report FOLDER` writes a report of the run.
 *
 * Next: 03-own-operation.c. */
#include "graphs/graphs.h"

#include <stdlib.h>
#include <string.h>

/* x (N,H,W,C), returns the logits (N,classes) */
static int build(struct sgrad_graph *graph, int x, int classes) {
    x = sgrad_layer(graph, conv2d, "conv1", (x), .channels = 16, .kernel = 3, .padding = 1);
    x = sgrad_layer(graph, batchnorm, "bn1", (x), .relu = true);
    x = sgrad_layer(graph, max_pool, "pool1", (x), .kernel = 2);
    x = sgrad_layer(graph, conv2d, "conv2", (x), .channels = 32, .kernel = 3, .padding = 1);
    x = sgrad_layer(graph, batchnorm, "bn2", (x), .relu = true);
    x = sgrad_layer(graph, global_average_pool, "pool2", (x));
    return sgrad_layer(graph, linear, "fc", (x), .features = classes, .bias = true);
}

static const struct sgrad_model model = { .name = "mine", .summary = "two convolutions", .build = build };

int main(int argc, char **argv) {
    struct sgrad_train_options options = sgrad_train_defaults();
    options.model.custom = &model;              /* or options.model.name = "resnet20"; stargrad list models prints all names */
    options.data.name = "digits";
    options.training.epochs = 5;
    options.training.batch = 64;
    options.optimizer.schedule = "cosine";
    options.output.print = argc > 1 && !strcmp(argv[1], "--print");

    struct sgrad_train_result result = { 0 };
    if (sgrad_train(&options, &result)) return 1;       /* the error is already on standard error */
    if (options.output.print) return 0;

    if (result.rank == 0)                               /* under mpirun, all ranks have the result, and one prints it */
        printf("%s: %ld steps, test accuracy %.2f %%\n", result.folder, result.steps, 100 * result.test_top1);
    free(result.folder);
    return 0;
}
