/* lock.c: one writer of a folder at a time.
 *
 * A record lock of POSIX on a file in the folder, FOLDER/.lock: it holds across NFS clients, where one on the folder itself
 * (flock) does not, and ends with its process, however that ends, so that what a killed one leaves blocks nobody. The file stays:
 * were it removed, a third could lock a new one while the second still waits for the old.
 *
 * Limits: such locks are a process's: it never keeps itself out, and loses its lock with the first close of any of its
 * descriptors of that file. A file system without locks has to trust its users. */
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
    int error = fd < 0 ? sgrad_fail(SGRAD_EIO, "%s: cannot be written: %s", path, strerror(errno)) : 0;
    if (!error && fcntl(fd, F_SETLK, &whole) && (errno == EAGAIN || errno == EACCES)) {
        error = sgrad_fail(SGRAD_EIO, "%s: another run is writing there", folder);
        close(fd);
    }
    free(path);
    if (!error) *lock = fd + 1;
    return error;
}

void sgrad_lock_release(int lock) { close(lock - 1); }
