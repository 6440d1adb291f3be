/* unpacked.c: decompressed shards in bounded memory. A compressed shard has no random access, so it is decompressed as a whole.
 *
 *     limit     |  shard 3   |  shard 7 (in use)  | shard 2  |  free  |
 *
 * A shard that is needed takes the place of those that were used least recently. A thread that finds no place waits until another
 * thread no longer uses its shard. */
#include "config.h"
#include "datasets/shards/shards.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum state { ABSENT, LOADING, LOADED };

struct slot {
    void *data;
    size_t bytes;
    int users; /* threads that use the data */
    enum state state;
    uint64_t used; /* time of the last use, counted in uses */
};

struct sgrad__unpacked {
    pthread_mutex_t guard;
    pthread_cond_t changed; /* a shard was loaded, or is no longer in use */
    size_t limit, bytes;    /* bytes: of all slots that are loaded or being loaded */
    uint64_t uses, loads;               /* samples that were read; shards that were decompressed for them */
    bool warned;                        /* of shards that are decompressed too often */
    int64_t shards;
    struct slot *slot; /* (shards) */
};

struct sgrad__unpacked *sgrad__unpacked_create(int64_t shards, size_t limit) {
    struct sgrad__unpacked *unpacked = sgrad_xcalloc(1, sizeof *unpacked);
    unpacked->limit = limit;
    unpacked->shards = shards;
    unpacked->slot = sgrad_xcalloc((size_t)shards, sizeof *unpacked->slot);
    pthread_mutex_init(&unpacked->guard, NULL);
    pthread_cond_init(&unpacked->changed, NULL);
    return unpacked;
}

/* Memory that is returned to the system when it is freed, which that of malloc need not be. */
static void *take_memory(size_t bytes) {
    void *data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return data == MAP_FAILED ? NULL : data;
}

/* Copies the bytes of STREAM, which must be BYTES, to TO. */
static int read_all(struct sgrad__stream *stream, const char *path, size_t bytes, char *to) {
    char more;
    size_t done = 0;
    ssize_t got = 1;
    while (done < bytes && (got = sgrad__stream_read(stream, to + done, bytes - done)) > 0) done += (size_t)got;
    if (done == bytes) got = sgrad__stream_read(stream, &more, 1);
    if (done == bytes && !got) return 0;
    const char *why = done < bytes ? "it is shorter than its index states" : "it is longer than its index states";
    return sgrad_log_error(SGRAD_EFORMAT, "tar: %s: byte %zu after decompression: %s; the file is damaged: copy it again", path,
                           done, got < 0 ? sgrad__stream_damage(stream) : why);
}

/* Decompresses FILE, the archive PATH, to TO, of BYTES bytes. */
static int decompress(int file, const char *path, size_t bytes, char *to) {
    struct sgrad__stream *stream;
    int error = sgrad__stream_open(path, file, NULL, 0, &stream);
    if (!error && !stream)
        error = sgrad_log_error(SGRAD_EIO, "tar: %s: is not compressed, but was when its headers were read", path);
    if (!error) error = read_all(stream, path, bytes, to);
    sgrad__stream_close(stream);
    return error;
}

/* Decompresses the archive PATH of SHARD to TO, if it has not changed. */
static int fill(const char *path, const struct sgrad__shard *shard, void *to) {
    int file;
    SGRAD_TRY(sgrad__shard_open(path, shard, &file));
    const int error = decompress(file, path, shard->bytes, to);
    close(file);
    return error;
}

static void drop(struct sgrad__unpacked *unpacked, struct slot *slot) {
    munmap(slot->data, slot->bytes);
    unpacked->bytes -= slot->bytes;
    *slot = (struct slot){ 0 };
}

/* Makes room for BYTES. Returns false if the shards in use leave too little. The caller holds the guard. */
static bool make_room(struct sgrad__unpacked *unpacked, size_t bytes) {
    while (unpacked->bytes + bytes > unpacked->limit) {
        struct slot *oldest = NULL;
        for (struct slot *s = unpacked->slot; s < unpacked->slot + unpacked->shards; s++)
            if (s->state == LOADED && !s->users && (!oldest || s->used < oldest->used)) oldest = s;
        if (!oldest) return false;
        drop(unpacked, oldest);
    }
    return true;
}

/* Decompresses a shard to SLOT, for which there is room. The caller holds the guard, which is released meanwhile. */
static int load(struct sgrad__unpacked *unpacked, struct slot *slot, const char *path, const struct sgrad__shard *shard) {
    const size_t bytes = shard->bytes;
    unpacked->loads++;
    slot->state = LOADING;
    slot->bytes = bytes;
    unpacked->bytes += bytes;
    pthread_mutex_unlock(&unpacked->guard);
    void *data = take_memory(bytes);
    int error = data ? fill(path, shard, data)
                     : sgrad_log_error(SGRAD_ENOMEM, "tar: %s: no memory for its %zu bytes after decompression", path, bytes);
    pthread_mutex_lock(&unpacked->guard);
    slot->data = data;
    slot->state = LOADED;
    if (error && data)
        drop(unpacked, slot);
    else if (error)
        unpacked->bytes -= bytes, *slot = (struct slot){ 0 };
    pthread_cond_broadcast(&unpacked->changed);
    return error;
}

/* Warns once if most samples need a shard to be decompressed. The caller holds the guard. */
static void warn_of_loads(struct sgrad__unpacked *unpacked, const char *path) {
    enum { PASSES = 3, USES = 4 };
    if (unpacked->warned || unpacked->uses > USES * unpacked->loads) return;
    if (unpacked->loads < PASSES * (uint64_t)unpacked->shards) return;
    unpacked->warned = true;
    if (sgrad_launched_rank() == 0)
        sgrad_log_warning("tar: %s: compressed shards are decompressed for every few samples, because too few fit into %.1f MB; "
                          "give --data-memory, or a smaller --shuffle-window, or decompress the shards",
                          path, 1e-6 * (double)unpacked->limit);
}

int sgrad__unpacked_take(struct sgrad__unpacked *unpacked, int64_t i, const char *path, const struct sgrad__shard *shard,
                         const unsigned char **data) {
    struct slot *slot = &unpacked->slot[i];
    int error = 0;
    pthread_mutex_lock(&unpacked->guard);
    while (!error && slot->state != LOADED)
        if (slot->state == ABSENT && make_room(unpacked, shard->bytes))
            error = load(unpacked, slot, path, shard);
        else
            pthread_cond_wait(&unpacked->changed, &unpacked->guard);
    warn_of_loads(unpacked, path);
    if (!error) {
        slot->users++;
        slot->used = ++unpacked->uses;
        *data = slot->data;
    }
    pthread_mutex_unlock(&unpacked->guard);
    return error;
}

void sgrad__unpacked_give(struct sgrad__unpacked *unpacked, int64_t i) {
    pthread_mutex_lock(&unpacked->guard);
    if (!--unpacked->slot[i].users) pthread_cond_broadcast(&unpacked->changed);
    pthread_mutex_unlock(&unpacked->guard);
}

void sgrad__unpacked_free(struct sgrad__unpacked *unpacked) {
    if (!unpacked) return;
    for (int64_t i = 0; i < unpacked->shards; i++)
        if (unpacked->slot[i].state == LOADED) drop(unpacked, &unpacked->slot[i]);
    pthread_cond_destroy(&unpacked->changed);
    pthread_mutex_destroy(&unpacked->guard);
    free(unpacked->slot);
    free(unpacked);
}
