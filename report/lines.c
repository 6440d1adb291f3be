/* lines.c: chooses the workers and ranks that a plot shows, and the line of each. */
#include "report/lines.h"
#include "runtime/runtime.h"

#include <stdlib.h>

struct worker {
    int row;
    double ms;                          /* in tasks */
};

static int by_work(const void *one, const void *other) {
    const struct worker *a = one, *b = other;
    return a->ms != b->ms ? (a->ms < b->ms) - (a->ms > b->ms) : a->row - b->row;
}

/* Marks the MOST busiest workers of a rank. */
static void mark_busiest(const struct sgrad__timeline *t, int rank, int most, bool *shown) {
    const int first = t->first_row[rank], count = t->first_row[rank + 1] - first;
    struct worker *worker = sgrad_xcalloc((size_t)count + 1, sizeof *worker);
    for (int i = 0; i < count; i++) {
        const struct sgrad__timeline_row *row = &t->row[first + i];
        worker[i].row = first + i;
        for (int j = row->first; j < row->first + row->tasks; j++) worker[i].ms += t->task[j].end - t->task[j].begin;
    }
    if (count) qsort(worker, (size_t)count, sizeof *worker, by_work);
    for (int i = 0; i < count && i < most; i++) shown[worker[i].row] = true;
    free(worker);
}

static void add_line(struct sgrad__lines *l, int row, int rank) {
    if (row >= 0) l->of_row[row] = l->count, l->workers++;
    else l->of_rank[rank] = l->count;
    l->row[l->count] = row;
    l->rank[l->count++] = rank;
}

/* Returns "The picture has of each rank the busiest worker, 128 of 8192."; the caller must free it. */
static char *sentence(const struct sgrad__timeline *t, const struct sgrad__lines *l, int ranks, int each) {
    char *some = ranks < t->ranks ? sgrad_format("each of the first %d of %d ranks", ranks, t->ranks) : sgrad_format("each rank");
    char *busiest = each == 1 ? sgrad_format("busiest worker") : sgrad_format("%d busiest workers", each);
    char *text = sgrad_format("The picture has of %s the %s, %d of %d.", some, busiest, l->workers, t->rows);
    free(busiest);
    free(some);
    return text;
}

void sgrad__lines_pick(const struct sgrad__timeline *t, struct sgrad__lines *l) {
    const int receives = t->ranks > 1, all = t->rows + receives * t->ranks;
    const int room = all < SGRAD__LINES ? all : SGRAD__LINES, ranks = t->ranks <= SGRAD__LINES / 2 ? t->ranks : SGRAD__LINES / 2;
    const int each = all <= SGRAD__LINES ? t->rows : SGRAD__LINES / ranks - receives;
    bool *shown = sgrad_xcalloc((size_t)t->rows, sizeof *shown);
    *l = (struct sgrad__lines){ .row = sgrad_xcalloc((size_t)room, sizeof *l->row),
                                .rank = sgrad_xcalloc((size_t)room, sizeof *l->rank),
                                .of_row = sgrad_xcalloc((size_t)t->rows, sizeof *l->of_row),
                                .of_rank = sgrad_xcalloc((size_t)t->ranks, sizeof *l->of_rank) };
    for (int i = 0; i < t->rows; i++) l->of_row[i] = -1;
    for (int r = 0; r < t->ranks; r++) l->of_rank[r] = -1;
    for (int r = 0; r < ranks; r++) {
        mark_busiest(t, r, each, shown);
        for (int i = t->first_row[r]; i < t->first_row[r + 1]; i++)
            if (shown[i]) add_line(l, i, r);
        if (receives) add_line(l, -1, r);
    }
    if (all > SGRAD__LINES) l->left_out = sentence(t, l, ranks, each);
    free(shown);
}

void sgrad__lines_free(struct sgrad__lines *l) {
    free(l->row);
    free(l->rank);
    free(l->of_row);
    free(l->of_rank);
    free(l->left_out);
    *l = (struct sgrad__lines){ 0 };
}

char *sgrad__lines_name(const struct sgrad__timeline *t, const struct sgrad__lines *l, int line) {
    const int row = l->row[line];
    return row < 0 ? sgrad_format("rank %d receives", l->rank[line])
                   : sgrad_format("rank %d worker %d", l->rank[line], t->row[row].worker);
}
