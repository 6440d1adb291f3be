/* numbers.c: a hash table with open addressing: maps byte strings to numbers, in the order of their first occurrence. */
#include "report/numbers.h"
#include "runtime/runtime.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_SLOTS = 64 };

static size_t begin_of(const struct sgrad__numbers *numbers, int number) { return number ? numbers->end[number - 1] : 0; }

/* Returns the slot that contains the key, or else the free slot into which it must be inserted. */
static int *slot_of(const struct sgrad__numbers *numbers, uint64_t hash, const void *key, size_t size) {
    for (uint64_t i = hash;; i++) {
        int *slot = &numbers->slot[i & (uint64_t)(numbers->slots - 1)];
        const int number = *slot - 1;
        if (number < 0) return slot;
        const size_t begin = begin_of(numbers, number);
        if (numbers->hash[number] == hash && numbers->end[number] - begin == size &&
            memcmp(numbers->bytes + begin, key, size) == 0)
            return slot;
    }
}

/* Doubles the table when half of the slots are used, so that a look-up takes few steps. */
static void make_room(struct sgrad__numbers *numbers) {
    if (2 * numbers->count < numbers->slots) return;
    free(numbers->slot);
    numbers->slots = numbers->slots ? 2 * numbers->slots : FIRST_SLOTS;
    numbers->slot = sgrad_xcalloc((size_t)numbers->slots, sizeof *numbers->slot);
    for (int i = 0; i < numbers->count; i++)
        *slot_of(numbers, numbers->hash[i], numbers->bytes + begin_of(numbers, i), numbers->end[i] - begin_of(numbers, i)) =
            i + 1;
}

static void keep(struct sgrad__numbers *numbers, uint64_t hash, const void *key, size_t size) {
    const size_t begin = begin_of(numbers, numbers->count);
    if (begin + size > numbers->room) {
        const size_t room = 2 * (begin + size);
        char *bytes = sgrad_xcalloc(room, 1);
        if (begin) memcpy(bytes, numbers->bytes, begin);
        free(numbers->bytes);
        numbers->bytes = bytes;
        numbers->room = room;
    }
    if (size) memcpy(numbers->bytes + begin, key, size);
    numbers->hash = sgrad_array_grow(numbers->hash, numbers->count, sizeof *numbers->hash);
    numbers->hash[numbers->count] = hash;
    numbers->end = sgrad_array_grow(numbers->end, numbers->count, sizeof *numbers->end);
    numbers->end[numbers->count++] = begin + size;
}

int sgrad__number(struct sgrad__numbers *numbers, const void *key, size_t size) {
    const uint64_t hash = sgrad_hash(key, size);
    make_room(numbers);
    int *slot = slot_of(numbers, hash, key, size);
    if (!*slot) {
        keep(numbers, hash, key, size);
        *slot = numbers->count;
    }
    return *slot - 1;
}

int sgrad__number_find(const struct sgrad__numbers *numbers, const void *key, size_t size) {
    return numbers->slots ? *slot_of(numbers, sgrad_hash(key, size), key, size) - 1 : -1;
}

void sgrad__numbers_free(struct sgrad__numbers *numbers) {
    free(numbers->slot);
    free(numbers->hash);
    free(numbers->end);
    free(numbers->bytes);
    *numbers = (struct sgrad__numbers){ 0 };
}
