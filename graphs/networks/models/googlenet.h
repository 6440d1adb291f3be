/* googlenet.h: GoogLeNet, for the networks that are kinds of it. Private to graphs/networks/. */
#ifndef SGRAD_GRAPHS_GOOGLENET_H
#define SGRAD_GRAPHS_GOOGLENET_H

#include "graphs/networks/networks.h"

/* As the paper has it: convolutions with biases and local response norms in place of batch norm, a 5×5 branch, and two
 * classifiers more behind inception4a and 4d, whose logits come behind the last one's: (N,3·classes). Else as torchvision:
 * (N,classes). */
int sgrad__googlenet(struct sgrad_graph *graph, int x, int classes, bool as_paper);

#endif
