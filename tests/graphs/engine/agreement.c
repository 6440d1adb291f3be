/* agreement: the programs of all ranks have the same messages, and ranks that have built different programs detect this before
 * they send.
 *
 *     agreement            programs of four ranks, built here; then one message is changed
 *     agreement RANK       under mpirun: rank RANK builds a longer sum than the others; for tests/train/messages.py */
#include "config.h"
#include "codelets/ops/batchnorm.h"
#include "codelets/ops/conv2d.h"
#include "codelets/ops/global_average_pool.h"
#include "codelets/ops/image.h"
#include "codelets/ops/linear.h"
#include "graphs/compiler/communication/messages.h"
#include "graphs/engine/runner.h"
#include "tests/asserts.h"
#include "tests/graphs/context.h"
#include "tests/graphs/training.h"

#include <ctype.h>
#include <string.h>

enum { RANKS = 4 };
static const int rank[RANKS] = { 0, 1, 2, 3 };
static const struct sgrad_group all = { RANKS, rank };
static const struct sgrad_network network = { .ranks = RANKS, .latency = 1e-5, .bandwidth = 1e9 };

static const struct sgrad_strategy *strategy(const char *name) {
    int i = 0;
    while (strcmp(sgrad_strategies[i]->name, name)) i++;
    return sgrad_strategies[i];
}

/* pixels ── images ── conv ── bn ── pool ── fc ── loss; of conv nothing is trained. */
static struct sgrad__training *training(void) {
    struct sgrad_graph *g = sgrad_graph_create(SGRAD_F32);
    const int pixels = sgrad_graph_input(g, "pixels", SGRAD_U8, sgrad_shape(3, 4, 4, 3));
    const int label = sgrad_graph_input(g, "label", SGRAD_I32, sgrad_shape(0));
    int x = sgrad_layer(g, image, "images", (pixels), 0);
    x = sgrad_layer(g, conv2d, "conv", (x), .channels = 5, .kernel = 3, .padding = 1);
    x = sgrad_layer(g, batchnorm, "bn", (x), .relu = true);
    x = sgrad_layer(g, global_average_pool, "pool", (x));
    x = sgrad_layer(g, linear, "fc", (x), .features = 4, .bias = true);
    assert_done(sgrad_graph_loss(g, x, label, 0));
    struct sgrad__training *training = training_open(g, sgrad_optimizers[0], 1);
    sgrad__training_freeze(training, "conv", 0);
    return training;
}

struct world {
    struct sgrad__program *program[RANKS];
    struct sgrad__messages *messages[RANKS];
};

static void build(struct world *world, struct sgrad__training *training, const char *name, int64_t group, bool deterministic) {
    for (int r = 0; r < RANKS; r++) {
        const struct sgrad_program_options o = {
            .batch = 64, .micro = 4, .group = group, .training = training, .rank = r, .peers = &all, .network = &network,
            .window = 2, .strategy = strategy(name), .servers = 2, .cpus = 1, .deterministic = deterministic,
            .source = sgrad__source_of(NULL),
        };
        assert_done(sgrad__program_build(training->graph, &o, &world->program[r]));
    }
}

static void list(struct world *world) {
    for (int r = 0; r < RANKS; r++)
        world->messages[r] = sgrad__messages_list((const struct sgrad__program *const *)&world->program[r], 1, RANKS);
}

/* Pairs of ranks of which one does not expect what the other sends. */
static int differences(const struct world *world) {
    int count = 0;
    for (int i = 0; i < RANKS * RANKS; i++) {
        const struct sgrad__message_list *sent = &world->messages[i / RANKS]->sent[i % RANKS];
        const struct sgrad__message_list *expected = &world->messages[i % RANKS]->received[i / RANKS];
        const bool same = sgrad__message_list_hash(sent) == sgrad__message_list_hash(expected);
        assert_int_equal(same, sgrad__message_list_difference(sent, expected) == sent->count && sent->count == expected->count);
        count += !same;
    }
    return count;
}

static void close_world(struct world *world) {
    for (int r = 0; r < RANKS; r++) sgrad__messages_free(world->messages[r]);
}

static struct sgrad__instruction *some_message(struct sgrad__program *program) {
    int i = program->instruction_count / 2;
    while (!sgrad__is_message(program->instruction[i].call)) i++;
    return &program->instruction[i];
}

static void same_on_all_ranks(void **state) {
    (void)state;
    struct sgrad__training *table = training();
    for (int i = 0; i < 12; i++) {
        struct world w;
        const char *const names[] = { "sync", "ps", "sync" };
        build(&w, table, names[i % 3], i / 3 % 2 ? 32 : 64, i >= 6);
        list(&w);
        assert_true(w.messages[0]->sent[1].count > 0);
        assert_int_equal(differences(&w), 0);
        close_world(&w);

        struct sgrad__instruction *one = some_message(w.program[2]);        /* another tag; then it is left out of some steps */
        one->tag += 1 << 19;
        list(&w);
        assert_int_equal(differences(&w), 1);
        close_world(&w);
        one->tag -= 1 << 19;
        one->when = (struct sgrad__when){ 2, 1 };
        list(&w);
        assert_int_equal(differences(&w), 1);
        close_world(&w);
        for (int r = 0; r < RANKS; r++) sgrad__program_destroy(w.program[r]);
    }
    training_close(table);
}

static int disagree(int odd) {
    struct sgrad_context *c;
    struct sgrad_tensor *tensor;
    SGRAD_TRY(sgrad_context_open(&(struct sgrad_context_options){ .cpus = 1, .gpus = -1, .timeout = 60 }, &c));
    const struct sgrad_program_options how = { .rank = c->rank, .peers = c->all, .network = c->network };
    SGRAD_TRY(sgrad_tensor_create("sum", SGRAD_F64, sgrad_shape(1, c->rank == odd ? 5 : 3), SGRAD_PERSISTENT, &tensor));
    struct sgrad__program *p = sgrad__total_build(&how, tensor);
    const int error = sgrad__programs_compare(c, (const struct sgrad__program *[]){ p }, 1);
    printf("rank %d: %s\n", c->rank, sgrad_strerror(error));
    sgrad__program_destroy(p);
    sgrad_tensor_destroy(tensor);
    sgrad_context_close(c);
    return 0;
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        sentence("programs of all ranks have the same messages, and a difference is found", same_on_all_ranks),
    };
    if (argc > 1 && isdigit((unsigned char)*argv[1])) return disagree(atoi(argv[1]));
    return run_sentences(argc, argv, tests, context_open, context_close);
}
