/* argument.c: checks of the arguments of readers. */
#include "config.h"
#include "datasets/formats.h"
#include "runtime/runtime.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

bool sgrad__is_folder(const char *path) {
    struct stat status;
    return !stat(path, &status) && S_ISDIR(status.st_mode);
}

int sgrad__folder_check(const char *kind, const char *path, const char *wanted) {
    struct stat status;
    const bool missing = stat(path, &status) != 0;
    if (!missing && S_ISDIR(status.st_mode)) return 0;
    const char *problem = missing ? strerror(errno) : "is a file, not a folder";
    return sgrad_log_error(SGRAD_EIO, "data set %s:%s: %s; %s", kind, path, problem, wanted);
}
