/* report.h: the room that tells what happened in a run, from the files that the run left in its folder. It trains nothing, needs
 * no network and no device, and may look at a run that goes on.
 *
 *     config.json, metrics.jsonl ──history──┬─> curve.svg
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

/* Draws curve.svg, gantt.svg and their .png, and writes report.html, into the folder; printed is then where they are. */
void sgrad_report_draw(struct sgrad_report *report);

void sgrad_report_print(const struct sgrad_report *report);         /* on standard output */
json_t *sgrad_report_json(const struct sgrad_report *report);       /* all of it; json_decref is the caller's */

/* Lays the runs in these folders, a list that ends with NULL, side by side, and draws compare.svg into the first. JSON NULL:
 * prints on standard output; else *JSON is the same, and the caller's. */
int sgrad_report_compare(char *const *folder, json_t **json);

/* Draws the learning curve alone: FOLDER/curve.svg and .png. false: it could not, and has said why in one line. */
bool sgrad_report_curve(const char *folder);

#endif
