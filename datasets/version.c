/* version.c: versions of files. version.h states the rules. */
#include "config.h"
#include "datasets/version.h"
#include "runtime/runtime.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

enum { SETTLED = 2 }; /* seconds */
#define SECOND 1000000000

/* Times after the year 2262 wrap around. */
static int64_t nanoseconds(struct timespec time) { return (int64_t)((uint64_t)time.tv_sec * SECOND + (uint64_t)time.tv_nsec); }

struct sgrad_file_version sgrad__version_of(const struct stat *is) {
    return (struct sgrad_file_version){ is->st_size, nanoseconds(is->st_mtim), nanoseconds(is->st_ctim), (int64_t)is->st_ino };
}

struct sgrad_file_version sgrad__version_at(const char *path) {
    struct stat is;
    return stat(path, &is) ? (struct sgrad_file_version){ 0 } : sgrad__version_of(&is);
}

static bool has_same_content(const struct sgrad_file_version *a, const struct sgrad_file_version *b) {
    return a->bytes == b->bytes && a->written == b->written;
}

bool sgrad__version_is_same(const struct sgrad_file_version *a, const struct sgrad_file_version *b) {
    return has_same_content(a, b) && a->changed == b->changed && a->inode == b->inode;
}

bool sgrad__version_is_settled(const struct sgrad_file_version *version) {
    return version->written > 0 && time(NULL) - version->written / SECOND > SETTLED;
}

int sgrad__version_read(int file, const char *path, struct sgrad_file_version *version) {
    struct stat status;
    if (file < 0 ? stat(path, &status) : fstat(file, &status)) return sgrad_log_error(SGRAD_EIO, "%s: %s", path, strerror(errno));
    *version = sgrad__version_of(&status);
    return 0;
}

int sgrad__version_check(int file, const char *path, const struct sgrad_file_version *wanted) {
    struct sgrad_file_version is;
    SGRAD_TRY(sgrad__version_read(file, path, &is));
    if (has_same_content(&is, wanted) && (is.changed == wanted->changed || is.inode == wanted->inode)) return 0;
    return sgrad_log_error(SGRAD_EIO,
                           "%s: the file has changed since the data set was opened; restore it and continue with --resume, or "
                           "start again", path);
}
