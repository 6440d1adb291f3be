/* windows.h: samples that are windows of a long sequence of numbers, for text.c and tokens.c. Private to datasets/. */
#ifndef SGRAD_DATASETS_WINDOWS_H
#define SGRAD_DATASETS_WINDOWS_H

#include "datasets/datasets.h"

/* Parses "PATH,T": sets *PATH, which the caller must free, and *LENGTH to T. WHAT: name of the reader, for messages.
 * SGRAD_EINVAL. */
int sgrad__windows_argument(const char *what, const char *argument, char **path, int64_t *length);

/* sgrad__windows_open makes the samples of DATASET, which is as reader->open receives it, from windows of LENGTH numbers of a
 * sequence in MAP: COUNT little-endian numbers of BYTES bytes (1, 2, 4 or 8) from byte FROM on, each from 0 to INT32_MAX. NAME is
 * that of the file. MAP is closed by sgrad__windows_close, or at once after an error. SGRAD_EFORMAT: COUNT is not above LENGTH.
 * sgrad__windows_read and sgrad__windows_close implement read and close of a reader. */
int sgrad__windows_open(struct sgrad_dataset *dataset, struct sgrad_map map, const char *name, size_t from, int64_t count,
                        int bytes, int64_t length);
/* Restricts targets to the numbers of the sequence whose byte in ANSWERS, COUNT bytes, is 1; all others become -1. ANSWERS is
 * closed by sgrad__windows_close. */
void sgrad__windows_restrict(struct sgrad_dataset *dataset, struct sgrad_map answers);
/* Adds the field SGRAD_DOCUMENT_FIELD if ATTEND, as in struct sgrad_dataset_options, requires it. FOLDER: that of tokens.json;
 * NULL: the data have no such file. SGRAD_EINVAL, SGRAD_EIO, SGRAD_EFORMAT: the end token is unknown, or the file cannot be
 * read. */
int sgrad__windows_attend(struct sgrad_dataset *dataset, const char *attend, const char *folder);
int sgrad__windows_read(const struct sgrad_dataset *dataset, struct sgrad_sample sample, void *const *data);
void sgrad__windows_close(struct sgrad_dataset *dataset);

#endif
