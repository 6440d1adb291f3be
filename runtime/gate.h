/* gate.h: a step can be cancelled as long as it has changed nothing that outlives it.
 *
 *     task       forward   forward   backward   update     update
 *     gate       open      open      open       shut       shut
 *     cancelled  from here on no task of the step does anything; behind the first update the step takes place */
#ifndef SGRAD_GATE_H
#define SGRAD_GATE_H

#include <stdbool.h>

/* Of the tasks of one step (runtime.h: struct sgrad_submission). Those that STAY shut it. Zeros: it is open. */
struct sgrad_gate {
    int state;
};
void sgrad_gate_open(struct sgrad_gate *gate);          /* once more, for another step, when no task of the one before is left */
bool sgrad_gate_cancel(struct sgrad_gate *gate);        /* is the step cancelled, by now or before? */

#endif
