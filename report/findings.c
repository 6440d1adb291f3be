/* findings.c: finds conspicuous losses of time in a trace, and suggests changes. The thresholds below are the sizes from which a
 * change is worth trying; they have no other meaning.
 *
 * Each moment without work is attributed to one cause. While a slower rank works, the others are idle or wait with messages in
 * progress:
 *
 *     rank 0   ██████████····▒▒▒▒▒▒▒··██████████     · no message in progress: idle   ▒ messages in progress: exposed
 *     rank 1   █████████████████▒▒▒▒··██████████…
 *
 * The additional working time of the slower rank is attributed to that rank, and is subtracted from both kinds in proportion. The
 * remaining exposed time is attributed to the messages, the remaining idle time to the micro-batch, if a rank has several workers
 * to divide the tasks among. */
#include "report/trace.h"
#include "runtime/runtime.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN = 3 };
static const double part = 0.05, slower = 1.15, small = 0.1;   /* fraction of the time; factor to the fastest rank; ms per task */

struct finding {
    double weight;          /* its cost in ms */
    char *text;
};
/* Means over the workers of a rank, in ms: in tasks; and the time that no finding has explained yet. */
struct left {
    double work, idle, exposed;
};
struct search {
    const struct sgrad__timeline *t;
    const struct sgrad__overlap *o;
    double steps;
    struct left *rank;
    int slowest; /* -1: all ranks work for about the same time */
    int count;
    struct finding *finding;
};

static void add(struct search *search, double weight, char *text) {
    search->finding = sgrad_array_grow(search->finding, search->count, sizeof *search->finding);
    search->finding[search->count++] = (struct finding){ weight, text };
}

static double busy(const struct sgrad__overlap_row *row) {
    double sum = 0;
    for (int k = 0; k < SGRAD__KINDS; k++) sum += row->kind[k];
    return sum;
}

static int workers_of(const struct sgrad__timeline *timeline, int rank) {
    return timeline->first_row[rank + 1] - timeline->first_row[rank];
}

static void sum_ranks(struct search *search) {
    const struct sgrad__timeline *t = search->t;
    for (int r = 0; r < t->ranks; r++) {
        const int workers = workers_of(t, r);
        search->rank[r].exposed = search->o->rank[r].communication - search->o->rank[r].hidden;
        for (int i = t->first_row[r]; i < t->first_row[r + 1]; i++) {
            search->rank[r].work += busy(&search->o->row[i]) / workers;
            search->rank[r].idle += search->o->row[i].idle / workers;
        }
    }
}

/* The slowest rank determines the length of a step. */
static void find_slow_rank(struct search *search) {
    int most = 0, least = 0;
    for (int r = 0; r < search->t->ranks; r++) {
        if (search->rank[r].work > search->rank[most].work) most = r;
        if (search->rank[r].work < search->rank[least].work) least = r;
    }
    const double longest = search->rank[most].work, shortest = search->rank[least].work;
    search->slowest = -1;
    if (!(shortest > 0 && longest > slower * shortest)) return;
    search->slowest = most;
    for (int r = 0; r < search->t->ranks; r++) {
        struct left *left = &search->rank[r];
        const double without = left->idle + left->exposed, keep = without > 0 ? fmax(0, 1 - (longest - left->work) / without) : 0;
        left->idle *= keep;
        left->exposed *= keep;
    }
    add(search, longest - shortest,
        sgrad_format("rank %d works %.1f ms per step, but rank %d only %.1f: the others wait for the slower rank; check which "
                     "other programs run on its node",
                     most, longest / search->steps, least, shortest / search->steps));
}

static void find_exposed(struct search *search) {
    const struct sgrad__timeline *t = search->t;
    int worst = 0, most = 0;
    for (int r = 1; r < t->ranks; r++)
        if (search->rank[r].exposed > search->rank[worst].exposed) worst = r;
    for (int p = 1; p < t->parcels; p++)
        if (search->o->exposed[p * t->ranks + worst] > search->o->exposed[most * t->ranks + worst]) most = p;
    const struct sgrad__overlap_rank *rank = &search->o->rank[worst];
    const double exposed = search->rank[worst].exposed, all = rank->communication - rank->hidden;
    if (t->ranks < 2 || !t->parcels || exposed < part * t->length || !rank->awaited) return;
    char *parcel = sgrad__timeline_parcel_text(&t->parcel[most]);
    add(search, exposed,
        sgrad_format("rank %d waits %.1f ms per step for messages%s, including %.1f for %s; the longest waits are before "
                     "\"%.*s\": try a smaller --bucket, another --allreduce, or a larger --batch",
                     worst, exposed / search->steps,
                     search->slowest < 0 ? "" : " (in addition to the wait for the slower rank)",
                     search->o->exposed[most * t->ranks + worst] * exposed / all / search->steps, parcel,
                     (int)strcspn(rank->awaited, "#"), rank->awaited));
    free(parcel);
}

/* A rank's only worker is never idle while a task is ready; more concurrent tasks do not help it. */
static void find_starved(struct search *search) {
    double idle = 0;
    for (int r = 0; r < search->t->ranks; r++)
        if (workers_of(search->t, r) > 1) idle += search->rank[r].idle * workers_of(search->t, r) / search->t->rows;
    if (idle > part * search->t->length)
        add(search, idle,
            sgrad_format("workers are idle for %.1f ms per step%s: try a smaller --micro-batch, which makes more tasks",
                         idle / search->steps, search->slowest < 0 ? "" : " (in addition to the wait for the slower rank)"));
}

/* StarPU needs about 0.01 ms per task. If the tasks are not small and it takes far longer, other processes used the core. */
static void find_scheduling(struct search *search) {
    const struct sgrad__timeline *t = search->t;
    double sum = 0, scheduling = 0;
    for (int i = 0; i < t->rows; i++) sum += busy(&search->o->row[i]), scheduling += search->o->row[i].scheduling / t->rows;
    if (scheduling < part * t->length) return;
    if (sum / t->tasks < small)
        add(search, scheduling,
            sgrad_format(
                "StarPU takes %.1f ms per step on each worker to manage %.0f tasks of %.3f ms on average: try a larger "
                "--micro-batch",
                scheduling / search->steps, t->tasks / search->steps, sum / t->tasks));
    else
        add(search, scheduling,
            sgrad_format(
                "StarPU takes %.1f ms per step on each worker between its tasks: check which other programs run on the cores",
                scheduling / search->steps));
}

static int by_weight(const void *one, const void *other) {
    const struct finding *a = one, *b = other;
    return (a->weight < b->weight) - (a->weight > b->weight);
}

json_t *sgrad__findings(const struct sgrad__timeline *timeline, const struct sgrad__overlap *overlap, double moves) {
    struct search s = { .t = timeline,
                        .o = overlap,
                        .steps = timeline->steps ? timeline->steps : 1,
                        .rank = sgrad_xcalloc((size_t)timeline->ranks, sizeof *s.rank) };
    json_t *texts = json_array();
    sum_ranks(&s);
    for (int r = 0; r < timeline->ranks; r++) s.rank[r].idle = fmax(0, s.rank[r].idle - moves * s.steps);
    find_slow_rank(&s);
    find_exposed(&s);
    find_starved(&s);
    find_scheduling(&s);
    if (s.count) qsort(s.finding, (size_t)s.count, sizeof *s.finding, by_weight);
    for (int i = 0; i < s.count; i++) {
        if (i < SHOWN) json_array_append_new(texts, json_string(s.finding[i].text));
        free(s.finding[i].text);
    }
    free(s.finding);
    free(s.rank);
    return texts;
}
