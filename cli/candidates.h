/* candidates.h: what search.c asks of candidates.c: the file of a search, read. Private to the two. */
#ifndef SGRAD_CLI_CANDIDATES_H
#define SGRAD_CLI_CANDIDATES_H

#include "cli/cli.h"

/* What a search is: OPTIONS, and what they point to. Free it. */
struct sgrad__candidates {
    struct sgrad_search_options options;
    json_t *file, *text;            /* strings that options are */
    struct sgrad_candidate *candidate;
};
/* From a search's file; or, for a replay, the candidate NAME of the search in FOLDER. Common options begin as TRAIN. Returns the
 * exit status; one line says where which word is wrong. */
int sgrad__candidates_read(const char *path, const struct sgrad_train_options *train, struct sgrad__candidates *candidates);
int sgrad__candidates_find(const char *folder, const char *name, const struct sgrad_train_options *train,
                           struct sgrad__candidates *candidates);
void sgrad__candidates_free(struct sgrad__candidates *candidates);

#endif
