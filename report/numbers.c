/* numbers.c: a hash table with open addressing: maps byte strings to numbers, in the order of their first occurrence. */
#include "report/numbers.h"
#include "runtime/runtime.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_SLOTS = 64 };

static size_t begin_of(const struct sgrad__numbers *n, int number) { return number ? n->end[number - 1] : 0; }

/* Returns the slot that contains the key, or else the free slot into which it must be inserted. */
static int *slot_of(const struct sgrad__numbers *n, uint64_t hash, const void *key, size_t size) {
    for (uint64_t i = hash;; i++) {
        int *slot = &n->slot[i & (uint64_t)(n->slots - 1)];
        const int number = *slot - 1;
        if (number < 0) return slot;
        const size_t begin = begin_of(n, number);
        if (n->hash[number] == hash && n->end[number] - begin == size && memcmp(n->bytes + begin, key, size) == 0) return slot;
    }
}

/* Doubles the table when half of the slots are used, so that a look-up takes few steps. */
static void make_room(struct sgrad__numbers *n) {
    if (2 * n->count < n->slots) return;
    free(n->slot);
    n->slots = n->slots ? 2 * n->slots : FIRST_SLOTS;
    n->slot = sgrad_xcalloc((size_t)n->slots, sizeof *n->slot);
    for (int i = 0; i < n->count; i++) *slot_of(n, n->hash[i], n->bytes + begin_of(n, i), n->end[i] - begin_of(n, i)) = i + 1;
}

static void keep(struct sgrad__numbers *n, uint64_t hash, const void *key, size_t size) {
    const size_t begin = begin_of(n, n->count);
    if (begin + size > n->room) {
        const size_t room = 2 * (begin + size);
        char *bytes = sgrad_xcalloc(room, 1);
        if (begin) memcpy(bytes, n->bytes, begin);
        free(n->bytes);
        n->bytes = bytes;
        n->room = room;
    }
    if (size) memcpy(n->bytes + begin, key, size);
    n->hash = sgrad_array_grow(n->hash, n->count, sizeof *n->hash);
    n->hash[n->count] = hash;
    n->end = sgrad_array_grow(n->end, n->count, sizeof *n->end);
    n->end[n->count++] = begin + size;
}

int sgrad__number(struct sgrad__numbers *n, const void *key, size_t size) {
    const uint64_t hash = sgrad_hash(key, size);
    make_room(n);
    int *slot = slot_of(n, hash, key, size);
    if (!*slot) {
        keep(n, hash, key, size);
        *slot = n->count;
    }
    return *slot - 1;
}

int sgrad__number_find(const struct sgrad__numbers *n, const void *key, size_t size) {
    return n->slots ? *slot_of(n, sgrad_hash(key, size), key, size) - 1 : -1;
}

void sgrad__numbers_free(struct sgrad__numbers *n) {
    free(n->slot);
    free(n->hash);
    free(n->end);
    free(n->bytes);
    *n = (struct sgrad__numbers){ 0 };
}
