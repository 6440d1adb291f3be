/* windows.h: samples that are windows of long sequences of numbers, for text.c, tokens.c and texts.c. Private to datasets/. */
#ifndef SGRAD_DATASETS_WINDOWS_H
#define SGRAD_DATASETS_WINDOWS_H

#include "datasets/datasets.h"
#include "datasets/numbers.h"

/* Parses "PATH,T": sets *PATH, which the caller must free, and *LENGTH to T. WHAT: name of the reader, for messages.
 * SGRAD_EINVAL. */
int sgrad__windows_argument(const char *what, const char *argument, char **path, int64_t *length);

/* Sequences of numbers, one in each file. A window is part of one sequence. */
struct sgrad__sequences {
    int count;
    struct sgrad__numbers *numbers; /* (count) */
    struct sgrad__numbers *answers; /* (count), a byte for each number: 1 if it may be a target, else 0; NULL: all may */
    uint64_t *hash;                 /* (count), of the content */
};
void sgrad__sequences_free(struct sgrad__sequences *sequences); /* frees its members, and zeroes it */

/* sgrad__windows_open makes the samples of DATASET, which is as reader->open receives it with classes set, from windows of LENGTH
 * numbers. Numbers are from 0 to classes - 1, in files that have been checked; a number that is not is an error when it is read.
 * NAME is that of the data, WHAT the plural of a number ("tokens"), for messages. Takes over *SEQUENCES, also after an error.
 * SGRAD_EFORMAT: no sequence has more than LENGTH numbers.
 * sgrad__windows_read and sgrad__windows_close implement read and close of a reader. */
int sgrad__windows_open(struct sgrad_dataset *dataset, struct sgrad__sequences *sequences, const char *name, const char *what,
                        int64_t length);
/* Makes DATASET a mixture of COUNT sources. Source s has the next files[s] sequences, NAME, which is copied, and WEIGHT, which is
 * positive. The samples of a test set are as many windows as possible in this proportion, evenly spaced in each source.
 * SGRAD_EFORMAT: a source has no window. SGRAD_EINVAL: it has no position in an epoch, because its weight is too small. */
int sgrad__windows_mix(struct sgrad_dataset *dataset, int count, const char *const *name, const double *weight, const int *files);
/* Adds the field SGRAD_DOCUMENT_FIELD if ATTEND, as in struct sgrad_dataset_options, requires it. FOLDER: those of tokens.json,
 * whose end tokens must be equal; FOLDERS 0: the data have no such file. SGRAD_EINVAL, SGRAD_EIO, SGRAD_EFORMAT: the end token is
 * unknown, or a file cannot be read. */
int sgrad__windows_attend(struct sgrad_dataset *dataset, const char *attend, const char *const *folder, int folders);
int sgrad__windows_read(const struct sgrad_dataset *dataset, struct sgrad_sample sample, void *const *data);
void sgrad__windows_close(struct sgrad_dataset *dataset);

/* ---- texts.c ---- */

/* Opens the texts of the data set jsonl:ARGUMENT as tokens, as the function open of a reader; options->tokenizer is not NULL, and
 * dataset->reader becomes another one (texts.c). */
int sgrad__texts_open(struct sgrad_dataset *dataset, const char *argument, const struct sgrad_dataset_options *options);

#endif
