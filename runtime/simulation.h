/* simulation.h: a trainer on simulated machines: the same sources on a StarPU that stands on SimGrid (configure
 * --enable-simulation). Scheduler, transfers and messages are real code; kernels are not run, and take as long as whoever
 * simulates says. Every rank is an actor of one process with variables of its own.
 *
 *     a task             waits for operands and worker as ever ── then time passes ── and it is done
 *     a tensor           has a size, and no memory of its own: what is written is lost, what is read is 0
 *     a message          takes wire and latency of the simulated network, and, of a worker at either end, time by its bytes;
 *                        its content stays behind
 *     what ranks agree on    each answers for all, since all do alike
 *
 * Of ranks that all do alike, two can stand for any number: whatever one of them sends to some rank it sends to the other, which
 * sends it what that rank would.
 *
 * config.h's SGRAD_SIMULATED, 0 or 1, says which of the two a program is. */
#ifndef SGRAD_RUNTIME_SIMULATION_H
#define SGRAD_RUNTIME_SIMULATION_H

#include "runtime/runtime.h"

struct sgrad_simulation {
    double (*seconds)(const struct sgrad_call *call, const void *arg);      /* that a task takes, on whatever worker runs it */
    const void *arg;
    int gpus;                       /* of a rank */
    double latency, bandwidth;      /* of the network, seconds and bytes a second: what ranks plan by */
    double carrying;                /* seconds of a worker for a byte that goes to others or comes from them; 0: none */
    int ranks;                      /* where all do alike, and the two that are simulated stand for so many; 0: these are all */
};
/* Before a context is opened, on every rank. *SIMULATION lives as long as that. */
void sgrad_simulation_set(const struct sgrad_simulation *simulation);

#endif
