/* 07-split-layer.c: a network whose largest layers are split over the ranks of a host.
 *
 *     07-split-layer                          the whole network, on one rank
 *     mpirun -n 2 07-split-layer 2            two ranks, each with half of both weights, on the same samples
 *     mpirun -n 4 07-split-layer 2            two such pairs, each with its half of the batch
 *     mpirun -n 2 07-split-layer 2 --print    the network of a rank, its tasks and messages; runs nothing
 *
 * Of y = W2·relu(W1·x), two ranks have half the rows of W1 and half the columns of W2 each, so that between them nobody needs
 * what the other has (Shoeybi et al., Megatron-LM, 2019):
 *
 *     rank 0   x ── W1 upper ── relu ── W2 left  ──┐
 *                                                  + ── y, on both
 *     rank 1   x ── W1 lower ── relu ── W2 right ──┘
 *
 * The sum is an operation like others, all_reduce; so are all_gather, reduce_scatter, broadcast, reduce and shift. Backward,
 * either rank finds the part of x's gradient that comes by its half, and the first layer, which both have, is updated by the sum
 * over both. Weights begin as on one rank, files have whole ones, and losses agree to rounding, whatever the number of ranks.
 *
 * Next: 08-second-order.c. graphs/networks/networks.h says what is summed over whom;
 * docs/develop/add-a-collective.md how ranks sum. */
#include "graphs/graphs.h"

#include <stdlib.h>
#include <string.h>

enum { HIDDEN = 512 };

/* x (N,H,W,C), returns the logits (N,classes). Every rank builds the same: what is a part has its size by the number of ranks. */
static int build(struct sgrad_graph *graph, int x, int classes) {
    x = sgrad_layer(graph, flatten, "flatten", (x));
    x = sgrad_layer(graph, linear, "first", (x), .features = 64, .bias = true);

    sgrad_graph_partition(graph, "up.weight", "tensor", 0);
    sgrad_graph_partition(graph, "up.bias", "tensor", 0);
    x = sgrad_layer(graph, linear, "up", (x), .features = HIDDEN / sgrad_graph_ranks(graph, "tensor"), .bias = true);
    x = sgrad_layer(graph, relu, "up_relu", (x));

    sgrad_graph_partition(graph, "down.weight", "tensor", 1);
    x = sgrad_layer(graph, linear, "down", (x), .features = 64);    /* a bias here would be added by every rank */
    x = sgrad_layer(graph, all_reduce, "down_sum", (x), .axis = "tensor");
    x = sgrad_layer(graph, relu, "down_relu", (x));

    return sgrad_layer(graph, linear, "fc", (x), .features = classes, .bias = true);
}

static const struct sgrad_model model = { .name = "split", .summary = "two layers over several ranks", .build = build };

int main(int argc, char **argv) {
    struct sgrad_train_options options = sgrad_train_defaults();
    char mesh[32];
    snprintf(mesh, sizeof mesh, "tensor=%s", argc > 1 ? argv[1] : "1");
    options.model.custom = &model;
    options.data.name = "digits";
    options.parallel.mesh = mesh;            /* ranks that are left have other samples: of four, tensor=2 is data=2,tensor=2 */
    options.training.epochs = 5;
    options.training.batch = 64;
    options.optimizer.lr = 0.05;
    options.optimizer.schedule = "cosine";
    options.output.print = argc > 2 && !strcmp(argv[2], "--print");

    struct sgrad_train_result result = { 0 };
    if (sgrad_train(&options, &result)) return 1;
    if (result.rank == 0 && !options.output.print)
        printf("%s: %ld steps, test accuracy %.2f %%\n", result.folder, result.steps, 100 * result.test_top1);
    free(result.folder);
    return 0;
}
