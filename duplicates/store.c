/* store.c: hashes.bin, a cache of hashes by the stamps of their images, so that of a larger data set only new images are hashed.
 *
 *     byte  0   "SGRADHSH"                      integers are little-endian
 *           8   version 1, bits per hash        32 bits each
 *          16   name of the hash                16 bytes, padded with zeros
 *          32   number of records               64 bits
 *          40   records: stamp 64 bits, state 64 bits, hash 64 or 256 bits
 *        last   FNV-1a of all bytes before      64 bits
 *
 * Limits: the file is read into memory as a whole; it has 24 bytes per image (48 with hashes of 256 bits). */
#include "duplicates/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FORMAT = 1, NAME_SIZE = 16, HEADER = 40, SUM = 8 };
#define MAGIC      "SGRADHSH"
#define FILE_LIMIT ((size_t)1 << 40)
#define AGAIN      "; remove the file to hash all images again"

static uint64_t get(const unsigned char *at, int bytes) {
    uint64_t x = 0;
    for (int i = bytes; i-- > 0;) x = x << 8 | at[i];
    return x;
}

static void put(unsigned char *at, int bytes, uint64_t x) {
    for (int i = 0; i < bytes; i++) at[i] = (unsigned char)(x >> 8 * i);
}

static int by_stamp(const void *a, const void *b) {
    const uint64_t x = ((const struct sgrad__record *)a)->stamp, y = ((const struct sgrad__record *)b)->stamp;
    return (x > y) - (x < y);
}

static int check(const char *name, const unsigned char *data, size_t size) {
    if (size < HEADER + SUM)
        return sgrad_log_error(SGRAD_EFORMAT, "%s: byte %zu: the file ends here, but must have at least %d bytes" AGAIN, name,
                               size, HEADER + SUM);
    if (memcmp(data, MAGIC, 8)) return sgrad_log_error(SGRAD_EFORMAT, "%s: byte 0: this is not a hashes.bin file" AGAIN, name);
    if (get(data + 8, 4) != FORMAT)
        return sgrad_log_error(SGRAD_EFORMAT, "%s: byte 8: version %llu is not supported, only version %d" AGAIN, name,
                               (unsigned long long)get(data + 8, 4), FORMAT);
    const uint64_t bits = get(data + 12, 4), count = get(data + 32, 8), record = 16 + bits / 8, body = size - HEADER - SUM;
    if (bits != 64 && bits != 256)
        return sgrad_log_error(SGRAD_EFORMAT, "%s: byte 12: hashes of %llu bits are not supported, only 64 and 256" AGAIN, name,
                               (unsigned long long)bits);
    if (body % record || body / record != count)
        return sgrad_log_error(SGRAD_EFORMAT,
                               "%s: byte 32: states %llu records of %llu bytes each, but the records have %llu bytes" AGAIN,
                               name, (unsigned long long)count, (unsigned long long)record, (unsigned long long)body);
    if (get(data + size - SUM, SUM) != sgrad_hash(data, size - SUM))
        return sgrad_log_error(SGRAD_EFORMAT, "%s: byte %zu: the checksum does not match the data before it" AGAIN, name,
                               size - SUM);
    return 0;
}

int sgrad__store_parse(const char *name, const void *data, size_t size, const struct sgrad_hash_kind *kind, int bits,
                       struct sgrad__store *store) {
    const unsigned char *header = data, *at = header + HEADER;
    SGRAD_TRY(check(name, data, size));
    struct sgrad__store s = { .count = (int64_t)get(header + 32, 8) };
    const bool others = get(header + 12, 4) != (uint64_t)bits || strncmp((const char *)header + 16, kind->name, NAME_SIZE);
    if (others) s.count = 0;
    s.record = sgrad_xcalloc((size_t)s.count + 1, sizeof *s.record);
    for (struct sgrad__record *r = s.record; r < s.record + s.count; r++, at += 16 + bits / 8) {
        r->stamp = get(at, 8);
        r->state = (uint8_t)get(at + 8, 8);
        for (int w = 0; w < bits / 64; w++) r->word[w] = get(at + 16 + 8 * w, 8);
    }
    qsort(s.record, (size_t)s.count, sizeof *s.record, by_stamp);
    *store = s;
    return 0;
}

int sgrad__store_open(const char *path, const struct sgrad_hash_kind *kind, int bits, struct sgrad__store *store) {
    struct sgrad_map map;
    if (access(path, F_OK) && errno == ENOENT) return 0;
    SGRAD_TRY(sgrad_map_open(path, FILE_LIMIT, &map));
    int error = sgrad__store_parse(path, map.data, map.size, kind, bits, store);
    sgrad_map_close(&map);
    return error;
}

const struct sgrad__record *sgrad__store_find(const struct sgrad__store *store, uint64_t stamp) {
    const struct sgrad__record key = { .stamp = stamp };
    return store->count ? bsearch(&key, store->record, (size_t)store->count, sizeof key, by_stamp) : NULL;
}

int sgrad__store_write(const char *path, const struct sgrad_hashes *hashes) {
    const size_t record = 16 + (size_t)hashes->bits / 8, size = HEADER + (size_t)hashes->count * record + SUM;
    struct sgrad_file file;
    unsigned char *data = sgrad_xcalloc(size, 1), *at = data + HEADER;
    memcpy(data, MAGIC, 8);
    put(data + 8, 4, FORMAT);
    put(data + 12, 4, (uint64_t)hashes->bits);
    strncpy((char *)data + 16, hashes->kind->name, NAME_SIZE);
    put(data + 32, 8, (uint64_t)hashes->count);
    for (int64_t i = 0; i < hashes->count; i++, at += record) {
        put(at, 8, hashes->stamp[i]);
        put(at + 8, 8, hashes->state[i] & ~SGRAD_IMAGE_SKIPPED);
        for (int w = 0; w < hashes->words; w++) put(at + 16 + 8 * w, 8, hashes->word[i * hashes->words + w]);
    }
    put(at, 8, sgrad_hash(data, size - SUM));
    int error = sgrad_file_begin(path, &file);
    if (!error) {
        fwrite(data, 1, size, file.stream);
        error = sgrad_file_commit(&file);
    }
    free(data);
    return error;
}
