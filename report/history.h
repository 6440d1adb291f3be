/* history.h: a run's steps and epochs, read. */
#ifndef SGRAD_REPORT_HISTORY_H
#define SGRAD_REPORT_HISTORY_H

#include <jansson.h>

struct sgrad__history_step {
    double step, loss, rate;            /* rate: samples per second */
};
struct sgrad__history_epoch {
    double epoch, step; /* after which it was evaluated */
    double train_loss, test_loss, top1, seconds;
};
struct sgrad__history {
    json_t *config;
    int steps, epochs;                  /* how many of each */
    struct sgrad__history_step *step;
    struct sgrad__history_epoch *epoch;
};
/* Reads FOLDER/config.json and metrics.jsonl; at least one step is there. */
int sgrad__history_read(const char *folder, struct sgrad__history *history);
void sgrad__history_free(struct sgrad__history *history);
const struct sgrad__history_epoch *sgrad__history_best(const struct sgrad__history *history);   /* NULL: none was evaluated */
double sgrad__history_median_rate(const struct sgrad__history *history);

#endif
