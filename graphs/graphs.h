/* graphs.h: all public headers of graphs/, and every operation. For programs outside the library; files of the library include
 * only the headers that they use.
 *
 *     networks/networks.h   graphs of layers, parameters, models
 *     compiler/compiler.h   from a graph to the tasks of one step; records of optimizers and strategies
 *     api/                  training, inference, search, segmentation, benchmarks, plug-ins, checks
 *     json/json_calls.h     the same by JSON, for other languages
 *
 * Each header begins with an overview and an example; api/train.h shows the whole way from a network to a trained one.
 *
 * A program is compiled by `cc program.c $(pkg-config --cflags --libs stargrad)` (docs/start/install.md). In C++, from C++20 on,
 * all is written as in C, sgrad_layer and records too; but a list of named fields has them in the order of their declaration, and
 * g++ -Wextra warns of those that a record leaves out. */
#ifndef SGRAD_GRAPHS_GRAPHS_H
#define SGRAD_GRAPHS_GRAPHS_H

#include "codelets/operations.h"
#include "graphs/api/bench.h"
#include "graphs/api/check.h"
#include "graphs/api/costs.h"
#include "graphs/api/inference.h"
#include "graphs/api/plugin.h"
#include "graphs/api/search.h"
#include "graphs/api/segment.h"
#include "graphs/api/train.h"
#include "graphs/compiler/compiler.h"
#include "graphs/json/json_calls.h"
#include "graphs/networks/networks.h"

#endif
