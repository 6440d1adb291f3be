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
 * A task depends on the last task that writes an operand and, if it writes the operand itself, on those that have read it since.
 * Moves of one slot depend on each other. For each task that depends on a move, two numbers are counted down: of outstanding
 * tasks, which are found through moves and claims; of outstanding moves and claims on which it depends directly.
 *
 * Limits: dependencies on tasks of other steps are ignored. Parts of a buffer count as one operand. */
#include "graphs/engine/waits.h"
#include "runtime/profile.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct list {
    int count, *of;
};

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
    struct list *before;            /* by instruction: those on which it depends directly */
    int *seen;                      /* by instruction: the last task whose dependencies include it */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void append(struct list *list, int i) {
    list->of = sgrad_array_grow(list->of, list->count, sizeof *list->of);
    list->of[list->count++] = i;
}

static bool is_move(const struct sgrad__instruction *in) {
    return in->call->kernel == &sgrad__store_kernel || in->call->kernel == &sgrad__fetch_kernel;
}

static bool passes(const struct sgrad__instruction *in) { return is_move(in) || in->call->kernel == &sgrad__claim_kernel; }

/* ---- dependencies ---- */

/* The accesses to a buffer so far. */
struct accesses {
    int writer;                     /* the last instruction that has written it; -1: none */
    struct list readers;            /* since then */
};

static void depend(struct list *before, struct accesses *a, int i, bool writes) {
    if (a->writer >= 0 && a->writer != i) append(before, a->writer);
    for (int j = 0; j < a->readers.count && writes; j++)
        if (a->readers.of[j] != i) append(before, a->readers.of[j]);
    if (!writes) {
        append(&a->readers, i);
        return;
    }
    a->writer = i;
    a->readers.count = 0;
}

static struct list *find_before(const struct sgrad__program *p) {
    struct list *before = sgrad_xcalloc((size_t)p->instruction_count + 1, sizeof *before);
    struct accesses *buffer = sgrad_xcalloc((size_t)p->buffer_count + 1, sizeof *buffer);
    int *last = sgrad_xcalloc((size_t)p->spilling.slots + 1, sizeof *last);     /* by slot: 1 + the last move; 0: none */
    for (int b = 0; b < p->buffer_count; b++) buffer[b].writer = -1;
    for (int i = 0; i < p->instruction_count; i++) {
        const struct sgrad__instruction *in = &p->instruction[i];
        for (int j = 0; j < in->call->operands; j++)
            if (in->operand[j] >= 0)
                depend(&before[i], &buffer[sgrad__whole_of(p, in->operand[j])], i, in->call->access[j] != SGRAD_R);
        if (!is_move(in)) continue;
        if (last[in->tag]) append(&before[i], last[in->tag] - 1);
        last[in->tag] = i + 1;
    }
    for (int b = 0; b < p->buffer_count; b++) free(buffer[b].readers.of);
    free(buffer);
    free(last);
    return before;
}

/* Stores in FOUND the tasks on which I depends, directly or through moves and claims. TASK: the number for SEEN. Returns true if
 * there is a move among those that it passes. */
static bool find_tasks(struct search *search, int i, int task, struct list *found) {
    bool moved = false;
    for (int j = 0; j < search->before[i].count; j++) {
        const int other = search->before[i].of[j];
        if (search->seen[other] == task) continue;
        search->seen[other] = task;
        const struct sgrad__instruction *in = &search->p->instruction[other];
        if (!passes(in)) append(found, other);
        else moved |= is_move(in) | find_tasks(search, other, task, found);
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
static void add_task(struct sgrad__waits *w, struct search *search, int i, struct list *found) {
    found->count = 0;
    if (!find_tasks(search, i, i + 1, found)) return;
    for (int j = 0; j < found->count; j++) add_dependent(w, found->of[j], false);
    for (int j = 0; j < search->before[i].count; j++) {
        const int other = search->before[i].of[j];
        if (!passes(&search->p->instruction[other]) || search->seen[other] < 0) continue;
        search->seen[other] = -1;       /* added */
        add_dependent(w, other, true);
    }
    w->tasks++;
}

struct sgrad__waits *sgrad__waits_create(const struct sgrad__program *program) {
    const int count = program->instruction_count;
    if (!program->spilling.slots) return NULL;
    struct sgrad__waits *w = sgrad_xcalloc(1, sizeof *w);
    struct search search = { program, find_before(program), sgrad_xcalloc((size_t)count + 1, sizeof *search.seen) };
    struct list found = { 0 };
    w->instructions = count;
    w->count = sgrad_xcalloc(2 * (size_t)count + 1, sizeof *w->count);
    w->dependents = sgrad_xcalloc((size_t)count + 1, sizeof *w->dependents);
    for (int i = 0; i < count; i++)
        if (!passes(&program->instruction[i])) add_task(w, &search, i, &found);
    for (int i = 0; i < count; i++) free(search.before[i].of);
    free(search.before);
    free(search.seen);
    free(found.of);
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
