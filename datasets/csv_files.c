/* csv_files.c: finds the files of a table, and reads them. Several files of JSON lines, those of a pattern or a folder, become
 * one table. Its columns are the keys, in the order of their first occurrence:
 *
 *     a.jsonl    {"x": 1, "y": 2}           x   y   file   line
 *                {"x": 3, "y": 4}           1   2   0      1
 *     b.jsonl    {"y": 6, "x": 5}           3   4   0      2
 *                                           5   6   1      1
 *
 * All files must have the same keys, with values of the same type: numbers or texts. A key that is ignored may differ. */
#include "config.h"
#include "datasets/csv.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { CELLS_LIMIT = 1 << 30, COLUMNS_LIMIT = 1 << 16 };
#define FILE_LIMIT ((size_t)1 << 31)

static bool has_keys(const struct sgrad__table *table) { return !strcmp(table->kind, "jsonl"); }

/* ---- paths --------------------------------------------------------------------------------------------------------- */

enum { TRAIN, VAL, TEST, PARTS };
static const char *const part_name[PARTS] = { "train", "val", "test" };

static bool exists(const char *path) {
    struct stat status;
    return !stat(path, &status);
}

/* Returns the path of PART in the folder table->wanted.path: PART.csv, or PART.jsonl, which may be compressed. The caller must
 * free it. */
static char *file_in(const struct sgrad__table *table, const char *part) {
    static const char *const ending[] = { ".gz", ".zst" };
    char *path = sgrad_format("%s/%s.%s", table->wanted.path, part, table->kind);
    for (int i = 0; i < 2 && has_keys(table) && !exists(path); i++) {
        char *packed = sgrad_format("%s%s", path, ending[i]);
        if (exists(packed)) return free(path), packed;
        free(packed);
    }
    return path;
}

static void set_one(struct sgrad__paths *paths, char *path) {
    paths->path = sgrad_xcalloc(1, sizeof *paths->path);
    paths->path[0] = path;
    paths->count = 1;
}

/* Warns of files PART*.jsonl in the folder beside PART.jsonl. */
static void warn_of_unread(const struct sgrad__table *table, const char *part) {
    struct sgrad__paths all = { 0 };
    char reason[1024];
    sgrad_log_capture(reason, sizeof reason);
    const int error = sgrad__pattern_expand(table->kind, table->wanted.path, part, &all);
    sgrad_log_capture(NULL, 0);
    if (!error && all.count > 1)
        sgrad_log_warning("%s: %s: of %lld files %s*.jsonl, only %s.jsonl is read; to read all, give %s:%s/%s*.jsonl",
                          table->kind, table->wanted.path, (long long)all.count, part, part, table->kind, table->wanted.path,
                          part);
    sgrad__paths_free(&all);
}

/* Lists the files of PART: in a folder PART.csv; PART.jsonl, or else PART*.jsonl; of a pattern, those that it names. */
static int list_part(const struct sgrad__table *table, const char *part, struct sgrad__paths *paths) {
    if (sgrad__is_folder(table->wanted.path)) {
        char *path = file_in(table, part);
        if (exists(path)) {
            if (has_keys(table) && table->warns) warn_of_unread(table, part);
            return set_one(paths, path), 0;
        }
        free(path);
    }
    return has_keys(table) ? sgrad__pattern_expand(table->kind, table->wanted.path, part, paths) : 0;
}

/* Takes over the files of a split. If there are none, a folder must have the file PART. */
static int take_part(struct sgrad__table *table, enum sgrad_split split, int from, struct sgrad__paths *part) {
    struct sgrad__paths *to = &table->paths[split];
    *to = part[from];
    part[from] = (struct sgrad__paths){ 0 };
    if (to->count) return 0;
    if (!sgrad__is_folder(table->wanted.path)) return sgrad__pattern_refuse(table->kind, table->wanted.path, part_name[from]);
    return set_one(to, file_in(table, part_name[from])), 0;
}

/* Sets the paths of a folder or a pattern, by the files of each part. A pattern without val and test is a table in one. So is a
 * folder, if a fraction is held out. */
static int choose_parts(struct sgrad__table *table, struct sgrad__paths part[PARTS]) {
    const struct sgrad_dataset_options *o = table->options;
    const bool has_val = part[VAL].count > 0, alone = !has_val && !part[TEST].count && !o->third;
    table->one_file = alone && (o->split > 0 || !sgrad__is_folder(table->wanted.path));
    SGRAD_TRY(take_part(table, SGRAD_TRAIN, TRAIN, part));
    return table->one_file ? 0 : take_part(table, SGRAD_TEST, has_val && !o->third ? VAL : TEST, part);
}

static int find_parts(struct sgrad__table *table) {
    struct sgrad__paths part[PARTS] = { { 0 } };
    int error = 0;
    for (int i = 0; i < PARTS && !error; i++) error = list_part(table, part_name[i], &part[i]);
    if (!error) error = choose_parts(table, part);
    for (int i = 0; i < PARTS; i++) sgrad__paths_free(&part[i]);
    return error;
}

static int find_one(struct sgrad__table *table) {
    const char *path = table->wanted.path, *kind = table->kind;
    table->one_file = true;
    set_one(&table->paths[SGRAD_TRAIN], sgrad_format("%s", path));
    if (!table->options->third) return 0;
    return sgrad_log_error(SGRAD_EINVAL, "%s: %s: --on test requires a folder with train.%s, val.%s and test.%s", kind, path,
                           kind, kind, kind);
}

int sgrad__table_find(struct sgrad__table *table) {
    const char *path = table->wanted.path;
    const bool pattern = has_keys(table) && !exists(path) && strpbrk(path, "*?[{");
    SGRAD_TRY(pattern || sgrad__is_folder(path) ? find_parts(table) : find_one(table));
    for (int i = 0; i < 2; i++) {
        const struct sgrad__paths *paths = &table->paths[table->one_file ? SGRAD_TRAIN : i];
        const long long more = (long long)paths->count - 1;
        table->path[i] = more ? sgrad_format("%s and %lld more %s", paths->path[0], more, sgrad_plural(more, "file", "files"))
                              : sgrad_format("%s", paths->path[0]);
    }
    return 0;
}

/* ---- comparison of files ------------------------------------------------------------------------------------------- */

/* The tables of several files that become one. */
struct join {
    const struct sgrad__table *table;
    const struct sgrad__paths *paths;
    struct sgrad__csv *part; /* (paths->count) */
    int **column;            /* for each part and each of its columns: the column of the whole */
    const char **title;      /* (columns) of the whole */
    int columns;
};

/* The values of a column in one file. */
enum values { UNKNOWN, NUMBERS, TEXTS, MIXED };

static enum values values_of(const struct sgrad__csv *part, int column) {
    enum values are = UNKNOWN;
    double number;
    for (int64_t row = 1; row < part->rows && are != MIXED; row++) {
        const char *cell = part->cell[row * part->columns + column];
        if (sgrad__csv_missing(cell)) continue;
        are |= sgrad__csv_number(cell, &number) ? NUMBERS : TEXTS; /* both together: MIXED */
    }
    return are;
}

static bool is_in(char *const *list, int count, const char *title) {
    for (int i = 0; i < count; i++)
        if (!strcmp(list[i], title)) return true;
    return false;
}

static bool is_ignored(const struct join *join, const char *title) {
    return is_in(join->table->wanted.ignored, join->table->wanted.ignores, title);
}

static int find_title(const struct join *join, const char *title, int hint) {
    if (hint < join->columns && !strcmp(join->title[hint], title)) return hint;
    for (int c = 0; c < join->columns; c++)
        if (!strcmp(join->title[c], title)) return c;
    return -1;
}

/* Logs that the file LACKING has no column TITLE, but the file OTHER has. */
static int refuse_lack(const struct join *join, int64_t lacking, int64_t other, const char *title) {
    return sgrad_log_error(SGRAD_EFORMAT,
                           "jsonl: %s: lacks the column '%.80s' of %s; all files must have the same keys; ,-%.80s in --data "
                           "ignores the column",
                           join->paths->path[lacking], title, join->paths->path[other], title);
}

/* Finds the columns of part P in the whole, to which ignored columns are appended. SGRAD_EFORMAT: others differ. */
static int match_columns(struct join *join, int64_t p) {
    const struct sgrad__csv *part = &join->part[p];
    bool *found = sgrad_xcalloc((size_t)(join->columns + part->columns), sizeof *found);
    int error = 0;
    join->column[p] = sgrad_xcalloc((size_t)part->columns, sizeof *join->column[p]);
    for (int c = 0; c < part->columns && !error; c++) {
        const char *title = part->cell[c];
        int column = find_title(join, title, c);
        if (column < 0 && p && !is_ignored(join, title)) error = refuse_lack(join, 0, p, title);
        if (column < 0) {
            join->title = sgrad_array_grow(join->title, join->columns, sizeof *join->title);
            join->title[column = join->columns++] = title;
        }
        join->column[p][c] = column;
        found[column] = true;
    }
    for (int c = 0; c < join->columns && !error; c++)
        if (!found[c] && !is_ignored(join, join->title[c])) error = refuse_lack(join, p, 0, join->title[c]);
    free(found);
    if (!error && join->columns > COLUMNS_LIMIT)
        error = sgrad_log_error(SGRAD_EFORMAT, "jsonl: %s: more than %d keys", join->paths->path[p], COLUMNS_LIMIT);
    return error;
}

/* Returns true if COLUMN is the target: the one that the argument names, or the last one that is not ignored. */
static bool is_target(const struct join *join, int column) {
    const char *wanted = join->table->wanted.column;
    char *end;
    const long number = wanted ? strtol(wanted, &end, 10) : 0;
    if (wanted) return !strcmp(wanted, join->title[column]) || (!*end && number == column + 1);
    for (int c = column + 1; c < join->columns; c++)
        if (!is_ignored(join, join->title[c])) return false;
    return true;
}

/* Returns true if COLUMN may have numbers in one file and texts in another one. */
static bool may_differ(const struct join *join, int column) {
    const struct sgrad__csv_wanted *w = &join->table->wanted;
    if (is_ignored(join, join->title[column]) || is_in(w->category, w->categories, join->title[column])) return true;
    return is_target(join, column) && (w->classes || join->table->options->origin);
}

/* Checks that the values of each column are numbers in all files, or texts in all files. */
static int compare_values(const struct join *join) {
    static const char *const text[] = { [NUMBERS] = "numbers", [TEXTS] = "texts" };
    enum values *first = sgrad_xcalloc((size_t)join->columns, sizeof *first);
    int64_t *file = sgrad_xcalloc((size_t)join->columns, sizeof *file);
    int error = 0;
    for (int64_t p = 0; p < join->paths->count; p++)
        for (int c = 0; c < join->part[p].columns && !error; c++) {
            const int column = join->column[p][c];
            const char *title = join->title[column];
            const enum values are = may_differ(join, column) ? UNKNOWN : values_of(&join->part[p], c);
            if (are == UNKNOWN || are == MIXED) continue; /* csv_encoding.c refuses mixed values */
            if (first[column] == UNKNOWN) first[column] = are, file[column] = p;
            if (first[column] == are) continue;
            char *way = is_target(join, column) ? sgrad_format(",classes in --data reads both as classes")
                                                : sgrad_format(",category=%.80s in --data reads both as categories", title);
            error = sgrad_log_error(SGRAD_EFORMAT, "jsonl: %s: the values of '%.80s' are %s, but those of %s are %s; %s",
                                    join->paths->path[p], title, text[are], join->paths->path[file[column]], text[first[column]],
                                    way);
            free(way);
        }
    free(file);
    free(first);
    return error;
}

/* ---- reading ------------------------------------------------------------------------------------------------------- */

/* Copies the rows of part P to rows ROW of WHOLE. */
static void copy_rows(const struct join *join, int64_t p, int64_t row, struct sgrad__csv *whole) {
    const struct sgrad__csv *part = &join->part[p];
    for (int64_t r = 1; r < part->rows; r++, row++) {
        char **to = whole->cell + row * whole->columns;
        for (int c = 0; c < whole->columns; c++) to[c] = part->text; /* the empty text of missing cells */
        for (int c = 0; c < part->columns; c++) to[join->column[p][c]] = part->cell[r * part->columns + c];
        whole->line[row] = part->line[r];
        whole->file[row] = (int32_t)p;
    }
}

/* Makes one table of all parts, whose texts it takes over. */
static int join_parts(const struct join *join, struct sgrad__csv *csv) {
    const int64_t parts = join->paths->count;
    struct sgrad__csv whole = { .columns = join->columns, .rows = 1, .headed = true };
    for (int64_t p = 0; p < parts; p++) whole.rows += join->part[p].rows - 1;
    if (whole.rows > CELLS_LIMIT / whole.columns)
        return sgrad_log_error(SGRAD_EFORMAT, "jsonl: %s: more than %d values", join->paths->path[parts - 1], CELLS_LIMIT);
    whole.cells = whole.rows * whole.columns;
    whole.cell = sgrad_xcalloc((size_t)whole.cells, sizeof *whole.cell);
    whole.line = sgrad_xcalloc((size_t)whole.rows, sizeof *whole.line);
    whole.file = sgrad_xcalloc((size_t)whole.rows, sizeof *whole.file);
    whole.texts = sgrad_xcalloc((size_t)parts + 1, sizeof *whole.texts);
    for (int c = 0; c < whole.columns; c++) whole.cell[c] = (char *)join->title[c];
    int64_t row = 1;
    for (int64_t p = 0; p < parts; row += join->part[p++].rows - 1) copy_rows(join, p, row, &whole);
    for (int64_t p = 0; p < parts; p++) whole.texts[p] = join->part[p].text, join->part[p].text = NULL;
    *csv = whole;
    return 0;
}

/* Parses the file PATH. */
static int read_file(const struct sgrad__table *table, const char *path, struct sgrad__csv *csv) {
    struct sgrad_map map;
    SGRAD_TRY(sgrad_map_open(path, FILE_LIMIT, &map));
    void *content = NULL;
    size_t size = map.size;
    int error = has_keys(table) ? sgrad__decompress(path, map.data, map.size, FILE_LIMIT, &content, &size) : 0;
    if (!error) error = (has_keys(table) ? sgrad__jsonl_parse : sgrad__csv_parse)(path, content ? content : map.data, size, csv);
    free(content);
    sgrad_map_close(&map);
    return error;
}

int sgrad__table_read(const struct sgrad__table *table, int file, struct sgrad__csv *csv) {
    const struct sgrad__paths *paths = &table->paths[file];
    if (paths->count == 1) return read_file(table, paths->path[0], csv);
    struct join join = { .table = table,
                         .paths = paths,
                         .part = sgrad_xcalloc((size_t)paths->count, sizeof *join.part),
                         .column = sgrad_xcalloc((size_t)paths->count, sizeof *join.column) };
    int error = 0;
    for (int64_t p = 0; p < paths->count && !error; p++) {
        error = read_file(table, paths->path[p], &join.part[p]);
        if (!error) error = match_columns(&join, p);
    }
    if (!error) error = compare_values(&join);
    if (!error) error = join_parts(&join, csv);
    for (int64_t p = 0; p < paths->count; p++) {
        sgrad__csv_free(&join.part[p]);
        free(join.column[p]);
    }
    free(join.title);
    free(join.column);
    free(join.part);
    return error;
}
