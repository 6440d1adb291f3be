/* overlap.c: where the time of a traced stretch went: for each worker by kind of task, for each rank how much of its
 * communication was hidden, for each layer how long its tasks took.
 *
 *     messages     ├──────────┤      ├────┤          communication: their union
 *     worker 0   ██████·   ██████████·   ████        · scheduling, fetching: in no task, but in StarPU
 *                       ‾‾‾           ‾‾‾            waiting: in neither, while a message is under way
 *
 * Hidden is communication less the workers' mean of waiting. That a worker waits while a message is under way does not prove
 * that it waits for this one. Where several are, the moment counts for the one that arrives first: the wire is its. */
#include "report/overlap.h"
#include "runtime/runtime.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct span {
    double begin, end;
};

static int by_begin(const void *one, const void *other) {
    const struct span *a = one, *b = other;
    return (a->begin > b->begin) - (a->begin < b->begin);
}

/* Makes the spans disjoint, in order of time. Returns how many are left. */
static int unite(struct span *span, int count) {
    int kept = 0;
    qsort(span, (size_t)count, sizeof *span, by_begin);
    for (int i = 0; i < count; i++) {
        if (kept && span[i].begin <= span[kept - 1].end) span[kept - 1].end = fmax(span[kept - 1].end, span[i].end);
        else span[kept++] = span[i];
    }
    return kept;
}

static double length(const struct span *span, int count) {
    double sum = 0;
    for (int i = 0; i < count; i++) sum += span[i].end - span[i].begin;
    return sum;
}

/* Of two lists of disjoint spans: how long both are in one. */
static double common(const struct span *a, int as, const struct span *b, int bs) {
    double sum = 0;
    for (int i = 0, j = 0; i < as && j < bs;) {
        sum += fmax(0, fmin(a[i].end, b[j].end) - fmax(a[i].begin, b[j].begin));
        if (a[i].end < b[j].end) i++;
        else j++;
    }
    return sum;
}

/* ---- layers ---- */

static int layer_length(const char *name) { return (int)strcspn(name, " "); }

static int by_layer(const void *one, const void *other) {
    const struct sgrad__overlap_layer *a = one, *b = other;
    const int shorter = a->length < b->length ? a->length : b->length, order = strncmp(a->name, b->name, (size_t)shorter);
    return order ? order : a->length - b->length;
}

static int by_time(const void *one, const void *other) {
    const struct sgrad__overlap_layer *a = one, *b = other;
    return (a->ms < b->ms) - (a->ms > b->ms);
}

/* Williams et al. 2009: a task takes at least as long as its arithmetic, and as its operands' way from memory and back. */
static double roof_ms(const struct sgrad__timeline_task *task, const struct sgrad__timeline_row *row) {
    return row->gflops > 0 && row->gbytes > 0 ? 1e3 * fmax(task->gflop / row->gflops, task->gbyte / row->gbytes) : 0;
}

static void find_layers(const struct sgrad__timeline *t, struct sgrad__overlap *o) {
    o->layer = sgrad_alloc((size_t)t->tasks, sizeof *o->layer);
    for (int i = 0; i < t->tasks; i++) {
        const struct sgrad__timeline_task *task = &t->task[i];
        o->layer[i] = (struct sgrad__overlap_layer){ task->name, layer_length(task->name), task->end - task->begin, task->gflop, task->gbyte,
                                                        roof_ms(task, &t->row[task->worker]) };
    }
    qsort(o->layer, (size_t)t->tasks, sizeof *o->layer, by_layer);
    for (int i = 0; i < t->tasks; i++) {
        struct sgrad__overlap_layer *last = o->layers ? &o->layer[o->layers - 1] : NULL;
        if (last && by_layer(last, &o->layer[i]) == 0) {
            last->ms += o->layer[i].ms;
            last->gflop += o->layer[i].gflop;
            last->gbyte += o->layer[i].gbyte;
            last->roof_ms += o->layer[i].roof_ms;
        } else {
            o->layer[o->layers++] = o->layer[i];
        }
    }
    qsort(o->layer, (size_t)o->layers, sizeof *o->layer, by_time);
}

/* ---- ranks and their workers ---- */

/* To COUNT disjoint spans of BUSY come those in which the row was in the state. */
static int add_state(const struct sgrad__timeline *t, int which, enum sgrad__state state, struct span *busy, int count) {
    for (int i = 0; i < t->spans; i++) {
        const struct sgrad__timeline_span *span = &t->span[i];
        const double begin = fmax(0, span->begin), end = fmin(t->length, span->end);
        if (span->row == which && span->state == state && begin < end) busy[count++] = (struct span){ begin, end };
    }
    return unite(busy, count);
}

/* Returns how many disjoint spans of BUSY are left in which it neither waited nor was idle. */
static int find_row(const struct sgrad__timeline *t, int which, const struct span *wire, int wires, struct span *busy, struct sgrad__overlap_row *row) {
    int count = 0;
    for (int i = 0; i < t->tasks; i++) {
        const struct sgrad__timeline_task *task = &t->task[i];
        if (task->worker != which) continue;
        row->kind[task->kind] += task->end - task->begin;
        busy[count++] = (struct span){ task->begin, task->end };
    }
    count = unite(busy, count);
    const double tasks = length(busy, count);
    count = add_state(t, which, SGRAD__SCHEDULING, busy, count);
    row->scheduling = length(busy, count) - tasks;
    count = add_state(t, which, SGRAD__FETCHING, busy, count);
    row->fetching = length(busy, count) - tasks - row->scheduling;
    row->waiting = length(wire, wires) - common(wire, wires, busy, count);
    row->idle = t->length - length(busy, count) - row->waiting;
    return count;
}

/* A rank's messages, by their end. */
struct mail {
    int count;
    const struct sgrad__timeline_message **message;
};

static int by_end(const void *one, const void *other) {
    const struct sgrad__timeline_message *a = *(const struct sgrad__timeline_message *const *)one, *b = *(const struct sgrad__timeline_message *const *)other;
    return (a->end > b->end) - (a->end < b->end);
}

static void find_mail(const struct sgrad__timeline *t, int rank, struct mail *mail) {
    mail->count = 0;
    for (int i = 0; i < t->messages; i++)
        if (t->message[i].from == rank || t->message[i].to == rank) mail->message[mail->count++] = &t->message[i];
    if (mail->count) qsort(mail->message, (size_t)mail->count, sizeof *mail->message, by_end);
}

/* Adds to each parcel of EXPOSED its part of a wait, through which messages are under way. */
static void share_wait(const struct mail *mail, struct span wait, double *exposed, int stride) {
    int first = 0;
    for (double at = wait.begin; at < wait.end;) {
        const struct sgrad__timeline_message *arrives = NULL;
        double until = wait.end;
        while (first < mail->count && mail->message[first]->end <= at) first++;
        for (int i = first; i < mail->count && !arrives; i++) {
            if (mail->message[i]->begin <= at) arrives = mail->message[i];
            else until = fmin(until, mail->message[i]->begin);
        }
        if (arrives) {
            until = fmin(until, arrives->end);
            exposed[arrives->parcel * stride] += until - at;
        }
        at = until;
    }
}

static void share_waits(const struct sgrad__timeline *t, const struct mail *mail, const struct span *wire, int wires, const struct span *busy, int count,
                        double *exposed) {
    for (int i = 0, j = 0; i <= count && j < wires;) {
        const double from = i ? busy[i - 1].end : 0, to = i < count ? busy[i].begin : t->length;
        share_wait(mail, (struct span){ fmax(from, wire[j].begin), fmin(to, wire[j].end) }, exposed, t->ranks);
        if (to < wire[j].end) i++;
        else j++;
    }
}

/* Which task, by its name without the micro-batch, its workers were waiting before, and for how long, while messages were under way. */
static void find_awaited(const struct sgrad__timeline *t, int which, const struct span *wire, int wires, struct sgrad__overlap_rank *rank) {
    struct sgrad__overlap_layer *found = sgrad_alloc((size_t)t->tasks, sizeof *found);   /* here: by task, and the wait before it */
    int count = 0;
    double end = 0;
    for (int i = 0; i < t->tasks; i++) {
        const struct sgrad__timeline_task *task = &t->task[i];
        if (task->worker != which) continue;
        const double wait = task->begin > end ? common(wire, wires, &(struct span){ end, task->begin }, 1) : 0;
        end = fmax(end, task->end);
        if (wait <= 0) continue;
        const int length = (int)strcspn(task->name, "#");
        int j = 0;
        while (j < count && (found[j].length != length || strncmp(found[j].name, task->name, (size_t)length))) j++;
        if (j == count) found[count++] = (struct sgrad__overlap_layer){ .name = task->name, .length = length };
        if ((found[j].ms += wait) > rank->awaited_ms) rank->awaited = task->name, rank->awaited_ms = found[j].ms;
    }
    free(found);
}

/* What is under way within the stretch. */
static int find_wire(const struct sgrad__timeline *t, int rank, struct span *wire, double *megabytes) {
    int count = 0;
    for (int i = 0; i < t->messages; i++) {
        const struct sgrad__timeline_message *m = &t->message[i];
        const double begin = fmax(0, m->begin), end = fmin(t->length, m->end);
        if (m->to == rank) *megabytes += 1e-6 * m->bytes;
        if ((m->from == rank || m->to == rank) && begin < end) wire[count++] = (struct span){ begin, end };
    }
    return unite(wire, count);
}

static const char *const others[] = { "scheduling", "fetching data", "waiting for messages", "idle" };
enum { OTHERS = sizeof others / sizeof *others };

int sgrad__shares(const struct sgrad__timeline *t) { return t->kinds.count + OTHERS; }

const char *sgrad__share_name(const struct sgrad__timeline *t, int share) {
    return share < t->kinds.count ? t->kinds.kind[share].name : others[share - t->kinds.count];
}

double sgrad__share(const struct sgrad__timeline *t, const struct sgrad__overlap_row *row, int share) {
    const double ms[OTHERS] = { row->scheduling, row->fetching, row->waiting, row->idle };
    return share < t->kinds.count ? row->kind[share] : ms[share - t->kinds.count];
}

void sgrad__overlap_find(const struct sgrad__timeline *t, struct sgrad__overlap *o) {
    struct span *wire = sgrad_alloc((size_t)t->messages + 1, sizeof *wire), *busy = sgrad_alloc((size_t)t->tasks + (size_t)t->spans, sizeof *busy);
    struct mail mail = { .message = sgrad_alloc((size_t)t->messages + 1, sizeof *mail.message) };
    *o = (struct sgrad__overlap){ .row = sgrad_alloc((size_t)t->rows, sizeof *o->row), .rank = sgrad_alloc((size_t)t->ranks, sizeof *o->rank),
                                  .exposed = sgrad_alloc((size_t)t->parcels * (size_t)t->ranks + 1, sizeof *o->exposed) };
    for (int r = 0; r < t->ranks; r++) {
        struct sgrad__overlap_rank *rank = &o->rank[r];
        const int wires = find_wire(t, r, wire, &rank->megabytes);
        double waiting = 0;
        int workers = 0;
        find_mail(t, r, &mail);
        for (int i = 0; i < t->rows; i++) {
            if (t->row[i].rank != r) continue;
            const int count = find_row(t, i, wire, wires, busy, &o->row[i]);
            share_waits(t, &mail, wire, wires, busy, count, &o->exposed[r]);
            find_awaited(t, i, wire, wires, rank);
            waiting += o->row[i].waiting;
            workers++;
        }
        for (int p = 0; p < t->parcels && workers; p++) o->exposed[p * t->ranks + r] /= workers;
        rank->communication = length(wire, wires);
        rank->hidden = workers ? rank->communication - waiting / workers : 0;
    }
    find_layers(t, o);
    free(mail.message);
    free(wire);
    free(busy);
}

void sgrad__overlap_free(struct sgrad__overlap *o) {
    free(o->row);
    free(o->rank);
    free(o->exposed);
    free(o->layer);
    *o = (struct sgrad__overlap){ 0 };
}
