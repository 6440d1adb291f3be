/* rundir.h: the files of a run directory: configuration, checkpoints, metrics; and the output for TensorBoard and Prometheus.
 * Private to graphs/. */
#ifndef SGRAD_GRAPHS_RUNDIR_RUNDIR_H
#define SGRAD_GRAPHS_RUNDIR_RUNDIR_H

#include "config.h"
#include "datasets/datasets.h"
#include "graphs/api/inference.h"
#include "graphs/compiler/program.h"

/* ---- contents.c ----------------------------------------------------------------------------------------------- */

#define SGRAD__TRACE "trace"        /* subdirectory of traces */
/* Checks that the directory PATH can be used. RESUME: it must contain a run; otherwise it must not exist, or be empty. Hidden
 * files, outputs of batch systems and unfinished files of ended runs are ignored. SGRAD_EINVAL: it cannot be used. SGRAD_EIO: it
 * cannot be read. */
int sgrad__run_folder_check(const char *path, bool resume);
/* Checks a path of weights. SGRAD_EIO: they are the final weights of a run that has not written them yet. */
int sgrad__run_check_ended(const char *weights);

/* ---- fields.c ------------------------------------------------------------------------------------------------- */

struct json_t;
/* Returns the options as a JSON object, the one in config.json. The caller must release it (json_decref). */
struct json_t *sgrad__options_json(const struct sgrad_train_options *options);
/* Checks that all options can be written to config.json. SGRAD_EINVAL: one is not UTF-8. */
int sgrad__options_check(const struct sgrad_train_options *options);
/* Returns the options that both splits of the data set are opened with. Their texts are those of OPTIONS. (history.c) */
struct sgrad_dataset_options sgrad__dataset_options(const struct sgrad_train_options *options);
/* Sets OPTIONS to the values in OBJECT; options that it does not contain are unchanged. The strings remain valid until the
 * program ends. WHERE, the name of the file, precedes error messages. SGRAD_EFORMAT: OBJECT is not an object, or a value has the
 * wrong type; OPTIONS is unchanged. */
int sgrad__options_take(const char *where, const struct json_t *object, struct sgrad_train_options *options);

/* ---- config.c ------------------------------------------------------------------------------------------------- */

/* The contents of FOLDER/config.json: everything that is needed to repeat a run. All pointers are borrowed. */
struct sgrad__config {
    const struct sgrad_train_options *options;
    const char *model;                              /* model with all of its options; a custom model must also have a name */
    const struct sgrad__lora *lora;                 /* adapters; NULL: none */
    int64_t parameters;                             /* number of trained values */
    uint64_t fingerprint;                           /* hash of the training set (sgrad_dataset_fingerprint) */
    const struct sgrad_metric *metric;              /* array: metrics of the network's loss */
    int metrics;                                    /* length of this array */
    const char *samples;                            /* word for a sample of the data set: "images", "samples" */
    const struct sgrad_dataset *dataset;            /* the training set */
    int channels;                                   /* of images; 0: the samples are not images */
    /* mean and standard deviation of the input, by channel */
    double mean[SGRAD_MAX_CHANNELS], deviation[SGRAD_MAX_CHANNELS];
    int ranks;                                      /* number of ranks */
    int recomputed;                                 /* number of layers that are recomputed because of --memory */
    int64_t micro_batch;                            /* samples; the one in use, also if it was chosen automatically */
    int64_t group;                                  /* samples of a batch-normalization group; 0: the network has none */
    int64_t tests;                                  /* number of samples of the test set */
    bool auto_mesh;                                 /* options->parallel.mesh was chosen automatically (--mesh auto) */
    const char *devices;                            /* description of the workers of this rank */
};
/* Writes FOLDER/config.json. SGRAD_EINVAL: an option is not UTF-8. SGRAD_EIO: the file cannot be written. */
int sgrad__config_write(const char *folder, const struct sgrad__config *config);
/* Appends an entry to the list "continued" of FOLDER/config.json: the run continues after STEP, with its changed options, ranks,
 * devices, environment and versions. The rest of the file is unchanged. *HISTORY becomes a text with a line for the start of the
 * run (in the file: "begun"), and a line for each entry of the list ("changes"), such as "continues after step 4, with lr 0.001
 * (was 0.1)" for the last one; the caller must free it. If there is no config.json, it is written, and *HISTORY is unchanged.
 * SGRAD_EIO: the file cannot be read or written. SGRAD_EFORMAT: it is malformed. SGRAD_EINVAL: an option is not UTF-8. */
int sgrad__config_continue(const char *folder, const struct sgrad__config *config, long step, char **history);

/* Returns the values that must be equal on all ranks, one per line: versions, data, and all options except those that are
 * specific to a node. The caller must free the result. */
char *sgrad__config_shared(const struct sgrad__config *config);
/* Compares CONFIG with the identity and the adapter in FOLDER/config.json; a directory without this file passes. The errors are
 * those of sgrad__config_same, and of reading the file. */
int sgrad__config_check(const char *folder, const struct sgrad__config *config);

/* Reads FOLDER/config.json. *OBJECT becomes its content, which the caller must release (json_decref); NULL if there is no such
 * file, or on an error. *PATH becomes its name, which the caller must always free. SGRAD_EIO: it cannot be read. SGRAD_EFORMAT:
 * it is malformed. */
int sgrad__config_read(const char *folder, char **path, struct json_t **object);

/* Returns the current options of the run with the content CONFIG of config.json: those of its start, with the changes of each
 * continuation. The caller must release them (json_decref). NULL: options are missing. */
struct json_t *sgrad__config_options(const struct json_t *config);

/* origin.c.
 * Returns a description of the features and the target of D for config.json, which the caller must release (json_decref). NULL: D
 * has no numeric features (no origin). */
struct sgrad_dataset;
struct json_t *sgrad__origin_json(const struct sgrad_dataset *dataset);
/* Returns the features, target and classes in CONFIG, the content of a config.json. The caller must free the result
 * (sgrad_origin_free). NULL: CONFIG is malformed. */
struct sgrad_origin *sgrad__origin_of(const struct json_t *config);

/* Reads mean and standard deviation of the input, of CHANNELS values each, from FOLDER/config.json. *FOUND is false if this is
 * not the directory of a run; MEAN and DEVIATION are then unchanged, and 0 is returned. SGRAD_EFORMAT: the file is malformed.
 * SGRAD_EIO: it cannot be read. */
int sgrad__config_input(const char *folder, int channels, double *mean, double *deviation, bool *found);
/* Reads the batch-normalization groups of the run in FOLDER from its config.json. *GROUP: the option, a number of samples or
 * SGRAD_GROUP_…. *SAMPLES: the resulting number of samples of a group; 0: unknown. *FOUND and errors: as above. */
int sgrad__config_group(const char *folder, long *group, int64_t *samples, bool *found);

/* ---- adapter.c: low-rank adapters in the format of Hugging Face peft ------------------------------------------- */

/* adapter_config.json and the tensors of an adapter. */
struct sgrad__adapter {
    int rank;
    double alpha;                   /* the product B·A is multiplied by alpha / rank */
    char *on;                       /* names of the adapted weights in the network, separated by commas */
    struct sgrad_safetensors file;  /* adapter_model.safetensors */
};
/* Reads the adapter in FOLDER. The caller must free it with sgrad__adapter_close. SGRAD_EIO: a file cannot be read.
 * SGRAD_EFORMAT: it is malformed. SGRAD_EINVAL: the adapter has a feature that is not supported, which is named. */
int sgrad__adapter_read(const char *folder, struct sgrad__adapter *adapter);
void sgrad__adapter_close(struct sgrad__adapter *adapter);
/* Loads the adapters of GRAPH from such a file. Errors: those of sgrad__weights_load. */
int sgrad__adapter_load(struct sgrad_graph *graph, const struct sgrad__adapter *adapter);
/* Writes the adapters of GRAPH in COPY, which must not be merged or written yet, to FOLDER. BASE: the file of the weights, for
 * the configuration; NULL: unknown. SGRAD_EIO. */
int sgrad__adapter_write(const struct sgrad_graph *graph, const struct sgrad__weights *copy, const char *folder,
                         const char *base);

/* ---- identity.c ----------------------------------------------------------------------------------------------- */

/* Returns the values that must not change when a run is continued: model, data, batch, seed, batch-normalization group,
 * precision, optimizer, adapters. The result is the text of a JSON object; the caller must free it. */
char *sgrad__config_identity(const struct sgrad__config *config);
/* Returns the same as a JSON object. The caller must release it (json_decref). */
struct json_t *sgrad__identity_json(const struct sgrad__config *config);
/* Compares two results of sgrad__config_identity. WHERE, the name of the file of BEFORE, precedes error messages. Options of the
 * model that only NOW has, because a later version has added them, must be 0. SGRAD_EINVAL: a value differs. SGRAD_EFORMAT:
 * BEFORE lacks a value. */
int sgrad__config_same(const char *where, const char *before, const char *now);
/* The same for two results of sgrad__identity_json. Changes BEFORE. */
int sgrad__identity_same(const char *where, struct json_t *before, struct json_t *now);
/* Returns the hash of a training set as JSON text, of 16 hexadecimal digits. The caller must release it. */
struct json_t *sgrad__fingerprint_json(uint64_t fingerprint);

/* ---- order.c ---------------------------------------------------------------------------------------------------- */

/* Checks that a run in FOLDER, which continues after STEP with CONFIG, has the same order of samples up to the end of an epoch of
 * STEPS_PER_EPOCH. SGRAD_EINVAL: it has another one. SGRAD_EIO, SGRAD_EFORMAT: config.json cannot be read. */
int sgrad__config_same_order(const char *folder, const struct sgrad__config *config, long step, long steps_per_epoch);

/* ---- checkpoint.c --------------------------------------------------------------------------------------------- */

/* The position of a run. */
struct sgrad__position {
    long step;                  /* number of completed optimizer steps */
    int epoch;                  /* of the next step; 0 is the first */
    long step_in_epoch;         /* of the next step; 0 is the first */
    uint64_t seed;              /* of the run */
    long start;                 /* only of snapshots: number of the start of the run that wrote it, from 1; 0: not recorded */
};

/* A checkpoint that is being written by a separate thread. */
struct sgrad__checkpoint;
/* Copies all parameters and states of TRAINING, after the tasks that change them, and starts to write them to
 * FOLDER/checkpoint-STEP.safetensors, with POSITION and IDENTITY (sgrad__config_identity) in the metadata. When this file is
 * complete, the checkpoints up to STEP are removed, except the newest KEEP. *CHECKPOINT must be passed to sgrad__checkpoint_end.
 * SGRAD_ENOMEM: the thread cannot be started. */
int sgrad__checkpoint_begin(const struct sgrad__training *training, const char *folder, const struct sgrad__position *position,
                            const char *identity, int keep, struct sgrad__checkpoint **checkpoint);
/* Returns true if writing has failed so far. CHECKPOINT may be NULL: no checkpoint is being written. */
bool sgrad__checkpoint_failed(const struct sgrad__checkpoint *checkpoint);
/* Waits until the checkpoint is written, or writing has failed; frees it. CHECKPOINT may be NULL. SGRAD_EIO: writing has
 * failed. */
int sgrad__checkpoint_end(struct sgrad__checkpoint *checkpoint);

/* Returns the path of the checkpoint of STEP in FOLDER, whether it exists or not. The caller must free it. */
char *sgrad__checkpoint_path(const char *folder, long step);
/* Stores in *EXISTS whether FOLDER contains a checkpoint, complete or not. SGRAD_EIO: FOLDER cannot be read. */
int sgrad__checkpoint_exists(const char *folder, bool *exists);
/* Returns the step of the checkpoint PATH, by its name; -1: it is not the name of a checkpoint. */
long sgrad__checkpoint_step(const char *path);
/* Stores the path of the newest complete checkpoint in FOLDER, of a step after AFTER, in *PATH, which the caller must free; NULL
 * if there is no such checkpoint. AFTER -1: of any step. Checks the checksums. Incomplete checkpoints are skipped with a
 * warning. Removes unfinished files of ended runs.
 * SGRAD_EFORMAT: all checkpoints are incomplete. SGRAD_EIO: FOLDER cannot be read. On an error, *PATH is unchanged. */
int sgrad__checkpoint_newest(const char *folder, long after, char **path);
/* Returns the step of the newest checkpoint in FOLDER after at most DONE steps; 0: none. Only one of DONE steps is verified. */
long sgrad__checkpoint_last(const char *folder, long done);

/* Loads a checkpoint into TRAINING and *POSITION. SGRAD_EINVAL: it belongs to another run: its identity differs from IDENTITY.
 * SGRAD_EFORMAT: it is incomplete or malformed. SGRAD_EIO: it cannot be read. On an error nothing is changed, unless reading
 * fails after some tensors have been loaded. */
int sgrad__checkpoint_load(struct sgrad__training *training, const char *path, const char *identity,
                           struct sgrad__position *position);

/* Returns the processor seconds that a written checkpoint took. CHECKPOINT may be NULL, or still being written: 0. */
double sgrad__checkpoint_seconds(const struct sgrad__checkpoint *checkpoint);

/* ---- slow_rank.c ---- */

struct sgrad__workers;
struct sgrad__slow_rank;
/* The caller must close it; NULL is allowed there. */
struct sgrad__slow_rank *sgrad__slow_rank_open(const struct sgrad__workers *workers);
void sgrad__slow_rank_close(struct sgrad__slow_rank *slow);
/* Adds a step. BUSY: by worker of all ranks, the fraction of time in tasks. Returns the rank that computes for much longer than
 * the others and was not reported yet, and stores how many times longer in *TIMES; -1: none. */
int sgrad__slow_rank_add(struct sgrad__slow_rank *slow, const double *busy, double *times);

/* ---- snapshot_folder.c: checkpoints in memory ------------------------------------------------------------------------ */

/* Returns the name of the folder of snapshots of the run in FOLDER. The caller must free it. NULL: it has no lock. */
char *sgrad__snapshots_name(const char *folder);
/* Creates the folder of snapshots NAME in the memory of this host, unless it exists, and locks it. A process of an earlier
 * start of the run that holds the lock is killed. *FOLDER becomes its path; it must be closed. SGRAD_EIO: it is unusable. */
int sgrad__snapshots_open(const char *name, char **folder, int *lock);
void sgrad__snapshots_clear(const char *folder);        /* removes all snapshots in FOLDER */
/* Returns the number of starts of the run in FOLDER so far, by its config.json; 0: unknown. *LIMIT gets for each of them the
 * last step that belongs to the run: a later start has continued from there, and its steps have replaced the following ones. The
 * caller must free it. */
long sgrad__snapshots_limits(const char *folder, long **limit);
/* Removes the snapshots of steps that do not belong to the run, by LIMIT of COUNT starts: for example, a host returns after the
 * run has continued from an older snapshot of another host. */
void sgrad__snapshots_remove_abandoned(const char *folder, const long *limit, long count);
/* Releases LOCK and frees FOLDER, which may be NULL. REMOVE: removes the folder and its snapshots. */
void sgrad__snapshots_close(char *folder, int lock, bool remove);

/* ---- tensorboard.c, prometheus.c: consumers of values. The first argument may be NULL, except of open: no effect then -- */

struct sgrad__tensorboard;
/* Creates an event file in the subdirectory tensorboard of the run directory FOLDER. FIRST: the first step of a resumed run;
 * readers discard the values of earlier files from this step on; 0: a new run. SGRAD_EIO: it cannot be created. */
int sgrad__tensorboard_open(const char *folder, long first, struct sgrad__tensorboard **tensorboard);
/* Add the value or the histogram NAME of STEP. Write errors are returned by flush. */
void sgrad__tensorboard_tell(struct sgrad__tensorboard *tensorboard, const char *name, long step, double value);
void sgrad__tensorboard_histogram(struct sgrad__tensorboard *tensorboard, const char *name, long step,
                                  const struct sgrad_histogram *histogram);
/* Flushes the file. SGRAD_EIO: this or an earlier write has failed. */
int sgrad__tensorboard_flush(struct sgrad__tensorboard *tensorboard);
void sgrad__tensorboard_close(struct sgrad__tensorboard *tensorboard);

struct sgrad__prometheus;
/* Serves COUNT values, with the names in NAME, on PORT of 127.0.0.1, in the text format of Prometheus. Values that have not been
 * set are omitted. SGRAD_EIO: the port is in use, or the server cannot be started. SGRAD_ELIBRARY. */
int sgrad__prometheus_open(int port, const char *const *name, int count, struct sgrad__prometheus **prometheus);
/* Sets COUNT values, from number FIRST on. */
void sgrad__prometheus_tell(struct sgrad__prometheus *prometheus, int first, const double *value, int count);
void sgrad__prometheus_close(struct sgrad__prometheus *prometheus);

/* ---- class_counts.c: precision, recall and F1 of the classes --------------------------------------------------- */

/* Returns the metrics METRIC of a loss, followed by those of classes. *COUNT, their number, becomes that of all. Static; must not
 * be freed. */
const struct sgrad_metric *sgrad__class_metrics_add(const struct sgrad_metric *metric, int *count);
/* Returns the class with the largest of CLASSES logits, the first one of several; -1: their probabilities are not finite. */
int64_t sgrad__predicted_class(const float *logit, int64_t classes);
/* Adds PREDICTIONS to COUNT: by class the samples, then the predictions, then the correct predictions (3·CLASSES). A sample
 * without finite probabilities has no prediction. */
void sgrad__class_counts_add(double *count, int classes, const struct sgrad_predictions *predictions);
/* Computes the metrics that sgrad__class_metrics_add adds. */
void sgrad__class_metrics(const double *count, int classes, double *value);

/* ---- failures.c ----------------------------------------------------------------------------------------------- */

/* Returns the failure that preceded this start (STARGRAD_FAILURE), which the caller must release; NULL: none. */
struct json_t *sgrad__failure_read(void);
/* Returns the line of FAILURE for metrics.jsonl, without a newline; the caller must free it. STEP: completed steps of the state
 * that was loaded; the next step has ended now. REPEATED: number of steps after it that had been recorded. */
char *sgrad__failure_line(struct json_t *failure, long step, long repeated);

/* ---- metrics.c ------------------------------------------------------------------------------------------------ */

struct sgrad__metrics_options {
    const char *folder;                     /* the run directory */
    FILE *terminal;                         /* gets one line per epoch, and a progress bar, or a line every minute if it is not a
                                               terminal; NULL: no output */
    long batch, steps;                      /* samples of a step, of all ranks; steps of the run */
    long evaluate_every;                    /* steps between evaluations within an epoch; 0: only at its end */
    bool evaluate_last;                     /* evaluate only after the last step */
    double epochs;                          /* number of epochs of the run */
    bool tensorboard;                       /* also write the values to FOLDER/tensorboard/ */
    int prometheus;                         /* port on which the values are served; 0: none */
    const struct sgrad__workers *workers;   /* workers whose utilization is recorded for both; NULL: none */
    const struct sgrad_metric *metric;      /* array: metrics of the network's loss */
    int metrics;                            /* length of this array */
    int main;                               /* index of the metric by which evaluations are compared */
    const char *samples;                    /* word for a sample: "images" */
    const struct sgrad_train_events *events;        /* functions that get the lines; NULL: none */
    const struct sgrad__position *resumed;  /* of a resumed run: later lines are removed from metrics.jsonl; NULL: new run */
};
struct sgrad__metrics;
/* Opens metrics.jsonl and the other outputs. The members of OPTIONS, except resumed, must remain valid until close. SGRAD_EIO: a
 * file cannot be read or written, or the port is in use. */
int sgrad__metrics_open(const struct sgrad__metrics_options *options, struct sgrad__metrics **metrics);
/* Closes the files and frees METRICS, which may be NULL, here and in all functions below: they have no effect then. Ranks other
 * than 0 have none. */
void sgrad__metrics_close(struct sgrad__metrics *metrics);
void sgrad__metrics_say(const struct sgrad__metrics *metrics, const char *line);     /* prints a line on the terminal */

/* Returns true if the run was ended after the last step of an epoch, or of an interval between evaluations, but before the line
 * of its evaluation was written. The evaluation must then be repeated. */
bool sgrad__metrics_epoch_is_pending(const struct sgrad__metrics *metrics);

/* Returns the last value other than 0 that a function of the events has returned; 0: none. */
int sgrad__metrics_event_status(const struct sgrad__metrics *metrics);

/* Records that a step has been submitted. If no other step was in flight, samples_per_second is measured from now on. */
void sgrad__metrics_submitted(struct sgrad__metrics *metrics);

/* Moves between memory and a file (--spill) since the previous step was completed, on this rank. */
struct sgrad__step_moves {
    double written, read;                   /* bytes */
    double active;                          /* seconds during which at least one move was in progress */
    double awaited;                         /* seconds that workers waited for moves: as sgrad_workers_awaited */
};
/* A completed step. */
struct sgrad__step_event {
    long step;                              /* 1 is the first */
    int epoch;                              /* 0 is the first */
    double loss, rate;                      /* rate: learning rate */
    double time;                            /* when it was completed: seconds of the monotonic clock */
    const double *mean;                     /* by metric: mean over the samples of the step; NULL: unknown */
    const double *busy;                     /* by worker, all ranks: fraction of time in tasks; NULL: this rank, measured now */
    bool empty;                             /* no target of the step counts, so that loss is NaN, and the epoch ignores it */
    const struct sgrad__step_moves *moves;  /* NULL: --spill moves nothing */
};
/* Records a histogram. The histograms of a step must be recorded before the step (sgrad__metrics_step). */
void sgrad__metrics_histogram(struct sgrad__metrics *metrics, const char *name, long step,
                              const struct sgrad_histogram *histogram);
/* Records a step. SGRAD_EIO: writing has failed. */
int sgrad__metrics_step(struct sgrad__metrics *metrics, const struct sgrad__step_event *event);

/* The results of an epoch. The last epoch of a run may be incomplete. */
struct sgrad__epoch {
    long step;                              /* number of its last step */
    double epoch;                           /* number of epochs completed; 1 after the first epoch */
    bool evaluated;                         /* false: its evaluation was omitted, or is in progress */
    const char *views;                      /* views of each image in its evaluation (--tta); NULL: only the image */
    double test[SGRAD_MAX_METRICS];         /* by metric: on the test set; NAN: not evaluated */
    int classes;                            /* classes of the next member; 0: it is absent */
    const double *class_count;              /* by class: test samples, predictions, correct predictions (class_counts.c) */
    int sources;                            /* sources of a mixture, of the next member; 0: it is absent */
    const double *source_loss;              /* by source: loss on its samples of the test set */
    double train_loss;                      /* mean over its steps, or over those since the last evaluation within it */
    double train[SGRAD_MAX_METRICS];        /* the same of metrics that are fractions; NAN: others */
    double seconds, samples_per_second;     /* time of these steps, seconds; throughput */
    double memory;                          /* peak memory of all tensors of this rank so far, MB; 0: unknown */
};
/* Fills train_loss, train, seconds and samples_per_second of *EPOCH, whose last step has been recorded. */
void sgrad__metrics_steps(const struct sgrad__metrics *metrics, struct sgrad__epoch *epoch);
/* Records an epoch, after its evaluation; later steps may have been recorded before. SGRAD_EIO: writing has failed. */
int sgrad__metrics_epoch(struct sgrad__metrics *metrics, const struct sgrad__epoch *epoch);

#endif
