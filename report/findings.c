/* findings.c: what stands out in a trace, and what to try. The limits below are where a change is worth trying, not more. */
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
struct list {
    int count;
    struct finding *finding;
};

static void add(struct list *list, double weight, char *text) {
    list->finding = sgrad_grow(list->finding, list->count, sizeof *list->finding);
    list->finding[list->count++] = (struct finding){ weight, text };
}

static double busy(const struct sgrad__overlap_row *row) {
    double sum = 0;
    for (int k = 0; k < SGRAD__KINDS; k++) sum += row->kind[k];
    return sum;
}

static void find_exposed(struct list *list, const struct sgrad__timeline *t, const struct sgrad__overlap *o, double steps) {
    int worst = 0, most = 0;
    for (int r = 1; r < t->ranks; r++)
        if (o->rank[r].communication - o->rank[r].hidden > o->rank[worst].communication - o->rank[worst].hidden) worst = r;
    for (int p = 1; p < t->parcels; p++)
        if (o->exposed[p * t->ranks + worst] > o->exposed[most * t->ranks + worst]) most = p;
    const struct sgrad__overlap_rank *rank = &o->rank[worst];
    const double exposed = rank->communication - rank->hidden;
    if (t->ranks < 2 || !t->parcels || exposed < part * t->length || !rank->awaited) return;
    char *parcel = sgrad__timeline_parcel_text(&t->parcel[most]);
    add(list, exposed,
        sgrad_format("messages of %s are exposed for %.1f ms a step on rank %d, all its messages for %.1f, most of it before "
                     "\"%.*s\": try a smaller --bucket, another --allreduce, or a larger --batch",
                     parcel, o->exposed[most * t->ranks + worst] / steps, worst, exposed / steps,
                     (int)strcspn(rank->awaited, "#"), rank->awaited));
    free(parcel);
}

/* A step is as long as the slowest rank's. */
static void find_slow_rank(struct list *list, const struct sgrad__timeline *t, const struct sgrad__overlap *o, double steps) {
    double *sum = sgrad_alloc((size_t)t->ranks, sizeof *sum);
    int *workers = sgrad_alloc((size_t)t->ranks, sizeof *workers), most = 0, least = 0;
    for (int i = 0; i < t->rows; i++) {
        sum[t->row[i].rank] += busy(&o->row[i]);
        workers[t->row[i].rank]++;
    }
    for (int r = 0; r < t->ranks; r++) {
        if (workers[r]) sum[r] /= workers[r];
        if (sum[r] > sum[most]) most = r;
        if (sum[r] < sum[least]) least = r;
    }
    if (sum[least] > 0 && sum[most] > slower * sum[least])
        add(list, sum[most] - sum[least],
            sgrad_format("rank %d works %.1f ms a step, rank %d %.1f: the others wait for the slower; look what else its "
                         "node does", most, sum[most] / steps, least, sum[least] / steps));
    free(workers);
    free(sum);
}

static void find_starved(struct list *list, const struct sgrad__timeline *t, const struct sgrad__overlap *o, double steps) {
    double idle = 0;
    for (int i = 0; i < t->rows; i++) idle += o->row[i].idle / t->rows;
    if (idle > part * t->length)
        add(list, idle,
            sgrad_format("workers have nothing to do for %.1f ms a step: a smaller --micro-batch gives them more tasks at once",
                         idle / steps));
}

/* StarPU needs about 0.01 ms a task; where it is far more, and tasks are not small, the worker was not alone on its core. */
static void find_scheduling(struct list *list, const struct sgrad__timeline *t, const struct sgrad__overlap *o, double steps) {
    double sum = 0, scheduling = 0;
    for (int i = 0; i < t->rows; i++) sum += busy(&o->row[i]), scheduling += o->row[i].scheduling / t->rows;
    if (scheduling < part * t->length) return;
    if (sum / t->tasks < small)
        add(list, scheduling,
            sgrad_format("StarPU's own work takes each worker %.1f ms a step, for %.0f tasks of %.3f ms on average: try a larger "
                         "--micro-batch",
                         scheduling / steps, t->tasks / steps, sum / t->tasks));
    else
        add(list, scheduling,
            sgrad_format("workers are between tasks, in StarPU, for %.1f ms a step: look what else runs on their cores",
                         scheduling / steps));
}

static int by_weight(const void *one, const void *other) {
    const struct finding *a = one, *b = other;
    return (a->weight < b->weight) - (a->weight > b->weight);
}

json_t *sgrad__findings(const struct sgrad__timeline *t, const struct sgrad__overlap *o) {
    const double steps = t->steps ? t->steps : 1;
    json_t *texts = json_array();
    struct list list = { 0 };
    find_exposed(&list, t, o, steps);
    find_slow_rank(&list, t, o, steps);
    find_starved(&list, t, o, steps);
    find_scheduling(&list, t, o, steps);
    if (list.count) qsort(list.finding, (size_t)list.count, sizeof *list.finding, by_weight);
    for (int i = 0; i < list.count; i++) {
        if (i < SHOWN) json_array_append_new(texts, json_string(list.finding[i].text));
        free(list.finding[i].text);
    }
    free(list.finding);
    return texts;
}
