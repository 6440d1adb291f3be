/* report.h: the module that reports on a run, from the files in its folder. It does not train, needs neither the neural network
 * nor a device, and also works while the run is in progress.
 *
 *     config.json, metrics.jsonl ──history──┬─> curve.svg
 *     details.json (eval --details) ────────┼─> details.svg
 *                                           ├─> text, JSON, report.html
 *     trace/ ─────────────────────timeline──┼─> gantt.svg
 *                                    └─ overlap, critical path, memory, copies, findings
 *
 * The *history* consists of the steps and epochs of a run. The *timeline*, if the run was traced, records which worker ran which
 * task at which time, and which messages were in progress. All other results are computed from these two, output as text or as
 * JSON with the same figures, and plotted.
 *
 *     #include "report/report.h"
 *
 *     int main(void) {
 *         struct sgrad_report *report;
 *         if (sgrad_report_open("run", &report)) return 1;         // the error and the file have been logged as one line
 *         sgrad_report_draw(report);                               // run/curve.svg, run/gantt.svg, run/report.html
 *         sgrad_report_print(report);
 *         sgrad_report_close(report);
 *         return 0;
 *     }
 *
 * Functions that return int return 0 or a negative SGRAD_E… code, after logging the error. A plot that cannot be drawn (gnuplot
 * is not installed) causes only a warning. */
#ifndef SGRAD_REPORT_REPORT_H
#define SGRAD_REPORT_REPORT_H

#include <jansson.h>
#include <stdbool.h>

struct sgrad_report;

/* Reads the files in FOLDER and computes all results. The string FOLDER must outlive the report. The caller must close *REPORT.
 * SGRAD_EIO, SGRAD_EFORMAT: a file is missing, incomplete or malformed. */
int sgrad_report_open(const char *folder, struct sgrad_report **report);
void sgrad_report_close(struct sgrad_report *report);               /* NULL is not allowed */

/* Draws curve.svg, details.svg, gantt.svg and their .png, and writes report.html, to the folder. print and json then also output
 * the names of these files. */
void sgrad_report_draw(struct sgrad_report *report);

void sgrad_report_print(const struct sgrad_report *report);         /* on standard output */
json_t *sgrad_report_json(const struct sgrad_report *report);       /* all results; the caller must json_decref the object */

/* Compares the runs in the folders FOLDER, a NULL-terminated list, and draws compare.svg and .png in the first. JSON NULL: prints
 * the comparison on standard output; else stores it in *JSON, which the caller must json_decref. SGRAD_EIO, SGRAD_EFORMAT: as
 * sgrad_report_open. */
int sgrad_report_compare(char *const *folder, json_t **json);

/* Returns true if FOLDER is the folder of a search: it contains leaderboard.json. */
bool sgrad_report_is_search(const char *folder);
/* Draws the learning curves of all candidates, curves.svg and .png, and writes report.html with them and the leaderboard. Returns
 * false if it cannot write report.html, after logging the reason as one line. If LEADERBOARD is not NULL, *LEADERBOARD is set to
 * the content of leaderboard.json, or to NULL; the caller must json_decref it. */
bool sgrad_report_search(const char *folder, json_t **leaderboard);

/* Draws only the learning curve, FOLDER/curve.svg and .png. Returns false on failure, after logging the reason as one line. */
bool sgrad_report_curve(const char *folder);

/* Speed-ups by number of devices, and the plot of several such series. */
struct sgrad_scaling_series {
    const char *title;
    int count;                              /* number of points */
    const double *devices, *speedup;        /* (count) */
};
struct sgrad_scaling {
    const char *title;
    int count;
    const struct sgrad_scaling_series *series;
};
/* Draws FOLDER/NAME.svg and .png. Returns false on failure, after logging the reason as one line. */
bool sgrad_report_scaling(const char *folder, const char *name, const struct sgrad_scaling *scaling);

/* The bytes that a rank uses during a step, over time, without and with a limit. */
struct sgrad_step_memory_series {
    const char *title;
    int count;                              /* number of points; 0: not drawn */
    const double *seconds, *bytes;          /* (count): the bytes from this time on */
    double end;                             /* of the step, in seconds */
};
struct sgrad_step_memory {
    const char *title;
    double limit;                           /* bytes */
    struct sgrad_step_memory_series series[2];
    int moves;                              /* moves to and from a disk */
    const double *move;                     /* (moves, 3): begin, end in seconds, sorted by begin; 0: write, 1: read */
};
/* Draws FOLDER/NAME.svg and .png. Returns false on failure, after logging the reason as one line. */
bool sgrad_report_step_memory(const char *folder, const char *name, const struct sgrad_step_memory *memory);

/* The points of a learning-rate range test. */
struct sgrad_rates {
    const char *title;
    int count;                              /* number of points, at least 1 */
    const double *rate, *loss, *smoothed;   /* (count): learning rates, losses, smoothed losses */
    double suggested;                       /* the suggested learning rate; NAN: none */
};
/* Draws FOLDER/NAME.svg and .png. Returns false on failure, after logging the reason as one line. */
bool sgrad_report_rates(const char *folder, const char *name, const struct sgrad_rates *rates);

#endif
