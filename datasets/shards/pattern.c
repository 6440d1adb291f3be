/* pattern.c: expands a pattern to the paths of the shards of a split: tar archives, or files of another KIND.
 *
 *     d/{train,val}-{00..02}.tar           train:  d/train-00.tar  d/train-01.tar  d/train-02.tar
 *                                          val:    d/val-00.tar  d/val-01.tar  d/val-02.tar
 *     d/{train-{0..9},val-{0..1}}.tar      groups may be nested
 *     d/part-*.tar                         train: the files that match, sorted by their bytes
 *     d                                    a folder: d/train*.KIND, also with .gz or .zst; val and test likewise
 *
 * The order of groups and ranges is that of the text. A range whose first or last number begins with 0 has numbers of equal
 * length, as in Bash. A path that exists is not expanded, whatever its characters. */
#include "config.h"
#include "datasets/shards/pattern.h"
#include "runtime/runtime.h"

#include <ctype.h>
#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { SHARDS_LIMIT = 1 << 17, STEPS_LIMIT = 1 << 20, LENGTH_LIMIT = 4096, DIGITS_LIMIT = 9 };

static const char *const split_names[][3] = { { "train", "training", NULL },
                                              { "val", "valid", "validation" },
                                              { "test", "testing", NULL } };

void sgrad__paths_free(struct sgrad__paths *paths) {
    for (int64_t i = 0; i < paths->count; i++) free(paths->path[i]);
    free(paths->path);
    *paths = (struct sgrad__paths){ 0 };
}

/* A pattern, and the kind of its files. */
struct naming {
    const char *kind, *pattern;
};

static int too_many(const struct naming *of) {
    return sgrad_log_error(SGRAD_EINVAL, "data set %s:%s: names more than %d shards", of->kind, of->pattern, SHARDS_LIMIT);
}

static int add(struct sgrad__paths *paths, const struct naming *of, char *path) {
    if (paths->count == SHARDS_LIMIT) {
        free(path);
        return too_many(of);
    }
    paths->path = sgrad_array_grow(paths->path, (int)paths->count, sizeof *paths->path);
    paths->path[paths->count++] = path;
    return 0;
}

/* ---- braces -------------------------------------------------------------------------------------------------------- */

/* What is expanded, and its result. */
struct expansion {
    const struct naming *of;
    const char *part;
    struct sgrad__paths *words;
    int steps; /* groups that were expanded, also those of other splits */
};

/* Returns the split that the SIZE bytes at TEXT begin with, an index of split_names; -1: none. */
static int split_of(const char *text, size_t size) {
    size_t letters = 0;
    while (letters < size && isalpha((unsigned char)text[letters])) letters++;
    for (int split = 0; split < 3; split++)
        for (int n = 0; n < 3 && split_names[split][n]; n++)
            if (strlen(split_names[split][n]) == letters && !strncmp(text, split_names[split][n], letters)) return split;
    return -1;
}

/* Returns the end of the alternative at TEXT: a comma or a closing brace that is not inside of another group; NULL: there is
 * none. */
static const char *end_of(const char *text) {
    for (int depth = 0; *text; text++) {
        if (!depth && (*text == ',' || *text == '}')) return text;
        depth += (*text == '{') - (*text == '}');
    }
    return NULL;
}

/* Parses "{FIRST..LAST}" at TEXT. Returns its length; 0: it is no range. */
static size_t parse_range(const char *text, long *first, long *last, int *width) {
    const char *one = text + 1, *dots = one + strspn(one, "0123456789");
    if (dots == one || strncmp(dots, "..", 2)) return 0;
    const char *other = dots + 2, *end = other + strspn(other, "0123456789");
    if (end == other || *end != '}' || dots - one > DIGITS_LIMIT || end - other > DIGITS_LIMIT) return 0;
    const bool padded = (*one == '0' && dots - one > 1) || (*other == '0' && end - other > 1);
    *first = strtol(one, NULL, 10);
    *last = strtol(other, NULL, 10);
    *width = !padded ? 0 : (int)(dots - one > end - other ? dots - one : end - other);
    return (size_t)(end + 1 - text);
}

static int expand(struct expansion *of, const char *done, const char *rest);

/* Expands the range at OPEN, of LENGTH bytes, after the text BEFORE. */
static int expand_range(struct expansion *of, const char *before, const char *open, size_t length, long first, long last,
                        int width) {
    if (first > last || last - first >= SHARDS_LIMIT)
        return sgrad_log_error(SGRAD_EINVAL, "data set %s:%s: the range %.*s must ascend, by at most %d numbers", of->of->kind,
                               of->of->pattern, (int)length, open, SHARDS_LIMIT);
    int error = 0;
    for (long n = first; n <= last && !error; n++) {
        char *done = sgrad_format("%s%0*ld", before, width, n);
        error = expand(of, done, open + length);
        free(done);
    }
    return error;
}

/* Returns true if all alternatives of the group at OPEN begin with the name of a split. *CLOSE: its closing brace; NULL: it has
 * none. *ALTERNATIVES: their number. */
static bool is_of_splits(const char *open, const char **close, int *alternatives) {
    bool splits = true;
    *alternatives = 0;
    for (const char *at = open + 1;; at++) {
        const char *end = *close = end_of(at);
        if (!end) return false;
        splits &= split_of(at, (size_t)(end - at)) >= 0;
        ++*alternatives;
        if (*(at = end) == '}') return splits;
    }
}

/* Returns true if an alternative of the group from OPEN to CLOSE begins with the name of PART. */
static bool has_alternative(const char *open, const char *close, const char *part) {
    for (const char *at = open + 1, *end; at <= close; at = end + 1) {
        end = end_of(at);
        if (split_of(at, (size_t)(end - at)) == split_of(part, strlen(part))) return true;
    }
    return false;
}

/* Expands the group at OPEN after the text BEFORE. */
static int expand_group(struct expansion *of, const char *before, const char *open) {
    const char *close;
    int alternatives, error = 0;
    const bool splits = is_of_splits(open, &close, &alternatives);
    if (!close) return sgrad_log_error(SGRAD_EINVAL, "data set %s:%s: a brace is not closed", of->of->kind, of->of->pattern);
    if (alternatives == 1 && !splits)
        return sgrad_log_error(SGRAD_EINVAL, "data set %s:%s: %.*s must be a list, {a,b}, or a range, {000..099}", of->of->kind,
                               of->of->pattern, (int)(close + 1 - open), open);
    for (const char *at = open + 1, *end; !error && at <= close; at = end + 1) {
        end = end_of(at);
        if (splits && split_of(at, (size_t)(end - at)) != split_of(of->part, strlen(of->part))) continue;
        char *rest = sgrad_format("%.*s%s", (int)(end - at), at, close + 1);
        error = expand(of, before, rest);
        free(rest);
    }
    return error;
}

/* Adds the words of REST, each after the text DONE. */
static int expand(struct expansion *of, const char *done, const char *rest) {
    const char *open = strchr(rest, '{');
    long first, last;
    int width;
    if (!open) return add(of->words, of->of, sgrad_format("%s%s", done, rest));
    if (++of->steps > STEPS_LIMIT) return too_many(of->of);
    char *before = sgrad_format("%s%.*s", done, (int)(open - rest), rest);
    const size_t length = parse_range(open, &first, &last, &width);
    const int error = length ? expand_range(of, before, open, length, first, last, width) : expand_group(of, before, open);
    free(before);
    return error;
}

/* Returns true if PATTERN has a group of splits. */
static bool has_splits(const char *pattern) {
    const char *close;
    int alternatives;
    for (const char *open = pattern; (open = strchr(open, '{')); open++)
        if (is_of_splits(open, &close, &alternatives)) return true;
    return false;
}

int sgrad__pattern_words(const char *kind, const char *pattern, const char *part, struct sgrad__paths *words) {
    const struct naming of = { kind, pattern };
    struct expansion expansion = { &of, part, words, 0 };
    if (strlen(pattern) > LENGTH_LIMIT)
        return sgrad_log_error(SGRAD_EINVAL, "data set %s: the pattern must have at most %d bytes", kind, LENGTH_LIMIT);
    if (!has_splits(pattern) && strcmp(part, "train")) return 0;
    return expand(&expansion, "", pattern);
}

/* ---- files --------------------------------------------------------------------------------------------------------- */

static bool exists(const char *path, mode_t kind) {
    struct stat status;
    return !stat(path, &status) && (status.st_mode & S_IFMT) == kind;
}

static int by_bytes(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* Appends the files that match WORD, a pattern of the shell, sorted. FLAGS: of glob. *MATCHES: their number. */
static int add_matches(struct sgrad__paths *paths, const struct naming *of, const char *word, int flags, int64_t *matches) {
    glob_t found = { 0 };
    int error = 0;
    const int result = glob(word, GLOB_NOSORT | flags, NULL, &found);
    if (result && result != GLOB_NOMATCH)
        error = sgrad_log_error(SGRAD_EIO, "data set %s:%s: %s cannot be searched: %s", of->kind, of->pattern, word,
                                strerror(errno));
    *matches = (int64_t)found.gl_pathc;
    if (found.gl_pathc) qsort(found.gl_pathv, found.gl_pathc, sizeof *found.gl_pathv, by_bytes);
    for (size_t i = 0; i < found.gl_pathc && !error; i++) error = add(paths, of, sgrad_format("%s", found.gl_pathv[i]));
    globfree(&found);
    return error;
}

char *sgrad__pattern_in(const char *folder, const char *pattern) {
    char *quoted = sgrad_xcalloc(2 * strlen(folder) + 1, 1), *to = quoted;
    for (const char *c = folder; *c; c++) {
        if (strchr("*?[]{}\\", *c)) *to++ = '\\';
        *to++ = *c;
    }
    char *all = sgrad_format("%s/%s", quoted, pattern);
    free(quoted);
    return all;
}

/* Appends PART*.KIND and the same with .gz and .zst in the folder, sorted together. */
static int add_folder(struct sgrad__paths *paths, const struct naming *of, const char *part) {
    static const char *const endings[] = { "", ".gz", ".zst" };
    int error = 0;
    for (size_t i = 0; i < sizeof endings / sizeof *endings && !error; i++) {
        int64_t matches;
        char *names = sgrad_format("%s*.%s%s", part, of->kind, endings[i]), *word = sgrad__pattern_in(of->pattern, names);
        error = add_matches(paths, of, word, 0, &matches);
        free(word);
        free(names);
    }
    if (paths->count) qsort(paths->path, (size_t)paths->count, sizeof *paths->path, by_bytes);
    return error;
}

bool sgrad__pattern_has(const char *kind, const char *pattern, const char *part) {
    struct sgrad__paths paths = { 0 };
    const char *close;
    int alternatives;
    bool has = true, splits = false;
    if (exists(pattern, S_IFDIR)) {
        add_folder(&paths, &(struct naming){ kind, pattern }, part);
        has = paths.count > 0;
        sgrad__paths_free(&paths);
        return has;
    }
    for (const char *open = pattern; (open = strchr(open, '{')) && !exists(pattern, S_IFREG); open++) {
        if (!is_of_splits(open, &close, &alternatives)) continue;
        splits = true;
        has &= has_alternative(open, close, part);
    }
    return splits ? has : !strcmp(part, "train");
}

/* Returns the length of PATH without the ending of a compressed file. */
static size_t stem_length(const char *path) {
    const size_t length = strlen(path);
    if (length > 3 && !strcmp(path + length - 3, ".gz")) return length - 3;
    return length > 4 && !strcmp(path + length - 4, ".zst") ? length - 4 : length;
}

static int by_stem(const void *a, const void *b) {
    const char *one = *(char *const *)a, *other = *(char *const *)b;
    const size_t first = stem_length(one), second = stem_length(other);
    const int order = strncmp(one, other, first < second ? first : second);
    return order ? order : (first > second) - (first < second);
}

/* Checks that each shard occurs only once, compressed or not. */
static int check_distinct(const struct sgrad__paths *paths, const struct naming *of) {
    char **sorted = sgrad_xcalloc((size_t)paths->count + 1, sizeof *sorted);
    int error = 0;
    for (int64_t i = 0; i < paths->count; i++) sorted[i] = paths->path[i];
    qsort(sorted, (size_t)paths->count, sizeof *sorted, by_stem);
    for (int64_t i = 1; i < paths->count && !error; i++)
        if (!by_stem(&sorted[i - 1], &sorted[i]))
            error = sgrad_log_error(SGRAD_EINVAL, "data set %s:%s: names a shard twice: %s and %s", of->kind, of->pattern,
                                    sorted[i - 1], sorted[i]);
    free(sorted);
    return error;
}

/* Appends the files that WORD, which has no braces, names. */
static int add_word(struct sgrad__paths *shards, const struct naming *of, const char *word) {
    struct stat status;
    int64_t matches = 0;
    if (strpbrk(word, "*?[") && !exists(word, S_IFREG)) {
        SGRAD_TRY(add_matches(shards, of, word, GLOB_NOESCAPE, &matches));
        return matches ? 0 : sgrad_log_error(SGRAD_EIO, "data set %s:%s: no file matches %s", of->kind, of->pattern, word);
    }
    const bool there = !stat(word, &status);
    if (!there || !S_ISREG(status.st_mode))
        return sgrad_log_error(SGRAD_EIO, "data set %s:%s: %s: %s", of->kind, of->pattern, word,
                               there ? "not a regular file" : strerror(errno));
    return add(shards, of, sgrad_format("%s", word));
}

int sgrad__pattern_expand(const char *kind, const char *pattern, const char *part, struct sgrad__paths *shards) {
    const struct naming of = { kind, pattern };
    if (exists(pattern, S_IFDIR))
        SGRAD_TRY(add_folder(shards, &of, part));
    else if (exists(pattern, S_IFREG))
        SGRAD_TRY(add(shards, &of, sgrad_format("%s", pattern)));
    else {
        struct sgrad__paths words = { 0 };
        int error = sgrad__pattern_words(kind, pattern, part, &words);
        for (int64_t i = 0; i < words.count && !error; i++) error = add_word(shards, &of, words.path[i]);
        sgrad__paths_free(&words);
        SGRAD_TRY(error);
    }
    return shards->count ? check_distinct(shards, &of) : 0;
}

int sgrad__pattern_refuse(const char *kind, const char *pattern, const char *part) {
    if (!strcmp(part, "train"))
        return sgrad_log_error(SGRAD_EIO,
                               "data set %s:%s: names no training shards; give %s:DIR, where DIR contains train*.%s and "
                               "val*.%s, or a pattern, such as %s:DIR/{train,val}-*.%s",
                               kind, pattern, kind, kind, kind, kind, kind);
    return sgrad_log_error(SGRAD_EIO,
                           "data set %s:%s: names no shards of the split %s; give a pattern that does, such as "
                           "%s:DIR/{train,%s}-*.%s%s",
                           kind, pattern, part, kind, part, kind,
                           strcmp(part, "val") ? "" : ", or hold out training samples with --split 0.1");
}
