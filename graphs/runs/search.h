/* search.h: many candidates over data that stays where it is: what the files of a search share. Private to graphs/runs/.
 *
 *     search.c      all of it, round by round                seats.c      a round's visits on this rank, some side by side
 *     visits.c      who visits which partition when          entrant.c    a candidate on this rank: received, trained, sent
 *     stopping.c    who is given up                          mail.c       what a visit came to, on its way to rank 0
 *     ledger.c      what was asked for, in which order       board.c      metrics, leaderboard, the terminal
 *                   it was done */
#ifndef SGRAD_GRAPHS_SEARCH_H
#define SGRAD_GRAPHS_SEARCH_H

#include "graphs/runs/run.h"
#include "graphs/runs/visits.h"

/* ---- stopping.c ---- */

/* What a candidate has come to, by epoch: the more the better; -INFINITY where it is no number. */
struct sgrad__score {
    const double *value;
    bool stops;                         /* filled in */
};
/* SGRAD_ENAME: no such rule. */
int sgrad__stop_check(const struct sgrad_stop *stop);
/* After how many epochs, more than EPOCH and at most EPOCHS, the rule looks at candidates again. */
int sgrad__stop_next(const struct sgrad_stop *stop, int epoch, int epochs);
/* Who of COUNT candidates that have had EPOCH epochs is given up. Of equal ones the first is better. */
void sgrad__stop_decide(const struct sgrad_stop *stop, int epoch, struct sgrad__score *score, int count);

/* ---- entrants ---- */

enum sgrad__fate { SGRAD__RUNNING, SGRAD__DIVERGED, SGRAD__BROKEN, SGRAD__STOPPED, SGRAD__FINISHED };

/* What a candidate has been through, as it travels with its weights, in floats:
 *
 *     visits   fate, visit of that   loss seconds, loss seconds, … by step   test metrics, by epoch
 *
 * a metric being a float and what that leaves of it.
 */
enum { SGRAD__JOURNAL_VISITS, SGRAD__JOURNAL_FATE, SGRAD__JOURNAL_LOST, SGRAD__JOURNAL_STEPS };
enum { SGRAD__STEP_LOSS, SGRAD__STEP_SECONDS, SGRAD__STEP_NUMBERS };

/* A visit that is being made. */
struct sgrad__turn {
    const struct sgrad__visit *visit;   /* NULL: it is over */
    long next, done;                    /* the step to be submitted, the oldest in flight */
    long promised;                      /* up to where steps are submitted come what may: other ranks submit their part of them */
    double last;                        /* when the step before that ended */
    bool lost;                          /* there is no use in more steps */
    bool evaluates;
};

struct sgrad__search;
struct sgrad__entrant {
    const struct sgrad_candidate *is;
    struct sgrad__search *search;
    int number;
    int ranks, place;                   /* that it takes at once; which of them this one is, or has the state of */
    char *name, *folder;
    struct sgrad_train_options options;
    enum sgrad__fate fate;              /* as decided at the end of a round, the same on all ranks */
    const struct sgrad_metric *metric;
    int metrics;
    struct sgrad_schedule rates;        /* of learning */
    double peak;
    long visit_steps;                   /* steps of a visit */
    int64_t parameters, micro;
    double bytes, part;                 /* that a hop moves; of these, from this rank */
    double cost;                        /* of a visit: flops */
    double tasks;                       /* micro-batches of a step: workers that have something to do at once */
    float *journal;                     /* up to date where the candidate is, and on rank 0 as far as it was told */
    int visits;                         /* that are over, when a round begins */
    int *at;                            /* by place: the rank where it was left; -1: it has not begun */
    int planned_at;                     /* the same, by plan: as if the search had never been ended */
    struct sgrad__run *run;             /* its graph, and what that holds; NULL: it is not here */
    struct sgrad__turn turn;
    int under_way;                      /* messages to or from here, and their tasks; within the search's monitor */
    struct sgrad__program *transfer;    /* they; NULL: there were none */
    struct sgrad_step transferred;      /* the step of that */
    bool leaves;                        /* it has been sent */
    bool *told;                         /* rank 0's: by visit */
    int written;                        /* rank 0's: visits whose steps metrics.jsonl has */
};
struct sgrad__search {
    const struct sgrad_search_options *options;
    struct sgrad__run ground;
    int rank, ranks, partitions, epochs;
    int64_t partition_samples;          /* of each; a rest smaller than the partitions stays out */
    int64_t *sample;                    /* by place in all partitions, one after another */
    int entrants;
    struct sgrad__entrant *entrant;
    int seats;                          /* candidates that this rank trains side by side */
    struct sgrad_monitor *monitor;      /* told of messages, and of steps that have ended */
    struct sgrad__checkpoint *checkpoint;       /* this rank's, that is being written */
    struct sgrad__mail *mail;           /* what visits came to, on its way to rank 0 */
    struct sgrad__board *board;         /* rank 0's */
    char *folder;                       /* rank 0's; of a replay DIR/NAME/replay, its candidate's own */
    struct sgrad__visits plan;          /* of the present round; models are the entrants' numbers, a slot is its longest visit */
    long hops;                          /* that it asks for, from rank to rank */
    double bytes, busy;                 /* that these move; the share of the makespan in which ranks train */
    double moved[2];                    /* hops and bytes that this rank has sent, in all rounds */
};

/* Who makes VISIT: of several ranks the first; and does this one take part? */
static inline int sgrad__search_rank(const struct sgrad__search *s, const struct sgrad__visit *visit) {
    return sgrad__visits_rank(visit->partition, s->ranks, s->entrant[visit->model].ranks);
}
static inline bool sgrad__search_visits(const struct sgrad__search *s, const struct sgrad__visit *visit) {
    const int first = sgrad__search_rank(s, visit);
    return s->rank >= first && s->rank < first + s->entrant[visit->model].ranks;
}
/* Which of the entrant's ranks this one is, wherever it is visited. */
static inline int sgrad__search_place(const struct sgrad__entrant *e) { return e->search->rank % e->ranks; }

/* Places in a journal: of a step, of an epoch's metrics, both 0 being the first; one metric's value; floats in all. */
enum { SGRAD__TEST_NUMBERS = 2 };
static inline float *sgrad__journal_step(const struct sgrad__entrant *e, long step) {
    return e->journal + SGRAD__JOURNAL_STEPS + step * SGRAD__STEP_NUMBERS;
}
static inline size_t sgrad__journal_tests_at(const struct sgrad__entrant *e, int epoch) {
    const long steps = e->visit_steps * e->search->partitions * e->search->epochs;
    return (size_t)(SGRAD__JOURNAL_STEPS + steps * SGRAD__STEP_NUMBERS + (long)epoch * e->metrics * SGRAD__TEST_NUMBERS);
}
static inline float *sgrad__journal_tests(const struct sgrad__entrant *e, int epoch) {
    return e->journal + sgrad__journal_tests_at(e, epoch);
}
static inline double sgrad__journal_test(const struct sgrad__entrant *e, int epoch, int metric) {
    const float *test = sgrad__journal_tests(e, epoch) + metric * SGRAD__TEST_NUMBERS;
    return (double)test[0] + test[1];
}
static inline size_t sgrad__journal_count(const struct sgrad__entrant *e) {
    return sgrad__journal_tests_at(e, e->search->epochs);
}

/* ---- entrant.c ---- */

/* What is known of a candidate before it trains: sizes and costs. On error it is told and marked as failed. */
void sgrad__entrant_measure(struct sgrad__entrant *entrant);
/* The state of its rank PLACE comes, if it is not here: from rank FROM; from its checkpoint, where FROM is this rank; new, where
 * FROM is -1. Not while it leaves. */
int sgrad__entrant_fetch(struct sgrad__entrant *entrant, int place, int from);
bool sgrad__entrant_is_here(struct sgrad__entrant *entrant);
/* A visit of one that is here: begun, then turned, whenever a step may have ended, until turn.visit is NULL. */
int sgrad__entrant_begin(struct sgrad__entrant *entrant, const struct sgrad__visit *visit);
int sgrad__entrant_turn(struct sgrad__entrant *entrant);
int sgrad__entrant_send(struct sgrad__entrant *entrant, int to);
bool sgrad__entrant_settle(struct sgrad__entrant *entrant);        /* what was sent goes, if it has arrived; else false */
/* Its weights, as model.safetensors, unless there are some; every rank that it was left on calls it, and no other. */
int sgrad__entrant_save(struct sgrad__entrant *entrant);
void sgrad__entrant_close(struct sgrad__entrant *entrant);
/* The newest checkpoint of its rank PLACE on this rank's disk: *VISITS that lie behind, 0: there is none. Is there one of so many
 * visits? And what that says: the journal. */
int sgrad__entrant_find(struct sgrad__entrant *entrant, int place, int *visits);
bool sgrad__entrant_has(const struct sgrad__entrant *entrant, int place, int visits);
int sgrad__entrant_recall(struct sgrad__entrant *entrant, int place, int visits);

/* ---- seats.c ---- */

/* This rank's visits of the plan, of candidates that are not over; what they came to has been told, and has arrived. */
int sgrad__seats_make_visits(struct sgrad__search *search);

/* ---- mail.c ---- */

int sgrad__mail_open(struct sgrad__search *search);
void sgrad__mail_close(struct sgrad__search *search);
int sgrad__mail_expect(struct sgrad__search *search, const int *visits);   /* by rank: in the round that begins */
int sgrad__mail_read(struct sgrad__search *search);                         /* what has come */
bool sgrad__mail_is_whole(const struct sgrad__search *search);              /* all of it has come, and been read */
/* Tells rank 0 what VISIT, the entrant's last, came to. */
int sgrad__mail_tell(struct sgrad__entrant *entrant, int visit);

/* ---- ledger.c: what a search was asked for, and in which order it was done; rank 0's ---- */

/* DIR/search.json: *PARTITIONS, and, where SEARCH is known, that it is the same. *FOUND: there is one. */
/* Options as a file gave them, {"lr": 0.1}; NULL: none. The caller's. */
struct json_t *sgrad__ledger_options(const char *given);
int sgrad__ledger_read(const struct sgrad__search *search, const char *folder, int *partitions, bool *found);
int sgrad__ledger_write(const struct sgrad__search *search, const char *folder);
/* The plan of a round, number ROUND from 0, in DIR/schedule.jsonl after those before it. */
int sgrad__ledger_round(const struct sgrad__search *search, const char *folder, int round);
/* The visits that DIR/schedule.jsonl has of candidate NAME, as models 0. */
int sgrad__ledger_visits(const char *folder, const char *name, int partitions, int epochs, struct sgrad__visits *visits);
/* Do the runs in two folders have the same losses, and weights, where both have some? One line says where not. */
bool sgrad__ledger_same(const char *folder, const char *other);

/* ---- board.c: what the candidates have come to: metrics, leaderboard, the terminal; rank 0's ---- */

int sgrad__board_open(struct sgrad__search *search);                /* takes the folder */
void sgrad__board_close(struct sgrad__search *search);
int sgrad__board_enter(struct sgrad__entrant *entrant);            /* its folder, config.json, and its journal's metrics.jsonl */
void sgrad__board_round(struct sgrad__search *search, int from, int to);    /* which epochs come */
int sgrad__board_told(struct sgrad__entrant *entrant);             /* its journal has more */
int sgrad__board_end(struct sgrad__search *search);                /* the leaderboard, whole */
int sgrad__board_epochs(const struct sgrad__entrant *entrant);     /* that are over */
double sgrad__board_value(const struct sgrad__entrant *entrant, int epoch);        /* the more the better */
const struct sgrad__entrant *sgrad__board_best(const struct sgrad__search *search);        /* NULL: all failed */

#endif
