/* Any bytes as hashes.bin, unchanged and with a corrected checksum: a file that is accepted is read again with the same
 * result. */
#include "duplicates/internal.h"

#include <stdlib.h>
#include <string.h>

static void parse(const uint8_t *data, size_t size) {
    struct sgrad__store store = { 0 };
    if (sgrad__store_parse("fuzz", data, size, sgrad_hash_kinds[0], 64, &store)) return;
    for (int64_t i = 0; i < store.count; i++)
        if (!sgrad__store_find(&store, store.record[i].stamp)) abort();
    free(store.record);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    parse(data, size);
    if (size < 8) return 0;
    uint8_t *whole = malloc(size);
    memcpy(whole, data, size);
    uint64_t sum = sgrad_hash(data, size - 8);
    for (int i = 0; i < 8; i++) whole[size - 8 + (size_t)i] = (uint8_t)(sum >> 8 * i);
    parse(whole, size);
    free(whole);
    return 0;
}
