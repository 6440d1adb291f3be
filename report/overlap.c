/* overlap.c: the use of time in a trace: for each worker by kind of task, for each rank the hidden fraction of communication.
 *
 *     messages     ├──────────┤      ├────┤          communication: their union
 *     worker 0   ██████·   ██████████·   ████        · scheduling, fetching: outside tasks, in StarPU
 *                       ‾‾‾           ‾‾‾            waiting: in neither, while a message is in progress
 *
 * Hidden is communication minus the workers' mean waiting time. A worker that waits while a message is in progress does not
 * necessarily wait for that message. While several messages are in progress, the time is attributed to the one that arrives
 * first, since it occupies the link.
 *
 * Every list is sorted once and traversed once, so that the time grows almost linearly with the number of tasks. */
#include "report/overlap.h"
#include "report/spans.h"
#include "runtime/runtime.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* An interval of a rank's communication, and the parcel of the message that arrives next. */
struct head {
    double begin, end;
    int parcel;
};
/* The change, at this time, of the number of a rank's workers that are in a task or in StarPU. */
struct edge {
    double ms;
    int more;
};
struct search {
    const struct sgrad__timeline *t;
    const struct sgrad__timeline_message **messages;    /* messages of the current rank, by end */
    int mails, heads, edges;
    struct sgrad__spans wire;           /* intervals with messages in progress */
    struct head *head;
    struct edge *edge;
    struct sgrad__span *busy;           /* of the current row */
    int *awaits;                        /* by task: number of its name without the micro-batch */
    double *awaited;                    /* by that number: ms of the current row; 0 between rows */
};

/* ---- messages of a rank ---- */

static int by_end(const void *one, const void *other) {
    const struct sgrad__timeline_message *a = *(const struct sgrad__timeline_message *const *)one,
                                         *b = *(const struct sgrad__timeline_message *const *)other;
    return a->end != b->end ? (a->end > b->end) - (a->end < b->end) : (a > b) - (a < b);
}

/* Returns all messages, by rank, then by end; a message occurs in the lists of both of its ranks. FIRST[r]: index of the first
 * message of rank r. */
static const struct sgrad__timeline_message **sort_messages(const struct sgrad__timeline *timeline, int *first) {
    const struct sgrad__timeline_message **all = sgrad_xcalloc((size_t)timeline->messages + 1, sizeof *all),
                                         **messages = sgrad_xcalloc(2 * (size_t)timeline->messages + 1, sizeof *messages);
    int *next = sgrad_xcalloc((size_t)timeline->ranks + 1, sizeof *next);
    for (int i = 0; i < timeline->messages; i++) {
        all[i] = &timeline->message[i];
        first[all[i]->from + 1]++;
        if (all[i]->to != all[i]->from) first[all[i]->to + 1]++;
    }
    for (int r = 0; r < timeline->ranks; r++) next[r + 1] = first[r + 1] += first[r];
    if (timeline->messages) qsort(all, (size_t)timeline->messages, sizeof *all, by_end);
    for (int i = 0; i < timeline->messages; i++) {
        messages[next[all[i]->from]++] = all[i];
        if (all[i]->to != all[i]->from) messages[next[all[i]->to]++] = all[i];
    }
    free(next);
    free(all);
    return messages;
}

/* Finds the intervals within the trace in which messages are in progress. */
static void find_wire(struct search *search, int rank, double *megabytes) {
    search->wire.count = 0;
    for (int i = 0; i < search->mails; i++) {
        const struct sgrad__timeline_message *m = search->messages[i];
        const double begin = fmax(0, m->begin), end = fmin(search->t->length, m->end);
        if (m->to == rank) *megabytes += 1e-6 * m->bytes;
        if (begin < end) search->wire.span[search->wire.count++] = (struct sgrad__span){ begin, end };
    }
    sgrad__spans_settle(&search->wire);
}

static int by_begin(const void *one, const void *other) {
    const struct head *a = one, *b = other;
    return (a->begin > b->begin) - (a->begin < b->begin);
}

/* In the order of their ends, each message is attributed the time within its interval that no earlier message has taken. TAKEN
 * is a stack of the taken intervals, sorted by end. An interval includes those that it has replaced. */
static void find_heads(struct search *search) {
    struct sgrad__span *taken = sgrad_xcalloc((size_t)search->mails + 1, sizeof *taken);
    int depth = 0;
    search->heads = 0;
    for (int i = 0; i < search->mails; i++) {
        const struct sgrad__timeline_message *m = search->messages[i];
        double begin = fmax(0, m->begin), free_until = fmin(search->t->length, m->end);
        const double end = free_until;
        if (begin >= end) continue;
        for (; depth && taken[depth - 1].end > begin; depth--) {
            if (taken[depth - 1].end < free_until)
                search->head[search->heads++] = (struct head){ taken[depth - 1].end, free_until, m->parcel };
            free_until = fmin(free_until, taken[depth - 1].begin);
        }
        if (begin < free_until) search->head[search->heads++] = (struct head){ begin, free_until, m->parcel };
        begin = fmin(begin, free_until);
        taken[depth++] = (struct sgrad__span){ begin, end };
    }
    if (search->heads) qsort(search->head, (size_t)search->heads, sizeof *search->head, by_begin);
    free(taken);
}

/* ---- workers of a rank ---- */

/* Merges the COUNT spans into disjoint ones, and returns their total length. */
static double unite(struct sgrad__span *busy, int *count) {
    double sum = 0;
    *count = sgrad__spans_unite(busy, *count);
    for (int i = 0; i < *count; i++) sum += busy[i].end - busy[i].begin;
    return sum;
}

/* Adds the spans in which the row was in STATE to the COUNT disjoint spans of BUSY. Returns the new total length. */
static double add_state(const struct search *search, const struct sgrad__timeline_row *row, enum sgrad__state state, int *count) {
    for (int i = row->first_span; i < row->first_span + row->spans; i++) {
        const struct sgrad__timeline_span *span = &search->t->span[i];
        const double begin = fmax(0, span->begin), end = fmin(search->t->length, span->end);
        if (span->state == state && begin < end) search->busy[(*count)++] = (struct sgrad__span){ begin, end };
    }
    return unite(search->busy, count);
}

static void find_row(struct search *search, const struct sgrad__timeline_row *row, struct sgrad__overlap_row *found) {
    int count = 0;
    for (int i = row->first; i < row->first + row->tasks; i++) {
        const struct sgrad__timeline_task *task = &search->t->task[i];
        found->kind[task->kind] += task->end - task->begin;
        search->busy[count++] = (struct sgrad__span){ task->begin, task->end };
    }
    const double tasks = unite(search->busy, &count), scheduled = add_state(search, row, SGRAD__SCHEDULING, &count),
                 fetched = add_state(search, row, SGRAD__FETCHING, &count);
    double hidden = 0;
    for (int i = 0; i < count; i++) {
        hidden +=
            sgrad__spans_before(&search->wire, search->busy[i].end) - sgrad__spans_before(&search->wire, search->busy[i].begin);
        search->edge[search->edges++] = (struct edge){ search->busy[i].begin, 1 };
        search->edge[search->edges++] = (struct edge){ search->busy[i].end, -1 };
    }
    found->scheduling = scheduled - tasks;
    found->fetching = fetched - scheduled;
    found->waiting = sgrad__spans_length(&search->wire) - hidden;
    found->idle = search->t->length - fetched - found->waiting;
}

/* Finds the task, by its name without the micro-batch, before which a worker waited longest while messages were in progress, and
 * this time. */
static void find_awaited(struct search *search, const struct sgrad__timeline_row *row, struct sgrad__overlap_rank *rank) {
    double end = 0;
    for (int i = row->first; i < row->first + row->tasks; i++) {
        const struct sgrad__timeline_task *task = &search->t->task[i];
        const double wait =
            task->begin > end ? sgrad__spans_before(&search->wire, task->begin) - sgrad__spans_before(&search->wire, end) : 0;
        double *sum = &search->awaited[search->awaits[i]];
        end = fmax(end, task->end);
        if (wait > 0 && (*sum += wait) > rank->awaited_ms) rank->awaited = task->name, rank->awaited_ms = *sum;
    }
    for (int i = row->first; i < row->first + row->tasks; i++) search->awaited[search->awaits[i]] = 0;
}

static void number_names(struct search *search) {
    struct sgrad__numbers names = { 0 };
    for (int i = 0; i < search->t->tasks; i++)
        search->awaits[i] = sgrad__number(&names, search->t->task[i].name, strcspn(search->t->task[i].name, "#"));
    search->awaited = sgrad_xcalloc((size_t)names.count, sizeof *search->awaited);
    sgrad__numbers_free(&names);
}

static int by_time(const void *one, const void *other) {
    const struct edge *a = one, *b = other;
    return (a->ms > b->ms) - (a->ms < b->ms);
}

/* Distributes the mean waiting time of WORKERS over the parcels that cause it: EXPOSED[parcel * ranks]. */
static void share_waits(struct search *search, int workers, double *exposed) {
    int working = 0, next = 0;
    if (search->edges) qsort(search->edge, (size_t)search->edges, sizeof *search->edge, by_time);
    for (int i = 0; i < search->heads; i++) {
        const struct head *head = &search->head[i];
        double at = head->begin, sum = 0;
        for (; next < search->edges && search->edge[next].ms < head->end; next++) {
            if (search->edge[next].ms > at) sum += (workers - working) * (search->edge[next].ms - at), at = search->edge[next].ms;
            working += search->edge[next].more;
        }
        exposed[(size_t)head->parcel * (size_t)search->t->ranks] += (sum + (workers - working) * (head->end - at)) / workers;
    }
}

/* ---- entry points ---- */

static void find_rank(struct search *search, int r, struct sgrad__overlap *overlap) {
    const struct sgrad__timeline *t = search->t;
    struct sgrad__overlap_rank *rank = &overlap->rank[r];
    const int workers = t->first_row[r + 1] - t->first_row[r];
    double waiting = 0;
    find_wire(search, r, &rank->megabytes);
    find_heads(search);
    search->edges = 0;
    for (int i = t->first_row[r]; i < t->first_row[r + 1]; i++) {
        find_row(search, &t->row[i], &overlap->row[i]);
        find_awaited(search, &t->row[i], rank);
        waiting += overlap->row[i].waiting;
    }
    rank->communication = sgrad__spans_length(&search->wire);
    rank->hidden = workers ? rank->communication - waiting / workers : 0;
    if (workers) share_waits(search, workers, &overlap->exposed[r]);
}

void sgrad__overlap_find(const struct sgrad__timeline *timeline, struct sgrad__overlap *overlap) {
    const size_t mails = 2 * (size_t)timeline->messages + 1, busy = (size_t)timeline->tasks + (size_t)timeline->spans + 1;
    int *first = sgrad_xcalloc((size_t)timeline->ranks + 1, sizeof *first);
    const struct sgrad__timeline_message **messages = sort_messages(timeline, first);
    struct search s = { .t = timeline,
                        .head = sgrad_xcalloc(2 * mails, sizeof *s.head),
                        .edge = sgrad_xcalloc(2 * busy, sizeof *s.edge),
                        .wire = { .span = sgrad_xcalloc(mails, sizeof *s.wire.span),
                                  .before = sgrad_xcalloc(mails + 1, sizeof *s.wire.before) },
                        .busy = sgrad_xcalloc(busy, sizeof *s.busy),
                        .awaits = sgrad_xcalloc((size_t)timeline->tasks, sizeof *s.awaits) };
    *overlap = (struct sgrad__overlap){ .row = sgrad_xcalloc((size_t)timeline->rows, sizeof *overlap->row),
                                        .rank = sgrad_xcalloc((size_t)timeline->ranks, sizeof *overlap->rank),
                                        .exposed = sgrad_xcalloc((size_t)timeline->parcels * (size_t)timeline->ranks + 1,
                                                                 sizeof *overlap->exposed) };
    number_names(&s);
    for (int r = 0; r < timeline->ranks; r++) {
        s.messages = messages + first[r];
        s.mails = first[r + 1] - first[r];
        find_rank(&s, r, overlap);
    }
    overlap->layers = sgrad__layers_find(timeline, &overlap->layer);
    free(s.wire.span);
    free(s.wire.before);
    free(s.head);
    free(s.edge);
    free(s.busy);
    free(s.awaits);
    free(s.awaited);
    free(messages);
    free(first);
}

void sgrad__overlap_free(struct sgrad__overlap *overlap) {
    free(overlap->row);
    free(overlap->rank);
    free(overlap->exposed);
    free(overlap->layer);
    *overlap = (struct sgrad__overlap){ 0 };
}

/* ---- fractions of the time ---- */

static const char *const others[] = { "scheduling", "fetching data", "waiting for messages", "idle" };
enum { OTHERS = sizeof others / sizeof *others };

int sgrad__shares(const struct sgrad__timeline *timeline) { return timeline->kinds.count + OTHERS; }

const char *sgrad__share_name(const struct sgrad__timeline *timeline, int share) {
    return share < timeline->kinds.count ? timeline->kinds.kind[share].name : others[share - timeline->kinds.count];
}

double sgrad__share(const struct sgrad__timeline *timeline, const struct sgrad__overlap_row *row, int share) {
    const double ms[OTHERS] = { row->scheduling, row->fetching, row->waiting, row->idle };
    return share < timeline->kinds.count ? row->kind[share] : ms[share - timeline->kinds.count];
}
