/* pictures.h: the plots and the HTML page of a run, written to its folder. Functions that return bool return false on failure,
 * after logging the reason. */
#ifndef SGRAD_REPORT_PICTURES_H
#define SGRAD_REPORT_PICTURES_H

#include "report/history.h"
#include "report/timeline.h"

#include <stdio.h>

/* 0xRRGGBB: of messages; of moves to and from a file. */
#define SGRAD__MESSAGE_COLOR 0xc0392b
#define SGRAD__STORE_COLOR   0x7d5a33
#define SGRAD__FETCH_COLOR   0x3aa6c4

/* ---- plot.c: gnuplot ---- */

struct sgrad__plot {
    const char *name, *what;                    /* file name without extension; content, for messages: "learning curve" */
    int width, height;                          /* points */
    void (*write)(FILE *to, const void *of);    /* writes gnuplot's commands; called once per file */
    const void *of;                             /* passed to write */
};
/* Draws FOLDER/NAME.svg and .png with gnuplot. On failure logs a warning with the reason as one line and returns false. Returns
 * false without a warning if the variable STARGRAD_PICTURES is "no". */
bool sgrad__plot_draw(const char *folder, const struct sgrad__plot *plot);
void sgrad__plot_quoted(FILE *to, const char *text);    /* writes TEXT as a gnuplot string in single quotes */

/* ---- curve.c ---- */

/* Writes gnuplot's data block $NAME with at most 2,000 rows: step, loss, moving average of the loss over a fiftieth of the run.
 * Returns the largest average. */
double sgrad__curve_losses(FILE *to, const char *name, const struct sgrad__history *history);
bool sgrad__curve_draw(const char *folder, const struct sgrad__history *history);       /* FOLDER/curve.svg and .png */

/* ---- compare.c ---- */

/* Draws the learning curves of the runs in the folders FOLDER, a NULL-terminated list, as TO/curves.svg and .png. */
bool sgrad__curves_draw(const char *to, char *const *folder);

/* ---- gantt.c: a Gantt chart of the timeline ---- */

bool sgrad__gantt_draw(const char *folder, const struct sgrad__timeline *timeline);     /* FOLDER/gantt.svg and .png */

/* ---- page.c ---- */

/* Writes FOLDER/report.html. It contains REPORT (the output of --json), the timeline (NULL: the run was not traced), curve.svg if
 * CURVE is true, and details.svg if REPORT mentions it. */
bool sgrad__page_write(const char *folder, const json_t *report, const struct sgrad__timeline *timeline, bool curve);

#endif
