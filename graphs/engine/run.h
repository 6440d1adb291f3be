/* run.h: one run in memory, and the functions that execute its steps. Private to graphs/. */
#ifndef SGRAD_GRAPHS_ENGINE_RUN_H
#define SGRAD_GRAPHS_ENGINE_RUN_H

#include "graphs/api/inference.h"
#include "graphs/engine/placement.h"
#include "graphs/rundir/rundir.h"
#include "graphs/engine/runner.h"

/* The ranks that train a trial of a search. */
struct sgrad__run_trial {
    struct sgrad_context context;               /* of these ranks alone; run->context points to it */
    struct sgrad_group peers;                   /* these ranks */
    struct sgrad_network network;               /* that connects them */
};

/* The training and the test set. */
struct sgrad__run_data {
    struct sgrad_dataset *train, *test;         /* train may be NULL if saved weights are used */
    /* mean and standard deviation of the input, by channel */
    double mean[SGRAD_MAX_CHANNELS], deviation[SGRAD_MAX_CHANNELS];
    struct sgrad__sampler sampler;              /* the order of the training samples */
    int32_t *label;                             /* owned; of each training sample; NULL: no option needs them */
    float *class_weight;                        /* owned; of each class (--class-weights); NULL: none, or of voxels */
    struct sgrad__placement *placement;         /* owned; of the training set on the ranks; NULL: every rank reads all of it */
    uint64_t fingerprint;                       /* hash of the training set; set when the options of the ranks are compared */
    char *augment;                              /* owned; augmentation in use */
    char *damaged;                              /* owned; unreadable samples that are skipped, one per line; NULL: none */
    bool uncropped;                             /* the crop of --augment is less than a pixel, and has no effect */
};

/* How weights are updated. */
struct sgrad__lr_sum {                          /* zeros at first */
    long steps;
    double squares;
};
struct sgrad__run_update {
    const struct sgrad_optimizer *optimizer;
    struct sgrad_schedule schedule;             /* of the learning rate */
    double peak_lr;
    struct sgrad__lr_sum lr_sum;                /* of the steps that were submitted */
    struct sgrad_schedule damping;              /* of the damping of second-order training (K-FAC) */
    double kfac_share; /* fraction of the ranks that precondition a layer; 0: one rank; below 0: chosen by
                          cost */
    double kfac_room;                           /* bytes of a rank for the preconditioners, at most */
};

/* The division of the batch into tasks. Numbers of samples, unless stated otherwise. */
struct sgrad__run_batch {
    int64_t micro;                              /* of a task, at most */
    int64_t norm_group;                         /* of a batch-normalization group */
    /* of such a group at the start of a resumed run, if it must be preserved; 0: as the options specify */
    int64_t resumed_group;
    int64_t unit;                               /* the samples of a task never cross a multiple of it */
    /* of the local batch, computed by GPUs; of a GPU's task, at most. 0: any worker may run any task */
    int64_t gpu_samples, gpu_micro;
    long fixed_steps;                           /* steps for which the division between CPUs and GPUs is fixed */
    long fixed_until;                           /* the step after which this division may change; 0: never */
    int lanes;                                  /* number of gradient-accumulation buffers of this rank */
    struct sgrad__memory_limit limit;           /* of the memory of a step (--memory); bytes 0: none */
    struct sgrad__recomputation recomputation;  /* layers that are recomputed because of it */
    double evaluation_memory;                   /* bytes that an evaluation uses, if there is a limit */
    double other_memory;                        /* bytes that neither steps nor evaluations use, if there is a limit */
};

/* The evaluation on the test set. */
struct sgrad__run_evaluation {
    struct sgrad__evaluation *state;            /* owned; NULL: none has been started yet */
    bool active;                                /* one is in progress, concurrently with the steps that follow it */
    struct sgrad__epoch epoch;                  /* the last one whose steps have ended; it may still be evaluated */
    struct sgrad_views views;                   /* test-time augmentation (--tta), from the next evaluation on; count 0: off */
    struct sgrad_predictions *predictions;      /* borrowed; receives the predictions for the test set; NULL: only metrics */
    int64_t micro;                              /* samples of a task, at most; the same on all ranks */
    bool alone;                                 /* no steps run meanwhile, so that it needs no copies of the weights */
    /* number of ranks, or groups of ranks, over which batches are distributed round-robin; index of this one */
    int turns, turn;
};

/* The best evaluation (--best, --patience). */
struct sgrad__run_best {
    double value;                               /* of metric result.main, that improved by --min-delta or more; NAN: none yet */
    int worse;                                  /* evaluations since that value */
    bool saves;                                 /* its weights must be saved as best.safetensors */
    long step;                                  /* step after which the saved weights were evaluated; 0: none are saved yet */
    double metrics[SGRAD_MAX_METRICS];          /* of the saved weights */
    bool stop;                                  /* early stopping: the run must end; all ranks set it after the same evaluation */
};

/* The files of the run. */
struct sgrad__run_files {
    bool none;                                  /* the run has no directory and writes no files */
    char *folder;                               /* owned; run directory */
    bool created;                               /* this run has created the directory, and has not written config.json yet */
    int lock;                                   /* of the run directory (sgrad_lock_take); 0: not locked */
    char *identity;                             /* owned; text of sgrad__config_identity */
    char *history;                              /* owned; text of sgrad__config_continue; NULL: the run starts here */
    bool restores;                              /* weights come from a checkpoint; options on initial weights have no effect */
    struct sgrad__checkpoint *checkpoint;       /* owned; rank 0: the one that is being written; NULL: none */
    /* steps of the newest checkpoint, and of the newest one that was followed by a finite loss; 0: none */
    long last_checkpoint, good_checkpoint;
    struct sgrad__metrics *metrics;             /* owned; rank 0: writes metrics.jsonl and progress; other ranks: NULL */
    struct sgrad__workers *workers;             /* owned; workers whose utilization is recorded; NULL: none */
    const char *trace_folder;                   /* borrowed; directory of traces; NULL: DIR/trace, if steps are traced */
    int error;                                  /* error code of a failed write of metrics or best weights; 0: none */
};

/* The snapshots of the run: checkpoints in the memory of the hosts (graphs/train/snapshots.c). */
struct sgrad__run_snapshots {
    char *folder;                               /* owned; the first rank of each host: where it writes; other ranks: NULL */
    int lock;                                   /* of this folder */
    struct sgrad__checkpoint *writing;          /* owned; the one that is being written; NULL: none */
    long start;                                 /* number of this start of the run, from 1 */
    long next;                                  /* step of the next one, the same on all ranks; 0: none */
    /* rank 0, for --snapshot-every auto: */
    long steps;                                 /* since the last snapshot */
    double stopped, first, last;                /* times: the end of its step; of the first and of the last step after it */
    double step, cost, work;                    /* seconds: of a step; of a snapshot; of the threads for the last one */
    long evaluated;                             /* step of the last evaluation before the last snapshot */
};

/* The distribution over ranks. */
struct sgrad__run_parallel {
    const struct sgrad_strategy *strategy;      /* of training on several ranks */
    const struct sgrad_collective *allreduce;   /* algorithm that sums gradients; NULL: the cheapest by cost */
    struct sgrad_mesh mesh;                     /* of the ranks; no axes without --mesh */
    bool auto_mesh;                             /* the mesh is chosen automatically (--mesh auto) */
    char *chosen_mesh;                          /* owned; of --mesh auto; NULL: none was chosen */
    char *mesh_table; /* owned; the meshes with their costs, or why they cannot be used; NULL likewise */
    /* number of local batches in the batch; index of the local batch of this rank */
    int local_batches, local_batch;
    int copies;                                 /* ranks that process the same local batch (tensor, pipeline parallelism) */
    bool joint;                                 /* ranks exchange values of each micro-batch: also with expert parallelism */
    bool stores_predictions;                    /* of these ranks, this one stores the predictions */
    int servers, group_ranks;                   /* parameter servers; ranks of a group of strategy "mixed" */
    int push_ranks;                             /* ranks whose gradients are summed before they are pushed to a server */
    struct sgrad__server *server;               /* this rank's server of asynchronous training; NULL: none */
    int first_rank, tags;                       /* its rank 0 among all ranks; offset of its message tags (SGRAD__TAGS_…) */
};

/* The end of the run, and who is notified of its steps. */
struct sgrad__run_control {
    bool together;                              /* all ranks know the error that ends the run: they need not be aborted */
    bool stopping;                              /* the run must end: no further step is started */
    bool pausing;                               /* a checkpoint is due by the clock: no step is started before it */
    int event_status;                           /* of options.output.events, on rank 0: the value that ends the run; 0: none */
    bool waits_for_epoch_event;                 /* no step follows an evaluation before options.output.events.epoch returns */
    struct sgrad__deadline *deadline;           /* owned; NULL: the run has no time limits */
    struct sgrad_monitor *listener;             /* borrowed; notified when a step has ended, also of evaluations; NULL: none */
};

/* A run: training, the use of saved weights (evaluation, predictions, text generation), or a trial of a hyperparameter search.
 * Must be zero-initialized and its options set before one of the sgrad__run_open… functions (graphs/train/setup.h).
 * sgrad__run_close frees everything that the run owns; it does not free the run itself. */
struct sgrad__run {
    struct sgrad_train_options options;         /* copy of the caller's, whose unset ones are completed */
    struct sgrad_context *context;              /* ranks and workers; owned unless the next field is set */
    const struct sgrad__run *beside;            /* run that owns the context and the data sets; NULL: this one does */
    const struct sgrad_model *model;
    char *model_text;                           /* owned; name of the model, with all of its options */
    char *lora[2];                              /* owned; options.model.lora and lora_on, if --adapter sets them; else NULL */
    struct sgrad_graph *graph;                  /* owned */
    struct sgrad__training *training;           /* owned; how the graph's parameters are updated, and optimizer states */
    int recomputed;                             /* number of layers that are recomputed in the backward pass */
    struct {
        int rows, sequences;                    /* tokens of a generated text, with its prompt; 0: none is generated; texts */
    } generation;
    const struct sgrad_metric *metric;          /* of the network; result.metrics records */
    int loss_metrics;                           /* the first ones: those that the loss computes; the others need an evaluation */
    struct sgrad__program *program;             /* owned; of a training step */
    struct sgrad__runner *runner;               /* owned; executes the program */
    long steps, steps_per_epoch;                /* optimizer steps: of the whole run; of an epoch */
    struct sgrad__run_data data;
    struct sgrad__run_batch batch;
    struct sgrad__run_update update;
    struct sgrad__run_parallel parallel;
    struct sgrad__run_evaluation evaluation;
    struct sgrad__run_best best;
    struct sgrad__run_files files;
    struct sgrad__run_snapshots snapshots;
    struct sgrad__run_control control;
    struct sgrad__run_trial trial;
    struct sgrad_train_result result;           /* so far */
};

/* ---- run.c ---- */

/* Returns the position after DONE completed steps. */
struct sgrad__position sgrad__run_position(const struct sgrad__run *run, long done);

/* implied.c.
 * Return options that by default follow from other options. The results are not stored in the options, so that config.json
 * contains only the values that were set. window: steps in flight, at most. backup: number of gradients that an update does not
 * wait for. lag: steps from the start of a K-FAC decomposition to its first use. */
int sgrad__run_steps_in_flight(const struct sgrad__run *run);
int sgrad__run_backup(const struct sgrad__run *run);
long sgrad__run_lag(const struct sgrad__run *run);

/* Collective. Returns 0 if ERROR is 0 on every rank; otherwise an error code on all ranks; run->control.together is then true,
 * and all ranks must end the run. A rank that fails without this call must abort the others (sgrad_ranks_abort). */
int sgrad__run_agree(struct sgrad__run *run, int error);
/* The same without a timeout, if a rank may work on files for long. WHAT: the reason for the wait, for a warning. */
int sgrad__run_await(struct sgrad__run *run, int error, const char *what);
/* Returns true if this rank requests the end of the run: after a signal, when --stop-before is reached, if a function of
 * options.output.events requests it, or if metrics or a checkpoint cannot be written. */
bool sgrad__run_is_asked(const struct sgrad__run *run);
/* Return the learning rate, and the damping of K-FAC, of the step after STEP completed steps. */
double sgrad__run_lr(const struct sgrad__run *run, long step);
double sgrad__run_damping(const struct sgrad__run *run, long step);
/* Returns lr_share (codelets.h) of the step after STEP completed steps. *SUM: the sum so far, of consecutive calls. */
float sgrad__run_lr_share(const struct sgrad__run *run, struct sgrad__lr_sum *sum, long step);
/* Returns true if each rank stores only a share of the parameters (--shard parameters), in training and in evaluations during
 * it. */
bool sgrad__run_shares_parameters(const struct sgrad__run *run);
/* Returns the options of a program of this run: a training step, or the inference of an evaluation if TRAINING is false. BATCH:
 * samples of all ranks together, or of this rank for inference. MICRO: samples of a task, at most. The result refers to objects
 * of the run. */
struct sgrad_program_options sgrad__run_program_options(const struct sgrad__run *run, bool training, int64_t batch,
                                                        int64_t micro);

/* Returns the word for the samples of the training set: "images" or "samples". Static; must not be freed. */
const char *sgrad__run_samples(const struct sgrad__run *run);
/* Returns the result so far on this rank, including the members that are derived from the metrics (test_loss, test_top1). */
struct sgrad_train_result sgrad__run_result(const struct sgrad__run *run);

/* ---- step.c ---- */

/* Returns true if each class has equally many samples in an epoch (--sampler balanced). */
bool sgrad__run_is_balanced(const struct sgrad__run *run);
/* Returns the order of the training samples. Windows of a partitioned training set are not shifted. The caller must close it
 * (sgrad__sampler_close). */
struct sgrad__sampler sgrad__run_sampler(const struct sgrad__run *run);
/* Prepares the run for the step after DONE completed steps: allocates the program, creates the runner, starts the parameter
 * server, and loads the samples of a partitioned training set. Collective, except for a trial of a search. SGRAD_EINVAL: the
 * ranks have built different programs. Other errors are those of allocation, of tasks and of the data set. */
int sgrad__run_open_runner(struct sgrad__run *run, long done);
/* Rebuilds the program and the runner after DONE steps, all of which must have ended: fewer parameters may be trained, or the
 * division of the batch between CPUs and GPUs may have changed. Must not be used with parameter servers. Errors as above. */
int sgrad__run_reopen_program(struct sgrad__run *run, long done);
/* Submits the step after STEP completed or submitted steps; does not wait. The caller waits for it (runner.h:
 * sgrad__runner_wait). */
int sgrad__run_submit(struct sgrad__run *run, long step);
/* The same with given samples: SAMPLE contains the samples of the batch, of all ranks. Those of other ranks are used only if
 * classes have weights. They are copied. */
int sgrad__run_submit_samples(struct sgrad__run *run, long step, const struct sgrad_sample *sample);

/* ---- evaluation.c ---- */

/* Starts an evaluation on the whole test set, of the weights as the steps submitted so far leave them. When it has ended, its
 * metrics are in run->evaluation.epoch, and run->evaluation.active is false. At most one may be in progress. Collective: every
 * rank of the run must call it. */
int sgrad__evaluation_begin(struct sgrad__run *run);
/* Continues the evaluation in progress: stores the results of completed batches and submits further ones. Does not wait. */
int sgrad__evaluation_advance(struct sgrad__run *run);
/* Waits for the evaluation, if one is in progress. MAY_LEAVE: if a rank requests the end of the run, batches that have not been
 * started are omitted, unless several ranks process the same samples. run->control.stopping is then true, and
 * run->evaluation.epoch.evaluated false: there are no metrics. */
int sgrad__evaluation_end(struct sgrad__run *run, bool may_leave);
/* Frees the evaluation, none of whose steps may be in flight. No effect without an evaluation. */
void sgrad__evaluation_close(struct sgrad__run *run);
/* Returns the bytes of memory that an evaluation without views requires, except weights. */
double sgrad__evaluation_memory(const struct sgrad__run *run);
/* Returns the weights of the last evaluation, by parameter; NULL for a parameter that this rank does not have. They belong to the
 * evaluation. */
struct sgrad_tensor *const *sgrad__evaluation_weights(const struct sgrad__run *run);

/* ---- views.c: several views of each image (--tta) ---- */

/* Checks --tta against data, network and other options. The graph must be complete. SGRAD_EINVAL: it cannot be used. */
int sgrad__run_check_views(const struct sgrad__run *run);
/* Enables --tta, if it is set, from the next evaluation on. SGRAD_EINVAL: it is invalid. */
int sgrad__run_see_views(struct sgrad__run *run);
/* Returns zeroed predictions for SAMPLES samples. The caller must free them (sgrad_predictions_free). */
struct sgrad_predictions sgrad__answers_create(const struct sgrad__run *run, int64_t samples);
/* Returns the mean of the predictions for the views of each sample, weighted as VIEWS specifies. ALL contains the views of a
 * sample one after another: ALL.samples = samples · VIEWS.count. The caller must free the result (sgrad_predictions_free). */
struct sgrad_predictions sgrad__views_average(const struct sgrad_views *views, const struct sgrad_predictions *all);
/* Computes the loss of predictions on the calling thread. Writes to SUMS one sum per metric, and then the number of rows or
 * elements summed: run->loss_metrics + 1 values. */
void sgrad__loss_sums(const struct sgrad__run *run, const struct sgrad_predictions *predictions, double *sums);

/* ---- signals.c ---- */

/* watch: handles SIGINT, SIGTERM, SIGHUP and SIGUSR1, unless ignored, as a request to end the run; another signal
 * SGRAD_STOP_GRACE seconds after the first ends the process. unwatch: restores the previous handlers. caught: returns the first
 * such signal; 0: none. */
void sgrad__signals_watch(void);
void sgrad__signals_unwatch(void);
int sgrad__signal_caught(void);

/* ---- deadline.c: time limits of a run: --stop-before, and --checkpoint-every with a duration (10min) ---- */

struct sgrad__deadline;
/* Initializes run->control.deadline, which sgrad__run_close frees. The graph and its parameters must exist. SGRAD_EINVAL:
 * --stop-before is not a time, or has passed. */
int sgrad__deadline_open(struct sgrad__run *run);
/* Records that a step has ended at TIME (sgrad_time_monotonic). */
void sgrad__deadline_step(const struct sgrad__run *run, double time);
/* Returns true if the run must stop now to end, with a checkpoint, before --stop-before. Only on rank 0; false on others. */
bool sgrad__deadline_stops(const struct sgrad__run *run);
/* Returns true if a checkpoint is due after DONE steps. Only on rank 0; false on others. */
bool sgrad__deadline_wants_checkpoint(const struct sgrad__run *run, long done);
/* Records that a checkpoint is started now. */
void sgrad__deadline_checkpoint(const struct sgrad__run *run);
char *sgrad__deadline_text(const struct sgrad__run *run);   /* returns "--stop-before 17:30"; free it */

/* ---- server.c: parameter servers of asynchronous training. Other strategies have none: only settle has an effect then ---- */

/* Starts this rank's server, if the strategy is asynchronous and there are several ranks, after FIRST completed steps.
 * SGRAD_ENOMEM: its thread cannot be started. */
int sgrad__server_open(struct sgrad__run *run, long first);
void sgrad__server_close(struct sgrad__run *run);       /* stops and frees it; no effect without a server */
/* Returns program NUMBER of those that process pushes on this rank; NULL: there are fewer. */
const struct sgrad__program *sgrad__server_program(const struct sgrad__server *server, int number);
/* Announces that every rank pushes its gradients of all steps up to STEPS, counted from the start of the run. STOP: the last step
 * before the next sgrad__server_settle; a later call may reduce it to STEPS. All ranks must call it before any rank can push the
 * gradients of step STEPS. SERVER may be NULL. */
void sgrad__server_expect(struct sgrad__server *server, long steps, long stop);
/* Waits until all announced pushes have been processed; then copies the optimizer states of all servers, and the weights of
 * asynchronous ones, to every rank. Collective; all steps must have ended. With strategy "ps" only the states are copied; without
 * servers it has no effect. */
int sgrad__server_settle(struct sgrad__run *run);
/* Counts the gradients that were computed with weights i updates old, in histogram[i], over all ranks; the last element counts
 * all older ones. Collective; SERVER may be NULL. */
enum { SGRAD__STALENESS = 32 };
void sgrad__server_staleness(struct sgrad__server *server, double histogram[SGRAD__STALENESS]);
/* Counts the dropped gradients of each of RANKS ranks, over all servers, in BY_RANK. Collective; SERVER may be NULL. */
void sgrad__server_dropped(struct sgrad__server *server, double *by_rank, int ranks);

#endif
