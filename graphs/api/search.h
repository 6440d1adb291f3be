/* search.h: hyperparameter search: many candidates, trained concurrently over a training set that is partitioned over ranks. */
#ifndef SGRAD_GRAPHS_API_SEARCH_H
#define SGRAD_GRAPHS_API_SEARCH_H

#include "graphs/api/train.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Rule for the early stopping of candidates. "halving" (successive halving: Jamieson and Talwalkar 2016): after FIRST epochs,
 * FIRST·FACTOR, FIRST·FACTOR², …, keep the best 1/FACTOR of the candidates. "median" (Golovin et al. 2017, section 3.2): after
 * FIRST epochs, and after each later one, stop a candidate if its best value so far is below the median of the other candidates'
 * running means. "none": stop no candidate. */
struct sgrad_stop {
    const char *rule;                           /* NULL: "none" */
    int first, factor;                          /* epochs, 0: 1; a factor, 0: 3 */
};

struct sgrad_candidate {
    const char *name;                           /* name of its directory; NULL: its number, from 1 */
    const char *options_json;                          /* its options as a JSON object, copied to files and tables; NULL: {} */
    struct sgrad_train_options options;         /* data, out, epochs, resume, json and devices are those of the search */
};

struct sgrad_search_options {
    struct sgrad_train_options common;          /* data, out, epochs (a whole number), seed, resume, json, cpus, gpus, … */
    const char *options_json;                          /* options of all candidates as a JSON object, copied to files; NULL: {} */
    const struct sgrad_candidate *candidate;
    int candidates;
    int partitions;                             /* of the training set; 0: the number of ranks */
    int concurrent;                               /* candidates that a rank trains concurrently; 0: chosen automatically */
    const char *schedule;                       /* "ring", "staggered", "open-shop"; NULL: the shortest of these */
    struct sgrad_stop stop;
    const char *replay; /* DIR/NAME, where DIR is common.output.folder: trains the only candidate again, in DIR/NAME/replay, in
                           the order of partitions that was recorded for candidate NAME of the search in DIR; NULL: a search */
};

struct sgrad_search_result {
    int rank;                                   /* of this process. Only rank 0 prints */
    char *folder, *best;                        /* directory of the search; rank 0: name of the best candidate, NULL: all
                                                   have failed; free both */
    long hops;                                  /* migrations of candidates between ranks, since this process started */
    double bytes;                               /* sent by these */
    bool same;                                  /* replay, rank 0: losses and weights are bitwise those of the search */
};

/* Trains candidates, each one as on a single rank (a candidate with a mesh: as on the ranks of the mesh). Each partition of the
 * training set stays on one rank, and the candidates move from partition to partition: weights, optimizer states and results of a
 * candidate are sent while others train. The directory common.output.folder gets a run directory for each candidate, search.json,
 * leaderboard.json and schedule.jsonl. Training is always deterministic. With common.checkpoint.resume, an interrupted search is
 * continued, on any number of ranks. Every rank must call it, with the same options. The errors are those of sgrad_train; also
 * SGRAD_ENAME, SGRAD_EINVAL: the stopping rule is invalid. An error terminates all ranks; a candidate that fails does not. The
 * caller must free folder and best of *RESULT. */
int sgrad_search(const struct sgrad_search_options *options, struct sgrad_search_result *result);

/* Returns true if FOLDER contains a search: its search.json. */
bool sgrad_search_exists(const char *folder);

#ifdef __cplusplus
}
#endif
#endif
