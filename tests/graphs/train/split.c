/* split: trains networks whose linear layers are split over the ranks of axis tensor. The results must be the same on any
 * number of ranks; tests/train/split.py compares them.
 *
 *     split                                   a run on one rank that must succeed
 *     split NETWORK MESH FOLDER WORD…         MESH "": no mesh. For the words see the function heed; eval, as the
 *                                             first one, evaluates instead */
#include "config.h"
#include "graphs/graphs.h"
#include "tests/scratch.h"

#include <stdlib.h>

#define AXIS "tensor"

/* A part of FEATURES on each rank: rows of the weight. */
static int columns(struct sgrad_graph *graph, const char *name, int x, int features) {
    char *weight = sgrad_format("%s.weight", name), *bias = sgrad_format("%s.bias", name);
    sgrad_graph_partition(graph, weight, AXIS, 0);
    sgrad_graph_partition(graph, bias, AXIS, 0);
    free(weight);
    free(bias);
    return sgrad_layer(graph, linear, name, (x), .features = features / sgrad_graph_ranks(graph, AXIS), .bias = true);
}

/* Of parts of the input, a term of each of the FEATURES on each rank. */
static int rows(struct sgrad_graph *graph, const char *name, int x, int features) {
    char *weight = sgrad_format("%s.weight", name);
    sgrad_graph_partition(graph, weight, AXIS, 1);
    free(weight);
    return sgrad_layer(graph, linear, name, (x), .features = features);
}

static int reduced(struct sgrad_graph *graph, int x) {
    x = columns(graph, "up", x, 24);
    x = sgrad_layer(graph, relu, "relu", (x));
    x = rows(graph, "down", x, 18);
    return sgrad_layer(graph, all_reduce, "sum", (x), .axis = AXIS);
}

static int gathered(struct sgrad_graph *graph, int x) {
    x = columns(graph, "up", x, 24);
    x = sgrad_layer(graph, relu, "relu", (x));
    return sgrad_layer(graph, all_gather, "all", (x), .axis = AXIS);
}

/* What moves has other readers, too, so that its gradient is added to, by the move or after it. */
static int shared(struct sgrad_graph *graph, int x) {
    x = sgrad_layer(graph, linear, "before", (x), .features = 18, .bias = true);
    int y = columns(graph, "up", x, 24);
    int all = sgrad_layer(graph, all_gather, "all", (y), .axis = AXIS);
    int sum = sgrad_layer(graph, all_reduce, "sum", (rows(graph, "down", y, 18)), .axis = AXIS);
    int both = sgrad_layer(graph, add, "both", (x, sum), .relu = true);
    return sgrad_layer(graph, concat, "concat", (both, all));
}

static int scattered(struct sgrad_graph *graph, int x) {
    x = columns(graph, "up", x, 24);
    x = sgrad_layer(graph, relu, "relu", (x));
    x = rows(graph, "down", x, 18);
    x = sgrad_layer(graph, reduce_scatter, "part", (x), .axis = AXIS);
    x = sgrad_layer(graph, relu, "relu2", (x));
    return sgrad_layer(graph, all_gather, "all", (x), .axis = AXIS);
}

/* Along a dimension that is not the last: rows of a plane, which all go through the same layer. */
static int inner(struct sgrad_graph *graph, int x) {
    x = columns(graph, "up", x, 12);
    x = sgrad_layer(graph, relu, "relu1", (x));
    x = rows(graph, "down", x, 7);
    x = sgrad_layer(graph, reduce_scatter, "part", (x), .axis = AXIS, .dimension = 1);
    x = sgrad_layer(graph, linear, "each", (x), .features = 5, .bias = true);
    x = sgrad_layer(graph, relu, "relu", (x));
    return sgrad_layer(graph, all_gather, "all", (x), .axis = AXIS, .dimension = 1);
}

static int rooted(struct sgrad_graph *graph, int x) {
    const int last = sgrad_graph_ranks(graph, AXIS) - 1;
    x = columns(graph, "up", x, 24);
    x = sgrad_layer(graph, relu, "relu", (x));
    x = rows(graph, "down", x, 18);
    x = sgrad_layer(graph, reduce, "sum", (x), .axis = AXIS, .root = last);
    x = sgrad_layer(graph, relu, "relu2", (x));
    return sgrad_layer(graph, broadcast, "root", (x), .axis = AXIS, .root = last);
}

/* Once around the ring. */
static int shifted(struct sgrad_graph *graph, int x) {
    x = columns(graph, "up", x, 24);
    for (int i = 0; i < sgrad_graph_ranks(graph, AXIS); i++) {
        char *name = sgrad_format("shift%d", i);
        x = sgrad_layer(graph, shift, name, (x), .axis = AXIS);
        free(name);
    }
    x = sgrad_layer(graph, relu, "relu", (x));
    x = rows(graph, "down", x, 18);
    return sgrad_layer(graph, all_reduce, "sum", (x), .axis = AXIS);
}

/* Kept in parts, and whole for layers; of what is split, too, along the other dimension. */
static int kept(struct sgrad_graph *graph, int x) {
    sgrad_graph_shard(graph, "whole.weight", AXIS, 0);
    x = sgrad_layer(graph, linear, "whole", (x), .features = 18, .bias = true);
    x = sgrad_layer(graph, relu, "relu", (x));
    return sgrad_layer(graph, linear, "other", (x), .features = 6);
}

/* Two sections of 12, of each of which a rank takes a part, so that they add to each other; the gradient of both is right only if
 * the parts are those of the same elements. */
static int sections(struct sgrad_graph *graph, int x) {
    x = sgrad_layer(graph, linear, "two", (x), .features = 24, .bias = true);
    x = sgrad_layer(graph, take, "part", (x), .axis = AXIS, .sections = 2);
    x = sgrad_layer(graph, relu, "relu", (x));
    x = sgrad_layer(graph, all_gather, "all", (x), .axis = AXIS, .sections = 2);
    return sgrad_layer(graph, linear, "after", (x), .features = 6);
}

/* ---- what is refused ---- */

static int odd(struct sgrad_graph *graph, int x) {
    x = sgrad_layer(graph, linear, "up", (x), .features = 7);
    return sgrad_layer(graph, reduce_scatter, "part", (x), .axis = AXIS);
}
static int nowhere(struct sgrad_graph *graph, int x) {
    return sgrad_layer(graph, broadcast, "root", (x), .axis = AXIS, .root = 5);
}
static int samples(struct sgrad_graph *graph, int x) {
    return sgrad_layer(graph, all_gather, "all", (x), .axis = AXIS, .dimension = 9);
}
static int unnamed(struct sgrad_graph *graph, int x) { return sgrad_layer(graph, all_reduce, "sum", (x)); }
static int unknown(struct sgrad_graph *graph, int x) {
    sgrad_graph_partition(graph, "nobody.weight", AXIS, 0);
    return x;
}
static int third(struct sgrad_graph *graph, int x) {
    sgrad_graph_partition(graph, "up.weight", AXIS, 2);
    return sgrad_layer(graph, linear, "up", (x), .features = 6);
}
static int uneven(struct sgrad_graph *graph, int x) {
    sgrad_graph_shard(graph, "up.weight", AXIS, 0);
    return sgrad_layer(graph, linear, "up", (x), .features = 7);
}
static int normed(struct sgrad_graph *graph, int x) {
    x = columns(graph, "up", x, 24);
    sgrad_graph_partition(graph, "bn.weight", AXIS, 0);
    x = sgrad_layer(graph, batchnorm, "bn", (x));
    return sgrad_layer(graph, all_gather, "all", (x), .axis = AXIS);
}
static int whole(struct sgrad_graph *graph, int x) {
    (void)graph;
    return x;
}

static const struct {
    const char *name;
    int (*build)(struct sgrad_graph *g, int x);
    bool plane;     /* it takes images as they are */
} networks[] = {
    { "reduced", reduced, false }, { "gathered", gathered, false }, { "shared", shared, false },
    { "scattered", scattered, false }, { "inner", inner, true }, { "rooted", rooted, false },
    { "shifted", shifted, false }, { "kept", kept, false }, { "sections", sections, false },
    { "odd", odd, false }, { "nowhere", nowhere, false },
    { "samples", samples, false }, { "unnamed", unnamed, false }, { "unknown", unknown, false },
    { "third", third, false }, { "uneven", uneven, false }, { "normed", normed, false }, { "whole", whole, false },
};
static size_t network;
static bool with_norm;

/* Whole layers before and after what is split; batch norm, whose statistics are those of all samples, before. */
static int build(struct sgrad_graph *graph, int x, int classes) {
    x = sgrad_layer(graph, linear, "first", (x), .features = 4, .bias = true);
    if (with_norm) x = sgrad_layer(graph, batchnorm, "bn", (x), .relu = true);
    if (!networks[network].plane) x = sgrad_layer(graph, flatten, "flatten", (x));
    x = networks[network].build(graph, x);
    if (networks[network].plane) x = sgrad_layer(graph, flatten, "flatten", (x));
    x = sgrad_layer(graph, relu, "last_relu", (x));
    return sgrad_layer(graph, linear, "fc", (x), .features = classes, .bias = true);
}

static const struct sgrad_model model = { .name = "split", .summary = "linear layers over ranks", .build = build };

static void heed(struct sgrad_train_options *options, const char *word) {
    if (!strcmp(word, "print")) options->output.print = true;
    else if (!strcmp(word, "resume")) options->checkpoint.resume = true;
    else if (!strcmp(word, "clip")) options->training.clip_norm = 0.05;
    else if (!strcmp(word, "adam")) options->optimizer.name = "adam", options->optimizer.lr = 0.001;
    else if (!strcmp(word, "lamb")) options->optimizer.name = "lamb";
    else if (!strcmp(word, "ps")) options->parallel.strategy = "ps";
    else if (!strcmp(word, "bf16")) options->model.precision = SGRAD_PRECISION_BF16;
    else if (!strcmp(word, "recompute")) options->model.recompute = true;
    else if (!strcmp(word, "doubling")) options->parallel.allreduce = word;
    else if (!strcmp(word, "shared")) options->parallel.shard = "parameters";
    else if (!strcmp(word, "normed")) with_norm = true;
    else if (strstr(word, ".json")) options->parallel.network = word;
    else if (!strncmp(word, "gpt:", 4) || !strncmp(word, "llama:", 6)) options->model.custom = NULL, options->model.name = word;
    else if (!strncmp(word, "text:", 5))
        options->data.name = word, options->training.batch = 4, options->training.micro_batch = 1;
    else options->training.steps = atol(word);
}

int main(int argc, char **argv) {
    struct sgrad_train_options options = sgrad_train_defaults();
    struct sgrad_train_result result = { 0 };
    if (argc == 1 && scratch_open(NULL)) return 1;
    while (argc > 1 && strcmp(networks[network].name, argv[1])) network++;
    options.model.custom = &model;
    options.data.name = "synthetic:6x6x3,10,192";
    options.parallel.mesh = argc > 2 && *argv[2] ? argv[2] : NULL;
    options.output.folder = argc > 3 ? argv[3] : scratch_path("run");
    options.training.batch = 24;
    options.training.micro_batch = 6;
    options.training.bn_group = SGRAD_GROUP_GLOBAL;
    options.training.steps = 4;
    options.optimizer.lr = 0.05;
    options.parallel.cpus = 1;
    options.checkpoint.every = 2;
    options.checkpoint.in_steps = true;
    for (int i = 4; i < argc; i++) heed(&options, argv[i]);
    char *weights = argc > 4 && !strcmp(argv[4], "eval") ? sgrad_format("%s/model.safetensors", options.output.folder) : NULL;
    options.model.init = weights;
    int error = weights ? sgrad_evaluate(&options, &result) : sgrad_train(&options, &result);
    if (weights && result.rank == 0) printf("test loss %.9g\n", result.test_loss);
    if (!error && !weights && !options.output.print)
        printf("rank %d sent %lld bytes\n", result.rank, (long long)sgrad_sent_bytes());
    free(weights);
    free(result.folder);
    if (argc == 1 && scratch_close(NULL)) return 1;
    return error ? 1 : 0;
}
