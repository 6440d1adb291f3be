/* lines.h: the lines of a plot of a timeline, from top to bottom: for each rank its workers; with several ranks, a line for the
 * messages that it receives; with --spill, a line for moves to and from its disk. The plot of a large run shows only the busiest
 * workers. */
#ifndef SGRAD_REPORT_LINES_H
#define SGRAD_REPORT_LINES_H

#include "report/timeline.h"

enum { SGRAD__LINES = 256 };            /* maximum number of lines of a plot */
enum { SGRAD__LINE_MESSAGES = -1, SGRAD__LINE_MOVES = -2 };

struct sgrad__lines {
    int count, workers;                 /* number of lines; number of lines for workers */
    int *row, *rank;                    /* per line: row of the timeline, or SGRAD__LINE_…; the rank */
    int *of_row, *of_rank, *of_disk;    /* per row of the timeline: its line; per rank: those of messages, moves; -1: not shown */
    char *left_out;                     /* a sentence about the rows that are not shown; NULL: all are shown */
};
void sgrad__lines_pick(const struct sgrad__timeline *timeline, struct sgrad__lines *lines);     /* the caller must free LINES */
void sgrad__lines_free(struct sgrad__lines *lines);
/* Returns the label of a line: "rank 0 worker 1", "rank 0 receives" or "rank 0 disk". The caller must free it. */
char *sgrad__lines_name(const struct sgrad__timeline *timeline, const struct sgrad__lines *lines, int line);

#endif
