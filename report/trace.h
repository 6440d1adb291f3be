/* trace.h: results from a trace: critical path, memory, copies, findings; their output as text and as JSON. */
#ifndef SGRAD_REPORT_TRACE_H
#define SGRAD_REPORT_TRACE_H

#include "report/overlap.h"

#include <jansson.h>

enum { SGRAD__LISTED = 32 };            /* maximum number of lines of a list of ranks in the text output */

/* ---- critical.c: lower bounds of the duration, for any number of workers and for any order of the tasks ---- */

struct sgrad__critical {
    double ms;                          /* of the critical path: the longest chain of dependent tasks and messages */
    double kind[SGRAD__KINDS];          /* of these, ms in tasks of each kind */
    double messages;                    /* of these, ms in messages */
    double work;                        /* total ms of the tasks of a rank, divided by its workers; maximum over the ranks */
};
/* Returns the lower bound in ms for any order of these tasks on these workers, if the duration of each task is unchanged. */
double sgrad__critical_bound(const struct sgrad__critical *critical);
void sgrad__critical_find(const struct sgrad__timeline *timeline, struct sgrad__critical *critical);

/* ---- memory.c: memory in use over time ---- */

/* Returns an array with the maximum and the curve over time for each memory node of each rank; the caller must json_decref it. */
json_t *sgrad__memory_as_json(const struct sgrad__timeline *timeline);
void sgrad__memory_print(const json_t *memory);

/* ---- copies.c: copies between memory nodes ---- */

/* Returns an object with the total and the sum per tensor, the largest first; the caller must json_decref it. NULL: no copies. */
json_t *sgrad__copies_as_json(const struct sgrad__timeline *timeline);
void sgrad__copies_print(const json_t *copies);

/* ---- findings.c: probable causes of lost time, with advice, as sentences ---- */

/* Returns an array of at most three strings, the most expensive cause first; may be empty. The caller must json_decref it.
 * MOVES: ms per step that the workers of a rank wait for moves to and from a file (moves.c), and thus are not idle for another
 * reason. */
json_t *sgrad__findings(const struct sgrad__timeline *timeline, const struct sgrad__overlap *overlap, double moves);

/* ---- trace.c: output of all results ---- */

/* Returns all results as an object; the caller must json_decref it. MOVES: as for sgrad__findings. */
json_t *sgrad__trace_as_json(const struct sgrad__timeline *timeline, const struct sgrad__overlap *overlap,
                             const struct sgrad__critical *critical, double moves);
/* Prints all results on standard output. FOUND: the result of sgrad__trace_as_json for the same trace. */
void sgrad__trace_print(const struct sgrad__timeline *timeline, const struct sgrad__overlap *overlap,
                        const struct sgrad__critical *critical, const json_t *found);

#endif
