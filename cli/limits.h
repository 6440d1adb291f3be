/* limits.h: lower bounds of the duration of a step, as printed by stargrad bench and stargrad doctor. */
#ifndef SGRAD_CLI_LIMITS_H
#define SGRAD_CLI_LIMITS_H

#include "graphs/api/bench.h"
#include "cli/cli.h"

/* The lower bounds. TASKS is the last, because it is not always measured. */
enum { SGRAD__ARITHMETIC, SGRAD__KERNELS, SGRAD__MEMORY, SGRAD__SUBMISSION, SGRAD__TASKS, SGRAD__LIMITS };
struct sgrad__limit {
    const char *name;
    double ms;              /* of a step */
    char text[192];         /* the bound and its causes, for the user */
    const char *advice;     /* a measure that reduces it; NULL: only another model or another machine does */
};

/* Sets LIMIT from the result of a benchmark. Returns the number of bounds that were measured. */
int sgrad__limits_of(const struct sgrad_bench_result *result, struct sgrad__limit limit[SGRAD__LIMITS]);
const struct sgrad__limit *sgrad__limits_longest(const struct sgrad__limit *limit, int limits);     /* the largest bound */

#endif
