/* csv_cells.c: parses text into lines of cells. Cells are separated by semicolons, tabs or commas; the first two lines, or a line
 * "sep=X" before them, determine which (separator_of). Cells may be enclosed in quotes (RFC 4180). Blanks around a cell are
 * ignored, except within quotes. Lines end with LF, CR LF or CR; blank lines are skipped. Text that is not UTF-8 is decoded as
 * Latin-1. */
#include "config.h"
#include "datasets/formats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { CELLS_LIMIT = 1 << 30 };

/* State of the parser: its position in the file, and the address to which the text of cells is written. */
struct reading {
    const char *name;
    const unsigned char *data;
    size_t size, at;
    char separator, *to;
    long line;
    bool latin;
};

static bool ends_line(const struct reading *reading) {
    return reading->at == reading->size || reading->data[reading->at] == '\n' || reading->data[reading->at] == '\r';
}

static void end_line(struct reading *reading) {
    if (reading->at < reading->size && reading->data[reading->at] == '\r') reading->at++;
    if (reading->at < reading->size && reading->data[reading->at] == '\n') reading->at++;
    reading->line++;
}

/* Appends the current byte to the text of the cell. */
static void take(struct reading *reading) {
    if (reading->latin) reading->to = sgrad__put_latin(reading->data[reading->at], reading->to);
    else *reading->to++ = (char)reading->data[reading->at];
}

/* Reads a cell in quotes, "a ""b"" c"; a doubled quote stands for one quote. */
static int read_quoted(struct reading *reading) {
    const long begin = reading->line;
    for (reading->at++; reading->at < reading->size; reading->at++) {
        if (reading->data[reading->at] == '"' && !(reading->at + 1 < reading->size && reading->data[++reading->at] == '"')) {
            reading->at += reading->at + 1 == reading->size && reading->data[reading->at] == '"';
            return 0;
        }
        reading->line += reading->data[reading->at] == '\n';
        take(reading);
    }
    return sgrad_log_error(SGRAD_EFORMAT, "csv: %s: line %ld: a quote is not closed", reading->name, begin);
}

static bool ends_cell(const struct reading *reading) {
    return ends_line(reading) || reading->data[reading->at] == (unsigned char)reading->separator;
}

static bool is_blank(char c) { return c == ' ' || c == '\t'; }

static void pass_blanks(struct reading *reading) {
    while (!ends_cell(reading) && is_blank((char)reading->data[reading->at])) reading->at++;
}

static int read_cell(struct reading *reading, char **cell) {
    *cell = reading->to;
    pass_blanks(reading);
    if (reading->at < reading->size && reading->data[reading->at] == '"') {
        SGRAD_TRY(read_quoted(reading));
        pass_blanks(reading);
    } else {
        for (; !ends_cell(reading); reading->at++) take(reading);
        while (reading->to > *cell && is_blank(reading->to[-1])) reading->to--;
    }
    if (!ends_cell(reading))
        return sgrad_log_error(SGRAD_EFORMAT, "csv: %s: line %ld: text follows a closing quote", reading->name, reading->line);
    *reading->to++ = 0;
    return 0;
}

static int keep(const struct reading *reading, struct sgrad__csv *csv, char *cell) {
    if (csv->cells == CELLS_LIMIT)
        return sgrad_log_error(SGRAD_EFORMAT, "csv: %s: line %ld: the file has more than %d cells", reading->name, reading->line,
                               CELLS_LIMIT);
    csv->cell = sgrad_array_grow(csv->cell, (int)csv->cells, sizeof *csv->cell);
    csv->cell[csv->cells++] = cell;
    return 0;
}

static int read_line(struct reading *reading, struct sgrad__csv *csv) {
    const int64_t begin = reading->line;
    int columns = 0;
    for (bool more = true; more; columns++) {
        char *cell;
        SGRAD_TRY(read_cell(reading, &cell));
        SGRAD_TRY(keep(reading, csv, cell));
        more = !ends_line(reading);
        if (more) reading->at++;
    }
    if (!csv->columns) csv->columns = columns;
    if (columns != csv->columns)
        return sgrad_log_error(SGRAD_EFORMAT, "csv: %s: line %lld: has %d %s, but the first line has %d%s", reading->name,
                               (long long)begin, columns, sgrad_plural(columns, "column", "columns"), csv->columns,
                               *csv->cell[0] == '#' ? " and begins with #; remove it if it is a comment" : "");
    csv->line = sgrad_array_grow(csv->line, (int)csv->rows, sizeof *csv->line);
    csv->line[csv->rows++] = begin;
    return 0;
}

enum { SEPARATORS = 3 };

/* Adds to COUNT how often each separator occurs in the first line that is not empty from *AT on, outside quotes. *AT becomes the
 * end of the line. Returns false if there is no line. */
static bool count_separators(const unsigned char *data, size_t size, size_t *at, const char *separators, int count[SEPARATORS]) {
    bool quoted = false;
    while (*at < size && (data[*at] == '\n' || data[*at] == '\r')) ++*at;
    const bool there = *at < size;
    for (; *at < size && (quoted || (data[*at] != '\n' && data[*at] != '\r')); ++*at) {
        if (data[*at] == '"') quoted = !quoted;
        for (int i = 0; i < SEPARATORS && !quoted; i++) count[i] += data[*at] == (unsigned char)separators[i];
    }
    return there;
}

/* Returns the separator that both lines contain equally often; of several, the most frequent. A comma is chosen only if neither
 * semicolon nor tab qualifies, because numbers and titles may contain commas. If none qualifies: comma or semicolon if the first
 * line, else if the second line contains it; else tab. */
static char separator_of(const unsigned char *data, size_t size) {
    static const char separators[SEPARATORS + 1] = ";\t,";
    int first[SEPARATORS] = { 0 }, second[SEPARATORS] = { 0 }, best = -1;
    size_t at = 0;
    count_separators(data, size, &at, separators, first);
    const bool several = count_separators(data, size, &at, separators, second);
    for (int i = 0; i < SEPARATORS; i++)
        if (first[i] && (!several || first[i] == second[i]) && (best < 0 || (first[i] > first[best] && separators[i] != ',')))
            best = i;
    if (best >= 0) return separators[best];
    const int *const line = first[2] || first[0] ? first : second;
    if (line[2]) return ',';
    return line[0] ? ';' : '\t';
}

/* Checks the characters first, because strtod also accepts hexadecimal digits, inf and nan. */
bool sgrad__csv_number(const char *text, double *number) {
    char *end;
    if (text[strspn(text, " +-.0123456789eE")]) return false;
    *number = strtod(text, &end);
    while (*end == ' ') end++;
    return end != text && !*end && isfinite((float)*number);
}

bool sgrad__csv_missing(const char *cell) {
    static const char *const known[] = { "", "?", "-", "na", "n/a", "nan", "null", "none", "inf", "-inf", "#n/a" };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcasecmp(cell, known[i])) return true;
    return false;
}

char *sgrad__csv_point(const char *text) {
    const char *comma = strchr(text, ',');
    char *point = comma ? sgrad_format("%.*s.%s", (int)(comma - text), text, comma + 1) : NULL;
    double number;
    if (point && sgrad__csv_number(point, &number)) return point;
    free(point);
    return NULL;
}

bool sgrad__csv_comma(const char *text) {
    char *point = sgrad__csv_point(text);
    const bool is = point != NULL;
    free(point);
    return is;
}

int sgrad__csv_order(const char *a, const char *b) {
    const double exact = 9007199254740992.0;            /* 2^53: larger integers may be equal as doubles */
    const double x = strtod(a, NULL), y = strtod(b, NULL);
    if (x != y) return (x > y) - (x < y);
    return fabs(x) >= exact ? strcmp(a, b) : 0;
}

/* Removes the last column if all its cells are empty: some programs end every line with one or more separators. Returns true if
 * it was removed. */
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
    struct sgrad__csv csv = { .text = sgrad_xcalloc(2 * size + 2, 1) };
    int error = 0;
    if (size >= 3 && !memcmp(data, "\xef\xbb\xbf", 3)) r.at = 3;        /* UTF-8's byte order mark */
    r.to = csv.text;
    r.latin = csv.latin = !sgrad__is_utf8(data, size);
    const unsigned char *begin = r.data + r.at;
    const bool stated = size - r.at > 5 && !memcmp(begin, "sep=", 4) && (begin[5] == '\n' || begin[5] == '\r');     /* Excel */
    r.separator = stated ? (char)begin[4] : separator_of(begin, size - r.at);
    if (stated) r.at += 5, end_line(&r);
    const bool wide = size >= 2 && (!memcmp(data, "\xff\xfe", 2) || !memcmp(data, "\xfe\xff", 2));
    if (memchr(data, 0, size))
        error = sgrad_log_error(SGRAD_EFORMAT, "csv: %s: %s", name,
                                wide ? "is UTF-16 text; save it as UTF-8" : "contains a zero byte, so it is not text");
    while (!error && r.at < size) {
        const size_t at = r.at;
        pass_blanks(&r);
        if (!ends_line(&r)) r.at = at, error = read_line(&r, &csv);
        if (!error) end_line(&r);
    }
    if (!error && !csv.rows) error = sgrad_log_error(SGRAD_EFORMAT, "csv: %s: has no line of numbers", name);
    if (error) return sgrad__csv_free(&csv), error;
    while (cut_empty_column(&csv)) {}
    *parsed = csv;
    return 0;
}

void sgrad__csv_free(struct sgrad__csv *csv) {
    for (char **text = csv->texts; text && *text; text++) free(*text);
    free(csv->texts);
    free(csv->text);
    free(csv->cell);
    free(csv->line);
    free(csv->file);
}
