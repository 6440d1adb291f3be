/* residence_exact.c: compares plans of moves with exact ones on small random problems. The exact plan is found by branch and
 * bound over all decisions: after which use a buffer is written to the file, when it leaves memory, when it is read. Time follows
 * the same rules as the prediction of residence.c: tasks run one after another, beside one write and one read at a time. States
 * that are not better than a known one are left out. */
#include "graphs/compiler/passes/residence.h"
#include "runtime/runtime.h"
#include "tests/asserts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TASKS = 14, BUFFERS = 14, USES = 4, PROBLEMS = 2000 };
/* Bounds of the time of plans, as multiples of the exact time. */
static const double MEAN = 1.015, WORST = 1.3;

/* What the exact search knows before a task. Bit b of the masks: buffer b. */
struct state {
    unsigned here, saved;           /* in memory, also if it is still being read; the file has its content, or will have it */
    double now, writer, reader;     /* time; the ends of all writes and reads so far */
    double stored[BUFFERS], fetched[BUFFERS];
};

struct example {
    struct sgrad__residence_problem is;
    struct sgrad__task_uses task[TASKS];
    int buffer[TASKS][USES];
    bool writes[TASKS][USES], fixed[BUFFERS];
    double bytes[BUFFERS];
    int next[TASKS][BUFFERS];       /* the first task from this one on that uses the buffer; TASKS: none */
    int first[BUFFERS];
    double rest[TASKS + 1];         /* seconds of the tasks from this one on */
    int seen[TASKS + 1];            /* number of states before this task that the search has found so far; these states */
    struct state *state[TASKS + 1];
};

/* ---- examples ---- */

static int below(unsigned *seed, int n) { return rand_r(seed) % n; }

static void use(struct example *e, int task, int buffer, bool writes) {
    struct sgrad__task_uses *t = &e->task[task];
    for (int j = 0; j < t->count; j++)
        if (e->buffer[task][j] == buffer) return;
    e->buffer[task][t->count] = buffer;
    e->writes[task][t->count++] = writes;
}

/* A network of layers: forward writes an activation from that before; backward reads both and the gradient of its output, and
 * writes that of its input. Some layers also add an earlier activation. */
static void draw_layers(struct example *e, unsigned *seed) {
    const int layers = 3 + below(seed, 5);
    e->is.tasks = 2 * layers, e->is.buffers = 2 * layers;
    for (int i = 0; i < layers; i++) {
        const int back = 2 * layers - 1 - i;
        use(e, i, i, true);
        use(e, back, i, false);
        if (i) use(e, i, i - 1, false), use(e, back, i - 1, false);
        if (i > 1 && !below(seed, 3)) use(e, i, i - 2, false);
        if (i < layers - 1) use(e, back, layers + i + 1, false);
        if (i) use(e, back, layers + i, true);
    }
}

static void draw_any(struct example *e, unsigned *seed) {
    bool seen[BUFFERS] = { false };
    e->is.tasks = 6 + below(seed, 5), e->is.buffers = 6;
    for (int k = 0; k < e->is.tasks; k++)
        for (int j = 0; j < 2; j++) {
            const int b = below(seed, e->is.buffers);
            use(e, k, b, !seen[b] || !below(seed, 3));
            seen[b] = true;
        }
}

static void draw(struct example *e, unsigned *seed, bool layers) {
    *e = (struct example){ .is = { .running = 1 } };
    for (int k = 0; k < TASKS; k++)
        e->task[k] = (struct sgrad__task_uses){ 0.5 * (1 + below(seed, 6)), 0, e->buffer[k], e->writes[k] };
    if (layers) draw_layers(e, seed);
    else draw_any(e, seed);
    for (int b = 0; b < BUFFERS; b++) e->bytes[b] = 1 + below(seed, 6);
    e->is.task = e->task, e->is.bytes = e->bytes, e->is.fixed = e->fixed;
    e->is.write = 0.5 * (1 + below(seed, 8)), e->is.read = 0.5 * (1 + below(seed, 8));
    double least = 0;
    for (int k = 0; k < e->is.tasks; k++) {
        double needed = 0;
        for (int j = 0; j < e->task[k].count; j++) needed += e->bytes[e->buffer[k][j]];
        least = fmax(least, needed);
    }
    const double most = sgrad__residence_peak(&e->is);
    e->is.limit = least + floor((most - least) * below(seed, 100) / 100);
    for (int b = 0; b < BUFFERS; b++) e->first[b] = TASKS;
    for (int k = e->is.tasks - 1; k >= 0; k--) {
        e->rest[k] = e->rest[k + 1] + e->task[k].seconds;
        for (int b = 0; b < BUFFERS; b++) e->next[k][b] = k + 1 < e->is.tasks ? e->next[k + 1][b] : TASKS;
        for (int j = 0; j < e->task[k].count; j++) e->next[k][e->buffer[k][j]] = e->first[e->buffer[k][j]] = k;
    }
}

/* ---- the exact search ---- */

static double bytes_of(const struct example *e, unsigned set) {
    double bytes = 0;
    for (int b = 0; b < e->is.buffers; b++)
        if (set >> b & 1) bytes += e->bytes[b];
    return bytes;
}

/* Stores the buffers in SET in ORDER, by their next use from task K on. Returns their number. */
static int in_order(const struct example *e, int k, unsigned set, int *order) {
    int count = 0;
    for (int at = k; at < e->is.tasks; at++)
        for (int b = 0; b < e->is.buffers; b++)
            if (set >> b & 1 && e->next[k][b] == at) order[count++] = b;
    return count;
}

/* Returns true if A is not worse than B, a state before the same task. Times before the present are equal. */
static bool dominates(const struct state *a, const struct state *b, int buffers) {
    if (a->here != b->here || (b->saved & ~a->saved) || a->now > b->now || a->writer > fmax(b->now, b->writer) ||
        a->reader > fmax(b->now, b->reader))
        return false;
    for (int i = 0; i < buffers; i++)
        if (((b->saved >> i & 1) && a->stored[i] > fmax(b->now, b->stored[i])) || a->fetched[i] > fmax(b->now, b->fetched[i]))
            return false;
    return true;
}

/* Returns true if a state that is not worse was found before. Else adds S. */
static bool is_known(struct example *e, int k, const struct state *s) {
    for (int i = 0; i < e->seen[k]; i++)
        if (dominates(&e->state[k][i], s, e->is.buffers)) return true;
    e->state[k] = sgrad_array_grow(e->state[k], e->seen[k], sizeof *s);
    e->state[k][e->seen[k]++] = *s;
    return false;
}

static void finish(struct example *e, int k, const struct state *s, unsigned can, double *best);

/* Runs task K after the buffers in LEAVE have left memory and the reads of those in READ have begun. */
static void run(struct example *e, int k, struct state s, unsigned leave, unsigned read, double *best) {
    const struct sgrad__task_uses *t = &e->task[k];
    unsigned can = 0;
    int order[BUFFERS];
    for (int b = 0; b < e->is.buffers; b++)
        if (leave >> b & 1) s.now = fmax(s.now, s.stored[b]);
    const int reads = in_order(e, k, read, order);
    for (int i = 0; i < reads; i++) {
        const int b = order[i];
        s.fetched[b] = s.reader = fmax(fmax(s.now, s.reader), s.stored[b]) + e->bytes[b] / e->is.read;
    }
    s.here = (s.here & ~leave) | read;
    for (int j = 0; j < t->count; j++) {
        const int b = t->buffer[j];
        s.now = fmax(s.now, s.fetched[b]);
        s.here |= 1u << b;
        if (t->writes[j]) s.saved &= ~(1u << b);
    }
    s.now += t->seconds;
    for (int j = 0; j < t->count; j++) {
        const int b = t->buffer[j];
        if (!(s.saved >> b & 1) && k + 1 < e->is.tasks && e->next[k + 1][b] < TASKS) can |= 1u << b;
    }
    finish(e, k, &s, can, best);
}

/* Tries all sets of buffers that leave memory before task K, and of reads that begin. Buffers leave only if their memory is
 * needed: to leave later is never worse. */
static void begin(struct example *e, int k, struct state s, double *best) {
    unsigned used = 0, alive = 0, made = 0;
    if (k == e->is.tasks) *best = fmin(*best, s.now);
    if (k == e->is.tasks || s.now + e->rest[k] >= *best - 1e-9) return;
    for (int j = 0; j < e->task[k].count; j++) used |= 1u << e->buffer[k][j];
    for (int b = 0; b < e->is.buffers; b++) {
        if (e->next[k][b] < TASKS) alive |= 1u << b;
        if (e->first[b] < k) made |= 1u << b;
    }
    s.here &= alive, s.saved &= alive;
    if (is_known(e, k, &s)) return;
    const unsigned leaves = s.here & s.saved & ~used, absent = alive & made & ~s.here;
    for (unsigned read = absent;; read = (read - 1) & absent) {
        const bool enough = (absent & used & ~read) == 0;
        for (unsigned leave = leaves; enough; leave = (leave - 1) & leaves) {
            const double all = bytes_of(e, (s.here & ~leave) | read | used);
            bool needed = true;
            for (int b = 0; b < e->is.buffers; b++)
                if (leave >> b & 1) needed &= all + e->bytes[b] > e->is.limit;
            if (all <= e->is.limit && needed) run(e, k, s, leave, read, best);
            if (!leave) break;
        }
        if (!read) break;
    }
}

/* Task K has ended, and buffers have been written to the file after it; those in CAN could be written next. Tries each of them,
 * and no other one. */
static void finish(struct example *e, int k, const struct state *s, unsigned can, double *best) {
    begin(e, k + 1, *s, best);
    for (int b = 0; b < e->is.buffers; b++) {
        struct state after = *s;
        if (!(can >> b & 1)) continue;
        after.stored[b] = after.writer = fmax(s->now, s->writer) + e->bytes[b] / e->is.write;
        after.saved |= 1u << b;
        finish(e, k, &after, can & ~(1u << b), best);
    }
}

/* ---- tests ---- */

static void near_the_exact_plan(void **state) {
    (void)state;
    unsigned seed = 1;
    double sum = 0, worst = 1;
    int compared = 0, equal = 0;
    for (int i = 0; i < PROBLEMS; i++) {
        struct example e;
        struct sgrad__residence r;
        draw(&e, &seed, i % 2);
        assert_true(sgrad__residence_plan(&e.is, &r) == 0);
        double best = 1.001 * r.seconds;     /* the search must find the plan, or a better one */
        begin(&e, 0, (struct state){ 0 }, &best);
        assert_true(r.peak <= e.is.limit && best >= e.rest[0] - 1e-9);
        if (r.seconds < best - 1e-9) fail_msg("problem %d: %g s are below the exact %g s", i, r.seconds, best);
        if (r.count) {
            const double factor = r.seconds / best;
            sum += factor, compared++, equal += factor < 1 + 1e-9;
            if (factor > worst) worst = factor;
        }
        sgrad__residence_free(&r);
        for (int k = 0; k <= TASKS; k++) free(e.state[k]);
    }
    printf("# %d problems with moves: %.1f %% of the plans are exact; mean %.4f, worst %.4f times the exact time\n", compared,
           100.0 * equal / compared, sum / compared, worst);
    assert_true(compared > PROBLEMS / 2 && sum / compared < MEAN && worst < WORST);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        sentence("plans of small problems take little more time than exact ones", near_the_exact_plan),
    };
    return run_sentences(argc, argv, tests, NULL, NULL);
}
