/* token_list.h: the files of a data set of tokens. Private to datasets/. */
#ifndef SGRAD_DATASETS_TOKEN_LIST_H
#define SGRAD_DATASETS_TOKEN_LIST_H

#include "datasets/datasets.h"

#define SGRAD__TOKENS_WANTED                                                                                                     \
    "give tokens:DIR,T, where DIR contains train.bin and val.bin, or train.npy and val.npy, or files such as NAME_train_0.bin "  \
    "and NAME_val_0.bin; or tokens:PATTERN,T"

/* The paths of the files of each split, ordered by their bytes. */
struct sgrad__token_list {
    char **path[2];
    int count[2];
};
/* Finds the files of SOURCE, a folder or a pattern. The caller must free LIST, also after an error. SGRAD_EIO: a folder cannot be
 * read, or a split has no files. SGRAD_EFORMAT: it is unclear what a file is. */
int sgrad__token_list_find(const char *source, struct sgrad__token_list *list);
void sgrad__token_list_free(struct sgrad__token_list *list);    /* frees its members, and zeroes it */
/* Returns the folder of a source's files: SOURCE, or, of a pattern, its part before the last slash. The caller must free it. */
char *sgrad__token_folder(const char *source);

#endif
