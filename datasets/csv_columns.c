/* csv_columns.c: parses the argument of the reader, finds headers, and matches columns with features and target.
 *
 *     length,width,species        a header: the first cell of a feature's column is text, its other cells are numbers
 *     5.1,3.5,setosa              train.csv                          species is the target
 *
 *     width,species,length        test.csv, or data for a trained network: columns are matched by title if both files have
 *     3.0,virginica,5.9           titles, else by position */
#include "config.h"
#include "datasets/csv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define WANTED                                                                                                                   \
    "give %s:FILE[,COLUMN][,-COLUMN][,category=COLUMN][,missing=mean|frequent][,scale][,classes|numbers][,header|no-header]"

/* ---- the argument ---------------------------------------------------------------------------------------------------- */

/* Returns the text after PREFIX in WORD; NULL: WORD is not PREFIX and a text. */
static char *after(char *word, const char *prefix) {
    const size_t length = strlen(prefix);
    return !strncmp(word, prefix, length) && word[length] ? word + length : NULL;
}

static bool take_keyword(struct sgrad__csv_wanted *wanted, char *word) {
    const struct {
        const char *name;
        bool *is;
    } known[] = {
        { "classes", &wanted->classes }, { "numbers", &wanted->numbers },     { "header", &wanted->header },
        { "scale", &wanted->scale },     { "no-header", &wanted->no_header },
    };
    char *ignored = after(word, "-"), *category = after(word, "category="), *missing = after(word, "missing=");
    if (ignored) return wanted->ignored[wanted->ignores++] = ignored, true;
    if (category) return wanted->category[wanted->categories++] = category, true;
    if (missing && (!strcmp(missing, "mean") || !strcmp(missing, "frequent"))) return wanted->missing = missing, true;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(word, known[i].name)) return *known[i].is = true;
    return false;
}

/* Returns the first comma of TEXT that is not in braces; NULL: there is none. */
static char *outer_comma(char *text) {
    int depth = 0;
    for (; *text && (*text != ',' || depth > 0); text++) depth += (*text == '{') - (*text == '}');
    return *text ? text : NULL;
}

/* Ends the path of a file or a pattern, which may contain commas, and returns the rest of the argument; NULL: there is none. */
static char *end_path(char *path) {
    struct stat status;
    char *comma = stat(path, &status) ? strchr(path, ',') : NULL, *first = comma ? outer_comma(path) : NULL;
    for (; comma; comma = strchr(comma + 1, ',')) {     /* the first comma after the name of an existing file */
        *comma = 0;
        if (!stat(path, &status)) return comma + 1;
        *comma = ',';
    }
    if (first) *first = 0;
    return first ? first + 1 : NULL;
}

/* Splits ARGUMENT into the path, keywords in any order, and the target's column, whose title may contain commas. SGRAD_EINVAL:
 * two keywords exclude each other. */
static int read_argument(const char *kind, const char *argument, struct sgrad__csv_wanted *wanted) {
    size_t words = 1;
    for (const char *c = argument; *c; c++) words += *c == ',';
    wanted->ignored = sgrad_xcalloc(words, sizeof *wanted->ignored);
    wanted->category = sgrad_xcalloc(words, sizeof *wanted->category);
    wanted->path = wanted->text = sgrad_format("%s", argument);
    char *rest = end_path(wanted->path), *comma;
    while (rest && (comma = strrchr(rest, ',')) && take_keyword(wanted, comma + 1)) *comma = 0;
    while (rest && (comma = strchr(rest, ','))) {
        *comma = 0;
        if (!take_keyword(wanted, rest)) {
            *comma = ',';
            break;
        }
        rest = comma + 1;
    }
    if (rest && *rest && !take_keyword(wanted, rest)) wanted->column = rest;
    if (wanted->classes && wanted->numbers)
        return sgrad_log_error(SGRAD_EINVAL, "%s:%s: classes cannot be combined with numbers", kind, argument);
    if (wanted->header && wanted->no_header)
        return sgrad_log_error(SGRAD_EINVAL, "%s:%s: header cannot be combined with no-header", kind, argument);
    if (wanted->classes && wanted->scale)
        return sgrad_log_error(SGRAD_EINVAL, "%s:%s: scale cannot be combined with classes", kind, argument);
    if (!strcmp(kind, "jsonl")) {
        if (wanted->header || wanted->no_header)
            return sgrad_log_error(SGRAD_EINVAL, "jsonl:%s: has no header, because the keys are the titles; omit %s", argument,
                                   wanted->header ? "header" : "no-header");
        wanted->header = true;
    }
    return 0;
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

char *sgrad__table_place(const struct sgrad__table *table, int file, int64_t row, int column) {
    const struct sgrad__csv *csv = &table->csv[file];
    const char *path = csv->file ? table->paths[file].path[csv->file[row + csv->headed]] : table->path[file];
    char *title = csv->headed ? sgrad_format(" (%s)", csv->cell[column]) : sgrad_format("%s", "");
    char *text =
        sgrad_format("%s: %s: line %lld, column %d%s: '%.40s'", table->kind, path,
                     (long long)csv->line[row + csv->headed], column + 1, title, sgrad__table_cell(table, file, row, column));
    free(title);
    return text;
}

int sgrad__table_refuse(const struct sgrad__table *table, int file, int64_t row, int column, const char *why) {
    char *place = sgrad__table_place(table, file, row, column),
         *point = sgrad__csv_point(sgrad__table_cell(table, file, row, column));
    const int error = point ? sgrad_log_error(SGRAD_EFORMAT, "%s has a decimal comma; write %s", place, point)
                            : sgrad_log_error(SGRAD_EFORMAT, "%s %s", place, why);
    free(point);
    free(place);
    return error;
}

/* ---- header and columns ---------------------------------------------------------------------------------------------- */

/* A number with a decimal comma counts as a number; it is refused later. */
static bool is_number(const char *cell) {
    double number;
    return sgrad__csv_number(cell, &number) || sgrad__csv_comma(cell);
}

/* Returns true if the first cell of COLUMN is text, and more cells below it are numbers than text, or there are none. */
static bool is_titled(const struct sgrad__csv *csv, int column) {
    int64_t numbers = 0, texts = 0;
    if (is_number(csv->cell[column]) || sgrad__csv_missing(csv->cell[column])) return false;
    for (int64_t row = 1; row < csv->rows; row++) {
        const char *cell = csv->cell[row * csv->columns + column];
        if (is_number(cell)) numbers++;
        else texts += !sgrad__csv_missing(cell);
    }
    return numbers > texts || csv->rows == 1;
}

/* Returns true if line 1 is 0,1,2,… or 1,2,3,…, as programs number columns without names, or other consecutive integers such as
 * years. Of two columns, the first must be 0 or 1. */
static bool counts(const struct sgrad__csv *csv) {
    double first, number;
    if (csv->columns < 2 || !sgrad__csv_number(csv->cell[0], &first)) return false;
    if (first != floor(first) || (csv->columns == 2 && first != 0 && first != 1)) return false;
    for (int c = 1; c < csv->columns; c++)
        if (!sgrad__csv_number(csv->cell[c], &number) || number != first + c) return false;
    return true;
}

/* Returns the column, from 0, whose number, from 1, is TEXT; -1: no such column. */
static int number_of(const struct sgrad__csv *csv, const char *text) {
    char *end;
    const long number = strtol(text, &end, 10);
    return end != text && !*end && number >= 1 && number <= csv->columns ? (int)number - 1 : -1;
}

static int find_title(const struct sgrad__csv *csv, const char *title, int nth) {
    for (int c = 0; c < csv->columns; c++)
        if (!strcmp(csv->cell[c], title) && nth-- == 0) return c;
    return -1;
}

/* Decides if line 1 is a header, and warns of doubtful files. It is one if the argument names the target by a title of line 1.
 * SGRAD_EFORMAT: no line is left. */
static int find_header(const struct sgrad__table *table, const char *path, struct sgrad__csv *csv) {
    const struct sgrad__csv_wanted *w = &table->wanted;
    const int number = w->column ? number_of(csv, w->column) : csv->columns - 1;
    const int titled = number < 0 && w->column ? find_title(csv, w->column, 0) : -1, target = number >= 0 ? number : titled;
    csv->headed = w->header || (number < 0 && target >= 0);
    for (int c = 0; c < csv->columns && !csv->headed; c++)
        csv->headed = (c != target || (!w->classes && csv->rows > 1)) && is_titled(csv, c);
    if (w->no_header) csv->headed = false;
    else if (!csv->headed && counts(csv) && table->warns)
        sgrad_log_warning(
            "%s: %s: line %lld (%s,%s,…) is read as a sample; append ,header to --data if it names the columns, otherwise "
            ",no-header",
            table->kind, path, (long long)csv->line[0], csv->cell[0], csv->cell[1]);
    if (csv->latin && table->warns) sgrad_log_warning("%s: %s: is not UTF-8; it is read as Latin-1", table->kind, path);
    if (csv->cut && table->warns)
        sgrad_log_warning("%s: %s: every line ends with an empty cell; this column is ignored", table->kind, path);
    csv->rows -= csv->headed;
    return csv->rows > 0 ? 0 : sgrad_log_error(SGRAD_EFORMAT, "%s: %s: has no line of numbers", table->kind, path);
}

static int read_files(struct sgrad__table *table, int file) {
    SGRAD_TRY(sgrad__table_read(table, file, &table->csv[file]));
    return find_header(table, table->path[file], &table->csv[file]);
}

/* Sets *FOUND to the column in FILE that TEXT names by its title or its number. SGRAD_EINVAL: there is no such column, or two
 * have the title. */
static int find_column(const struct sgrad__table *table, int file, const char *text, int *found) {
    const struct sgrad__csv *csv = &table->csv[file];
    const int titled = csv->headed ? find_title(csv, text, 0) : -1;
    if (titled >= 0 && find_title(csv, text, 1) >= 0)
        return sgrad_log_error(SGRAD_EINVAL,
                               "%s: %s: columns %d and %d are both called '%s'; give the number of the column, from 1",
                               table->kind, table->path[file], titled + 1, find_title(csv, text, 1) + 1, text);
    *found = titled >= 0 ? titled : number_of(csv, text);
    if (*found < 0)
        return sgrad_log_error(SGRAD_EINVAL, "%s: %s: has no column '%s'; " WANTED, table->kind, table->path[file], text,
                               table->kind);
    return 0;
}

/* Finds the target's column in FILE by the argument: a title or a number; default: the last column that is not ignored.
 * SGRAD_EINVAL: there is no such column. SGRAD_EFORMAT: the file has one column. */
static int find_target(struct sgrad__table *table, int file, const enum sgrad_column_kind *kind) {
    const struct sgrad__csv *csv = &table->csv[file];
    int target = csv->columns - 1;
    if (table->wanted.column) SGRAD_TRY(find_column(table, file, table->wanted.column, &target));
    else while (target > 0 && kind && kind[target] == SGRAD_COLUMN_IGNORED) target--;
    if (csv->columns < 2)
        return sgrad_log_error(
            SGRAD_EFORMAT, "%s: %s: has one column, but must have features and a target, separated by commas, semicolons or tabs",
            table->kind, table->path[file]);
    table->target[file] = target;
    return 0;
}

/* Returns true if no cell of the training file is a number or begins as one, as dates and 1,000,000 do, and some are texts that
 * are not missing values. */
static bool is_text(const struct sgrad__csv *csv, int column) {
    bool texts = false;
    for (int64_t row = csv->headed; row < csv->rows + csv->headed; row++) {
        const char *cell = csv->cell[row * csv->columns + column];
        const char *digit = cell + strspn(cell, "+-.");
        if (*digit >= '0' && *digit <= '9') return false;
        texts |= !sgrad__csv_missing(cell);
    }
    return texts;
}

/* Sets the kinds of the columns of the training file that the argument names. */
static int find_kinds(struct sgrad__table *table, enum sgrad_column_kind *kind) {
    const struct sgrad__csv_wanted *w = &table->wanted;
    int column = 0;
    for (int i = 0; i < w->categories; i++) {
        SGRAD_TRY(find_column(table, SGRAD_TRAIN, w->category[i], &column));
        kind[column] = SGRAD_COLUMN_CATEGORY;
        table->named[column] = true;
    }
    for (int i = 0; i < w->ignores; i++) {
        SGRAD_TRY(find_column(table, SGRAD_TRAIN, w->ignored[i], &column));
        kind[column] = SGRAD_COLUMN_IGNORED;
    }
    return 0;
}

/* Describes the columns of the training file, of the kinds KIND, in t->origin. Other files are matched with this description. */
static int describe_columns(struct sgrad__table *table, enum sgrad_column_kind *kind) {
    const struct sgrad__csv *csv = &table->csv[SGRAD_TRAIN];
    SGRAD_TRY(find_kinds(table, kind));
    SGRAD_TRY(find_target(table, SGRAD_TRAIN, kind));
    const int target = table->target[SGRAD_TRAIN];
    struct sgrad_origin *o = table->origin = sgrad_xcalloc(1, sizeof *o);
    if (kind[target])
        return sgrad_log_error(SGRAD_EINVAL, "%s: %s: column %d is the target; it cannot be ignored or be a category",
                               table->kind, table->path[SGRAD_TRAIN], target + 1);
    o->columns = csv->columns - 1;
    o->target_column = target + 1;
    o->missing = table->wanted.missing ? sgrad_format("%s", table->wanted.missing) : NULL;
    o->target = csv->headed ? sgrad_format("%s", csv->cell[target]) : NULL;
    o->column = sgrad_xcalloc((size_t)o->columns + 1, sizeof *o->column);
    for (int c = 0, k = 0; c < csv->columns; c++) {
        if (c == target) continue;
        const bool text = kind[c] == SGRAD_COLUMN_NUMBER && is_text(csv, c);
        o->column[k++] = (struct sgrad_column){ .kind = text ? SGRAD_COLUMN_CATEGORY : kind[c],
                                                .title = csv->headed ? sgrad_format("%s", csv->cell[c]) : NULL };
    }
    return 0;
}

static int describe(struct sgrad__table *table) {
    enum sgrad_column_kind *kind = sgrad_xcalloc((size_t)table->csv[SGRAD_TRAIN].columns, sizeof *kind);
    table->named = sgrad_xcalloc((size_t)table->csv[SGRAD_TRAIN].columns, sizeof *table->named);
    const int error = describe_columns(table, kind);
    free(kind);
    return error;
}

/* Returns how many of the first COLUMNS columns that ORIGIN describes have the title TITLE. Columns with the same title are
 * matched in order. */
static int same_title(const struct sgrad_origin *origin, const char *title, int columns) {
    int same = 0;
    for (int c = 0, k = 0; c < columns; c++)
        same += !strcmp(c == origin->target_column - 1 ? origin->target : origin->column[k++].title, title);
    return same;
}

/* Returns column K of the origin in the file that ORIGIN describes. */
static int column_of(const struct sgrad_origin *origin, int k) { return k + (k >= origin->target_column - 1); }

/* Returns true if the argument ignores COLUMN of FILE. */
static bool is_ignored(const struct sgrad__table *table, int file, int column) {
    const struct sgrad__csv *csv = &table->csv[file];
    for (int i = 0; i < table->wanted.ignores; i++) {
        const char *text = table->wanted.ignored[i];
        const int found = csv->headed ? find_title(csv, text, 0) : -1;
        if ((found >= 0 ? found : number_of(csv, text)) == column) return true;
    }
    return false;
}

static void list_title(FILE *to, int *count, const char *title) { fprintf(to, "%s'%.80s'", (*count)++ ? ", " : "", title); }

/* Sets *TEXT to the difference between the titles of FILE and those of the origin, "lacks the column 'a' and has the unknown
 * column 'b'". The caller must free it. Returns true if a feature is missing. */
static bool differ(const struct sgrad__table *table, int file, char **text) {
    const struct sgrad__csv *csv = &table->csv[file];
    const struct sgrad_origin *o = table->origin;
    char *list[2];
    size_t size;
    int count[2] = { 0, 0 };
    FILE *to = open_memstream(&list[0], &size);
    for (int k = 0; k < o->columns; k++)
        if (table->column[file][k] < 0 && o->column[k].kind != SGRAD_COLUMN_IGNORED)
            list_title(to, &count[0], o->column[k].title);
    fclose(to);
    to = open_memstream(&list[1], &size);
    for (int c = 0; c < csv->columns; c++) {
        bool used = c == table->target[file] || c == table->id_column || is_ignored(table, file, c);
        for (int k = 0; k < o->columns; k++) used |= table->column[file][k] == c;
        if (!used) list_title(to, &count[1], csv->cell[c]);
    }
    fclose(to);
    to = open_memstream(text, &size);
    if (count[0]) fprintf(to, "lacks the %s %s", sgrad_plural(count[0], "column", "columns"), list[0]);
    if (count[0] && count[1]) fputs(" and ", to);
    if (count[1]) fprintf(to, "has the unknown %s %s", sgrad_plural(count[1], "column", "columns"), list[1]);
    fclose(to);
    free(list[0]);
    free(list[1]);
    return count[0] > 0;
}

static int match_titles(struct sgrad__table *table, int file, bool trained) {
    const struct sgrad__csv *csv = &table->csv[file];
    const struct sgrad_origin *o = table->origin;
    char *text;
    const char *from = trained ? "the run's data" : table->path[SGRAD_TRAIN];
    if (trained && table->wanted.column) SGRAD_TRY(find_target(table, file, NULL));
    else table->target[file] = find_title(csv, o->target, same_title(o, o->target, o->target_column - 1));
    for (int k = 0; k < o->columns; k++)
        table->column[file][k] = find_title(csv, o->column[k].title, same_title(o, o->column[k].title, column_of(o, k)));
    if (table->target[file] < 0 && !table->options->every)
        return sgrad_log_error(SGRAD_EFORMAT, "%s: %s: lacks the column '%s', the target of %s", table->kind, table->path[file],
                               o->target, from);
    const bool lacking = differ(table, file, &text);
    int error = 0;
    if (lacking || (*text && !trained))
        error = sgrad_log_error(SGRAD_EFORMAT, "%s: %s: %s; its columns must be those of %s", table->kind, table->path[file],
                                text, from);
    else if (*text)
        sgrad_log_warning("%s: %s: %s; unknown columns are ignored", table->kind, table->path[file], text);
    free(text);
    return error;
}

/* Matches columns by position. The target has the same column as in the training file, unless the argument names another. If all
 * lines are read for prediction (t->every), the file may lack the target. */
static int match_places(struct sgrad__table *table, int file, bool trained) {
    const struct sgrad__csv *csv = &table->csv[file];
    const int columns = table->origin->columns;
    const bool without = table->options->every && csv->columns == columns;
    if (csv->columns != columns + 1 && !without)
        return sgrad_log_error(SGRAD_EFORMAT, "%s: %s: has %d %s, but %s %d %s and a target", table->kind, table->path[file],
                               csv->columns, sgrad_plural(csv->columns, "column", "columns"),
                               trained ? "the run's data have" : "the training data have", columns,
                               sgrad_plural(columns, "feature", "features"));
    if (table->wanted.column && !without) SGRAD_TRY(find_target(table, file, NULL));
    else table->target[file] = without ? -1 : table->origin->target_column - 1;
    for (int c = 0, k = 0; c < csv->columns; c++)
        if (c != table->target[file]) table->column[file][k++] = c;
    return 0;
}

static bool has_titles(const struct sgrad_origin *origin) { return origin->columns && origin->column[0].title; }

/* Makes line 1 a header if it contains the titles of all features, regardless of the cells below it. */
static void find_titles(const struct sgrad__table *table, struct sgrad__csv *csv) {
    const struct sgrad_origin *o = table->origin;
    if (csv->headed || table->wanted.no_header || !has_titles(o) || csv->rows < 2) return;
    for (int k = 0; k < o->columns; k++)
        if (o->column[k].kind != SGRAD_COLUMN_IGNORED && find_title(csv, o->column[k].title, 0) < 0) return;
    csv->headed = true;
    csv->rows--;
}

static int match(struct sgrad__table *table, int file, enum sgrad_split split, bool trained) {
    struct sgrad__csv *csv = &table->csv[file];
    find_titles(table, csv);
    if (table->options->id && (table->one_file || file == (int)split))
        SGRAD_TRY(find_column(table, file, table->options->id, &table->id_column));
    table->column[file] = sgrad_xcalloc((size_t)table->origin->columns + 1, sizeof *table->column[file]);
    return csv->headed && has_titles(table->origin) ? match_titles(table, file, trained) : match_places(table, file, trained);
}

/* Opens the file, or both files of a folder. If the normalisation of features is KNOWN, only the folder's file of SPLIT is
 * opened. */
static int open_files(struct sgrad__table *table, enum sgrad_split split, bool known) {
    SGRAD_TRY(sgrad__table_find(table));
    for (int i = 0; i < 2; i++)
        if (table->one_file ? i == 0 : !known || i == (int)split) SGRAD_TRY(read_files(table, i));
    return 0;
}

/* Sets the origin to that of the network. SGRAD_EFORMAT: the file has fewer columns. */
static int copy_origin(struct sgrad__table *table, enum sgrad_split split) {
    const struct sgrad_origin *trained = table->options->origin;
    const int file = table->one_file ? SGRAD_TRAIN : (int)split, columns = table->csv[file].columns;
    if (!trained->columns && trained->features > columns)
        return sgrad_log_error(SGRAD_EFORMAT, "%s: %s: has %d %s, but the network was trained on %lld features", table->kind,
                               table->path[file], columns, sgrad_plural(columns, "column", "columns"),
                               (long long)trained->features);
    table->origin = sgrad__origin_copy(trained);
    sgrad__origin_add_columns(table->origin);
    return 0;
}

int sgrad__table_open(struct sgrad__table *table, const char *argument, enum sgrad_split split) {
    const struct sgrad_origin *trained = table->options->origin;
    const bool known = trained && trained->features && trained->mean;
    table->warns = (split == SGRAD_TRAIN || trained) && sgrad_launched_rank() == 0; /* warns once, not for both splits */
    table->id_column = -1;
    SGRAD_TRY(read_argument(table->kind, argument, &table->wanted));
    SGRAD_TRY(open_files(table, split, known));
    if (known) SGRAD_TRY(copy_origin(table, split));
    else SGRAD_TRY(describe(table));
    if (!known && table->options->every && sgrad_launched_rank() == 0)
        sgrad_log_warning("%s: %s: the normalisation of the training set is not known, because no config.json of a run is "
                          "beside the weights; the mean and deviation of this file are used",
                          table->kind, table->path[SGRAD_TRAIN]);
    for (int file = 0; file < 2; file++)
        if (table->csv[file].columns) SGRAD_TRY(match(table, file, split, known));
    return 0;
}

void sgrad__table_close(struct sgrad__table *table) {
    for (int i = 0; i < 2; i++) {
        free(table->path[i]);
        sgrad__paths_free(&table->paths[i]);
        free(table->column[i]);
        sgrad__csv_free(&table->csv[i]);
    }
    free(table->wanted.ignored);
    free(table->wanted.category);
    free(table->wanted.text);
    free(table->named);
    free(table->held_out);
    free(table->by_value);
}
