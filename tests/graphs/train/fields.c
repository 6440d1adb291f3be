/* fields: trains a network on samples with three fields of numbers. One field is in memory, two are read on demand. The
 * network selects the middle field by its name, and has its own loss:
 *
 *     features F32 (3) ─┐
 *     more     F32 (3) ─┴ + ─ fc1 ─ relu ─ fc2 ─ mean_squared_error
 *     target   F32 ()   ──────────────────────────┘
 *
 *     fields                           a run that must learn, and its output
 *     fields FOLDER PARTITION          a run for tests/train/ranks.py */
#include "config.h"
#include "datasets/datasets.h"
#include "graphs/graphs.h"
#include "tests/scratch.h"

enum { WIDE = 3, TRAINING = 256, TEST = 100 };

static float number(int64_t sample, int i) {
    return 2 * sgrad_uniform(sgrad_philox(5, SGRAD_STREAM_DATA, 0, (uint64_t)sample, (uint32_t)i).word[0]) - 1;
}

static int64_t first_of(const struct sgrad_dataset *dataset) { return dataset->split == SGRAD_TRAIN ? 0 : TRAINING; }

/* t = max(0, Σ (x + m)) */
static int read_sample(const struct sgrad_dataset *dataset, struct sgrad_sample sample, void *const *data) {
    const int64_t index = sample.index;
    const float *more = (const float *)dataset->field[1].data + index * WIDE;
    float *features = data[0], sum = 0;
    for (int i = 0; i < WIDE; i++) {
        features[i] = number(first_of(dataset) + index, i);
        sum += features[i] + more[i];
    }
    *(float *)data[2] = sum > 0 ? sum : 0;
    return 0;
}

static int open_numbers(struct sgrad_dataset *dataset, const char *argument, const struct sgrad_dataset_options *options) {
    (void)argument, (void)options;
    dataset->count = dataset->split == SGRAD_TRAIN ? TRAINING : TEST;
    float *more = sgrad_xcalloc((size_t)dataset->count * WIDE, sizeof *more);
    for (int64_t i = 0; i < dataset->count * WIDE; i++) more[i] = number(first_of(dataset) + i / WIDE, WIDE + (int)(i % WIDE));
    dataset->field[0] = (struct sgrad_field){ "features", SGRAD_F32, sgrad_shape(1, WIDE), NULL };
    dataset->field[1] = (struct sgrad_field){ "more", SGRAD_F32, sgrad_shape(1, WIDE), more };
    dataset->field[2] = (struct sgrad_field){ "target", SGRAD_F32, { 0 }, NULL };
    return 0;
}

static const struct sgrad_reader reader = { .name = "numbers", .summary = "of a test", .open = open_numbers, .read = read_sample,
                                            .computes = true };

static int build(struct sgrad_graph *graph, int x, int numbers) {
    x = sgrad_layer(graph, add, "sum", (x, sgrad_graph_field(graph, "more")), 0);
    x = sgrad_layer(graph, linear, "fc1", (x), .features = 16, .bias = true);
    x = sgrad_layer(graph, relu, "relu", (x));
    return sgrad_layer(graph, linear, "fc2", (x), .features = numbers, .bias = true);
}

static int loss(struct sgrad_graph *graph, int y, int target) {
    (void)target;
    return sgrad_layer(graph, mean_squared_error, "distance", (y, sgrad_graph_field(graph, "target")), 0);
}

static const struct sgrad_model model = { .name = "sums", .summary = "of a test", .build = build, .loss = loss };

static struct sgrad_train_options how(const char *out) {
    struct sgrad_train_options options = sgrad_train_defaults();
    options.model.custom = &model;
    options.data.reader = &reader;
    options.optimizer.name = "adam";
    options.optimizer.lr = 0.02;
    options.optimizer.weight_decay = 0;
    options.training.batch = 32;
    options.training.epochs = 8;
    options.training.deterministic = true;
    options.parallel.cpus = 1;
    options.output.folder = out;
    return options;
}

static void learns(void **state) {
    (void)state;
    struct sgrad_train_options options = how(scratch_path("run"));
    struct sgrad_train_result result, again;
    char text[SGRAD_NUMBER_TEXT];
    assert_done(sgrad_train(&options, &result));
    assert_int_equal(result.metrics, 2);
    assert_string_equal(result.metric[0].name, "loss");
    assert_string_equal(result.metric[1].name, "mae");
    assert_true(result.test[0] < 0.02 && result.test[1] < 0.12);
    assert_true(result.test_loss == result.test[0] && isnan(result.test_top1));
    assert_string_equal(sgrad_metric_text(&result.metric[1], 0.25, text), "0.2500");

    options.model.init = scratch_path("run/model.safetensors");
    assert_done(sgrad_evaluate(&options, &again));
    assert_near(again.test[0], result.test[0], 1e-6);
    assert_near(again.test[1], result.test[1], 1e-6);
    free(result.folder);
}

/* In the words of the files, too. */
static void is_told(void **state) {
    (void)state;
    FILE *file = fopen(scratch_path("run/metrics.jsonl"), "r");
    char line[512];
    int told = 0;
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        assert_null(strstr(line, "top1"));
        told += strstr(line, "\"test_mae\":0.") != NULL;
    }
    assert_int_equal(told, 8);
    fclose(file);
}

static int no_loss(struct sgrad_graph *graph, int y, int target) {
    (void)target;
    return sgrad_layer(graph, relu, "end", (y), 0);
}

static int unknown_field(struct sgrad_graph *graph, int y, int target) {
    (void)target;
    return sgrad_layer(graph, mean_squared_error, "loss", (y, sgrad_graph_field(graph, "weight")), 0);
}

static int wrong_type(struct sgrad_graph *graph, int y, int target) {
    return sgrad_layer(graph, softmax_cross_entropy, "loss", (y, target), 0);
}

static int wrong_shape(struct sgrad_graph *graph, int y, int target) {
    (void)y;
    return sgrad_layer(graph, mean_squared_error, "loss", (sgrad_graph_field(graph, "more"), target), 0);
}

static void mistakes(void **state) {
    (void)state;
    static const struct {
        int (*loss)(struct sgrad_graph *g, int y, int target);
        int error;
        const char *said;
    } wrong[] = {
        { no_loss, SGRAD_EINVAL, "end: the network must end with a loss, an operation with metrics" },
        { unknown_field, SGRAD_ENAME, "the data set's samples have no field weight" },
        { wrong_type, SGRAD_EINVAL, "loss: input 1 of softmax_cross_entropy must have type I32, but target has type F32" },
        { wrong_shape, SGRAD_ESHAPE, "loss: mean_squared_error requires inputs of the same shape, not (1,3) and (1)" },
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct sgrad_model other = model;
        struct sgrad_graph *g = sgrad_graph_create(SGRAD_F32);
        other.loss = wrong[i].loss;
        const int x = sgrad_graph_input(g, "features", SGRAD_F32, sgrad_shape(1, WIDE));
        sgrad_graph_input(g, "more", SGRAD_F32, sgrad_shape(1, WIDE));
        const int target = sgrad_graph_input(g, "target", SGRAD_F32, sgrad_shape(0)), y = other.build(g, x, 1);
        assert_done(sgrad_graph_error(g));
        assert_fails((other.loss(g, y, target), sgrad_graph_finalize(g)), wrong[i].error, wrong[i].said);
        sgrad_graph_destroy(g);
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        sentence("a network learns from fields of numbers", learns),
        sentence("the metrics of a custom loss are in metrics.jsonl", is_told),
        sentence("mistakes in a custom loss are refused with their reason", mistakes),
    };
    if (argc < 3) return run_sentences(argc, argv, tests, scratch_open, scratch_close);
    struct sgrad_train_options options = how(argv[1]);
    struct sgrad_train_result result = { 0 };
    options.data.partition = atoi(argv[2]);
    int error = sgrad_train(&options, &result);
    free(result.folder);
    return error ? 1 : 0;
}
