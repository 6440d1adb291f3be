/* csv_cells.c: text as lines of cells. Cells are separated by commas, or, where the first line has none, by semicolons or tabs,
 * and may stand in quotes (RFC 4180). Lines end with LF, CR LF or CR; empty ones are skipped. */
#include "config.h"
#include "datasets/formats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CELLS_LIMIT = 1 << 30 };

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
    const int64_t begin = r->line;
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
        return sgrad_fail(SGRAD_EFORMAT, "csv: %s: line %lld: has %d %s, the first has %d", r->name, (long long)begin, columns,
                          sgrad_plural(columns, "column", "columns"), csv->columns);
    csv->line = sgrad_grow(csv->line, (int)csv->rows, sizeof *csv->line);
    csv->line[csv->rows++] = begin;
    return 0;
}

/* Separators in quotes are text. */
static char separator_of(const unsigned char *data, size_t size) {
    bool there[256] = { false }, quoted = false;
    for (size_t i = 0; i < size && (quoted || (data[i] != '\n' && data[i] != '\r')); i++) {
        if (data[i] == '"') quoted = !quoted;
        else if (!quoted) there[data[i]] = true;
    }
    return there[','] ? ',' : there[';'] ? ';' : '\t';
}

bool sgrad__csv_number(const char *text, double *number) {
    char *end;
    *number = strtod(text, &end);
    while (*end == ' ') end++;
    return end != text && !*end && isfinite(*number);
}

/* Some programs end every line with a separator, or several. */
static bool cut_empty_column(struct sgrad__csv *csv) {
    if (csv->columns < 2) return false;
    for (int64_t row = 0; row < csv->rows; row++)
        if (*csv->cell[(row + 1) * csv->columns - 1]) return false;
    const int columns = csv->columns - 1;
    for (int64_t row = 0; row < csv->rows; row++)
        memmove(csv->cell + row * columns, csv->cell + row * csv->columns, (size_t)columns * sizeof *csv->cell);
    csv->columns = columns;
    csv->cells = csv->rows * columns;
    return csv->cut = true;
}

int sgrad__csv_parse(const char *name, const void *data, size_t size, struct sgrad__csv *parsed) {
    struct reading r = { .name = name, .data = data, .size = size, .line = 1 };
    struct sgrad__csv csv = { .text = sgrad_alloc(2 * size + 2, 1) };
    int error = 0;
    if (size >= 3 && !memcmp(data, "\xef\xbb\xbf", 3)) r.at = 3;        /* UTF-8's mark */
    r.to = csv.text;
    r.separator = separator_of(r.data + r.at, size - r.at);
    if (memchr(data, 0, size)) error = sgrad_fail(SGRAD_EFORMAT, "csv: %s: has a byte 0: is no text", name);
    while (!error && r.at < size) {
        if (!ends_line(&r)) error = read_line(&r, &csv);
        if (!error) end_line(&r);
    }
    if (!error && !csv.rows) error = sgrad_fail(SGRAD_EFORMAT, "csv: %s: has no line of numbers", name);
    if (error) return sgrad__csv_free(&csv), error;
    while (cut_empty_column(&csv)) {}
    *parsed = csv;
    return 0;
}

void sgrad__csv_free(struct sgrad__csv *csv) {
    free(csv->text);
    free(csv->cell);
    free(csv->line);
}
