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
 * Next: 09-duplicates.c. docs/second-order.md says what to tune; docs/add-an-operation.md how the library grows. */
#include "graphs/graphs.h"

#include <stdlib.h>
#include <string.h>

/* x (N,H,W,C), returns the logits (N,classes) */
static int build(struct sgrad_graph *g, int x, int classes) {
    x = sgrad_layer(g, conv2d, "conv1", (x), .channels = 16, .kernel = 3, .padding = 1);
    x = sgrad_layer(g, batchnorm, "bn1", (x), .relu = true);
    x = sgrad_layer(g, max_pool, "pool1", (x), .kernel = 2);
    x = sgrad_layer(g, conv2d, "conv2", (x), .channels = 32, .kernel = 3, .padding = 1);
    x = sgrad_layer(g, batchnorm, "bn2", (x), .relu = true);
    x = sgrad_layer(g, global_average_pool, "pool2", (x));
    return sgrad_layer(g, linear, "fc", (x), .features = classes, .bias = true);
}

static const struct sgrad_model model = { .name = "mine", .summary = "two convolutions", .build = build };

int main(int argc, char **argv) {
    const char *word = argc > 1 ? argv[1] : "kfac";
    struct sgrad_train_options options = sgrad_train_defaults();
    options.custom_model = &model;
    options.data = "digits";
    options.epochs = 3;
    options.batch = 64;
    options.print = !strcmp(word, "--print");
    options.optimizer = options.print ? "kfac" : word;
    options.lr = 0.02;
    options.kfac_damping = 0.01;
    options.kfac_eigen_every = 20;      /* the run has 66 steps */
    options.kfac_factor_every = 5;      /* the lag, too, unless options.kfac_lag says otherwise */

    struct sgrad_train_result result = { 0 };
    if (sgrad_train(&options, &result)) return 1;
    if (result.rank == 0 && !options.print)
        printf("%s: loss %.4f after %ld steps of %s\n", result.folder, result.train_loss, result.steps, options.optimizer);
    free(result.folder);
    return 0;
}
