/* lock.c: ensures that only one process at a time writes to a folder.
 *
 * The lock is a POSIX record lock on a file in the folder, FOLDER/.lock. It works across NFS clients, unlike a lock on the folder
 * itself (flock). It ends with its process, however that ends, so that a killed process does not block others. The file is not
 * removed: otherwise a process could lock a new file while another one, which has opened the removed file, locks that.
 *
 * Limits: such locks belong to a process. A process never excludes itself, and loses the lock when it closes any of its
 * descriptors of the file. On a file system without locks, nothing prevents concurrent writers. */
#include "config.h"
#include "runtime/runtime.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int sgrad_lock_take(const char *folder, int *lock) {
    char *path = sgrad_format("%s/" SGRAD_LOCK, folder);
    struct flock whole = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
    const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    int error = fd < 0 ? sgrad_log_error(SGRAD_EIO, "%s: cannot be written: %s", path, strerror(errno)) : 0;
    if (!error && fcntl(fd, F_SETLK, &whole) && (errno == EAGAIN || errno == EACCES)) {
        error = sgrad_log_error(SGRAD_EIO, "%s: another run is writing there; choose another folder, or wait until that run ends",
                                folder);
        close(fd);
    }
    free(path);
    if (!error) *lock = fd + 1;
    return error;
}

long sgrad_lock_holder(const char *folder) {
    char *path = sgrad_format("%s/" SGRAD_LOCK, folder);
    struct flock whole = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    const bool held = fd >= 0 && !fcntl(fd, F_GETLK, &whole) && whole.l_type != F_UNLCK;
    if (fd >= 0) close(fd);
    free(path);
    return held ? whole.l_pid : 0;
}

void sgrad_lock_release(int lock) { close(lock - 1); }
