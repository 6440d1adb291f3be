/* training.h: a network trained by an optimizer, for several tests. */
#ifndef SGRAD_TESTS_GRAPHS_TRAINING_H
#define SGRAD_TESTS_GRAPHS_TRAINING_H

#include "graphs/compiler/training.h"
#include "tests/asserts.h"

/* Returns the table of GRAPH, with the memory of both; free them with training_close. */
static struct sgrad__training *training_open(struct sgrad_graph *graph, const struct sgrad_optimizer *optimizer, uint64_t seed) {
    struct sgrad__training *training = sgrad__training_create(graph, optimizer);
    assert_done(sgrad__parameters_allocate(graph, seed));
    assert_done(sgrad__training_allocate(training));
    return training;
}

static void training_close(struct sgrad__training *training) {
    struct sgrad_graph *graph = training->graph;
    sgrad__training_destroy(training);
    sgrad_graph_destroy(graph);
}

#endif
