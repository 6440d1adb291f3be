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
 * 1. Evict. The tasks are visited in order. If a task needs more memory than is free, a buffer that is used again late leaves
 *    (L. A. Belady, A study of replacement algorithms for a virtual-storage computer, 1966, for buffers of one size). Its content
 *    is written right after the task that has changed it last, so that writing can end before memory is needed. Content that the
 *    file already has is not written again. Buffers with a home, such as optimizer states, are read before their first use, and
 *    written after each change.
 * 2. Prefetch. The last read must end when its buffer is used; the reads before it must end before that one starts. This gives
 *    the latest start of each read. Then, in the order of uses, each read is moved forward to this start, as far as memory is
 *    free.
 * 3. Predict. The tasks run one after another, beside one write and one read at a time.
 *
 * If tasks wait, this is repeated with other rules for the choice of buffers (enum rule), and the shortest plan is used. On small
 * random problems, plans take 1 % more time than exact ones on average (tests/graphs/compiler/residence_exact.c).
 *
 * Buffers of tasks that may still run, or that are being written, leave only if there is no other way: the task then waits.
 *
 * Limits: the choice of a buffer does not depend on other moves that are in progress. */
#include "graphs/compiler/passes/residence.h"
#include "runtime/runtime.h"

#include <stdlib.h>
#include <string.h>

/* Of the buffers that may leave, one leaves with the highest: time until its next use, per time to move a byte of it; the same
 * times the fraction of its bytes that is needed; this fraction alone, per time to move a byte. */
enum rule { LATEST, LATEST_NEEDED, CHEAPEST_NEEDED, RULES };

/* The state of a buffer while the tasks are visited. */
struct state {
    int uses, *use;                 /* the tasks that use it */
    int next;                       /* index of its next use */
    bool here, stored;              /* it is in memory; the file has its content */
    int changed;                    /* the last task that has changed it */
    int due;                        /* after its last use: the task from which on its memory is free without a wait */
    int absence;                    /* index of the last one; -1: none */
    int other;                      /* the next buffer with the same home, in a circle */
    bool passes;                    /* another buffer has its memory from its last use on */
};

struct planner {
    const struct sgrad__residence_problem *is;
    struct sgrad__residence *result;
    enum rule rule;
    struct state *state;
    double *used;                   /* bytes in memory, by task */
    double *start;                  /* time at which each task starts, if nothing waits; the last element is the end */
    int *changed;                   /* by home: the task after the last one that wrote it so far */
    int dead, *ending;              /* buffers in memory after their last use */
};

/* ---- uses ---- */

static void find_uses(struct planner *planner) {
    const struct sgrad__residence_problem *p = planner->is;
    for (int k = 0; k < p->tasks; k++)
        for (int j = 0; j < p->task[k].count; j++) {
            struct state *s = &planner->state[p->task[k].buffer[j]];
            s->use = sgrad_array_grow(s->use, s->uses, sizeof *s->use);
            s->use[s->uses++] = k;
        }
}

/* Returns the buffer whose memory B has from its first use on; -1: none. */
static int other_of(const struct planner *planner, int b) { return planner->is->over ? planner->is->over[b] : -1; }

static int home_of(const struct planner *planner, int b) { return planner->is->home ? planner->is->home[b] : -1; }

/* Connects the buffers of each home to a circle. */
static void connect(struct planner *planner) {
    const int buffers = planner->is->buffers;
    int *last = sgrad_xcalloc((size_t)buffers + 1, sizeof *last);       /* by home: 1 + its last buffer; 0: none */
    for (int b = 0; b < buffers; b++) {
        const int home = home_of(planner, b);
        planner->state[b].other = b;
        if (home < 0) continue;
        planner->state[b].stored = true;
        if (last[home]) {
            planner->state[b].other = planner->state[last[home] - 1].other;
            planner->state[last[home] - 1].other = b;
        }
        last[home] = b + 1;
    }
    free(last);
}

static struct planner open_planner(const struct sgrad__residence_problem *problem, enum rule rule,
                                   struct sgrad__residence *result) {
    struct planner planner = { .is = problem, .rule = rule, .result = result,
                               .state = sgrad_xcalloc((size_t)problem->buffers + 1, sizeof *planner.state),
                               .used = sgrad_xcalloc((size_t)problem->tasks + 1, sizeof *planner.used),
                               .start = sgrad_xcalloc((size_t)problem->tasks + 1, sizeof *planner.start),
                               .changed = sgrad_xcalloc((size_t)problem->buffers + 1, sizeof *planner.changed),
                               .ending = sgrad_xcalloc((size_t)problem->buffers + 1, sizeof *planner.ending) };
    find_uses(&planner);
    connect(&planner);
    for (int b = 0; b < problem->buffers; b++) {
        planner.state[b].absence = -1;
        if (other_of(&planner, b) >= 0) planner.state[other_of(&planner, b)].passes = true;
    }
    for (int k = 0; k < problem->tasks; k++) planner.start[k + 1] = planner.start[k] + problem->task[k].seconds;
    return planner;
}

static void close_planner(struct planner *planner) {
    for (int b = 0; b < planner->is->buffers; b++) free(planner->state[b].use);
    free(planner->state);
    free(planner->used);
    free(planner->start);
    free(planner->changed);
    free(planner->ending);
}

double sgrad__residence_peak(const struct sgrad__residence_problem *problem) {
    struct planner planner = open_planner(problem, LATEST, NULL);
    double *change = sgrad_xcalloc((size_t)problem->tasks + 1, sizeof *change), now = 0, most = 0;
    for (int b = 0; b < problem->buffers; b++) {
        const struct state *s = &planner.state[b];
        if (s->uses) change[s->use[0]] += problem->bytes[b], change[s->use[s->uses - 1] + 1] -= problem->bytes[b];
    }
    for (int k = 0; k < problem->tasks; k++) {
        now += change[k];
        if (now > most) most = now;
    }
    free(change);
    close_planner(&planner);
    return most;
}

/* ---- eviction ---- */

/* Returns true if a task that uses the buffer last before task K may still run when K starts. */
static bool may_run(const struct planner *planner, const struct state *s, int k) {
    return s->next && s->use[s->next - 1] > k - planner->is->running;
}

/* Returns the value of buffer B by the rule, if it leaves before task K, which lacks MISSING bytes. */
static double worth(const struct planner *planner, int b, int k, double missing) {
    const struct sgrad__residence_problem *p = planner->is;
    const struct state *s = &planner->state[b];
    const double needed = p->bytes[b] > missing ? missing / p->bytes[b] : 1,
                 until = planner->start[s->use[s->next]] - planner->start[k],
                 move = 1 / p->read + (s->stored ? 0 : 1 / p->write);
    return (planner->rule == CHEAPEST_NEEDED ? 1 : until) * (planner->rule == LATEST ? 1 : needed) / move;
}

/* Returns the buffer in memory that leaves before task K, which lacks MISSING bytes; -1: there is none. RUNNING: it may be used
 * by tasks that may still run. */
static int find_victim(const struct planner *planner, int k, double missing, bool running) {
    double most = 0;
    int best = -1;
    for (int b = 0; b < planner->is->buffers; b++) {
        const struct state *s = &planner->state[b];
        if (!s->here || s->next == s->uses || s->use[s->next] == k) continue;
        if (planner->is->fixed[b] || planner->is->bytes[b] <= 0) continue;
        if (!running && may_run(planner, s, k)) continue;
        const double is = worth(planner, b, k, missing);
        if (best < 0 || is > most) best = b, most = is;
    }
    return best;
}

static void add_absence(struct planner *planner, int b, int release, int from) {
    struct state *s = &planner->state[b];
    struct sgrad__residence *r = planner->result;
    const int use = s->use[s->next];
    r->absence = sgrad_array_grow(r->absence, r->count, sizeof *r->absence);
    r->absence[r->count] = (struct sgrad__absence){ b, s->stored ? -1 : s->changed, release, from, use, use };
    if (!s->stored) r->written += planner->is->bytes[b];
    r->read += planner->is->bytes[b];
    s->here = false, s->stored = true;
    s->absence = r->count++;
}

/* Frees buffer number I of those that have ended, from task K on. */
static void end_for_good(struct planner *planner, int i, int k, double *now) {
    const int b = planner->ending[i];
    planner->result->end[b] = k;
    planner->state[b].here = false;
    *now -= planner->is->bytes[b];
    planner->ending[i] = planner->ending[--planner->dead];
}

/* Returns the ended buffer that is due first; -1: there is none. RUNNING: as above. */
static int find_ended(const struct planner *planner, int k, bool running) {
    int best = -1;
    for (int i = 0; i < planner->dead; i++) {
        const struct state *s = &planner->state[planner->ending[i]];
        if (!running && may_run(planner, s, k)) continue;
        if (best < 0 || s->due < planner->state[planner->ending[best]].due) best = i;
    }
    return best;
}

/* Frees memory for task K, which lacks MISSING bytes. Returns false if nothing can leave. */
static bool make_room(struct planner *planner, int k, double missing, double *now) {
    for (int running = 0; running < 2; running++) {
        const int ended = find_ended(planner, k, running), victim = ended < 0 ? find_victim(planner, k, missing, running) : -1;
        if (ended >= 0) return end_for_good(planner, ended, k, now), true;
        if (victim < 0) continue;
        add_absence(planner, victim, k, k + 1);
        *now -= planner->is->bytes[victim];
        return true;
    }
    return false;
}

/* The task that uses the buffer last is K. It is due when no other task that runs with K can still run and, if K writes it, when
 * its home is probably written. */
static void end_use(struct planner *planner, int b, int k, bool written) {
    const struct sgrad__residence_problem *p = planner->is;
    const double until = planner->start[k + 1] + (written ? 2 * p->bytes[b] / p->write : 0);
    int due = k + p->running;
    while (due < p->tasks && planner->start[due] < until) due++;
    planner->state[b].due = due;
    planner->ending[planner->dead++] = b;
}

/* Another buffer has the memory of B after task K. */
static void pass_on(struct planner *planner, int b, int k) {
    planner->state[b].here = false;
    planner->result->end[b] = k + 1;
}

/* Task K has changed buffer B: copies of its content, and of parts of it, are out of date. */
static void drop_copies(struct planner *planner, int b, int k, double *now) {
    planner->changed[home_of(planner, b)] = k + 1;
    planner->result->written += planner->is->bytes[b];
    for (int c = planner->state[b].other; c != b; c = planner->state[c].other) {
        const struct state *s = &planner->state[c];
        if (!s->here || s->next == s->uses) continue;
        add_absence(planner, c, k + 1, k + 1);
        *now -= planner->is->bytes[c];
    }
}

/* Buffer B comes to memory for task K. */
static void enter(struct planner *planner, int b) {
    struct state *s = &planner->state[b];
    const int home = home_of(planner, b);
    if (home >= 0 && !s->next) add_absence(planner, b, 0, 0);
    if (home >= 0) {
        struct sgrad__absence *a = &planner->result->absence[s->absence];
        if (planner->changed[home] > a->from) a->from = planner->changed[home];
    }
    s->here = true;
}

/* Returns 0, or the bytes that task K needs. */
static double visit(struct planner *planner, int k, double *now) {
    const struct sgrad__residence_problem *p = planner->is;
    const struct sgrad__task_uses *task = &p->task[k];
    double more = 0;
    for (int i = planner->dead - 1; i >= 0; i--)
        if (planner->state[planner->ending[i]].due <= k) end_for_good(planner, i, k, now);
    for (int j = 0; j < task->count; j++) {
        const struct state *s = &planner->state[task->buffer[j]];
        const bool passed = !s->next && other_of(planner, task->buffer[j]) >= 0;
        if (!s->here && !passed) more += p->bytes[task->buffer[j]];
    }
    while (*now + more > p->limit)
        if (!make_room(planner, k, *now + more - p->limit, now)) return *now + more;
    *now += more;
    planner->used[k] = *now;
    for (int j = 0; j < task->count; j++) {
        const int b = task->buffer[j];
        struct state *s = &planner->state[b];
        if (!s->here) enter(planner, b);
        if (task->writes[j] || !s->next) s->changed = k;
        s->next++;
        const bool returns = task->writes[j] && home_of(planner, b) >= 0;
        if (returns) drop_copies(planner, b, k, now);
        else if (task->writes[j]) s->stored = false;
        if (s->next == s->uses && s->passes) pass_on(planner, b, k);
        else if (s->next == s->uses) end_use(planner, b, k, returns);
    }
    return 0;
}

static int by_use(const void *a, const void *b) {
    const struct sgrad__absence *x = a, *y = b;
    if (x->use != y->use) return (x->use > y->use) - (x->use < y->use);
    return (x->buffer > y->buffer) - (x->buffer < y->buffer);
}

/* ---- prefetch ---- */

static void prefetch(struct planner *planner) {
    const struct sgrad__residence_problem *p = planner->is;
    struct sgrad__residence *r = planner->result;
    const double *start = planner->start;
    double *latest = sgrad_xcalloc((size_t)r->count + 1, sizeof *latest), end = start[p->tasks];
    for (int i = r->count - 1; i >= 0; i--) {
        if (start[r->absence[i].use] < end) end = start[r->absence[i].use];
        latest[i] = end -= p->bytes[r->absence[i].buffer] / p->read;
    }
    for (int i = 0; i < r->count; i++) {
        struct sgrad__absence *a = &r->absence[i];
        const double bytes = p->bytes[a->buffer];
        while (a->fetch > a->from && start[a->fetch] > latest[i] && planner->used[a->fetch - 1] + bytes <= p->limit)
            planner->used[--a->fetch] += bytes;
    }
    free(latest);
}

/* ---- prediction ---- */

static double later(double a, double b) { return a > b ? a : b; }

/* Items, such as absences, by task: lists that begin at FIRST[task]; -1 ends a list. */
struct lists {
    int *first, *next;
};

static struct lists open_lists(int tasks, int items) {
    struct lists l = { sgrad_xcalloc((size_t)tasks + 1, sizeof *l.first), sgrad_xcalloc((size_t)items + 1, sizeof *l.next) };
    for (int k = 0; k <= tasks; k++) l.first[k] = -1;
    return l;
}

static void put(struct lists *lists, int task, int item) {
    lists->next[item] = lists->first[task];
    lists->first[task] = item;
}

static void close_lists(struct lists *lists) {
    free(lists->first);
    free(lists->next);
}

/* What happens before each task: absences begin, are read, and end; buffers end. STORE: after it. */
struct events {
    struct lists release, fetch, use, store, end;
};

static struct events find_events(const struct planner *planner) {
    const struct sgrad__residence *r = planner->result;
    const int tasks = planner->is->tasks;
    struct events e = { open_lists(tasks, r->count), open_lists(tasks, r->count), open_lists(tasks, r->count),
                        open_lists(tasks, r->count), open_lists(tasks, planner->is->buffers) };
    for (int i = r->count - 1; i >= 0; i--) {       /* each list is in the order of uses */
        put(&e.release, r->absence[i].release, i);
        put(&e.fetch, r->absence[i].fetch, i);
        put(&e.use, r->absence[i].use, i);
        if (r->absence[i].store >= 0) put(&e.store, r->absence[i].store, i);
    }
    for (int b = 0; b < planner->is->buffers; b++)
        if (planner->state[b].uses) put(&e.end, r->end[b] < tasks ? r->end[b] : tasks, b);
    return e;
}

static void close_events(struct events *e) {
    close_lists(&e->release);
    close_lists(&e->fetch);
    close_lists(&e->use);
    close_lists(&e->store);
    close_lists(&e->end);
}

static void predict(const struct planner *planner) {
    const struct sgrad__residence_problem *p = planner->is;
    struct sgrad__residence *r = planner->result;
    struct events e = find_events(planner);
    double now = 0, writer = 0, reader = 0, *stored = sgrad_xcalloc((size_t)p->buffers + 1, sizeof *stored),
           *fetched = sgrad_xcalloc((size_t)p->buffers + 1, sizeof *fetched);
    for (int k = 0; k < p->tasks; k++) {
        const double before = now;
        for (int i = e.release.first[k]; i >= 0; i = e.release.next[i]) now = later(now, stored[r->absence[i].buffer]);
        for (int b = e.end.first[k]; b >= 0; b = e.end.next[b]) now = later(now, stored[b]);
        for (int i = e.fetch.first[k]; i >= 0; i = e.fetch.next[i]) {
            const int b = r->absence[i].buffer;
            fetched[b] = reader = later(later(now, reader), stored[b]) + p->bytes[b] / p->read;
        }
        for (int i = e.use.first[k]; i >= 0; i = e.use.next[i]) now = later(now, fetched[r->absence[i].buffer]);
        r->waited += now - before;
        now += p->task[k].seconds;
        for (int i = e.store.first[k]; i >= 0; i = e.store.next[i])
            stored[r->absence[i].buffer] = writer = later(now, writer) + p->bytes[r->absence[i].buffer] / p->write;
        for (int j = 0; j < p->task[k].count; j++) {
            const int b = p->task[k].buffer[j];
            if (p->task[k].writes[j] && home_of(planner, b) >= 0)
                stored[b] = writer = later(now, writer) + p->bytes[b] / p->write;
        }
    }
    r->seconds = now;
    close_events(&e);
    free(stored);
    free(fetched);
}

/* The same as sgrad__residence_plan, by RULE. */
static double plan(const struct sgrad__residence_problem *problem, enum rule rule, struct sgrad__residence *result) {
    struct sgrad__residence r = { .end = sgrad_xcalloc((size_t)problem->buffers + 1, sizeof *r.end) };
    struct planner planner = open_planner(problem, rule, &r);
    double now = 0, too_many = 0;
    for (int k = 0; k < problem->tasks && !too_many; k++) too_many = visit(&planner, k, &now);
    if (!too_many) {
        while (planner.dead) end_for_good(&planner, 0, problem->tasks, &now);
        if (r.count) qsort(r.absence, (size_t)r.count, sizeof *r.absence, by_use);
        prefetch(&planner);
        predict(&planner);
        for (int k = 0; k < problem->tasks; k++) r.peak = later(r.peak, planner.used[k]);
    }
    close_planner(&planner);
    if (too_many) sgrad__residence_free(&r);
    else *result = r;
    return too_many;
}

double sgrad__residence_plan(const struct sgrad__residence_problem *problem, struct sgrad__residence *result) {
    const double too_many = plan(problem, LATEST, result);
    for (enum rule rule = LATEST + 1; rule < RULES && !problem->simple && !too_many && result->waited > 0; rule++) {
        struct sgrad__residence other, longer;
        if (plan(problem, rule, &other)) continue;
        longer = other.seconds < result->seconds ? *result : other;
        if (other.seconds < result->seconds) *result = other;
        sgrad__residence_free(&longer);
    }
    return too_many;
}

void sgrad__residence_free(struct sgrad__residence *result) {
    free(result->absence);
    free(result->end);
    *result = (struct sgrad__residence){ 0 };
}
