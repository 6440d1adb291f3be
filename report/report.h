/* report.h: the room that tells what happened in a run, from the files that the run left in its folder. It trains nothing, needs
 * no network and no device, and may look at a run that goes on.
 *
 *     config.json, metrics.jsonl ──history──┬─> curve.svg
 *     details.json (eval --details) ────────┼─> details.svg
 *                                           ├─> text, JSON, report.html
 *     trace/ ─────────────────────timeline──┼─> gantt.svg
 *                                    └─ overlap, critical path, memory, copies, findings
 *
 * A *history* is the steps and epochs of a run; a *timeline*, where the run was traced, is which worker ran which task when, and
 * which messages were under way. The rest is worked out of these two, told as text or as JSON (the same figures), and drawn.
 *
 *     #include "report/report.h"
 *
 *     int main(void) {
 *         struct sgrad_report *report;
 *         if (sgrad_report_open("run", &report)) return 1;         // one line has said what is wrong with which file
 *         sgrad_report_draw(report);                               // run/curve.svg, run/gantt.svg, run/report.html
 *         sgrad_report_print(report);
 *         sgrad_report_close(report);
 *         return 0;
 *     }
 *
 * Functions return 0 or a negative SGRAD_E…, as everywhere. What cannot be drawn (there is no gnuplot) is a warning in one line.
 */
#ifndef SGRAD_REPORT_H
#define SGRAD_REPORT_H

#include <jansson.h>
#include <stdbool.h>

struct sgrad_report;

/* Reads FOLDER, a name that has to stay as long as the report, and works out what is told of it. SGRAD_EIO, SGRAD_EFORMAT: a
 * file is not there or not whole. */
int sgrad_report_open(const char *folder, struct sgrad_report **report);
void sgrad_report_close(struct sgrad_report *report);

/* Draws curve.svg, details.svg, gantt.svg and their .png, and writes report.html, into the folder; printed is then where they
 * are. */
void sgrad_report_draw(struct sgrad_report *report);

void sgrad_report_print(const struct sgrad_report *report);         /* on standard output */
json_t *sgrad_report_json(const struct sgrad_report *report);       /* all of it; json_decref is the caller's */

/* Lays the runs in these folders, a list that ends with NULL, side by side, and draws compare.svg into the first. JSON NULL:
 * prints on standard output; else *JSON is the same, and the caller's. */
int sgrad_report_compare(char *const *folder, json_t **json);

/* Is FOLDER a search's: has it a leaderboard.json? */
bool sgrad_report_is_search(const char *folder);
/* Draws all candidates' learning curves, curves.svg and .png, and writes report.html with them and the leaderboard. false: it
 * could not, and has said why in one line. LEADERBOARD, unless NULL, becomes what leaderboard.json has, or NULL; the caller's. */
bool sgrad_report_search(const char *folder, json_t **leaderboard);

/* Draws the learning curve alone: FOLDER/curve.svg and .png. false: it could not, and has said why in one line. */
bool sgrad_report_curve(const char *folder);

/* Speed-ups by number of devices. */
struct sgrad_scaling_series {
    const char *title;
    int count;
    const double *devices, *speedup;
};
struct sgrad_scaling {
    const char *title;
    int count;
    const struct sgrad_scaling_series *series;
};
/* Draws FOLDER/NAME.svg and .png. false: it could not, and has said why in one line. */
bool sgrad_report_scaling(const char *folder, const char *name, const struct sgrad_scaling *scaling);

/* A learning-rate range test's points: their rates, losses, and losses smoothed. */
struct sgrad_rates {
    const char *title;
    int count;
    const double *rate, *loss, *smoothed;
    double suggested;       /* NAN: none is */
};
bool sgrad_report_rates(const char *folder, const char *name, const struct sgrad_rates *rates);     /* likewise */

#endif
