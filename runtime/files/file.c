/* file.c: files that are replaced atomically, and files that are read as one block of memory. */
#include "config.h"
#include "runtime/internal.h"
#include "runtime/runtime.h"
#include "runtime/files/parts.h"
#include "runtime/files/streams.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/*     begin     PATH (old or absent)   PATH.part.PID  (being written)
 *     commit    PATH (old or absent)   PATH.part.PID  (complete, on the disk)
 *               PATH (new)                            (rename is atomic; the folder is synced after it)
 *
 * Processes on different hosts, or in different containers, may have the same number. An existing temporary file is therefore
 * never written to; another number is used instead. The temporary file is in the folder of PATH, because rename works only within
 * one file system. */
int sgrad_file_begin(const char *path, struct sgrad_file *file) {
    char *part = sgrad_format("%s.part.%ld", path, (long)getpid());
    FILE *stream = fopen(part, "wbxe");
    for (int i = 0; i < 100 && !stream && errno == EEXIST; i++) {
        free(part);
        part = sgrad_format("%s.part.%lld", path, (long long)(1e6 * sgrad_time_monotonic()) + i);
        stream = fopen(part, "wbxe");
    }
    if (!stream) {
        int error = sgrad_log_error(SGRAD_EIO, "%s: cannot be written: %s", path, strerror(errno));
        free(part);
        return error;
    }
    *file = (struct sgrad_file){ .stream = stream, .path = sgrad_format("%s", path), .temporary = part };
    return 0;
}

static void forget(struct sgrad_file *file) {
    free(file->path);
    free(file->temporary);
    *file = (struct sgrad_file){ 0 };
}

/* Syncs the folder of PATH, so that a rename is on the disk. Returns 0 or errno. EINVAL is ignored: the file system cannot sync
 * folders. */
static int sync_folder_of(const char *path) {
    const char *slash = strrchr(path, '/');
    char *folder = slash ? sgrad_format("%.*s", (int)(slash - path) + (slash == path), path) : sgrad_format(".");
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int failed = fd < 0 || (fsync(fd) && errno != EINVAL) ? errno : 0;
    if (fd >= 0) close(fd);
    free(folder);
    return failed;
}

/* If an earlier write failed, its errno is lost. A write of 0 bytes may fail again and set it; otherwise the free space of the
 * file system shows whether it is full. */
int sgrad_stream_error(FILE *stream) {
    struct statvfs disk;
    errno = 0;
    if (!fflush(stream) && !ferror(stream)) return 0;
    if (errno) return errno;
    if (write(fileno(stream), "", 0) < 0) return errno;
    return !fstatvfs(fileno(stream), &disk) && disk.f_blocks && !disk.f_bavail ? ENOSPC : EIO;
}

int sgrad_file_commit(struct sgrad_file *file) {
    int failed = sgrad_stream_error(file->stream);
    if (failed == EIO && write(fileno(file->stream), "", 1) < 0) failed = errno;       /* a quota or a size limit */
    if (!failed && fsync(fileno(file->stream))) failed = errno;
    if (fclose(file->stream) && !failed) failed = errno;
    if (!failed && rename(file->temporary, file->path)) failed = errno;
    if (failed)
        unlink(file->temporary);
    else
        failed = sync_folder_of(file->path);
    int error = failed ? sgrad_log_error(SGRAD_EIO, "%s: cannot be written: %s", file->path, strerror(failed)) : 0;
    forget(file);
    return error;
}

void sgrad_file_abort(struct sgrad_file *file) {
    if (!file->stream) return;
    fclose(file->stream);
    unlink(file->temporary);
    forget(file);
}

/* ---- reading ------------------------------------------------------------------------------------------------------ */

static int check_file(int fd, const char *path, size_t limit, size_t *size) {
    struct stat status;
    if (fd < 0 || fstat(fd, &status)) return sgrad_log_error(SGRAD_EIO, "%s: %s", path, strerror(errno));
    if (!S_ISREG(status.st_mode)) return sgrad_log_error(SGRAD_EIO, "%s: not a regular file", path);
    if (status.st_size == 0) return sgrad_log_error(SGRAD_EFORMAT, "%s: the file is empty", path);
    if ((uint64_t)status.st_size > limit)
        return sgrad_log_error(SGRAD_EFORMAT, "%s: has %lld bytes, but must have at most %zu", path, (long long)status.st_size,
                               limit);
    *size = (size_t)status.st_size;
    return 0;
}

int sgrad__file_open(const char *path, size_t limit, int *file, size_t *size) {
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* nonblocking: opening a pipe would wait for its writer */
    const int error = check_file(fd, path, limit, size);
    if (!error) *file = fd;
    else if (fd >= 0) close(fd);
    return error;
}

int sgrad__file_read(int fd, const char *path, size_t at, size_t bytes, void *to) {
    for (size_t done = 0; done < bytes;) {
        const ssize_t got = pread(fd, (char *)to + done, bytes - done, (off_t)(at + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return sgrad_log_error(SGRAD_EIO, "%s: byte %zu: cannot be read: %s", path, at + done, strerror(errno));
        if (got == 0)
            return sgrad_log_error(
                SGRAD_EIO, "%s: ends at byte %zu, but was longer when it was opened; check that no other process writes to it",
                path, at + done);
        done += (size_t)got;
    }
    return 0;
}

/* Memory of large files is returned to the system when it is freed, which malloc does not do here (context.c). Small files use
 * malloc, because there are many of them and mmap is slow for them. Files are read and not mapped: an access to a mapped file
 * ends the program if the file has become shorter or its disk fails, whereas a read returns an error. */
static bool is_small(size_t size) { return size <= 1 << 18; }

static void *take_memory(size_t size) {
    if (is_small(size)) return malloc(size);
    void *data = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return data == MAP_FAILED ? NULL : data;
}

static void give_back(void *data, size_t size) {
    if (is_small(size)) free(data);
    else munmap(data, size);
}

int sgrad_map_open(const char *path, size_t limit, struct sgrad_map *map) {
    size_t size;
    int fd;
    SGRAD_TRY(sgrad__file_open(path, limit, &fd, &size));
    void *data = take_memory(size);
    int error = data ? sgrad__file_read(fd, path, 0, size, data)
                     : sgrad_log_error(SGRAD_ENOMEM, "%s: no memory for its %zu bytes", path, size);
    close(fd);
    if (!error) *map = (struct sgrad_map){ .data = data, .size = size };
    else if (data) give_back(data, size);
    return error;
}

void sgrad_map_close(struct sgrad_map *map) {
    if (map->data) give_back((void *)map->data, map->size);
    *map = (struct sgrad_map){ 0 };
}

int sgrad_file_copy(const char *from, const char *to, size_t limit) {
    struct sgrad_map map;
    struct sgrad_file file;
    SGRAD_TRY(sgrad_map_open(from, limit, &map));
    int error = sgrad_file_begin(to, &file);
    if (!error) {
        fwrite(map.data, 1, map.size, file.stream); /* commit reports errors */
        error = sgrad_file_commit(&file);
    }
    sgrad_map_close(&map);
    return error;
}
