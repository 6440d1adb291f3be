/* simulation.h: training on simulated machines, with the same sources and a StarPU that runs on SimGrid (configure
 * --enable-simulation). Scheduler, transfers and messages are the real code. Kernels do not run: struct sgrad_simulation defines
 * their durations. Every rank is an actor of one process, with a separate copy of all global variables.
 *
 *     task        waits for its operands and a worker as in a real run; then only simulated time passes
 *     tensor      has a size but no separate memory: written values are lost, read values are 0
 *     message     takes latency and bandwidth of the simulated network, and time per byte of a worker at either end; its content
 *                 is not transferred
 *     move        of --spill: takes bytes / bandwidth of the simulated disk, one move at a time; there is no file
 *     decision    each rank derives the result for all ranks from its value, because all ranks behave identically
 *
 * If all ranks behave identically, two simulated ranks can represent any number of ranks: each of the two sends to the other
 * every message that it would send to any rank, and receives from it every message that it would receive.
 *
 * SGRAD_SIMULATED in config.h is 1 in a simulated program, else 0. */
#ifndef SGRAD_RUNTIME_SIMULATION_H
#define SGRAD_RUNTIME_SIMULATION_H

#include "runtime/runtime.h"

struct sgrad_simulation {
    /* Returns the duration of a task of CALL on any worker. */
    double (*seconds)(const struct sgrad_bound_kernel *call, const void *arg);
    const void *arg;                /* passed to seconds */
    int gpus;                       /* GPUs per rank */
    double latency, bandwidth;      /* of the network, in seconds and bytes per second, for the choice of collectives */
    double carrying;                /* seconds of a CPU worker per byte sent to or received from other ranks; 0: none */
    struct {
        double write, read;
    } disk;                         /* of a rank, for --spill, in bytes per second; 0: it has none */
    double memory;                  /* bytes of a process without parameters and optimizer states, for --memory */
    int ranks;                      /* number of ranks that the two simulated ranks represent; 0: all ranks are simulated */
};
/* Must be called on every rank before a context is opened. *SIMULATION must live until the context is closed. */
void sgrad_simulation_set(const struct sgrad_simulation *simulation);
double sgrad_simulation_memory(void); /* returns its member memory */

#endif
