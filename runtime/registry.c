/* registry.c: records by name: models, optimizers, data set readers, …; the name most similar to a wrong one. */
#include "runtime/runtime.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static bool same(char a, char b) { return tolower((unsigned char)a) == tolower((unsigned char)b); }

/* Levenshtein distance, in which the transposition of two adjacent letters is one error; case is ignored. */
static size_t distance(const char *a, const char *b) {
    size_t m = strlen(a), n = strlen(b);
    size_t row[3][64];
    if (n >= 64 || m >= 64) return 64;
    for (size_t j = 0; j <= n; j++) row[0][j] = j;
    for (size_t i = 1; i <= m; i++) {
        size_t *now = row[i % 3], *before = row[(i - 1) % 3], *earlier = row[(i + 1) % 3];
        now[0] = i;
        for (size_t j = 1; j <= n; j++) {
            size_t best = before[j - 1] + !same(a[i - 1], b[j - 1]);
            if (before[j] + 1 < best) best = before[j] + 1;
            if (now[j - 1] + 1 < best) best = now[j - 1] + 1;
            if (i > 1 && j > 1 && same(a[i - 1], b[j - 2]) && same(a[i - 2], b[j - 1]) && earlier[j - 2] + 1 < best)
                best = earlier[j - 2] + 1;
            now[j] = best;
        }
    }
    return row[m % 3][n];
}

/* The maximum number of errors is half the letters of a word of less than six, a third of those of a longer word. */
const char *sgrad_suggest(const char *word, const char *const *names) {
    const char *nearest = NULL;
    const size_t length = strlen(word);
    size_t least = (length < 6 ? length / 2 : length / 3) + 1;
    for (; *names; names++) {
        size_t d = distance(word, *names);
        if (d < least) {
            least = d;
            nearest = *names;
        }
    }
    return nearest;
}

/* Returns the argument of "stargrad list" for the records of a kind; NULL: there is none. */
static const char *list_of(const char *what) {
    static const char *const lists[][2] = {
        { "model", "models" }, { "operation", "ops" }, { "optimizer", "optimizers" }, { "dataset", "datasets" },
        { "strategy", "strategies" }, { "allreduce", "allreduce" }, { "hash", "hashes" },
    };
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        if (strcmp(lists[i][0], what) == 0) return lists[i][1];
    return NULL;
}

const void *sgrad_registry_get(const char *name, const void *records) {
    const char *const *const *record = records;     /* a record's first member is its name */
    while (*record && strcmp(**record, name) != 0) record++;
    return *record;
}

int sgrad_registry_refuse(const char *what, const char *name, const void *records) {
    const char *const *const *record = records;
    int count = 0;
    while (record[count]) count++;
    const char **names = sgrad_xcalloc((size_t)count + 1, sizeof *names);
    for (int i = 0; i < count; i++) names[i] = *record[i];
    const char *near = sgrad_suggest(name, names), *list = list_of(what);
    if (near)
        sgrad_log_error(SGRAD_ENAME, "unknown %s '%s'; did you mean '%s'?", what, name, near);
    else if (list)
        sgrad_log_error(SGRAD_ENAME, "unknown %s '%s'; see 'stargrad list %s'", what, name, list);
    else
        sgrad_log_error(SGRAD_ENAME, "unknown %s '%s'", what, name);
    free(names);
    return SGRAD_ENAME;
}

const void *sgrad_registry_find(const char *what, const char *name, const void *records) {
    const void *found = sgrad_registry_get(name, records);
    if (!found) sgrad_registry_refuse(what, name, records);
    return found;
}
