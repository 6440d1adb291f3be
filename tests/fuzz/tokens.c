/* Any bytes as a file of tokens: without an array or index, as a NumPy array, and as an index of Megatron-LM. */
#include "datasets/formats.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Reads all tokens, so that a sanitizer sees a place beyond the end. */
static unsigned sum_of(const uint8_t *data, const struct sgrad__tokens *tokens) {
    unsigned sum = 0;
    for (size_t i = 0; i < tokens->count * (size_t)tokens->bytes; i++) sum += data[tokens->from + i];
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct sgrad__tokens tokens = { .bytes = 2 };
    unsigned sum = 0;
    if (!sgrad__tokens_parse("fuzz", data, size, &tokens)) sum += sum_of(data, &tokens);
    if (!sgrad__tokens_parse_npy("fuzz", data, size, &tokens)) sum += sum_of(data, &tokens);
    /* Files of three sizes: valid indexes in the corpus are of these. */
    for (size_t bin = 0; bin <= 24; bin += 12)
        if (!sgrad__tokens_parse_megatron("fuzz", data, size, bin, &tokens)) sum += tokens.count * (size_t)tokens.bytes != bin;
    return sum == 1 && tokens.bytes > 8;
}
