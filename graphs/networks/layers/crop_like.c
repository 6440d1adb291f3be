/* crop_like.c: crops a value that is slightly larger than another one, because pooling rounded up, to its size, at the ends of y
 * and x. */
#include "codelets/ops/crop.h"
#include "graphs/networks/layers/layers.h"

#include <string.h>

int sgrad__crop_like(struct sgrad_graph *graph, const char *name, int x, int like) {
    const struct sgrad_shape is = sgrad_graph_shape(graph, x), wanted = sgrad_graph_shape(graph, like);
    const int y = wanted.rank - 3;
    if (is.rank != wanted.rank || !memcmp(is.dim + y, wanted.dim + y, 2 * sizeof *is.dim)) return x;
    return sgrad_layer(graph, crop, name, (x), .size = { 0, (int)wanted.dim[y], (int)wanted.dim[y + 1] });
}

const struct sgrad_composite sgrad_crop_like_composite = {
    .name = "crop_like",
    .summary = "crop to the size of another tensor",
};
