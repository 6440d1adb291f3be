/* cached.c: opens the indexes of shards (stored.c). Threads take one shard after the other. Processes that start together divide
 * the shards (turns.c). */
#include "config.h"
#include "datasets/shards/shards.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { THREADS = 16, REASON = 1024 };

/* The shards that the threads open. */
struct opening {
    struct sgrad__index_store store;
    char *const *path;
    int64_t count, first; /* first: the shard at which this process begins */
    size_t limit; /* of a shard after decompression */
    struct sgrad__shard *shard;
    _Atomic int64_t next;  /* number of shards that threads have taken */
    _Atomic int64_t read;  /* number of shards that this process has begun to read */
    pthread_mutex_t guard;
    int64_t failed; /* the first shard that failed; count: none */
    _Atomic int error;
    char reason[REASON]; /* its message */
};

int sgrad__shard_open(const char *path, const struct sgrad__shard *shard, int *file) {
    *file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*file < 0) return sgrad_log_error(SGRAD_EIO, "tar: %s: %s", path, strerror(errno));
    const int error = sgrad__version_check(*file, path, &shard->file);
    if (error) close(*file), *file = -1;
    return error;
}

static void show_progress(struct opening *opening, const char *path) {
    const long long read = (long long)++opening->read;
    char *text = sgrad_format("reading the headers of %s: %lld of at most %lld shards", path, read, (long long)opening->count);
    if (sgrad_launched_rank() == 0) sgrad_log_progress(text);
    free(text);
}

/* Reads the headers of a shard. The function scan of the store. */
static int scan_shard(void *of, const char *path, int file, const struct sgrad_file_version *version,
                      struct sgrad__draft *draft) {
    const struct opening *opening = of;
    show_progress(of, path);
    SGRAD_TRY(sgrad__shard_scan(path, file, NULL, (size_t)version->bytes, opening->limit, draft));
    return sgrad__version_check(file, path, version);
}

/* ---- all shards ---------------------------------------------------------------------------------------------------- */

/* The function of a thread. Of several errors, that of the first shard is returned. */
static void *open_some(void *argument) {
    struct opening *opening = argument;
    char reason[REASON];
    for (int64_t n; !opening->error && (n = atomic_fetch_add(&opening->next, 1)) < opening->count;) {
        const int64_t i = (opening->first + n) % opening->count;
        sgrad_log_capture(reason, sizeof reason);
        const int error = sgrad__index_open(&opening->store, opening->path[i], &opening->shard[i]);
        sgrad_log_capture(NULL, 0);
        if (!error) continue;
        pthread_mutex_lock(&opening->guard);
        if (i < opening->failed) {
            opening->failed = i;
            opening->error = error;
            strcpy(opening->reason, reason);
        }
        pthread_mutex_unlock(&opening->guard);
    }
    return NULL;
}

int sgrad__indexes_open(char *const *path, int64_t count, size_t limit, struct sgrad__shard *shard) {
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    struct opening opening = { .store = { .reader = "tar", .smaller = SGRAD__SMALLER_SHARD, .scan = scan_shard },
                               .path = path,
                               .count = count,
                               .limit = limit,
                               .shard = shard,
                               .failed = count,
                               .first = sgrad__turn_first(count),
                               .guard = PTHREAD_MUTEX_INITIALIZER };
    pthread_t thread[THREADS];
    int threads = 0;
    opening.store.of = &opening;
    sgrad__index_store_open(&opening.store);
    while (threads < THREADS && threads < cores && threads < count) {
        if (pthread_create(&thread[threads], NULL, open_some, &opening)) break;
        threads++;
    }
    if (!threads) open_some(&opening);
    for (int i = 0; i < threads; i++) pthread_join(thread[i], NULL);
    if (opening.read && sgrad_launched_rank() == 0) sgrad_log_progress(NULL);
    sgrad__index_store_close(&opening.store, "the shards", "each start reads all of them");
    return opening.error ? sgrad_log_error(opening.error, "%s", opening.reason) : 0;
}

void sgrad__indexes_close(struct sgrad__shard *shard, int64_t count) {
    for (int64_t i = 0; shard && i < count; i++) sgrad__index_close(&shard[i]);
    free(shard);
}
