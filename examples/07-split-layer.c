/* 07-split-layer.c: a network with its largest layers split over the ranks of a host (tensor parallelism).
 *
 *     07-split-layer                          trains the whole network on one rank
 *     mpirun -n 2 07-split-layer 2            two ranks, each with half of both weights, train on the same samples
 *     mpirun -n 4 07-split-layer 2            two such pairs, each with half of the batch
 *     mpirun -n 2 07-split-layer 2 --print    prints the network of a rank, its tasks and messages, without training
 *
 * The split layers compute y = W2·relu(W1·x). Each of two ranks has half of the rows of W1 and half of the columns of W2. A rank
 * needs no values of the other rank between the two products (Shoeybi et al., Megatron-LM, 2019):
 *
 *     rank 0   x ── W1 upper ── relu ── W2 left  ──┐
 *                                                  + ── y, on both
 *     rank 1   x ── W1 lower ── relu ── W2 right ──┘
 *
 * The sum is an ordinary operation, all_reduce. Others are all_gather, reduce_scatter, broadcast, reduce and shift. In the
 * backward pass, each rank computes the gradient of x from its half of the weights. Both ranks have the first layer; they update
 * it with the sum of their gradients.
 *
 * The initial weights are those of one rank, files contain whole weights, and losses agree to rounding for any number of ranks.
 *
 * Next: 08-second-order.c. graphs/networks/networks.h describes which gradients are summed over which ranks.
 * docs/develop/add-a-collective.md describes how ranks compute sums. */
#include "graphs/graphs.h"

#include <stdlib.h>
#include <string.h>

enum { HIDDEN = 512 };

/* x (N,H,W,C), returns the logits (N,classes). Every rank calls this. The size of a shard depends on the number of ranks. */
static int build(struct sgrad_graph *graph, int x, int classes) {
    x = sgrad_layer(graph, flatten, "flatten", (x));
    x = sgrad_layer(graph, linear, "first", (x), .features = 64, .bias = true);

    sgrad_graph_partition(graph, "up.weight", "tensor", 0);
    sgrad_graph_partition(graph, "up.bias", "tensor", 0);
    x = sgrad_layer(graph, linear, "up", (x), .features = HIDDEN / sgrad_graph_ranks(graph, "tensor"), .bias = true);
    x = sgrad_layer(graph, relu, "up_relu", (x));

    sgrad_graph_partition(graph, "down.weight", "tensor", 1);
    x = sgrad_layer(graph, linear, "down", (x), .features = 64);    /* without a bias: every rank would add it */
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
    options.parallel.mesh = mesh;            /* the remaining factor is data parallelism: 4 ranks, tensor=2: data=2,tensor=2 */
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
