/* pictures.h: what is drawn of a run into its folder, and the page. Each returns false where it could not, and has said why. */
#ifndef SGRAD_REPORT_PICTURES_H
#define SGRAD_REPORT_PICTURES_H

#include "report/history.h"
#include "report/timeline.h"

#include <stdio.h>

#define SGRAD__MESSAGE_COLOR 0xc0392b

/* ---- plot.c: gnuplot ---- */

struct sgrad__plot {
    const char *name, *what;                    /* of the files; of what they show: "learning curve" */
    int width, height;                          /* points */
    void (*write)(FILE *to, const void *of);    /* gnuplot's commands; called for each file */
    const void *of;
};
/* Draws FOLDER/NAME.svg and .png; when that cannot be, warns in one line, says why, and returns false. */
bool sgrad__plot_draw(const char *folder, const struct sgrad__plot *plot);
void sgrad__plot_quoted(FILE *to, const char *text);    /* in gnuplot's single quotes */

/* ---- curve.c ---- */

/* For gnuplot, as $NAME: step, loss, loss smoothed over a fiftieth of the run; some 2,000 rows. Returns the largest smoothed. */
double sgrad__curve_losses(FILE *to, const char *name, const struct sgrad__history *history);
bool sgrad__curve_draw(const char *folder, const struct sgrad__history *history);

/* ---- compare.c ---- */

/* Draws the learning curves of the runs in FOLDER…, a list that ends with NULL, into TO: curves.svg and .png. */
bool sgrad__curves_draw(const char *to, char *const *folder);

/* ---- gantt.c: the timeline as a picture ---- */

bool sgrad__gantt_draw(const char *folder, const struct sgrad__timeline *timeline);

/* ---- page.c ---- */

/* Writes FOLDER/report.html from what --json prints, the timeline (NULL: not traced), curve.svg, and details.svg, where REPORT
 * knows of it. An error is told. */
bool sgrad__page_write(const char *folder, const json_t *report, const struct sgrad__timeline *timeline, bool curve);

#endif
