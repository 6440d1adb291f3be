/* lines.h: the lines of a picture of a timeline, from the top: each rank's workers, below them, where there are several ranks,
 * what it receives. Of a large run a picture has a part: the workers that work most. */
#ifndef SGRAD_REPORT_LINES_H
#define SGRAD_REPORT_LINES_H

#include "report/timeline.h"

enum { SGRAD__LINES = 256 };            /* of a picture, at most */

struct sgrad__lines {
    int count, workers;                 /* lines; of them, workers' */
    int *row, *rank;                    /* of each line: the timeline's row, or -1, where it is what a rank receives; the rank */
    int *of_row, *of_rank;              /* the line of a row, and of what a rank receives; -1: the picture does not have it */
    char *left_out;                     /* a sentence on what the picture does not have; NULL: it has all */
};
void sgrad__lines_pick(const struct sgrad__timeline *timeline, struct sgrad__lines *lines);
void sgrad__lines_free(struct sgrad__lines *lines);
char *sgrad__lines_name(const struct sgrad__timeline *timeline, const struct sgrad__lines *lines, int line);    /* free it */

#endif
