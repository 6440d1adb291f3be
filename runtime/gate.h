/* gate.h: a step can be cancelled as long as it has changed nothing that outlives it.
 *
 *     task       forward   forward   backward   update     update
 *     gate       open      open      open       shut       shut
 *     cancelled  from here on no task of the step does anything; behind the first update the step takes place
 *
 * Ranks that cancel a step must all do so. Each holds its gate; if one rank's was shut before, all release theirs open, else
 * cancelled. Meanwhile tasks before the first update go on, and this update waits. */
#ifndef SGRAD_GATE_H
#define SGRAD_GATE_H

#include <stdbool.h>

/* Of the tasks of one step (runtime.h: struct sgrad_submission). Those that STAY shut it. Zeros: it is open. */
struct sgrad_gate {
    int state;
};
void sgrad_gate_open(struct sgrad_gate *gate);          /* once more, for another step, when no task of the one before is left */
bool sgrad_gate_cancel(struct sgrad_gate *gate);        /* is the step cancelled, by now or before? */
bool sgrad_gate_hold(struct sgrad_gate *gate);          /* is the gate held, by now or before? */
void sgrad_gate_release(struct sgrad_gate *gate, bool cancel);      /* a held one */

#endif
