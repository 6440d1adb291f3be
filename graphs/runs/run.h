/* run.h: a run: everything that its files turn. Private to graphs/runs/. */
#ifndef SGRAD_GRAPHS_RUN_H
#define SGRAD_GRAPHS_RUN_H

#include "codelets/ops/draw_token.h"
#include "graphs/runs/placement.h"
#include "graphs/runs/files.h"
#include "graphs/runs/runner.h"

struct sgrad__run {
    struct sgrad_train_options options;
    struct sgrad_context *context;
    const struct sgrad__run *beside;            /* whose context and data it has; NULL: its own */
    struct sgrad_context some;                  /* what context is of a run beside others: of some ranks, this one among them */
    struct sgrad_group peers;
    struct sgrad_network between;
    int first, tags;                            /* of all ranks its rank 0; what its messages' SGRAD__TAGS_… begin with */
    struct sgrad_monitor *listener;             /* told of steps and batches that have ended; NULL: nobody listens */
    struct sgrad_dataset *train, *test;
    struct sgrad_answers *answers;              /* of the test set, which an evaluation is to leave; NULL: its metrics alone */
    const struct sgrad_model *model;
    const struct sgrad_optimizer *optimizer;
    struct sgrad_schedule schedule;
    double peak;                                /* of the learning rate */
    struct sgrad_lookahead lookahead;           /* every 0: there is none; its steps are the run's */
    struct sgrad_schedule damping;              /* of second-order training */
    double share, room;                         /* ranks that precondition a layer; bytes that a rank may keep for it */
    const struct sgrad_draw_token *draw;        /* tokens are drawn, and no loss is taken; NULL: they are not */
    struct sgrad_graph *graph;
    const struct sgrad_metric *metric;          /* of the network's loss, result.metrics of them */
    struct sgrad__program *program;
    struct sgrad__runner *runner;
    struct sgrad_views views;                   /* that the evaluation which begins next has of each image; count 0: itself */
    struct sgrad__evaluation *evaluation;       /* NULL: none has begun yet */
    struct sgrad__epoch epoch;                  /* the last that is over */
    double best;                                /* metric, so far; NAN: none yet */
    int worse;                                  /* evaluations since */
    bool keeps;                                 /* the weights of the best evaluation, in best.safetensors */
    long kept_step;                             /* after which it was; 0: there is none yet */
    double kept[SGRAD_MAX_METRICS];             /* its metrics */
    bool enough;                                /* so many that the run ends; all ranks know it after the same evaluation */
    bool evaluates;                             /* it is still evaluated, beside the steps that follow */
    int64_t micro, group;                       /* samples; of a task, at most */
    int64_t unit;                               /* samples of which no task reaches beyond the end */
    int64_t gpu_samples, gpu_micro;             /* of the share GPUs have, and of a GPU's task at most; 0: any worker any task */
    long settles, settled;                      /* shares hold for so many steps, until that one; 0: for good */
    int lanes;                                  /* of gradients, on this rank */
    int recomputed;                             /* layers that keep nothing for backward */
    int64_t evaluated;                          /* samples of an evaluation's task, at most: the same on all ranks */
    long steps, steps_per_epoch;
    double mean[SGRAD_MAX_CHANNELS], deviation[SGRAD_MAX_CHANNELS];
    struct sgrad__order order;
    struct sgrad__placement *placement;         /* NULL: every rank has the whole training set */
    struct sgrad__workers *workers;             /* watched; NULL: nobody asks how busy they are */
    struct sgrad__metrics *metrics;
    uint64_t fingerprint;                       /* of the training set; known once the ranks' options are compared */
    char *model_text;                           /* its name, and all of its options */
    char *folder, *identity, *augment;
    char *damaged;                              /* samples left out that cannot be read, a line each; NULL: none */
    bool uncropped;                             /* --augment asks to crop by a part of the images that is less than a pixel */
    bool unkept;                                /* it has no folder, and leaves nothing */
    bool fresh;                                 /* the folder is this run's making, and holds nothing yet */
    bool restores;                              /* weights are a checkpoint's, whatever the options say of them */
    int64_t kept_group;                         /* samples of batch norm's groups, as the run began; 0: as the options say */
    char *history;                              /* lines: where the run was continued, and is now; NULL: it begins here */
    int lock;                                   /* of the folder; 0: it is not ours yet */
    struct sgrad__checkpoint *checkpoint;       /* rank 0's, that is being written; NULL: none is */
    long last_checkpoint, good_checkpoint;      /* steps; good: the step after it had a finite loss */
    bool together;                              /* all ranks know of the error that ends the run */
    bool stopping;                              /* a rank was asked to end: no step begins any more */
    bool pausing;                               /* a checkpoint is wanted by the clock: no step begins before it does */
    struct sgrad__deadline *deadline;           /* NULL: nothing goes by the clock */
    int unwritten;                              /* the error by which metrics could not be written; 0: none */
    const struct sgrad_collective *allreduce;   /* of gradients; NULL: the cheapest */
    const struct sgrad_strategy *strategy;
    struct sgrad_mesh mesh;
    bool auto_mesh;                             /* --mesh auto was asked for */
    char *chosen, *choice;                      /* by --mesh auto: its text; of others, too, why; NULL: none was */
    int parts, part;                            /* the batch's, each of other samples; this rank's */
    int copies;                                 /* ranks that have the same samples */
    bool speaks;                                /* of these the one that tells what the network says */
    int turns, turn;                            /* ranks that evaluate without each other, batches in turn; this one's place */
    int servers, group_ranks;
    int push_ranks;                             /* that push to a server together */
    const char *trace_folder;                   /* of steps alone, without a folder of a run; NULL: no trace */
    struct sgrad__server *server;               /* of asynchronous training; NULL: none */
    long trace_first, trace_last;               /* steps; 0: none */
    struct sgrad_train_result result;
};

/* ---- options.c ---- */

/* What other options imply unless it is asked for, so config.json has what was asked for: the steps in flight at most, the
 * gradients that an update does without, the steps until a decomposition is used. */
int sgrad__run_window(const struct sgrad__run *run);
int sgrad__run_backup(const struct sgrad__run *run);
long sgrad__run_lag(const struct sgrad__run *run);

/* ---- setup.c ---- */

int sgrad__run_build_graph(struct sgrad__run *run);         /* of its model and data, on its mesh */

int sgrad__run_open_graph(struct sgrad__run *run);          /* the first half of what follows: no ranks are known yet */
int sgrad__run_open_training(struct sgrad__run *run);       /* all but what is in the run's folder */
int sgrad__run_open_evaluation(struct sgrad__run *run);
/* The context and the data of several runs side by side, which are no run's own. */
int sgrad__run_open_ground(struct sgrad__run *run);
/* A run on GROUND's context and data: all but its program. Run NUMBER of several, as rank PLACE of RANKS neighbours: this rank is
 * one of them. Calls nothing that other ranks would have to. */
struct sgrad__beside {
    const struct sgrad__run *ground;
    int number, place, ranks;
};
int sgrad__run_open_beside(struct sgrad__run *run, const struct sgrad__beside *how);
int sgrad__run_open_sampling(struct sgrad__run *run);       /* after the text, its test set */
void sgrad__run_close(struct sgrad__run *run);

/* ---- tune.c: parameters that do not begin, or do not change, as the others do ---- */

int sgrad__run_fine_tune(struct sgrad__run *run);       /* checks what is asked, and freezes; the graph is whole */
/* What trains PARAMETER; NULL: --optimizer-of names none that there is, which is told. */
const struct sgrad_optimizer *sgrad__run_optimizer_of(const struct sgrad__run *run, const char *parameter);
/* What LIST, patterns and numbers, says of a parameter. */
double sgrad__number_of(const char *list, const char *parameter, double otherwise);
/* When parameters freeze, by the steps of an epoch: again, where these are others than when the graph was built. */
void sgrad__run_time_freezes(struct sgrad__run *run);
/* The first step behind DONE after which a parameter stays as it is; 0: there is none. And is one still trained, that is not to
 * be, behind DONE? */
long sgrad__run_next_freeze(const struct sgrad__run *run, long done);
bool sgrad__run_freezes(const struct sgrad__run *run, long done);
void sgrad__run_print_tuning(const struct sgrad__run *run, FILE *to);

/* ---- whitening.c ---- */

/* Filters that whiten the training set's first images, where the network asks for them and no file has them. Every rank calls
 * it, once there are parameters; mean and deviation are known. */
int sgrad__run_whiten(struct sgrad__run *run);

/* ---- what it is set up from: data.c, sizes.c, strategy.c, folder.c ---- */

int sgrad__run_open_data(struct sgrad__run *run);           /* both sets; decodes nothing that can wait */
int sgrad__run_open_samples(struct sgrad__run *run);         /* the test set that weights are asked about */
/* Mean and deviation of the training set, and whether all samples can be read: known to a run that goes on, else measured by all
 * ranks, a share each. Every rank calls it, after open_data; or, to evaluate weights, the other, after open_samples. */
int sgrad__run_measure_data(struct sgrad__run *run);
int sgrad__run_open_data_of_weights(struct sgrad__run *run);
void sgrad__run_set_input(struct sgrad__run *run);          /* the graph learns of mean and deviation */
void sgrad__run_open_placement(struct sgrad__run *run);
int sgrad__run_add_augmentation(struct sgrad__run *run);    /* to training images; after open_data */

/* Samples of a group and of a micro-batch, where they are given, and how long the run is, on RANKS ranks of other samples. */
int sgrad__run_check_sizes(struct sgrad__run *run, long ranks);
/* What SGRAD_GROUP_GPU is, once the ranks are known; every rank calls it. */
int sgrad__run_choose_group(struct sgrad__run *run);
int sgrad__run_choose_micro_batch(struct sgrad__run *run);
/* Do GPUs and CPUs have shares of the batch? Those in use give way to others by what tasks have taken, where a step would take a
 * tenth less with these; then the program has to be built again. */
bool sgrad__run_is_shared(const struct sgrad__run *run);
bool sgrad__run_correct_shares(struct sgrad__run *run);
int64_t sgrad__nearest_divisor(int64_t n, int64_t wanted);

int sgrad__run_check_strategy(struct sgrad__run *run);              /* whatever the ranks */
int sgrad__run_choose_strategy(struct sgrad__run *run);
/* An error where optimizer OF, asked for by --OPTION, is not to be had in shares, and these are asked for. */
int sgrad__run_check_shares(const struct sgrad__run *run, const struct sgrad_optimizer *of, const char *option);
/* Whole parameters whose updates are much work, or of which shares are asked for, get a rank each that updates them. */
void sgrad__run_deal_updates(struct sgrad__run *run, const struct sgrad__program_options *options);
void sgrad__run_measure_room(struct sgrad__run *run);               /* every rank calls it */

/* Names the folder, and refuses one that holds something else, before any work is done. */
int sgrad__run_claim_folder(struct sgrad__run *run);
/* All ranks have the same options and data, but for what is a node's own: before anything that they do together depends on it. */
int sgrad__run_compare_options(struct sgrad__run *run);
/* What its config.json tells. */
void sgrad__run_describe(const struct sgrad__run *run, struct sgrad__config *config, char *devices, size_t size);
int sgrad__run_folder_check(const char *path, bool resume);         /* a run begins in nothing, or goes on with its own */
/* Gives up the lock; a folder that was made in vain goes. */
void sgrad__run_leave_folder(struct sgrad__run *run);
/* Writes config.json, or, continuing a run, loads its newest checkpoint: *DONE steps lie behind it. The folder is rank 0's; the
 * others get what it holds from there. */
int sgrad__run_open_folder(struct sgrad__run *run, long *done);
/* What continues the run: the command, as it is to be typed; of other programs their options; free it. */
char *sgrad__run_again_text(const struct sgrad__run *run);

/* ---- mesh.c: the coordinates of ranks, and parameters that are split over them ---- */

int sgrad__run_open_mesh(struct sgrad__run *run);           /* before the graph */
/* axes.c: --mesh auto. Chooses one, once the ranks are known, for which BUILD builds the graph again. */
bool sgrad__run_mesh_is_open(const struct sgrad__run *run);
int sgrad__run_choose_mesh(struct sgrad__run *run, int (*build)(struct sgrad__run *run));
void sgrad__run_price_meshes(struct sgrad__run *run, int (*build)(struct sgrad__run *run),
                             const struct sgrad_mesh_question *question, bool data_alone, struct sgrad_mesh_choice *choice);
int sgrad__run_place_on_mesh(struct sgrad__run *run);       /* once the ranks are known: the graph, too */
/* What is split, or kept by some ranks, is gathered on rank 0, whole, until sgrad__wholes_free; and, where rank 0 has read a
 * whole, every rank gets what it has of that. Every rank calls them. */
int sgrad__run_gather(struct sgrad__run *run, bool with_states);
int sgrad__run_scatter(struct sgrad__run *run);

/* ---- run.c ---- */

/* 0 when ERROR is 0 on every rank; else an error, of which all know, and end in good order. Who fails alone ends the others. */
int sgrad__run_agree(struct sgrad__run *run, int error);
/* The same, where rank 0 may work on files for longer than any patience lasts; WHAT: what the others wait for. */
int sgrad__run_await(struct sgrad__run *run, int error, const char *what);
/* Does this rank want the run to end? It was asked to, or cannot write down what happens, or a checkpoint. */
bool sgrad__run_is_asked(const struct sgrad__run *run);
/* The learning rate, and the damping, of the step that follows STEP others. */
double sgrad__run_rate(const struct sgrad__run *run, long step);
double sgrad__run_damping(const struct sgrad__run *run, long step);
struct sgrad__program_options sgrad__run_program_options(const struct sgrad__run *run, bool training, int64_t batch,
                                                         int64_t micro);

/* What the training set's samples are called: "images". */
const char *sgrad__run_samples(const struct sgrad__run *run);
/* What it has come to, on this rank, with all that follows from the metrics. */
struct sgrad_train_result sgrad__run_result(const struct sgrad__run *run);

/* ---- step.c ---- */

struct sgrad__order sgrad__run_order(const struct sgrad__run *run);     /* of the training set's samples; to be closed */
/* Everything is there for the step after DONE others. */
int sgrad__run_open_runner(struct sgrad__run *run, long done);
/* The same again, after DONE steps, which have ended: less of the graph may be trained by then. Not with servers. */
int sgrad__run_reopen_program(struct sgrad__run *run, long done);
/* Submits the step that follows STEP others; the caller waits for it (runner.h). */
int sgrad__run_submit(struct sgrad__run *run, long step);
/* The same, of these samples of the training set. */
int sgrad__run_submit_samples(struct sgrad__run *run, long step, const int64_t *sample);

/* ---- evaluation.c ---- */

/* The loss's metrics over the whole test set, of the weights as the steps submitted so far leave them, become those of
 * run->epoch, and run->evaluates false. One at a time; every rank calls it. */
int sgrad__evaluation_begin(struct sgrad__run *run);
int sgrad__evaluation_turn(struct sgrad__run *run);     /* submits what is due; does not wait */
/* Waits for it, if it is not over. Where it MAY_LEAVE what has not begun, and a rank was asked to end the run, run->stopping says
 * so: it is not evaluated. */
int sgrad__evaluation_end(struct sgrad__run *run, bool may_leave);
void sgrad__evaluation_close(struct sgrad__run *run);
struct sgrad_tensor *const *sgrad__evaluation_weights(const struct sgrad__run *run);    /* those of the last one, by parameter */

/* ---- views.c: several views of each image (--tta) ---- */

int sgrad__run_check_views(const struct sgrad__run *run);       /* the graph is whole */
int sgrad__run_see_views(struct sgrad__run *run);               /* from the next evaluation on */
/* Room for what is said of so many samples. */
struct sgrad_answers sgrad__answers_create(const struct sgrad__run *run, int64_t samples);
/* Of ALL, of each sample all views, one after another; to be freed. */
struct sgrad_answers sgrad__views_average(const struct sgrad_views *views, const struct sgrad_answers *all);
/* What the loss leaves of answers: a sum for each metric, and of how many. */
void sgrad__loss_sums(const struct sgrad__run *run, const struct sgrad_answers *said, double *sums);

/* ---- best.c: the weights of the best evaluation, and patience ---- */

int sgrad__best_open(struct sgrad__run *run, long done);    /* what was before the run goes on; every rank calls it */
int sgrad__best_tell(struct sgrad__run *run);       /* run->epoch is evaluated; every rank calls it */
bool sgrad__best_may_end(const struct sgrad__run *run);     /* may the next evaluation be the one that ends the run? */
void sgrad__best_take(struct sgrad__run *run);      /* the run's result is that of its best evaluation, if it is kept */
int sgrad__best_copy(const struct sgrad__run *run, const char *to);     /* best.safetensors, to the file TO */
void sgrad__best_print(const struct sgrad__run *run, long done, FILE *to);

/* ---- signals.c ---- */

void sgrad__signals_watch(void);
void sgrad__signals_unwatch(void);
int sgrad__signal_caught(void);     /* 0: none */

/* ---- deadline.c: what a run does by the clock: --stop-before, --checkpoint-every 10min ---- */

struct sgrad__deadline;
int sgrad__deadline_open(struct sgrad__run *run);           /* the program is built; free run->deadline. SGRAD_EINVAL */
void sgrad__deadline_step(const struct sgrad__run *run, double time);       /* a step has ended, at TIME (sgrad_now) */
bool sgrad__deadline_stops(const struct sgrad__run *run);   /* is it time to stop? Known to rank 0 */
bool sgrad__deadline_wants_checkpoint(const struct sgrad__run *run, long done);     /* likewise, behind DONE steps */
void sgrad__deadline_checkpoint(const struct sgrad__run *run);      /* one begins */
char *sgrad__deadline_text(const struct sgrad__run *run);   /* "--stop-before 17:30"; free it */

/* ---- roof.c: the most that each worker can do while all of them work ---- */

/* Of one rank: numbers a second, in thousands of millions, by worker. */
struct sgrad__roof {
    int workers;
    double flops[SGRAD_MAX_WORKERS], bytes[SGRAD_MAX_WORKERS];
};
int sgrad__roof_measure(enum sgrad_precision precision, struct sgrad__roof *roof);
/* Every rank calls it; the folder's trace/roof.json gets it. */
int sgrad__roof_write(const struct sgrad__run *run);

/* ---- rates.c: what a GPU and a core make of this network, samples a second, as tasks have taken ---- */

struct sgrad__rates {
    double gpu, cpu;        /* of one worker */
};
bool sgrad__rates_find(const struct sgrad__run *run, struct sgrad__rates *rates);   /* an earlier run's; false: there is none */
/* This run's; false: a task has not been measured, or GPUs and CPUs do not share it. And for later runs. */
bool sgrad__rates_measure(const struct sgrad__run *run, struct sgrad__rates *rates);
void sgrad__rates_keep(const struct sgrad__run *run);

/* ---- idle.c ---- */

void sgrad__run_tell_idle(const struct sgrad__run *run);    /* options that were asked for and have no effect: a line each */

/* ---- print.c ---- */

void sgrad__run_print(const struct sgrad__run *run, FILE *to);      /* what the run really is, before it begins */
void sgrad__run_print_pipe(const struct sgrad__run *run, FILE *to); /* pipe.c: of stages, who has which layers */
/* How many gradients came how late, or too late; every rank calls it. */
void sgrad__run_print_staleness(struct sgrad__run *run, FILE *to);

/* ---- server.c: parameter servers of asynchronous training; with other strategies there is none, and these do nothing ---- */

int sgrad__server_open(struct sgrad__run *run, long first);     /* FIRST steps lie behind */
void sgrad__server_close(struct sgrad__run *run);
/* One of the programs that answer pushes, by number; NULL: there are not so many. */
const struct sgrad__program *sgrad__server_program(const struct sgrad__server *server, int number);
/* Every rank pushes the gradients of STEPS steps, of STOP before the next settle; STOP may still come down to STEPS, which the
 * servers of all ranks are told before anybody can push the gradients of step STEPS. */
void sgrad__server_expect(struct sgrad__server *server, long steps, long stop);
/* All steps have ended: every rank gets the servers' weights and states. */
int sgrad__server_settle(struct sgrad__run *run);
/* How many gradients were that stale (the last: or more), over all ranks. */
enum { SGRAD__STALENESS = 32 };
void sgrad__server_staleness(struct sgrad__server *server, double histogram[SGRAD__STALENESS]);
/* How many gradients of each rank were dropped, over all servers. */
void sgrad__server_dropped(struct sgrad__server *server, double *by_rank, int ranks);

#endif
