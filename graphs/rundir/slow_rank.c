/* slow_rank.c: names a rank that computes for longer than the others.
 *
 * All ranks have steps of the same duration, because they wait for each other. The time that a rank computes in a step is
 * therefore proportional to the fraction of time that its workers spend in tasks, which ranks send with their votes (workers.c).
 * The busiest worker of each rank counts, because ranks may have different numbers of workers, and cores beside a GPU may be
 * idle:
 *
 *     rank 0   ███······   0.3
 *     rank 1   █████████   0.9     3 times the median of the others: slow
 *     rank 2   ███······   0.3
 *
 * A rank is reported if this holds for the mean of WINDOW steps, twice in succession, and again only after a window without
 * it. */
#include "graphs/compiler/program.h"
#include "graphs/rundir/rundir.h"

#include <stdlib.h>

enum { WINDOW = 20 };                   /* steps */
#define SLOW 1.5                        /* times the median of the other ranks */
#define LEAST_BUSY 0.5                  /* the slow rank is busy for at least this fraction of the time */

struct sgrad__slow_rank {
    int ranks, workers;
    int *rank;                          /* by worker */
    double *busy;                       /* by worker: sum over the steps of the window */
    double *busiest;                    /* by rank: that of its busiest worker */
    double *sorted;                     /* by rank: scratch */
    int steps;
    int before, reported;               /* the slow rank of the previous window; the one reported last; -1: none */
};

struct sgrad__slow_rank *sgrad__slow_rank_open(const struct sgrad__workers *workers) {
    struct sgrad__slow_rank *s = sgrad_xcalloc(1, sizeof *s);
    s->workers = workers->count;
    s->rank = sgrad_xcalloc((size_t)s->workers + 1, sizeof *s->rank);
    for (int i = 0; i < s->workers; i++) {
        if (sscanf(workers->name[i], "rank%d/", &s->rank[i]) != 1) s->rank[i] = 0;
        if (s->rank[i] >= s->ranks) s->ranks = s->rank[i] + 1;
    }
    s->busy = sgrad_xcalloc((size_t)s->workers + 1, sizeof *s->busy);
    s->busiest = sgrad_xcalloc((size_t)s->ranks + 1, sizeof *s->busiest);
    s->sorted = sgrad_xcalloc((size_t)s->ranks + 1, sizeof *s->sorted);
    s->before = s->reported = -1;
    return s;
}

void sgrad__slow_rank_close(struct sgrad__slow_rank *slow) {
    if (!slow) return;
    free(slow->rank);
    free(slow->busy);
    free(slow->busiest);
    free(slow->sorted);
    free(slow);
}

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Returns the slow rank of the window, and stores how many times longer it computes; -1: none. */
static int slow_of_window(struct sgrad__slow_rank *s, double *times) {
    int most = 0, others = 0;
    for (int r = 0; r < s->ranks; r++) s->busiest[r] = 0;
    for (int i = 0; i < s->workers; i++)
        if (s->busy[i] > s->busiest[s->rank[i]]) s->busiest[s->rank[i]] = s->busy[i];
    for (int r = 1; r < s->ranks; r++)
        if (s->busiest[r] > s->busiest[most]) most = r;
    for (int r = 0; r < s->ranks; r++)
        if (r != most) s->sorted[others++] = s->busiest[r];
    if (!others || s->busiest[most] < LEAST_BUSY * WINDOW) return -1;
    qsort(s->sorted, (size_t)others, sizeof *s->sorted, by_size);
    const double median = (s->sorted[(others - 1) / 2] + s->sorted[others / 2]) / 2;
    if (median <= 0 || s->busiest[most] < SLOW * median) return -1;
    *times = s->busiest[most] / median;
    return most;
}

int sgrad__slow_rank_add(struct sgrad__slow_rank *slow, const double *busy, double *times) {
    for (int i = 0; i < slow->workers; i++) slow->busy[i] += busy[i];
    if (++slow->steps < WINDOW) return -1;
    const int is = slow_of_window(slow, times), report = is == slow->before && is != slow->reported ? is : -1;
    if (is != slow->before) slow->reported = -1;
    if (report >= 0) slow->reported = report;
    slow->before = is;
    slow->steps = 0;
    for (int i = 0; i < slow->workers; i++) slow->busy[i] = 0;
    return report;
}
