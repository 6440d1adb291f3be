/* mixture.h: the sources of a mixture. Private to datasets/. */
#ifndef SGRAD_DATASETS_MIXTURE_H
#define SGRAD_DATASETS_MIXTURE_H

#include "datasets/datasets.h"

/* Divides the samples of DATASET, whose count is set, into sources: the first samples[0] samples are those of source 0, and so
 * on. NAME is copied. WEIGHT: positive, with any sum. */
void sgrad__mixture_create(struct sgrad_dataset *dataset, int sources, const char *const *name, const double *weight,
                           const int64_t *samples);
/* Renumbers the samples of the sources: only the samples WHICH[0…kept-1], in ascending order, remain. Sets dataset->count. No
 * effect on a data set without sources. */
void sgrad__mixture_leave_out(struct sgrad_dataset *dataset, const int64_t *which, int64_t kept);
void sgrad__mixture_free(struct sgrad_dataset *dataset); /* removes the sources */

#endif
