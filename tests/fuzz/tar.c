/* Any bytes as a shard, whose index is packed and parsed; and as a pattern. */
#include "datasets/shards/shards.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expand(const uint8_t *data, size_t size) {
    struct sgrad__paths words = { 0 };
    char *pattern = malloc(size + 1);
    if (!pattern) abort();
    memcpy(pattern, data, size);
    pattern[size] = 0;
    sgrad__pattern_words("tar", pattern, "train", &words);
    sgrad__paths_free(&words);
    free(pattern);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct sgrad__draft draft = { 0 };
    struct sgrad__shard shard;
    size_t bytes, sum = 0;
    if (size < 100) expand(data, size);
    if (!sgrad__shard_scan("fuzz", -1, data, size, SIZE_MAX, &draft)) {
        void *block = sgrad__index_pack(&draft, "/fuzz", &(struct sgrad_file_version){ 0 }, &bytes);
        if (block && sgrad__index_parse(block, bytes, &shard))
            for (int64_t i = 0; i < shard.samples; i++) {       /* a sanitizer sees a name or an image outside */
                sum += strlen(shard.text + shard.sample[i].name);
                if (!shard.compressed && shard.sample[i].size) sum += data[shard.sample[i].at + shard.sample[i].size - 1];
            }
        free(block);
    }
    sgrad__draft_free(&draft);
    sgrad__index_parse(data, size, &shard);
    return sum == 1 && size > 1000000;
}
