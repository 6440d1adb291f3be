/* csv.c: the reader of tables: lines of numbers and categories. One column is the target: a number or a class.
 *
 *     length,width,species            header (csv_columns.c)
 *     5.1,3.5,setosa                  sample 0: training
 *     …                               every fifth line, from the fifth on, is for testing; of a folder, test.csv is
 *
 * Features are normalised (features.c) by the training lines. */
#include "config.h"
#include "datasets/csv.h"
#include "datasets/windows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { EVERY = 5, CLASSES_LIMIT = 1 << 16 };   /* EVERY: without options.split, this line of as many is of the test split */

/* ---- warnings of doubtful tables ---------------------------------------------------------------------------------------- */

enum { FEW = 10 };      /* minimum number of lines for most warnings */

static void warn_of(const struct sgrad__table *table, int64_t row, int column, const char *what) {
    char *place = sgrad__table_place(table, SGRAD_TRAIN, row, column);
    sgrad_log_warning("%s %s", place, what);
    free(place);
}

/* Warns of a feature that counts the lines, which many programs write as the first column. If lines are sorted by class, it
 * predicts the class. If it is the only feature, it is assumed to be intended. */
static void warn_of_index(const struct sgrad__table *table) {
    const int64_t rows = table->csv[SGRAD_TRAIN].rows;
    double first = 0, number = 0;
    for (int k = 0; k < table->origin->columns && table->origin->features > 1 && rows >= FEW; k++) {
        const int column = table->column[SGRAD_TRAIN][k];
        int64_t row = 0;
        if (table->origin->column[k].kind != SGRAD_COLUMN_NUMBER) continue;
        first = NAN;
        sgrad__csv_number(sgrad__table_cell(table, SGRAD_TRAIN, 0, column), &first);
        while (row < rows && sgrad__csv_number(sgrad__table_cell(table, SGRAD_TRAIN, row, column), &number) &&
               number == first + (double)row)
            row++;
        if (row == rows && (first == 0 || first == 1))
            warn_of(table, 0, column,
                    "begins a column of consecutive line numbers, which is read as a feature; ,-COLUMN in --data ignores it");
    }
}

/* Warns of cells that probably are not classes: texts for unknown values, more than one class per two lines, and a class that
 * only line 1 has, which may be a header. */
static void warn_of_classes(const struct sgrad__table *table, const struct sgrad_dataset *dataset) {
    static const char *const unknown[] = { "?", "na", "n/a", "nan", "null", "#n/a" };
    const int64_t rows = table->csv[SGRAD_TRAIN].rows;
    const int target = table->target[SGRAD_TRAIN];
    const char *first = sgrad__table_cell(table, SGRAD_TRAIN, 0, target);
    int64_t same = 0, odd = -1;
    for (int64_t row = 0; row < rows; row++) {
        const char *cell = sgrad__table_cell(table, SGRAD_TRAIN, row, target);
        same += !strcmp(cell, first);
        for (size_t i = 0; i < sizeof unknown / sizeof *unknown && odd < 0; i++)
            if (!strcasecmp(cell, unknown[i])) odd = row;
    }
    if (odd >= 0) warn_of(table, odd, target, "is read as a class; if it means 'unknown', remove these lines");
    if (rows < FEW) return;
    if (2 * dataset->classes > rows)
        sgrad_log_warning("%s: %s: the %lld lines have %d classes; check that column %d is the target", table->kind,
                          table->path[SGRAD_TRAIN], (long long)rows, dataset->classes, target + 1);
    else if (same == 1 && !table->csv[SGRAD_TRAIN].headed && !table->wanted.no_header)
        warn_of(table, 0, target,
                "is a class that no other line has; append ,header to --data if line 1 names the columns, otherwise ,no-header");
}

/* ---- the target ------------------------------------------------------------------------------------------------------- */

static int by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* Compares names of classes that are numbers by their values. */
static int by_number(const void *a, const void *b) { return sgrad__csv_order(*(char *const *)a, *(char *const *)b); }

struct state {
    char **class;       /* names of the classes, sorted; ends with NULL */
    bool numbers;       /* sorted by value; false: as text */
};

static bool has_cells(const struct sgrad__table *table, int file) { return table->column[file] && table->target[file] >= 0; }

/* Finds the first cell of the target that is a number (NUMBER true) or is not one (NUMBER false). Returns false if there is
 * none. */
static bool find_cell(const struct sgrad__table *table, bool number, int *file, int64_t *row) {
    double x;
    for (*file = 0; *file < 2; ++*file)
        for (*row = 0; has_cells(table, *file) && *row < table->csv[*file].rows; ++*row)
            if (sgrad__csv_number(sgrad__table_cell(table, *file, *row, table->target[*file]), &x) == number) return true;
    return false;
}

static bool is_mostly_numbers(const struct sgrad__table *table) {
    int64_t numbers = 0, all = 0;
    double x;
    for (int file = 0; file < 2; file++)
        for (int64_t row = 0; has_cells(table, file) && row < table->csv[file].rows; row++, all++)
            numbers += sgrad__csv_number(sgrad__table_cell(table, file, row, table->target[file]), &x);
    return 2 * numbers >= all;
}

/* Decides if the target is a class. Texts are classes. Numbers are classes if the argument contains "classes", or if the network
 * was trained on classes and the argument does not contain "numbers". Sets *NUMBERS to true if all cells are numbers.
 * SGRAD_EFORMAT: the cells are mixed, an empty class, or texts where numbers are required. */
static int decide(struct sgrad__table *table, const struct sgrad_origin *trained, bool *classes, bool *numbers) {
    int file, odd_file;
    int64_t row, odd;
    const bool any = find_cell(table, true, &file, &row), other = find_cell(table, false, &odd_file, &odd);
    const bool asked = table->wanted.classes || (trained && trained->classes && !table->wanted.numbers);
    *numbers = !other;
    *classes = asked || (other && !any && !table->wanted.numbers && !(trained && trained->target_column && !trained->classes));
    const bool comma = other && !asked && sgrad__csv_comma(sgrad__table_cell(table, odd_file, odd, table->target[odd_file]));
    if (comma || (!*classes && other && (!any || is_mostly_numbers(table))))
        return sgrad__table_refuse(table, odd_file, odd, table->target[odd_file],
                      !*sgrad__table_cell(table, odd_file, odd, table->target[odd_file])
                          ? "is empty, but the target must be known in all lines; remove the line"
                      : table->wanted.numbers || trained
                          ? "is not a number, but the target must be a number"
                          : "is not a number, but other cells of the target are; add ,classes to read all cells as classes");
    if (!*classes && other)
        return sgrad__table_refuse(table, file, row, table->target[file],
                      "is a number, but other cells of the target are not; add ,classes to read all cells as classes");
    for (int f = 0; f < 2 && *classes; f++)
        for (int64_t i = 0; has_cells(table, f) && i < table->csv[f].rows; i++)
            if (!*sgrad__table_cell(table, f, i, table->target[f]))
                return sgrad__table_refuse(table, f, i, table->target[f], "is not a class: the cell is empty");
    return 0;
}

static int find_classes(struct sgrad_dataset *dataset, const struct sgrad__table *table, bool numbers) {
    const char **all = sgrad_xcalloc((size_t)(table->csv[0].rows + table->csv[1].rows), sizeof *all);
    int64_t count = 0, classes = 0;
    for (int file = 0; file < 2; file++)
        for (int64_t i = 0; has_cells(table, file) && i < table->csv[file].rows; i++)
            all[count++] = sgrad__table_cell(table, file, i, table->target[file]);
    int (*const order)(const void *, const void *) = numbers ? by_number : by_text;
    qsort(all, (size_t)count, sizeof *all, order);
    for (int64_t i = 0; i < count; i++)
        if (!classes || order(&all[classes - 1], &all[i])) all[classes++] = all[i];
    int error = 0;
    if (classes > CLASSES_LIMIT)
        error = sgrad_log_error(SGRAD_EFORMAT, "%s: %s: column %d has %lld classes, but must have at most %d", table->kind,
                                table->path[0], table->target[0] + 1, (long long)classes, CLASSES_LIMIT);
    struct state *s = error ? NULL : sgrad_xcalloc(1, sizeof *s);
    if (s) {
        s->class = sgrad_xcalloc((size_t)classes + 1, sizeof *s->class);
        s->numbers = numbers;
        for (int64_t i = 0; i < classes; i++) s->class[i] = sgrad_format("%s", all[i]);
        dataset->state = s;
        dataset->classes = (int)classes;
        dataset->class_name = (const char *const *)s->class;
    }
    free(all);
    return error;
}

static int32_t class_of(const struct sgrad_dataset *dataset, const char *text) {
    const struct state *s = dataset->state;
    char **found = bsearch(&text, s->class, (size_t)dataset->classes, sizeof *s->class, s->numbers ? by_number : by_text);
    return (int32_t)(found - s->class);
}

/* Returns true if the target of all samples is known. It may be unknown if all lines are read for prediction (t->every). */
static bool has_target(const struct sgrad__table *table, int file, const struct sgrad_origin *trained) {
    const struct sgrad__csv *csv = &table->csv[file];
    double number;
    if (table->target[file] < 0) return false;
    if (!trained) return true;
    const bool classes = trained->classes;
    for (int64_t row = 0; row < csv->rows && table->options->every; row++) {
        const char *cell = sgrad__table_cell(table, file, row, table->target[file]);
        if (classes ? *cell != 0 : sgrad__csv_number(cell, &number)) continue;
        char *place = sgrad__table_place(table, file, row, table->target[file]);
        sgrad_log_warning("%s is not a %s; the target is not compared", place, classes ? "class" : "number");
        free(place);
        return false;
    }
    return true;
}

/* ---- the data set ------------------------------------------------------------------------------------------------------ */

/* Sets held_out: every fifth line, or a fraction that is drawn by class. SGRAD_EINVAL: there are too few lines. */
static int divide(struct sgrad_dataset *dataset, struct sgrad__table *table) {
    const struct sgrad_dataset_options *o = table->options;
    const int64_t rows = table->csv[0].rows;
    if (!table->one_file) return 0;
    table->held_out = sgrad_xcalloc((size_t)rows, sizeof *table->held_out);
    for (int64_t row = 0; row < rows; row++) table->held_out[row] = row % EVERY == EVERY - 1;
    if (o->every || o->whole || !(o->split > 0)) return 0;
    int32_t *label = dataset->classes ? sgrad_xcalloc((size_t)rows, sizeof *label) : NULL;
    for (int64_t row = 0; row < rows && label; row++)
        label[row] = class_of(dataset, sgrad__table_cell(table, 0, row, table->target[0]));
    dataset->held_out = sgrad__split_draw(label, dataset->classes, rows, o->split, o->seed, table->held_out);
    free(label);
    char *where = sgrad_format("%s: %s", table->kind, table->path[0]);
    const int error = dataset->held_out ? 0 : sgrad__split_refuse(where, rows);
    free(where);
    return error;
}

static double target_at(const void *of, int64_t i) { return ((const float *)of)[i]; }

/* Sets the scale of the target: the mean and the standard deviation of the training lines. */
static void measure_target(const struct sgrad__table *table) {
    const int64_t rows = table->csv[SGRAD_TRAIN].rows;
    float *target = sgrad_xcalloc((size_t)rows, sizeof *target);
    int64_t count = 0;
    double number = 0;
    for (int64_t row = 0; row < rows; row++)
        if (sgrad__table_has(table, SGRAD_TRAIN, row) &&
            sgrad__csv_number(sgrad__table_cell(table, SGRAD_TRAIN, row, table->target[SGRAD_TRAIN]), &number))
            target[count++] = (float)number;
    struct sgrad_origin scale = { .features = 1, .groups = 1 };
    sgrad__features_measure(&scale, count, target_at, target);
    table->origin->target_mean = *scale.mean;
    table->origin->target_deviation = *scale.deviation;
    free(scale.mean);
    free(scale.deviation);
    free(target);
}

static float target_of(const struct sgrad__table *table, int file, int64_t row) {
    const struct sgrad_origin *o = table->origin;
    double number = 0;
    sgrad__csv_number(sgrad__table_cell(table, file, row, table->target[file]), &number);
    return (float)(o->target_deviation > 0 ? (number - o->target_mean) / o->target_deviation : number);
}

static int fill(struct sgrad_dataset *dataset, const struct sgrad__table *table) {
    const int file = table->one_file ? 0 : (int)dataset->split;
    const int64_t features = table->origin->features;
    const struct sgrad__csv *csv = &table->csv[file];
    float *x = sgrad_xcalloc((size_t)csv->rows * (size_t)features, sizeof *x), *to = x;
    double *line = sgrad_xcalloc((size_t)features, sizeof *line);
    void *target = sgrad_xcalloc((size_t)csv->rows, sizeof(float));
    dataset->field[0] = (struct sgrad_field){ "features", SGRAD_F32, sgrad_shape(1, (int)features), x };
    dataset->field[1] = dataset->classes ? (struct sgrad_field){ "label", SGRAD_I32, { 0 }, target }
                             : (struct sgrad_field){ "target", SGRAD_F32, sgrad_shape(1, 1), target };
    if (table->id_column >= 0) dataset->id = sgrad_xcalloc((size_t)csv->rows, sizeof *dataset->id);
    for (int64_t row = 0; row < csv->rows; row++) {
        if (!sgrad__table_has(table, dataset->split, row)) continue;
        sgrad__table_encode(table, file, row, line);
        for (int64_t f = 0; f < features; f++) *to++ = (float)sgrad__feature(table->origin, f, line[f]);
        if (dataset->id)
            dataset->id[dataset->ids++] = sgrad_format("%s", sgrad__table_cell(table, file, row, table->id_column));
        if (dataset->classes)
            ((int32_t *)target)[dataset->count] =
                dataset->unlabelled ? 0 : class_of(dataset, sgrad__table_cell(table, file, row, table->target[file]));
        else if (!dataset->unlabelled) ((float *)target)[dataset->count] = target_of(table, file, row);
        dataset->count++;
    }
    free(line);
    if (dataset->classes && 2 * dataset->classes <= csv->rows && dataset->split == SGRAD_TRAIN && table->warns &&
        !dataset->unlabelled && !table->options->every) {
        char *where = sgrad_format("%s: %s", table->kind, table->path[file]);
        sgrad__warn_of_unused(where, target, dataset->count, dataset);
        free(where);
    }
    if (!dataset->count)
        return sgrad_log_error(SGRAD_EFORMAT,
                               "%s: %s: has %lld %s, but the test split is every fifth line; give at least 5 lines", table->kind,
                               table->path[0], (long long)csv->rows, sgrad_plural(csv->rows, "line", "lines"));
    return 0;
}

/* Describes for the user how the file is read. Missing values of later data are a warning. */
static char *note_of(const struct sgrad__table *table, const struct sgrad_dataset *dataset) {
    const int file = table->one_file ? 0 : (int)dataset->split;
    const int target = table->target[file];
    const bool headed = table->csv[file].headed, later = table->options->origin;
    const bool keys = !strcmp(table->kind, "jsonl");
    const char *header = keys ? "JSON lines" : headed ? "line 1 is a header" : "no header";
    char *text = sgrad__table_text(table, dataset->split, later), *note;
    if (dataset->unlabelled) note = sgrad_format("%s, no target", header);
    else if (headed) note = sgrad_format("%s, target '%s'", header, table->csv[file].cell[target]);
    else note = sgrad_format("%s, target column %d", header, target + 1);
    if (text && later && table->warns) sgrad_log_warning("%s: %s: %s", table->kind, table->path[file], text);
    if (text && !later) {
        char *more = sgrad_format("%s; %s", note, text);
        free(note);
        note = more;
    }
    free(text);
    return note;
}

static int read_table(struct sgrad_dataset *dataset, struct sgrad__table *table) {
    const struct sgrad_origin *trained = table->options->origin;
    const bool known = trained && trained->features && trained->mean;
    bool classes = false, numbers = false;
    dataset->unlabelled = !has_target(table, table->one_file ? 0 : (int)dataset->split, trained);
    if (dataset->unlabelled) dataset->classes = trained ? trained->classes : 0;
    else SGRAD_TRY(decide(table, trained, &classes, &numbers));
    if (classes) SGRAD_TRY(find_classes(dataset, table, numbers));
    SGRAD_TRY(divide(dataset, table));
    if (!known) SGRAD_TRY(sgrad__table_learn(table));
    SGRAD_TRY(sgrad__table_check(table));
    if (!trained && table->warns) warn_of_index(table);
    if (!trained && table->warns && classes && !table->wanted.classes) warn_of_classes(table, dataset);
    if (!known) sgrad__table_measure(table);
    if (table->wanted.scale && dataset->classes)
        return sgrad_log_error(SGRAD_EINVAL, "%s: %s: scale requires a target of numbers, but the target is a class", table->kind,
                               table->path[0]);
    if (!known && table->wanted.scale) measure_target(table);
    return fill(dataset, table);
}

static int open_rows(const char *kind, struct sgrad_dataset *dataset, const char *argument,
                     const struct sgrad_dataset_options *options) {
    struct sgrad__table t = { .kind = kind, .options = options };
    int error = sgrad__table_open(&t, argument, dataset->split);
    if (!error) error = read_table(dataset, &t);
    if (!error) dataset->note = note_of(&t, dataset);
    if (!error && t.id_column >= 0 && t.csv[t.one_file ? 0 : dataset->split].headed)
        dataset->id_title = sgrad_format("%s", t.csv[t.one_file ? 0 : dataset->split].cell[t.id_column]);
    dataset->origin = t.origin;
    sgrad__table_close(&t);
    return error;
}

static int open_csv(struct sgrad_dataset *dataset, const char *argument, const struct sgrad_dataset_options *options) {
    return open_rows("csv", dataset, argument, options);
}

static void close_rows(struct sgrad_dataset *dataset) {
    struct state *s = dataset->state;
    for (char **class = s->class; *class; class++) free(*class);
    free(s->class);
    free(s);
}

const struct sgrad_reader sgrad_csv_reader = {
    .name = "csv",
    .argument = "FILE[,COLUMN][,-COLUMN][,category=COLUMN][,missing=mean|frequent][,scale][,classes|numbers]"
                "[,header|no-header]",
    .summary = "rows of numbers and categories. COLUMN, a title or a number (default: last), is the target: a class if it is "
               "text or 'classes' is given, otherwise a number, which 'scale' standardises. -COLUMN ignores a column; columns of "
               "text, and category=COLUMN, are one-hot encoded; 'missing' replaces missing values. The test set is every fifth "
               "row, a part drawn by --split, or val.csv or test.csv if FILE is a folder with train.csv",
    .open = open_csv,
    .close = close_rows,
};

static int open_jsonl(struct sgrad_dataset *dataset, const char *argument, const struct sgrad_dataset_options *options) {
    return options->tokenizer ? sgrad__texts_open(dataset, argument, options) : open_rows("jsonl", dataset, argument, options);
}

const struct sgrad_reader sgrad_jsonl_reader = {
    .name = "jsonl",
    .argument = "PATTERN[,KEY][,-KEY][,category=KEY][,missing=mean|frequent][,scale][,classes|numbers]",
    .summary =
        "JSON lines: objects of numbers and categories, read as the rows of a csv table, whose columns are the keys; PATTERN is "
        "a file, several ('jsonl:DIR/{train,val}-*.jsonl'), or a folder with train*.jsonl, and val*.jsonl or test*.jsonl; files "
        "may be compressed (.gz, .zst). With --tokenizer, jsonl:PATTERN,T: texts as tokens, T per sample",
    .open = open_jsonl,
    .close = close_rows,
};
