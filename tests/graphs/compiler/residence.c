/* residence.c: a plan of moves has every buffer in memory, with its content, when a task uses it, and stays within the limit. */
#include "graphs/compiler/passes/residence.h"
#include "runtime/runtime.h"
#include "tests/asserts.h"

#include <stdlib.h>
#include <string.h>

enum { TASKS = 9, BUFFERS = 5, USES = 2, TRIALS = 3000 };

struct example {
    struct sgrad__residence_problem is;
    struct sgrad__task_uses task[TASKS];
    int buffer[TASKS][USES];
    bool writes[TASKS][USES], fixed[BUFFERS];
    double bytes[BUFFERS];
    int home[BUFFERS];
};

static int below(unsigned *seed, int n) { return rand_r(seed) % n; }

static void draw(struct example *e, unsigned *seed, bool equal, int running) {
    bool seen[BUFFERS] = { false };
    *e = (struct example){ .is = { .tasks = TASKS, .buffers = BUFFERS, .running = running, .write = 1, .read = 1 } };
    for (int k = 0; k < TASKS; k++) {
        int count = 0;
        for (int j = 0; j < USES; j++) {
            const int b = below(seed, BUFFERS);
            if (count && e->buffer[k][0] == b) continue;
            e->buffer[k][count] = b;
            e->writes[k][count++] = !seen[b] || !below(seed, 3);
            seen[b] = true;
        }
        e->task[k] = (struct sgrad__task_uses){ 1 + below(seed, 3), count, e->buffer[k], e->writes[k] };
    }
    for (int b = 0; b < BUFFERS; b++) e->bytes[b] = equal ? 1 : 1 + below(seed, 4);
    for (int b = 0; b < BUFFERS; b++) e->home[b] = -1;
    e->is.task = e->task, e->is.bytes = e->bytes, e->is.fixed = e->fixed, e->is.home = e->home;
}

/* Gives some buffers homes, which two of them may share. */
static void settle(struct example *e, unsigned *seed) {
    for (int b = 0; b < BUFFERS; b++) e->home[b] = below(seed, 4) - 1;
    for (int k = 0; k < TASKS; k++)         /* a task does not change one copy and use another */
        for (int j = 1; j < e->task[k].count; j++)
            if (e->home[e->buffer[k][0]] == e->home[e->buffer[k][j]]) e->task[k].count = 1;
}

/* Follows the plan. CONTENT: the version of each buffer, in memory and in the file; -1: none. A place of the file is that of a
 * buffer, or a home. */
static void follow(const struct example *e, const struct sgrad__residence *r) {
    const struct sgrad__residence_problem *p = &e->is;
    int memory[BUFFERS], place[BUFFERS], file[2 * BUFFERS], version[2 * BUFFERS];
    for (int b = 0; b < BUFFERS; b++) memory[b] = -1, place[b] = e->home[b] < 0 ? b : BUFFERS + e->home[b];
    for (int i = 0; i < 2 * BUFFERS; i++) file[i] = version[i] = i < BUFFERS ? -1 : TASKS + i;
    for (int k = 0; k < p->tasks; k++) {
        double used = 0;
        for (int i = 0; i < r->count; i++) {
            const struct sgrad__absence *a = &r->absence[i];
            assert_true(a->store < a->release || (a->store < 0 && !a->release));
            assert_true(a->release <= a->use && a->from <= a->use && a->fetch <= a->use && a->release <= a->fetch);
            if (a->release == k && k) memory[a->buffer] = -1;
            if (a->fetch == k) memory[a->buffer] = file[place[a->buffer]];
        }
        for (int b = 0; b < BUFFERS; b++)
            if (r->end[b] == k) memory[b] = -1;
        for (int j = 0; j < p->task[k].count; j++) {
            const int b = p->task[k].buffer[j];
            assert_int_equal(memory[b], version[place[b]]);
            if (p->task[k].writes[j] || version[place[b]] < 0) version[place[b]] = memory[b] = k;
        }
        for (int b = 0; b < BUFFERS; b++)
            if (memory[b] >= 0) used += p->bytes[b];
        assert_true(used <= p->limit);
        for (int i = 0; i < r->count; i++)
            if (r->absence[i].store == k) file[place[r->absence[i].buffer]] = version[place[r->absence[i].buffer]];
        for (int j = 0; j < p->task[k].count; j++)
            if (p->task[k].writes[j] && e->home[p->task[k].buffer[j]] >= 0) file[place[p->task[k].buffer[j]]] = k;
    }
}

static void check_followed(void **state) {
    (void)state;
    unsigned seed = 1;
    int planned = 0;
    for (int t = 0; t < TRIALS; t++) {
        struct example e;
        struct sgrad__residence r;
        draw(&e, &seed, t % 2, 1 + t % 3);
        if (t % 4 > 1) settle(&e, &seed);
        e.is.limit = 1 + below(&seed, 12);
        if (sgrad__residence_plan(&e.is, &r)) continue;
        follow(&e, &r);
        planned += r.count > 0;
        assert_true(r.peak <= e.is.limit && r.seconds >= r.waited);
        if (sgrad__residence_peak(&e.is) <= e.is.limit && e.is.running == 1 && t % 4 < 2) assert_int_equal(r.count, 0);
        sgrad__residence_free(&r);
    }
    assert_true(planned > TRIALS / 10);
}

static void names_what_a_task_needs(void **state) {
    (void)state;
    const int both[] = { 0, 1 };
    const bool writes[] = { true, true }, fixed[] = { false, false };
    const double bytes[] = { 3, 4 };
    const struct sgrad__task_uses task = { 1, 2, both, writes };
    const struct sgrad__residence_problem p = { .tasks = 1, .buffers = 2, .running = 1, .task = &task, .bytes = bytes,
                                                .fixed = fixed, .limit = 6, .write = 1, .read = 1 };
    struct sgrad__residence r;
    assert_true(sgrad__residence_plan(&p, &r) == 7);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        sentence("a planned buffer is in memory, with its content, when a task uses it", check_followed),
        sentence("a limit that is too low for a task is refused", names_what_a_task_needs),
    };
    return run_sentences(argc, argv, tests, NULL, NULL);
}
