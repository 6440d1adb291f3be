/* Other parts of a run: config.json, checkpoints, metrics.jsonl. */
#include "config.h"
#include "graphs/api/inference.h"
#include "codelets/ops/linear.h"
#include "graphs/networks/graph.h"
#include "graphs/rundir/rundir.h"
#include "tests/scratch.h"
#include "tests/graphs/context.h"
#include "tests/graphs/training.h"

/* ---- config ---- */

static struct sgrad_train_options options(void) {
    return (struct sgrad_train_options){ .model.name = "convnet",
                                         .data.name = "digits",
                                         .training.batch = 32,
                                         .training.seed = 18446744073709551615u,
                                         .optimizer.lr = 0.1,
                                         .optimizer.name = "sgd",
                                         .optimizer.schedule = "cosine" };
}

static struct sgrad__config config(const struct sgrad_train_options *options) {
    static const char *const names[] = { "cat", "dog" };
    static const struct sgrad_dataset set = { .field = { { "pixels", SGRAD_U8, { 3, { 8, 6, 3 } }, NULL } }, .classes = 2,
                                              .class_name = names, .full_scale = 255 };
    return (struct sgrad__config){ .options = options,
                                   .dataset = &set,
                                   .model = options->model.name,
                                   .parameters = 65834,
                                   .fingerprint = 0xfeedface12345678,
                                   .channels = 3,
                                   .mean = { .4914f, .4822f, .4465f },
                                   .deviation = { .2470f, .2435f, .2616f },
                                   .micro_batch = 16,
                                   .devices = "2 CPU cores" };
}

/* What was written comes back: options, the input's shape, names of classes. */
static void check_past(const struct sgrad_train_options *options) {
    struct sgrad_train_options again;
    struct sgrad_run_input input;
    assert_done(sgrad_run_options(scratch_root, &again));
    assert_int_equal(again.training.batch, options->training.batch);
    assert_equal(again.training.seed, options->training.seed);
    assert_equal(again.optimizer.lr, options->optimizer.lr);
    assert_equal(again.model.precision, options->model.precision);
    assert_string_equal(again.optimizer.name, options->optimizer.name);
    assert_done(sgrad_run_input(scratch_root, &input));
    assert_true(sgrad_shape_equal(&input.image, &(struct sgrad_shape){ 3, { 8, 6, 3 } }) && input.full_scale == 255);
    assert_int_equal(input.classes, 2);
    assert_string_equal(input.class_name[1], "dog");
    for (int i = 0; i < 2; i++) free(input.class_name[i]);
    free(input.class_name);
}

static void config_file(void **state) {
    (void)state;
    struct sgrad_train_options o = options(), other = o;
    struct sgrad__config c = config(&o);
    double mean[3] = { -1, -1, -1 }, deviation[3] = { -1, -1, -1 };
    bool found = true;
    assert_done(sgrad__config_input(scratch_root, 3, mean, deviation, &found));
    assert_false(found);
    assert_done(sgrad__config_check(scratch_root, &c));

    assert_done(sgrad__config_write(scratch_root, &c));
    assert_done(sgrad__config_input(scratch_root, 3, mean, deviation, &found));
    assert_true(found);
    for (int i = 0; i < 3; i++) {
        assert_equal((float)mean[i], (float)c.mean[i]);
        assert_equal((float)deviation[i], (float)c.deviation[i]);
    }
    assert_fails(sgrad__config_input(scratch_root, 1, mean, deviation, &found), SGRAD_EFORMAT,
                 "a finite number for each channel (1)");
    check_past(&o);

    assert_done(sgrad__config_check(scratch_root, &c));
    c.options = &other;
    other.optimizer.lr = 0.5;         /* may change */
    assert_done(sgrad__config_check(scratch_root, &c));
    other.training.batch = 64;
    assert_fails(sgrad__config_check(scratch_root, &c), SGRAD_EINVAL, "the run has batch 32, so it cannot be continued with 64");
    other = o, other.model.precision = SGRAD_PRECISION_BF16;
    assert_fails(sgrad__config_check(scratch_root, &c), SGRAD_EINVAL, "precision f32");
    other = o, other.training.seed = 1;
    assert_fails(sgrad__config_check(scratch_root, &c), SGRAD_EINVAL, "seed 18446744073709551615");
    other = o, other.training.bn_group = SGRAD_GROUP_MICRO;
    assert_fails(sgrad__config_check(scratch_root, &c), SGRAD_EINVAL, "bn-group rank");
    other = o, other.optimizer.name = "adam";
    assert_fails(sgrad__config_check(scratch_root, &c), SGRAD_EINVAL, "optimizer sgd");
    other = o, c.model = "lenet";
    assert_fails(sgrad__config_check(scratch_root, &c), SGRAD_EINVAL, "model convnet");
    c.model = "convnet", c.fingerprint = 1;
    assert_fails(sgrad__config_check(scratch_root, &c), SGRAD_EINVAL,
                 "the run was trained on digits, so it cannot be continued with digits, whose content has changed; give --data");
}

/* No run goes on beside a config.json with this TEXT; what it says of the input is wrong, or, not OURS, nothing. */
static void check_bad_config(const char *text, bool ours) {
    struct sgrad_train_options o = options();
    struct sgrad__config c = config(&o);
    double mean[3], deviation[3];
    bool found = true;
    scratch_write("config.json", text, strlen(text));
    assert_fails(sgrad__config_check(scratch_root, &c), SGRAD_EFORMAT, "config.json");
    if (ours) {
        assert_fails(sgrad__config_input(scratch_root, 3, mean, deviation, &found), SGRAD_EFORMAT, "config.json");
    } else {
        assert_done(sgrad__config_input(scratch_root, 3, mean, deviation, &found));
        assert_false(found);
    }
}

static void bad_config_file(void **state) {
    (void)state;
    static const char *const bad[] = { "", "{", "nonsense" };
    static const char *const bad_input[] = {
        "\"mean\": [1,2,3]", "\"mean\": 1, \"deviation\": 2", "\"mean\": [1,2,\"3\"], \"deviation\": [1,1,1]",
        "\"mean\": [1,2,3], \"deviation\": [1,0,1]", "\"mean\": [1,2,3], \"deviation\": [1,-1,1]",
        "\"mean\": [1,2,1e300], \"deviation\": [1,1,1]", "\"mean\": [1,2,3], \"deviation\": [1,1,1e-300]",
        "\"mean\": [1,2,1e999], \"deviation\": [1,1,1]", "\"mean\": [1,2,3,4], \"deviation\": [1,1,1,1]",
    };
    static const char *const others[] = { "{}", "[]", "{\"mean\": 1}" };     /* which no run wrote */
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) check_bad_config(bad[i], true);
    for (size_t i = 0; i < sizeof bad_input / sizeof *bad_input; i++) {
        char text[200];
        snprintf(text, sizeof text, "{\"identity\": {}, %s}", bad_input[i]);
        check_bad_config(text, true);
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) check_bad_config(others[i], false);
}

/* ---- checkpoints ---- */

static struct sgrad__training *network(uint64_t seed) {
    struct sgrad_graph *g = sgrad_graph_create(SGRAD_F32);
    int x = sgrad_graph_input(g, "x", SGRAD_F32, sgrad_shape(1, 5));
    const int label = sgrad_graph_input(g, "label", SGRAD_I32, sgrad_shape(0));
    sgrad_graph_loss(g, sgrad_layer(g, linear, "fc", (x), .features = 3, .bias = true), label, 0);
    return training_open(g, sgrad_optimizers[0], seed);
}

static struct sgrad_tensor *first_of(const struct sgrad__training *training) { return training->graph->parameter[0].tensor; }

static bool equal(struct sgrad_tensor *one, struct sgrad_tensor *other) {
    char x[64], y[64];
    assert_true(sgrad_view_bytes(&one->view) <= sizeof x);
    assert_done(sgrad_tensor_read(one, x));
    assert_done(sgrad_tensor_read(other, y));
    return memcmp(x, y, sgrad_view_bytes(&one->view)) == 0;
}

static bool exists(const char *path) { return access(path, F_OK) == 0; }

static void assert_newest(const char *expected) {
    char *path;
    assert_done(sgrad__checkpoint_newest(scratch_root, -1, &path));
    if (expected) assert_string_equal(path, expected);
    else assert_null(path);
    free(path);
}

/* Begun and ended. */
static int save(const struct sgrad__training *training, const struct sgrad__position *position, const char *identity, int keep) {
    struct sgrad__checkpoint *checkpoint;
    SGRAD_TRY(sgrad__checkpoint_begin(training, scratch_root, position, identity, keep, &checkpoint));
    return sgrad__checkpoint_end(checkpoint);
}

static void checkpoint(void **state) {
    (void)state;
    struct sgrad__training *g = network(1), *h = network(2);
    struct sgrad__position p = { .epoch = 3, .step_in_epoch = 1, .seed = 5 }, q;
    const char *id = "{\"model\":\"m\",\"batch\":\"32\"}";
    assert_newest(NULL);
    for (p.step = 8; p.step <= 11; p.step++) assert_done(save(g, &p, id, 2));
    assert_false(exists(scratch_path("checkpoint-9.safetensors")));
    assert_true(exists(scratch_path("checkpoint-10.safetensors")));
    scratch_write("checkpoint-12.safetensors.part.77", "", 0);
    scratch_write("checkpoint-013.safetensors", "", 0);
    scratch_write("checkpoint-x.safetensors", "", 0);
    assert_newest(scratch_path("checkpoint-11.safetensors"));
    assert_false(exists(scratch_path("checkpoint-12.safetensors.part.77")));

    assert_false(equal(first_of(g), first_of(h)));
    const char *path = scratch_path("checkpoint-11.safetensors");
    assert_fails(sgrad__checkpoint_load(h, path, "{\"model\":\"m\",\"batch\":\"64\"}", &q), SGRAD_EINVAL,
                 "the run has batch 32, so it cannot be continued with 64");
    assert_false(equal(first_of(g), first_of(h)));
    assert_done(sgrad__checkpoint_load(h, path, id, &q));
    assert_true(equal(first_of(g), first_of(h)));
    assert_int_equal(q.step, 11);
    assert_int_equal(q.epoch, 3);
    assert_int_equal(q.step_in_epoch, 1);
    assert_int_equal(q.seed, 5);

    assert_done(sgrad__weights_save(sgrad__training_list(g, false), scratch_path("model.safetensors"), NULL, 0));
    assert_fails(sgrad__checkpoint_load(h, scratch_path("model.safetensors"), id, &q), SGRAD_EFORMAT, "is not a checkpoint");
    training_close(g);
    training_close(h);
}

/* What is written is what was there when it began; what cannot be written is told when it ends, or before. */
static void checkpoint_beside(void **state) {
    (void)state;
    struct sgrad__training *g = network(1), *h = network(1), *other = network(2);
    struct sgrad__position p = { .step = 200 };
    struct sgrad__checkpoint *checkpoint;
    float values[15];
    assert_done(sgrad__checkpoint_begin(g, scratch_root, &p, "{}", 1, &checkpoint));
    assert_done(sgrad_tensor_read(first_of(other), values));
    assert_done(sgrad_tensor_write(first_of(g), values));
    assert_done(sgrad__checkpoint_end(checkpoint));
    assert_done(sgrad__checkpoint_load(other, scratch_path("checkpoint-200.safetensors"), "{}", &p));
    assert_true(equal(first_of(other), first_of(h)));
    assert_false(equal(first_of(other), first_of(g)));

    scratch_listen();
    assert_done(sgrad__checkpoint_begin(g, scratch_path("gone"), &p, "{}", 1, &checkpoint));
    while (!sgrad__checkpoint_failed(checkpoint)) sgrad_sleep(1e-3);
    const int error = sgrad__checkpoint_end(checkpoint);
    assert_contains(scratch_said(), "gone/checkpoint-200.safetensors: cannot be written");
    assert_int_equal(error, SGRAD_EIO);
    assert_false(sgrad__checkpoint_failed(NULL));
    assert_done(sgrad__checkpoint_end(NULL));
    training_close(g);
    training_close(h);
    training_close(other);
}

/* Turns one bit, or cuts off the last bytes. */
static void spoil(const char *path, long from_end, bool cut) {
    FILE *file = fopen(path, "r+");
    assert_non_null(file);
    fseek(file, -from_end, SEEK_END);
    long place = ftell(file);
    int byte = fgetc(file);
    fseek(file, place, SEEK_SET);
    fputc(byte ^ 4, file);
    fclose(file);
    if (cut) assert_int_equal(truncate(path, place), 0);
}

/* The newest whole checkpoint, free it; what is passed over is warned of. */
static char *newest(int error, const char *text) {
    char *path = NULL;
    scratch_listen();
    int got = sgrad__checkpoint_newest(scratch_root, -1, &path);
    const char *said = scratch_said();
    assert_int_equal(got, error);
    assert_contains(said, text);
    return path;
}

static void spoiled_checkpoints(void **state) {
    (void)state;
    struct sgrad__training *g = network(1);
    struct sgrad__position p = { .step = 0 };
    for (p.step = 100; p.step <= 103; p.step++)
        assert_done(save(g, &p, "{}", 4));
    spoil(scratch_path("checkpoint-103.safetensors"), 1, true);
    spoil(scratch_path("checkpoint-102.safetensors"), 3, false);
    char *path = newest(0, "checkpoint-102.safetensors: is incomplete or damaged");
    assert_string_equal(path, scratch_path("checkpoint-101.safetensors"));
    free(path);

    p.step = 102;       /* the run goes on: what could not be read does not count */
    assert_done(save(g, &p, "{}", 1));
    assert_true(exists(scratch_path("checkpoint-102.safetensors")));
    assert_false(exists(scratch_path("checkpoint-101.safetensors")));
    free(newest(0, "checkpoint-103.safetensors: is incomplete or damaged"));
    spoil(scratch_path("checkpoint-102.safetensors"), 1, true);
    assert_null(newest(SGRAD_EFORMAT, "contains no complete checkpoint"));
    training_close(g);
}

/* ---- metrics ---- */

static char *content(const char *path) {
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    char *text = sgrad_xcalloc(1 << 16, 1);
    assert_true(fread(text, 1, (1 << 16) - 1, file) > 0);
    fclose(file);
    return text;
}

static void run_steps(struct sgrad__metrics *metrics, int from, int to) {
    for (int step = from; step <= to; step++) {
        sgrad__metrics_submitted(metrics);
        struct sgrad__step_event e = {
            .step = step, .epoch = (step - 1) / 4, .loss = 1.0f / (float)step, .rate = 0.1, .time = 1e9 + (double)step
        };
        assert_done(sgrad__metrics_step(metrics, &e));
    }
}

static int count_lines(const char *text) {
    int lines = 0;
    for (; *text; text++) lines += *text == '\n';
    return lines;
}

static void metrics(void **state) {
    (void)state;
    struct sgrad__metrics *m;
    static const struct sgrad_metric metric[] = { { "loss", "loss", "loss", .is_fraction = false },
                                                  { "top1", "top-1", "accuracy", .is_fraction = true } };
    struct sgrad__metrics_options o = { .folder = scratch_root, .batch = 32, .steps = 8, .epochs = 2,
                                        .metric = metric, .metrics = 2, .samples = "images",
                                        .terminal = fopen(scratch_path("said"), "w") };
    assert_done(sgrad__metrics_open(&o, &m));
    run_steps(m, 1, 4);
    struct sgrad__epoch first = { .step = 4, .epoch = 1, .evaluated = true, .test = { 0.5, 0.912 } }, second = first;
    sgrad__metrics_steps(m, &first);
    assert_done(sgrad__metrics_epoch(m, &first));
    assert_near(first.train_loss, (1 + 1 / 2. + 1 / 3. + 1 / 4.) / 4, 1e-7);
    assert_true(first.seconds > 0 && first.samples_per_second > 0);
    run_steps(m, 5, 8);
    second = (struct sgrad__epoch){ .step = 8, .epoch = 2, .test = { NAN, NAN } };
    sgrad__metrics_steps(m, &second);
    assert_done(sgrad__metrics_epoch(m, &second));
    sgrad__metrics_close(m);

    char *text = content(scratch_path("metrics.jsonl")), *said = content(scratch_path("said"));
    assert_int_equal(count_lines(text), 10);
    assert_contains(text, "{\"event\":\"step\",\"step\":3,\"epoch\":0,\"loss\":0.333333343,\"lr\":0.1,\"samples_per_second\":");
    assert_contains(text, "{\"event\":\"epoch\",\"epoch\":1,\"step\":4,\"train_loss\":0.52");
    assert_contains(text, "\"test_loss\":0.5,\"test_top1\":0.912,\"seconds\":");
    assert_contains(text, "\"test_loss\":null");
    assert_int_equal(count_lines(said), 2);
    assert_contains(said, "epoch 1/2  loss 0.5208  test loss 0.5000  top-1 91.20 %");
    free(text);
    free(said);

    /* Continued after step 6, in the second epoch; the killed run left half a line. */
    FILE *file = fopen(scratch_path("metrics.jsonl"), "a");
    fputs("{\"event\":\"step\",\"step\":2", file);
    fclose(file);
    o.resumed = &(struct sgrad__position){ .step = 6, .epoch = 1, .step_in_epoch = 2 };
    assert_done(sgrad__metrics_open(&o, &m));
    text = content(scratch_path("metrics.jsonl"));
    assert_int_equal(count_lines(text), 7);
    assert_contains(text, "\"step\":6,");
    assert_null(strstr(text, "\"step\":7,"));
    free(text);
    run_steps(m, 7, 8);
    struct sgrad__epoch again = { .step = 8, .epoch = 2, .evaluated = true, .test = { 0.5, 0.9 } };
    sgrad__metrics_steps(m, &again);
    assert_done(sgrad__metrics_epoch(m, &again));
    assert_equal(again.train_loss, second.train_loss);     /* as if it had never stopped */
    sgrad__metrics_close(m);
    text = content(scratch_path("metrics.jsonl"));
    assert_int_equal(count_lines(text), 10);
    free(text);
    fclose(o.terminal);

    sgrad__metrics_submitted(NULL);
    assert_done(sgrad__metrics_step(NULL, NULL));
    assert_done(sgrad__metrics_epoch(NULL, NULL));
    sgrad__metrics_close(NULL);
}

static void metrics_of_nothing(void **state) {
    (void)state;
    struct sgrad__metrics *m;
    struct sgrad__metrics_options o = { .folder = scratch_path("nowhere"), .batch = 32, .steps = 8, .epochs = 2 };
    assert_fails(sgrad__metrics_open(&o, &m), SGRAD_EIO, "nowhere/metrics.jsonl: ");
    o.folder = scratch_root;
    assert_done(sgrad__metrics_open(&o, &m));
    sgrad__metrics_submitted(m);
    assert_done(sgrad__metrics_step(m, &(struct sgrad__step_event){ .step = 1, .loss = NAN, .rate = 1, .time = 1e9 }));
    sgrad__metrics_close(m);
    char *text = content(scratch_path("metrics.jsonl"));
    assert_contains(text, "\"loss\":null,");
    free(text);
}

#define in_folder(name, test) sentence_with(name, test, scratch_open, scratch_close)

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        in_folder("a run continues with its own options, and others are refused", config_file),
        in_folder("a malformed config.json is refused", bad_config_file),
        in_folder("the newest checkpoints are kept, and give the weights and the position back", checkpoint),
        in_folder("a checkpoint has the weights of its step, though training goes on", checkpoint_beside),
        in_folder("a checkpoint with a flipped bit or a missing end is passed over", spoiled_checkpoints),
        in_folder("metrics of a resumed run equal those of an uninterrupted one", metrics),
        in_folder("a loss that is not a number is null in metrics.jsonl", metrics_of_nothing),
    };
    return run_sentences(argc, argv, tests, context_open, context_close);
}
