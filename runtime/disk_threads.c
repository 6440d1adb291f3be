/* disk_threads.c: transfers by threads, which read and write a piece each. They also copy between a GPU and main memory, each on
 * a CUDA stream of its own. In a simulation (simulation.h), one thread executes one piece at a time. */
#include "config.h"
#include "runtime/disk.h"
#include "runtime/gpu_memory.h"
#include "runtime/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

enum { THREADS = SGRAD_SIMULATED ? 1 : SGRAD__PIECES };

struct threads {
    int file; /* -1: none */
    bool direct;
    struct sgrad__disk_user user;
    struct sgrad_monitor *monitor; /* is notified if a piece may begin */
    bool closing;
    int count;
    struct sgrad_thread *thread[THREADS];
};

/* What a thread moves data through: memory that is aligned for the file, or a stream of the GPU. */
struct means {
    char *buffer;
    struct sgrad_gpu_copier *copier;
};

/* Without direct transfers, written bytes leave the page cache at once. */
static bool drop_from_cache(int file, off_t at, off_t bytes) {
    const unsigned all = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
    const bool right = !sync_file_range(file, at, bytes, all);
    posix_fadvise(file, at, bytes, POSIX_FADV_DONTNEED);
    return right;
}

/* Transfers whole blocks between MEMORY and the file. Sets errno. */
static bool transfer(const struct threads *t, const struct sgrad__piece *piece, char *memory) {
    const size_t bytes = sgrad_spill_blocks(piece->bytes);
    for (size_t done = 0; done < bytes;) {
        const off_t at = piece->at + (off_t)done;
        const ssize_t n =
            piece->writes ? pwrite(t->file, memory + done, bytes - done, at) : pread(t->file, memory + done, bytes - done, at);
        if (n < 0 && errno == EINTR) continue;
        if (n == 0) errno = EIO;
        if (n <= 0) return false;
        done += (size_t)n;
    }
    return t->direct || !piece->writes || drop_from_cache(t->file, piece->at, (off_t)bytes);
}

/* Returns NULL, or a reason why not. */
static const char *execute(const struct threads *t, const struct sgrad__piece *piece, const struct means *by) {
    if (piece->other) return sgrad_gpu_copy(by->copier, !piece->writes, piece->memory, piece->other, piece->bytes);
    if (SGRAD_SIMULATED) return sgrad_sleep((double)piece->bytes / sgrad__simulation_disk(piece->writes)), NULL;
    char *memory = sgrad__piece_memory(piece, by->buffer);
    if (!transfer(t, piece, memory)) return strerror(errno);
    sgrad__piece_fetched(piece, memory);
    return NULL;
}

static void *work(void *arg) {
    struct threads *t = arg;
    void *buffer = NULL;
    if (t->file >= 0 && posix_memalign(&buffer, SGRAD_SPILL_BLOCK, SGRAD__PIECE)) abort();
    const struct means by = { buffer, t->file < 0 && !SGRAD_SIMULATED ? sgrad_gpu_copier_open() : NULL };
    sgrad_monitor_lock(t->monitor);
    while (!t->closing) {
        const long before = sgrad_monitor_generation(t->monitor);
        struct sgrad__piece piece;
        sgrad_monitor_unlock(t->monitor);
        const bool found = t->user.next(t->user.arg, &piece);
        if (found) t->user.ended(t->user.arg, &piece, execute(t, &piece, &by));
        sgrad_monitor_lock(t->monitor);
        if (!found && sgrad_monitor_generation(t->monitor) == before) sgrad_monitor_wait(t->monitor, 0);
    }
    sgrad_monitor_unlock(t->monitor);
    sgrad_gpu_copier_close(by.copier);
    free(buffer);
    return NULL;
}

static void wake(void *engine) {
    struct threads *t = engine;
    sgrad_monitor_lock(t->monitor);
    sgrad_monitor_notify(t->monitor);
    sgrad_monitor_unlock(t->monitor);
}

static void stop(void *engine) {
    struct threads *t = engine;
    sgrad_monitor_lock(t->monitor);
    t->closing = true;
    sgrad_monitor_notify(t->monitor);
    sgrad_monitor_unlock(t->monitor);
    for (int i = 0; i < t->count; i++) sgrad_thread_join(t->thread[i]);
    sgrad_monitor_destroy(t->monitor);
    free(t);
}

static void *start(int file, bool direct, const struct sgrad__disk_user *user) {
    struct threads *t = sgrad_xcalloc(1, sizeof *t);
    *t = (struct threads){ .file = file, .direct = direct, .user = *user, .monitor = sgrad_monitor_create() };
    while (t->count < THREADS && (t->thread[t->count] = sgrad_thread_start(work, t))) t->count++;
    if (t->count) return t;
    stop(t);
    return errno = EAGAIN, NULL;
}

const struct sgrad__disk_engine sgrad__disk_threads = { "threads", start, wake, stop };
