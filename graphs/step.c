/* step.c: running a program, some steps in flight.
 *
 *     submit(t)    every instruction becomes a task; nothing waits
 *     wait(t)      the oldest step in flight: all its tasks have run, its loss is here
 *
 * With a window of two, step t+1 is submitted before step t ends: its input is read, and its first layers start as soon
 * as their weights are updated, while the rest of step t still runs. */
#include "graphs/internal.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct sgrad__sync {
    pthread_mutex_t lock;
    pthread_cond_t done;
};

struct sgrad__runner *sgrad__runner_create(struct sgrad__program *program) {
    struct sgrad__runner *r = sgrad_alloc(1, sizeof *r);
    r->program = program;
    r->sync = sgrad_alloc(1, sizeof *r->sync);
    pthread_mutex_init(&r->sync->lock, NULL);
    pthread_cond_init(&r->sync->done, NULL);
    for (int i = 0; i < program->window; i++) {
        r->slot[i].runner = r;
        r->slot[i].sample = sgrad_alloc((size_t)program->share, sizeof *r->slot[i].sample);
    }
    return r;
}

void sgrad__runner_destroy(struct sgrad__runner *r) {
    if (!r) return;
    for (int i = 0; i < r->program->window; i++) free(r->slot[i].sample);
    pthread_mutex_destroy(&r->sync->lock);
    pthread_cond_destroy(&r->sync->done);
    free(r->sync);
    free(r);
}

/* One of the things that step waits for has happened. */
static void one_done(void *arg) {
    struct sgrad__slot *slot = arg;
    struct sgrad__sync *sync = slot->runner->sync;
    if (atomic_fetch_sub(&slot->pending, 1) != 1) return;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    pthread_mutex_lock(&sync->lock);
    slot->finished = true;
    slot->time = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    pthread_cond_broadcast(&sync->done);
    pthread_mutex_unlock(&sync->lock);
}

struct submission {
    struct sgrad__program *program;
    const struct sgrad_step *step;
    int copy;
    void (*done)(void *arg);
    void *arg;
};

/* Hands it to StarPU, or, if it is a message, to StarPU-MPI. */
static int submit_call(const struct submission *s, const struct sgrad__instruction *i, struct sgrad_tensor *const *operand) {
    const struct sgrad_message message = { .tensor = operand[0], .peer = i->peer, .tag = i->tag, .priority = i->priority, .done = s->done, .arg = s->arg };
    if (i->call->kernel == &sgrad__send_kernel) return sgrad_send(&message);
    if (i->call->kernel == &sgrad__receive_kernel) return sgrad_receive(&message);
    if (i->call->kernel == &sgrad__whole_kernel) return sgrad_allreduce(&message);
    return sgrad_task_submit(&(struct sgrad_submission){
        .call = i->call, .operand = operand, .workspace = s->program->workspace, .step = s->step, .first = s->step->first + i->first,
        .priority = i->priority, .name = i->name, .done = s->done, .done_arg = s->arg });
}

static int submit_instruction(const struct submission *s, const struct sgrad__instruction *i) {
    struct sgrad_tensor *operand[SGRAD_MAX_OPERANDS];
    for (int j = 0; j < i->call->operands; j++) {
        const struct sgrad__buffer *b = i->operand[j] < 0 ? NULL : &s->program->buffer[i->operand[j]];
        operand[j] = b ? b->tensor[b->copies > 1 ? s->copy : 0] : NULL;
    }
    SGRAD_TRY(submit_call(s, i, operand));
    for (int j = 0; j < i->call->operands; j++)
        if (i->last >> j & 1) sgrad_tensor_forget(operand[j]);
    return 0;
}

int sgrad__program_submit(struct sgrad__program *program, int from, int to, const struct sgrad_step *step, int copy, void (*done)(void *arg), void *arg) {
    const struct submission s = { program, step, copy, done, arg };
    for (int i = from; i < to; i++) SGRAD_TRY(submit_instruction(&s, &program->instruction[i]));
    return 0;
}

int sgrad__runner_submit(struct sgrad__runner *r, const struct sgrad_step *step, const int64_t *sample) {
    struct sgrad__program *p = r->program;
    int copy = (int)(r->submitted % p->window);
    struct sgrad__slot *slot = &r->slot[copy];
    assert(r->submitted - r->finished < p->window);
    memcpy(slot->sample, sample, (size_t)p->share * sizeof *sample);
    slot->step = *step;
    slot->step.sample = slot->sample;
    slot->finished = false;
    slot->votes = 0;
    atomic_store(&slot->pending, p->instruction_count + (p->votes >= 0 ? 2 : 1));
    r->submitted++;
    SGRAD_TRY(sgrad__program_submit(p, 0, p->instruction_count, &slot->step, copy, one_done, slot));
    if (p->votes >= 0) SGRAD_TRY(sgrad_tensor_fetch(p->buffer[p->votes].tensor[0], &slot->votes, one_done, slot));
    return sgrad_tensor_fetch(p->buffer[p->statistics].tensor[0], slot->statistics, one_done, slot);
}

int sgrad__runner_wait(struct sgrad__runner *r, const struct sgrad__slot **done) {
    assert(r->finished < r->submitted);
    struct sgrad__slot *slot = &r->slot[r->finished++ % r->program->window];
    pthread_mutex_lock(&r->sync->lock);
    while (!slot->finished) pthread_cond_wait(&r->sync->done, &r->sync->lock);
    pthread_mutex_unlock(&r->sync->lock);
    *done = slot;
    return sgrad_task_error();
}
