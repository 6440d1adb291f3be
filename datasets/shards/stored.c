/* stored.c: stores the index of a shard or of a folder, because reading all headers of an archive, or listing millions of files,
 * takes long. It is a file in the user's cache folder, .starpu/stargrad/indexes/HASH, where HASH is that of the absolute path. An
 * index is valid for one version of the archive, or of the folder and each of its subfolders, and stored if that version is
 * settled (datasets/version.h).
 *
 * An index is written to a temporary file, which is renamed. It is mapped, not copied, so that several processes share its memory
 * and the system may take it back; stored files are replaced or removed, but never become shorter. Beyond MOST_MAPS maps,
 * indexes are read, because a process may have only so many.
 *
 * Processes that start together take turns (turns.c).
 *
 * Limits: old indexes are not removed. An image in a folder that is overwritten in place changes no folder: the index keeps its
 * size. */
#include "config.h"
#include "datasets/shards/shards.h"
#include "runtime/environment.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define FOLDER "indexes/"
/* Folders with fewer images are listed as fast as an index is checked. Linux allows 65,530 maps of a process by default. */
enum { LEAST_FILES = 256, MOST_MAPS = 32768 };

static _Atomic int maps; /* indexes that are mapped at present */

/* A shard or folder whose index is being opened. */
struct place {
    const char *path;       /* as the user named it */
    char *absolute, *cache; /* cache: path of the index; NULL: there is no cache folder */
    struct sgrad_file_version version;
    uint64_t hash; /* of the absolute path */
};

void sgrad__index_close(struct sgrad__shard *shard) {
    if (shard->mapped) {
        munmap((void *)shard->block, shard->block_bytes);
        maps--;
    } else
        free((void *)shard->block);
    *shard = (struct sgrad__shard){ 0 };
}

/* ---- stored indexes ------------------------------------------------------------------------------------------------ */

/* Returns true if no folder of the index has changed. */
static bool has_same_folders(const struct place *place, const struct sgrad__shard *shard) {
    bool same = true;
    for (int i = 0; i < shard->folders && same; i++) {
        char *path = sgrad_format("%s/%s", place->absolute, shard->text + shard->folder[i].name);
        const struct sgrad_file_version now = sgrad__version_at(path), *then = &shard->folder[i].version;
        same = sgrad__version_is_same(&now, then);
        free(path);
    }
    return same;
}

/* Maps FILE, of shard->block_bytes, as the block of SHARD. Reads it if there are too many maps. Returns false if this fails. */
static bool take_block(int file, struct sgrad__shard *shard) {
    const size_t bytes = shard->block_bytes;
    void *data = ++maps <= MOST_MAPS ? mmap(NULL, bytes, PROT_READ, MAP_SHARED, file, 0) : MAP_FAILED;
    shard->mapped = data != MAP_FAILED;
    if (!shard->mapped) {
        maps--;
        data = malloc(bytes);
        if (data && read(file, data, bytes) != (ssize_t)bytes) free(data), data = NULL;
    }
    shard->block = data;
    return data;
}

/* Sets the block of SHARD to the regular file PATH. Returns false if this fails. */
static bool take_file(const char *path, struct sgrad__shard *shard) {
    struct stat status;
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    bool taken = file >= 0 && !fstat(file, &status) && S_ISREG(status.st_mode) && status.st_size > 0;
    if (taken) {
        shard->block_bytes = (size_t)status.st_size;
        taken = take_block(file, shard);
    }
    if (file >= 0) close(file);
    return taken;
}

/* Opens the stored index. Returns false if there is none that is valid. *DAMAGED is set if there is one of this version that has
 * other bytes than were stored. */
static bool load(const struct place *place, struct sgrad__shard *shard, bool *damaged) {
    struct sgrad__shard file = { 0 }, found = { 0 };
    if (!place->cache || !take_file(place->cache, &file)) return false;
    const bool whole = sgrad__index_parse(file.block, file.block_bytes, &found);
    *damaged |= !whole && sgrad__index_is_current(file.block, file.block_bytes);
    found.mapped = file.mapped;
    if (whole && sgrad__version_is_same(&found.file, &place->version) &&
        !strcmp(found.path, place->absolute) && has_same_folders(place, &found))
        return *shard = found, true;
    return sgrad__index_close(&file), false;
}

/* Stores a block. Returns false if this is not possible. */
static bool store_block(const struct place *place, const void *block, size_t bytes) {
    struct sgrad_file file;
    if (sgrad_file_begin(place->cache, &file)) return false;
    if (fwrite(block, 1, bytes, file.stream) != bytes) return sgrad_file_abort(&file), false;
    return !sgrad_file_commit(&file);
}

/* ---- one index ----------------------------------------------------------------------------------------------------- */

static int open_place(const struct sgrad__index_store *store, const char *path, struct place *place, int *file) {
    struct stat status;
    *place = (struct place){ .path = path, .absolute = realpath(path, NULL) };
    *file = place->absolute ? open(place->absolute, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
    if (*file < 0 || fstat(*file, &status))
        return sgrad_log_error(SGRAD_EIO, "%s: %s: %s", store->reader, path, strerror(errno));
    place->version = sgrad__version_of(&status);
    place->hash = sgrad__fingerprint_add(1, place->absolute, strlen(place->absolute));
    if (store->folder) place->cache = sgrad_format("%s%016llx", store->folder, (unsigned long long)place->hash);
    return 0;
}

/* Returns true if the index may be stored, and is worth it. */
static bool is_storable(const struct place *place, const struct sgrad__draft *draft) {
    bool may = place->cache && sgrad__version_is_settled(&place->version) && (!draft->folder || draft->samples >= LEAST_FILES);
    for (int i = 0; i < draft->folders && may; i++) {
        const struct sgrad_file_version *version = &draft->folder[i].version;
        may = !version->inode || sgrad__version_is_settled(version);
    }
    return may;
}

/* Reads the shard or folder, and stores its index. */
static int build(struct sgrad__index_store *store, const struct place *place, int file, struct sgrad__shard *shard) {
    struct sgrad__draft draft = { 0 };
    size_t bytes;
    bool damaged = false;
    const int error = store->scan(store->of, place->path, file, &place->version, &draft);
    void *block = error ? NULL : sgrad__index_pack(&draft, place->absolute, &place->version, &bytes);
    const bool storable = block && is_storable(place, &draft);
    sgrad__draft_free(&draft);
    SGRAD_TRY(error);
    const bool stored = storable && store_block(place, block, bytes);
    if (stored && load(place, shard, &damaged)) return free(block), 0;
    if (storable && !stored) store->unstored = true;
    if (block && sgrad__index_parse(block, bytes, shard)) return 0;
    if (!block)
        return sgrad_log_error(SGRAD_EINVAL, "%s: %s: the names of its files have more than 4 GiB; %s", store->reader,
                               place->path, store->smaller);
    free(block);
    return sgrad_log_error(SGRAD_EFORMAT, "%s: %s: its members have impossible sizes", store->reader, place->path);
}

int sgrad__index_open(struct sgrad__index_store *store, const char *path, struct sgrad__shard *shard) {
    struct place place;
    int file;
    bool damaged = false;
    int error = open_place(store, path, &place, &file);
    if (!error && !load(&place, shard, &damaged)) {
        const bool waits = place.cache && !store->unstored && sgrad__version_is_settled(&place.version);
        const int turn = waits ? sgrad__turn_take(FOLDER SGRAD_LOCK, place.hash) : -1;
        damaged = false;
        if (!load(&place, shard, &damaged)) error = build(store, &place, file, shard);
        if (damaged) store->damaged = true;
        sgrad__turn_end(turn);
    }
    if (file >= 0) close(file);
    free(place.absolute);
    free(place.cache);
    return error;
}

/* ---- the cache folder ---------------------------------------------------------------------------------------------- */

void sgrad__index_store_open(struct sgrad__index_store *store) { store->folder = sgrad_cache_path(FOLDER, true); }

void sgrad__index_store_close(struct sgrad__index_store *store, const char *what, const char *each) {
    if (store->damaged)
        sgrad_log_warning("%s: the stored index of %s in %s was damaged, and is made again", store->reader, what, store->folder);
    if (store->unstored && sgrad_launched_rank() == 0)
        sgrad_log_warning("%s: the index of %s cannot be stored in %s; %s; set XDG_CACHE_HOME to a writable folder with enough "
                          "space",
                          store->reader, what, store->folder, each);
    free(store->folder);
    store->folder = NULL;
}
