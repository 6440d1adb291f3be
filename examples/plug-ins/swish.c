/* swish.c: a plug-in with an operation, and a network that uses it.
 *
 * Swish (Ramachandran, Zoph, Le, Searching for activation functions, 2017): y = x·s(βx), s(t) = 1 / (1 + exp(-t)).
 *
 *     dy/dx = s(βx) + βx·s(βx)·(1 - s(βx))
 *
 *     cc -O2 -shared -fPIC swish.c -o libswish.so $(stargrad config --cflags)
 *     stargrad check --plugin ./libswish.so swish
 *     stargrad train --plugin ./libswish.so --model swishnet --data digits */
#include "codelets/kernels.h"
#include "graphs/graphs.h"

#include <math.h>

struct sgrad_swish {
    float beta;         /* default, also for 0: 1 */
};

static int infer(struct sgrad_signature *signature, void *attrs) {
    struct sgrad_swish *swish = attrs;
    if (swish->beta == 0) swish->beta = 1;
    return sgrad_infer_same(signature, attrs);
}

static float sigmoid(float t) { return 1 / (1 + expf(-t)); }

/* x, y of any shape */
static void forward(const struct sgrad_args *args) {
    const float beta = ((const struct sgrad_swish *)args->attrs)->beta;
    const enum sgrad_dtype type = args->view[0].dtype;
    for (int64_t i = 0, n = sgrad_shape_count(&args->view[0].shape); i < n; i++) {
        const float x = sgrad_get(type, args->data[0], i);
        sgrad_put(type, args->data[1], i, x * sigmoid(beta * x));
    }
}

/* x, dy, dx of any shape */
static void backward(const struct sgrad_args *args) {
    const float beta = ((const struct sgrad_swish *)args->attrs)->beta;
    const enum sgrad_dtype type = args->view[0].dtype;
    for (int64_t i = 0, n = sgrad_shape_count(&args->view[0].shape); i < n; i++) {
        const float t = beta * sgrad_get(type, args->data[0], i), s = sigmoid(t), slope = s + t * s * (1 - s);
        const float dx = slope * sgrad_get(type, args->data[1], i);
        sgrad_put(type, args->data[2], i, dx + (sgrad_adds(args, 2) ? sgrad_get(type, args->data[2], i) : 0));
    }
}

static double flops(const struct sgrad_args *args) { return 20.0 * (double)sgrad_shape_count(&args->view[0].shape); }

static const struct sgrad_op sgrad_swish_op = {
    .name = "swish",
    .summary = "y = x times the sigmoid of beta x",
    .source = "Ramachandran, Zoph, Le, Searching for activation functions, 2017",
    .inputs = 1,
    .attrs_size = sizeof(struct sgrad_swish),
    .infer = infer,
    .forward = { { { .name = "swish forward", .kind = &sgrad_forward_kind, .cpu = forward, .flops = flops },
                   { SGRAD_IN(X, 0), SGRAD_OUT(Y, 0) } } },
    .backward = { { { .name = "swish backward", .kind = &sgrad_backward_kind, .cpu = backward, .flops = flops },
                    { SGRAD_IN(X, 0), SGRAD_IN(DY, 0), SGRAD_OUT(DX, 0) } } },
    .tests = {
        { "7 samples of 17", .x = { { 2, { 7, 17 } } } },
        { "images, beta 2", .x = { { 4, { 2, 5, 4, 3 } } }, &(struct sgrad_swish){ .beta = 2 } },
    },
};

/* x (N,H,W,C), returns the logits (N,classes) */
static int build(struct sgrad_graph *graph, int x, int classes) {
    x = sgrad_layer(graph, conv2d, "conv1", (x), .channels = 32, .kernel = 3, .padding = 1);
    x = sgrad_layer(graph, batchnorm, "bn1", (x));
    x = sgrad_layer(graph, swish, "swish1", (x), .beta = 1);
    x = sgrad_layer(graph, conv2d, "conv2", (x), .channels = 32, .kernel = 3, .padding = 1);
    x = sgrad_layer(graph, batchnorm, "bn2", (x));
    x = sgrad_layer(graph, swish, "swish2", (x), .beta = 1);
    x = sgrad_layer(graph, global_average_pool, "pool", (x));
    return sgrad_layer(graph, linear, "fc", (x), .features = classes, .bias = true);
}
static const struct sgrad_model swishnet = { .name = "swishnet", .summary = "two convolutions with swish", .build = build };

SGRAD_PLUGIN(.ops = (const struct sgrad_op *const[]){ &sgrad_swish_op, NULL },
             .models = (const struct sgrad_model *const[]){ &swishnet, NULL });
