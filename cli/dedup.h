/* dedup.h: the sweep of stargrad dedup (sweep.c), for dedup.c. Private to these two files. */
#ifndef SGRAD_CLI_DEDUP_H
#define SGRAD_CLI_DEDUP_H

#include "cli/cli.h"
#include "duplicates/duplicates.h"

/* One threshold of a sweep: the number of samples that it drops, and the accuracy of training without them. */
struct sgrad__sweep_point {
    int threshold;              /* bits; -1: nothing is dropped */
    int64_t dropped;            /* number of training samples */
    double ratio;               /* dropped samples as a fraction of the training set */
    double accuracy, least, most;       /* on the test set: mean, minimum and maximum over the runs */
};
struct sgrad__sweep {
    int count, best;            /* number of points; index of the one with the largest ratio that loses at most epsilon */
    struct sgrad__sweep_point *point;   /* the first drops nothing; the caller must free it */
};
/* Parses "A-B", 0 <= A <= B <= 256. Returns false for other texts. */
bool sgrad__sweep_parse(const char *text, int *from, int *to);
/* Trains at each threshold, in folders below OUT/sweep, where OUT is --out. Writes OUT/sweep.json and OUT/sweep.svg, and prints
 * the points unless --json is set. Only for one rank. *SWEEP must be zeroed. Returns 0 or a negative SGRAD_E… code. */
int sgrad__sweep_run(const struct sgrad__request *request, const struct sgrad_dataset *train, const struct sgrad_hashes *hashes,
                     const struct sgrad_duplicates *found, struct sgrad__sweep *sweep);
json_t *sgrad__sweep_json(const struct sgrad__sweep *sweep);    /* returns a new array with the points */

#endif
