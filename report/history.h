/* history.h: the steps and epochs of a run, as read from its folder. */
#ifndef SGRAD_REPORT_HISTORY_H
#define SGRAD_REPORT_HISTORY_H

#include "runtime/runtime.h"

#include <jansson.h>

struct sgrad__history_step {
    double step, loss, rate;            /* number; training loss, NAN if it is not finite; samples per second */
};
/* The metrics of an evaluation, as listed in config.json. The first is the loss. */
enum { SGRAD__MOST_METRICS = 8 };       /* maximum number of metrics */
struct sgrad__history_metric {
    const char *name, *title;           /* "top1", "accuracy" */
    bool share;                         /* a fraction, displayed in %; the larger, the better; else the smaller, the better */
};
struct sgrad__history_epoch {
    double epoch, step; /* the epoch and the step after which the network was evaluated */
    double train_loss, test[SGRAD__MOST_METRICS], seconds;      /* test: on the test split, by metric; seconds: of training */
    double train;       /* metric history->trained on the training split; NAN: not recorded */
    json_t *classes;    /* lists by class: samples, precision, recall, f1; NULL: not recorded */
};
/* Sums over the steps that moved tensors between memory and a file. */
struct sgrad__history_moves {
    int steps;                          /* 0: none */
    double written, read;               /* megabytes */
    double moving, waiting, seconds;    /* seconds with a move in progress; of waits for moves; of the steps */
};
struct sgrad__history {
    json_t *config;                     /* config.json */
    json_t *options;                    /* the options at the start of the run, updated by those of its continuations */
    const char *samples;                /* noun for the samples of the data set: "images" */
    int metrics, main;                  /* number of metrics; index of the main metric, by which epochs are compared (--best) */
    int trained;                        /* index of the metric that is also recorded for the training split */
    struct sgrad__history_metric metric[SGRAD__MOST_METRICS];
    json_t *classes;                    /* while reading: the scores of the next epoch; NULL: none */
    json_t *slow_ranks;                 /* list of slow ranks; NULL: none */
    json_t *failures;                   /* list of the losses of ranks after which launch has restarted the run; NULL: none */
    struct sgrad__history_moves moves;
    int steps, epochs;                  /* numbers of recorded steps and evaluations */
    struct sgrad__history_step *step;
    struct sgrad__history_epoch *epoch;
};
/* Reads FOLDER/config.json and FOLDER/metrics.jsonl. On success the caller must free *HISTORY. SGRAD_EFORMAT: a file is
 * malformed, or contains no step. Other errors: as sgrad_map_open. */
int sgrad__history_read(const char *folder, struct sgrad__history *history);
void sgrad__history_free(struct sgrad__history *history);
/* Returns the epoch with the best main metric. NULL: no evaluation has a finite value. */
const struct sgrad__history_epoch *sgrad__history_best(const struct sgrad__history *history);
/* The value of a metric as displayed: as a number, a fraction in %; as text, "97.25 %" or "0.5321". text returns TEXT. */
double sgrad__history_shown(const struct sgrad__history_metric *metric, double value);
const char *sgrad__history_text(const struct sgrad__history_metric *metric, double value, char text[SGRAD_NUMBER_TEXT]);
double sgrad__history_median_rate(const struct sgrad__history *history);    /* of all steps, in samples per second */
/* moves.c: the moves in a step, as an object, which the caller must json_decref, and as text on standard output. NULL, and no
 * text: nothing was moved. */
json_t *sgrad__moves_as_json(const struct sgrad__history *history);
void sgrad__moves_print(const struct sgrad__history *history);

#endif
