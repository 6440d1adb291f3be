/* 06-regression.c: your own data set, with samples of numbers, and a network that learns to predict a number.
 *
 * Friedman's function (Multivariate adaptive regression splines, 1991, equation 61) of ten features. It depends on five of them:
 *
 *     t = 10 sin(π u₀ u₁) + 20 (u₂ - ½)² + 10 u₃ + 5 u₄        u uniform in 0…1; t has a standard deviation of 4.9
 *
 * A sample of a data set is a list of fields. A reader declares and fills them. The network's input must come first and its
 * target last: here features F32 (10) and target F32 (1). Training and evaluation report the metrics of the network's loss. The
 * record of the loss operation lists them. A classifier's metric is its accuracy; here it is the mean distance from the target.
 *
 * Next: 07-split-layer.c. docs/develop/add-a-dataset.md adds a reader of files to the library. */
#include "datasets/datasets.h"
#include "graphs/graphs.h"

#include <math.h>
#include <stdlib.h>

/* ---- the data ---- */

enum { FEATURES = 10, TRAINING = 4096, TEST = 1024 };

static float friedman(const float *u) {
    return 10 * sinf((float)M_PI * u[0] * u[1]) + 20 * (u[2] - 0.5f) * (u[2] - 0.5f) + 10 * u[3] + 5 * u[4];
}

/* The input is 2u - 1, because networks learn faster from values around 0. Both splits are small, so this reader puts them in
 * memory. A field that is not in memory has data NULL; its samples are read one by one with the reader's function .read. */
static int open_friedman(struct sgrad_dataset *data, const char *argument, const struct sgrad_dataset_options *options) {
    (void)argument;
    data->count = data->split == SGRAD_TRAIN ? TRAINING : TEST;
    float *features = sgrad_xcalloc((size_t)data->count, FEATURES * sizeof *features);
    float *target = sgrad_xcalloc((size_t)data->count, sizeof *target);
    data->field[0] = (struct sgrad_field){ "features", SGRAD_F32, sgrad_shape(1, FEATURES), features };
    data->field[1] = (struct sgrad_field){ "target", SGRAD_F32, sgrad_shape(1, 1), target };
    for (int64_t i = 0; i < data->count; i++) {
        float u[FEATURES];
        for (int j = 0; j < FEATURES; j++) {
            const struct sgrad_random r = sgrad_philox(options->seed, SGRAD_STREAM_DATA, data->split, (uint64_t)i, (uint32_t)j);
            u[j] = sgrad_uniform(r.word[0]);
            features[i * FEATURES + j] = 2 * u[j] - 1;
        }
        target[i] = friedman(u);
    }
    return 0;
}

static const struct sgrad_reader reader = {
    .name = "friedman",
    .summary = "Friedman's function of ten features",
    .open = open_friedman,
};

/* ---- the network ---- */

/* x (N,10), returns (N,numbers). numbers is the size of the target: 1. */
static int build(struct sgrad_graph *graph, int x, int numbers) {
    x = sgrad_layer(graph, linear, "fc1", (x), .features = 64, .bias = true);
    x = sgrad_layer(graph, relu, "relu1", (x));
    x = sgrad_layer(graph, linear, "fc2", (x), .features = 64, .bias = true);
    x = sgrad_layer(graph, relu, "relu2", (x));
    return sgrad_layer(graph, linear, "fc3", (x), .features = numbers, .bias = true);
}

/* A network ends with its loss. Default: this loss for numbers, softmax cross entropy for labels. */
static int loss(struct sgrad_graph *graph, int y, int target) {
    return sgrad_layer(graph, mean_squared_error, "loss", (y, target), 0);
}

static const struct sgrad_model model = { .name = "regression", .summary = "three linear layers", .build = build, .loss = loss };

int main(void) {
    struct sgrad_train_options options = sgrad_train_defaults();
    options.model.custom = &model;
    options.data.reader = &reader;
    options.optimizer.name = "adam";
    options.optimizer.lr = 0.01;
    options.optimizer.weight_decay = 0;
    options.optimizer.schedule = "cosine";
    options.training.epochs = 20;
    options.training.batch = 64;

    struct sgrad_train_result result;
    if (sgrad_train(&options, &result)) return 1;
    for (int i = 0; i < result.metrics && result.rank == 0; i++) {      /* this loss has two: loss and mean absolute error */
        char text[SGRAD_NUMBER_TEXT];
        printf("%s: test %s %s\n", result.folder, result.metric[i].text,
               sgrad_metric_text(&result.metric[i], result.test[i], text));
    }
    free(result.folder);
    return 0;
}
