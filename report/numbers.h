/* numbers.h: assigns numbers to keys, which are byte strings such as a name or a pair of ints, from 0 in order of first use. */
#ifndef SGRAD_REPORT_NUMBERS_H
#define SGRAD_REPORT_NUMBERS_H

#include <stddef.h>
#include <stdint.h>

struct sgrad__numbers {
    int count;                          /* number of keys */
    int slots, *slot;                   /* hash table: the number of a key plus 1; 0: empty */
    uint64_t *hash;                     /* per key */
    size_t *end, room;                  /* per key: offset of its end in bytes; capacity of bytes */
    char *bytes;                        /* all keys, one after the other */
};
/* Returns the number of KEY, of SIZE bytes. A new key gets the number of keys before it. NUMBERS must initially be zeroed. */
int sgrad__number(struct sgrad__numbers *numbers, const void *key, size_t size);
int sgrad__number_find(const struct sgrad__numbers *numbers, const void *key, size_t size);     /* -1: unknown key */
void sgrad__numbers_free(struct sgrad__numbers *numbers);

#endif
