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
static void mark_busiest(const struct sgrad__timeline *timeline, int rank, int most, bool *shown) {
    const int first = timeline->first_row[rank], count = timeline->first_row[rank + 1] - first;
    struct worker *worker = sgrad_xcalloc((size_t)count + 1, sizeof *worker);
    for (int i = 0; i < count; i++) {
        const struct sgrad__timeline_row *row = &timeline->row[first + i];
        worker[i].row = first + i;
        for (int j = row->first; j < row->first + row->tasks; j++)
            worker[i].ms += timeline->task[j].end - timeline->task[j].begin;
    }
    if (count) qsort(worker, (size_t)count, sizeof *worker, by_work);
    for (int i = 0; i < count && i < most; i++) shown[worker[i].row] = true;
    free(worker);
}

static void add_line(struct sgrad__lines *lines, int row, int rank) {
    if (row >= 0) lines->of_row[row] = lines->count, lines->workers++;
    else
        (row == SGRAD__LINE_MOVES ? lines->of_disk : lines->of_rank)[rank] = lines->count;
    lines->row[lines->count] = row;
    lines->rank[lines->count++] = rank;
}

/* Returns "The plot shows the busiest worker of each rank: 128 of 8192 workers."; the caller must free it. */
static char *sentence(const struct sgrad__timeline *timeline, const struct sgrad__lines *lines, int ranks, int each) {
    char *some = ranks < timeline->ranks ? sgrad_format("each of the first %d of %d ranks", ranks, timeline->ranks)
                                         : sgrad_format("each rank");
    char *busiest = each == 1 ? sgrad_format("busiest worker") : sgrad_format("%d busiest workers", each);
    char *text = sgrad_format("The plot shows the %s of %s: %d of %d workers.", busiest, some, lines->workers, timeline->rows);
    free(busiest);
    free(some);
    return text;
}

void sgrad__lines_pick(const struct sgrad__timeline *timeline, struct sgrad__lines *lines) {
    const int receives = timeline->ranks > 1, moves = timeline->moves > 0, least = 1 + receives + moves,
              all = timeline->rows + (receives + moves) * timeline->ranks;
    const int room = all < SGRAD__LINES ? all : SGRAD__LINES,
              ranks = timeline->ranks <= SGRAD__LINES / least ? timeline->ranks : SGRAD__LINES / least;
    const int each = all <= SGRAD__LINES ? timeline->rows : SGRAD__LINES / ranks - receives - moves;
    bool *shown = sgrad_xcalloc((size_t)timeline->rows, sizeof *shown);
    *lines = (struct sgrad__lines){ .row = sgrad_xcalloc((size_t)room, sizeof *lines->row),
                                    .rank = sgrad_xcalloc((size_t)room, sizeof *lines->rank),
                                    .of_row = sgrad_xcalloc((size_t)timeline->rows, sizeof *lines->of_row),
                                    .of_rank = sgrad_xcalloc((size_t)timeline->ranks, sizeof *lines->of_rank),
                                    .of_disk = sgrad_xcalloc((size_t)timeline->ranks, sizeof *lines->of_disk) };
    for (int i = 0; i < timeline->rows; i++) lines->of_row[i] = -1;
    for (int r = 0; r < timeline->ranks; r++) lines->of_rank[r] = lines->of_disk[r] = -1;
    for (int r = 0; r < ranks; r++) {
        mark_busiest(timeline, r, each, shown);
        for (int i = timeline->first_row[r]; i < timeline->first_row[r + 1]; i++)
            if (shown[i]) add_line(lines, i, r);
        if (receives) add_line(lines, SGRAD__LINE_MESSAGES, r);
        if (moves) add_line(lines, SGRAD__LINE_MOVES, r);
    }
    if (all > SGRAD__LINES) lines->left_out = sentence(timeline, lines, ranks, each);
    free(shown);
}

void sgrad__lines_free(struct sgrad__lines *lines) {
    free(lines->row);
    free(lines->rank);
    free(lines->of_row);
    free(lines->of_rank);
    free(lines->of_disk);
    free(lines->left_out);
    *lines = (struct sgrad__lines){ 0 };
}

char *sgrad__lines_name(const struct sgrad__timeline *timeline, const struct sgrad__lines *lines, int line) {
    const int row = lines->row[line];
    return row < 0 ? sgrad_format("rank %d %s", lines->rank[line], row == SGRAD__LINE_MOVES ? "disk" : "receives")
                   : sgrad_format("rank %d worker %d", lines->rank[line], timeline->row[row].worker);
}
