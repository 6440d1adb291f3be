/* csv_encoding.c: encodes the columns of a table as features. The categories and the replacements of missing values are those of
 * the training lines. They are part of the origin (origin.h), so that later data are encoded in the same way:
 *
 *     age  colour          age   age missing   colour=blue   colour=red
 *     31   red             31    0             0             1
 *          blue            30    1             1             0             30: the mean of the training lines
 *     29   green           29    0             0             0             no training line is green: a warning
 *
 * A column without numbers is one of categories. The features of a column are adjacent. Only numbers are normalised (features.c).
 *
 * Limits: a missing value of a column that has none in training is replaced, but has no flag. */
#include "config.h"
#include "datasets/csv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { CATEGORIES_LIMIT = 4096, FEW = 10 };

static bool is_category(const struct sgrad_column *column) { return column->kind == SGRAD_COLUMN_CATEGORY; }

/* A missing value. Infinities are not missing; "-" and "none" may be categories. */
static bool is_missing(const struct sgrad_column *column, const char *cell) {
    const char *sign = *cell == '-' ? cell + 1 : cell;
    if (!strcasecmp(sign, "inf") || (is_category(column) && (!strcmp(cell, "-") || !strcasecmp(cell, "none")))) return false;
    return sgrad__csv_missing(cell);
}

static const char *cell_of(const struct sgrad__table *table, int file, int64_t row, int k) {
    return sgrad__table_cell(table, file, row, table->column[file][k]);
}

static char *title_of(const struct sgrad_column *column, int k) {
    return column->title ? sgrad_format("%s", column->title) : sgrad_format("column %d", k + 1);
}

/* ---- categories --------------------------------------------------------------------------------------------------- */

static int by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static int by_number(const void *a, const void *b) { return sgrad__csv_order(*(char *const *)a, *(char *const *)b); }

/* Returns the index of the category CELL; -1: it is unknown. */
static int find_category(const struct sgrad__table *table, int k, const char *cell) {
    const struct sgrad_column *column = &table->origin->column[k];
    double number;
    if (table->by_value[k] && !sgrad__csv_number(cell, &number)) return -1;
    char *const *found = bsearch(&cell, column->category, (size_t)column->categories, sizeof *column->category,
                                 table->by_value[k] ? by_number : by_text);
    return found ? (int)(found - column->category) : -1;
}

/* Sets by_value of each column. */
static void find_orders(struct sgrad__table *table) {
    const struct sgrad_origin *o = table->origin;
    double number;
    free(table->by_value);
    table->by_value = sgrad_xcalloc((size_t)o->columns + 1, sizeof *table->by_value);
    for (int k = 0; k < o->columns; k++) {
        table->by_value[k] = is_category(&o->column[k]);
        for (int c = 0; c < o->column[k].categories && table->by_value[k]; c++)
            table->by_value[k] = sgrad__csv_number(o->column[k].category[c], &number);
    }
}

static bool are_numbers(const char **cell, int64_t count) {
    double number;
    for (int64_t i = 0; i < count; i++)
        if (!sgrad__csv_number(cell[i], &number)) return false;
    return true;
}

/* Refuses a column of texts that are probably names of lines, unless the argument calls them categories. */
static int check_categories(const struct sgrad__table *table, int k, int64_t categories, int64_t cells) {
    const int column = table->column[SGRAD_TRAIN][k];
    const bool unlikely = !table->named[column] && cells >= FEW && 2 * categories > cells;
    if (categories <= CATEGORIES_LIMIT && !unlikely) return 0;
    char *title = title_of(&table->origin->column[k], column);
    const int error = sgrad_log_error(
        SGRAD_EFORMAT,
        "%s: %s: column %d (%s) is text with %lld different values in %lld training lines%s; append ,-%d to ignore it%s",
        table->kind, table->path[SGRAD_TRAIN], column + 1, title, (long long)categories, (long long)cells,
        unlikely ? "" : ", but may have at most 4096", column + 1,
        unlikely ? ", or ,category=COLUMN to encode it as categories" : "");
    free(title);
    return error;
}

/* Sets the categories of column K, which are those of the COUNT cells CELL, and the most frequent one. */
static int learn_categories(struct sgrad__table *table, int k, const char **cell, int64_t count) {
    struct sgrad_column *column = &table->origin->column[k];
    int (*const order)(const void *, const void *) = are_numbers(cell, count) ? by_number : by_text;
    int64_t categories = 0, most = 0;
    qsort(cell, (size_t)count, sizeof *cell, order);
    for (int64_t i = 0; i < count; i++) categories += !i || order(&cell[i - 1], &cell[i]);
    SGRAD_TRY(check_categories(table, k, categories, count));
    column->category = sgrad_xcalloc((size_t)categories + 1, sizeof *column->category);
    for (int64_t i = 0, first = 0; i < count; i++) {
        if (i && order(&cell[i - 1], &cell[i])) first = i;
        if (i == first) column->category[column->categories++] = sgrad_format("%s", cell[i]);
        if (i - first + 1 > most) most = i - first + 1, column->fill = column->categories - 1;
    }
    return 0;
}

/* ---- missing values ----------------------------------------------------------------------------------------------- */

static int by_double(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Returns the mean of COUNT numbers, or the most frequent one, of several the smallest. Sorts NUMBER. */
static double replacement(double *number, int64_t count, bool frequent) {
    double sum = 0, common = 0;
    int64_t most = 0;
    if (frequent) qsort(number, (size_t)count, sizeof *number, by_double);
    for (int64_t i = 0, first = 0; i < count; i++) {
        if (i && number[i] != number[first]) first = i;
        if (i - first + 1 > most) most = i - first + 1, common = number[i];
        sum += number[i];
    }
    return sgrad__as_written(frequent ? common : sum / (double)count);
}

/* Sets the categories, the replacement and the flag of column K, from the training lines. */
static int learn_column(struct sgrad__table *table, int k) {
    struct sgrad_column *column = &table->origin->column[k];
    const int64_t rows = table->csv[SGRAD_TRAIN].rows;
    const char **cell = sgrad_xcalloc((size_t)rows, sizeof *cell), *missing = table->origin->missing;
    double *number = sgrad_xcalloc((size_t)rows, sizeof *number);
    int64_t count = 0;
    int error = 0;
    for (int64_t row = 0; row < rows; row++) {
        const char *text = cell_of(table, SGRAD_TRAIN, row, k);
        if (!sgrad__table_has(table, SGRAD_TRAIN, row)) continue;
        if (is_missing(column, text)) column->flagged |= missing != NULL;
        else if (is_category(column) || sgrad__csv_number(text, &number[count])) cell[count++] = text;
    }
    if (!count && missing)
        error = sgrad_log_error(SGRAD_EFORMAT, "%s: %s: column %d has no value in the training lines; append ,-%d to ignore it",
                                table->kind, table->path[SGRAD_TRAIN], table->column[SGRAD_TRAIN][k] + 1,
                                table->column[SGRAD_TRAIN][k] + 1);
    else if (is_category(column)) error = learn_categories(table, k, cell, count);
    else if (missing) column->fill = replacement(number, count, !strcmp(missing, "frequent"));
    free(cell);
    free(number);
    return error;
}

/* Returns the number of features of a column. */
static int features_of(const struct sgrad_column *column) {
    if (column->kind == SGRAD_COLUMN_IGNORED) return 0;
    return (is_category(column) ? column->categories : 1) + column->flagged;
}

/* Names the features. Without a header, they have no names. */
static void name_features(struct sgrad_origin *origin) {
    if (!origin->columns || !origin->column[0].title) return;
    char **title = origin->title = sgrad_xcalloc((size_t)origin->features + 1, sizeof *origin->title);
    for (const struct sgrad_column *c = origin->column; c < origin->column + origin->columns; c++) {
        for (int i = 0; i < c->categories; i++) *title++ = sgrad_format("%s=%s", c->title, c->category[i]);
        if (c->kind == SGRAD_COLUMN_NUMBER) *title++ = sgrad_format("%s", c->title);
        if (c->flagged) *title++ = sgrad_format("%s missing", c->title);
    }
}

int sgrad__table_learn(struct sgrad__table *table) {
    struct sgrad_origin *o = table->origin;
    for (int k = 0; k < o->columns; k++) {
        if (o->column[k].kind != SGRAD_COLUMN_IGNORED) SGRAD_TRY(learn_column(table, k));
        o->features += features_of(&o->column[k]);
    }
    if (!o->features)
        return sgrad_log_error(SGRAD_EFORMAT, "%s: %s: no column is left for the features", table->kind,
                               table->path[SGRAD_TRAIN]);
    o->groups = o->features;
    name_features(o);
    return 0;
}

/* ---- checks ------------------------------------------------------------------------------------------------------- */

/* Applies the argument's missing=HOW to data of a network that was trained without missing values: numbers are replaced by the
 * mean. SGRAD_EINVAL: the network was trained with another replacement, or only the mean is known. */
static int allow_missing(struct sgrad__table *table) {
    struct sgrad_origin *o = table->origin;
    const char *wanted = table->wanted.missing;
    if (!wanted || (o->missing && !strcmp(o->missing, wanted))) return 0;
    if (o->missing || strcmp(wanted, "mean"))
        return sgrad_log_error(SGRAD_EINVAL, "%s: %s: missing=%s contradicts the run, whose data have missing=%s", table->kind,
                               table->path[0], wanted, o->missing ? o->missing : "mean, or no missing values");
    for (int k = 0, f = 0; k < o->columns && o->mean; f += features_of(&o->column[k++]))
        if (o->column[k].kind == SGRAD_COLUMN_NUMBER && o->groups == o->features) o->column[k].fill = o->mean[f];
    o->missing = sgrad_format("%s", wanted);
    return 0;
}

#define MISSING "is a missing value; append ,missing=mean or ,missing=frequent to --data to replace missing values"

static int check_cell(const struct sgrad__table *table, int file, int64_t row, int k, int64_t *unknown) {
    const struct sgrad_column *column = &table->origin->column[k];
    const char *cell = cell_of(table, file, row, k);
    double number;
    if (is_missing(column, cell))
        return table->origin->missing ? 0
                                      : sgrad__table_refuse(table, file, row, table->column[file][k],
                                                            is_category(column) ? MISSING : "is not a number: it " MISSING);
    if (is_category(column)) *unknown += find_category(table, k, cell) < 0;
    else if (!sgrad__csv_number(cell, &number))
        return sgrad__table_refuse(table, file, row, table->column[file][k],
                                   "is not a number, or exceeds the range of 32-bit floats; append ,-COLUMN to --data to ignore "
                                   "the column, or ,category=COLUMN if its cells are categories");
    return 0;
}

/* Warns of COUNT cells of column K whose categories no training line has, by the first of them. */
static void warn_of_unknown(const struct sgrad__table *table, int file, int k, int64_t count) {
    int64_t row = 0;
    while (is_missing(&table->origin->column[k], cell_of(table, file, row, k)) ||
           find_category(table, k, cell_of(table, file, row, k)) >= 0)
        row++;
    char *place = sgrad__table_place(table, file, row, table->column[file][k]);
    sgrad_log_warning("%s is a category that no training line has; %lld such %s encoded as none of the categories", place,
                      (long long)count, count == 1 ? "cell is" : "cells are");
    free(place);
}

int sgrad__table_check(struct sgrad__table *table) {
    find_orders(table);
    SGRAD_TRY(allow_missing(table));
    for (int file = 0; file < 2; file++)
        for (int k = 0; table->column[file] && k < table->origin->columns; k++) {
            int64_t unknown = 0;
            if (table->origin->column[k].kind == SGRAD_COLUMN_IGNORED) continue;
            for (int64_t row = 0; row < table->csv[file].rows; row++) SGRAD_TRY(check_cell(table, file, row, k, &unknown));
            if (unknown && table->warns) warn_of_unknown(table, file, k, unknown);
        }
    return 0;
}

/* ---- encoding ----------------------------------------------------------------------------------------------------- */

void sgrad__table_encode(const struct sgrad__table *table, int file, int64_t row, double *to) {
    for (int k = 0; k < table->origin->columns; k++) {
        const struct sgrad_column *column = &table->origin->column[k];
        if (column->kind == SGRAD_COLUMN_IGNORED) continue;
        const char *cell = cell_of(table, file, row, k);
        const bool missing = is_missing(column, cell);
        if (is_category(column)) {
            const int category = missing ? (int)column->fill : find_category(table, k, cell);
            for (int c = 0; c < column->categories; c++) *to++ = c == category;
        } else if (missing) *to++ = column->fill;
        else sgrad__csv_number(cell, to++);
        if (column->flagged) *to++ = missing;
    }
}

/* The training line that was encoded last. */
struct line {
    const struct sgrad__table *table;
    int64_t *row, sample;   /* row: of each training sample */
    bool *number;           /* by feature: it is a number, not a category or a flag */
    double *x;
};

/* Returns number I of the features of the training lines, for sgrad__features_measure; 0 for those that are not normalised. */
static double number_at(const void *of, int64_t i) {
    struct line *line = (struct line *)of;
    const int64_t features = line->table->origin->features, sample = i / features;
    if (sample != line->sample) sgrad__table_encode(line->table, SGRAD_TRAIN, line->row[sample], line->x);
    line->sample = sample;
    return line->number[i % features] ? line->x[i % features] : 0;
}

void sgrad__table_measure(struct sgrad__table *table) {
    struct sgrad_origin *o = table->origin;
    struct line line = { .table = table, .sample = -1 };
    int64_t count = 0;
    line.row = sgrad_xcalloc((size_t)table->csv[SGRAD_TRAIN].rows, sizeof *line.row);
    line.number = sgrad_xcalloc((size_t)o->features, sizeof *line.number);
    line.x = sgrad_xcalloc((size_t)o->features, sizeof *line.x);
    for (int k = 0, f = 0; k < o->columns; f += features_of(&o->column[k++]))
        if (o->column[k].kind == SGRAD_COLUMN_NUMBER) line.number[f] = true;
    for (int64_t row = 0; row < table->csv[SGRAD_TRAIN].rows; row++)
        if (sgrad__table_has(table, SGRAD_TRAIN, row)) line.row[count++] = row;
    sgrad__features_measure(o, count, number_at, &line);
    free(line.row);
    free(line.number);
    free(line.x);
}

/* ---- description -------------------------------------------------------------------------------------------------- */

/* Appends "3 of age (29.5)" to LIST if column K has missing values in the lines of SPLIT. */
static void list_missing(const struct sgrad__table *table, enum sgrad_split split, int k, char **list, int *count) {
    const struct sgrad_column *column = &table->origin->column[k];
    const int file = table->one_file ? 0 : (int)split;
    int64_t missing = 0;
    for (int64_t row = 0; row < table->csv[file].rows; row++)
        missing += sgrad__table_has(table, split, row) && is_missing(column, cell_of(table, file, row, k));
    if (!missing) return;
    char *title = title_of(column, table->column[file][k]), *text;
    if (is_category(column))
        text = sgrad_format("%lld of %s (%s)", (long long)missing, title, column->category[(int)column->fill]);
    else text = sgrad_format("%lld of %s (%.6g)", (long long)missing, title, column->fill);
    sgrad__list_name(list, count, FEW, false, text);
    free(text);
    free(title);
}

char *sgrad__table_text(const struct sgrad__table *table, enum sgrad_split split, bool missing) {
    const struct sgrad_origin *o = table->origin;
    char *lost = NULL, *categories = NULL;
    int count[2] = { 0, 0 };
    for (int k = 0; k < o->columns; k++) {
        if (o->missing && o->column[k].kind != SGRAD_COLUMN_IGNORED) list_missing(table, split, k, &lost, &count[0]);
        if (!is_category(&o->column[k]) || missing) continue;
        char *title = title_of(&o->column[k], table->column[table->one_file ? 0 : (int)split][k]);
        char *text = sgrad_format("%d of %s", o->column[k].categories, title);
        sgrad__list_name(&categories, &count[1], FEW, false, text);
        free(text);
        free(title);
    }
    const char *how = !lost ? "" : !strcmp(o->missing, "mean") ? "mean or the most frequent category: " : "most frequent value: ";
    char *all = !lost && !categories
                    ? NULL
                    : sgrad_format("%s%s%s%s%s%s", lost ? "missing values, replaced by the " : "", how, lost ? lost : "",
                                   lost && categories ? "; " : "", categories ? "categories: " : "",
                                   categories ? categories : "");
    free(lost);
    free(categories);
    return all;
}
