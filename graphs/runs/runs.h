/* runs.h: turning programs: training with steps in flight, evaluation, checkpoints, metrics, the run's folder.
 *
 * Running a step is submitting its program's tasks; StarPU decides when and where each runs. A network of one's own
 * (graphs/networks/networks.h), trained:
 *
 *     struct sgrad_train_options options = sgrad_train_defaults();
 *     options.custom_model = &model;
 *     options.data = "digits";
 *     struct sgrad_train_result result;
 *     SGRAD_TRY(sgrad_train(&options, &result));
 *
 * At the end of an epoch the weights are copied, and evaluated, and written as a checkpoint, beside the steps that follow: what
 * is told of an epoch may come after later steps, and says of which step it is.
 *
 * Network, program and step can be printed before anything runs (options.print). */
#ifndef SGRAD_RUNS_H
#define SGRAD_RUNS_H

#include "graphs/networks/networks.h"
#include "graphs/programs/programs.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the learning rate over a run ------------------------------------------------------------------------------ */

enum sgrad_schedule_kind { SGRAD_CONSTANT, SGRAD_STEPS, SGRAD_COSINE, SGRAD_POLY, SGRAD_ONECYCLE };
struct sgrad_schedule {
    enum sgrad_schedule_kind kind;
    double milestone[16], factor, power, warmup;    /* milestones and warm-up in epochs */
    double start;                                   /* the rate that the warm-up begins with, if it is below where it leads */
    int milestones;
};
/* Parses "constant", "step:E1,E2:F", "cosine", "poly:P", "onecycle". */
int sgrad_schedule_parse(const char *text, struct sgrad_schedule *schedule);
/* The learning rate of a step that begins EPOCH epochs (a fraction) into a run of EPOCHS. */
double sgrad_schedule_rate(const struct sgrad_schedule *schedule, double peak, double epoch, double epochs);

/* ---- training ------------------------------------------------------------------------------------------------- */

enum { SGRAD_GROUP_RANK = 0, SGRAD_GROUP_MICRO = -1, SGRAD_GROUP_GLOBAL = -2 };     /* or a number of samples */

/* f32; f32 whose products tensor cores may round to 10 bits (TF32), where the device has them; bfloat16, with f32 weights and
 * sums. */
enum sgrad_precision { SGRAD_PRECISION_F32, SGRAD_PRECISION_TF32, SGRAD_PRECISION_BF16 };
const char *sgrad_precision_name(enum sgrad_precision precision);      /* "f32", … */

struct sgrad_reader;
struct sgrad_train_options {
    const char *model, *data;                   /* "resnet20", "cifar10:DIR" */
    const struct sgrad_model *custom_model;     /* instead of a name */
    const struct sgrad_reader *custom_reader;   /* a kind of data besides those of datasets.h; data NULL: all it is told */
    double epochs;
    long steps;                                 /* 0: as epochs say */
    long batch, micro_batch;                    /* micro_batch 0: chosen */
    long bn_group;                              /* samples, or SGRAD_GROUP_… */
    const char *optimizer;
    const struct sgrad_optimizer *custom_optimizer;     /* instead of a name */
    double lr;                                  /* learning rate; below 0: the optimizer's own */
    double momentum, weight_decay, beta1, beta2, eps, trust;
    double kfac_damping, kfac_decay, kfac_clip;     /* of optimizer kfac */
    const char *kfac_damping_schedule;              /* as schedule, of the damping; NULL: constant */
    long kfac_factor_every, kfac_eigen_every;       /* steps */
    long kfac_lag;                                  /* steps; -1: as kfac_factor_every */
    const char *kfac_skip;                          /* patterns of layers, with commas between; NULL: none */
    long lr_scale_base;                         /* samples: the peak is lr·batch/lr_scale_base (Goyal et al. 2017); 0: lr */
    bool nesterov, no_decay_1d;
    const char *schedule;
    double warmup, label_smoothing, clip_norm;
    const char *exclude;                        /* a file that lists training samples to leave out (datasets.h); NULL: none */
    bool no_shuffle, no_fuse;
    bool recompute;                             /* blocks compute what they made again in backward (sgrad_graph_block) */
    const char *augment;                        /* "none", "crop:4,flip" (datasets.h); NULL: as the data set's reader has it */
    bool partition;                             /* a rank keeps in memory its share of the training set, else all of it */
    uint64_t seed;
    bool deterministic;
    enum sgrad_precision precision;
    const char *init;                           /* a safetensors file, or NULL */
    const char *out;                            /* the run's folder; NULL: runs/NAME-TIME */
    bool resume;
    long checkpoint_every;                      /* epochs, or steps when checkpoint_in_steps; 0: never */
    bool checkpoint_in_steps;
    int keep;
    bool print, nan_ok, json;
    bool tensorboard;                           /* event files for TensorBoard in the run's folder, too */
    long histograms; /* steps from one histogram of all weights and gradients, for TensorBoard, to the next; 0: none */
    int prometheus;                             /* port of 127.0.0.1 where current values can be asked for; 0: none */
    const char *trace;                          /* "" or "FIRST-LAST" steps to record; NULL: none */
    const char *allreduce;                      /* how gradients are summed over ranks; NULL: the cheapest by cost */
    const char *strategy;                       /* how ranks train together */
    const char *mesh;                           /* "data=2,tensor=2": their coordinates (networks.h); NULL: data, all of them */
    int servers, group, staleness;              /* 0: all ranks; the ranks of a host; as the window says */
    int backup; /* gradients that an update does without; -1: one, where there are several ranks */
    const char *network;                        /* a file with the network's measures; NULL: measured */
    double bucket;                              /* MB of gradients summed at once; 0: chosen by cost */
    int window;                                 /* steps in flight */
    double stall_timeout;                       /* seconds for which nothing happens before a rank gives up; 0: it never does */
    int cpus, gpus;                             /* workers: 0 all, -1 none */
    const char *scheduler;                      /* StarPU's name; NULL: chosen */
    int image_size;                             /* folder data: 0 as the images are */
    const char *const *asked;       /* the options that somebody asked for, by their long names, then NULL: those that have no
                                       effect on this run are told on standard error; NULL: none are */
};
struct sgrad_train_options sgrad_train_defaults(void);  /* as stargrad train --help tells them */

/* What a machine could do with a network, and what it does. */
struct sgrad_bench_kernel {
    const char *name;               /* "conv2d backward-weight" */
    int64_t calls;                  /* in a step of this rank */
    double ms; /* of them all, each in its best time alone: the mean of the CPU workers, busy with the same at once */
    double gflop, gbyte;            /* of them all */
};
struct sgrad_bench_result {
    int kernels;
    struct sgrad_bench_kernel *kernel;      /* the longest first; free it */
    long batch;
    int workers;                    /* of this rank */
    double limit_ms; /* a step of nothing but operations, each alone in its best time, on all workers of this rank */
    double step_ms;                 /* the median of the steps that were taken */
    double memory_gbyte, memory_ms; /* what a step's tasks read and write of main memory, and how long all workers take for it */
};
/* Measures these for a step of OPTIONS. Trains some steps, and writes nothing. */
int sgrad_bench(const struct sgrad_train_options *options, struct sgrad_bench_result *result);

/* All but the rank is the same on every rank. */
struct sgrad_train_result {
    int rank;                       /* of this process. Rank 0 alone writes and prints; without a launcher it is the only one */
    char *folder;                   /* with rank 0's files, as rank 0 names it; free it. NULL: nothing was written */
    long steps;
    double epochs, train_loss, seconds, samples_per_second;
    int metrics;                    /* that the network's loss has, the loss itself first; by metric, its value on the test set */
    const struct sgrad_metric *metric;
    double test[SGRAD_MAX_METRICS];
    double test_loss, test_top1;    /* two of them; NAN: there is no such */
};
/* A metric's VALUE, as people read it: "97.25 %", or "0.5321". */
const char *sgrad_metric_text(const struct sgrad_metric *metric, double value, char text[SGRAD_NUMBER_TEXT]);

/* Trains; writes the run's folder; prints what the run is and one line an epoch (a progress bar on a terminal) on standard
 * output. Every rank that a launcher (mpirun, srun) started calls it, with the same options. SGRAD_EINTR after SIGINT, SIGTERM,
 * SIGHUP or SIGUSR1 (a checkpoint is written), SGRAD_ENAN when the loss is no number. */
int sgrad_train(const struct sgrad_train_options *options, struct sgrad_train_result *result);

/* Does FOLDER hold what a run has begun, its config.json or a checkpoint? options.resume continues it, and nothing else. */
bool sgrad_run_exists(const char *folder);

/* The metrics of saved weights on the test part of DATA; every rank calls it. Uses of OPTIONS: model, data, init (the
 * weights), micro_batch, precision, cpus, gpus, scheduler, image_size. The input is normalised as the run's config.json beside
 * the weights says, if it is there, else by the training part's statistics. */
int sgrad_evaluate(const struct sgrad_train_options *options, struct sgrad_train_result *result);

#ifdef __cplusplus
}
#endif
#endif
