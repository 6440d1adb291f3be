/* 08-second-order.c: the same network, trained with a first-order and with a second-order optimizer.
 *
 *     08-second-order             K-FAC: preconditions gradients with factors of the curvature
 *     08-second-order sgd         plain SGD with momentum and the same learning rate: compare the losses
 *     08-second-order --print     prints the preconditioned layers, their cost, and the steps that run each task
 *
 * K-FAC can precondition a layer if the record of its operation has .patches: conv2d, linear, and your own. A convolution of 3x3
 * pixels from 1 to 16 channels has an input factor of 9x9 and an output factor of 16x16. Idle workers decompose the factors while
 * the next steps run. The results are used a fixed number of steps later.
 *
 * Next: 09-duplicates.c. docs/performance/second-order.md describes the settings. docs/develop/add-an-operation.md describes how
 * to add an operation to the library. */
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
    const char *word = argc > 1 ? argv[1] : "kfac";
    struct sgrad_train_options options = sgrad_train_defaults();
    options.model.custom = &model;
    options.data.name = "digits";
    options.training.epochs = 3;
    options.training.batch = 64;
    options.output.print = !strcmp(word, "--print");
    options.optimizer.name = options.output.print ? "kfac" : word;
    options.optimizer.lr = 0.02;
    options.optimizer.kfac.damping = 0.01;
    options.optimizer.kfac.eigen_every = 20;      /* the run has 66 steps */
    options.optimizer.kfac.factor_every = 5;      /* also the default of options.optimizer.kfac.lag */

    struct sgrad_train_result result = { 0 };
    if (sgrad_train(&options, &result)) return 1;
    if (result.rank == 0 && !options.output.print)
        printf("%s: loss %.4f after %ld steps of %s\n", result.folder, result.train_loss, result.steps, options.optimizer.name);
    free(result.folder);
    return 0;
}
