/* gate.h: cancellation of a step, which is possible until one of its tasks changes data that outlives the step.
 *
 *     task       forward   forward   backward   update     update
 *     gate       open      open      open       shut       shut
 *     cancel     possible: no later task of the step runs; impossible once the first update has started
 *
 * All ranks must cancel the same steps. To decide this, each rank calls sgrad_gate_hold. If the gate of any rank was already
 * shut, all ranks release their gates open, else cancelled. While a gate is held, the tasks before the step's first update run,
 * and that update waits. */
#ifndef SGRAD_RUNTIME_GATE_H
#define SGRAD_RUNTIME_GATE_H

#include <stdbool.h>

/* The gate of the tasks of one step (runtime.h: struct sgrad_submission). A task with .stays set shuts it. */
struct sgrad_gate {
    int state;                                          /* private; 0: open */
};
void sgrad_gate_open(struct sgrad_gate *gate);          /* for another step; all tasks of the previous step must have ended */
bool sgrad_gate_hold(struct sgrad_gate *gate);          /* returns false if the gate is shut or the step is cancelled */
void sgrad_gate_release(struct sgrad_gate *gate, bool cancel);      /* a held gate: cancels the step, or opens the gate */

#endif
