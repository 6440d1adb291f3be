/* 03-own-operation.c: your own operation, outside the library, in a network that is trained.
 *
 * GELU (Hendrycks, Gimpel, Gaussian error linear units, 2016): y = x·Φ(x), Φ being the normal distribution function.
 *
 *     Φ(x) = (1 + erf(x/√2)) / 2        dy/dx = Φ(x) + x·exp(-x²/2)/√(2π)
 *
 * An operation is a record. It has a rule that computes the output's shape, and the tasks of the forward and backward pass with
 * the roles of their operands. Autograd needs nothing else. docs/develop/add-an-operation.md adds the same operation to the
 * library, with a GPU version.
 *
 * Next: 04-data.c. codelets/codelets.h explains the record. */
#include "codelets/kernels.h"
#include "graphs/graphs.h"

#include <math.h>
#include <stdlib.h>

/* ---- the operation: in the library, this part would be codelets/ops/gelu.c ---- */

struct sgrad_own_gelu {     /* its attributes: none */
    char none;
};

static float phi(float x) { return 0.5f * (1 + erff(x * 0.70710678f)); }
static float slope(float x) { return phi(x) + x * 0.39894228f * expf(-0.5f * x * x); }

/* x, y of any shape; activations are float or, with --precision bf16, bfloat16 */
static void forward(const struct sgrad_args *args) {
    const enum sgrad_dtype type = args->view[0].dtype;
    for (int64_t i = 0, n = sgrad_shape_count(&args->view[0].shape); i < n; i++) {
        float x = sgrad_get(type, args->data[0], i);
        sgrad_put(type, args->data[1], i, x * phi(x));
    }
}

/* x, dy, dx of any shape. If another layer also reads x, dx must be added to, not replaced. */
static void backward(const struct sgrad_args *args) {
    const enum sgrad_dtype type = args->view[0].dtype;
    for (int64_t i = 0, n = sgrad_shape_count(&args->view[0].shape); i < n; i++) {
        float dx = sgrad_get(type, args->data[1], i) * slope(sgrad_get(type, args->data[0], i));
        sgrad_put(type, args->data[2], i, dx + (sgrad_adds(args, 2) ? sgrad_get(type, args->data[2], i) : 0));
    }
}

/* erf counts as 20 operations. No function for bytes is needed: by default every operand is read or written once. */
static double flops(const struct sgrad_args *args) { return 24.0 * (double)sgrad_shape_count(&args->view[0].shape); }

static const struct sgrad_op sgrad_own_gelu_op = {
    .name = "own_gelu",
    .summary = "Gaussian error linear unit, y = x Φ(x)",
    .source = "Hendrycks, Gimpel, Gaussian error linear units, 2016",
    .inputs = 1,
    .attrs_size = sizeof(struct sgrad_own_gelu),
    .infer = sgrad_infer_same,
    .forward = { { { .name = "gelu forward", .kind = &sgrad_forward_kind, .cpu = forward, .flops = flops },
                   { SGRAD_IN(X, 0), SGRAD_OUT(Y, 0) } } },
    .backward = { { { .name = "gelu backward", .kind = &sgrad_backward_kind, .cpu = backward, .flops = flops },
                    { SGRAD_IN(X, 0), SGRAD_IN(DY, 0), SGRAD_OUT(DX, 0) } } },
    .tests = { { "7 samples of 17", .x = { { 2, { 7, 17 } } } } },      /* the library's tests run these shapes */
};

/* ---- a check: kernels are plain functions, so they can be tested on plain memory ---- */

static bool gradient_agrees(float at) {
    const float h = 1e-2f;
    float x[2] = { at + h, at - h }, y[2], dy = 1, dx;
    struct sgrad_view two = { SGRAD_F32, sgrad_shape(1, 2) }, one = { SGRAD_F32, sgrad_shape(1, 1) };
    forward(&(struct sgrad_args){ .view = (struct sgrad_view[]){ two, two }, .data = (void *[]){ x, y } });
    backward(&(struct sgrad_args){ .view = (struct sgrad_view[]){ one, one, one }, .data = (void *[]){ &at, &dy, &dx } });
    float expected = (y[0] - y[1]) / (2 * h);
    printf("gelu'(%4g) = %.4f, by finite differences %.4f\n", at, dx, expected);
    return fabsf(dx - expected) < 1e-3f;
}

/* ---- a network with it ---- */

/* x (N,H,W,C), returns the logits (N,classes) */
static int build(struct sgrad_graph *graph, int x, int classes) {
    x = sgrad_layer(graph, conv2d, "conv1", (x), .channels = 32, .kernel = 3, .padding = 1);
    x = sgrad_layer(graph, batchnorm, "bn1", (x));
    x = sgrad_layer(graph, own_gelu, "gelu1", (x));
    x = sgrad_layer(graph, conv2d, "conv2", (x), .channels = 32, .kernel = 3, .padding = 1);
    x = sgrad_layer(graph, batchnorm, "bn2", (x));
    x = sgrad_layer(graph, own_gelu, "gelu2", (x));
    x = sgrad_layer(graph, global_average_pool, "pool", (x));
    return sgrad_layer(graph, linear, "fc", (x), .features = classes, .bias = true);
}
static const struct sgrad_model model = { .name = "gelunet", .summary = "two convolutions with GELU", .build = build };

int main(void) {
    for (float x = -2; x <= 2; x++)
        if (!gradient_agrees(x)) return 1;

    struct sgrad_train_options options = sgrad_train_defaults();
    options.model.custom = &model;
    options.data.name = "digits";
    options.training.epochs = 5;
    options.training.batch = 64;

    struct sgrad_train_result result;
    if (sgrad_train(&options, &result)) return 1;
    if (result.rank == 0) printf("%s: test accuracy %.2f %%\n", result.folder, 100 * result.test_top1);
    free(result.folder);
    return 0;
}
