/* runner.h: a program, turned: the window of steps in flight. Private to graphs/runs/. */
#ifndef SGRAD_GRAPHS_RUNNER_H
#define SGRAD_GRAPHS_RUNNER_H

#include "graphs/programs/program.h"
#include "runtime/gate.h"

#include <stdatomic.h>

/* A wait that may be in vain. Begins as { .before = -1 }. */
struct sgrad__idle {
    long before;                /* what was left to happen */
    double seconds;             /* for which nothing has happened */
};
/* Waits for MONITOR, some time at most. True: of what has to happen, of which so much is LEFT, nothing has for too long. Naps are
 * counted, not time: a process that was stopped for an hour has not waited for one. */
bool sgrad__nap(struct sgrad_monitor *monitor, long left, struct sgrad__idle *idle);

/* What an instruction leaves when it has ended. */
struct sgrad__mark {
    struct sgrad__slot *slot;
    atomic_bool done;
};
/* One step in flight. */
struct sgrad__slot {
    struct sgrad_step step;
    int64_t *sample;
    void **output;              /* what the program's outputs hold, in the steps that they are part of */
    atomic_int pending;         /* tasks, messages, and the fetches of outputs */
    struct sgrad__mark *mark;   /* of each of these */
    struct sgrad_gate gate;
    bool finished, cancelled;   /* cancelled: it changed nothing */
    double time;                /* when it finished: seconds of the monotonic clock */
    struct sgrad__runner *runner;
};
/* The window of steps in flight, in order: submit fills the next slot, wait empties the oldest. */
struct sgrad__runner {
    struct sgrad__program *program;
    struct sgrad__slot slot[SGRAD__MAX_WINDOW];
    long submitted, finished;
    long later;                         /* what steps have begun that may outlive them, and has not ended */
    struct sgrad_monitor *monitor;
    struct sgrad_monitor *listener;     /* told, too, when a step has ended; NULL: nobody waits for several runners */
    bool *stays;                        /* by instruction: what it changes outlives the step */
    bool can_cancel;                    /* no instruction outlives its step, and no message changes weights or states */
    bool alone;                         /* steps are this rank's alone */
    bool (*asked)(const void *arg);     /* while a wait goes on: is the run to end? NULL: it never is */
    const void *asked_arg;
};
/* Ranks cancel the steps in flight that have changed no weight or state on any rank: the newest ones. After the same step, all
 * ranks call hold, compute the maximum of the numbers that it returns, and call release with that maximum before the next wait.
 * Between the two calls the steps that hold does not count change nothing. */
int sgrad__runner_hold(struct sgrad__runner *runner);               /* returns how many steps in flight take place on this rank */
void sgrad__runner_release(struct sgrad__runner *runner, int kept); /* the oldest KEPT take place, the others are cancelled */
/* The content of an output that is doubles; NULL where there is no such output (-1). */
static inline const double *sgrad__slot_doubles(const struct sgrad__slot *slot, int output) {
    return output < 0 ? NULL : slot->output[output];
}
/* Submits one instruction; DONE(ARG) is called when it has run. COPY: of the window. */
int sgrad__instruction_submit(const struct sgrad__program *program, int index, const struct sgrad_step *step, int copy,
                              void (*done)(void *arg), void *arg);
struct sgrad__runner *sgrad__runner_create(struct sgrad__program *program, struct sgrad_monitor *listener);
void sgrad__runner_destroy(struct sgrad__runner *runner);
/* Submits one step; SAMPLE holds program->share indices and is copied. The caller keeps submitted - finished < window. */
int sgrad__runner_submit(struct sgrad__runner *runner, const struct sgrad_step *step, const int64_t *sample);
/* agreement.c: have all ranks built the same COUNT programs, which are under way at the same time: does each rank expect what
 * others send it? Every rank calls it, before the first message. SGRAD_EINVAL on all if not; one names ranks and a message. */
int sgrad__programs_compare(const struct sgrad_context *context, const struct sgrad__program *const *program, int count);
/* One rank's tensors to all: the program of a step that is this and nothing else, built, turned and gone; some MB at a time. */
int sgrad__runner_broadcast(const struct sgrad_context *context, const struct sgrad__broadcast *list, int count);
bool sgrad__runner_is_ready(const struct sgrad__runner *runner);      /* has the oldest step in flight ended? */
bool sgrad__runner_is_at_rest(const struct sgrad__runner *runner);    /* have all, and all that may outlive them? */
void sgrad__runner_tell_stall(const struct sgrad__runner *runner);    /* what the oldest step in flight waits for; if it does */
/* Waits for the oldest step in flight; *DONE is its slot, good until the next submit. */
int sgrad__runner_wait(struct sgrad__runner *runner, const struct sgrad__slot **done);

#endif
