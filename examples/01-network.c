/* 01-network.c: describing a network.
 *
 * You build a network by applying operations to values. Each call names a layer and returns its output value. Stargrad infers
 * the shapes and finds mistakes while you add layers. Nothing is computed yet: a graph defines the operations, a program their
 * order. A run chooses the time and the worker of each task.
 *
 * Letters in shapes: N is the number of samples. H, W, C are height, width and channels of the input, P, Q, K those of the
 * output. Images are (N,H,W,C).
 *
 * Next: 02-train.c. For the functions used here, see graphs/graphs.h. codelets/codelets.def lists the operations. */
#include "graphs/graphs.h"

/* Prints the name and the shape of a value. */
static void show(const struct sgrad_graph *graph, const char *what, int value) {
    struct sgrad_shape shape = sgrad_graph_shape(graph, value);
    char text[SGRAD_SHAPE_TEXT];
    printf("%-12s %s\n", what, sgrad_shape_text(&shape, text));
}

/* The building block of residual networks: a convolution and batch norm, a shortcut around them, then ReLU. */
static int residual(struct sgrad_graph *graph, int x) {
    int y = sgrad_layer(graph, conv2d, "block.conv", (x), .channels = 16, .kernel = 3, .padding = 1);
    y = sgrad_layer(graph, batchnorm, "block.bn", (y));
    return sgrad_layer(graph, add, "block.add", (y, x), .relu = true);
}

/* x (N,H,W,C), returns the logits (N,classes) */
static int build(struct sgrad_graph *graph, int x, int classes) {
    x = sgrad_layer(graph, conv2d, "conv", (x), .channels = 16, .kernel = 3, .padding = 1);
    x = sgrad_layer(graph, batchnorm, "bn", (x), .relu = true);
    show(graph, "bn", x);
    x = residual(graph, x);
    x = sgrad_layer(graph, max_pool, "pool", (x), .kernel = 2);
    show(graph, "pool", x);
    x = sgrad_layer(graph, global_average_pool, "average", (x));
    show(graph, "average", x);
    return sgrad_layer(graph, linear, "fc", (x), .features = classes, .bias = true);
}

int main(void) {
    struct sgrad_graph *g = sgrad_graph_create(SGRAD_F32);
    int pixels = sgrad_graph_input(g, "pixels", SGRAD_U8, sgrad_shape(3, 32, 32, 3));
    int label = sgrad_graph_input(g, "label", SGRAD_I32, sgrad_shape(0));
    int images = sgrad_layer(g, image, "images", (pixels), .full_scale = 255);
    show(g, "images", images);
    int logits = build(g, images, 10);
    show(g, "fc", logits);
    int error = sgrad_graph_loss(g, logits, label, 0);
    sgrad_graph_destroy(g);
    if (error) return 1;

    /* A mistake: the two inputs of an addition differ in shape. The error message names the layer and both shapes. */
    g = sgrad_graph_create(SGRAD_F32);
    images = sgrad_graph_input(g, "images", SGRAD_F32, sgrad_shape(3, 32, 32, 3));
    int half = sgrad_layer(g, max_pool, "pool", (images), .kernel = 2);
    sgrad_layer(g, add, "sum", (images, half));
    bool found = sgrad_graph_error(g) == SGRAD_ESHAPE;
    sgrad_graph_destroy(g);
    return !found;
}
