/* The division of time into reasons, for small random timelines, equals that of a check of each millisecond. */
#include "config.h"
#include "report/trace.h"
#include "runtime/runtime.h"
#include "tests/scratch.h"

#include <math.h>

enum { RANKS = 3, WORKERS = 2, ROWS = RANKS * WORKERS, LENGTH = 60, MOST = 12, PARCELS = 3, TIMELINES = 300 };

static unsigned seed = 1;
static int below(int limit) {
    seed = seed * 1664525u + 1013904223u;
    return (int)((seed >> 8) % (unsigned)limit);
}

/* A timeline whose moments are whole milliseconds. Tasks of a row, as it may be with several streams, overlap. */
struct world {
    struct sgrad__timeline t;
    struct sgrad__timeline_row row[ROWS];
    struct sgrad__timeline_task task[ROWS * MOST];
    struct sgrad__timeline_span span[ROWS * MOST];
    struct sgrad__timeline_message message[4 * MOST];
    struct sgrad__timeline_parcel parcel[PARCELS];
    int first_row[RANKS + 1];
};

static int task_order(const void *one, const void *other) {
    const struct sgrad__timeline_task *a = one, *b = other;
    return (a->begin > b->begin) - (a->begin < b->begin);
}

static void invent(struct world *world) {
    *world = (struct world){ .t = { .ranks = RANKS, .rows = ROWS, .parcels = PARCELS, .length = LENGTH, .kinds.count = 2 } };
    world->t.kinds.kind[0].name = "walk", world->t.kinds.kind[1].name = "run";
    world->t.row = world->row, world->t.task = world->task, world->t.span = world->span, world->t.message = world->message,
    world->t.parcel = world->parcel, world->t.first_row = world->first_row;
    for (int r = 0; r <= RANKS; r++) world->first_row[r] = r * WORKERS;
    for (int i = 0; i < ROWS; i++) {
        struct sgrad__timeline_row *row = &world->row[i];
        *row = (struct sgrad__timeline_row){ .rank = i / WORKERS,
                                             .worker = i % WORKERS,
                                             .first = world->t.tasks,
                                             .tasks = 1 + below(MOST - 1),
                                             .first_span = world->t.spans,
                                             .spans = below(MOST) };
        for (int k = 0; k < row->tasks; k++) {
            const int begin = below(LENGTH), end = begin + below(6);
            world->task[world->t.tasks++] = (struct sgrad__timeline_task){ .name = below(2) ? "a #1" : "b #2",
                                                                   .kind = below(2),
                                                                   .worker = i,
                                                                   .step = -1,
                                                                   .begin = begin,
                                                                   .end = end < LENGTH ? end : LENGTH };
        }
        qsort(&world->task[row->first], (size_t)row->tasks, sizeof *world->task, task_order);
        for (int k = 0; k < row->spans; k++) {
            const int begin = below(LENGTH) - 5;
            world->span[world->t.spans++] =
                (struct sgrad__timeline_span){ i, below(2) ? SGRAD__SCHEDULING : SGRAD__FETCHING, begin, begin + below(9) };
        }
    }
    world->t.messages = below(4 * MOST);
    for (int i = 0; i < world->t.messages; i++) {   /* no two end at once: either might be called the one that was waited for */
        const int end = 2 * i + below(2) - 10;
        world->message[i] = (struct sgrad__timeline_message){
            .from = below(RANKS), .to = below(RANKS), .begin = end - below(20), .end = end, .bytes = 1, .parcel = below(PARCELS)
        };
    }
}

/* What the reports says, asked millisecond by millisecond. */
struct asked {
    double scheduling[ROWS], fetching[ROWS], waiting[ROWS], idle[ROWS], communication[RANKS], exposed[PARCELS][RANKS];
};

static bool in_task(const struct world *world, int row, double at) {
    for (int i = 0; i < world->t.tasks; i++)
        if (world->task[i].worker == row && world->task[i].begin <= at && at < world->task[i].end) return true;
    return false;
}

static bool in_state(const struct world *world, int row, enum sgrad__state state, double at) {
    for (int i = 0; i < world->t.spans; i++)
        if (world->span[i].row == row && world->span[i].state == state && world->span[i].begin <= at && at < world->span[i].end)
            return true;
    return false;
}

/* The message to or from a rank that is the next to arrive; NULL: none is under way. */
static const struct sgrad__timeline_message *next_message(const struct world *world, int rank, double at) {
    const struct sgrad__timeline_message *next = NULL;
    for (int i = 0; i < world->t.messages; i++) {
        const struct sgrad__timeline_message *m = &world->message[i];
        if ((m->from == rank || m->to == rank) && m->begin <= at && at < m->end && (!next || m->end < next->end)) next = m;
    }
    return next;
}

static void ask(const struct world *world, struct asked *asked) {
    *asked = (struct asked){ 0 };
    for (double at = 0.5; at < LENGTH; at++)
        for (int r = 0; r < RANKS; r++) {
            const struct sgrad__timeline_message *m = next_message(world, r, at);
            asked->communication[r] += m != NULL;
            for (int i = world->first_row[r]; i < world->first_row[r + 1]; i++) {
                if (in_task(world, i, at)) continue;
                if (in_state(world, i, SGRAD__SCHEDULING, at)) asked->scheduling[i]++;
                else if (in_state(world, i, SGRAD__FETCHING, at)) asked->fetching[i]++;
                else if (m) asked->waiting[i]++, asked->exposed[m->parcel][r] += 1.0 / WORKERS;
                else asked->idle[i]++;
            }
        }
}

static void near(double is, double should) {
    if (fabs(is - should) > 1e-9) fail_msg("%.9g, not %.9g", is, should);
}

static void as_asked(void **state) {
    (void)state;
    for (int n = 0; n < TIMELINES; n++) {
        struct world w;
        struct asked a;
        struct sgrad__overlap o;
        invent(&w);
        ask(&w, &a);
        sgrad__overlap_find(&w.t, &o);
        for (int i = 0; i < ROWS; i++) {
            near(o.row[i].scheduling, a.scheduling[i]);
            near(o.row[i].fetching, a.fetching[i]);
            near(o.row[i].waiting, a.waiting[i]);
            near(o.row[i].idle, a.idle[i]);
        }
        for (int r = 0; r < RANKS; r++) {
            near(o.rank[r].communication, a.communication[r]);
            for (int p = 0; p < PARCELS; p++) near(o.exposed[p * RANKS + r], a.exposed[p][r]);
        }
        sgrad__overlap_free(&o);
    }
}

/* Two ranks of one worker, each with a task; a message of rank 1's from 50 ms on:
 *
 *     rank 0   ████████ 50 · · · · · · · · · END
 *     rank 1   ████████████████████ 100 · · ·END
 *     message           50 ├──────────────┤ UNTIL                                                                  */
static void message_until(double until, double end, const char *const *says, int count) {
    char name[] = "walk #0", parcel[] = "bucket 0";
    struct sgrad__timeline_row row[2] = { { .rank = 0, .tasks = 2 }, { .rank = 1, .first = 2, .tasks = 2 } };
    struct sgrad__timeline_task task[4] = { { .name = name, .end = 50 },
                                            { .name = name, .begin = end, .end = end },
                                            { .name = name, .worker = 1, .end = 100 },
                                            { .name = name, .worker = 1, .begin = end, .end = end } };
    struct sgrad__timeline_message message = { .from = 1, .begin = 50, .end = until, .bytes = 1 };
    struct sgrad__timeline_parcel bucket = { .name = parcel, .messages = 1, .bytes = 1 };
    struct sgrad__timeline t = { .ranks = 2,
                                 .rows = 2,
                                 .tasks = 4,
                                 .messages = 1,
                                 .parcels = 1,
                                 .steps = 1,
                                 .length = end,
                                 .kinds.count = 1,
                                 .row = row,
                                 .first_row = (int[]){ 0, 1, 2 },
                                 .task = task,
                                 .message = &message,
                                 .parcel = &bucket };
    struct sgrad__overlap o;
    t.kinds.kind[0].name = name;
    sgrad__overlap_find(&t, &o);
    json_t *found = sgrad__findings(&t, &o, 0);
    assert_int_equal(json_array_size(found), count);
    for (int i = 0; i < count; i++)
        if (!strstr(json_string_value(json_array_get(found, (size_t)i)), says[i]))
            fail_msg("\"%s\" does not say: %s", json_string_value(json_array_get(found, (size_t)i)), says[i]);
    json_decref(found);
    sgrad__overlap_free(&o);
}

/* A moment without work has one reason: what the slower rank works longer is no message's, and no micro-batch's. */
static void explained_once(void **state) {
    (void)state;
    const char *slow = "rank 1 works 100.0 ms per step, but rank 0 only 50.0";
    message_until(51, 100, &slow, 1);
    message_until(75, 100, &slow, 1);
    message_until(100, 100, &slow, 1);
    message_until(120, 120,
                  (const char *[]){ slow, "rank 0 waits 20.0 ms per step for messages (in addition to the wait for the slower "
                                          "rank), including 20.0 for" },
                  2);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        sentence("the report explains each millisecond as a plain search does", as_asked),
        sentence("a moment without work has one reason", explained_once),
    };
    return run_sentences(argc, argv, tests, NULL, NULL);
}
