/* Any bytes as the stored index of a shard, with the magic number and the checksum of a valid one. */
#include "datasets/shards/shards.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Reads all parts of the index, so that a sanitizer sees one outside. */
static size_t sum_of(const struct sgrad__shard *shard) {
    size_t sum = strlen(shard->path);
    for (int64_t i = 0; i < shard->samples; i++) {
        const struct sgrad__shard_sample *sample = &shard->sample[i];
        sum += strlen(shard->text + sample->name) + (unsigned char)shard->text[sample->name + sample->key / 2];
        if (sample->at + sample->size > shard->bytes) abort();
        if (shard->classes && sample->label >= shard->classes) abort();
        if (shard->folders && sample->label < 0) abort();
    }
    for (int i = 0; i < shard->folders; i++) sum += strlen(shard->text + shard->folder[i].name);
    for (int c = 0; c < shard->classes; c++) sum += strlen(shard->text + shard->class_name[c]);
    for (int i = 0; i < shard->others; i++) sum += strlen(shard->text + shard->other[2 * i]);
    return sum;
}

/* Returns the magic number of an index that was made now. */
static uint64_t magic_of(void) {
    struct sgrad__draft draft = { 0 };
    size_t bytes;
    uint64_t magic;
    void *block = sgrad__index_pack(&draft, "/fuzz", &(struct sgrad_file_version){ 0 }, &bytes);
    if (!block) abort();
    memcpy(&magic, block, sizeof magic);
    free(block);
    return magic;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct sgrad__shard shard;
    size_t sum = 0;
    uint64_t *block = malloc(size + !size);
    if (!block) abort();
    memcpy(block, data, size);
    if (size >= 16) {
        block[0] = magic_of();
        block[1] = sgrad__fingerprint_add(1, block + 2, size - 16);
    }
    if (sgrad__index_parse(block, size, &shard)) sum = sum_of(&shard);
    free(block);
    return sum == 1 && size > 1000000;
}
