/* answer.c: output that all commands have in common: a line on standard error, an exit status, JSON. */
#include "cli/cli.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

int sgrad__wrong(const char *format, ...) {
    va_list list;
    char text[1024];
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    sgrad_log_error(SGRAD_EINVAL, "%s", text);
    return SGRAD__USAGE;
}

int sgrad__no_such(const char *command, const char *what, const char *word, const char *const *names, const char *dashes) {
    const char *nearest = sgrad_suggest(word + (*dashes ? strspn(word, "-") : 0), names);
    const char *begin = *command ? ": " : "", *gap = *command ? " " : "";
    if (nearest) return sgrad__wrong("%s%sunknown %s '%s'; did you mean %s%s?", command, begin, what, word, dashes, nearest);
    return sgrad__wrong("%s%sunknown %s '%s'; see stargrad %s%s--help", command, begin, what, word, command, gap);
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
