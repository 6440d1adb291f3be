/* origin.h: metadata of samples: names of classes and columns, normalisation. */
#ifndef SGRAD_DATASETS_ORIGIN_H
#define SGRAD_DATASETS_ORIGIN_H

#include "runtime/runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A column of a table, except its target, and its encoding as features, which csv_encoding.c describes. */
enum sgrad_column_kind { SGRAD_COLUMN_NUMBER, SGRAD_COLUMN_CATEGORY, SGRAD_COLUMN_IGNORED };
struct sgrad_column {
    enum sgrad_column_kind kind;
    char *title;                        /* NULL: the file has no header */
    int categories;                     /* of a CATEGORY: each is a feature, 1 for samples of this category, else 0 */
    char **category;                    /* the names of the categories, sorted */
    bool flagged;                       /* the column has one more feature: 1 if the value of the sample is missing, else 0 */
    double fill;                        /* replaces missing values: a number, or the index of a category */
};

/* Metadata of samples, without their values. Other samples are matched with those that a network was trained on by this metadata.
 * A data set describes its samples by one; the config.json of a run stores it. Members that are NULL or 0 are unknown. The
 * structure owns all that its members point to. */
struct sgrad_origin {
    int classes;                        /* number of classes of the labels; 0: there are no labels */
    char **class_name;                  /* name of each class; NULL: the name of a class is its number */
    int64_t features;                   /* numbers per sample, if the input is numeric features; otherwise 0 */
    struct sgrad_shape shape;           /* of a sample in its file; rank 0: unknown, or the sample is a row of a table */
    char **title;                       /* name of each feature: "age", "age missing", "colour=red" */
    int64_t targets;                    /* numbers of the target, if they are not classes; otherwise 0 */
    int columns;                        /* of a table; 0: the samples are not a table */
    struct sgrad_column *column;        /* all columns but the target, in the order of the file */
    char *missing;                      /* numbers that replace missing values: "mean", "frequent"; NULL: these are refused */
    double target_mean, target_deviation;   /* targets are (x - mean) / deviation; deviation 0: x, not scaled */
    char *target;                       /* column title of the target */
    int target_column;                  /* Column number of the target in the file, from 1. */
    /* Feature i is normalised to (x - mean[i % groups]) / deviation[i % groups], where x is its value in the file. */
    int64_t groups;                     /* length of mean and of deviation */
    double *mean, *deviation;           /* mean, standard deviation; NULL: features are not normalised */
};
void sgrad_origin_free(struct sgrad_origin *origin);    /* frees ORIGIN and its members; NULL is a no-op */

#ifdef __cplusplus
}
#endif

#endif
