/* files.h: what a run writes and reads again: configuration, checkpoints, metrics, and what it tells TensorBoard and Prometheus.
 * Private to graphs/runs/. */
#ifndef SGRAD_GRAPHS_FILES_H
#define SGRAD_GRAPHS_FILES_H

#include "config.h"
#include "datasets/datasets.h"
#include "graphs/runs/runs.h"
#include "graphs/runs/runner.h"

/* ---- fields.c ------------------------------------------------------------------------------------------------- */

struct json_t;
struct json_t *sgrad__options_json(const struct sgrad_train_options *options);
int sgrad__options_check(const struct sgrad_train_options *options);    /* all of them can be written so: SGRAD_EINVAL */
/* The options become those that OBJECT has; WHERE, a file's name, begins a message. Changes nothing on error. */
int sgrad__options_take(const char *where, const struct json_t *object, struct sgrad_train_options *options);

/* ---- config.c ------------------------------------------------------------------------------------------------- */

/* Everything needed to repeat a run, as FOLDER/config.json keeps it. */
struct sgrad__config {
    const struct sgrad_train_options *options;
    const char *model;                              /* its name; a custom one has one too */
    int64_t parameters;                             /* trained numbers */
    uint64_t fingerprint;                           /* of the training set */
    const struct sgrad_metric *metric;              /* METRICS of the network's loss */
    int metrics;
    const char *samples;                            /* what the data set has: "images", "samples" */
    const struct sgrad_dataset *dataset;            /* the training set, open */
    int channels;                                   /* of images; 0: there are none */
    double mean[SGRAD_MAX_CHANNELS], deviation[SGRAD_MAX_CHANNELS];
    int ranks;
    int64_t micro_batch;                            /* as chosen */
    int64_t group;                                  /* samples of batch norm's groups; 0: it has none */
    int64_t tests;                                  /* samples of the test set */
    bool auto_mesh;                                 /* --mesh auto chose options->mesh */
    const char *devices;
};
int sgrad__config_write(const char *folder, const struct sgrad__config *config);
/* Adds to the file's list "continued" that the run goes on after STEP: the options that it has otherwise from here on, ranks,
 * devices, versions. What began the run stays. *HISTORY has a line for what began it ("begun" in the file), and for each entry of
 * that list ("changes" there), of which the last is "continues  after step 4, with lr 0.001 (was 0.1)"; free it. */
int sgrad__config_continue(const char *folder, const struct sgrad__config *config, long step, char **history);

/* What has to agree between a run and its continuation (model, data, batch, seed, batch-norm group, precision, optimizer), as
 * one JSON object; free it. Of two such texts the second has to say what the first does, else SGRAD_EINVAL tells which differs;
 * WHERE, a file's name, begins the message. */
char *sgrad__config_identity(const struct sgrad__config *config);
/* What has to agree between ranks: versions, data, and the options that are not a node's own; a line each. Free it. */
char *sgrad__config_shared(const struct sgrad__config *config);
int sgrad__config_same(const char *where, const char *before, const char *now);

/* The same comparison with FOLDER/config.json; a folder without one agrees with everything. */
int sgrad__config_check(const char *folder, const struct sgrad__config *config);

/* FOLDER/config.json as an object; NULL when there is none. *PATH is its name, to free in any case. */
int sgrad__config_read(const char *folder, char **path, struct json_t **object);

/* The options by now of the run that CONFIG.json describes: those that began it, with what each continuation changed. NULL: it
 * has none. */
struct json_t *sgrad__config_options(const struct json_t *config);

/* What D's features and target are, for config.json; NULL: they are no numbers. */
struct sgrad_dataset;
struct json_t *sgrad__origin_json(const struct sgrad_dataset *d);
/* What a CONFIG.json describes; NULL: it is malformed. sgrad_origin_free frees it. */
struct sgrad_origin *sgrad__origin_of(const struct json_t *config);

/* How the run in FOLDER normalised its input of CHANNELS channels. No config.json there: SUCCESS, and *FOUND is false. */
int sgrad__config_input(const char *folder, int channels, double *mean, double *deviation, bool *found);
/* The groups of its batch norm, samples or SGRAD_GROUP_…, likewise; SAMPLES: those of a group, whatever that says; 0: unknown. */
int sgrad__config_group(const char *folder, long *group, int64_t *samples, bool *found);

/* ---- checkpoint.c --------------------------------------------------------------------------------------------- */

/* Where a run stands: after how many optimizer steps, and which part of which epoch comes next. */
struct sgrad__position {
    long step;
    int epoch;                  /* 0 is the first */
    long step_in_epoch;
    uint64_t seed;
};

/* One that is being written, by a thread of its own. */
struct sgrad__checkpoint;
/* Copies parameters, states, optimizer (waits for the tasks that change them), and begins to write them to
 * FOLDER/checkpoint-STEP.safetensors, with position and IDENTITY (sgrad__config_identity) in the metadata. When that is whole,
 * the older ones but the newest KEEP are removed. */
int sgrad__checkpoint_begin(const struct sgrad_graph *graph, const char *folder, const struct sgrad__position *position,
                            const char *identity, int keep, struct sgrad__checkpoint **checkpoint);
bool sgrad__checkpoint_failed(const struct sgrad__checkpoint *checkpoint);      /* so far; NULL, here and below: there is none */
int sgrad__checkpoint_end(struct sgrad__checkpoint *checkpoint);                /* waits until it is written, or could not be */

/* That of STEP in FOLDER, whether there is one or not; free it. */
char *sgrad__checkpoint_path(const char *folder, long step);
int sgrad__checkpoint_exists(const char *folder, bool *exists);        /* any at all, whole or not; EIO */
/* The newest whole checkpoint in FOLDER; *PATH is NULL when there is none at all, else free it. Ones that are not whole are
 * warned of and passed over; when there are only such, SGRAD_EFORMAT. Removes files that a killed run left half-written. */
int sgrad__checkpoint_newest(const char *folder, char **path);

/* Loads what save wrote. Changes nothing on error, of which another IDENTITY is one, but where the file cannot be read on. */
int sgrad__checkpoint_load(struct sgrad_graph *graph, const char *path, const char *identity,
                           struct sgrad__position *position);

/* ---- tensorboard.c, prometheus.c: who hears values; NULL hears nothing ----------------------------------------------- */

struct sgrad__tensorboard;
/* A new event file in FOLDER, the run's. FIRST: the step with which the run goes on, from which on readers drop what earlier
 * files have; 0: it begins. EIO. */
int sgrad__tensorboard_open(const char *folder, long first, struct sgrad__tensorboard **tensorboard);
void sgrad__tensorboard_tell(struct sgrad__tensorboard *tensorboard, const char *name, long step, double value);
void sgrad__tensorboard_histogram(struct sgrad__tensorboard *tensorboard, const char *name, long step,
                                  const struct sgrad_histogram *h);
int sgrad__tensorboard_flush(struct sgrad__tensorboard *tensorboard);                           /* EIO */
void sgrad__tensorboard_close(struct sgrad__tensorboard *tensorboard);

struct sgrad__prometheus;
/* COUNT values by NAME, on PORT of this host; those are answered that have been told. EIO: the port is taken. */
int sgrad__prometheus_open(int port, const char *const *name, int count, struct sgrad__prometheus **prometheus);
/* COUNT values from the one of number FIRST on. */
void sgrad__prometheus_tell(struct sgrad__prometheus *prometheus, int first, const double *value, int count);
void sgrad__prometheus_close(struct sgrad__prometheus *prometheus);

/* ---- metrics.c ------------------------------------------------------------------------------------------------ */

struct sgrad__metrics_options {
    const char *folder;
    FILE *terminal;                         /* one line an epoch; a progress bar where it is a terminal; NULL: silent */
    long batch, steps;                      /* samples of a step; steps of the whole run */
    long evaluate_every;                    /* steps; 0: epochs alone */
    bool evaluate_last;                     /* after the last step alone */
    double epochs;
    bool tensorboard;                       /* whether FOLDER/tensorboard/ has the values too */
    int prometheus;                         /* port on which they can be asked for; 0: none */
    const struct sgrad__workers *workers;   /* watched, when either is there */
    const struct sgrad_metric *metric;      /* METRICS of the network's loss */
    int metrics;
    const char *samples;                    /* what they are called: "images" */
    const struct sgrad__position *resumed;  /* what comes after it is dropped from metrics.jsonl; NULL: a new run */
};
struct sgrad__metrics;
int sgrad__metrics_open(const struct sgrad__metrics_options *options, struct sgrad__metrics **metrics);
void sgrad__metrics_close(struct sgrad__metrics *metrics);      /* NULL is fine, here and below: ranks other than 0 have none */
void sgrad__metrics_say(const struct sgrad__metrics *metrics, const char *line);     /* on the terminal */

/* Does the run go on from the end of an epoch whose line was never written? */
bool sgrad__metrics_owes_epoch(const struct sgrad__metrics *metrics);

/* A step was submitted: where none was in flight, the clock of samples_per_second starts anew. */
void sgrad__metrics_submitted(struct sgrad__metrics *metrics);

/* A step is done. */
struct sgrad__step_event {
    long step;                              /* 1 is the first */
    int epoch;                              /* 0 is the first */
    double loss, rate;
    double time;                            /* when: seconds of the monotonic clock */
    const double *mean;                     /* by metric, over the step's samples; NULL: not known */
    const double *busy;                     /* by worker, if any are watched; NULL: there are only this rank's, who are asked */
};
/* Those of a step are told before it. */
void sgrad__metrics_histogram(struct sgrad__metrics *metrics, const char *name, long step,
                              const struct sgrad_histogram *histogram);
int sgrad__metrics_step(struct sgrad__metrics *metrics, const struct sgrad__step_event *event);

/* An epoch, or what the run's last step leaves of it. */
struct sgrad__epoch {
    long step;                              /* its last one */
    double epoch;                           /* 1 after the first */
    bool evaluated;
    const char *views;                      /* of each image, as --tta has them; NULL: itself */
    double test[SGRAD_MAX_METRICS];         /* by metric; NAN: it is not evaluated */
    double train_loss;                      /* the mean over its steps, or those since the last evaluation within it */
    double train[SGRAD_MAX_METRICS];        /* likewise, of metrics that are shares */
    double seconds, samples_per_second;     /* of its steps */
    double memory;                          /* MB that this rank's tensors have had at once so far, at most; 0: not known */
};
/* Its steps are done: fills what they have come to. */
void sgrad__metrics_steps(const struct sgrad__metrics *metrics, struct sgrad__epoch *epoch);
/* It is evaluated, perhaps when later steps are done. */
int sgrad__metrics_epoch(struct sgrad__metrics *metrics, const struct sgrad__epoch *epoch);

#endif
