/* cached.c: tokenizes texts once, into files in the user's cache folder, .starpu/stargrad/tokens/HASH.bin. HASH is that of the
 * absolute path of a file of texts, the tokenizer, and the field. The header of a token file has a stamp, with the version of the
 * file of texts. If this file changes, it is tokenized again, and the token file is replaced.
 *
 * A process locks the files that it tokenizes. Of processes that start together, each begins at another file, takes some that are
 * not locked, and repeats this; then it waits for the others:
 *
 *     rank 0     files 0 1   tokenizes       files 4 (5: locked)   tokenizes      (5: waits)
 *     rank 1     files 3 5   tokenizes       (4: locked)           …
 *
 * A token file gets its name when it is complete, so a process that is killed loses only the file that it was writing. Such a
 * file is removed by the next process that locks it.
 *
 * Limits: on a file system without locks, several processes may tokenize the same file. Old token files are not removed. */
#include "config.h"
#include "datasets/corpus/cached.h"
#include "datasets/corpus/corpus.h"
#include "datasets/formats.h"
#include "datasets/version.h"
#include "runtime/environment.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define FOLDER      "tokens"
#define MAGIC       "stargrad tokens 1"
#define TOKEN_LIMIT ((size_t)1 << 28)

/* In the header of a token file. */
struct stamp {
    char magic[24];
    uint64_t recipe, path; /* hashes */
    struct sgrad_file_version version;
};

/* A file of texts. */
struct place {
    const char *path; /* as the user named it */
    char *cache;      /* of its token file */
    struct stamp stamp;
    bool ready, locked; /* the token file is complete; this process has the lock */
};

struct cache {
    const struct sgrad__recipe *recipe;
    struct place *place;
    int64_t count, first; /* first: the file at which this process begins */
    int lock;             /* a descriptor; -1: the file system has no locks */
    int64_t dropped;      /* characters without a token */
};

/* ---- recipe -------------------------------------------------------------------------------------------------------- */

static int add_file(const char *path, uint64_t *hash) {
    struct sgrad_map map;
    SGRAD_TRY(sgrad_map_open(path, TOKEN_LIMIT, &map));
    *hash = sgrad__fingerprint_add(*hash, map.data, map.size);
    sgrad_map_close(&map);
    return 0;
}

/* Computes the checksum of a tokenizer's files. */
static int check_files(const char *file, const struct sgrad_tokenizer *tokenizer, uint64_t *hash) {
    *hash = 1;
    SGRAD_TRY(add_file(file, hash));
    if (!sgrad_tokenizer_is_pair(tokenizer)) return 0;
    char *merges = sgrad_tokenizer_merges(file);
    const int error = add_file(merges, hash);
    free(merges);
    return error;
}

int sgrad__recipe_open(const char *what, const char *file, const char *field, struct sgrad__recipe *recipe,
                       struct sgrad_tokenizer **tokenizer) {
    uint64_t checksum;
    SGRAD_TRY(sgrad_tokenizer_open(file, tokenizer));
    *recipe = (struct sgrad__recipe){ .what = what, .tokenizer = *tokenizer, .field = field };
    int error = check_files(file, *tokenizer, &checksum);
    recipe->checksum = checksum;
    recipe->end = sgrad__documents_end(*tokenizer);
    if (!error && recipe->end < 0)
        error =
            sgrad_log_error(SGRAD_EFORMAT,
                            "%s: the tokenizer %s has none of the tokens " SGRAD__END_TOKENS ", one of which would follow each "
                            "document; write token files with stargrad tokenize --end TOKEN, and give --data tokens:DIR,T",
                            what, file);
    if (error) sgrad_tokenizer_close(*tokenizer), *tokenizer = NULL;
    return error;
}

/* ---- files --------------------------------------------------------------------------------------------------------- */

/* Waits until the version of the file PATH is settled. Does not wait if its time is 0 or in the future. */
static void wait_until_settled(const char *path, struct sgrad_file_version *version) {
    const bool past = version->written > 0 && version->written / 1000000000 <= time(NULL);
    for (int i = 0; i < 4 && past && !sgrad__version_is_settled(version); i++) {
        nanosleep(&(struct timespec){ .tv_sec = 1 }, NULL);
        *version = sgrad__version_at(path);
    }
}

static int open_place(const struct cache *cache, struct place *place) {
    const struct sgrad__recipe *recipe = cache->recipe;
    struct stat is;
    char *path = realpath(place->path, NULL);
    if (!path || stat(path, &is)) {
        free(path);
        return sgrad_log_error(SGRAD_EIO, "%s: %s: %s", recipe->what, place->path, strerror(errno));
    }
    struct stamp *stamp = &place->stamp;
    strcpy(stamp->magic, MAGIC);
    stamp->recipe = sgrad__fingerprint_add(recipe->checksum, recipe->field, strlen(recipe->field));
    stamp->path = sgrad__fingerprint_add(1, path, strlen(path));
    stamp->version = sgrad__version_of(&is);
    wait_until_settled(path, &stamp->version);
    free(path);
    char *name = sgrad_format(FOLDER "/%016llx.bin",
                              (unsigned long long)sgrad__fingerprint_add(stamp->recipe, &stamp->path, sizeof stamp->path));
    place->cache = sgrad_cache_path(name, true);
    free(name);
    if (place->cache) return 0;
    return sgrad_log_error(SGRAD_EIO, "%s: there is no cache folder for token files; set HOME, STARPU_HOME or XDG_CACHE_HOME",
                           recipe->what);
}

/* Returns true if the token file exists, is complete, and belongs to this version of the texts. */
static bool is_ready(const struct cache *cache, const struct place *place) {
    unsigned char header[SGRAD__TOKENS_HEADER], wanted[SGRAD__TOKENS_HEADER];
    struct stat is;
    struct stamp stamp;
    const int width = sgrad__documents_width(cache->recipe->tokenizer);
    const int file = open(place->cache, O_RDONLY | O_CLOEXEC);
    if (file < 0) return false;
    const bool read = pread(file, header, sizeof header, 0) == (ssize_t)sizeof header && !fstat(file, &is);
    close(file);
    if (!read) return false;
    const int64_t tokens = (is.st_size - SGRAD__TOKENS_HEADER) / width;
    memcpy(&stamp, header + SGRAD__STAMP_AT, sizeof stamp);
    sgrad__tokens_header(width, (uint32_t)tokens, wanted);
    return !memcmp(header, wanted, SGRAD__STAMP_AT) && tokens * width + SGRAD__TOKENS_HEADER == is.st_size &&
           !memcmp(stamp.magic, place->stamp.magic, sizeof stamp.magic) && stamp.recipe == place->stamp.recipe &&
           stamp.path == place->stamp.path && sgrad__version_is_same(&stamp.version, &place->stamp.version);
}

/* Locks or unlocks the byte of the lock file that stands for PLACE. WAITS: until no other process has it. Returns false if
 * another process has it. If the file system has no locks, closes the lock file, and returns true from then on. */
static bool set_lock(struct cache *cache, const struct place *place, short type, bool waits) {
    struct flock one = { .l_type = type, .l_whence = SEEK_SET, .l_len = 1 };
    one.l_start = (off_t)((place->stamp.path ^ place->stamp.recipe) >> 2);
    int result = 0;
    if (cache->lock < 0) return true;
    while ((result = fcntl(cache->lock, waits ? F_OFD_SETLKW : F_OFD_SETLK, &one)) && errno == EINTR) continue;
    if (!result) return true;
    if (errno == EAGAIN || errno == EACCES) return false;
    close(cache->lock);
    cache->lock = -1;
    return true;
}

static void unlock(struct cache *cache, struct place *place) {
    if (place->locked) set_lock(cache, place, F_UNLCK, false);
    place->locked = false;
}

/* Removes unfinished copies of the token file, which killed processes have left. The caller has the lock. */
static void remove_parts(const struct cache *cache, const struct place *place) {
    glob_t found = { 0 };
    const char *slash = strrchr(place->cache, '/');
    char *folder = sgrad_format("%.*s", (int)(slash - place->cache), place->cache);
    char *name = sgrad_format("%s.part.*", slash + 1), *pattern = sgrad__pattern_in(folder, name);
    if (cache->lock >= 0 && !glob(pattern, GLOB_NOSORT, NULL, &found))
        for (size_t i = 0; i < found.gl_pathc; i++) unlink(found.gl_pathv[i]);
    globfree(&found);
    free(pattern);
    free(name);
    free(folder);
}

/* ---- tokenizing ---------------------------------------------------------------------------------------------------- */

/* Locks files that have no token file: those that together have a fair share of the bytes; BATCH: their numbers. Returns how many
 * these are. */
static int64_t claim(struct cache *cache, int64_t *batch) {
    const int ranks = sgrad_launched_ranks();
    int64_t bytes = 0, taken = 0, count = 0;
    for (int64_t i = 0; i < cache->count; i++)
        if (!cache->place[i].ready) bytes += cache->place[i].stamp.version.bytes;
    for (int64_t n = 0; n < cache->count && (!count || taken < bytes / (2 * ranks) || ranks == 1); n++) {
        struct place *place = &cache->place[(cache->first + n) % cache->count];
        if (place->ready || (!place->locked && !set_lock(cache, place, F_WRLCK, false))) continue;
        place->locked = true;
        place->ready = is_ready(cache, place);
        if (place->ready) {
            unlock(cache, place);
            continue;
        }
        remove_parts(cache, place);
        taken += place->stamp.version.bytes;
        batch[count++] = place - cache->place;
    }
    return count;
}

/* Tokenizes the COUNT files BATCH. */
static int tokenize(struct cache *cache, const int64_t *batch, int64_t count) {
    const struct sgrad__recipe *recipe = cache->recipe;
    struct sgrad__corpus_result result = { 0 };
    struct sgrad__corpus_options options = { .what = recipe->what,
                                             .tokenizer = recipe->tokenizer,
                                             .field = recipe->field,
                                             .threads = sgrad_cpus(),
                                             .end = recipe->end,
                                             .progress = sgrad_launched_rank() == 0 };
    struct sgrad__corpus_output *output = sgrad_xcalloc((size_t)count, sizeof *output);
    char **files = sgrad_xcalloc((size_t)count + 1, sizeof *files);
    for (int64_t n = 0; n < count; n++) {
        struct place *place = &cache->place[batch[n]];
        files[n] = (char *)place->path;
        output[n] = (struct sgrad__corpus_output){ place->cache, &place->stamp, sizeof place->stamp };
    }
    options.files = files;
    options.outputs = output;
    options.begin = sgrad_tokenizer_begin(recipe->tokenizer, &options.begins);
    const int error = sgrad__corpus_write(&options, &result);
    cache->dropped += result.dropped;
    free(files);
    free(output);
    return error;
}

/* Checks that the COUNT files BATCH have not changed meanwhile, and unlocks them. */
static int finish(struct cache *cache, const int64_t *batch, int64_t count) {
    for (int64_t n = 0; n < count; n++) {
        struct place *place = &cache->place[batch[n]];
        SGRAD_TRY(sgrad__version_check(-1, place->path, &place->stamp.version));
        place->ready = true;
        unlock(cache, place);
    }
    return 0;
}

/* Waits for a file that another process tokenizes. Returns false if all token files are complete. */
static bool wait_for_others(struct cache *cache) {
    for (int64_t i = 0; i < cache->count; i++) {
        struct place *place = &cache->place[i];
        if (place->ready) continue;
        place->locked = set_lock(cache, place, F_WRLCK, true);
        return true;
    }
    return false;
}

static int tokenize_all(struct cache *cache) {
    int64_t *batch = sgrad_xcalloc((size_t)cache->count, sizeof *batch), count;
    int error = 0;
    do {
        count = claim(cache, batch);
        if (count) error = tokenize(cache, batch, count);
        if (count && !error) error = finish(cache, batch, count);
    } while (!error && (count || wait_for_others(cache)));
    free(batch);
    return error;
}

static int open_cache(struct cache *cache) {
    bool ready = true;
    for (int64_t i = 0; i < cache->count; i++) {
        SGRAD_TRY(open_place(cache, &cache->place[i]));
        ready &= cache->place[i].ready = is_ready(cache, &cache->place[i]);
    }
    if (ready) return 0;
    char *path = sgrad_cache_path(FOLDER "/" SGRAD_LOCK, true);
    cache->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    free(path);
    const int error = tokenize_all(cache);
    if (cache->lock >= 0) close(cache->lock); /* unlocks all */
    if (cache->dropped && !error)
        sgrad_log_warning("%s: %lld %s no token and no unknown token and %s left out", cache->recipe->what,
                          (long long)cache->dropped, sgrad_plural(cache->dropped, "character has", "characters have"),
                          sgrad_plural(cache->dropped, "was", "were"));
    return error;
}

int sgrad__cached_tokens(const struct sgrad__recipe *recipe, const struct sgrad__paths *texts, struct sgrad__paths *tokens) {
    const int64_t count = texts->count;
    struct cache cache = { .recipe = recipe,
                           .place = sgrad_xcalloc((size_t)count, sizeof *cache.place),
                           .count = count,
                           .first = sgrad__turn_first(count),
                           .lock = -1 };
    for (int64_t i = 0; i < count; i++) cache.place[i].path = texts->path[i];
    const int error = open_cache(&cache);
    tokens->path = sgrad_xcalloc((size_t)count, sizeof *tokens->path);
    tokens->count = count;
    for (int64_t i = 0; i < count; i++) tokens->path[i] = cache.place[i].cache;
    free(cache.place);
    return error;
}
