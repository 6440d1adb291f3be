/* residence.c: plans which buffers leave memory between two of their uses, because memory is limited.
 *
 * Forward produces activations a, b, c, which backward uses in the reverse order. Memory has room for two of them:
 *
 *     task       fa    fb    fc    loss   bc    bb    ba
 *     a          ██████████░░                       ▒▒████        ░ its memory is still used by the write; ▒ by the read
 *     b                ██████████████████████████████
 *     c                      ████████████████
 *     file             ├─ a ─┤                      ├a┤
 *
 * 1. Evict. The tasks are visited in order. When a task needs more memory than is free, the buffer that is used again last leaves
 *    (a: L. A. Belady, A study of replacement algorithms for a virtual-storage computer, 1966). Its content is written right
 *    after the last use before, so that writing can end before memory is needed. Content that the file already has is not written
 *    again.
 * 2. Prefetch. The last read must end when its buffer is used; the reads before it must end before that one starts. This gives
 *    the latest start of each read. Then, in the order of uses, each read is moved forward to this start, as far as memory is
 *    free.
 * 3. Predict. The tasks run one after another, beside one write and one read at a time.
 *
 * Limits: the bandwidth does not affect the choice of buffers. A task waits for a write to end if its memory is needed
 * earlier. */
#include "graphs/compiler/passes/residence.h"
#include "runtime/runtime.h"

#include <stdlib.h>
#include <string.h>

/* The state of a buffer while the tasks are visited. */
struct state {
    int uses, *use;                 /* the tasks that use it */
    int next;                       /* index of its next use */
    bool here, stored;              /* it is in memory; the file has its content */
};

struct planner {
    const struct sgrad__residence_problem *is;
    struct sgrad__residence *result;
    struct state *state;
    double *used;                   /* bytes in memory, by task */
};

static void find_uses(struct planner *planner) {
    const struct sgrad__residence_problem *p = planner->is;
    for (int k = 0; k < p->tasks; k++)
        for (int j = 0; j < p->task[k].count; j++) {
            struct state *s = &planner->state[p->task[k].buffer[j]];
            s->use = sgrad_array_grow(s->use, s->uses, sizeof *s->use);
            s->use[s->uses++] = k;
        }
}

double sgrad__residence_peak(const struct sgrad__residence_problem *problem) {
    struct planner planner = { .is = problem, .state = sgrad_xcalloc((size_t)problem->buffers, sizeof *planner.state) };
    double *change = sgrad_xcalloc((size_t)problem->tasks + 1, sizeof *change), now = 0, most = 0;
    find_uses(&planner);
    for (int b = 0; b < problem->buffers; b++) {
        const struct state *s = &planner.state[b];
        if (s->uses) change[s->use[0]] += problem->bytes[b], change[s->use[s->uses - 1] + 1] -= problem->bytes[b];
        free(s->use);
    }
    for (int k = 0; k < problem->tasks; k++) {
        now += change[k];
        if (now > most) most = now;
    }
    free(change);
    free(planner.state);
    return most;
}

/* ---- eviction ---- */

/* Returns true if task K, or one that may still run when it starts, uses BUFFER. */
static bool is_in_use(const struct planner *planner, int k, int buffer) {
    for (int t = k; t >= 0 && t > k - planner->is->running; t--)
        for (int j = 0; j < planner->is->task[t].count; j++)
            if (planner->is->task[t].buffer[j] == buffer) return true;
    return false;
}

/* Returns the buffer in memory that is used again last, but not by the tasks that run with task K; -1: there is none. */
static int find_victim(const struct planner *planner, int k) {
    int best = -1;
    for (int b = 0; b < planner->is->buffers; b++) {
        const struct state *s = &planner->state[b];
        if (!s->here || s->next == s->uses || planner->is->fixed[b] || planner->is->bytes[b] <= 0) continue;
        if (is_in_use(planner, k, b)) continue;
        if (best < 0 || s->use[s->next] > planner->state[best].use[planner->state[best].next]) best = b;
    }
    return best;
}

static void evict(struct planner *planner, int b, int k) {
    struct state *s = &planner->state[b];
    struct sgrad__residence *r = planner->result;
    const int use = s->use[s->next];
    r->absence = sgrad_array_grow(r->absence, r->count, sizeof *r->absence);
    r->absence[r->count++] = (struct sgrad__absence){ b, s->stored ? -1 : s->use[s->next - 1], k, use, use };
    if (!s->stored) r->written += planner->is->bytes[b];
    r->read += planner->is->bytes[b];
    s->here = false, s->stored = true;
}

/* Frees the buffers of which task K has the last use. */
static void free_last(struct planner *planner, int k, double *now) {
    for (int j = 0; k >= 0 && j < planner->is->task[k].count; j++) {
        struct state *s = &planner->state[planner->is->task[k].buffer[j]];
        if (s->next < s->uses || s->use[s->uses - 1] != k) continue;
        s->here = false;
        *now -= planner->is->bytes[planner->is->task[k].buffer[j]];
    }
}

/* Returns 0, or the bytes that task K, and those that run at the same time, need. */
static double visit(struct planner *planner, int k, double *now) {
    const struct sgrad__residence_problem *p = planner->is;
    const struct sgrad__task_uses *task = &p->task[k];
    double more = 0;
    free_last(planner, k - p->running, now);
    for (int j = 0; j < task->count; j++)
        if (!planner->state[task->buffer[j]].here) more += p->bytes[task->buffer[j]];
    while (*now + more > p->limit) {
        const int victim = find_victim(planner, k);
        if (victim < 0) return *now + more;
        evict(planner, victim, k);
        *now -= p->bytes[victim];
    }
    *now += more;
    planner->used[k] = *now;
    for (int j = 0; j < task->count; j++) {
        struct state *s = &planner->state[task->buffer[j]];
        s->here = true;
        if (task->writes[j]) s->stored = false;
        s->next++;
    }
    return 0;
}

static int by_use(const void *a, const void *b) {
    const struct sgrad__absence *x = a, *y = b;
    if (x->use != y->use) return (x->use > y->use) - (x->use < y->use);
    return (x->buffer > y->buffer) - (x->buffer < y->buffer);
}

/* ---- prefetch ---- */

/* Returns the time at which each task starts, if nothing waits; the last element is the end. */
static double *find_starts(const struct sgrad__residence_problem *problem) {
    double *start = sgrad_xcalloc((size_t)problem->tasks + 1, sizeof *start);
    for (int k = 0; k < problem->tasks; k++) start[k + 1] = start[k] + problem->task[k].seconds;
    return start;
}

static void prefetch(struct planner *planner) {
    const struct sgrad__residence_problem *p = planner->is;
    struct sgrad__residence *r = planner->result;
    double *start = find_starts(p), *latest = sgrad_xcalloc((size_t)r->count + 1, sizeof *latest), end = start[p->tasks];
    for (int i = r->count - 1; i >= 0; i--) {
        if (start[r->absence[i].use] < end) end = start[r->absence[i].use];
        latest[i] = end -= p->bytes[r->absence[i].buffer] / p->read;
    }
    for (int i = 0; i < r->count; i++) {
        struct sgrad__absence *a = &r->absence[i];
        const double bytes = p->bytes[a->buffer];
        while (a->fetch > a->release + 1 && start[a->fetch] > latest[i] && planner->used[a->fetch - 1] + bytes <= p->limit)
            planner->used[--a->fetch] += bytes;
    }
    free(latest);
    free(start);
}

/* ---- prediction ---- */

static double later(double a, double b) { return a > b ? a : b; }

static void predict(const struct planner *planner) {
    const struct sgrad__residence_problem *p = planner->is;
    struct sgrad__residence *r = planner->result;
    double now = 0, writer = 0, reader = 0, *stored = sgrad_xcalloc((size_t)p->buffers + 1, sizeof *stored),
           *fetched = sgrad_xcalloc((size_t)p->buffers + 1, sizeof *fetched);
    for (int k = 0; k < p->tasks; k++) {
        const double before = now;
        for (int i = 0; i < r->count; i++) {
            const struct sgrad__absence *a = &r->absence[i];
            if (a->release == k) now = later(now, stored[a->buffer]);
            if (a->fetch == k)
                fetched[a->buffer] = reader =
                    later(later(now, reader), stored[a->buffer]) + p->bytes[a->buffer] / p->read;
            if (a->use == k) now = later(now, fetched[a->buffer]);
        }
        r->waited += now - before;
        now += p->task[k].seconds;
        for (int i = 0; i < r->count; i++)
            if (r->absence[i].store == k)
                stored[r->absence[i].buffer] = writer = later(now, writer) + p->bytes[r->absence[i].buffer] / p->write;
    }
    r->seconds = now;
    free(stored);
    free(fetched);
}

double sgrad__residence_plan(const struct sgrad__residence_problem *problem, struct sgrad__residence *result) {
    struct sgrad__residence r = { 0 };
    struct planner planner = { .is = problem, .result = &r,
                               .state = sgrad_xcalloc((size_t)problem->buffers + 1, sizeof *planner.state),
                               .used = sgrad_xcalloc((size_t)problem->tasks + 1, sizeof *planner.used) };
    double now = 0, too_many = 0;
    find_uses(&planner);
    for (int k = 0; k < problem->tasks && !too_many; k++) too_many = visit(&planner, k, &now);
    if (!too_many) {
        if (r.count) qsort(r.absence, (size_t)r.count, sizeof *r.absence, by_use);
        prefetch(&planner);
        predict(&planner);
        for (int k = 0; k < problem->tasks; k++) r.peak = later(r.peak, planner.used[k]);
    }
    for (int b = 0; b < problem->buffers; b++) free(planner.state[b].use);
    free(planner.state);
    free(planner.used);
    if (too_many) sgrad__residence_free(&r);
    else *result = r;
    return too_many;
}

void sgrad__residence_free(struct sgrad__residence *result) {
    free(result->absence);
    *result = (struct sgrad__residence){ 0 };
}
