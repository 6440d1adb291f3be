/* schedule.c: predicts when the instructions of a step run, by a list schedule: whenever a worker is free, it takes, of the tasks
 * whose dependencies have ended, the one of the highest priority, and of these the first one of the program.
 *
 *     worker 0    ██ conv1 #0 ██ conv2 #0 ██          ██ conv2 backward #0 ██
 *     worker 1    ██ conv1 #1 ██ conv2 #1 ██ ┊        ██ conv2 backward #1 ██
 *     file                    ├ store ┤  ├── fetch ───┤
 *
 * A task takes the longer of its arithmetic and its memory traffic. The file executes one move at a time: of those that can
 * begin, the first one of the program. Claims, and messages to other ranks, take no time; a task that does not run in each step
 * takes its mean time.
 *
 * (R. L. Graham, Bounds on multiprocessing timing anomalies, 1969, for list schedules.)
 *
 * Limits: the next step does not begin before this one has ended. */
#include "graphs/costs/schedule.h"

#include <math.h>
#include <stdlib.h>

/* A heap of instructions: the one with the lowest key first; of equal keys, the first in the program. */
struct heap {
    int count;
    struct item {
        double key;
        int i;
    } * item;
};

struct scheduler {
    const struct sgrad__program *p;
    const struct sgrad__pace *pace;
    struct sgrad__schedule *is;
    int *left;                         /* by instruction: dependencies that have not ended */
    struct sgrad__dependencies *after; /* by instruction: those that depend on it */
    struct heap ready, moves, running; /* keys: minus priority; 0; end */
    int idle;                          /* workers without a task */
    bool moving;                       /* a move is in progress */
};

/* ---- heaps ---- */

static bool precedes(const struct item *a, const struct item *b) { return a->key != b->key ? a->key < b->key : a->i < b->i; }

static void swap(struct item *a, struct item *b) {
    const struct item is = *a;
    *a = *b;
    *b = is;
}

static void push(struct heap *heap, double key, int i) {
    heap->item = sgrad_array_grow(heap->item, heap->count, sizeof *heap->item);
    heap->item[heap->count] = (struct item){ key, i };
    for (int at = heap->count++; at && precedes(&heap->item[at], &heap->item[(at - 1) / 2]); at = (at - 1) / 2)
        swap(&heap->item[at], &heap->item[(at - 1) / 2]);
}

/* HEAP must not be empty. */
static struct item pop(struct heap *heap) {
    const struct item first = heap->item[0];
    heap->item[0] = heap->item[--heap->count];
    for (int at = 0, least = 0;; at = least) {
        for (int child = 2 * at + 1; child <= 2 * at + 2; child++)
            if (child < heap->count && precedes(&heap->item[child], &heap->item[least])) least = child;
        if (least == at) return first;
        swap(&heap->item[at], &heap->item[least]);
    }
}

/* ---- durations ---- */

static bool is_task(const struct sgrad_bound_kernel *call) {
    return !sgrad__is_move(call) && !sgrad__is_message(call) && call->kernel != &sgrad__claim_kernel;
}

double sgrad__schedule_task(const struct sgrad__program *program, const struct sgrad__pace *pace, int i) {
    const struct sgrad__instruction *in = &program->instruction[i];
    if (!is_task(in->call)) return 0;
    return sgrad__share_of_steps(in->when) * fmax(in->call->flops / pace->flops, in->call->bytes / pace->bandwidth);
}

static double seconds_of(const struct scheduler *s, int i) {
    const struct sgrad_bound_kernel *call = s->p->instruction[i].call;
    if (!sgrad__is_move(call)) return sgrad__schedule_task(s->p, s->pace, i);
    const double rate = call->kernel == &sgrad__store_kernel ? s->pace->disk.write : s->pace->disk.read;
    return rate > 0 ? (double)sgrad_view_bytes(&call->view[0]) / rate : 0;
}

/* ---- the schedule ---- */

/* The dependencies of I have ended at NOW. */
static void enable(struct scheduler *s, int i, double now) {
    const struct sgrad__instruction *in = &s->p->instruction[i];
    if (sgrad__is_move(in->call))
        push(&s->moves, 0, i);
    else if (is_task(in->call))
        push(&s->ready, -in->priority, i);
    else {
        s->is->begin[i] = now;
        push(&s->running, now, i);
    }
}

static void begin(struct scheduler *s, int i, double now) {
    s->is->begin[i] = now;
    push(&s->running, now + seconds_of(s, i), i);
}

static void end(struct scheduler *s, int i, double now) {
    const struct sgrad_bound_kernel *call = s->p->instruction[i].call;
    s->is->end[i] = now;
    if (now > s->is->seconds) s->is->seconds = now;
    if (is_task(call)) s->idle++;
    if (sgrad__is_move(call)) s->moving = false;
    for (int j = 0; j < s->after[i].count; j++)
        if (!--s->left[s->after[i].on[j]]) enable(s, s->after[i].on[j], now);
}

static void run(struct scheduler *s) {
    double now = 0;
    for (;;) {
        while (s->idle && s->ready.count) s->idle--, begin(s, pop(&s->ready).i, now);
        if (!s->moving && s->moves.count) s->moving = true, begin(s, pop(&s->moves).i, now);
        if (!s->running.count) return;
        const struct item next = pop(&s->running);
        end(s, next.i, now = next.key);
    }
}

void sgrad__schedule_make(const struct sgrad__program *program, const struct sgrad__pace *pace,
                          struct sgrad__schedule *schedule) {
    const int count = program->instruction_count;
    struct sgrad__dependencies *before = sgrad__dependencies_find(program);
    *schedule = (struct sgrad__schedule){ .begin = sgrad_xcalloc((size_t)count + 1, sizeof *schedule->begin),
                                          .end = sgrad_xcalloc((size_t)count + 1, sizeof *schedule->end) };
    struct scheduler s = { .p = program, .pace = pace, .is = schedule, .idle = pace->workers > 0 ? pace->workers : 1 };
    s.left = sgrad_xcalloc((size_t)count + 1, sizeof *s.left);
    s.after = sgrad_xcalloc((size_t)count + 1, sizeof *s.after);
    for (int i = 0; i < count; i++)
        for (int j = 0; j < before[i].count; j++) {
            struct sgrad__dependencies *after = &s.after[before[i].on[j]];
            after->on = sgrad_array_grow(after->on, after->count, sizeof *after->on);
            after->on[after->count++] = i;
            s.left[i]++;
        }
    for (int i = 0; i < count; i++)
        if (!before[i].count) enable(&s, i, 0);
    run(&s);
    sgrad__dependencies_free(before, program);
    sgrad__dependencies_free(s.after, program);
    free(s.left);
    free(s.ready.item);
    free(s.moves.item);
    free(s.running.item);
}

void sgrad__schedule_free(struct sgrad__schedule *schedule) {
    free(schedule->begin);
    free(schedule->end);
    *schedule = (struct sgrad__schedule){ .begin = NULL };
}
