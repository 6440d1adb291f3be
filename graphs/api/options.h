/* options.h: the options of a run, by group, and their values as text. */
#ifndef SGRAD_GRAPHS_API_OPTIONS_H
#define SGRAD_GRAPHS_API_OPTIONS_H

#include "codelets/updates.h"
#include "graphs/compiler/compiler.h"
#include "graphs/networks/networks.h"

#ifdef __cplusplus
extern "C" {
#endif

struct sgrad_reader;
struct sgrad_arrays;
struct sgrad_dataset;

/* ---- values ----------------------------------------------------------------------------------------------------- */

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
 * lookahead: "N", "N:D" or "N:D:P": every N steps, blend into slow weights, which retain D·(step/steps)^P. The default of D is
 * 0.5, that of P is 0. */
bool sgrad_numbers_parse(const char *text, struct sgrad_numbers *numbers);
bool sgrad_step_range_parse(const char *text, struct sgrad_step_range *range);
bool sgrad_lookahead_parse(const char *text, struct sgrad_lookahead *lookahead);
/* Returns false if a member is out of range: 0 ≤ decay < 1, 0 ≤ power ≤ 100, at most a million steps. */
bool sgrad_lookahead_is_valid(const struct sgrad_lookahead *lookahead);
/* Return the text of a value; "" if the option is not set. The caller must free the text. */
char *sgrad_numbers_text(const struct sgrad_numbers *numbers);
char *sgrad_step_range_text(const struct sgrad_step_range *range);
char *sgrad_lookahead_text(const struct sgrad_lookahead *lookahead);

/* ---- options ---------------------------------------------------------------------------------------------------- */

/* Options of a run. The caller keeps ownership of all strings and records; they must remain valid during the run. Lists are
 * separated by commas. A pattern ("fc", "layer1.*") matches names of layers or parameters. */

/* The network and its initial weights. */
struct sgrad_model_options {
    const char *name;                           /* "resnet20" */
    const struct sgrad_model *custom;           /* used instead of name; NULL: none */
    const char *init;                           /* safetensors file of initial weights; NULL: none */
    const char *init_skip;                      /* patterns of parameters that are not loaded from init; NULL: none */
    const char *lora;                           /* "RANK:ALPHA" or "RANK", whose alpha is RANK: train only low-rank adapters of
                                                   linear layers, with the factor alpha / rank; NULL: train the weights */
    const char *lora_on;                        /* patterns of the weights that are adapted; NULL: attention's query and value,
                                                   or the MLP of torchvision's vision transformers */
    const char *adapter;                        /* folder of an adapter of Hugging Face peft that is trained further. It sets
                                                   lora and lora_on if they are NULL; NULL: none */
    enum sgrad_precision precision;
    bool recompute;                             /* activation checkpointing: recompute activations of blocks in the backward
                                                   pass (sgrad_graph_block) */
};

/* The training and test set, and how samples become inputs. */
struct sgrad_data_options {
    const char *name;                           /* "cifar10:DIR" */
    const struct sgrad_reader *reader;          /* reader in addition to those of datasets.h; if name is NULL, its name is used;
                                                   NULL: none */
    const struct sgrad_arrays *arrays;          /* samples in the caller's memory, of the data set "arrays"; NULL: none */
    struct sgrad_dataset *dataset[2];           /* train, test: open data sets, used instead of name; the caller closes them */
    const char *exclude;                        /* file that lists training samples to exclude (datasets.h); NULL: none */
    const char *augment;                        /* "none", "crop:4,flip" (datasets.h); NULL: the default of the data set */
    struct sgrad_numbers mean, std;             /* mean and standard deviation, for each channel or one for all; none: those of
                                                   the training set */
    int image_size;                             /* folder data: side to which images are scaled; 0: unscaled */
    int eval_resize;                            /* folder data: the shorter side of test images before they are cropped to
                                                   image_size; 0: image_size */
    bool reduced;                               /* folder and tar data with a size: decode JPEG images at a fraction of their
                                                   size (sgrad_dataset_options) */
    bool exif;                                  /* folder data: apply the EXIF orientation of images */
    double split;                               /* fraction of the training samples that are the test set, if there is none */
    const char *on;                             /* test set of data that have train, val and test: "val", "test"; NULL: "val" */
    const char *id;                             /* tables: column of the names of the samples; NULL: their numbers */
    const char *class_names;                    /* file with a line for each class, its name for users; NULL: none */
    const char *tokenizer;                      /* jsonl data: their texts become tokens by this tokenizer.json; NULL: tables */
    const char *field;                          /* jsonl data with a tokenizer: key of the texts; NULL: "text" */
    const char *attend;                         /* text and tokens: "sample", "document" or "document:TOKEN", see
                                                   sgrad_dataset_options; NULL: "sample" */
    bool loss_on_answers;                       /* tokens: the loss is the mean over the tokens of answers; false: over all */
    bool skip_damaged;                          /* report and skip unreadable samples; false: one ends the run with an error */
    bool no_shuffle;                            /* samples in file order */
    long shuffle_window;                        /* samples in archives: the archives are shuffled, and each sample is drawn from
                                                   the next shuffle_window ones; 0: from all samples */
    const char *sampler;                        /* "balanced": as many samples of each class in an epoch; NULL, "shuffle": each
                                                   sample once */
    long memory;                                /* bytes that the data set may use for decoded images and decompressed files;
                                                   0: 2 GiB, at most a quarter of the machine's memory */
    bool partition;                             /* a rank keeps only its shard of the training set in memory; false: all of it */
};

/* The duration of training, the samples of a step, the loss, and which weights are trained. */
struct sgrad_training_options {
    double epochs;                              /* passes over the training set */
    long steps;                                 /* optimizer steps; 0: determined by epochs */
    const char *stop_before;                    /* time (sgrad_deadline_parse) before which the run stops, with a checkpoint and
                                                   SGRAD_EINTR, as after a signal; NULL: none */
    long batch, micro_batch;                    /* samples of a step, of all ranks; of a task, 0: automatic */
    long bn_group;                              /* samples, or SGRAD_GROUP_… */
    double label_smoothing;                     /* 0 to 1 */
    const char *class_weights;                  /* factors of the classes in the loss, "1,2.5", or "balanced"; NULL: all 1 */
    double focal_gamma;                         /* exponent of the focal loss (softmax_cross_entropy.c); 0: off */
    double dice;                                /* factor of the Dice loss that is added to that loss; 0: none */
    double clip_norm;                           /* largest norm of all gradients together; 0: no clipping */
    double ema;                                 /* decay of a moving average of the weights, which is evaluated and saved
                                                   instead of the weights; 0: none */
    struct sgrad_lookahead lookahead;           /* slow weights (codelets/optimizers/lookahead.c); every 0: off. The
                                                   member steps is ignored; the others have no defaults */
    const char *freeze;                         /* patterns of parameters that are not trained; NULL: none */
    const char *freeze_after;                   /* number of epochs after which parameters are not trained, by
                                                   pattern: "conv1=3"; NULL: none */
    uint64_t seed;                              /* of weights, shuffling, augmentation, dropout */
    bool deterministic;                         /* the same options give the same bits */
    bool nan_ok;                                /* continue when the loss is NaN or infinite */
};

/* Second-order training (codelets/kfac/). */
struct sgrad_kfac_options {
    double damping, decay, clip;                /* damping; decay of the factors' averages; KL clipping, 0: off */
    const char *damping_schedule;               /* as the schedule of the learning rate; NULL: constant */
    long factor_every, eigen_every;             /* steps between factors, and between their decompositions */
    long lag;                                   /* steps from the start of a decomposition to its first use; -1: as factor_every,
                                                   at most eigen_every */
    const char *skip;                           /* patterns of layers that are not preconditioned; NULL: none */
    const char *variant;                        /* ranks that precondition a layer: "opt", all; "lw", one; "0.5", this fraction;
                                                   "auto" or NULL, the cheapest that fits into memory */
    bool inverse;                               /* use damped inverses instead of eigenvectors */
};

/* The update of the weights. */
struct sgrad_optimizer_options {
    const char *name;                           /* "sgd" */
    const struct sgrad_optimizer *custom;       /* used instead of name; NULL: none */
    const char *of;                             /* other optimizers, by patterns of parameters: "*.bias=adamw"; NULL: none */
    double lr;                                  /* learning rate; below 0: the default of the optimizer */
    const char *lr_of;                          /* multipliers of the learning rate, by pattern: "fc=10,conv1=.1"; NULL: none */
    long lr_scale_base;                         /* samples: the peak is lr·batch/lr_scale_base (Goyal et al. 2017); 0: lr */
    const char *schedule;                       /* of the learning rate (sgrad_schedule_parse); NULL: "constant" */
    double warmup;                              /* epochs */
    double momentum, beta1, beta2;              /* below 0: the default of the optimizer */
    double weight_decay, eps, trust;            /* trust: the trust coefficient of LARS */
    const char *weight_decay_of;                /* multipliers of the weight decay, by pattern; NULL: none */
    bool nesterov, no_decay_1d;                 /* Nesterov momentum; no weight decay of 1-D parameters (biases, batch norm) */
    long soap_every;                            /* steps between two decompositions of SOAP */
    struct sgrad_kfac_options kfac;
};

/* Workers, and the distribution over ranks. */
struct sgrad_parallel_options {
    int cpus, gpus;                             /* workers; 0: all, -1: none */
    bool gpus_only;                             /* with GPUs, CPU workers get no samples; false: a number by their throughput */
    const char *scheduler;                      /* name of StarPU's scheduler; NULL: chosen automatically */
    long memory;                                /* bytes of memory that this process may use; 0: no limit */
    long gpu_memory;                            /* bytes of memory of this process's only GPU that it may use; 0: no limit */
    const char *spill;                          /* where data that exceed the limit are moved: a folder on a fast disk
                                                   or, from a GPU, "ram"; NULL, "none": too low a limit is an error */
    int steps_in_flight;                        /* steps in flight, 1 to 8; 0: the default */
    bool no_fuse, no_cuda_graphs;               /* no_fuse: one task for each operation. no_cuda_graphs: GPU kernels are launched
                                                   one by one, and memory of a task is allocated in each step */
    const char *strategy;                       /* distributed training: "sync", "ps", "async", …; NULL: "sync" */
    /* ZeRO: "optimizer", "gradients", "parameters" are sharded over data-parallel ranks; NULL: none */
    const char *shard;
    const char *mesh;                           /* axes (networks.h): "data=2,context=2,tensor=2", or "auto"; NULL: data */
    const char *allreduce;                      /* algorithm that sums gradients over ranks; NULL: the cheapest by cost */
    double bucket;                              /* MB of gradients summed at once; 0: chosen by cost */
    const char *network;                        /* JSON file with latency and bandwidth of the network; NULL: measured */
    /* Ranks that are parameter servers, 0: all; ranks of a group that trains synchronously (strategy "mixed"), 0: those of a
     * host; steps that a rank may be ahead of the slowest one, 0: one less than the steps in flight. */
    int servers, group_ranks, staleness;
    int backup_workers;                         /* slowest gradients that an update does not wait for (strategy "backup"); -1: one
                                                   if there are several ranks */
    double stall_timeout;                       /* seconds without progress until a waiting rank gives up; 0: no timeout */
};

/* Evaluations on the test set, and the selection of the best weights. */
struct sgrad_evaluation_options {
    long every;                                 /* steps between evaluations within an epoch; 0: only at its end */
    bool only_last;                             /* evaluate only after the last step */
    const char *tta;                            /* views of each image in the last evaluation (datasets.h); NULL: the image */
    bool best;                                  /* save the weights of the best evaluation (best.safetensors), end with them */
    const char *metric;                         /* metric of best and patience: its name in metrics.jsonl without "test_", or
                                                   "accuracy" for "top1"; NULL: the accuracy, else the first one after the loss */
    int patience;                               /* stop after this number of evaluations without improvement, with the best
                                                   weights; 0: never */
    double min_delta;                           /* smallest improvement that counts for patience */
};

struct sgrad_checkpoint_options {
    bool resume;                                /* continue the run in output.folder from its newest checkpoint */
    long every;                                 /* epochs, or steps if in_steps, between checkpoints; 0: none */
    bool in_steps;
    double seconds;                             /* between checkpoints, by the clock of rank 0, and one at the end; 0: off */
    int keep;                                   /* number of checkpoints to keep */
    long snapshot_every;                        /* steps between snapshots, checkpoints in the memory of the hosts; 0: none;
                                                   -1: chosen so that they take less than 1 % of the time */
};

/* Functions that sgrad_train calls on rank 0, on the thread that called it, while later steps may be running. EVENT is a JSON
 * object, valid during the call. NULL: not called.
 * start: {"event":"start","folder":…,"step":…,"steps":…,"epochs":…,"batch":…}, before the first step. step: completed steps, not
 * 0 in a resumed run; steps and epochs: of the whole run.
 * step, epoch: the line that has been written to metrics.jsonl. No step follows an evaluation before epoch has returned.
 * step and epoch return 0 to continue. Above 0: the run ends as after its last step: with an evaluation, a checkpoint and
 * model.safetensors. Below 0: the run ends as after a signal: with a checkpoint and SGRAD_EINTR. Steps that were in flight may
 * complete before the end. After the last step, the value has no effect. */
struct sgrad_train_events {
    void (*start)(void *arg, const char *event);
    int (*step)(void *arg, const char *event);
    int (*epoch)(void *arg, const char *event);
    void *arg;
};

/* Files and messages. */
struct sgrad_output_options {
    const char *folder;                         /* run directory; NULL: runs/NAME-TIME */
    bool print;                                 /* print network and program, and run nothing */
    bool json;                                  /* print configuration and progress on standard error */
    bool quiet;                                 /* rank 0 prints neither configuration nor progress */
    bool tensorboard;                           /* also write event files for TensorBoard to the run directory */
    const char *show_batch;                     /* PNG file: plot the first training batch, and run nothing; NULL: off */
    long histograms;                            /* steps between histograms of all weights and gradients, for
                                                   TensorBoard; 0: none */
    bool slow_rank;                             /* names a rank that computes for much longer than the others */
    int prometheus;                             /* port of 127.0.0.1 that serves current values (/metrics); 0: none */
    struct sgrad_step_range trace;              /* steps to record */
    struct sgrad_train_events events;           /* called during training; zeros: none */
    const char *command;                        /* command with these options, for messages: "stargrad train"; NULL: none */
    const char *const *explicit_options;        /* long names of the explicitly set options; ends with NULL. Those without effect
                                                   on this run are reported on standard error. NULL: none is reported */
};

struct sgrad_train_options {
    struct sgrad_model_options model;
    struct sgrad_data_options data;
    struct sgrad_training_options training;
    struct sgrad_optimizer_options optimizer;
    struct sgrad_parallel_options parallel;
    struct sgrad_evaluation_options evaluation;
    struct sgrad_checkpoint_options checkpoint;
    struct sgrad_output_options output;
};
struct sgrad_train_options sgrad_train_defaults(void);  /* returns the defaults, as listed by stargrad train --help */

#ifdef __cplusplus
}
#endif
#endif
