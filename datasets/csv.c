/* csv.c: lines of numbers, of which a column is what is to be said: a number, or a class.
 *
 *     length,width,species            header, where any of its cells is no number; else columns are called 1, 2, …
 *     5.1,3.5,setosa                  line 0: training
 *     …                               every fifth line, from the fifth on, is the test set; of a folder, test.csv is
 *
 * Cells are separated by commas, or, where the first line has none, by semicolons or tabs, and may stand in quotes (RFC 4180).
 * Features come as (x - mean) / deviation of the training lines. */
#include "config.h"
#include "datasets/datasets.h"
#include "datasets/formats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FILE_LIMIT ((size_t)1 << 31)
enum { EVERY = 5, CELLS_LIMIT = 1 << 30, CLASSES_LIMIT = 1 << 16 };

/* ---- cells ------------------------------------------------------------------------------------------------------- */

/* Where a parser is: what is read, and where its cells' text goes. */
struct reading {
    const char *name;
    const unsigned char *data;
    size_t size, at;
    char separator, *to;
    long line;
};

static bool ends_line(const struct reading *r) { return r->at == r->size || r->data[r->at] == '\n' || r->data[r->at] == '\r'; }

static void end_line(struct reading *r) {
    if (r->at < r->size && r->data[r->at] == '\r') r->at++;
    if (r->at < r->size && r->data[r->at] == '\n') r->at++;
    r->line++;
}

/* "a ""b"" c": doubled quotes are one. */
static int read_quoted(struct reading *r) {
    const long begin = r->line;
    for (r->at++; r->at < r->size; r->at++) {
        if (r->data[r->at] == '"' && !(r->at + 1 < r->size && r->data[++r->at] == '"')) {
            r->at += r->at + 1 == r->size && r->data[r->at] == '"';
            return 0;
        }
        r->line += r->data[r->at] == '\n';
        *r->to++ = (char)r->data[r->at];
    }
    return sgrad_fail(SGRAD_EFORMAT, "csv: %s: line %ld: a quote is not closed", r->name, begin);
}

static int read_cell(struct reading *r, char **cell) {
    *cell = r->to;
    if (r->at < r->size && r->data[r->at] == '"') SGRAD_TRY(read_quoted(r));
    else
        while (!ends_line(r) && r->data[r->at] != (unsigned char)r->separator) *r->to++ = (char)r->data[r->at++];
    if (!ends_line(r) && r->data[r->at] != (unsigned char)r->separator)
        return sgrad_fail(SGRAD_EFORMAT, "csv: %s: line %ld: goes on behind a quote", r->name, r->line);
    *r->to++ = 0;
    return 0;
}

static int keep(const struct reading *r, struct sgrad__csv *csv, char *cell) {
    if (csv->cells == CELLS_LIMIT) return sgrad_fail(SGRAD_EFORMAT, "csv: %s: line %ld: too many cells", r->name, r->line);
    csv->cell = sgrad_grow(csv->cell, (int)csv->cells, sizeof *csv->cell);
    csv->cell[csv->cells++] = cell;
    return 0;
}

static int read_line(struct reading *r, struct sgrad__csv *csv) {
    int columns = 0;
    for (bool more = true; more; columns++) {
        char *cell;
        SGRAD_TRY(read_cell(r, &cell));
        SGRAD_TRY(keep(r, csv, cell));
        more = !ends_line(r);
        if (more) r->at++;
    }
    if (!csv->columns) csv->columns = columns;
    if (columns != csv->columns)
        return sgrad_fail(SGRAD_EFORMAT, "csv: %s: line %ld: has %d columns, the first has %d", r->name, r->line, columns,
                          csv->columns);
    return 0;
}

static char separator_of(const unsigned char *data, size_t size) {
    const unsigned char *end = memchr(data, '\n', size);
    const size_t line = end ? (size_t)(end - data) : size;
    return memchr(data, ',', line) ? ',' : memchr(data, ';', line) ? ';' : '\t';
}

static bool is_number(const char *text, double *number) {
    char *end;
    *number = strtod(text, &end);
    while (*end == ' ') end++;
    return end != text && !*end && isfinite(*number);
}

int sgrad__csv_parse(const char *name, const void *data, size_t size, struct sgrad__csv *parsed) {
    struct reading r = { .name = name, .data = data, .size = size, .line = 1 };
    struct sgrad__csv csv = { .text = sgrad_alloc(2 * size + 2, 1) };
    int error = 0;
    double number;
    if (size >= 3 && !memcmp(data, "\xef\xbb\xbf", 3)) r.at = 3;        /* UTF-8 says that it is so */
    r.to = csv.text;
    r.separator = separator_of(r.data, size);
    if (memchr(data, 0, size)) error = sgrad_fail(SGRAD_EFORMAT, "csv: %s: has a byte 0: is no text", name);
    while (!error && r.at < size) {
        if (!ends_line(&r)) error = read_line(&r, &csv);
        if (!error) end_line(&r);
    }
    for (int c = 0; c < csv.columns && !error; c++) csv.headed |= !is_number(csv.cell[c], &number);
    csv.rows = error || !csv.columns ? 0 : csv.cells / csv.columns - csv.headed;
    if (!error && csv.rows < 1) error = sgrad_fail(SGRAD_EFORMAT, "csv: %s: has no line of numbers", name);
    if (error) return sgrad__csv_free(&csv), error;
    *parsed = csv;
    return 0;
}

void sgrad__csv_free(struct sgrad__csv *csv) {
    free(csv->text);
    free(csv->cell);
}

static const char *cell_at(const struct sgrad__csv *csv, int64_t row, int column) {
    return csv->cell[(row + csv->headed) * csv->columns + column];
}

/* ---- the data set ------------------------------------------------------------------------------------------------ */

/* Files, by split; of one file both are that, and lines are dealt out. */
struct table {
    char *path[2];
    struct sgrad__csv csv[2];
    bool dealt;
    int target;
};

struct state {
    char **class;       /* sorted: */
    bool numbers;       /* by value, else as text */
};

static bool is_of(const struct table *t, int split, int64_t row) {
    return !t->dealt || (row % EVERY == EVERY - 1) == (split == SGRAD_TEST);
}

static int find_target(struct table *t, const char *column) {
    const struct sgrad__csv *csv = &t->csv[0];
    char *end = NULL;
    const long number = column ? strtol(column, &end, 10) : csv->columns;
    t->target = -1;
    for (int c = 0; column && csv->headed && c < csv->columns; c++)
        if (!strcmp(csv->cell[c], column)) t->target = c;
    if (t->target < 0 && !(end && (*end || end == column)) && number >= 1 && number <= csv->columns) t->target = (int)number - 1;
    if (t->target < 0)
        return sgrad_fail(SGRAD_EINVAL, "csv: %s: has no column '%s'", t->path[0], column);
    if (csv->columns < 2) return sgrad_fail(SGRAD_EFORMAT, "csv: %s: has one column: takes features and a target", t->path[0]);
    if (t->csv[1].columns != csv->columns)
        return sgrad_fail(SGRAD_EFORMAT, "csv: %s: has %d columns, %s has %d", t->path[1], t->csv[1].columns, t->path[0],
                          csv->columns);
    return 0;
}

static int read_file(const char *path, struct sgrad__csv *csv) {
    struct sgrad_map map;
    SGRAD_TRY(sgrad_map_open(path, FILE_LIMIT, &map));
    int error = sgrad__csv_parse(path, map.data, map.size, csv);
    sgrad_map_close(&map);
    return error;
}

static int number_at(const struct table *t, int file, int64_t row, int column, double *number) {
    const struct sgrad__csv *csv = &t->csv[file];
    const char *cell = cell_at(csv, row, column);
    if (is_number(cell, number)) return 0;
    char *title = csv->headed ? sgrad_format(" (%s)", csv->cell[column]) : sgrad_format("%s", "");
    int error = sgrad_fail(SGRAD_EFORMAT, "csv: %s: record %lld, column %d%s: '%.40s' is no number", t->path[file],
                           (long long)row + 1, column + 1, title, cell);
    free(title);
    return error;
}

/* Of every feature over the training lines. */
static int measure(const struct table *t, double *mean, double *deviation) {
    const struct sgrad__csv *csv = &t->csv[SGRAD_TRAIN];
    for (int c = 0; c < csv->columns; c++) {
        double count = 0, x, sum = 0, squares = 0;
        if (c == t->target) continue;
        for (int pass = 0; pass < 2; pass++) {
            for (int64_t i = 0; i < csv->rows; i++) {
                if (!is_of(t, SGRAD_TRAIN, i)) continue;
                SGRAD_TRY(number_at(t, SGRAD_TRAIN, i, c, &x));
                if (pass) squares += (x - mean[c]) * (x - mean[c]);
                else sum += x, count++;
            }
            mean[c] = sum / count;
        }
        deviation[c] = squares > 0 ? sqrt(squares / count) : 1;
    }
    return 0;
}

static int by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* The texts of the target, each once, sorted: numbers by their value. */
static int by_number(const void *a, const void *b) {
    const double x = strtod(*(char *const *)a, NULL), y = strtod(*(char *const *)b, NULL);
    return (x > y) - (x < y);
}

static int find_classes(struct sgrad_dataset *d, const struct table *t, bool numbers) {
    const int64_t most = t->csv[0].rows + (t->dealt ? 0 : t->csv[1].rows);
    const char **all = sgrad_alloc((size_t)most, sizeof *all);
    int64_t count = 0, classes = 0;
    for (int file = 0; file < (t->dealt ? 1 : 2); file++)
        for (int64_t i = 0; i < t->csv[file].rows; i++) all[count++] = cell_at(&t->csv[file], i, t->target);
    int (*const order)(const void *, const void *) = numbers ? by_number : by_text;
    qsort(all, (size_t)count, sizeof *all, order);
    for (int64_t i = 0; i < count; i++)
        if (!classes || order(&all[classes - 1], &all[i])) all[classes++] = all[i];
    int error = 0;
    if (classes > CLASSES_LIMIT)
        error = sgrad_fail(SGRAD_EFORMAT, "csv: %s: column %d has %lld classes", t->path[0], t->target + 1, (long long)classes);
    struct state *s = error ? NULL : sgrad_alloc(1, sizeof *s);
    if (s) {
        s->class = sgrad_alloc((size_t)classes + 1, sizeof *s->class);
        s->numbers = numbers;
        for (int64_t i = 0; i < classes; i++) s->class[i] = sgrad_format("%s", all[i]);
        d->state = s;
        d->classes = (int)classes;
        d->class_name = (const char *const *)s->class;
    }
    free(all);
    return error;
}

static int32_t class_of(const struct sgrad_dataset *d, const char *text) {
    const struct state *s = d->state;
    char **found = bsearch(&text, s->class, (size_t)d->classes, sizeof *s->class, s->numbers ? by_number : by_text);
    return (int32_t)(found - s->class);
}

static int fill(struct sgrad_dataset *d, const struct table *t) {
    const int file = t->dealt ? 0 : (int)d->split, features = t->csv[file].columns - 1;
    const struct sgrad__csv *csv = &t->csv[file];
    double *mean = sgrad_alloc((size_t)features + 1, sizeof *mean);
    double *deviation = sgrad_alloc((size_t)features + 1, sizeof *deviation);
    float *x = sgrad_alloc((size_t)csv->rows * (size_t)features, sizeof *x), *from = x;
    void *target = sgrad_alloc((size_t)csv->rows, sizeof(float));
    d->field[0] = (struct sgrad_field){ "features", SGRAD_F32, sgrad_shape(1, features), x };
    d->field[1] = d->classes ? (struct sgrad_field){ "label", SGRAD_I32, { 0 }, target }
                             : (struct sgrad_field){ "target", SGRAD_F32, sgrad_shape(1, 1), target };
    int error = measure(t, mean, deviation);
    for (int64_t i = 0; i < csv->rows && !error; i++) {
        double number;
        if (!is_of(t, d->split, i)) continue;
        for (int c = 0; c <= features && !error; c++) {
            if (c == t->target && d->classes) ((int32_t *)target)[d->count] = class_of(d, cell_at(csv, i, c));
            else if (!(error = number_at(t, file, i, c, &number))) {
                if (c == t->target) ((float *)target)[d->count] = (float)number;
                else *from++ = (float)((number - mean[c]) / deviation[c]);
            }
        }
        d->count++;
    }
    if (!error && !d->count)
        error = sgrad_fail(SGRAD_EFORMAT, "csv: %s: has %lld lines: every fifth is for testing, and there is none", t->path[0],
                           (long long)csv->rows);
    free(mean);
    free(deviation);
    return error;
}

/* FILE or FOLDER, COLUMN or NULL, "classes" or NULL: ARGUMENT at its commas. */
static int open_table(const char *path, struct table *t) {
    static const char *const name[] = { [SGRAD_TRAIN] = "train.csv", [SGRAD_TEST] = "test.csv" };
    struct stat status;
    t->dealt = stat(path, &status) || !S_ISDIR(status.st_mode);
    for (int i = 0; i < 2; i++) {
        t->path[i] = t->dealt ? sgrad_format("%s", path) : sgrad_format("%s/%s", path, name[i]);
        if (t->dealt && i) t->csv[1].columns = t->csv[0].columns;
        else SGRAD_TRY(read_file(t->path[i], &t->csv[i]));
    }
    return 0;
}

static int open_csv(struct sgrad_dataset *d, const char *argument, const struct sgrad_dataset_options *options) {
    char *word = sgrad_format("%s", argument), *column = strchr(word, ','), *classes = NULL;
    struct table t = { .target = 0 };
    bool numbers = true;
    (void)options;
    if (column) *column++ = 0, classes = strchr(column, ',');
    if (classes) *classes++ = 0;
    int error = classes && strcmp(classes, "classes")
                    ? sgrad_fail(SGRAD_EINVAL, "csv:%s: takes FILE, FILE,COLUMN or FILE,COLUMN,classes", argument)
                    : open_table(word, &t);
    if (!error) error = find_target(&t, column && *column ? column : NULL);
    for (int file = 0; !error && file < (t.dealt ? 1 : 2); file++)
        for (int64_t i = 0; i < t.csv[file].rows; i++) {
            double number;
            numbers &= is_number(cell_at(&t.csv[file], i, t.target), &number);
        }
    if (!error && (classes || !numbers)) error = find_classes(d, &t, numbers);
    if (!error) error = fill(d, &t);
    for (int i = 0; i < 2; i++) free(t.path[i]), sgrad__csv_free(&t.csv[i]);
    free(word);
    return error;
}

static void close_csv(struct sgrad_dataset *d) {
    struct state *s = d->state;
    for (char **class = s->class; *class; class++) free(*class);
    free(s->class);
    free(s);
}

const struct sgrad_reader sgrad_csv_reader = {
    .name = "csv",
    .argument = "FILE[,COLUMN[,classes]]",
    .summary = "numbers in lines; COLUMN, the last if not given, is a number to be said, or a class where it is text or "
               "classes says so; every fifth line is the test set, or FILE is a folder with train.csv and test.csv",
    .open = open_csv,
    .close = close_csv,
};
