/* csv.h: a table in files, and its columns: what csv.c and csv_columns.c share. Private to datasets/. */
#ifndef SGRAD_DATASETS_CSV_H
#define SGRAD_DATASETS_CSV_H

#include "datasets/datasets.h"
#include "datasets/formats.h"

/* How the argument wants the file to be read; false: as it looks. */
struct sgrad__csv_wanted {
    char *path, *column;                /* column, within path's memory; NULL: the last */
    bool classes, numbers, header, no_header;
};

/* Files, by split; of one file both are that, and lines are dealt out. */
struct sgrad__table {
    struct sgrad__csv_wanted wanted;
    char *path[2];
    struct sgrad__csv csv[2];
    bool dealt, every, warns;
    struct sgrad_origin *origin;        /* how columns are called, and features normalised */
    int *column[2];                     /* of each feature, from 0; NULL: the file is not read */
    int target[2];                      /* column; -1: there is none */
};

static inline const char *sgrad__table_cell(const struct sgrad__table *t, int file, int64_t row, int column) {
    const struct sgrad__csv *csv = &t->csv[file];
    return csv->cell[(row + csv->headed) * csv->columns + column];
}

/* What programs write where a number is unknown? */
bool sgrad__csv_missing(const char *cell);
/* Reads what ARGUMENT names, finds headers, and matches columns: with TRAINED, where that knows how features are normalised, else
 * with those of the training file. t->every is the caller's, the rest zero; sgrad__table_close frees all but the origin, on
 * errors too. */
int sgrad__table_open(struct sgrad__table *t, const char *argument, enum sgrad_split split, const struct sgrad_origin *trained);
void sgrad__table_close(struct sgrad__table *t);

#endif
