/* train.h: training with several steps in flight, concurrent evaluation, checkpoints, metrics, and the run directory.
 *
 * A training step submits the tasks of its program. StarPU decides when and on which worker each task runs. Training a custom
 * network (graphs/networks/networks.h):
 *
 *     struct sgrad_train_options options = sgrad_train_defaults();
 *     options.custom_model = &model;
 *     options.data = "digits";
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
 * With options.print, the network and the program of a step are printed, and nothing is run. */
#ifndef SGRAD_GRAPHS_API_TRAIN_H
#define SGRAD_GRAPHS_API_TRAIN_H

#include "codelets/updates.h"
#include "graphs/compiler/compiler.h"
#include "graphs/networks/networks.h"

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

/* ---- options ---------------------------------------------------------------------------------------------------- */

/* The samples over which batch normalization computes its statistics; a positive number is a number of samples. RANK: the local
 * batch of a rank. MICRO: a micro-batch. GLOBAL: the batch of all ranks. GPU: if the ranks have several GPUs, the samples of one
 * GPU; as RANK if the local batch cannot be divided equally among the GPUs, and in deterministic runs. */
enum { SGRAD_GROUP_RANK = 0, SGRAD_GROUP_MICRO = -1, SGRAD_GROUP_GLOBAL = -2, SGRAD_GROUP_GPU = -3 };
const char *sgrad_group_name(long group);               /* returns "rank", …; NULL: group is a number of samples */
bool sgrad_group_named(const char *name, long *group);  /* sets *group; false: name is not a group name */

/* F32: f32. TF32: f32, but tensor cores, where the device has them, may round the factors of products to 10 bits (TF32). BF16:
 * bfloat16 activations; weights and sums are f32. */
enum sgrad_precision { SGRAD_PRECISION_F32, SGRAD_PRECISION_TF32, SGRAD_PRECISION_BF16 };
const char *sgrad_precision_name(enum sgrad_precision precision);      /* returns "f32", "tf32" or "bf16" */

/* Numbers, one for each channel or class. count 0: the option is not set. */
enum { SGRAD_MAX_NUMBERS = 8 };
struct sgrad_numbers {
    int count;
    double number[SGRAD_MAX_NUMBERS];
};

/* Steps FIRST to LAST, from 1. first 0: none. */
struct sgrad_step_range {
    long first, last;
};

/* Convert the text of an option to its value. Return false if the text is invalid; the value is then unchanged.
 * numbers: "0.5" or "1,0.5", at most SGRAD_MAX_NUMBERS finite numbers.
 * step_range: "7" or "5-10"; "" means steps 10 to 12: early, but after the caches are warm.
 * lookahead: "N", "N:D" or "N:D:P": every N steps, blend into slow weights, which retain D·(step/steps)^P. The default of D is 0.5,
 * that of P is 0. */
bool sgrad_numbers_parse(const char *text, struct sgrad_numbers *numbers);
bool sgrad_step_range_parse(const char *text, struct sgrad_step_range *range);
bool sgrad_lookahead_parse(const char *text, struct sgrad_lookahead *lookahead);
/* Return the text of a value; "" if the option is not set. The caller must free the text. */
char *sgrad_numbers_text(const struct sgrad_numbers *numbers);
char *sgrad_step_range_text(const struct sgrad_step_range *range);
char *sgrad_lookahead_text(const struct sgrad_lookahead *lookahead);

struct sgrad_reader;
struct sgrad_dataset;
/* Options of a run. The caller keeps ownership of all strings and records; they must remain valid during the run. Lists are
 * separated by commas. A pattern ("fc", "layer1.*") matches names of layers or parameters. */
struct sgrad_train_options {
    const char *model, *data;                   /* names: "resnet20"; "cifar10:DIR" */
    const struct sgrad_model *custom_model;     /* used instead of model; NULL: none */
    const struct sgrad_reader *custom_reader;   /* reader in addition to those of datasets.h; if data is NULL, its name is data */
    struct sgrad_dataset *custom_dataset[2];    /* train, test: open data sets, used instead of data; the caller closes them */
    double epochs;                              /* passes over the training set */
    long steps;                                 /* optimizer steps; 0: determined by epochs */
    long batch, micro_batch;                    /* samples of a step, of all ranks; of a task, 0: automatic */
    long bn_group;                              /* samples, or SGRAD_GROUP_… */
    const char *optimizer;
    const struct sgrad_optimizer *custom_optimizer;     /* used instead of optimizer; NULL: none */
    double lr;                                  /* learning rate; below 0: the default of the optimizer */
    double momentum, weight_decay, beta1, beta2, eps, trust;    /* trust: the trust coefficient of LARS */
    double kfac_damping, kfac_decay, kfac_clip;     /* K-FAC: damping; decay of the factors' averages; KL clipping, 0: off */
    const char *kfac_damping_schedule;              /* K-FAC: schedule of the damping, as schedule; NULL: constant */
    long kfac_factor_every, kfac_eigen_every;       /* K-FAC: steps between factors, and between their decompositions */
    long kfac_lag;                                  /* K-FAC: steps from the start of a decomposition to its first use; -1: as
                                                       kfac_factor_every, at most kfac_eigen_every */
    const char *kfac_skip;                          /* K-FAC: patterns of layers that are not preconditioned; NULL: none */
    const char *kfac_variant;                       /* K-FAC: ranks that precondition a layer: "opt", all; "lw", one; "0.5", this
                                                       fraction; "auto" or NULL, the cheapest that fits into memory */
    bool kfac_inverse;                              /* K-FAC: use damped inverses instead of eigenvectors */
    long lr_scale_base;                         /* samples: the peak is lr·batch/lr_scale_base (Goyal et al. 2017); 0: lr */
    bool nesterov, no_decay_1d;                 /* Nesterov momentum; no weight decay of 1-D parameters (biases, batch norm) */
    const char *schedule;                       /* of the learning rate (sgrad_schedule_parse); NULL: "constant" */
    double warmup, label_smoothing, clip_norm;  /* epochs; 0 to 1; largest norm of all gradients together, 0: no clipping */
    double ema;                                 /* decay of a moving average of the weights, which is evaluated and saved
                                                   instead of the weights; 0: none */
    struct sgrad_lookahead lookahead;           /* slow weights (codelets/optimizers/lookahead.c); every 0: off. Its member steps is
                                                   ignored */
    struct sgrad_numbers class_weights;         /* by class, for labels of voxels (voxel_loss.c); none: all 1 */
    double dice;                                /* factor of the Dice loss that is added to that loss; 0: none */
    const char *exclude;                        /* file that lists training samples to exclude (datasets.h); NULL: none */
    bool skip_damaged;                          /* report and skip unreadable samples; false: one ends the run with an error */
    /* no_shuffle: samples in file order. no_fuse: one task for each operation. no_cuda_graphs: GPU kernels are launched one by
     * one, and memory of a task is allocated in each step. */
    bool no_shuffle, no_fuse, no_cuda_graphs;
    bool recompute;                             /* activation checkpointing: recompute activations of blocks in the backward
                                                   pass (sgrad_graph_block) */
    const char *augment;                        /* "none", "crop:4,flip" (datasets.h); NULL: the default of the data set */
    bool partition_data;                        /* a rank keeps only its shard of the training set in memory; false: all of it */
    uint64_t seed;                              /* of weights, shuffling, augmentation, dropout */
    bool deterministic;                         /* the same options give the same bits */
    enum sgrad_precision precision;
    const char *init;                           /* safetensors file of initial weights; NULL: none */
    /* Lists of patterns of parameters ("fc,layer1.*"); NULL: none. init_skip: not loaded from init, but initialized. freeze: not
     * trained. optimizer_of: trained by another optimizer ("*.bias=adamw"). lr_of, weight_decay_of: multipliers of the learning
     * rate ("fc=10,conv1=.1") and of the weight decay. freeze_after: not trained after this number of epochs ("conv1=3"). */
    const char *init_skip, *freeze, *optimizer_of, *lr_of, *weight_decay_of, *freeze_after;
    struct sgrad_numbers mean, std;             /* mean and standard deviation, for each channel or one for all; none: those of
                                                   the training set */
    const char *out;                            /* run directory; NULL: runs/NAME-TIME */
    bool resume;                                /* continue the run in out from its newest checkpoint */
    const char *tta;                            /* views of each image in the last evaluation (datasets.h); NULL: the image */
    long evaluate_every;                        /* steps between evaluations within an epoch; 0: only at its end */
    bool evaluate_last;                         /* evaluate only after the last step */
    long checkpoint_every;                      /* epochs, or steps if checkpoint_in_steps, between checkpoints; 0: none */
    bool checkpoint_in_steps;
    double checkpoint_seconds;                  /* between checkpoints, by the clock of rank 0, and one at the end; 0: off */
    const char *stop_before;                    /* time (sgrad_deadline_parse) before which the run stops, with a checkpoint and
                                                   SGRAD_EINTR, as after a signal; NULL: none */
    int keep_checkpoints;                                   /* number of checkpoints to keep */
    bool best;                                  /* save the weights of the best evaluation (best.safetensors), end with them */
    int patience;                               /* stop after this number of evaluations without improvement, with the best
                                                   weights; 0: never */
    /* print: print network and program, run nothing. nan_ok: continue when the loss is NaN or infinite. json: print configuration
     * and progress on standard error. quiet: rank 0 prints neither configuration nor progress. */
    bool print, nan_ok, json, quiet;
    const char *show_batch;                     /* PNG file: plot the first training batch, and run nothing; NULL: off */
    bool tensorboard;                           /* also write event files for TensorBoard to the run directory */
    long histograms; /* steps between histograms of all weights and gradients, for TensorBoard; 0: none */
    int prometheus;                             /* port of 127.0.0.1 that serves current values (/metrics); 0: none */
    struct sgrad_step_range trace;              /* steps to record */
    const char *allreduce;                      /* algorithm that sums gradients over ranks; NULL: the cheapest by cost */
    const char *strategy;                       /* distributed training: "sync", "ps", "async", …; NULL: "sync" */
    const char *shard;                          /* ZeRO: "optimizer", "gradients": sharded over data-parallel ranks; NULL: none */
    const char *mesh;                           /* axes (networks.h): "data=2,pipe=2,tensor=2", or "auto"; NULL: data */
    /* Ranks that are parameter servers, 0: all; ranks of a group that trains synchronously (strategy "mixed"), 0: those of a
     * host; steps that a rank may be ahead of the slowest one, 0: one less than the steps in flight. */
    int servers, group_ranks, staleness;
    int backup_workers; /* slowest gradients that an update does not wait for (strategy "backup"); -1: one if there are several
                           ranks */
    const char *network;                        /* JSON file with latency and bandwidth of the network; NULL: measured */
    double bucket;                              /* MB of gradients summed at once; 0: chosen by cost */
    int steps_in_flight;                                 /* steps in flight, 1 to 8; 0: the default */
    double stall_timeout;                       /* seconds without progress until a waiting rank gives up; 0: no timeout */
    int cpus, gpus;                             /* workers; 0: all, -1: none */
    bool gpus_only;                             /* with GPUs, CPU workers get no samples; false: a number by their throughput */
    const char *scheduler;                      /* name of StarPU's scheduler; NULL: chosen automatically */
    int image_size;                             /* folder data: side to which images are scaled; 0: unscaled */
    const char *command;            /* command with these options, for messages: "stargrad train"; NULL: none */
    const char *const *explicit_options; /* long names of the explicitly set options; ends with NULL. Those without effect on this
                                 run are reported on standard error. NULL: none is reported */
};
struct sgrad_train_options sgrad_train_defaults(void);  /* returns the defaults, as listed by stargrad train --help */

/* ---- training --------------------------------------------------------------------------------------------------- */

/* Result of a run. All members except rank are the same on every rank. */
struct sgrad_train_result {
    int rank;                       /* of this process; 0 without a launcher. Only rank 0 writes and prints */
    char *folder;                   /* run directory, with the name that rank 0 gave it; free it. NULL: nothing was written */
    /* steps, epochs: completed, including those before a resume. train_loss: mean over the last epoch, or over the steps since an
     * evaluation within it; NAN: no step was run. seconds: training time. samples_per_second: over the steps of train_loss. */
    long steps;
    double epochs, train_loss, seconds, samples_per_second;
    int metrics;                    /* number of metrics of the network's loss; the first metric is the loss */
    const struct sgrad_metric *metric;
    double test[SGRAD_MAX_METRICS]; /* by metric: its value on the test split */
    double test_loss, test_top1;    /* loss and top-1 of these; NAN: the network has no top-1 */
    long best_step;                 /* step of the best evaluation, to which test and the saved weights belong; 0: they belong to
                                       the last step */
};
/* Returns a new JSON object: folder, steps, epochs, train_loss, the members that sgrad_result_tests adds, best_step if not 0,
 * seconds, samples_per_second. The caller must release it (json_decref). */
struct json_t;
struct json_t *sgrad_result_json(const struct sgrad_train_result *result);
/* Adds "test_loss", "test_top1", …: each metric of the test split. */
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
 * SGRAD_EINVAL: TEXT is none of these, or the time has passed. */
int sgrad_deadline_parse(const char *text, double *stop);
bool sgrad_duration_parse(const char *text, double *seconds);      /* "90", "90s", "10min", "2h", "1d"; false: not a duration */

/* Returns true if FOLDER contains a run: its config.json or a checkpoint. With options.resume, options.out must contain a run;
 * without it, options.out must contain neither a run nor other files. */
bool sgrad_run_exists(const char *folder);
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
