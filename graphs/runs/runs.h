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
 * The run's folder holds config.json (options, versions, the mean and deviation of the input), metrics.jsonl (a JSON object for
 * each step and each evaluation), checkpoint-STEP.safetensors (the newest ones: weights, optimizer states, position) and, at the
 * end, model.safetensors (weights alone).
 *
 * Network, program and step can be printed before anything runs (options.print). */
#ifndef SGRAD_RUNS_H
#define SGRAD_RUNS_H

#include "graphs/networks/networks.h"
#include "graphs/programs/programs.h"
#include "graphs/runs/past.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the learning rate over a run ------------------------------------------------------------------------------ */

enum sgrad_schedule_kind { SGRAD_CONSTANT, SGRAD_STEPS, SGRAD_COSINE, SGRAD_POLY, SGRAD_TRIANGLE, SGRAD_ONECYCLE };
struct sgrad_schedule {
    enum sgrad_schedule_kind kind;
    double milestone[16], factor, power, warmup;    /* milestones and warm-up in epochs */
    double first, top, last;                        /* of triangle: shares of the peak, of the run, of the peak */
    double start;                                   /* the rate that the warm-up begins with, if it is below where it leads */
    int milestones;
};
/* Parses "constant", "step:E1,E2:F", "cosine", "poly:P", "triangle:START,TOP,END", "onecycle". */
int sgrad_schedule_parse(const char *text, struct sgrad_schedule *schedule);
/* The learning rate of the step that follows STEP others, in a run of STEPS, of which an epoch has STEPS_PER_EPOCH. */
double sgrad_schedule_rate(const struct sgrad_schedule *schedule, double peak, double step, double steps,
                           double steps_per_epoch);

/* ---- training ------------------------------------------------------------------------------------------------- */

/* Or a number of samples. GPU: of several GPUs of a rank each one's part of its share, else as RANK. */
enum { SGRAD_GROUP_RANK = 0, SGRAD_GROUP_MICRO = -1, SGRAD_GROUP_GLOBAL = -2, SGRAD_GROUP_GPU = -3 };
const char *sgrad_group_name(long group);               /* "rank", …; NULL: a number of samples */
bool sgrad_group_named(const char *name, long *group);  /* is there such a name? */

/* f32; f32 whose products tensor cores may round to 10 bits (TF32), where the device has them; bfloat16, with f32 weights and
 * sums. */
enum sgrad_precision { SGRAD_PRECISION_F32, SGRAD_PRECISION_TF32, SGRAD_PRECISION_BF16 };
const char *sgrad_precision_name(enum sgrad_precision precision);      /* "f32", … */

struct sgrad_reader;
struct sgrad_dataset;
struct sgrad_train_options {
    const char *model, *data;                   /* "resnet20", "cifar10:DIR" */
    const struct sgrad_model *custom_model;     /* instead of a name */
    const struct sgrad_reader *custom_reader;   /* a kind of data besides those of datasets.h; data NULL: all it is told */
    struct sgrad_dataset *custom_dataset[2];    /* by split, sets that are open, instead of data; who opened them closes them */
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
    const char *kfac_variant;                       /* "auto", "opt", "lw" or a share of the ranks; NULL: auto */
    bool kfac_inverse;                              /* by damped inverses in place of eigenvectors */
    long lr_scale_base;                         /* samples: the peak is lr·batch/lr_scale_base (Goyal et al. 2017); 0: lr */
    bool nesterov, no_decay_1d;
    const char *schedule;
    double warmup, label_smoothing, clip_norm;
    double ema;                                 /* decay of a moving average of the weights, which is evaluated and what a run
                                                   leaves; 0: there is none */
    const char *lookahead;                      /* "N:D:P" (lookahead.c); NULL: none */
    const char *class_weights;                  /* "1,0.5": by class, of labels of voxels (voxel_loss.c); NULL: 1 */
    double dice;                                /* how much of the Dice loss is added; 0: none */
    const char *exclude;                        /* a file that lists training samples to leave out (datasets.h); NULL: none */
    bool skip_damaged;                          /* samples that cannot be read are named and left out; else one ends the run */
    bool no_shuffle, no_fuse, no_cuda_graphs;
    bool recompute;                             /* blocks compute what they made again in backward (sgrad_graph_block) */
    const char *augment;                        /* "none", "crop:4,flip" (datasets.h); NULL: as the data set's reader has it */
    bool partition;                             /* a rank keeps in memory its share of the training set, else all of it */
    uint64_t seed;
    bool deterministic;
    enum sgrad_precision precision;
    const char *init;                           /* a safetensors file, or NULL */
    /* Patterns of parameters, with commas between ("fc,layer1.*"): which begin anew, and are not taken from init; which stay as
     * they are; which optimizer others have ("*.bias=adamw"), how many times the learning rate ("fc=10,conv1=.1") and the weight
     * decay; after how many epochs others stay as they are. NULL: none. */
    const char *init_skip, *freeze, *optimizer_of, *lr_of, *weight_decay_of, *freeze_after;
    const char *mean, *deviation;               /* of each channel, with commas between; NULL: the training set's */
    const char *out;                            /* the run's folder; NULL: runs/NAME-TIME */
    bool resume;
    const char *tta;                            /* the last evaluation's views of each image (datasets.h); NULL: one, itself */
    long evaluate_every;                        /* steps; at the end of an epoch anyway; 0: there alone */
    bool evaluate_last;                         /* after the last step alone */
    long checkpoint_every;                      /* epochs, or steps when checkpoint_in_steps; 0: never */
    bool checkpoint_in_steps;
    double checkpoint_seconds;                  /* from one to the next, by the clock of rank 0, and one at the end; 0: not so */
    const char *stop_before;                    /* a time, as sgrad_deadline_parse takes it, before which the run ends with a
                                                   checkpoint, as if it were asked to; NULL: none */
    int keep;
    bool best;                                  /* the weights of the best evaluation become best.safetensors */
    int patience;                               /* evaluations without a better one, after which the run ends; 0: it does not */
    bool print, nan_ok, json, quiet;            /* QUIET: rank 0 prints neither configuration nor progress */
    const char *show_batch;                     /* a PNG file: a picture of the first batch as it goes into training, and nothing
                                                   else; NULL: none */
    bool tensorboard;                           /* event files for TensorBoard in the run's folder, too */
    long histograms; /* steps from one histogram of all weights and gradients, for TensorBoard, to the next; 0: none */
    int prometheus;                             /* port of 127.0.0.1 where current values can be asked for; 0: none */
    const char *trace;                          /* "" or "FIRST-LAST" steps to record; NULL: none */
    const char *allreduce;                      /* how gradients are summed over ranks; NULL: the cheapest by cost */
    const char *strategy;                       /* how ranks train together */
    const char *shard;                          /* what ranks that have the same parameters keep shares of; NULL: "none" */
    const char *mesh;                           /* "data=2,pipe=2,tensor=2": their coordinates (networks.h); NULL: data, all */
    int servers, group, staleness;              /* 0: all ranks; the ranks of a host; as the window says */
    int backup; /* gradients that an update does without; -1: one, where there are several ranks */
    const char *network;                        /* a file with the network's measures; NULL: measured */
    double bucket;                              /* MB of gradients summed at once; 0: chosen by cost */
    int window;                                 /* steps in flight */
    double stall_timeout;                       /* seconds for which nothing happens before a rank gives up; 0: it never does */
    int cpus, gpus;                             /* workers: 0 all, -1 none */
    bool gpus_only;                             /* beside GPUs, CPU workers have no samples of a batch; false: by their rates */
    const char *scheduler;                      /* StarPU's name; NULL: chosen */
    int image_size;                             /* folder data: 0 as the images are */
    const char *command;            /* which has these as options: "stargrad train"; for messages; NULL: none */
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
/* A task of its steps, which is known by kernel and hash (runtime.h: sgrad_call). */
struct sgrad_bench_call {
    const char *kernel;
    uint32_t hash;
    double flops, bytes;
    double seconds;                 /* that it took in these steps on a CPU worker, on average, whatever went on beside it */
    int64_t tasks;                  /* that were seen */
};
struct sgrad_bench_result {
    int kernels, calls;
    struct sgrad_bench_kernel *kernel;      /* the longest first; free it */
    struct sgrad_bench_call *call;          /* free it */
    double beside, carrying;        /* seconds of a CPU worker: for a task beside its work; for a byte to or from other ranks */
    long batch;                     /* of all ranks */
    int ranks, workers;             /* workers: of this rank */
    double limit_ms; /* a step of nothing but operations, each alone in its best time, on all workers of this rank */
    double step_ms;                 /* the median of the steps that were taken */
    double memory_gbyte, memory_ms; /* what a step's tasks read and write of main memory, and how long all workers take for it */
    double gflops, gbytes;          /* a second, that all workers of this rank make at most: of arithmetic, of traffic */
    double gflop, arithmetic_ms;    /* what a step's kernels count, and how long it takes at that rate */
    int tasks;                      /* of a step */
    double submission_ms;           /* that the one thread which submits them takes for a step */
    double tasks_ms;                /* a step of the same tasks, none of which computes; 0: not measured, with GPUs or ranks */
    char scheduler[32];             /* that was among them */
    double latency, bandwidth;      /* of the network, in seconds and bytes a second, as ranks measured it; 0: one rank */
    double host_latency, host_bandwidth;        /* the same between ranks of one host */
};
/* Measures these for a step of OPTIONS. Trains some steps, and writes nothing. */
int sgrad_bench(const struct sgrad_train_options *options, struct sgrad_bench_result *result);
/* SECONDS that each of STEPS steps takes behind WARM others, on this process, which is *RANK. TRACE: a folder that
 * gets a trace of all of them, or NULL. Nothing else is written; images are not normalised. Every rank calls it. */
int sgrad_steps_time(const struct sgrad_train_options *options, const char *trace, long warm, long steps, double *seconds,
                     int *rank);

/* What a learning-rate range test has seen, step by step. */
struct sgrad_rate_test {
    int rank;                           /* of this process. Rank 0 alone prints */
    int count;                          /* steps whose loss is a number */
    double *rate, *loss, *smoothed;     /* of each */
    bool diverged;                      /* it ended there, before all steps */
    int steepest, least;                /* points: where the smoothed loss falls fastest, and where it is least */
    double suggested;                   /* the rate to begin with: a tenth of that with the least loss; NAN: it never fell */
};
/* Trains OPTIONS.steps steps (0: 100), or until the loss diverges, of a rate that grows from FROM to TO by the same factor each
 * step; leaves no folder. Options that are a schedule's, or a kept run's, are passed over. Every rank calls it; *TEST is to be
 * freed. */
int sgrad_find_lr(const struct sgrad_train_options *options, double from, double to, struct sgrad_rate_test *test);
void sgrad_rate_test_free(struct sgrad_rate_test *test);

/* What a training step is made of, for whoever asks what it would cost elsewhere (planner/planner.h): the tasks of one rank,
 * which has all samples in one micro-batch, each operation by itself, in their order. It all grows with the samples in a straight
 * line. */
struct sgrad_growth {
    double fixed, each;             /* whatever the samples; and for each sample */
};
/* What several ranks do of a task: each its own samples' part; that, and they add up what comes of it; or one of all ranks, or of
 * the ranks that share a layer's column (--kfac-variant), does it, and the others get what came of it. */
enum sgrad_work_part { SGRAD_WORK_OWN, SGRAD_WORK_SUMMED, SGRAD_WORK_DEALT, SGRAD_WORK_DEALT_BY_LAYER };
struct sgrad_work_task {
    const char *kernel;             /* "conv2d forward": the operation first */
    struct sgrad_growth flops, bytes;   /* bytes: of all its operands */
    double often;                   /* the share of the steps that it is part of */
    bool curvature;                 /* of second order: no part of what other optimizers do */
    enum sgrad_work_part part;
    double sent;                    /* bytes that come of it, where other ranks get them */
};
struct sgrad_work_gradient {
    double bytes;                   /* of the parameter's gradient */
    int made, needed;               /* tasks: it is whole after the one, and what becomes of it is needed by the other */
};
enum { SGRAD_WORK_FIELDS = 4 };
struct sgrad_work {
    char *model;                    /* with all of its options */
    int64_t samples;                /* of an epoch */
    double epochs;                  /* of the run */
    int64_t batch;                  /* asked for */
    int tasks, gradients;
    struct sgrad_work_task *task;
    struct sgrad_work_gradient *gradient;   /* the first made first */
    double rows;                    /* second order: the share of ranks that precondition a layer; 0: one; < 0: the cheapest */
    bool joint;                     /* no weight has its next value before all gradients are there */
    int fields, classes;            /* of a sample; of its label, 0: there is none */
    struct sgrad_work_field {
        char *name;
        struct sgrad_view view;
    } field[SGRAD_WORK_FIELDS];
    double parameters;              /* trained numbers */
    double kept_bytes;              /* parameters, their states, statistics: from step to step */
    struct sgrad_growth peak_bytes; /* of everything else that is there at once, at most */
    struct sgrad_growth input_bytes;        /* of what a step reads */
};
/* Of OPTIONS, whose batch, strategy and ranks do not matter. Reads no data, trains nothing. */
int sgrad_work_find(const struct sgrad_train_options *options, struct sgrad_work *work);
void sgrad_work_free(struct sgrad_work *work);

/* The ways of computing each layer on one core of this machine (codelets.h), in a step of SAMPLES: measured, which takes
 * seconds. */
struct sgrad_layer_ways {
    char *name;                     /* "conv1 backward-weight" */
    struct sgrad_way way[SGRAD_MAX_WAYS];
};
struct sgrad_ways {
    int layers, ways;
    struct sgrad_layer_ways *layer;
};
int sgrad_ways_measure(const struct sgrad_train_options *options, int64_t samples, struct sgrad_ways *ways);
void sgrad_ways_free(struct sgrad_ways *ways);

/* Bytes of gradients that are best summed at once over the ranks of NETWORK, as training has it: all BYTES, or less. METHOD NULL:
 * the cheapest. */
struct sgrad_network;
struct sgrad_collective;
double sgrad_work_bucket(double bytes, const struct sgrad_network *network, const struct sgrad_collective *method);

/* What meshes cost (--mesh auto): of RANKS ranks that are alike, each of so many WORKERS that compute and move so much together,
 * on NETWORK, of whose ranks these are the first. */
struct sgrad_mesh_question {
    int ranks, workers;
    const char *mesh;               /* the only one that is asked about; NULL: all that there are */
    const struct sgrad_network *network;
    int64_t batch;                  /* samples, over all ranks */
    double flops, bandwidth;        /* a second; bytes a second, of a rank's memory */
    double memory;                  /* bytes of a rank; 0: as many as are wanted */
};
struct sgrad_mesh_price {
    char mesh[64];                  /* "data=2,pipe=2,tensor=1d:2" */
    double step, computing, sending, waiting;       /* seconds of a step, and of its slowest stage: they overlap */
    double memory;                  /* bytes of the rank that wants most */
    char *why;                      /* the network cannot be split so, or memory ends; NULL: it goes */
};
struct sgrad_mesh_choice {
    int prices, best;               /* the fastest that goes; -1: none does */
    struct sgrad_mesh_price *price;
};
/* All meshes of so many ranks. Reads no data, trains nothing. */
int sgrad_mesh_choose(const struct sgrad_train_options *options, const struct sgrad_mesh_question *question,
                      struct sgrad_mesh_choice *choice);
void sgrad_mesh_choice_free(struct sgrad_mesh_choice *choice);

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
    long best_step;                 /* the evaluation whose metrics these are, and whose weights the run leaves: after this step,
                                       the best one; 0: that of the last step */
};
/* As an object: folder, steps, epochs, train_loss, what the next one adds, seconds, samples_per_second. */
struct json_t;
struct json_t *sgrad_result_json(const struct sgrad_train_result *result);
/* Adds "test_loss", "test_top1", …: every metric of the test set. */
void sgrad_result_tests(struct json_t *to, const struct sgrad_train_result *result);
/* A metric's VALUE, as people read it: "97.25 %", or "0.5321". */
const char *sgrad_metric_text(const struct sgrad_metric *metric, double value, char text[SGRAD_NUMBER_TEXT]);

/* Seconds after the first signal that asks a run to end. A signal within them repeats the first and is ignored; a later one ends
 * the program. */
enum { SGRAD_STOP_GRACE = 30 };

/* Trains; writes the run's folder; prints what the run is and one line an epoch (a progress bar on a terminal) on standard
 * output. Every rank that a launcher (mpirun, srun) started calls it, with the same options. SGRAD_EINTR after SIGINT, SIGTERM,
 * SIGHUP or SIGUSR1 (a checkpoint is written), SGRAD_ENAN when the loss is no number. */
int sgrad_train(const struct sgrad_train_options *options, struct sgrad_train_result *result);

/* The time before which a run has to end, in *STOP, seconds since 1970: "3600", "90min", "2h" from now; "17:30", "17:30:15", the
 * next such; "2026-11-27T07:00", with Z or a zone (+01:00) behind it; "slurm-5min", so long before the Slurm job ends
 * (SLURM_JOB_END_TIME).
 * SGRAD_EINVAL: it is none of these, or over. */
int sgrad_deadline_parse(const char *text, double *stop);
bool sgrad_duration_parse(const char *text, double *seconds);      /* "90", "90s", "10min", "2h", "1d"; false: none */

/* Does FOLDER hold what a run has begun, its config.json or a checkpoint? options.resume continues it, and nothing else. */
bool sgrad_run_exists(const char *folder);
/* Makes the folder, and those that it lies in, as far as they are not there. SGRAD_EIO. */
int sgrad_folder_make(const char *path);

/* ---- searching: many candidates over data that stays where it is ----------------------------------------------------- */

/* When candidates are given up. By "halving" (successive halving: Jamieson and Talwalkar 2016) after FIRST epochs, FIRST·FACTOR,
 * FIRST·FACTOR², …: all but the best of each FACTOR. By "median" (Golovin et al. 2017, section 3.2) after FIRST epochs, and each
 * that follows: who was never as good as the median of what the others were in the mean. "none": nobody is. */
struct sgrad_stop {
    const char *rule;                           /* NULL: none */
    int first, factor;                          /* 0: 1 epoch; 3 */
};

struct sgrad_candidate {
    const char *name;                           /* of its folder; NULL: its number */
    const char *given;                          /* a JSON object: what it was asked for, which files and tables tell; NULL: {} */
    struct sgrad_train_options options;         /* of data, out, epochs, resume, json and the devices those of the search hold */
};

struct sgrad_search_options {
    struct sgrad_train_options common;          /* data, out, epochs (whole ones), seed, resume, json, cpus, gpus, … */
    const char *given;                          /* a JSON object: what all were asked for, for files; NULL: {} */
    const struct sgrad_candidate *candidate;
    int candidates;
    int partitions;                             /* of the training set; 0: as many as ranks */
    int together;                               /* candidates that a rank trains side by side; 0: chosen */
    const char *schedule;                       /* "ring", "staggered", "open-shop"; NULL: of these the shortest */
    struct sgrad_stop stop;
    const char *replay; /* DIR/NAME, DIR being common.out: the only candidate is trained alone as that one was, in
                           DIR/NAME/replay; NULL: a search */
};

struct sgrad_search_result {
    int rank;                                   /* of this process. Rank 0 alone prints */
    char *folder, *best;                        /* the search's, and its best candidate's; free them. best NULL: all failed */
    long hops;                                  /* of candidates from rank to rank, in this process's time */
    double bytes;                               /* that these moved */
    bool same;                                  /* of a replay: losses and weights are those of the search, to the bit */
};

/* Trains candidates, each by itself as on one rank alone. The training set is cut into partitions that stay each with a rank, and
 * a candidate goes from one to the next: its weights, its optimizer's states and what it has come to are sent while others train.
 * Leaves in OUT a folder for each (as train's), leaderboard.json and schedule.jsonl. Always deterministic; goes on, with resume,
 * on any number of ranks, wherever it was ended. Every rank calls it, with the same options. */
int sgrad_search(const struct sgrad_search_options *options, struct sgrad_search_result *result);

/* Does FOLDER hold what a search has begun? */
bool sgrad_search_exists(const char *folder);

/* The metrics of saved weights on the test part of DATA; every rank calls it. Uses of OPTIONS: model, data, init (the
 * weights), micro_batch, precision, cpus, gpus, scheduler, image_size. The input is normalised as the run's config.json beside
 * the weights says, if it is there, else by the training part's statistics. */
int sgrad_evaluate(const struct sgrad_train_options *options, struct sgrad_train_result *result);

/* What a network says of samples, in their order, and what it is to say. */
struct sgrad_answers {
    int64_t samples, numbers;       /* of a sample: logits, one for each class (and row, where it has several), or numbers */
    float *said;                    /* (samples,numbers) */
    int64_t labels;                 /* of a sample: its rows; 0: there are none */
    int32_t *label;                 /* (samples,labels) */
};
/* As sgrad_evaluate, and *ANSWERS too, the same on every rank; to be freed. */
int sgrad_predict(const struct sgrad_train_options *options, struct sgrad_train_result *result, struct sgrad_answers *answers);
void sgrad_answers_free(struct sgrad_answers *answers);

/* Writes saved weights and their network to the ONNX file PATH, as docs/onnx.md says. Uses of OPTIONS what sgrad_evaluate does.
 * SGRAD_EINVAL: a layer has no form in ONNX. */
int sgrad_export(const struct sgrad_train_options *options, const char *path);

/* Of answers of one label a sample. */
enum { SGRAD_CONFIDENCES = 15 };
struct sgrad_classification {
    int classes;
    int64_t *confusion;             /* (classes,classes): how many of class i are said to be of class j */
    int64_t *unsure, all_unsure;    /* (classes): how many of class i have no finite probabilities; and of all classes. They count
                                       as wrong, and are not in confusion or confidence */
    double top1, top5;              /* shares; of several equal logits the first counts as the largest */
    /* Samples whose largest probability is of the i-th of so many equal parts of 0 to 1: how many, the mean of that probability,
     * the share that is right; and by how much these two differ over all samples, in the mean (Guo et al., On calibration of
     * modern neural networks, 2017). */
    struct sgrad_confidence {
        int64_t count;
        double said, right;
    } confidence[SGRAD_CONFIDENCES];
    double calibration_error;
};
struct sgrad_classification sgrad_classify(const struct sgrad_answers *answers);
void sgrad_classification_free(struct sgrad_classification *c);
/* Have COUNT logits finite probabilities? No: one is NaN or infinite, or all are minus infinity. */
bool sgrad_is_sure(const float *logit, int64_t count);
/* The softmax of COUNT logits. */
void sgrad_probabilities(const float *logit, int64_t count, double *probability);

/* ---- operations of one's own ------------------------------------------------------------------------------------- */

/* Is OP right, on each of its test shapes? Its derivatives against finite differences of forward, gradients that are added to,
 * bf16 against f32; in the open context (runtime.h), on CPUs. SGRAD_EINVAL: one line tells what is wrong, and by how much. */
int sgrad_op_check(const struct sgrad_op *op);
int sgrad_collective_check(const struct sgrad_collective *method);     /* the same: of 1 to 33 ranks (rehearsal.c) */
int sgrad_optimizer_check(const struct sgrad_optimizer *optimizer);    /* the same: check_update.c */

/* ---- language models ------------------------------------------------------------------------------------------- */

struct sgrad_sample_options {
    const int32_t *prompt;              /* one token at least */
    int prompt_tokens;
    long tokens;                        /* that are added */
    double temperature;                 /* 0: always the likeliest */
    int top_k;                          /* of so many of the likeliest; 0: of all */
    void (*take)(void *arg, int token); /* is called with each of them */
    void *arg;
    int words;                          /* of the tokenizer's vocabulary, all of which the network has to know; 0: unknown */
};
/* What the weights OPTIONS.init of a language model add to a text. Uses of OPTIONS: model, init, seed, precision, cpus,
 * scheduler. SGRAD_EINVAL: the prompt has a token that the network has not; SGRAD_ENAN: what it computes is no number. */
int sgrad_sample(const struct sgrad_train_options *options, const struct sgrad_sample_options *how);

/* ---- segmenting volumes ----------------------------------------------------------------------------------------- */

struct sgrad_segment_worker {           /* seconds of one worker, and of what is no worker: "main", which hands out patches */
    char name[16];
    double load, compute, blend, save, wait;
};
struct sgrad_segment_result {
    int64_t chunk[3], block[3], all_chunks;     /* voxels of a chunk, and of a block of the output; chunks of the volume */
    int64_t chunks, skipped;            /* that were begun here; that were there already */
    int64_t patches, voxels;            /* of those that were begun: shown to the network, mirror images, too; all there are */
    int64_t blank;                      /* blocks of those in which volume or mask have zeros alone */
    double shown;                       /* times that a voxel is shown to the network, on average */
    double memory;                      /* bytes that chunks and patches take */
    double seconds;                     /* in all */
    int workers;
    struct sgrad_segment_worker sum, worker[SGRAD_MAX_WORKERS + 1];       /* of all; of each, the last is "main" */
};
struct sgrad_segment_options {
    const char *model, *weights;        /* NULL: as the model begins */
    const char *in, *out;               /* volumes (volumes.h): pixels of one channel; (classes,Z,Y,X) */
    const char *mask;                   /* a volume: where it has 0, zeros are written; NULL: none */
    const struct sgrad_model *custom_model;     /* instead of a name */
    int classes;                        /* without weights, which tell */
    int64_t patch[3], overlap[3];       /* Z, Y, X */
    bool logits;                        /* what the network says, from -1024 to 1024; else probabilities */
    bool bytes;                         /* 0 to 255 for 0 to 1; else f32 */
    bool flips;                         /* what is said is the mean over a patch's mirror images along z, y and x */
    double memory;                      /* GB that chunks and patches may take */
    long batch;                         /* patches of a task; 0: 1 */
    enum sgrad_precision precision;
    int cpus, gpus;                     /* as of a training */
    const char *scheduler;
    const char *queue;                  /* folder that hands out chunks to all who share it (queue.h); NULL: none */
    double lease;                       /* seconds; 0: 30 */
    bool redo;                          /* also chunks that are there */
    /* Told at first, before any chunk, and with each; NULL: nobody. */
    void (*tell)(const struct sgrad_segment_options *options, const struct sgrad_segment_result *so_far);
};
/* Runs a network over a volume, in overlapping patches that are blended (volumes/patches.h). What is written depends on volume,
 * weights, patch, overlap, mask and flips alone, however many workers and processes there are. Of blocks of 16x128x128 voxels in
 * which the volume has zeros alone nothing is said: zeros are written. */
int sgrad_segment(const struct sgrad_segment_options *options, struct sgrad_segment_result *result);

#ifdef __cplusplus
}
#endif
#endif
