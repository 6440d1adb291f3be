/* limits.h: where the limit of a step lies, as bench and doctor say it. */
#ifndef SGRAD_CLI_LIMITS_H
#define SGRAD_CLI_LIMITS_H

#include "cli/cli.h"

/* What a step cannot be faster than; TASKS is last, since it is not always measured. */
enum { SGRAD__ARITHMETIC, SGRAD__KERNELS, SGRAD__MEMORY, SGRAD__SUBMISSION, SGRAD__TASKS, SGRAD__LIMITS };
struct sgrad__limit {
    const char *name;
    double ms;              /* of a step */
    char text[192];         /* that it takes, and why so long */
    const char *advice;     /* what makes it shorter; NULL: another network, or another machine */
};

/* Returns how many of them were measured. */
int sgrad__limits_of(const struct sgrad_bench_result *result, struct sgrad__limit limit[SGRAD__LIMITS]);
const struct sgrad__limit *sgrad__limits_longest(const struct sgrad__limit *limit, int limits);

#endif
