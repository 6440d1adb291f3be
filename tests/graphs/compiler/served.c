/* served.c: properties of a parameter server's program for one of its workers. */
#include "graphs/compiler/builder.h"
#include "codelets/ops/linear.h"
#include "tests/graphs/context.h"
#include "tests/graphs/training.h"

/* A worker waits for a server's sums, updates and copies, so they go before all of the server's own training. */
static void before_training(void **state) {
    (void)state;
    static const int ranks[] = { 0, 1 };
    const struct sgrad_group peers = { 2, ranks };
    struct sgrad_graph *g = sgrad_graph_create(SGRAD_F32);
    const int x = sgrad_graph_input(g, "x", SGRAD_F32, sgrad_shape(1, 3));
    const int label = sgrad_graph_input(g, "label", SGRAD_I32, sgrad_shape(0));
    const int y = sgrad_layer(g, linear, "fc", (x), .features = 4, .bias = true);
    assert_done(sgrad_graph_loss(g, y, label, 0));
    struct sgrad__training *training = training_open(g, sgrad_optimizers[0], 1);
    const struct sgrad_program_options o = { .batch = 4, .group = 4, .training = training, .cpus = 1, .peers = &peers };
    struct sgrad_tensor *master[] = { g->parameter[0].tensor, g->parameter[1].tensor };
    const struct sgrad__shard shard = { .server = 0, .count = 2, .parameter = (int[]){ 0, 1 } };
    const struct sgrad__service s = sgrad__service_create(g, &o, &shard, 1, 2, master);
    int updates = 0;
    for (int i = 0; i < s.program->instruction_count; i++) {
        const struct sgrad__instruction *in = &s.program->instruction[i];
        if (in->priority < SGRAD__PRIORITY_UPDATE) fail_msg("%s has priority %d", in->name, in->priority);
        updates += strstr(in->name, " update") != NULL;
    }
    assert_int_equal(updates, 2);
    sgrad__program_destroy(s.program);
    training_close(training);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        sentence("the tasks of a parameter server come before its own training", before_training),
    };
    return run_sentences(argc, argv, tests, context_open, context_close);
}
