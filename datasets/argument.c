/* argument.c: checks of the arguments of readers. */
#include "config.h"
#include "datasets/formats.h"
#include "runtime/runtime.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

int sgrad__folder_check(const char *kind, const char *path, const char *wanted) {
    struct stat status;
    const char *problem = stat(path, &status) ? strerror(errno) : !S_ISDIR(status.st_mode) ? "is a file" : NULL;
    return problem ? sgrad_log_error(SGRAD_EIO, "data set %s:%s: %s: %s", kind, path, problem, wanted) : 0;
}
