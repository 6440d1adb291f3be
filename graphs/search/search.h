/* search.h: hyperparameter search, declarations of its files. Private to graphs/.
 *
 * Each rank has some partitions of the training set. The trials, one per candidate, move between the ranks. A sub-epoch is one
 * pass of a trial over a partition; output and files call it a visit. A round is a number of epochs of all running trials, after
 * which some may be stopped.
 *
 *     search.c          the whole search, round by round
 *     sub_epochs.c      the order in which trials visit partitions
 *     slots.c           the sub-epochs of a round on this rank, some of them concurrent
 *     trial.c           a trial on this rank: received, trained, sent
 *     stopping.c        early stopping of trials
 *     messages.c        results of sub-epochs, sent to rank 0
 *     manifest.c        search.json and schedule.jsonl
 *     leaderboard.c     metrics.jsonl of each trial, leaderboard.json, the terminal */
#ifndef SGRAD_GRAPHS_SEARCH_SEARCH_H
#define SGRAD_GRAPHS_SEARCH_SEARCH_H

#include "graphs/api/search.h"
#include "graphs/train/setup.h"
#include "graphs/search/sub_epochs.h"

/* ---- stopping.c ---- */

/* The results of a trial for a stopping rule. */
struct sgrad__score {
    const double *value;                /* by epoch; larger is better; -INFINITY instead of NaN and infinities */
    bool stops;                         /* set by sgrad__stop_decide: the trial must be stopped */
};
/* Checks a stopping rule. SGRAD_ENAME: it is unknown. SGRAD_EINVAL: its factor is less than 2, or its first epoch less than 1. */
int sgrad__stop_check(const struct sgrad_stop *stop);
/* Returns the number of epochs, above EPOCH and at most EPOCHS, after which the rule is applied next. */
int sgrad__stop_next(const struct sgrad_stop *stop, int epoch, int epochs);
/* Applies the rule to COUNT trials that have completed EPOCH epochs: sets score[i].stops. Of equal trials, the first counts as
 * better. */
void sgrad__stop_decide(const struct sgrad_stop *stop, int epoch, struct sgrad__score *score, int count);

/* ---- trials ---- */

/* BROKEN: it has failed. DIVERGED: a loss was NaN or infinite. STOPPED: by the stopping rule. */
enum sgrad__trial_status { SGRAD__RUNNING, SGRAD__DIVERGED, SGRAD__BROKEN, SGRAD__STOPPED, SGRAD__FINISHED };

/* The log of a trial, which is sent with its weights. It consists of floats:
 *
 *     number of sub-epochs   status, sub-epoch in which it failed   loss, seconds of each step   test metrics of each epoch
 *
 * A test metric is two floats: the value rounded to float, and the rest. Their sum is the value. */
enum { SGRAD__JOURNAL_SUB_EPOCHS, SGRAD__JOURNAL_STATUS, SGRAD__JOURNAL_LOST, SGRAD__JOURNAL_STEPS };
enum { SGRAD__STEP_LOSS, SGRAD__STEP_SECONDS, SGRAD__STEP_NUMBERS };

/* A sub-epoch in progress. */
struct sgrad__turn {
    const struct sgrad__sub_epoch *sub_epoch;   /* NULL: it has ended */
    long next, done;                    /* number of the next step to submit; of the oldest step in flight */
    long promised;                      /* steps before this one must be submitted: other ranks of the trial submit theirs */
    double last;                        /* when the step before the oldest one in flight ended (sgrad_time_monotonic) */
    bool lost;                          /* no further steps: one has failed, or its loss is NaN or infinite */
    bool evaluates;                     /* its evaluation has been started */
};

struct sgrad__search;
/* A trial: one candidate. All ranks have the record; some of them have its state. */
struct sgrad__trial {
    const struct sgrad_candidate *is;   /* borrowed; the candidate */
    struct sgrad__search *search;
    int number;                         /* its index in struct sgrad__search */
    /* ranks that train it together, by its mesh; index among these of this rank, or of the one whose state this rank has */
    int ranks, place;
    char *name, *folder;                /* of the candidate; run directory */
    struct sgrad_train_options options; /* of the candidate, completed by those of the search */
    enum sgrad__trial_status status;    /* as decided at the end of the last round; the same on all ranks */
    const struct sgrad_metric *metric;  /* array: metrics of the loss */
    int metrics;                        /* length of this array */
    struct sgrad_schedule rates;        /* learning-rate schedule */
    double peak;                        /* peak learning rate */
    long sub_epoch_steps;               /* steps of a sub-epoch */
    int64_t parameters, micro;          /* number of trained values; not used */
    double bytes, part;                 /* bytes that a migration sends: of all its ranks; of this one */
    double cost;                        /* operations of a sub-epoch, of one of its ranks */
    double tasks;                       /* micro-batches of a step: number of workers that it can use at once */
    float *journal;                     /* its log; complete where it is trained; on rank 0 as far as reported */
    int completed;                      /* sub-epochs completed before the present round */
    int *at;                            /* by index of its ranks: the rank that has its state at the start of a round; -1: none */
    int planned_at;                     /* first of these ranks by the plans of all rounds, repeated ones included; -1: none */
    struct sgrad__run *run;             /* its graph and state on this rank; NULL: its state is not on this rank */
    struct sgrad__turn turn;            /* its sub-epoch on this rank */
    int under_way;                      /* outstanding messages with its state; protected by the search's monitor */
    struct sgrad__program *transfer;    /* the program of these messages; NULL: there were none */
    struct sgrad_step transferred;      /* the step of this program */
    bool leaves;                        /* its state is being sent to another rank */
    bool *recorded;                     /* rank 0: by sub-epoch: its result is known */
    int written;                        /* rank 0: number of sub-epochs whose steps are in metrics.jsonl */
};
struct sgrad__search {
    const struct sgrad_search_options *options; /* borrowed */
    struct sgrad__run ground;           /* owner of the context and the data sets */
    int rank, ranks, partitions, epochs; /* partitions of the training set; epochs of a trial */
    int64_t partition_samples;          /* samples of a partition; the remaining samples are not used */
    int64_t *sample;                    /* samples of all partitions: one partition after another */
    int trials;                         /* number of trials */
    struct sgrad__trial *trial;
    int slots;                          /* trials that a rank trains concurrently */
    struct sgrad_monitor *monitor;      /* notified of events: a message has arrived, or a step has ended */
    struct sgrad__checkpoint *checkpoint;       /* the one that this rank is writing; NULL: none */
    struct sgrad__search_messages *messages;       /* messages with the results of sub-epochs, to rank 0 */
    struct sgrad__leaderboard *leaderboard;   /* the leaderboard; only on rank 0 */
    char *folder;                       /* directory of the search; of a replay DIR/NAME/replay, that of its trial */
    /* of the present round; models are indices of trials; the unit of time is its longest sub-epoch */
    struct sgrad__sub_epochs plan;
    long hops;                          /* migrations of trials between ranks in this plan */
    double bytes, busy;                 /* bytes that these send; fraction of the makespan in which ranks train */
    double moved[2];                    /* migrations and bytes sent by this rank, in all rounds */
};

/* rank: returns the rank that trains SUB_EPOCH, of several ranks the first. trains: returns true if this rank is one of them. */
static inline int sgrad__search_rank(const struct sgrad__search *search, const struct sgrad__sub_epoch *sub_epoch) {
    return sgrad__sub_epochs_rank(sub_epoch->partition, search->ranks, search->trial[sub_epoch->model].ranks);
}
static inline bool sgrad__search_trains(const struct sgrad__search *search, const struct sgrad__sub_epoch *sub_epoch) {
    const int first = sgrad__search_rank(search, sub_epoch);
    return search->rank >= first && search->rank < first + search->trial[sub_epoch->model].ranks;
}
/* Returns the index of this rank among the ranks of a trial, which is the same in all sub-epochs. */
static inline int sgrad__search_place(const struct sgrad__trial *trial) { return trial->search->rank % trial->ranks; }

/* Access to the log of a trial. Steps and epochs are counted from 0. SGRAD__TEST_NUMBERS: floats of a test metric. The functions
 * return: a pointer to the values of a step; the index of the test metrics of an epoch, and a pointer to them; one of these
 * metrics; the length of the log in floats. */
enum { SGRAD__TEST_NUMBERS = 2 };
static inline float *sgrad__journal_step(const struct sgrad__trial *trial, long step) {
    return trial->journal + SGRAD__JOURNAL_STEPS + step * SGRAD__STEP_NUMBERS;
}
static inline size_t sgrad__journal_tests_at(const struct sgrad__trial *trial, int epoch) {
    const long steps = trial->sub_epoch_steps * trial->search->partitions * trial->search->epochs;
    return (size_t)(SGRAD__JOURNAL_STEPS + steps * SGRAD__STEP_NUMBERS + (long)epoch * trial->metrics * SGRAD__TEST_NUMBERS);
}
static inline float *sgrad__journal_tests(const struct sgrad__trial *trial, int epoch) {
    return trial->journal + sgrad__journal_tests_at(trial, epoch);
}
static inline double sgrad__journal_test(const struct sgrad__trial *trial, int epoch, int metric) {
    const float *test = sgrad__journal_tests(trial, epoch) + metric * SGRAD__TEST_NUMBERS;
    return (double)test[0] + test[1];
}
static inline size_t sgrad__journal_count(const struct sgrad__trial *trial) {
    return sgrad__journal_tests_at(trial, trial->search->epochs);
}

/* ---- trial.c ---- */

/* Opens the run of a trial, and determines its sizes and costs. If that fails, its status is SGRAD__BROKEN; the error has been
 * logged. The run must be closed again (sgrad__trial_close). */
void sgrad__trial_measure(struct sgrad__trial *trial);
/* Requests the state of the trial's rank with the given index, unless this rank has it already; does not wait. FROM: the rank
 * that sends it; this rank: it is loaded from a checkpoint; -1: it is initialized. It must not be in the process of being sent.
 * The errors are those of sgrad__run_open_beside and of messages and checkpoints. */
int sgrad__trial_fetch(struct sgrad__trial *trial, int place, int from);
/* Returns true if the state has arrived, and is not being sent. */
bool sgrad__trial_is_here(struct sgrad__trial *trial);
/* Starts a sub-epoch of a trial whose state has arrived. The errors are those of building the program. */
int sgrad__trial_begin(struct sgrad__trial *trial, const struct sgrad__sub_epoch *sub_epoch);
/* Continues the sub-epoch, and ends it with an evaluation, if it is the last one of an epoch, and a checkpoint. Does not wait;
 * must be called whenever a step may have ended, until the sub-epoch in the record is NULL. If a task fails, a trial on one rank
 * ends with the status SGRAD__BROKEN; for a trial on several ranks the error is returned. Other errors are those of messages and
 * files. */
int sgrad__trial_turn(struct sgrad__trial *trial);
/* Sends the state to rank TO; does not wait. */
int sgrad__trial_send(struct sgrad__trial *trial, int to);
/* Frees the state if it was sent and has arrived. Returns false if it is still being sent. */
bool sgrad__trial_settle(struct sgrad__trial *trial);
/* Saves the weights as model.safetensors in the run directory, unless the file exists. The ranks that have the state must call it
 * together; no other rank may. */
int sgrad__trial_save(struct sgrad__trial *trial);
/* Frees the state on this rank, if there is one. */
void sgrad__trial_close(struct sgrad__trial *trial);
/* Finds the newest checkpoint of the trial's rank with the given index on the disk of this rank, and reads the log from it.
 * *COMPLETED becomes the number of its completed sub-epochs; 0: no file. SGRAD_EIO, SGRAD_EFORMAT: it cannot be read, or is
 * not a checkpoint of this search. */
int sgrad__trial_find(struct sgrad__trial *trial, int place, int *completed);
/* Returns true if there is a checkpoint of that rank after COMPLETED sub-epochs. */
bool sgrad__trial_has(const struct sgrad__trial *trial, int place, int completed);
/* Reads the log from the checkpoint of that rank after COMPLETED sub-epochs. Errors as of find. */
int sgrad__trial_recall(struct sgrad__trial *trial, int place, int completed);

/* ---- slots.c ---- */

/* Executes the sub-epochs of search->plan that belong to this rank and have not been completed before a resume; failed trials are
 * not trained. Returns when all states and results have been sent, and on rank 0 when all results have been received. The errors
 * are those of tasks, messages and files. */
int sgrad__slots_run(struct sgrad__search *search);

/* ---- messages.c ---- */

/* Creates the buffers of messages; close frees them. */
int sgrad__search_messages_open(struct sgrad__search *search);
void sgrad__search_messages_close(struct sgrad__search *search);
/* Starts a round: rank 0 expects SUB_EPOCHS[i] messages from rank i. */
int sgrad__search_messages_expect(struct sgrad__search *search, const int *sub_epochs);
/* Rank 0: processes the messages that have arrived; does not wait. */
int sgrad__search_messages_read(struct sgrad__search *search);
/* Returns true if rank 0 has processed all messages of the round; always true on other ranks. */
bool sgrad__search_messages_is_whole(const struct sgrad__search *search);
/* Sends the result of SUB_EPOCH, the last one of the trial, to rank 0. */
int sgrad__search_messages_send(struct sgrad__trial *trial, int sub_epoch);

/* ---- manifest.c: the options of a search, and the order of its sub-epochs; only on rank 0 ---- */

/* Returns the options GIVEN, a JSON text such as {"lr": 0.1}, as an object; an empty one if GIVEN is NULL or malformed. The
 * caller must release it (json_decref). */
struct json_t *sgrad__manifest_options(const char *given);
/* Reads FOLDER/search.json. *FOUND: it exists; if not, 0 is returned, and *PARTITIONS is unchanged. *PARTITIONS becomes its
 * number of partitions. SGRAD_EINVAL: the file describes another search than SEARCH, which may be NULL. SGRAD_EIO, SGRAD_EFORMAT:
 * it cannot be read, or is malformed. */
int sgrad__manifest_read(const struct sgrad__search *search, const char *folder, int *partitions, bool *found);
/* Writes FOLDER/search.json. SGRAD_EIO: it cannot be written. */
int sgrad__manifest_write(const struct sgrad__search *search, const char *folder);
/* Writes the plan of round ROUND (the first is 0) to FOLDER/schedule.jsonl, after the earlier rounds; removes later ones.
 * SGRAD_EIO: the file cannot be read or written. */
int sgrad__manifest_round(const struct sgrad__search *search, const char *folder, int round);
/* Reads the sub-epochs of candidate NAME from FOLDER/schedule.jsonl, with model 0. The caller must free *SUB_EPOCHS
 * (sgrad__sub_epochs_free). SGRAD_EFORMAT: there are none, they are not in the order of epochs, or there are more than
 * PARTITIONS·EPOCHS. SGRAD_EIO: the file cannot be read. */
int sgrad__manifest_sub_epochs(const char *folder, const char *name, int partitions, int epochs,
                               struct sgrad__sub_epochs *sub_epochs);
/* Returns true if the runs in two directories have bitwise the same losses, and the same final weights if both directories have
 * some. The first difference is logged as a warning. */
bool sgrad__manifest_same(const char *folder, const char *other);

/* ---- leaderboard.c: results of the trials: metrics, leaderboard, the terminal; only on rank 0 ---- */

/* Creates and locks the directory of the search. SGRAD_EIO: it cannot be created, or is locked by another process. */
int sgrad__leaderboard_open(struct sgrad__search *search);
/* Releases the lock; frees the leaderboard, if there is one. */
void sgrad__leaderboard_close(struct sgrad__search *search);
/* Adds a trial: creates its directory, writes config.json and, from its log, metrics.jsonl. Its run must be open
 * (sgrad__trial_measure). SGRAD_EIO: a file cannot be written. SGRAD_EINVAL: an option is not UTF-8. */
int sgrad__leaderboard_add(struct sgrad__trial *trial);
/* Prints the plan of a round, which trains the epochs from FROM to TO - 1. */
void sgrad__leaderboard_round(struct sgrad__search *search, int from, int to);
/* Writes the results that have been added to the log of a trial to metrics.jsonl, leaderboard.json and the terminal. SGRAD_EIO: a
 * file cannot be written. */
int sgrad__leaderboard_update(struct sgrad__trial *trial);
/* Writes and prints the final leaderboard. SGRAD_EIO: it cannot be written. */
int sgrad__leaderboard_end(struct sgrad__search *search);
/* Returns the number of completed epochs. */
int sgrad__leaderboard_epochs(const struct sgrad__trial *trial);
/* Returns metric 1 after EPOCH (the first is 0), or the loss if it is the only metric; negated if smaller is better. -INFINITY:
 * it is NaN or infinite. */
double sgrad__leaderboard_value(const struct sgrad__trial *trial, int epoch);
/* Returns the best trial of a search that has ended; NULL: all have failed. */
const struct sgrad__trial *sgrad__leaderboard_best(const struct sgrad__search *search);

#endif
