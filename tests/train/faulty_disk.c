/* faulty_disk.c: for LD_PRELOAD: calls on regular files without a name, as --spill has, fail.
 *
 *     FAULT="pwrite 40 28"     call 40 of pwrite on such files, and all later ones, fail with number 28 of errno
 *     CALLS=FILE               at the end of the process, its calls are written to the file: "pread 64 pwrite 80" */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static atomic_int reads, writes;

static int has_name(int file) {
    struct stat is;
    return fstat(file, &is) || !S_ISREG(is.st_mode) || is.st_nlink;
}

/* Returns 1, and sets errno, if this call must fail. */
static int fails(int file, const char *name, atomic_int *calls) {
    char call[16];
    int first, error;
    if (has_name(file)) return 0;
    const int number = 1 + atomic_fetch_add(calls, 1);
    const char *fault = getenv("FAULT");
    if (!fault || sscanf(fault, "%15s %d %d", call, &first, &error) != 3 || strcmp(call, name) || number < first) return 0;
    errno = error;
    return 1;
}

ssize_t pread(int file, void *to, size_t bytes, off_t at) {
    ssize_t (*next)(int, void *, size_t, off_t) = (ssize_t (*)(int, void *, size_t, off_t))dlsym(RTLD_NEXT, "pread");
    return fails(file, "pread", &reads) ? -1 : next(file, to, bytes, at);
}

ssize_t pwrite(int file, const void *from, size_t bytes, off_t at) {
    ssize_t (*next)(int, const void *, size_t, off_t) = (ssize_t (*)(int, const void *, size_t, off_t))dlsym(RTLD_NEXT, "pwrite");
    return fails(file, "pwrite", &writes) ? -1 : next(file, from, bytes, at);
}

ssize_t pread64(int file, void *to, size_t bytes, off_t at) { return pread(file, to, bytes, at); }
ssize_t pwrite64(int file, const void *from, size_t bytes, off_t at) { return pwrite(file, from, bytes, at); }

__attribute__((destructor)) static void count(void) {
    const char *path = getenv("CALLS");
    FILE *file = path && (reads || writes) ? fopen(path, "w") : NULL;
    if (!file) return;
    fprintf(file, "pread %d pwrite %d\n", reads, writes);
    fclose(file);
}
