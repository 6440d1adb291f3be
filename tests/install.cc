/* install.cc: a C++ program that tests/install.sh compiles and runs with an installed Stargrad: its own operation, a network
 * with it, two steps of training, a task, tokens of a text. */
#include "datasets/tokenizers/tokenizer.h"
#include "graphs/graphs.h"

#include <cmath>
#include <cstdlib>
#include <cstring>

/* x (N,H,W,C), returns the logits (N,classes) */
static int layers(struct sgrad_graph *g, int x, int classes) {
    x = sgrad_layer(g, conv2d, "conv", (x), .channels = 8, .kernel = 3, .padding = 1);
    x = sgrad_layer(g, add, "sum", (x, sgrad_layer(g, relu, "relu", (x))), .relu = true);
    x = sgrad_layer(g, global_average_pool, "pool", (x));
    return sgrad_layer(g, linear, "fc", (x), .features = classes, .bias = true);
}

/* In a record all that is left out is zero. */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

struct sgrad_twice {
    float factor;
};

/* x, y of any shape */
static void forward(const struct sgrad_args *a) {
    const float *x = static_cast<const float *>(a->data[0]), factor = static_cast<const sgrad_twice *>(a->attrs)->factor;
    float *y = static_cast<float *>(a->data[1]);
    for (int64_t i = 0; i < sgrad_shape_count(&a->view[0].shape); i++) y[i] = factor * x[i];
}

/* dy, dx of any shape */
static void backward(const struct sgrad_args *a) {
    const float *dy = static_cast<const float *>(a->data[0]), factor = static_cast<const sgrad_twice *>(a->attrs)->factor;
    float *dx = static_cast<float *>(a->data[1]);
    for (int64_t i = 0; i < sgrad_shape_count(&a->view[0].shape); i++)
        dx[i] = factor * dy[i] + (a->accumulate >> 1 & 1 ? dx[i] : 0);
}

static const struct sgrad_op sgrad_twice_op = {
    .name = "twice",
    .summary = "y = factor · x",
    .inputs = 1,
    .attrs_size = sizeof(struct sgrad_twice),
    .infer = sgrad_infer_same,
    .forward = { { { .name = "twice forward", .kind = &sgrad_forward_kind, .cpu = forward },
                   { SGRAD_IN(X, 0), SGRAD_OUT(Y, 0) } } },
    .backward = { { { .name = "twice backward", .kind = &sgrad_backward_kind, .cpu = backward },
                    { SGRAD_IN(DY, 0), SGRAD_OUT(DX, 0) } } },
    .tests = { { "7 samples of 5", { { 2, { 7, 5 } } } } },
};

static int build(struct sgrad_graph *g, int x, int classes) {
    return layers(g, sgrad_layer(g, twice, "twice", (x), .factor = 2), classes);
}
static const struct sgrad_model model = { .name = "mine", .summary = "a convolution", .build = build };

static int train() {
    struct sgrad_train_options options = sgrad_train_defaults();
    options.model.custom = &model;
    options.data.name = "digits";
    options.training.steps = 2;
    options.training.batch = 64;
    options.output.folder = "run";
    struct sgrad_train_result result;
    SGRAD_TRY(sgrad_train(&options, &result));
    const bool good = result.steps == 2 && std::isfinite(result.test_loss) && std::strcmp(result.folder, "run") == 0;
    std::free(result.folder);
    return good ? 0 : SGRAD_EINVAL;
}

static const struct sgrad_kernel kernel = { .name = "half", .cpu = [](const struct sgrad_args *a) {
                                               *static_cast<float *>(a->data[0]) /= 2;
                                           } };

static int task() {
    const struct sgrad_context_options options = { .gpus = -1 };
    struct sgrad_context *context;
    struct sgrad_tensor *x;
    const enum sgrad_access access = SGRAD_RW;
    float value = 3;
    SGRAD_TRY(sgrad_context_open(&options, &context));
    SGRAD_TRY(sgrad_tensor_create("x", SGRAD_F32, sgrad_shape(1, 1), SGRAD_PERSISTENT, &x));
    SGRAD_TRY(sgrad_tensor_write(x, &value));
    SGRAD_TRY(sgrad_task_run(&kernel, &x, &access, 1));
    SGRAD_TRY(sgrad_tensor_read(x, &value));
    sgrad_tensor_destroy(x);
    sgrad_context_close(context);
    return value == 1.5f ? 0 : SGRAD_EINVAL;
}

static int tokenize() {
    static const char file[] = R"({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
        "decoder": {"type": "ByteLevel"}, "model": {"vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}})";
    struct sgrad_tokenizer *tokenizer;
    size_t count;
    SGRAD_TRY(sgrad_tokenizer_parse("tokenizer", file, sizeof file - 1, &tokenizer));
    struct sgrad_encoder *encoder = sgrad_encoder_create(tokenizer);
    const int32_t *token = sgrad_encode(encoder, "aab", 3, &count);
    const bool good = count == 2 && token[0] == 0 && token[1] == 2;
    sgrad_encoder_destroy(encoder);
    sgrad_tokenizer_close(tokenizer);
    return good ? 0 : SGRAD_EINVAL;
}

int main() {
    return train() || task() || tokenize();
}
