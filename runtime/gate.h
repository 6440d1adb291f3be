/* gate.h: a step can be cancelled as long as it has changed nothing that outlives it.
 *
 *     task       forward   forward   backward   update     update
 *     gate       open      open      open       shut       shut
 *     cancelled  from here on no task of the step does anything; behind the first update the step takes place
 *
 * All ranks must cancel the same steps. Each rank holds a step's gate. If a rank's gate was already shut, all release theirs
 * open, else cancelled. While a gate is held, the tasks before the step's first update run, and that update waits. */
#ifndef SGRAD_GATE_H
#define SGRAD_GATE_H

#include <stdbool.h>

/* Of the tasks of one step (runtime.h: struct sgrad_submission). Those that STAY shut it. Zeros: it is open. */
struct sgrad_gate {
    int state;
};
void sgrad_gate_open(struct sgrad_gate *gate);          /* once more, for another step, when no task of the one before is left */
bool sgrad_gate_hold(struct sgrad_gate *gate);          /* returns false if the gate is shut, or the step cancelled */
void sgrad_gate_release(struct sgrad_gate *gate, bool cancel);      /* a held one: its step takes place, or is cancelled */

#endif
