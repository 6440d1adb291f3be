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

static int find_job(const struct sgrad__timeline *timeline, int64_t id) {
    int low = 0, high = timeline->jobs;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (timeline->job[middle].id < id) low = middle + 1;
        else high = middle;
    }
    return low < timeline->jobs && timeline->job[low].id == id ? low : -1;
}

static double wire(const struct search *search, int message) {
    return message < 0 ? 0 : search->t->message[message].bytes / search->rate;
}

/* Returns the N-th predecessor of J: first its dependencies, then the job that sends its message; -1: it is not in the trace. */
static int before(const struct search *search, int j, int n) {
    const struct sgrad__timeline_job *job = &search->t->job[j];
    return find_job(search->t, n < job->count ? search->t->before[job->first + n] : search->t->message[search->message[j]].sends);
}

static int befores(const struct search *search, int j) { return search->t->job[j].count + (search->message[j] >= 0); }

/* Finds the longest chain to J from those of its predecessors, which must be settled. */
static void settle(struct search *search, int j) {
    double most = 0;
    int longest = -1;
    for (int n = 0; n < befores(search, j); n++) {
        const int b = before(search, j, n);
        if (b < 0 || !search->node[b].settled) continue;     /* in a damaged trace, jobs may wait for each other */
        const double ms = search->node[b].ms + (n == search->t->job[j].count ? wire(search, search->message[j]) : 0);
        if (ms > most) most = ms, longest = b;
    }
    search->node[j].ms = most + search->t->job[j].ms;
    search->node[j].before = longest;
    search->node[j].settled = true;
}

/* Depth-first search with an explicit stack, because a chain may have a million jobs. */
static void visit(struct search *search, int *stack, int from) {
    int depth = 0;
    stack[depth++] = from;
    while (depth) {
        const int j = stack[depth - 1];
        struct node *node = &search->node[j];
        int waits = -1;
        node->entered = true;
        while (waits < 0 && node->seen < befores(search, j)) {
            const int b = before(search, j, node->seen++);
            if (b >= 0 && !search->node[b].entered) waits = b;
        }
        if (waits >= 0) {
            stack[depth++] = waits;
        } else {
            settle(search, j);
            depth--;
        }
    }
}

static void find_messages(struct search *search) {
    for (int i = 0; i < search->t->jobs; i++) search->message[i] = -1;
    search->rate = 1;
    for (int i = 0; i < search->t->messages; i++) {
        const struct sgrad__timeline_message *m = &search->t->message[i];
        const int j = m->receives ? find_job(search->t, m->receives) : -1;
        if (j >= 0) search->message[j] = i;
        if (m->bytes >= LARGE && m->end > m->begin) search->rate = fmax(search->rate, m->bytes / (m->end - m->begin));
    }
}

static double find_work(const struct sgrad__timeline *timeline) {
    double most = 0, *ms = sgrad_xcalloc((size_t)timeline->ranks, sizeof *ms);
    int *workers = sgrad_xcalloc((size_t)timeline->ranks, sizeof *workers);
    for (int i = 0; i < timeline->rows; i++) workers[timeline->row[i].rank]++;
    for (int i = 0; i < timeline->tasks; i++)
        ms[timeline->row[timeline->task[i].worker].rank] += timeline->task[i].end - timeline->task[i].begin;
    for (int r = 0; r < timeline->ranks; r++)
        if (workers[r]) most = fmax(most, ms[r] / workers[r]);
    free(workers);
    free(ms);
    return most;
}

/* Returns a lower bound of the time: the critical path, or the work of a worker. StarPU also computes a bound
 * (starpu_bound_compute: tasks of each kind distributed over workers of each kind). With identical workers, that bound is the
 * work of a worker, but in times of StarPU's performance models instead of measured ones: the mean of all runs minus a standard
 * deviation, which depends more on the noise than on the order (docs/performance/traces.md). */
double sgrad__critical_bound(const struct sgrad__critical *critical) { return fmax(critical->ms, critical->work); }

void sgrad__critical_find(const struct sgrad__timeline *timeline, struct sgrad__critical *critical) {
    struct search s = { .t = timeline,
                        .node = sgrad_xcalloc((size_t)timeline->jobs + 1, sizeof *s.node),
                        .message = sgrad_xcalloc((size_t)timeline->jobs + 1, sizeof *s.message) };
    int *stack = sgrad_xcalloc((size_t)timeline->jobs + 1, sizeof *stack), last = -1;
    *critical = (struct sgrad__critical){ .work = find_work(timeline) };
    find_messages(&s);
    for (int j = 0; j < timeline->jobs; j++) {
        if (!s.node[j].entered) visit(&s, stack, j);
        if (last < 0 || s.node[j].ms > s.node[last].ms) last = j;
    }
    for (int j = last; j >= 0; j = s.node[j].before) {
        const struct sgrad__timeline_job *job = &timeline->job[j];
        if (job->kind >= 0) critical->kind[job->kind] += job->ms;
        if (s.message[j] >= 0 && s.node[j].before == find_job(timeline, timeline->message[s.message[j]].sends))
            critical->messages += wire(&s, s.message[j]);
    }
    if (last >= 0) critical->ms = s.node[last].ms;
    free(stack);
    free(s.message);
    free(s.node);
}
