/* libraries.c: the table of optional libraries, and the message about a missing one. */
#include "config.h"
#include "runtime/libraries.h"
#include "runtime/runtime.h"

#include <stdarg.h>
#include <string.h>

const struct sgrad_library sgrad_libraries[] = { SGRAD_LIBRARIES { 0 } };

/* OPTION must be in the table. */
static const struct sgrad_library *find(const char *option) {
    const struct sgrad_library *library = sgrad_libraries;
    while (strcmp(library->option, option)) library++;
    return library;
}

bool sgrad_library_has(const char *option) { return find(option)->built_in; }

int sgrad_library_missing(const char *option, const char *what, ...) {
    const struct sgrad_library *library = find(option);
    char text[1024];
    va_list list;
    va_start(list, what);
    vsnprintf(text, sizeof text, what, list);
    va_end(list);
    return sgrad_log_error(SGRAD_ELIBRARY, "cannot %s: this build has no %s; install %s, then configure --with-%s=yes and build "
                           "again", text, library->name, library->packages, option);
}
