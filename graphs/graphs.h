/* graphs.h: networks, and training them: three rooms, one above the other, for those who want all of them.
 *
 *     networks/   what is computed: graph, parameters, layers, models
 *     programs/   in which order, on which memory, on which rank: autograd, sums, passes, optimizers, strategies
 *     runs/       turning it: steps in flight, training, evaluation, checkpoints, metrics
 *
 * Each has its header, with an essay and an example; runs.h shows the whole way from a network to a trained one. This one, which
 * has every operation besides, is for programs outside: what the library itself includes is what it uses.
 *
 * A program is compiled by `cc program.c $(pkg-config --cflags --libs stargrad)` (docs/install.md). In C++, from C++20 on, all is
 * written as in C, sgrad_layer and records too; but a list of named fields has them in the order of their declaration, and
 * g++ -Wextra warns of those that a record leaves out. */
#ifndef SGRAD_GRAPHS_H
#define SGRAD_GRAPHS_H

#include "codelets/operations.h"
#include "graphs/networks/networks.h"
#include "graphs/programs/programs.h"
#include "graphs/runs/calls.h"
#include "graphs/runs/plugin.h"
#include "graphs/runs/runs.h"

#endif
