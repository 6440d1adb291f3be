/* context.h: a context of two CPU workers for all tests: run_sentences(argc, argv, tests, context_open, context_close). */
#ifndef SGRAD_TESTS_RUNTIME_CONTEXT_H
#define SGRAD_TESTS_RUNTIME_CONTEXT_H

#include "runtime/runtime.h"

static int context_open(void **state) {
    return sgrad_context_open(&(struct sgrad_context_options){ .cpus = 2, .gpus = -1 }, (struct sgrad_context **)state);
}

static int context_close(void **state) {
    sgrad_context_close(*state);
    return 0;
}

#endif
