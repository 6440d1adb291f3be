/* csv_columns.c: parses the argument of the reader, opens the files, finds headers, and matches columns with features and target.
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
#include <strings.h>
#include <sys/stat.h>

#define FILE_LIMIT ((size_t)1 << 31)
#define WANTED     "give csv:FILE[,COLUMN][,classes|numbers][,header|no-header]"

/* ---- the argument ---------------------------------------------------------------------------------------------------- */

static bool take_keyword(struct sgrad__csv_wanted *wanted, const char *word) {
    const struct {
        const char *name;
        bool *is;
    } known[] = {
        { "classes", &wanted->classes },
        { "numbers", &wanted->numbers },
        { "header", &wanted->header },
        { "no-header", &wanted->no_header },
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(word, known[i].name)) return *known[i].is = true;
    return false;
}

/* Splits ARGUMENT into keywords, from the end on, and FILE or FILE,COLUMN. The name of an existing file may contain commas.
 * SGRAD_EINVAL: two keywords exclude each other. */
static int read_argument(const char *argument, struct sgrad__csv_wanted *wanted) {
    struct stat status;
    wanted->path = sgrad_format("%s", argument);
    for (char *comma; (comma = strrchr(wanted->path, ',')) && stat(wanted->path, &status) && take_keyword(wanted, comma + 1);)
        *comma = 0;
    if (wanted->classes && wanted->numbers)
        return sgrad_log_error(SGRAD_EINVAL, "csv:%s: classes cannot be combined with numbers", argument);
    if (wanted->header && wanted->no_header)
        return sgrad_log_error(SGRAD_EINVAL, "csv:%s: header cannot be combined with no-header", argument);
    char *comma = stat(wanted->path, &status) ? strchr(wanted->path, ',') : NULL;
    while (comma) {                     /* the first comma after the name of an existing file */
        *comma = 0;
        if (!stat(wanted->path, &status)) break;
        *comma = ',';
        comma = strchr(comma + 1, ',');
    }
    if (!comma && stat(wanted->path, &status) && (comma = strchr(wanted->path, ','))) *comma = 0;
    if (comma && comma[1]) wanted->column = comma + 1;
    return 0;
}

/* ---- header and columns ---------------------------------------------------------------------------------------------- */

bool sgrad__csv_missing(const char *cell) {
    static const char *const known[] = { "", "?", "-", "na", "n/a", "nan", "null", "none", "inf", "-inf", "#n/a" };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcasecmp(cell, known[i])) return true;
    return false;
}

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
    for (int c = 0; c < csv->columns && !csv->headed; c++) csv->headed = c != target && is_titled(csv, c);
    if (w->no_header) csv->headed = false;
    else if (!csv->headed && counts(csv) && table->warns)
        sgrad_log_warning(
            "csv: %s: line %lld (%s,%s,…) is read as a sample; append ,header to --data if it names the columns, otherwise "
            ",no-header",
            path, (long long)csv->line[0], csv->cell[0], csv->cell[1]);
    if (csv->latin && table->warns) sgrad_log_warning("csv: %s: is not UTF-8; it is read as Latin-1", path);
    if (csv->cut && table->warns) sgrad_log_warning("csv: %s: every line ends with an empty cell; this column is ignored", path);
    csv->rows -= csv->headed;
    return csv->rows > 0 ? 0 : sgrad_log_error(SGRAD_EFORMAT, "csv: %s: has no line of numbers", path);
}

static int read_file(const struct sgrad__table *table, const char *path, struct sgrad__csv *csv) {
    struct sgrad_map map;
    SGRAD_TRY(sgrad_map_open(path, FILE_LIMIT, &map));
    int error = sgrad__csv_parse(path, map.data, map.size, csv);
    sgrad_map_close(&map);
    return error ? error : find_header(table, path, csv);
}

/* Finds the target's column in FILE by the argument: a title or a number; default: the last column. SGRAD_EINVAL: there is no
 * such column, or two have the title. SGRAD_EFORMAT: the file has one column. */
static int find_target(struct sgrad__table *table, int file) {
    const struct sgrad__csv *csv = &table->csv[file];
    const char *column = table->wanted.column;
    int target = column && csv->headed ? find_title(csv, column, 0) : -1;
    if (target >= 0 && find_title(csv, column, 1) >= 0)
        return sgrad_log_error(SGRAD_EINVAL,
                               "csv: %s: columns %d and %d are both called '%s'; give the number of the target's column, from 1",
                               table->path[file], target + 1, find_title(csv, column, 1) + 1, column);
    if (target < 0) target = column ? number_of(csv, column) : csv->columns - 1;
    if (target < 0) return sgrad_log_error(SGRAD_EINVAL, "csv: %s: has no column '%s'; " WANTED, table->path[file], column);
    if (csv->columns < 2)
        return sgrad_log_error(
            SGRAD_EFORMAT,
            "csv: %s: has one column, but must have features and a target, separated by commas, semicolons or tabs",
            table->path[file]);
    table->target[file] = target;
    return 0;
}

/* Describes the columns of the training file in t->origin. Other files are matched with this description. */
static int describe(struct sgrad__table *table) {
    const struct sgrad__csv *csv = &table->csv[SGRAD_TRAIN];
    SGRAD_TRY(find_target(table, SGRAD_TRAIN));
    const int target = table->target[SGRAD_TRAIN];
    struct sgrad_origin *o = table->origin = sgrad_xcalloc(1, sizeof *o);
    o->features = o->groups = csv->columns - 1;
    o->target_column = target + 1;
    if (!csv->headed) return 0;
    o->target = sgrad_format("%s", csv->cell[target]);
    o->title = sgrad_xcalloc((size_t)o->features + 1, sizeof *o->title);
    for (int c = 0, f = 0; c < csv->columns; c++)
        if (c != target) o->title[f++] = sgrad_format("%s", csv->cell[c]);
    return 0;
}

/* Returns how many of the first COLUMNS columns that ORIGIN describes have the title TITLE. Columns with the same title are
 * matched in order. */
static int same_title(const struct sgrad_origin *origin, const char *title, int columns) {
    int same = 0;
    for (int c = 0, f = 0; c < columns; c++)
        same += !strcmp(c == origin->target_column - 1 ? origin->target : origin->title[f++], title);
    return same;
}

/* Returns the column of feature F in the file that ORIGIN describes. */
static int column_of(const struct sgrad_origin *origin, int f) { return f + (f >= origin->target_column - 1); }

static void list_title(FILE *to, int *count, const char *title) { fprintf(to, "%s'%.80s'", (*count)++ ? ", " : "", title); }

/* Sets *TEXT to the difference between the titles of FILE and those of the origin, "lacks the column 'a' and has the unknown
 * column 'b'". The caller must free it. Returns true if a feature is missing. */
static bool differ(const struct sgrad__table *table, int file, char **text) {
    const struct sgrad__csv *csv = &table->csv[file];
    char *list[2];
    size_t size;
    int count[2] = { 0, 0 };
    FILE *to = open_memstream(&list[0], &size);
    for (int f = 0; f < table->origin->features; f++)
        if (table->column[file][f] < 0) list_title(to, &count[0], table->origin->title[f]);
    fclose(to);
    to = open_memstream(&list[1], &size);
    for (int c = 0; c < csv->columns; c++) {
        bool used = c == table->target[file];
        for (int f = 0; f < table->origin->features; f++) used |= table->column[file][f] == c;
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
    if (trained && table->wanted.column) SGRAD_TRY(find_target(table, file));
    else table->target[file] = find_title(csv, o->target, same_title(o, o->target, o->target_column - 1));
    for (int f = 0; f < o->features; f++)
        table->column[file][f] = find_title(csv, o->title[f], same_title(o, o->title[f], column_of(o, f)));
    if (table->target[file] < 0 && !table->every)
        return sgrad_log_error(SGRAD_EFORMAT, "csv: %s: lacks the column '%s', the target of %s", table->path[file], o->target,
                               from);
    const bool lacking = differ(table, file, &text);
    int error = 0;
    if (lacking || (*text && !trained))
        error = sgrad_log_error(SGRAD_EFORMAT, "csv: %s: %s; its columns must be those of %s", table->path[file], text, from);
    else if (*text)
        sgrad_log_warning("csv: %s: %s; unknown columns are ignored", table->path[file], text);
    free(text);
    return error;
}

/* Matches columns by position. The target has the same column as in the training file, unless the argument names another. If all
 * lines are read for prediction (t->every), the file may lack the target. */
static int match_places(struct sgrad__table *table, int file, bool trained) {
    const struct sgrad__csv *csv = &table->csv[file];
    const int64_t features = table->origin->features;
    const bool without = table->every && csv->columns == features;
    if (csv->columns != features + 1 && !without)
        return sgrad_log_error(SGRAD_EFORMAT, "csv: %s: has %d %s, but %s %lld %s and a target", table->path[file], csv->columns,
                               sgrad_plural(csv->columns, "column", "columns"),
                               trained ? "the run's data have" : "the training data have", (long long)features,
                               sgrad_plural(features, "feature", "features"));
    if (table->wanted.column && !without) SGRAD_TRY(find_target(table, file));
    else table->target[file] = without ? -1 : table->origin->target_column - 1;
    for (int c = 0, f = 0; c < csv->columns; c++)
        if (c != table->target[file]) table->column[file][f++] = c;
    return 0;
}

/* Makes line 1 a header if it contains the titles of all features, regardless of the cells below it. */
static void find_titles(const struct sgrad__table *table, struct sgrad__csv *csv) {
    if (csv->headed || table->wanted.no_header || !table->origin->title || csv->rows < 2) return;
    for (int f = 0; f < table->origin->features; f++)
        if (find_title(csv, table->origin->title[f], 0) < 0) return;
    csv->headed = true;
    csv->rows--;
}

static int match(struct sgrad__table *table, int file, bool trained) {
    find_titles(table, &table->csv[file]);
    table->column[file] = sgrad_xcalloc((size_t)table->origin->features, sizeof *table->column[file]);
    return table->csv[file].headed && table->origin->title ? match_titles(table, file, trained)
                                                           : match_places(table, file, trained);
}

/* Opens the file, or both files of a folder. If the normalisation of features is KNOWN, only the folder's file of SPLIT is
 * opened. */
static int open_files(struct sgrad__table *table, enum sgrad_split split, bool known) {
    static const char *const name[] = { [SGRAD_TRAIN] = "train.csv", [SGRAD_TEST] = "test.csv" };
    struct stat status;
    table->one_file = stat(table->wanted.path, &status) || !S_ISDIR(status.st_mode);
    for (int i = 0; i < 2; i++) {
        table->path[i] =
            table->one_file ? sgrad_format("%s", table->wanted.path) : sgrad_format("%s/%s", table->wanted.path, name[i]);
        if (table->one_file ? i == 0 : !known || i == (int)split) SGRAD_TRY(read_file(table, table->path[i], &table->csv[i]));
    }
    return 0;
}

int sgrad__table_open(struct sgrad__table *table, const char *argument, enum sgrad_split split,
                      const struct sgrad_origin *trained) {
    const bool known = trained && trained->features && trained->mean;
    table->warns = (split == SGRAD_TRAIN || trained) && sgrad_launched_rank() == 0; /* warns once, not for both splits */
    SGRAD_TRY(read_argument(argument, &table->wanted));
    SGRAD_TRY(open_files(table, split, known));
    if (known) table->origin = sgrad__origin_copy(trained);
    else SGRAD_TRY(describe(table));
    for (int file = 0; file < 2; file++)
        if (table->csv[file].columns) SGRAD_TRY(match(table, file, known));
    return 0;
}

void sgrad__table_close(struct sgrad__table *table) {
    for (int i = 0; i < 2; i++) {
        free(table->path[i]);
        free(table->column[i]);
        sgrad__csv_free(&table->csv[i]);
    }
    free(table->wanted.path);
}
