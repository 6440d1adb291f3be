/* Any bytes as a file of tokens. */
#include "datasets/formats.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    size_t from;
    int bytes = 2;
    unsigned sum = 0;
    if (sgrad__tokens_parse("fuzz", data, size, &from, &bytes)) return 0;
    for (size_t i = from; i < size; i++) sum += data[i];    /* a sanitizer sees a place beyond the end */
    return sum == 1 && from > size && bytes > 4;
}
