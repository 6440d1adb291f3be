/* cache.c: per-worker caches of objects that a kernel creates once per shape. Each entry belongs to one worker, so look-ups do
 * not need a lock. */
#include "config.h"
#include "runtime/internal.h"
#include "runtime/runtime.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define BUCKETS 128
struct entry {
    struct entry *next;
    unsigned char bytes[];      /* the key, padded to 16 bytes, then the value */
};
struct sgrad_cache_table {
    struct entry *bucket[BUCKETS];
};

static struct sgrad_cache *caches;
static pthread_mutex_t caches_lock = PTHREAD_MUTEX_INITIALIZER;

static struct sgrad_cache_table *open_table(struct sgrad_cache *cache, int worker) {
    pthread_mutex_lock(&caches_lock);
    if (!cache->known) {
        cache->known = true;
        cache->next = caches;
        caches = cache;
    }
    pthread_mutex_unlock(&caches_lock);
    return cache->worker[worker] = sgrad_xcalloc(1, sizeof(struct sgrad_cache_table));
}

static size_t value_offset(const struct sgrad_cache *cache) { return (cache->key_size + 15) & ~(size_t)15; }

void *sgrad_cache_get(struct sgrad_cache *cache, const void *key, bool *created) {
    int worker = sgrad__worker();
    struct sgrad_cache_table *table = cache->worker[worker] ? cache->worker[worker] : open_table(cache, worker);
    struct entry **bucket = &table->bucket[sgrad_hash(key, cache->key_size) % BUCKETS];
    struct entry *entry = *bucket;
    while (entry && memcmp(entry->bytes, key, cache->key_size) != 0) entry = entry->next;
    *created = !entry;
    if (!entry) {
        entry = sgrad_xcalloc(1, sizeof *entry + value_offset(cache) + cache->value_size);
        memcpy(entry->bytes, key, cache->key_size);
        entry->next = *bucket;
        *bucket = entry;
    }
    return entry->bytes + value_offset(cache);
}

static void clear_table(struct sgrad_cache *cache, struct sgrad_cache_table *table) {
    for (int b = 0; b < BUCKETS; b++)
        for (struct entry *entry = table->bucket[b], *next; entry; entry = next) {
            next = entry->next;
            if (cache->destroy) cache->destroy(entry->bytes + value_offset(cache));
            free(entry);
        }
    free(table);
}

void sgrad__caches_clear(void) {
    for (struct sgrad_cache *cache = caches; cache; cache = cache->next)
        for (int w = 0; w <= SGRAD_MAX_WORKERS; w++)
            if (cache->worker[w]) {
                clear_table(cache, cache->worker[w]);
                cache->worker[w] = NULL;
            }
}
