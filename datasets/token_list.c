/* token_list.c: finds the files of a data set of tokens. Such files are called shards if there are several of a split.
 *
 *     tokens:DIR              DIR/train.bin or train.npy; else all files of DIR whose name has the word "train", such as
 *                             fineweb_train_000001.bin or train-00000-of-00010.npy. In the same way for "val". Other files are
 *                             ignored
 *     tokens:PATTERN          the files that the pattern matches (glob, with braces). If it matches no file of "val", the pattern
 *                             with "val" in place of "train" matches them: fineweb_train_*.bin
 *
 * "training" means "train"; "valid" and "validation" mean "val". A word begins at the beginning of a name, or after a character
 * that is neither a letter nor a digit, and ends before a character that is no letter: train0.bin has the word, trains.bin does
 * not. In a pattern, the folder of a file counts if its name has neither word: data/{train,val}/0.bin. */
#include "config.h"
#include "datasets/formats.h"
#include "datasets/token_list.h"
#include "runtime/runtime.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char *const word[2] = { [SGRAD_TRAIN] = "train", [SGRAD_TEST] = "val" };

static bool has_ending(const char *path) {
    const char *point = strrchr(path, '.');
    return point && (!strcmp(point, ".bin") || !strcmp(point, ".npy"));
}

/* Returns the split whose word begins first in the LENGTH bytes of NAME; -1: it has neither word. */
static int split_in(const char *name, size_t length) {
    static const struct {
        const char *text;
        int split;
    } words[] = { { "train", SGRAD_TRAIN }, { "training", SGRAD_TRAIN }, { "val", SGRAD_TEST }, { "valid", SGRAD_TEST },
                  { "validation", SGRAD_TEST } };
    for (size_t i = 0; i < length; i++) {
        size_t letters = 0;
        if (i && isalnum((unsigned char)name[i - 1])) continue;
        while (i + letters < length && isalpha((unsigned char)name[i + letters])) letters++;
        for (size_t w = 0; w < sizeof words / sizeof *words; w++)
            if (letters == strlen(words[w].text) && !strncmp(name + i, words[w].text, letters)) return words[w].split;
    }
    return -1;
}

static const char *name_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Returns the split of the file PATH, by its name, or else by that of its folder; -1: neither has a word. */
static int split_of(const char *path) {
    const char *slash = strrchr(path, '/'), *folder = slash;
    while (folder && folder > path && folder[-1] != '/') folder--;
    const int split = split_in(name_of(path), strlen(name_of(path)));
    return split >= 0 || !folder ? split : split_in(folder, (size_t)(slash - folder));
}

static void add(struct sgrad__token_list *list, int split, char *path) {
    const int n = list->count[split]++;
    list->path[split] = sgrad_array_grow(list->path[split], n, sizeof(char *));
    list->path[split][n] = path;
}

static int by_bytes(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* Lists the files of SPLIT in FOLDER. */
static int find_in_folder(const char *folder, int split, struct sgrad__token_list *list) {
    char *name[] = { sgrad_format("%s/%s.bin", folder, word[split]), sgrad_format("%s/%s.npy", folder, word[split]) };
    struct stat is;
    const bool has[] = { !stat(name[0], &is), !stat(name[1], &is) };
    int error = 0;
    if (has[0] && has[1])
        error = sgrad_log_error(SGRAD_EFORMAT, "tokens: %s and %s both exist; remove one of them", name[0], name[1]);
    for (int i = 0; i < 2; i++) {
        if (!error && has[i])
            add(list, split, name[i]);
        else
            free(name[i]);
    }
    return error;
}

/* Adds the files of FOLDER whose name has the word of SPLIT. */
static int find_by_word(const char *folder, int split, struct sgrad__token_list *list) {
    struct dirent **entry;
    const int entries = scandir(folder, &entry, NULL, NULL);
    if (entries < 0) return sgrad_log_error(SGRAD_EIO, "tokens: %s: %s", folder, strerror(errno));
    for (int i = 0; i < entries; i++) {
        const char *name = entry[i]->d_name;
        if (has_ending(name) && split_in(name, strlen(name)) == split) add(list, split, sgrad_format("%s/%s", folder, name));
        free(entry[i]);
    }
    free(entry);
    return 0;
}

/* Adds the files that PATTERN matches. ONLY: those of this split; -1: of both. */
static int match(const char *pattern, int only, struct sgrad__token_list *list) {
    glob_t found = { 0 };
    const int failed = glob(pattern, GLOB_BRACE | GLOB_NOSORT, NULL, &found);
    int error = 0;
    if (failed && failed != GLOB_NOMATCH) error = sgrad_log_error(SGRAD_EIO, "tokens: %s: %s", pattern, strerror(errno));
    for (size_t i = 0; !failed && i < found.gl_pathc && !error; i++) {
        const char *path = found.gl_pathv[i];
        const int split = has_ending(path) ? split_of(path) : -1;
        if (split >= 0 && (only < 0 || split == only))
            add(list, split, sgrad_format("%s", path));
        else if (has_ending(path) && split < 0)
            error =
                sgrad_log_error(SGRAD_EFORMAT, "tokens: %s: neither its name nor its folder's has the word train or val", path);
    }
    globfree(&found);
    return error;
}

/* Returns a copy of PATTERN with "val" in place of each "train" after the last slash; NULL: there is none. */
static char *other_pattern(const char *pattern) {
    const char *slash = strrchr(pattern, '/'), *at = slash ? slash + 1 : pattern, *next = strstr(at, word[SGRAD_TRAIN]);
    if (!next) return NULL;
    char *result = sgrad_format("%.*s", (int)(at - pattern), pattern);
    for (; next; at = next + strlen(word[SGRAD_TRAIN]), next = strstr(at, word[SGRAD_TRAIN])) {
        char *longer = sgrad_format("%s%.*s%s", result, (int)(next - at), at, word[SGRAD_TEST]);
        free(result);
        result = longer;
    }
    char *all = sgrad_format("%s%s", result, at);
    free(result);
    return all;
}

static int find(const char *source, struct sgrad__token_list *list) {
    if (!sgrad__is_folder(source)) {
        SGRAD_TRY(match(source, -1, list));
        char *other = list->count[SGRAD_TEST] ? NULL : other_pattern(source);
        const int error = other ? match(other, SGRAD_TEST, list) : 0;
        free(other);
        return error;
    }
    for (int split = 0; split < 2; split++) {
        SGRAD_TRY(find_in_folder(source, split, list));
        if (!list->count[split]) SGRAD_TRY(find_by_word(source, split, list));
    }
    return 0;
}

/* Refuses a split without files, and files of the same name with different endings. */
static int check(const char *source, const struct sgrad__token_list *list) {
    const bool folder = sgrad__is_folder(source);
    struct stat is;
    for (int split = 0; split < 2; split++) {
        char *const *path = list->path[split];
        if (!list->count[split] && folder)
            return sgrad_log_error(SGRAD_EIO, "tokens: %s: neither %s.bin nor %s.npy exists; " SGRAD__TOKENS_WANTED, source,
                                   word[split], word[split]);
        if (!list->count[split] && !strpbrk(source, "*?[{") && stat(source, &is))
            return sgrad_log_error(SGRAD_EIO, "tokens: %s: %s; " SGRAD__TOKENS_WANTED, source, strerror(errno));
        if (!list->count[split])
            return sgrad_log_error(SGRAD_EIO, "tokens: %s: no file that it matches has the word %s in its name; "
                                   SGRAD__TOKENS_WANTED, source, word[split]);
        for (int i = 0; i + 1 < list->count[split]; i++) {
            if (!strcmp(path[i], path[i + 1]))
                return sgrad_log_error(SGRAD_EINVAL, "tokens: %s: matches %s twice; give a pattern that matches each file once",
                                       source, path[i]);
            const size_t stem = strlen(path[i]) - strlen(".bin");
            if (strlen(path[i + 1]) == stem + strlen(".bin") && !strncmp(path[i], path[i + 1], stem))
                return sgrad_log_error(SGRAD_EFORMAT, "tokens: %s and %s both exist; remove one of them", path[i], path[i + 1]);
        }
    }
    return 0;
}

int sgrad__token_list_find(const char *source, struct sgrad__token_list *list) {
    *list = (struct sgrad__token_list){ .count = { 0, 0 } };
    SGRAD_TRY(find(source, list));
    for (int split = 0; split < 2; split++)
        if (list->count[split]) qsort(list->path[split], (size_t)list->count[split], sizeof(char *), by_bytes);
    return check(source, list);
}

void sgrad__token_list_free(struct sgrad__token_list *list) {
    for (int split = 0; split < 2; split++) {
        for (int i = 0; i < list->count[split]; i++) free(list->path[split][i]);
        free(list->path[split]);
    }
    *list = (struct sgrad__token_list){ .count = { 0, 0 } };
}

char *sgrad__token_folder(const char *source) {
    const char *slash = strrchr(source, '/');
    if (sgrad__is_folder(source)) return sgrad_format("%s", source);
    return slash ? sgrad_format("%.*s", (int)(slash - source) + (slash == source), source) : sgrad_format(".");
}
