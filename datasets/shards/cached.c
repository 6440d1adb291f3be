/* cached.c: opens the indexes of shards. Reading all headers of an archive takes long, so an index is stored in the user's cache
 * folder, as .starpu/stargrad/shards/HASH, where HASH is that of the absolute path of the archive. It is valid for one version of
 * the archive, and stored if that version is settled (datasets/version.h).
 *
 * Threads take one shard after the other. Processes that start together begin at different shards, and lock a shard while they
 * read it, so that each shard is read by one of them:
 *
 *     rank 0     shard 0  1  2 (3: waits, is stored)  …
 *     rank 1     shard 2  3 (4 …)  then 0, 1: are stored
 *
 * An index is written to a temporary file, which is renamed. It is mapped, not copied, so that several processes share its memory
 * and the system may take it back; stored files are replaced or removed, but never become shorter.
 *
 * Limits: on a file system without locks, several processes may read the same shard. Old indexes are not removed. */
#include "config.h"
#include "datasets/shards/shards.h"
#include "runtime/environment.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { THREADS = 16, REASON = 1024 };
#define FOLDER "shards"

/* The shards that the threads open. */
struct opening {
    char *const *path;
    const char *cache;    /* folder of the indexes, with a slash; NULL: there is none */
    int64_t count, first; /* first: the shard at which this process begins */
    struct sgrad__shard *shard;
    _Atomic int64_t next;  /* number of shards that threads have taken */
    _Atomic bool unstored; /* an index could not be stored */
    _Atomic int64_t read;  /* number of shards that this process has begun to read */
    pthread_mutex_t guard;
    int64_t failed; /* the first shard that failed; count: none */
    _Atomic int error;
    char reason[REASON]; /* its message */
};

/* A shard that is being opened. */
struct place {
    const char *path;       /* as the user named it */
    char *absolute, *cache; /* cache: path of the index; NULL: there is no cache folder */
    struct sgrad__file_version file;
    uint64_t hash; /* of the absolute path */
};

int sgrad__shard_open(const char *path, const struct sgrad__shard *shard, int *file) {
    *file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*file < 0) return sgrad_log_error(SGRAD_EIO, "tar: %s: %s", path, strerror(errno));
    const int error = sgrad__version_check(*file, path, &shard->file);
    if (error) close(*file), *file = -1;
    return error;
}

/* ---- stored indexes ------------------------------------------------------------------------------------------------ */

static void close_shard(struct sgrad__shard *shard) {
    if (shard->mapped)
        munmap((void *)shard->block, shard->block_bytes);
    else
        free((void *)shard->block);
    *shard = (struct sgrad__shard){ 0 };
}

/* Opens the stored index. Returns false if there is none that is valid. */
static bool load(const struct place *place, struct sgrad__shard *shard) {
    struct stat status;
    struct sgrad__shard found;
    const int file = place->cache ? open(place->cache, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return false;
    void *block = MAP_FAILED;
    if (!fstat(file, &status) && S_ISREG(status.st_mode) && status.st_size > 0)
        block = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (block == MAP_FAILED) return false;
    const bool valid = sgrad__index_parse(block, (size_t)status.st_size, &found) &&
                       sgrad__version_is_same(&found.file, &place->file) && !strcmp(found.path, place->absolute);
    if (!valid) return munmap(block, (size_t)status.st_size), false;
    found.mapped = true;
    *shard = found;
    return true;
}

/* Stores a block. Returns false if this is not possible. */
static bool store(const struct place *place, const void *block, size_t bytes) {
    struct sgrad_file file;
    if (!place->cache || sgrad_file_begin(place->cache, &file)) return false;
    if (fwrite(block, 1, bytes, file.stream) != bytes) return sgrad_file_abort(&file), false;
    return !sgrad_file_commit(&file);
}

/* Waits until no other thread or process reads the shard. Returns a descriptor that the caller must close; -1: not locked. */
static int lock(const char *cache, const struct place *place) {
    char *path = cache ? sgrad_format("%s" SGRAD_LOCK, cache) : NULL;
    const int file = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666) : -1;
    struct flock one = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)(place->hash >> 2), .l_len = 1 };
    free(path);
    while (file >= 0 && fcntl(file, F_OFD_SETLKW, &one) && errno == EINTR) continue;
    return file;
}

/* ---- one shard ----------------------------------------------------------------------------------------------------- */

static int open_place(const char *path, const char *cache, struct place *place, int *file) {
    struct stat status;
    *place = (struct place){ .path = path, .absolute = realpath(path, NULL) };
    *file = place->absolute ? open(place->absolute, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
    if (*file < 0 || fstat(*file, &status)) return sgrad_log_error(SGRAD_EIO, "tar: %s: %s", path, strerror(errno));
    if (!S_ISREG(status.st_mode)) return sgrad_log_error(SGRAD_EIO, "tar: %s: not a regular file", path);
    place->file = sgrad__version_of(&status);
    place->hash = sgrad__fingerprint_add(1, place->absolute, strlen(place->absolute));
    if (cache) place->cache = sgrad_format("%s%016llx", cache, (unsigned long long)place->hash);
    return 0;
}

static void show_progress(struct opening *opening, const char *path) {
    const long long read = (long long)++opening->read;
    char *text = sgrad_format("reading the headers of %s: %lld of at most %lld shards", path, read, (long long)opening->count);
    if (sgrad_launched_rank() == 0) sgrad_log_progress(text);
    free(text);
}

/* Reads the shard in FILE, and stores its index. */
static int build(struct opening *opening, const struct place *place, int file, struct sgrad__shard *shard) {
    struct sgrad__draft draft = { 0 };
    size_t bytes;
    show_progress(opening, place->path);
    int error = sgrad__shard_scan(place->path, file, NULL, (size_t)place->file.bytes, &draft);
    if (!error) error = sgrad__version_check(file, place->path, &place->file);
    void *block = error ? NULL : sgrad__index_pack(&draft, place->absolute, &place->file, &bytes);
    sgrad__draft_free(&draft);
    SGRAD_TRY(error);
    const bool settled = sgrad__version_is_settled(&place->file), stored = settled && store(place, block, bytes);
    if (stored && load(place, shard)) return free(block), 0;
    if (settled && place->cache && !stored) opening->unstored = true;
    if (sgrad__index_parse(block, bytes, shard)) return 0;
    free(block);
    return sgrad_log_error(SGRAD_EFORMAT, "tar: %s: its members have impossible sizes", place->path);
}

static int open_shard(struct opening *opening, int64_t i) {
    struct sgrad__shard *shard = &opening->shard[i];
    struct place place;
    int file;
    int error = open_place(opening->path[i], opening->cache, &place, &file);
    if (!error && !load(&place, shard)) {
        const int locked = lock(opening->cache, &place);
        if (!load(&place, shard)) error = build(opening, &place, file, shard);
        if (locked >= 0) close(locked);
    }
    if (file >= 0) close(file);
    free(place.absolute);
    free(place.cache);
    return error;
}

/* ---- all shards ---------------------------------------------------------------------------------------------------- */

/* The function of a thread. Of several errors, that of the first shard is returned. */
static void *open_some(void *argument) {
    struct opening *opening = argument;
    char reason[REASON];
    for (int64_t n; !opening->error && (n = atomic_fetch_add(&opening->next, 1)) < opening->count;) {
        const int64_t i = (opening->first + n) % opening->count;
        sgrad_log_capture(reason, sizeof reason);
        const int error = open_shard(opening, i);
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

int sgrad__indexes_open(char *const *path, int64_t count, struct sgrad__shard *shard) {
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    char *cache = sgrad_cache_path(FOLDER "/", true);
    struct opening opening = { .path = path,
                               .cache = cache,
                               .count = count,
                               .shard = shard,
                               .failed = count,
                               .first = count * sgrad_launched_rank() / sgrad_launched_ranks() % (count ? count : 1),
                               .guard = PTHREAD_MUTEX_INITIALIZER };
    pthread_t thread[THREADS];
    int threads = 0;
    while (threads < THREADS && threads < cores && threads < count) {
        if (pthread_create(&thread[threads], NULL, open_some, &opening)) break;
        threads++;
    }
    if (!threads) open_some(&opening);
    for (int i = 0; i < threads; i++) pthread_join(thread[i], NULL);
    free(cache);
    if (opening.read && sgrad_launched_rank() == 0) sgrad_log_progress(NULL);
    if (opening.error) return sgrad_log_error(opening.error, "%s", opening.reason);
    if (opening.unstored && sgrad_launched_rank() == 0)
        sgrad_log_warning("tar: the index of the shards cannot be stored in the cache folder; each start reads all shards");
    return 0;
}

void sgrad__indexes_close(struct sgrad__shard *shard, int64_t count) {
    for (int64_t i = 0; shard && i < count; i++) close_shard(&shard[i]);
    free(shard);
}
