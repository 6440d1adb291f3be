/* answer.c: how every command answers: one line on standard error, an exit status, JSON, a folder for what it leaves. */
#include "cli/cli.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int sgrad__wrong(const char *format, ...) {
    va_list list;
    char text[1024];
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    sgrad_fail(SGRAD_EINVAL, "%s", text);
    return SGRAD__USAGE;
}

int sgrad__no_such(const char *command, const char *what, const char *word, const char *const *names, const char *dashes) {
    const char *nearest = sgrad_nearest(word + (*dashes ? strspn(word, "-") : 0), names);
    const char *begin = *command ? ": " : "", *gap = *command ? " " : "";
    if (nearest) return sgrad__wrong("%s%sno %s '%s'; did you mean %s%s?", command, begin, what, word, dashes, nearest);
    return sgrad__wrong("%s%sno %s '%s'; see stargrad %s%s--help", command, begin, what, word, command, gap);
}

int sgrad__out_make(const char *path) {
    char *name = sgrad_format("%s", path);
    int error = 0;
    for (char *slash = name; slash && !error;) {
        slash = strchr(slash + 1, '/');
        if (slash) *slash = 0;
        if (mkdir(name, 0777) && errno != EEXIST) error = sgrad_fail(SGRAD_EIO, "%s: cannot be made: %s", name, strerror(errno));
        if (slash) *slash = '/';
    }
    free(name);
    return error;
}

int sgrad__status(int error) {
    if (!error) return SGRAD__DONE;
    return error == SGRAD_ENAME || error == SGRAD_EINVAL ? SGRAD__USAGE : SGRAD__FAILED;
}

void sgrad__print_json(json_t *result) {
    json_dumpf(result, stdout, JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(9));
    putchar('\n');
    json_decref(result);
}
