/* dedup.h: what dedup.c hands to sweep.c. Private to the two. */
#ifndef SGRAD_CLI_DEDUP_H
#define SGRAD_CLI_DEDUP_H

#include "cli/cli.h"
#include "duplicates/duplicates.h"

/* One threshold of a sweep: what it drops, and what trainings without that come to. */
struct sgrad__sweep_point {
    int threshold;              /* -1: nothing is dropped */
    int64_t dropped;
    double ratio;               /* of the training set that is dropped */
    double accuracy, least, most;       /* on the test set: mean, least and most of the runs */
};
struct sgrad__sweep {
    int count, best;            /* best: the largest ratio that loses no more than epsilon */
    struct sgrad__sweep_point *point;   /* the first drops nothing; free it */
};
/* "A-B", both from 0; false: it is something else. */
bool sgrad__sweep_parse(const char *text, int *from, int *to);
/* Trains at each threshold, in folders of OUT/sweep; leaves OUT/sweep.json and OUT/sweep.svg. */
int sgrad__sweep_run(const struct sgrad__request *request, const struct sgrad_dataset *train, const struct sgrad_hashes *hashes,
                     const struct sgrad_duplicates *found, struct sgrad__sweep *sweep);
json_t *sgrad__sweep_json(const struct sgrad__sweep *sweep);

#endif
