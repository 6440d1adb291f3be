/* waits.c: finds the tasks that only wait for moves to or from a file: they would be ready if moves took no time.
 *
 *     task u      needs  x ← task t,  a' ← fetch ← claim ← task s        s, t: tasks, found through moves and claims
 *
 *     s           ████
 *     t               ██████
 *     fetch a'            ├────────────┤
 *     u                     ┊ overdue  ┊██████                           from the last end of s and t to that of the fetch
 *
 * The runtime counts the time during which workers are idle while tasks are overdue (runtime/profile.h).
 *
 * For each task that depends on a move, two numbers are counted down: of outstanding tasks, which are found through moves and
 * claims; of outstanding moves and claims on which it depends directly.
 *
 * Limits: dependencies on tasks of other steps are ignored; see also graphs/compiler/dependencies.c. */
#include "graphs/engine/waits.h"
#include "runtime/profile.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* A task that depends on an instruction: number of the task; IS_MOVE: the instruction is a move or a claim. */
struct dependent {
    int task;
    bool is_move;
};
struct dependents {
    int count;
    struct dependent *of;
};

struct sgrad__waits {
    int tasks, instructions;
    int *count;                     /* by task: of tasks, then of moves and claims, on which it depends */
    struct dependents *dependents;  /* by instruction */
};

struct search {
    const struct sgrad__program *p;
    struct sgrad__dependencies *before;     /* by instruction: those on which it depends directly */
    int *seen;                              /* by instruction: the last task whose dependencies include it */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static bool passes(const struct sgrad__instruction *in) {
    return sgrad__is_move(in->call) || in->call->kernel == &sgrad__claim_kernel;
}

/* ---- dependencies ---- */

/* Stores in FOUND the tasks on which I depends, directly or through moves and claims. TASK: the number for SEEN. Returns true if
 * there is a move among those that it passes. */
static bool find_tasks(struct search *search, int i, int task, struct sgrad__dependencies *found) {
    bool moved = false;
    for (int j = 0; j < search->before[i].count; j++) {
        const int other = search->before[i].on[j];
        if (search->seen[other] == task) continue;
        search->seen[other] = task;
        const struct sgrad__instruction *in = &search->p->instruction[other];
        if (passes(in)) {
            moved |= sgrad__is_move(in->call) | find_tasks(search, other, task, found);
            continue;
        }
        found->on = sgrad_array_grow(found->on, found->count, sizeof *found->on);
        found->on[found->count++] = other;
    }
    return moved;
}

static void add_dependent(struct sgrad__waits *w, int i, bool move) {
    struct dependents *d = &w->dependents[i];
    d->of = sgrad_array_grow(d->of, d->count, sizeof *d->of);
    d->of[d->count++] = (struct dependent){ w->tasks, move };
    w->count[2 * w->tasks + move]++;
}

/* Adds instruction I, a task, if it depends on a move. */
static void add_task(struct sgrad__waits *w, struct search *search, int i, struct sgrad__dependencies *found) {
    found->count = 0;
    if (!find_tasks(search, i, i + 1, found)) return;
    for (int j = 0; j < found->count; j++) add_dependent(w, found->on[j], false);
    for (int j = 0; j < search->before[i].count; j++) {
        const int other = search->before[i].on[j];
        if (!passes(&search->p->instruction[other]) || search->seen[other] < 0) continue;
        search->seen[other] = -1;       /* added */
        add_dependent(w, other, true);
    }
    w->tasks++;
}

struct sgrad__waits *sgrad__waits_create(const struct sgrad__program *program) {
    const int count = program->instruction_count;
    if (!program->spilling.slots && !program->spilling.read) return NULL;
    struct sgrad__waits *w = sgrad_xcalloc(1, sizeof *w);
    struct search search = { program, sgrad__dependencies_find(program), sgrad_xcalloc((size_t)count + 1, sizeof *search.seen) };
    struct sgrad__dependencies found = { 0 };
    w->instructions = count;
    w->count = sgrad_xcalloc(2 * (size_t)count + 1, sizeof *w->count);
    w->dependents = sgrad_xcalloc((size_t)count + 1, sizeof *w->dependents);
    for (int i = 0; i < count; i++)
        if (!passes(&program->instruction[i])) add_task(w, &search, i, &found);
    sgrad__dependencies_free(search.before, program);
    free(search.seen);
    free(found.on);
    sgrad_workers_watch();
    return w;
}

void sgrad__waits_destroy(struct sgrad__waits *waits) {
    if (!waits) return;
    for (int i = 0; i < waits->instructions; i++) free(waits->dependents[i].of);
    free(waits->dependents);
    free(waits->count);
    free(waits);
}

/* ---- a step ---- */

int sgrad__waits_size(const struct sgrad__waits *waits) { return waits ? 2 * waits->tasks : 0; }

void sgrad__waits_begin(const struct sgrad__waits *waits, int *state) {
    if (waits) memcpy(state, waits->count, (size_t)sgrad__waits_size(waits) * sizeof *state);
}

void sgrad__waits_end(const struct sgrad__waits *waits, int *state, int i) {
    if (!waits || i >= waits->instructions || !waits->dependents[i].count) return;
    const struct dependents *d = &waits->dependents[i];
    int change = 0;
    pthread_mutex_lock(&lock);
    for (int j = 0; j < d->count; j++) {
        int *left = &state[2 * d->of[j].task];
        change -= !left[0] && left[1];
        left[d->of[j].is_move]--;
        change += !left[0] && left[1];
    }
    if (change) sgrad_workers_overdue(change);
    pthread_mutex_unlock(&lock);
}
