/* tuning_cache.c: stores measurements on this machine for later runs, in the file .starpu/stargrad/TOPIC below the folder in
 * which StarPU stores measured times: $XDG_CACHE_HOME, $STARPU_HOME or $HOME. A line consists of a key, a tab and a value; the
 * last line of a key is valid. Several processes may append concurrently, so each line is one write. The cache is optional: a
 * value that cannot be read is measured again. */
#include "config.h"
#include "runtime/environment.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Creates the folder of the file PATH below HOME, the value of VARIABLE. Returns false if this fails; the first failure is
 * logged. */
static bool make_folder(const char *path, const char *variable, const char *home) {
    static atomic_bool warned;
    const size_t length = strlen(home);
    char *folder = sgrad_format("%.*s", (int)(strrchr(path, '/') - path), path);
    const int error = sgrad_folders_make(folder, strcmp(variable, "HOME") ? 0 : length, length);
    if (error && !atomic_exchange(&warned, true) && sgrad_launched_rank() == 0)
        sgrad_log_warning("%s=%s: the cache folder %s cannot be created: %s; measurements and indexes of data sets are not "
                          "stored; set XDG_CACHE_HOME to a writable folder",
                          variable, home, folder, strerror(error));
    free(folder);
    return !error;
}

char *sgrad_cache_path(const char *name, bool make) {
    const char *variable = sgrad_home_variable(), *home = variable ? getenv(variable) : NULL;
    if (!home) return NULL;
    char *path = sgrad_format("%s/.starpu/stargrad/%s", home, name);
    if (!make || make_folder(path, variable, home)) return path;
    free(path);
    return NULL;
}

bool sgrad_tuning_cache_get(const char *topic, const char *key, char *value, size_t size) {
    const size_t length = strlen(key);
    char *path = sgrad_cache_path(topic, false), *line = NULL;
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

void sgrad_tuning_cache_put(const char *topic, const char *key, const char *value) {
    static atomic_bool warned;
    char *path = sgrad_cache_path(topic, true), *line = sgrad_format("%s\t%s\n", key, value);
    const int fd = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666) : -1;
    const bool written = fd >= 0 && write(fd, line, strlen(line)) == (ssize_t)strlen(line);
    if (path && !written && !atomic_exchange(&warned, true))
        sgrad_log_warning("%s: the cache cannot be written: %s; the next run will repeat the measurements; set XDG_CACHE_HOME to "
                          "another folder",
                          path, strerror(errno));
    if (fd >= 0) close(fd);
    free(line);
    free(path);
}
