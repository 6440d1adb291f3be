/* windows.h: samples that are windows of a long row of numbers: what text.c and tokens.c share. Private to datasets/. */
#ifndef SGRAD_DATASETS_WINDOWS_H
#define SGRAD_DATASETS_WINDOWS_H

#include "datasets/datasets.h"

/* "PATH,T": the path, to free, and T. WHAT: the reader's name. */
int sgrad__windows_argument(const char *what, const char *argument, char **path, int64_t *length);

/* DATASET, as its reader's open has it, gets the windows of LENGTH numbers of MAP, which it closes, on an error at once: numbers
 * of BYTES bytes, 1, 2 or 4, COUNT of them from byte FROM on. NAME is the file's. */
int sgrad__windows_open(struct sgrad_dataset *dataset, struct sgrad_map map, const char *name, size_t from, int64_t count,
                        int bytes, int64_t length);
int sgrad__windows_read(const struct sgrad_dataset *dataset, int64_t index, void *const *data);
void sgrad__windows_close(struct sgrad_dataset *dataset);

#endif
