/* 08-second-order.c: the same network, by its gradients and by its curvature.
 *
 *     08-second-order             K-FAC: gradients are preconditioned by factors of the curvature
 *     08-second-order sgd         plain SGD with momentum at the same rate: compare the losses of the first epochs
 *     08-second-order --print     which layers are preconditioned, what that costs, and which task is part of which steps
 *
 * An operation whose record has .patches (conv2d, linear, yours) is a layer that can be preconditioned: 16 channels, of 3x3
 * pixels of one, have a factor of 9x9 for what comes in and one of 16x16 for what goes out. They are decomposed beside the steps,
 * by workers that have nothing else to do; what comes of that is used a fixed number of steps later.
 *
 * Next: 09-duplicates.c. docs/performance/second-order.md says what to tune;
 * docs/develop/add-an-operation.md how the library grows. */
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
    options.optimizer.kfac.factor_every = 5;      /* the lag, too, unless options.optimizer.kfac.lag says otherwise */

    struct sgrad_train_result result = { 0 };
    if (sgrad_train(&options, &result)) return 1;
    if (result.rank == 0 && !options.output.print)
        printf("%s: loss %.4f after %ld steps of %s\n", result.folder, result.train_loss, result.steps, options.optimizer.name);
    free(result.folder);
    return 0;
}
