/* jsonl.c: parses JSON lines to a table: each line is an object, its keys are the titles of columns, in the order of their first
 * occurrence, and its values are cells. The reader csv (csv.c) does the rest.
 *
 *     {"age": 29, "colour": "red", "price": 3.5}          age   colour   price        titles
 *     {"age": null, "price": 4}                           29    red      3.5
 *     {"price": 5, "age": 31, "colour": "blue"}           ""    ""       4            missing values are empty cells
 *                                                         31    blue     5
 *
 * A value is a number, a text, true, false or null. Files may be compressed by gzip or Zstandard (decompress.c). */
#include "config.h"
#include "datasets/csv.h"

#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { COLUMNS_LIMIT = 1 << 16, CELLS_LIMIT = 1 << 30, CELL = 32 };

/* The lines of a file, one after another. */
struct lines {
    const char *name, *at, *end;
    int64_t number; /* of the line before AT, from 1 */
};

/* Sets *OBJECT to the object of the next line that is not blank, which the caller must release; NULL: there is none. */
static int next_object(struct lines *lines, json_t **object) {
    *object = NULL;
    while (lines->at < lines->end && !*object) {
        const char *begin = lines->at, *stop = memchr(begin, '\n', (size_t)(lines->end - begin));
        const size_t length = (size_t)((stop ? stop : lines->end) - begin);
        json_error_t why;
        lines->at = stop ? stop + 1 : lines->end;
        lines->number++;
        size_t blanks = 0;
        while (blanks < length && strchr(" \t\r", begin[blanks]) && begin[blanks]) blanks++;
        if (blanks == length) continue;
        *object = json_loadb(begin, length, JSON_REJECT_DUPLICATES, &why);
        if (!*object)
            return sgrad_log_error(SGRAD_EFORMAT, "jsonl: %s: line %lld, byte %d: %s", lines->name, (long long)lines->number,
                                   why.position, why.text);
        if (json_is_object(*object)) continue;
        json_decref(*object);
        *object = NULL;
        return sgrad_log_error(SGRAD_EFORMAT, "jsonl: %s: line %lld: is not an object, such as {\"age\": 29, \"kind\": \"a\"}",
                               lines->name, (long long)lines->number);
    }
    return 0;
}

/* Returns the text of a value; BUFFER, of CELL bytes, is for numbers: the shortest text that is the same number. NULL: it is an
 * array or an object. */
static const char *text_of(const json_t *value, char *buffer) {
    if (json_is_string(value)) return json_string_value(value);
    if (json_is_boolean(value)) return json_is_true(value) ? "true" : "false";
    if (json_is_integer(value))
        snprintf(buffer, CELL, "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value))
        for (int digits = 15; digits <= 17; digits++) {
            snprintf(buffer, CELL, "%.*g", digits, json_real_value(value));
            if (strtod(buffer, NULL) == json_real_value(value)) break;
        }
    else if (json_is_null(value))
        return "";
    else
        return NULL;
    return buffer;
}

/* The first pass: numbers the keys, and counts lines and the bytes of all texts. */
static int measure(struct lines lines, json_t *column, struct sgrad__csv *csv, size_t *bytes) {
    char buffer[CELL];
    json_t *object;
    int error = 0;
    for (csv->rows = 1; !(error = next_object(&lines, &object)) && object; csv->rows++) {
        const char *key, *text;
        json_t *value;
        json_object_foreach(object, key, value) {
            if (!(text = text_of(value, buffer)))
                error = sgrad_log_error(SGRAD_EFORMAT,
                                        "jsonl: %s: line %lld: '%.60s' is an array or an object; its value must be a "
                                        "number, a text, true, false or null",
                                        lines.name, (long long)lines.number, key);
            if (error) break;
            *bytes += strlen(text) + 1;
            if (json_object_get(column, key)) continue;
            json_object_set_new(column, key, json_integer((json_int_t)json_object_size(column)));
            *bytes += strlen(key) + 1;
        }
        json_decref(object);
        if (error) return error;
        if (json_object_size(column) > COLUMNS_LIMIT || csv->rows * (int64_t)json_object_size(column) > CELLS_LIMIT)
            return sgrad_log_error(SGRAD_EFORMAT, "jsonl: %s: line %lld: more than %d keys or %d values", lines.name,
                                   (long long)lines.number, COLUMNS_LIMIT, CELLS_LIMIT);
    }
    return error;
}

/* Copies TEXT to *TO, and moves *TO behind it. Returns the copy. */
static char *keep(const char *text, char **to) {
    char *copy = strcpy(*to, text);
    *to += strlen(text) + 1;
    return copy;
}

/* The second pass: fills the cells. */
static int fill(struct lines lines, const json_t *column, struct sgrad__csv *csv) {
    char buffer[CELL], *to = csv->text + 1; /* text[0] is the empty text of missing cells */
    const char *key;
    json_t *value, *object;
    for (int64_t i = 0; i < csv->cells; i++) csv->cell[i] = csv->text;
    json_object_foreach((json_t *)column, key, value) csv->cell[json_integer_value(value)] = keep(key, &to);
    for (int64_t row = 1; row < csv->rows; row++) {
        SGRAD_TRY(next_object(&lines, &object));
        csv->line[row] = lines.number;
        json_object_foreach(object, key, value) csv->cell[row * csv->columns + json_integer_value(json_object_get(column, key))] =
            keep(text_of(value, buffer), &to);
        json_decref(object);
    }
    return 0;
}

int sgrad__jsonl_parse(const char *name, const void *data, size_t size, struct sgrad__csv *parsed) {
    const size_t mark = size >= 3 && !memcmp(data, "\xef\xbb\xbf", 3) ? 3 : 0; /* UTF-8's byte order mark */
    const struct lines lines = { .name = name, .at = (const char *)data + mark, .end = (const char *)data + size };
    struct sgrad__csv csv = { .headed = true };
    json_t *column = json_object();
    size_t bytes = 1;
    int error = measure(lines, column, &csv, &bytes);
    csv.columns = (int)json_object_size(column);
    if (!error && (csv.rows < 2 || !csv.columns))
        error = sgrad_log_error(SGRAD_EFORMAT, "jsonl: %s: has no line with values", name);
    if (!error) {
        csv.cells = csv.rows * csv.columns;
        csv.text = sgrad_xcalloc(bytes, 1);
        csv.cell = sgrad_xcalloc((size_t)csv.cells, sizeof *csv.cell);
        csv.line = sgrad_xcalloc((size_t)csv.rows, sizeof *csv.line);
        error = fill(lines, column, &csv);
    }
    json_decref(column);
    if (error)
        sgrad__csv_free(&csv);
    else
        *parsed = csv;
    return error;
}
