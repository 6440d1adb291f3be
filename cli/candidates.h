/* candidates.h: reads the file of a search (candidates.c), for search.c. Private to these two files. */
#ifndef SGRAD_CLI_CANDIDATES_H
#define SGRAD_CLI_CANDIDATES_H

#include "graphs/api/search.h"
#include "cli/cli.h"

/* The options of a search, and the data to which they point. The caller must free it, also after an error. */
struct sgrad__candidates {
    struct sgrad_search_options options;
    json_t *file, *text;            /* own the strings of the options */
    struct sgrad_candidate *candidate;
};
/* read reads the file PATH of a search. find reads, for a replay, the candidate NAME of the search in FOLDER. TRAIN: initial
 * values of the options common to all candidates. Both return the exit status; an error is logged as one line with its position
 * in the file. */
int sgrad__candidates_read(const char *path, const struct sgrad_train_options *train, struct sgrad__candidates *candidates);
int sgrad__candidates_find(const char *folder, const char *name, const struct sgrad_train_options *train,
                           struct sgrad__candidates *candidates);
void sgrad__candidates_free(struct sgrad__candidates *candidates);

#endif
