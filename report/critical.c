/* critical.c: the longest chain of dependencies of a trace: the time that would remain with an unlimited number of workers.
 *
 *     read ─ conv1 forward ─ … ─ conv1 backward ─ bucket 9 ══message══ sum ─ update ─ conv1 forward ─ …
 *
 * A task counts with the time that it ran. A message may have waited for others; it counts with the time that its bytes take at
 * the highest rate that any message reached. */
#include "report/trace.h"
#include "runtime/runtime.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LARGE = 1 << 14 };       /* bytes; the time of smaller messages is no measure of the rate */

struct node {
    double ms;                  /* length of the longest chain that ends here, valid once settled is set */
    int before;                 /* previous job of that chain; -1: none */
    int seen;                   /* number of its predecessors that the search has visited */
    bool entered, settled;
};
struct search {
    const struct sgrad__timeline *t;
    struct node *node;          /* by job */
    int *message;               /* by job: the message that it receives; -1: none */
    double rate;                /* bytes per ms */
};

static int find_job(const struct sgrad__timeline *t, int64_t id) {
    int low = 0, high = t->jobs;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (t->job[middle].id < id) low = middle + 1;
        else high = middle;
    }
    return low < t->jobs && t->job[low].id == id ? low : -1;
}

static double wire(const struct search *s, int message) { return message < 0 ? 0 : s->t->message[message].bytes / s->rate; }

/* Returns the N-th predecessor of J: first its dependencies, then the job that sends its message; -1: it is not in the trace. */
static int before(const struct search *s, int j, int n) {
    const struct sgrad__timeline_job *job = &s->t->job[j];
    return find_job(s->t, n < job->count ? s->t->before[job->first + n] : s->t->message[s->message[j]].sends);
}

static int befores(const struct search *s, int j) { return s->t->job[j].count + (s->message[j] >= 0); }

/* Finds the longest chain to J from those of its predecessors, which must be settled. */
static void settle(struct search *s, int j) {
    double most = 0;
    int longest = -1;
    for (int n = 0; n < befores(s, j); n++) {
        const int b = before(s, j, n);
        if (b < 0 || !s->node[b].settled) continue;     /* in a damaged trace, jobs may wait for each other */
        const double ms = s->node[b].ms + (n == s->t->job[j].count ? wire(s, s->message[j]) : 0);
        if (ms > most) most = ms, longest = b;
    }
    s->node[j].ms = most + s->t->job[j].ms;
    s->node[j].before = longest;
    s->node[j].settled = true;
}

/* Depth-first search with an explicit stack, because a chain may have a million jobs. */
static void visit(struct search *s, int *stack, int from) {
    int depth = 0;
    stack[depth++] = from;
    while (depth) {
        const int j = stack[depth - 1];
        struct node *node = &s->node[j];
        int waits = -1;
        node->entered = true;
        while (waits < 0 && node->seen < befores(s, j)) {
            const int b = before(s, j, node->seen++);
            if (b >= 0 && !s->node[b].entered) waits = b;
        }
        if (waits >= 0) {
            stack[depth++] = waits;
        } else {
            settle(s, j);
            depth--;
        }
    }
}

static void find_messages(struct search *s) {
    for (int i = 0; i < s->t->jobs; i++) s->message[i] = -1;
    s->rate = 1;
    for (int i = 0; i < s->t->messages; i++) {
        const struct sgrad__timeline_message *m = &s->t->message[i];
        const int j = m->receives ? find_job(s->t, m->receives) : -1;
        if (j >= 0) s->message[j] = i;
        if (m->bytes >= LARGE && m->end > m->begin) s->rate = fmax(s->rate, m->bytes / (m->end - m->begin));
    }
}

static double find_work(const struct sgrad__timeline *t) {
    double most = 0, *ms = sgrad_xcalloc((size_t)t->ranks, sizeof *ms);
    int *workers = sgrad_xcalloc((size_t)t->ranks, sizeof *workers);
    for (int i = 0; i < t->rows; i++) workers[t->row[i].rank]++;
    for (int i = 0; i < t->tasks; i++) ms[t->row[t->task[i].worker].rank] += t->task[i].end - t->task[i].begin;
    for (int r = 0; r < t->ranks; r++)
        if (workers[r]) most = fmax(most, ms[r] / workers[r]);
    free(workers);
    free(ms);
    return most;
}

/* Returns a lower bound of the time: the critical path, or the work of a worker. StarPU also computes a bound
 * (starpu_bound_compute: tasks of each kind distributed over workers of each kind). With identical workers, that bound is the
 * work of a worker, but in times of StarPU's performance models instead of measured ones: the mean of all runs minus a standard
 * deviation, which depends more on the noise than on the order (docs/read-a-trace.md). */
double sgrad__critical_bound(const struct sgrad__critical *c) { return fmax(c->ms, c->work); }

void sgrad__critical_find(const struct sgrad__timeline *t, struct sgrad__critical *c) {
    struct search s = { .t = t,
                        .node = sgrad_xcalloc((size_t)t->jobs + 1, sizeof *s.node),
                        .message = sgrad_xcalloc((size_t)t->jobs + 1, sizeof *s.message) };
    int *stack = sgrad_xcalloc((size_t)t->jobs + 1, sizeof *stack), last = -1;
    *c = (struct sgrad__critical){ .work = find_work(t) };
    find_messages(&s);
    for (int j = 0; j < t->jobs; j++) {
        if (!s.node[j].entered) visit(&s, stack, j);
        if (last < 0 || s.node[j].ms > s.node[last].ms) last = j;
    }
    for (int j = last; j >= 0; j = s.node[j].before) {
        const struct sgrad__timeline_job *job = &t->job[j];
        if (job->kind >= 0) c->kind[job->kind] += job->ms;
        if (s.message[j] >= 0 && s.node[j].before == find_job(t, t->message[s.message[j]].sends))
            c->messages += wire(&s, s.message[j]);
    }
    if (last >= 0) c->ms = s.node[last].ms;
    free(stack);
    free(s.message);
    free(s.node);
}
