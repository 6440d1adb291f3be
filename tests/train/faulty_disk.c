/* faulty_disk.c: for LD_PRELOAD: calls on regular files without a name, as --spill has, fail.
 *
 *     FAULT="pwrite 40 28"     call 40 of pwrite on such files, and all later ones, fail with number 28 of errno. The reads and
 *                              writes of io_uring are counted like calls of pread and pwrite
 *     FAULT="io_uring 1 1"     the system refuses io_uring
 *     CALLS=FILE               at the end of the process, its calls are written to the file: "pread 64 pwrite 80 io_uring 3" */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#if __has_include(<liburing.h>)
#include <liburing.h>
#endif

static atomic_int reads, writes, rings;

static int has_name(int file) {
    struct stat is;
    return fstat(file, &is) || !S_ISREG(is.st_mode) || is.st_nlink;
}

/* Returns 1, and sets errno, if this call must fail. */
static int fails(const char *name, atomic_int *calls) {
    char call[16];
    int first, error;
    const int number = 1 + atomic_fetch_add(calls, 1);
    const char *fault = getenv("FAULT");
    if (!fault || sscanf(fault, "%15s %d %d", call, &first, &error) != 3 || strcmp(call, name) || number < first) return 0;
    errno = error;
    return 1;
}

static int read_fails(int file) { return !has_name(file) && fails("pread", &reads); }
static int write_fails(int file) { return !has_name(file) && fails("pwrite", &writes); }

ssize_t pread(int file, void *to, size_t bytes, off_t at) {
    ssize_t (*next)(int, void *, size_t, off_t) = (ssize_t (*)(int, void *, size_t, off_t))dlsym(RTLD_NEXT, "pread");
    return read_fails(file) ? -1 : next(file, to, bytes, at);
}

ssize_t pwrite(int file, const void *from, size_t bytes, off_t at) {
    ssize_t (*next)(int, const void *, size_t, off_t) = (ssize_t (*)(int, const void *, size_t, off_t))dlsym(RTLD_NEXT, "pwrite");
    return write_fails(file) ? -1 : next(file, from, bytes, at);
}

ssize_t pread64(int file, void *to, size_t bytes, off_t at) { return pread(file, to, bytes, at); }
ssize_t pwrite64(int file, const void *from, size_t bytes, off_t at) { return pwrite(file, from, bytes, at); }

#ifdef LIB_URING_H
int io_uring_queue_init(unsigned entries, struct io_uring *ring, unsigned flags) {
    typedef int initializer(unsigned, struct io_uring *, unsigned);
    initializer *next = (initializer *)dlsym(RTLD_NEXT, "io_uring_queue_init");
    return fails("io_uring", &rings) ? -errno : next(entries, ring, flags);
}

/* A transfer that must fail does nothing instead, which the kernel completes at once. Then its result is replaced. */
static int replace(struct io_uring_sqe *entry) {
    const int fault = entry->opcode == IORING_OP_READ    ? read_fails(entry->fd)
                      : entry->opcode == IORING_OP_WRITE ? write_fails(entry->fd)
                                                         : 0;
    if (!fault) return 0;
    const unsigned long long data = entry->user_data;
    io_uring_prep_nop(entry);
    entry->user_data = data;
    return errno;
}

int io_uring_submit(struct io_uring *ring) {
    typedef int submitter(struct io_uring *);
    submitter *next = (submitter *)dlsym(RTLD_NEXT, "io_uring_submit");
    unsigned long long failed[64];
    int failures = 0, error = 0;
    for (unsigned i = ring->sq.sqe_head; i != ring->sq.sqe_tail && failures < 64; i++) {
        struct io_uring_sqe *entry = &ring->sq.sqes[i & *ring->sq.kring_mask];
        const int is = replace(entry);
        if (is) failed[failures++] = entry->user_data, error = is;
    }
    const int result = next(ring);
    const unsigned end = io_uring_smp_load_acquire(ring->cq.ktail);
    for (unsigned i = *ring->cq.khead; i != end; i++)
        for (int f = 0; f < failures; f++) {
            struct io_uring_cqe *entry = &ring->cq.cqes[i & *ring->cq.kring_mask];
            if (entry->user_data == failed[f]) entry->res = -error;
        }
    return result;
}
#endif

__attribute__((destructor)) static void count(void) {
    const char *path = getenv("CALLS");
    FILE *file = path && (reads || writes) ? fopen(path, "w") : NULL;
    if (!file) return;
    fprintf(file, "pread %d pwrite %d io_uring %d\n", reads, writes, rings);
    fclose(file);
}
