/* googlenet_caffe.c: GoogLeNet as the paper and Caffe have it: no batch norm, and two auxiliary classifiers, of whose losses
 * three tenths count in training. */
#include "codelets/ops/auxiliary_cross_entropy.h"
#include "graphs/networks/models/googlenet.h"

static int build(struct sgrad_graph *g, int x, int classes) { return sgrad__googlenet(g, x, classes, true); }

static int loss(struct sgrad_graph *g, int y, int target) {
    return sgrad_layer(g, auxiliary_cross_entropy, "loss", (y, target), .heads = 3);
}

const struct sgrad_model sgrad_googlenet_caffe_model = {
    .name = "googlenet_caffe",
    .summary = "GoogLeNet without batch norm, with its two auxiliary classifiers",
    .source = "C. Szegedy et al., Going deeper with convolutions, 2014",
    .least_side = 63,
    .build = build,
    .loss = loss,
};
