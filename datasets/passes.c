/* passes.c: caches results of complete passes over files, such as the largest token and the hash of a token file. A pass over
 * terabytes takes hours; it is made once, and not at the start of each run.
 *
 * The cache is the file .starpu/stargrad/passes (runtime/files/tuning_cache.c), which nodes may share. A line:
 *
 *     WHAT SIZE TIME TIME INODE PATH  <tab>  NUMBER … CHECK
 *
 * SIZE, the times and INODE are the version of the file (version.h). CHECK is a hash of all that precedes it. A line that does
 * not match its hash is ignored, and the pass is made again. */
#include "config.h"
#include "datasets/formats.h"
#include "datasets/numbers.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define TOPIC "passes"
enum { MOST = 8, LEAST_BYTES = 1 << 20 }; /* files below LEAST_BYTES are read faster than the cache */

char *sgrad__pass_key(const char *path, const struct sgrad_file_version *version, const char *what) {
    if (version->bytes < LEAST_BYTES || !sgrad__version_is_settled(version)) return NULL;
    char *full = realpath(path, NULL), *key = NULL;
    bool plain = full != NULL;
    for (const char *c = full; c && *c; c++) plain &= (unsigned char)*c >= ' ';
    if (plain)
        key = sgrad_format("%s %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %s", what, version->bytes, version->written,
                           version->changed, version->inode, full);
    free(full);
    return key;
}

/* Returns the hash of KEY and of the first LENGTH bytes of VALUE. */
static uint64_t check_of(const char *key, const char *value, size_t length) {
    return sgrad__fingerprint_add(sgrad__fingerprint_add(1, key, strlen(key)), value, length);
}

bool sgrad__pass_get(const char *key, int64_t *number, int count) {
    char value[24 * (MOST + 1)], *at = value;
    int64_t read[MOST];
    if (!key || !sgrad_tuning_cache_get(TOPIC, key, value, sizeof value)) return false;
    for (int i = 0; i < count; i++) {
        char *end;
        read[i] = strtoll(at, &end, 10);
        if (end == at || *end != ' ') return false;
        at = end + 1;
    }
    char *check = sgrad_format("%016" PRIx64, check_of(key, value, (size_t)(at - value)));
    const bool matches = strcmp(at, check) == 0;
    free(check);
    if (matches) memcpy(number, read, (size_t)count * sizeof *number);
    return matches;
}

void sgrad__pass_put(const char *key, const int64_t *number, int count) {
    char value[24 * (MOST + 1)];
    int length = 0;
    if (!key) return;
    for (int i = 0; i < count; i++) length += snprintf(value + length, sizeof value - (size_t)length, "%" PRId64 " ", number[i]);
    snprintf(value + length, sizeof value - (size_t)length, "%016" PRIx64, check_of(key, value, (size_t)length));
    sgrad_tuning_cache_put(TOPIC, key, value);
}
