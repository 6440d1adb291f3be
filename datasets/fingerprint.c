/* fingerprint.c: a hash that identifies the content of a data set. */
#include "config.h"
#include "datasets/datasets.h"
#include "datasets/formats.h"

#include <string.h>

/* Mixes eight bytes into HASH: xor, multiplication by an odd number (2^64 divided by the golden ratio), xor of the upper half
 * into the lower half. */
static uint64_t mix(uint64_t hash, uint64_t word) {
    hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
    return hash ^ hash >> 32;
}

uint64_t sgrad__fingerprint_words(uint64_t hash, const void *data, size_t size) {
    const unsigned char *byte = data;
    uint64_t word;
    for (size_t i = 0; i < size; i += sizeof word) {
        memcpy(&word, byte + i, sizeof word);
        hash = mix(hash, word);
    }
    return hash;
}

uint64_t sgrad__fingerprint_end(uint64_t hash, const void *data, size_t size, size_t all) {
    const size_t whole = size / sizeof(uint64_t) * sizeof(uint64_t);
    uint64_t word = 0;
    hash = sgrad__fingerprint_words(hash, data, whole);
    if (whole < size) memcpy(&word, (const unsigned char *)data + whole, size - whole);
    return mix(mix(hash, word), all);
}

uint64_t sgrad__fingerprint_add(uint64_t hash, const void *data, size_t size) {
    return sgrad__fingerprint_end(hash, data, size, size);
}

uint64_t sgrad__sample_stamp(const char *name, const int64_t *number, size_t numbers) {
    return sgrad__fingerprint_add(sgrad__fingerprint_add(1, name, strlen(name)), number, numbers * sizeof *number);
}

uint64_t sgrad_dataset_fingerprint(const struct sgrad_dataset *dataset) {
    int64_t number[2 + SGRAD_MAX_FIELDS * SGRAD_MAX_RANK] = { dataset->count };
    const struct sgrad_field *field[SGRAD_MAX_FIELDS];
    int numbers = 1;
    const int all = sgrad_dataset_own_fields(dataset);
    int fields = 0;
    for (int f = 0; f < all; f++) /* without documents: they depend on an option (--attend), and follow from the tokens */
        if (strcmp(dataset->field[f].name, SGRAD_DOCUMENT_FIELD)) field[fields++] = &dataset->field[f];
    for (int f = 0; f < fields; f++)
        for (int i = 0; i < field[f]->shape.rank; i++) number[numbers++] = field[f]->shape.dim[i];
    number[numbers++] = dataset->classes;
    uint64_t hash = sgrad__fingerprint_add(1, number, (size_t)numbers * sizeof *number);
    for (int f = fields - 1; f >= 0; f--) {
        const size_t bytes = (size_t)dataset->count * sgrad_field_bytes(field[f]);
        hash = field[f]->data ? sgrad__fingerprint_add(hash, field[f]->data, bytes)
                              : sgrad__fingerprint_add(hash, &dataset->identity, sizeof dataset->identity);
    }
    if (dataset->kept) hash = sgrad__fingerprint_add(hash, dataset->kept, (size_t)dataset->count * sizeof *dataset->kept);
    return hash;
}
