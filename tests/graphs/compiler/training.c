/* training.c: the states of optimizers, saving and loading them; which parameters are frozen, and when. */
#include "config.h"
#include "codelets/ops/batchnorm.h"
#include "codelets/ops/conv2d.h"
#include "codelets/ops/global_average_pool.h"
#include "codelets/ops/linear.h"
#include "tests/graphs/training.h"
#include "tests/scratch.h"

#define PATH scratch_path("weights.safetensors")

/* A convolution (2,3,3,5) in memory, batch norm, linear. */
static struct sgrad__training *small(const struct sgrad_optimizer *optimizer, uint64_t seed) {
    struct sgrad_graph *g = sgrad_graph_create(SGRAD_F32);
    const int label = sgrad_graph_input(g, "label", SGRAD_I32, sgrad_shape(0));
    int x = sgrad_graph_input(g, "images", SGRAD_F32, sgrad_shape(3, 4, 4, 5));
    x = sgrad_layer(g, conv2d, "conv", (x), .channels = 2, .kernel = 3);
    x = sgrad_layer(g, batchnorm, "bn", (x));
    x = sgrad_layer(g, global_average_pool, "pool", (x));
    x = sgrad_layer(g, linear, "fc", (x), .features = 3, .bias = true);
    assert_done(sgrad_graph_loss(g, x, label, 0));
    return training_open(g, optimizer, seed);
}

static int find(const struct sgrad__training *training, const char *name) {
    for (int i = 0; i < training->graph->parameter_count; i++)
        if (strcmp(training->graph->parameter[i].name, name) == 0) return i;
    fail_msg("no parameter is called %s", name);
    return -1;
}

static struct sgrad_tensor *tensor(const struct sgrad__training *training, const char *name) {
    return training->graph->parameter[find(training, name)].tensor;
}

/* The second state of conv.weight. */
static struct sgrad_tensor *second(const struct sgrad__training *training) {
    return training->update[find(training, "conv.weight")].state[1];
}

/* A copy of the tensor's values; free it. */
static float *values(struct sgrad_tensor *tensor) {
    float *v = sgrad_xcalloc(1, sgrad_view_bytes(&tensor->view));
    assert_done(sgrad_tensor_read(tensor, v));
    return v;
}

static bool equal(struct sgrad_tensor *one, struct sgrad_tensor *other) {
    float *x = values(one), *y = values(other);
    bool same = memcmp(x, y, sgrad_view_bytes(&one->view)) == 0;
    free(x);
    free(y);
    return same;
}

static int load(struct sgrad__training *training, const char *path, bool with_states) {
    struct sgrad_safetensors file;
    assert_done(sgrad_safetensors_open(path, &file));
    const struct sgrad__items items =
        with_states ? sgrad__training_list(training, true) : sgrad__parameters_list(training->graph);
    int error = sgrad__weights_load(training->graph, items, &file, NULL);
    sgrad_safetensors_close(&file);
    return error;
}

static void round_trip(void **state) {
    (void)state;
    static const struct sgrad_state states[] = { { .name = "exp_avg" }, { .name = "exp_avg_sq" }, { 0 } };
    static const struct sgrad_optimizer none, adam = { .states = states };
    struct sgrad__training *g = small(&adam, 1), *h = small(&adam, 2), *plain = small(&none, 3);
    float numbers[90], second_moment[90];
    for (int i = 0; i < 90; i++) numbers[i] = (float)i, second_moment[i] = (float)(1000 + i);
    int64_t batches = 12345678901;
    assert_done(sgrad_tensor_write(tensor(g, "conv.weight"), numbers));
    assert_done(sgrad_tensor_write(second(g), second_moment));
    assert_done(sgrad_tensor_write(tensor(g, "bn.num_batches_tracked"), &batches));
    const char *metadata[] = { "step", "17" };
    assert_done(sgrad__weights_save(sgrad__training_list(g, true), PATH, metadata, 1));

    struct sgrad_safetensors file;
    assert_done(sgrad_safetensors_open(PATH, &file));
    assert_string_equal(sgrad_safetensors_metadata(&file, "step"), "17");
    assert_int_equal(file.count, 5 + 3 + 2 * 5);
    const struct sgrad_entry *weight = sgrad_safetensors_find(&file, "conv.weight");
    const struct sgrad_entry *moment = sgrad_safetensors_find(&file, "optimizer.exp_avg_sq.conv.weight");
    assert_true(sgrad_shape_equal(&weight->view.shape, &(struct sgrad_shape){ 4, { 2, 5, 3, 3 } }));
    assert_int_equal(sgrad_safetensors_find(&file, "bn.num_batches_tracked")->view.shape.rank, 0);
    float stored[90], stored_moment[90];
    assert_done(sgrad_safetensors_read(&file, weight, stored));
    assert_done(sgrad_safetensors_read(&file, moment, stored_moment));
    for (int k = 0; k < 2; k++)
        for (int c = 0; c < 5; c++)
            for (int rs = 0; rs < 9; rs++) {
                assert_near(stored[(k * 5 + c) * 9 + rs], (k * 9 + rs) * 5 + c, 0);
                assert_near(stored_moment[(k * 5 + c) * 9 + rs], 1000 + (k * 9 + rs) * 5 + c, 0);
            }
    sgrad_safetensors_close(&file);

    assert_done(load(h, PATH, true));
    for (int i = 0; i < g->graph->parameter_count; i++)
        assert_true(equal(g->graph->parameter[i].tensor, h->graph->parameter[i].tensor));
    float *again = values(second(h));
    assert_memory_equal(again, second_moment, sizeof second_moment);
    free(again);

    assert_done(load(plain, PATH, false));    /* a checkpoint is weights, too */
    assert_true(equal(tensor(g, "fc.bias"), tensor(plain, "fc.bias")));
    assert_done(sgrad__weights_save(sgrad__training_list(g, false), PATH, NULL, 0));
    assert_fails(load(h, PATH, true), SGRAD_EFORMAT, "has no tensor optimizer.exp_avg.conv.weight");
    training_close(g);
    training_close(h);
    training_close(plain);
}

/* One number for each row of the parameter, and a 7. */
static struct sgrad_shape rows_and_7(const struct sgrad_shape *parameter) {
    return (struct sgrad_shape){ 2, { parameter->dim[0], 7 } };
}

static void states_of_another_shape(void **state) {
    (void)state;
    static const struct sgrad_state states[] = { { .name = "plain" }, { .name = "rows", .shape = rows_and_7 }, { 0 } };
    static const struct sgrad_state one_less[] = { { .name = "plain" }, { .name = "rows" }, { 0 } };
    static const struct sgrad_optimizer two = { .states = states }, one = { .states = one_less };
    struct sgrad__training *g = small(&two, 1), *h = small(&two, 2), *other = small(&one, 1);
    float numbers[14];
    for (int i = 0; i < 14; i++) numbers[i] = (float)i;
    assert_done(sgrad_tensor_write(second(g), numbers));
    assert_done(sgrad__weights_save(sgrad__training_list(g, true), PATH, NULL, 0));
    assert_done(load(h, PATH, true));
    float *again = values(second(h));
    assert_memory_equal(again, numbers, sizeof numbers);
    free(again);
    assert_true(equal(tensor(g, "conv.weight"), tensor(h, "conv.weight")));
    assert_fails(load(other, PATH, true), SGRAD_ESHAPE, "optimizer.rows.conv.weight has shape (2,7)");
    training_close(g);
    training_close(h);
    training_close(other);
}

/* fc by name, conv after 10 steps, bn.weight by the network; their gradients are computed only until then. */
static void freezes(void **state) {
    (void)state;
    static const struct sgrad_optimizer none;
    struct sgrad__training *training = small(&none, 1);
    const struct sgrad__parameter *parameter = training->graph->parameter;
    const int conv = find(training, "conv.weight"), weight = find(training, "bn.weight"), fc = find(training, "fc.bias");
    training->update[conv].until = 10;
    sgrad_graph_freeze(training->graph, "bn.weight");
    sgrad__training_freeze(training, "fc", 9);
    assert_true(parameter[fc].frozen && parameter[weight].frozen && !parameter[conv].frozen);
    assert_true(training->graph->value[training->graph->node[0].output].needs_gradient);
    sgrad__training_freeze(training, NULL, 10);
    assert_true(!parameter[fc].frozen && parameter[weight].frozen && parameter[conv].frozen);
    assert_false(training->graph->value[training->graph->node[0].output].needs_gradient);
    training_close(training);
}

static struct sgrad_context *context;
static int begin(void **state) {
    return scratch_open(state) || sgrad_context_open(&(struct sgrad_context_options){ .cpus = 1, .gpus = -1 }, &context);
}
static int end(void **state) {
    sgrad_context_close(context);
    return scratch_close(state);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        sentence("weights and optimizer states survive saving and loading", round_trip),
        sentence("optimizer states of another shape than their weight are saved and loaded", states_of_another_shape),
        sentence("parameters are frozen by name, after a number of steps, and by the network", freezes),
    };
    return run_sentences(argc, argv, tests, begin, end);
}
