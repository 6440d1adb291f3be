/* trace.h: what is told of a trace: of the critical path, of memory and copies, of what stands out. */
#ifndef SGRAD_REPORT_TRACE_H
#define SGRAD_REPORT_TRACE_H

#include "report/overlap.h"

#include <jansson.h>

enum { SGRAD__TOLD = 32 };              /* lines of a list of ranks that text has, at most */

/* ---- critical.c: what no number of workers, and what no order, would make shorter ---- */

struct sgrad__critical {
    double ms;                          /* of the longest chain of tasks and messages, each waiting for the one before it */
    double kind[SGRAD__KINDS];          /* of these, in tasks of a kind */
    double messages;                    /* and in messages */
    double work;                        /* ms of tasks for each worker of a rank, the busiest rank's */
};
/* ms: no order of these tasks on these workers is shorter, as long as tasks take what they took. */
double sgrad__critical_bound(const struct sgrad__critical *critical);
void sgrad__critical_find(const struct sgrad__timeline *timeline, struct sgrad__critical *critical);

/* ---- memory.c: how much memory was in use, when ---- */

/* For each memory node of each rank its maximum and its course. */
json_t *sgrad__memory_as_json(const struct sgrad__timeline *timeline);
void sgrad__memory_print(const json_t *memory);

/* ---- copies.c: what went between memory nodes ---- */

/* NULL: nothing did. */
json_t *sgrad__copies_as_json(const struct sgrad__timeline *timeline);
void sgrad__copies_print(const json_t *copies);

/* ---- findings.c: what stands out, in plain sentences ---- */

/* An array of strings, the weightiest first; empty when nothing stands out. */
json_t *sgrad__findings(const struct sgrad__timeline *timeline, const struct sgrad__overlap *overlap);

/* ---- trace.c: all of this, told ---- */

json_t *sgrad__trace_as_json(const struct sgrad__timeline *timeline, const struct sgrad__overlap *overlap,
                             const struct sgrad__critical *critical);
/* FOUND: what as_json made of the same. */
void sgrad__trace_print(const struct sgrad__timeline *timeline, const struct sgrad__overlap *overlap,
                        const struct sgrad__critical *critical, const json_t *found);

#endif
