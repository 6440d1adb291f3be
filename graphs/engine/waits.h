/* waits.h: finds the tasks that only wait for moves to or from a file. Private to graphs/engine/. */
#ifndef SGRAD_GRAPHS_ENGINE_WAITS_H
#define SGRAD_GRAPHS_ENGINE_WAITS_H

#include "graphs/compiler/program.h"

/* The tasks of a program that depend on moves. */
struct sgrad__waits;
/* create: returns NULL if PROGRAM moves nothing. The caller must free it with sgrad__waits_destroy (NULL is allowed). */
struct sgrad__waits *sgrad__waits_create(const struct sgrad__program *program);
void sgrad__waits_destroy(struct sgrad__waits *waits);
/* The state of a step in flight is an array of sgrad__waits_size integers, owned by the caller. begin: sets it before the step's
 * first instruction is submitted. end: instruction I has ended, or does not take part in the step. Each may be called on any
 * thread, and has no effect if WAITS is NULL. */
int sgrad__waits_size(const struct sgrad__waits *waits);
void sgrad__waits_begin(const struct sgrad__waits *waits, int *state);
void sgrad__waits_end(const struct sgrad__waits *waits, int *state, int i);

#endif
