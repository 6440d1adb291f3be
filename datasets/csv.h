/* csv.h: a table in files and its columns: declarations of csv.c and csv_columns.c. Private to datasets/. */
#ifndef SGRAD_DATASETS_CSV_H
#define SGRAD_DATASETS_CSV_H

#include "datasets/datasets.h"
#include "datasets/formats.h"

/* The argument of the reader: how the file must be read. A flag that is false leaves this to the content of the file. */
struct sgrad__csv_wanted {
    char *path, *column;                /* column: in the memory of path; NULL: the last column */
    bool classes, numbers, header, no_header;
};

/* The files, by split. With one file, both paths are the same, csv[0] has all lines, and every fifth line belongs to the test
 * set. */
struct sgrad__table {
    struct sgrad__csv_wanted wanted;
    char *path[2];
    struct sgrad__csv csv[2];
    bool one_file, every, warns;        /* one file for both splits; use all its lines; log warnings */
    struct sgrad_origin *origin;        /* titles of columns and normalisation of features */
    int *column[2];                     /* column of each feature, from 0; NULL: the file is not read */
    int target[2];                      /* column of the target; -1: none */
};

/* Returns the cell of ROW, without the header, and COLUMN of FILE. */
static inline const char *sgrad__table_cell(const struct sgrad__table *table, int file, int64_t row, int column) {
    const struct sgrad__csv *csv = &table->csv[file];
    return csv->cell[(row + csv->headed) * csv->columns + column];
}

/* Returns true if CELL is a text that programs write for an unknown number. */
bool sgrad__csv_missing(const char *cell);
/* Reads the files that ARGUMENT names, finds headers, and matches columns: with those of TRAINED if it has the normalisation of
 * features, else with those of the training file. The caller sets t->every; all other members must be zero. sgrad__table_close
 * frees all members except origin; it must be called after an error, too. SGRAD_EINVAL: ARGUMENT is malformed, or its column does
 * not exist. SGRAD_EIO, SGRAD_EFORMAT: of a file. */
int sgrad__table_open(struct sgrad__table *table, const char *argument, enum sgrad_split split,
                      const struct sgrad_origin *trained);
void sgrad__table_close(struct sgrad__table *table);

#endif
