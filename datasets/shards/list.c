/* list.c: the shards of a split as one list of encoded images. An image is read into memory of its size, for which the shard is
 * opened; a shard is not mapped, so that the memory of a process does not grow with the shards.
 *
 *     shard       0             1         2
 *     samples     0  1  2  3  | 4  5  6 | 7  8  9
 *     first       0             4         7          10 */
#include "config.h"
#include "datasets/shards/shards.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- opening ------------------------------------------------------------------------------------------------------- */

/* Returns the length of the folder that all paths have in common. */
static size_t common_folder(const struct sgrad__paths *paths) {
    const char *one = paths->path[0];
    size_t length = strlen(one);
    for (int64_t i = 1; i < paths->count; i++) {
        size_t same = 0;
        while (same < length && paths->path[i][same] == one[same]) same++;
        length = same;
    }
    while (length && one[length - 1] != '/') length--;
    return length;
}

/* Checks that each compressed shard fits into LIMIT. */
static int check_unpacked(const struct sgrad__shards *shards, size_t limit, bool *compressed) {
    for (int64_t s = 0; s < shards->paths.count; s++) {
        const struct sgrad__shard *shard = &shards->shard[s];
        *compressed |= shard->compressed;
        if (shard->compressed && shard->bytes > limit)
            return sgrad_log_error(SGRAD_EINVAL,
                                   "tar: %s: has %llu bytes after decompression, but the memory for shards is limited to %zu; "
                                   "give --data-memory %lluM, or decompress the shards",
                                   shards->paths.path[s], (unsigned long long)shard->bytes, limit,
                                   (unsigned long long)((shard->bytes >> 20) + 1));
    }
    return 0;
}

int sgrad__shards_list(const char *pattern, const char *part, size_t limit, struct sgrad__shards *shards) {
    SGRAD_TRY(sgrad__pattern_expand("tar", pattern, part, &shards->paths));
    const int64_t count = shards->paths.count;
    bool compressed = false;
    if (!count) return sgrad__pattern_refuse("tar", pattern, part);
    shards->folder = common_folder(&shards->paths);
    shards->shard = sgrad_xcalloc((size_t)count, sizeof *shards->shard);
    shards->first = sgrad_xcalloc((size_t)count + 1, sizeof *shards->first);
    SGRAD_TRY(sgrad__indexes_open(shards->paths.path, count, limit, shards->shard));
    for (int64_t s = 0; s < count; s++) shards->first[s + 1] = shards->first[s] + shards->shard[s].samples;
    SGRAD_TRY(check_unpacked(shards, limit, &compressed));
    if (compressed) shards->unpacked = sgrad__unpacked_create(count, limit);
    return 0;
}

void sgrad__shards_unlist(struct sgrad__shards *shards) {
    sgrad__unpacked_free(shards->unpacked);
    sgrad__indexes_close(shards->shard, shards->paths.count);
    sgrad__paths_free(&shards->paths);
    free(shards->first);
    *shards = (struct sgrad__shards){ 0 };
}

/* ---- samples ------------------------------------------------------------------------------------------------------- */

int64_t sgrad__shards_find(const struct sgrad__shards *shards, int64_t i, const struct sgrad__shard_sample **sample) {
    int64_t low = 0, high = shards->paths.count - 1;
    while (low < high) {
        const int64_t middle = (low + high + 1) / 2;
        if (shards->first[middle] <= i)
            low = middle;
        else
            high = middle - 1;
    }
    *sample = &shards->shard[low].sample[i - shards->first[low]];
    return low;
}

const char *sgrad__shards_name(const struct sgrad__shards *shards, int64_t shard) {
    return shards->paths.path[shard] + shards->folder;
}

char *sgrad__shards_where(const struct sgrad__shards *shards, int64_t i) {
    const struct sgrad__shard_sample *sample;
    const int64_t s = sgrad__shards_find(shards, i, &sample);
    return sgrad_format("%s: %s at byte %llu%s", shards->paths.path[s], shards->shard[s].text + sample->name,
                        (unsigned long long)sample->at, shards->shard[s].compressed ? " after decompression" : "");
}

/* ---- images -------------------------------------------------------------------------------------------------------- */

/* Reads SIZE bytes at byte AT of FILE. NAME: for messages. */
static int read_bytes(int file, const char *name, uint64_t at, size_t size, unsigned char *to) {
    for (size_t done = 0; done < size;) {
        const ssize_t got = pread(file, to + done, size - done, (off_t)(at + done));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0)
            return sgrad_log_error(SGRAD_EIO, "tar: %s: %s", name, got ? strerror(errno) : "the shard has become shorter");
        done += (size_t)got;
    }
    return 0;
}

static int fetch(const void *of, int64_t i, struct sgrad__bytes *bytes) {
    const struct sgrad__shards *shards = of;
    const struct sgrad__shard_sample *sample;
    const int64_t s = sgrad__shards_find(shards, i, &sample);
    const struct sgrad__shard *shard = &shards->shard[s];
    const char *path = shards->paths.path[s];
    if (shard->compressed) {
        const unsigned char *data;
        SGRAD_TRY(sgrad__unpacked_take(shards->unpacked, s, path, shard, &data));
        *bytes = (struct sgrad__bytes){ sgrad__shards_where(shards, i), data + sample->at, sample->size };
        return 0;
    }
    int file;
    SGRAD_TRY(sgrad__shard_open(path, shard, &file));
    unsigned char *data = sgrad_xcalloc((size_t)sample->size + 1, 1);
    char *name = sgrad__shards_where(shards, i);
    const int error = read_bytes(file, name, sample->at, sample->size, data);
    close(file);
    if (!error) return *bytes = (struct sgrad__bytes){ name, data, sample->size }, 0;
    free(name);
    free(data);
    return error;
}

static void release(const void *of, int64_t i, struct sgrad__bytes *bytes) {
    const struct sgrad__shards *shards = of;
    const struct sgrad__shard_sample *sample;
    const int64_t s = sgrad__shards_find(shards, i, &sample);
    if (shards->shard[s].compressed)
        sgrad__unpacked_give(shards->unpacked, s);
    else
        free((void *)bytes->data);
    free(bytes->name);
}

struct sgrad__source sgrad__shards_source(const struct sgrad__shards *shards) {
    return (struct sgrad__source){ shards, shards->first[shards->paths.count], fetch, release };
}
