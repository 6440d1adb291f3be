/* runner.h: executes a program repeatedly, with several steps in flight. Private to graphs/. */
#ifndef SGRAD_GRAPHS_ENGINE_RUNNER_H
#define SGRAD_GRAPHS_ENGINE_RUNNER_H

#include "datasets/datasets.h"
#include "graphs/compiler/program.h"
#include "graphs/engine/waits.h"
#include "graphs/rundir/rundir.h"
#include "runtime/gate.h"

#include <stdatomic.h>

/* The state of a wait that can time out. Initialize it with { .before = -1 }. */
struct sgrad__idle {
    long before;                /* number of outstanding events at the last check */
    double seconds;             /* time since that number changed */
};
/* Waits up to 0.25 s for a notification of MONITOR, which must be locked. LEFT: number of outstanding events. Returns true if
 * LEFT has not changed for the duration of the timeout (runtime.h: sgrad_watchdog_expired). Calls are counted instead of clock
 * time, so that a process that was stopped for an hour does not time out. */
bool sgrad__nap(struct sgrad_monitor *monitor, long left, struct sgrad__idle *idle);

/* Completion of an instruction, or of the fetch of an output. */
struct sgrad__mark {
    struct sgrad__slot *slot;
    atomic_bool done;
};
/* A step in flight. The runner owns its memory. */
struct sgrad__slot {
    struct sgrad_step step;     /* step.sample is the next field */
    struct sgrad_sample *sample;        /* the samples of the local batch */
    void **output;              /* host buffers of the program's outputs; valid in the steps that compute the output */
    atomic_int pending;         /* number of outstanding tasks, messages and fetches of outputs */
    struct sgrad__mark *mark;   /* by instruction, then by output */
    struct sgrad_gate gate;     /* cancels the step */
    bool finished, cancelled;   /* cancelled: the step has changed no weight or state; its outputs are invalid */
    double time;                /* when it finished: seconds of the monotonic clock */
    struct sgrad__step_moves moves;  /* since the step before it finished */
    int *overdue;               /* state of runner->waits; NULL: nothing is moved */
    struct sgrad__runner *runner;
};
/* The steps in flight, in the order of submission. submit fills the next slot, wait frees the oldest one. */
struct sgrad__runner {
    struct sgrad__program *program;     /* borrowed */
    struct sgrad__slot slot[SGRAD__MAX_WINDOW];
    long submitted, finished;           /* number of steps so far */
    long later;                         /* number of outstanding tasks whose steps may end before them */
    struct sgrad_monitor *monitor;      /* owned; protects the field above, and finished of each slot */
    struct sgrad_monitor *listener;     /* borrowed; also notified when a step ends, for waits for several runners; NULL: none */
    bool *stays;                        /* by instruction: it changes data that outlive the step */
    bool can_cancel;                    /* no task outlives its step, and no message changes weights or states */
    struct sgrad__waits *waits;         /* owned; NULL: nothing is moved */
    struct sgrad__step_moves moved;          /* totals when the last step finished */
    bool alone;                         /* training without messages: this rank alone decides which steps are cancelled */
    bool (*asked)(const void *arg);     /* called during waits; returns true if the run must end; NULL: never */
    const void *asked_arg;
};
/* Cancel the newest steps in flight, those that have changed no weight or state on any rank. After the same step, every rank must
 * call hold, compute the maximum of the results over all ranks, and call release with that maximum before the next wait. Between
 * the two calls, steps that can still be cancelled change nothing. hold: returns the number of steps in flight that can no longer
 * be cancelled on this rank. release: completes the oldest KEPT steps, and cancels the others. */
int sgrad__runner_hold(struct sgrad__runner *runner);
void sgrad__runner_release(struct sgrad__runner *runner, int kept);
/* Returns the content of an output of type F64, which is valid until its slot is reused; NULL if OUTPUT is -1 (none). */
static inline const double *sgrad__slot_doubles(const struct sgrad__slot *slot, int output) {
    return output < 0 ? NULL : slot->output[output];
}
/* Submits one instruction. DONE(ARG) is called after it has been executed, on any thread. COPY: index of the copies of the step's
 * buffers, below the program's window. STEP and ARG must remain valid until then. The errors are those of sgrad_task_submit and
 * of messages. */
int sgrad__instruction_submit(const struct sgrad__program *program, int index, const struct sgrad_step *step, int copy,
                              void (*done)(void *arg), void *arg);
/* create: PROGRAM must outlive the runner, and can have only one runner at a time. Its memory must be allocated before the first
 * step (sgrad__program_allocate). LISTENER: see struct sgrad__runner. destroy: all steps must have ended; NULL is allowed. */
struct sgrad__runner *sgrad__runner_create(struct sgrad__program *program, struct sgrad_monitor *listener);
void sgrad__runner_destroy(struct sgrad__runner *runner);
/* Submits one step; does not wait. SAMPLE, the samples of the local batch, is copied. The number of steps in flight must be less
 * than the program's window. The errors are those of sgrad__instruction_submit. */
int sgrad__runner_submit(struct sgrad__runner *runner, const struct sgrad_step *step, const struct sgrad_sample *sample);
/* agreement.c: checks that all ranks have built the same COUNT programs, which will be in flight concurrently: each rank must
 * expect the messages that others send to it. Collective; must be called before the first message. SGRAD_EINVAL on all ranks if
 * they differ; one line with the ranks and a message is logged. */
int sgrad__programs_compare(const struct sgrad_context *context, const struct sgrad__program *const *program, int count);
/* Copies each tensor of LIST from its root to all ranks, by temporary programs of about 256 MiB each, and waits. Collective; no
 * effect if there is one rank. The errors are those of allocation and of the programs. */
int sgrad__runner_broadcast(const struct sgrad_context *context, const struct sgrad__broadcast *list, int count);
/* Returns true if the oldest step in flight has ended. There must be one. */
bool sgrad__runner_is_ready(const struct sgrad__runner *runner);
/* Returns true if all steps, and all tasks that outlive them, have ended. */
bool sgrad__runner_is_at_rest(const struct sgrad__runner *runner);
/* Reports the task or message for which the oldest step in flight waits (runtime.h: sgrad_watchdog_report), if there is one. */
void sgrad__runner_log_stall(const struct sgrad__runner *runner);
/* Waits for the oldest step in flight, and stores its slot in *DONE, which is valid until the next submit. Returns the first
 * error of the program's tasks. */
int sgrad__runner_wait(struct sgrad__runner *runner, const struct sgrad__slot **done);

#endif
