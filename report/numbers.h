/* numbers.h: numbers for things that are told apart by their bytes: a name, a pair of ints. The first that is seen is 0. */
#ifndef SGRAD_REPORT_NUMBERS_H
#define SGRAD_REPORT_NUMBERS_H

#include <stddef.h>
#include <stdint.h>

struct sgrad__numbers {
    int count;                          /* how many are known */
    int slots, *slot;                   /* a hash table of numbers, each plus 1; 0: free */
    uint64_t *hash;                     /* by number, as is END: where its bytes end, and the next one's begin */
    size_t *end, room;
    char *bytes;
};
/* The number of a thing; when it is seen for the first time that is what COUNT was. */
int sgrad__number(struct sgrad__numbers *numbers, const void *key, size_t size);
int sgrad__number_find(const struct sgrad__numbers *numbers, const void *key, size_t size);     /* -1: never seen */
void sgrad__numbers_free(struct sgrad__numbers *numbers);

#endif
