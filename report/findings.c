/* findings.c: what stands out in a trace, and what to try. The limits below are where a change is worth trying, not more.
 *
 * A moment without work has one reason. While a slower rank works the others have nothing to do, or wait with messages under way:
 *
 *     rank 0   ██████████····▒▒▒▒▒▒▒··██████████     · no message under way: idle     ▒ one is: exposed
 *     rank 1   █████████████████▒▒▒▒··██████████…
 *
 * As much as it works longer is the slower rank's, of both kinds in proportion. What is left of the time with messages is theirs,
 * and of idle time, where there are several workers to share tasks, the micro-batch's. */
#include "report/trace.h"
#include "runtime/runtime.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN = 3 };
static const double part = 0.05, slower = 1.15, small = 0.1;   /* of the time; than the fastest rank; ms a task */

struct finding {
    double weight;          /* ms that it costs */
    char *text;
};
/* Of a rank's workers, their mean, ms: in tasks; and what no finding has explained yet. */
struct left {
    double work, idle, exposed;
};
struct search {
    const struct sgrad__timeline *t;
    const struct sgrad__overlap *o;
    double steps;
    struct left *rank;
    int slowest; /* -1: all ranks work about as long */
    int count;
    struct finding *finding;
};

static void add(struct search *s, double weight, char *text) {
    s->finding = sgrad_grow(s->finding, s->count, sizeof *s->finding);
    s->finding[s->count++] = (struct finding){ weight, text };
}

static double busy(const struct sgrad__overlap_row *row) {
    double sum = 0;
    for (int k = 0; k < SGRAD__KINDS; k++) sum += row->kind[k];
    return sum;
}

static int workers_of(const struct sgrad__timeline *t, int rank) { return t->first_row[rank + 1] - t->first_row[rank]; }

static void sum_ranks(struct search *s) {
    const struct sgrad__timeline *t = s->t;
    for (int r = 0; r < t->ranks; r++) {
        const int workers = workers_of(t, r);
        s->rank[r].exposed = s->o->rank[r].communication - s->o->rank[r].hidden;
        for (int i = t->first_row[r]; i < t->first_row[r + 1]; i++) {
            s->rank[r].work += busy(&s->o->row[i]) / workers;
            s->rank[r].idle += s->o->row[i].idle / workers;
        }
    }
}

/* A step is as long as the slowest rank's. */
static void find_slow_rank(struct search *s) {
    int most = 0, least = 0;
    for (int r = 0; r < s->t->ranks; r++) {
        if (s->rank[r].work > s->rank[most].work) most = r;
        if (s->rank[r].work < s->rank[least].work) least = r;
    }
    const double longest = s->rank[most].work, shortest = s->rank[least].work;
    s->slowest = -1;
    if (!(shortest > 0 && longest > slower * shortest)) return;
    s->slowest = most;
    for (int r = 0; r < s->t->ranks; r++) {
        struct left *left = &s->rank[r];
        const double without = left->idle + left->exposed, keep = without > 0 ? fmax(0, 1 - (longest - left->work) / without) : 0;
        left->idle *= keep;
        left->exposed *= keep;
    }
    add(s, longest - shortest,
        sgrad_format("rank %d works %.1f ms a step, rank %d %.1f: the others wait for the slower; look what else its node does",
                     most, longest / s->steps, least, shortest / s->steps));
}

static void find_exposed(struct search *s) {
    const struct sgrad__timeline *t = s->t;
    int worst = 0, most = 0;
    for (int r = 1; r < t->ranks; r++)
        if (s->rank[r].exposed > s->rank[worst].exposed) worst = r;
    for (int p = 1; p < t->parcels; p++)
        if (s->o->exposed[p * t->ranks + worst] > s->o->exposed[most * t->ranks + worst]) most = p;
    const struct sgrad__overlap_rank *rank = &s->o->rank[worst];
    const double exposed = s->rank[worst].exposed, all = rank->communication - rank->hidden;
    if (t->ranks < 2 || !t->parcels || exposed < part * t->length || !rank->awaited) return;
    char *parcel = sgrad__timeline_parcel_text(&t->parcel[most]);
    add(s, exposed,
        sgrad_format("messages of %s are exposed for %.1f ms a step on rank %d, all its messages for %.1f%s, most of it before "
                     "\"%.*s\": try a smaller --bucket, another --allreduce, or a larger --batch",
                     parcel, s->o->exposed[most * t->ranks + worst] * exposed / all / s->steps, worst, exposed / s->steps,
                     s->slowest < 0 ? "" : " besides what it waits for the slower rank", (int)strcspn(rank->awaited, "#"),
                     rank->awaited));
    free(parcel);
}

/* A worker alone has a task whenever there is one: more of them at once are of no use to it. */
static void find_starved(struct search *s) {
    double idle = 0;
    for (int r = 0; r < s->t->ranks; r++)
        if (workers_of(s->t, r) > 1) idle += s->rank[r].idle * workers_of(s->t, r) / s->t->rows;
    if (idle > part * s->t->length)
        add(s, idle,
            sgrad_format("workers have nothing to do for %.1f ms a step%s: a smaller --micro-batch gives them more tasks at once",
                         idle / s->steps, s->slowest < 0 ? "" : " besides what they wait for the slower rank"));
}

/* StarPU needs about 0.01 ms a task; where it is far more, and tasks are not small, the worker was not alone on its core. */
static void find_scheduling(struct search *s) {
    const struct sgrad__timeline *t = s->t;
    double sum = 0, scheduling = 0;
    for (int i = 0; i < t->rows; i++) sum += busy(&s->o->row[i]), scheduling += s->o->row[i].scheduling / t->rows;
    if (scheduling < part * t->length) return;
    if (sum / t->tasks < small)
        add(s, scheduling,
            sgrad_format("StarPU's own work takes each worker %.1f ms a step, for %.0f tasks of %.3f ms on average: try a larger "
                         "--micro-batch",
                         scheduling / s->steps, t->tasks / s->steps, sum / t->tasks));
    else
        add(s, scheduling,
            sgrad_format("workers are between tasks, in StarPU, for %.1f ms a step: look what else runs on their cores",
                         scheduling / s->steps));
}

static int by_weight(const void *one, const void *other) {
    const struct finding *a = one, *b = other;
    return (a->weight < b->weight) - (a->weight > b->weight);
}

json_t *sgrad__findings(const struct sgrad__timeline *t, const struct sgrad__overlap *o) {
    struct search s = { .t = t, .o = o, .steps = t->steps ? t->steps : 1, .rank = sgrad_alloc((size_t)t->ranks, sizeof *s.rank) };
    json_t *texts = json_array();
    sum_ranks(&s);
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
