/* csv.h: a table in files and its columns: declarations of csv.c, csv_files.c, csv_columns.c and csv_encoding.c. The files have
 * cells that are separated by commas (csv_cells.c), or JSON lines (jsonl.c). Private to datasets/. */
#ifndef SGRAD_DATASETS_CSV_H
#define SGRAD_DATASETS_CSV_H

#include "datasets/datasets.h"
#include "datasets/formats.h"
#include "datasets/shards/pattern.h"

/* The argument of the reader: how the file must be read. A flag that is false leaves this to the content of the file. The
 * strings are in the memory of text. */
struct sgrad__csv_wanted {
    char *text, *path, *column;         /* column: of the target; NULL: the last column */
    char **ignored, **category;         /* columns to ignore, and columns of categories */
    int ignores, categories;            /* lengths of these lists */
    const char *missing;                /* "mean", "frequent"; NULL: not given */
    bool classes, numbers, header, no_header, scale;
};

/* The files, by split. With one table for both splits, both texts in path are the same, csv[0] has all lines, and held_out
 * divides them. */
struct sgrad__table {
    const char *kind;                   /* of the files: "csv" or "jsonl" */
    struct sgrad__csv_wanted wanted;
    struct sgrad__paths paths[2];
    char *path[2];                      /* for messages: "a.jsonl", "a.jsonl and 3 more files" */
    struct sgrad__csv csv[2];
    const struct sgrad_dataset_options *options;
    bool one_file, warns;               /* one table for both splits; log warnings */
    int id_column;                      /* in the file of the split; -1: none */
    struct sgrad_origin *origin;        /* columns and normalisation of features */
    int *column[2];                     /* column in the file of each of origin->column, -1: none; NULL: no file is read */
    int target[2];                      /* column of the target; -1: none */
    bool *named;                        /* columns of the training file that the argument calls categories; NULL: not learnt */
    bool *held_out;                     /* of one file: the lines of the test split */
    bool *by_value;                     /* of each of origin->column: its categories are numbers, sorted by value */
};

/* Returns the cell of ROW, without the header, and COLUMN of FILE. */
static inline const char *sgrad__table_cell(const struct sgrad__table *table, int file, int64_t row, int column) {
    const struct sgrad__csv *csv = &table->csv[file];
    return csv->cell[(row + csv->headed) * csv->columns + column];
}

/* Returns true if ROW of the file of SPLIT belongs to SPLIT. */
static inline bool sgrad__table_has(const struct sgrad__table *table, enum sgrad_split split, int64_t row) {
    return !table->one_file || table->options->every || table->options->whole || table->held_out[row] == (split == SGRAD_TEST);
}

/* ---- csv_files.c ---- */

/* Sets paths, path and one_file by t->wanted and t->options: of one file; of a pattern; in a folder of train.csv and val.csv, if
 * it exists, else test.csv. With a fraction to hold out (options.split), train.csv is enough. Files of JSON lines may be several:
 * train*.jsonl. SGRAD_EINVAL, SGRAD_EIO: a split has no file. */
int sgrad__table_find(struct sgrad__table *table);
/* Reads the files of a split: *CSV, which the caller must free. SGRAD_EIO, SGRAD_EFORMAT: a file is malformed, or its columns
 * differ from those of the others. */
int sgrad__table_read(const struct sgrad__table *table, int file, struct sgrad__csv *csv);

/* ---- csv_columns.c ---- */

/* Returns the position and the content of a cell, for messages: "csv: FILE: line 3, column 2 (width): 'x'". The caller must free
 * it. */
char *sgrad__table_place(const struct sgrad__table *table, int file, int64_t row, int column);
/* Logs that a cell has a decimal comma, or, if it has none, WHY the cell is refused. Returns SGRAD_EFORMAT. */
int sgrad__table_refuse(const struct sgrad__table *table, int file, int64_t row, int column, const char *why);
/* Reads the files that ARGUMENT names, finds headers, and matches columns: with those of t->options->origin if it has the
 * normalisation of features, else with those of the training file. The caller sets t->kind and t->options; all other members must
 * be zero. sgrad__table_close frees all members but options and origin, and must be called after an error, too. SGRAD_EINVAL:
 * ARGUMENT is malformed, or its column does not exist. SGRAD_EIO, SGRAD_EFORMAT: of a file. */
int sgrad__table_open(struct sgrad__table *table, const char *argument, enum sgrad_split split);
void sgrad__table_close(struct sgrad__table *table);

/* ---- csv_encoding.c ---- */

/* Sets categories, replacements, flags and features of t->origin, whose columns must be set, by the training lines.
 * SGRAD_EFORMAT: a column is not usable. */
int sgrad__table_learn(struct sgrad__table *table);
/* Prepares t->origin for use, and checks all cells of the columns that are features. SGRAD_EFORMAT: a cell is neither a number
 * nor a category, or it is missing and not replaced. SGRAD_EINVAL: the argument contradicts the origin. */
int sgrad__table_check(struct sgrad__table *table);
/* Writes the features of a line, not normalised, to TO. */
void sgrad__table_encode(const struct sgrad__table *table, int file, int64_t row, double *to);
/* Sets mean and deviation of the features of t->origin. Only features that are numbers are normalised. */
void sgrad__table_measure(struct sgrad__table *table);
/* Returns "missing values: 3 of age (29.5), …; categories: 2 of sex", for the lines of SPLIT; NULL: neither. MISSING: only the
 * missing values. The caller must free it. */
char *sgrad__table_text(const struct sgrad__table *table, enum sgrad_split split, bool missing);

#endif
