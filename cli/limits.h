/* limits.h: where the limit of a step lies, as bench and doctor say it. */
#ifndef SGRAD_CLI_LIMITS_H
#define SGRAD_CLI_LIMITS_H

#include "cli/cli.h"

/* One of what a step cannot be faster than. */
struct sgrad__limit {
    const char *name;
    double ms;              /* of a step */
    char text[192];         /* that it takes, and why so long */
    const char *advice;     /* what makes it shorter; NULL: another network, or another machine */
};
enum { SGRAD__LIMITS = 5 };

/* Arithmetic, kernels, memory, submission, tasks, those that were measured. Returns how many there are. */
int sgrad__limits_of(const struct sgrad_bench_result *result, struct sgrad__limit limit[SGRAD__LIMITS]);
const struct sgrad__limit *sgrad__limits_longest(const struct sgrad__limit *limit, int limits);

#endif
