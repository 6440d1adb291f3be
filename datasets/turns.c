/* turns.c: processes that start together and need the same results for files, such as the index of an archive or a pass over a
 * token file, divide this work. Each begins at another file. It takes the turn of a file, looks for the result in the cache,
 * makes and stores it otherwise, and ends its turn. A process that waits for its turn finds the result stored:
 *
 *     rank 0     file 0  1  2 (3: waits, is stored)  …
 *     rank 1     file 2  3 (4 …)  then 0, 1: are stored
 *
 * A turn is a lock on a byte of a file in the cache folder, so it ends with its process. Threads exclude each other as well.
 *
 * Limits: on a file system without locks, several processes may do the same work. */
#include "config.h"
#include "datasets/formats.h"
#include "runtime/environment.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

int sgrad__turn_take(const char *name, uint64_t file) {
    char *path = sgrad_cache_path(name, true);
    const int turn = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666) : -1;
    struct flock one = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)(file >> 2), .l_len = 1 };
    free(path);
    while (turn >= 0 && fcntl(turn, F_OFD_SETLKW, &one) && errno == EINTR) continue;
    return turn;
}

void sgrad__turn_end(int turn) {
    if (turn >= 0) close(turn);
}

int64_t sgrad__turn_first(int64_t count) {
    return count * sgrad_launched_rank() / sgrad_launched_ranks() % (count ? count : 1);
}
