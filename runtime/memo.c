/* memo.c: what was measured once on this machine, for later runs: .starpu/stargrad/TOPIC in the folder where StarPU keeps
 * measured times, $XDG_CACHE_HOME, $STARPU_HOME or $HOME. A line is a key, a tab, a value; the last one of a key counts.
 * Processes append at the same time, so a line is one write. A memo is never needed: what cannot be read is measured again. */
#include "config.h"
#include "runtime/runtime.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Makes the folders that are missing, if told to; free the path. */
static char *path_of(const char *topic, bool make) {
    const char *home = getenv("XDG_CACHE_HOME");
    if (!home) home = getenv("STARPU_HOME");
    if (!home) home = getenv("HOME");
    if (!home) return NULL;
    char *path = sgrad_format("%s/.starpu/stargrad/%s", home, topic);
    for (char *slash = path + strlen(home); make && (slash = strchr(slash + 1, '/'));) {
        *slash = 0;
        mkdir(path, 0777);
        *slash = '/';
    }
    return path;
}

bool sgrad_memo_find(const char *topic, const char *key, char *value, size_t size) {
    const size_t length = strlen(key);
    char *path = path_of(topic, false), *line = NULL;
    FILE *file = path ? fopen(path, "re") : NULL;
    size_t room = 0;
    bool found = false;
    for (ssize_t got; file && (got = getline(&line, &room, file)) > 0;)
        if (line[got - 1] == '\n' && (size_t)got - length - 2 < size && !strncmp(line, key, length) && line[length] == '\t') {
            found = true;
            line[got - 1] = 0;
            strcpy(value, line + length + 1);
        }
    if (file) fclose(file);
    free(line);
    free(path);
    return found;
}

void sgrad_memo_add(const char *topic, const char *key, const char *value) {
    static atomic_bool warned;
    char *path = path_of(topic, true), *line = sgrad_format("%s\t%s\n", key, value);
    const int fd = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666) : -1;
    const bool written = fd >= 0 && write(fd, line, strlen(line)) == (ssize_t)strlen(line);
    if (!written && !atomic_exchange(&warned, true))
        sgrad_warn("%s: cannot be written; the next run measures again", path ? path : "$HOME");
    if (fd >= 0) close(fd);
    free(line);
    free(path);
}
