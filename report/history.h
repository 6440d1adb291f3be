/* history.h: a run's steps and epochs, read. */
#ifndef SGRAD_REPORT_HISTORY_H
#define SGRAD_REPORT_HISTORY_H

#include "runtime/runtime.h"

#include <jansson.h>

struct sgrad__history_step {
    double step, loss, rate;            /* rate: samples per second */
};
/* What the run's loss tells of the test set, as config.json lists it: the loss itself, then perhaps more. */
enum { SGRAD__MOST_METRICS = 8 };
struct sgrad__history_metric {
    const char *name, *title;           /* "top1", "accuracy" */
    bool share;                         /* of all: shown in %, and the more the better; else the less the better */
};
struct sgrad__history_epoch {
    double epoch, step; /* after which it was evaluated */
    double train_loss, test[SGRAD__MOST_METRICS], seconds;      /* test: by metric */
    double train;       /* the main metric of training; NAN: the run did not tell it */
};
struct sgrad__history {
    json_t *config;
    json_t *options;                    /* by now: what began the run, with what continuations changed */
    const char *samples;                /* what the data set has: "images" */
    int metrics, main;                  /* main: the one that tells how good the network is */
    struct sgrad__history_metric metric[SGRAD__MOST_METRICS];
    int steps, epochs;                  /* how many of each */
    struct sgrad__history_step *step;
    struct sgrad__history_epoch *epoch;
};
/* Reads FOLDER/config.json and metrics.jsonl; at least one step is there. */
int sgrad__history_read(const char *folder, struct sgrad__history *history);
void sgrad__history_free(struct sgrad__history *history);
/* That of the best main metric. NULL: none was evaluated. */
const struct sgrad__history_epoch *sgrad__history_best(const struct sgrad__history *history);
/* A metric's value as it is shown, a share in %; and as text: "97.25 %", "0.5321". */
double sgrad__history_shown(const struct sgrad__history_metric *metric, double value);
const char *sgrad__history_text(const struct sgrad__history_metric *metric, double value, char text[SGRAD_NUMBER_TEXT]);
double sgrad__history_median_rate(const struct sgrad__history *history);

#endif
