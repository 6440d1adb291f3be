/* train.h: training with several steps in flight, concurrent evaluation, checkpoints, metrics, and the run directory.
 *
 * A training step submits the tasks of its program. StarPU decides when and on which worker each task runs. Training a custom
 * network (graphs/networks/networks.h):
 *
 *     struct sgrad_train_options options = sgrad_train_defaults();
 *     options.model.custom = &model;
 *     options.data.name = "digits";
 *     struct sgrad_train_result result;
 *     SGRAD_TRY(sgrad_train(&options, &result));
 *
 * At the end of an epoch, the weights are copied. They are evaluated, and written as a checkpoint, concurrently with the steps
 * that follow. The metrics of an epoch may therefore be reported after later steps; each report includes its step.
 *
 * The run directory contains config.json (options, versions, mean and standard deviation of the input), metrics.jsonl (a JSON
 * object for each step and each evaluation), checkpoint-STEP.safetensors (the newest checkpoints: weights, optimizer states,
 * position) and, at the end, model.safetensors (only the weights).
 *
 * With options.output.print, the network and the program of a step are printed, and nothing is run. */
#ifndef SGRAD_GRAPHS_API_TRAIN_H
#define SGRAD_GRAPHS_API_TRAIN_H

#include "graphs/api/options.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- learning-rate schedules ------------------------------------------------------------------------------------ */

/* The formula of each schedule is in graphs/engine/learning_rate.c. Cosine: Loshchilov and Hutter 2017; one-cycle: Smith and
 * Topin 2019, as PyTorch's OneCycleLR with its defaults. */
enum sgrad_schedule_kind { SGRAD_CONSTANT, SGRAD_STEPS, SGRAD_COSINE, SGRAD_POLY, SGRAD_TRIANGLE, SGRAD_ONECYCLE };
struct sgrad_schedule {
    enum sgrad_schedule_kind kind;
    double milestone[16], factor, power, warmup;    /* milestones and warm-up are in epochs */
    double first, top, last;                        /* triangle: first rate / peak; step of the peak / steps; last rate / peak */
    double start;                                   /* learning rate at the start of the warm-up, if below the one at its end */
    int milestones;
};
/* Parses "constant", "step:E1,E2:F", "cosine", "poly:P", "triangle:START,TOP,END" or "onecycle". Sets warmup and start to 0.
 * SGRAD_EINVAL: TEXT is not a schedule; *SCHEDULE is unchanged. */
int sgrad_schedule_parse(const char *text, struct sgrad_schedule *schedule);
/* Returns the learning rate of step STEP (the first step is 0) of a run of STEPS steps. PEAK: the peak learning rate.
 * STEPS_PER_EPOCH: steps of an epoch. */
double sgrad_schedule_lr(const struct sgrad_schedule *schedule, double peak, double step, double steps,
                         double steps_per_epoch);

/* ---- training --------------------------------------------------------------------------------------------------- */

/* The loss on the test samples of a source of a mixture. */
struct sgrad_source_loss {
    const char *name;               /* as in --data */
    int64_t samples;
    double loss;                    /* NAN: it has no samples */
};

/* Result of a run. All members except rank are the same on every rank. */
struct sgrad_train_result {
    int rank;                       /* of this process; 0 without a launcher. Only rank 0 writes and prints */
    char *folder;                   /* run directory, with the name that rank 0 gave it; free it. NULL: nothing was written */
    /* steps, epochs: completed, including those before a resume. train_loss: mean over the last epoch, or over the steps since an
     * evaluation within it; NAN: no step was run. seconds: training time. samples_per_second: over the steps of train_loss. */
    long steps;
    double epochs, train_loss, seconds, samples_per_second;
    int metrics;                    /* number of metrics of the network; the first metric is the loss */
    const struct sgrad_metric *metric;
    int main;                       /* index of the metric by which evaluations are compared (evaluation.metric) */
    double test[SGRAD_MAX_METRICS]; /* by metric: its value on the test split */
    int64_t test_samples;           /* number of samples of the test split */
    int sources;                    /* length of the next member */
    struct sgrad_source_loss *source;   /* of a mixture, from sgrad_evaluate and sgrad_predict; free it. NULL: none */
    double test_loss, test_top1;    /* loss and top-1 of these; NAN: the network has no top-1 */
    long best_step;                 /* step of the best evaluation, to which test and the saved weights belong; 0: they belong to
                                       the last step */
};
/* Returns a new JSON object: folder, steps, epochs, train_loss, the members that sgrad_result_tests adds, of a classifier classes
 * (a list of sgrad_class_score_json, read from the run directory), best_step if not 0, seconds, samples_per_second. The caller
 * must release it (json_decref). */
struct json_t;
struct json_t *sgrad_result_json(const struct sgrad_train_result *result);
/* Adds "test_loss", "test_top1", …: each metric of the test split; "test_samples", their number; and, of a mixture, "sources", a
 * list of name, test_loss and test_samples. */
void sgrad_result_tests(struct json_t *to, const struct sgrad_train_result *result);
/* Writes VALUE of a metric to TEXT in readable form, "97.25 %" or "0.5321", and returns TEXT. */
const char *sgrad_metric_text(const struct sgrad_metric *metric, double value, char text[SGRAD_NUMBER_TEXT]);

/* Seconds after the first signal that requests the end of a run. Further signals within this time are ignored as repetitions of
 * the first; a later one terminates the program. */
enum { SGRAD_STOP_GRACE = 30 };

/* Trains, and writes the run directory. Prints the configuration and one line for each epoch (on a terminal also a progress bar)
 * on standard output. Every rank that a launcher (mpirun, srun) started must call it, with the same options. On an error, *RESULT
 * is unchanged. An error that occurs on only some of the ranks terminates all ranks.
 * SGRAD_EINTR: the run was stopped by SIGINT, SIGTERM, SIGHUP or SIGUSR1, or before stop_before; a checkpoint was written, unless
 * no step was completed. SGRAD_ENAN: the loss is NaN or infinite. SGRAD_EINVAL, SGRAD_ENAME, SGRAD_ESHAPE: an option is invalid.
 * SGRAD_EIO, SGRAD_EFORMAT: a file cannot be read or written, or is malformed. */
int sgrad_train(const struct sgrad_train_options *options, struct sgrad_train_result *result);

/* Parses the time before which a run must end. *STOP is in seconds since 1970. TEXT is one of: a duration from now ("3600",
 * "90min", "2h"); a time of day ("17:30", "17:30:15"), the next one; a date and time ("2026-11-27T07:00"), local or followed by Z
 * or an offset (+01:00); "slurm-5min": this duration before the end of the Slurm job (SLURM_JOB_END_TIME).
 * SGRAD_EINVAL: TEXT is invalid, or the time has passed. */
int sgrad_deadline_parse(const char *text, double *stop);
bool sgrad_duration_parse(const char *text, double *seconds);      /* "90", "90s", "10min", "2h", "1d"; false: not a duration */

/* Returns true if FOLDER contains a run: its config.json or a checkpoint. With options.checkpoint.resume, options.output.folder
 * must contain a run; without it, options.output.folder must contain neither a run nor other files. */
bool sgrad_run_exists(const char *folder);
/* Removes the snapshots of the run in FOLDER from the memory of this host. No effect while a process of the run holds them. */
void sgrad_snapshots_remove(const char *folder);
/* Creates the directory PATH, and its parent directories, if they do not exist. SGRAD_EIO: one cannot be created. */
int sgrad_folder_make(const char *path);

/* ---- the learning-rate range test --------------------------------------------------------------------------------- */

/* Result of a learning-rate range test (Smith, Cyclical learning rates for training neural networks, arXiv:1506.01186). */
struct sgrad_lr_test {
    int rank;                           /* of this process. Only rank 0 prints */
    int count;                          /* steps with a finite loss */
    double *rate, *loss, *smoothed;     /* by step: learning rate, loss, smoothed loss */
    bool diverged;                      /* the test ended before its last step, because the loss diverged */
    int steepest, least;                /* steps at which the smoothed loss falls fastest, and is smallest */
    double suggested;                   /* learning rate to start with: a tenth of the one at least; NAN: the loss never fell */
};
/* Trains OPTIONS.steps steps (0: 100), or until the loss diverges. The learning rate grows from FROM to TO by the same factor in
 * each step. Writes no run directory. Ignores the options of schedules (schedule, warmup, lr_scale_base, freeze_after) and of
 * saved runs (ema, lookahead, tta, resume, trace, …). Every rank must call it. The caller must free *TEST
 * (sgrad_lr_test_free); after an error there is nothing to free. SGRAD_EINVAL: FROM is not above 0, TO is not above FROM, or
 * the strategy is asynchronous. Other errors are those of sgrad_train. */
int sgrad_find_lr(const struct sgrad_train_options *options, double from, double to, struct sgrad_lr_test *test);
void sgrad_lr_test_free(struct sgrad_lr_test *test);

#ifdef __cplusplus
}
#endif
#endif
