/* Any bytes as an idx file of labels and of images. */
#include "datasets/formats.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    for (int rank = 1; rank <= 3; rank += 2) {
        struct sgrad__idx idx;
        if (sgrad__idx_parse("fuzz", data, size, rank, &idx)) continue;
        uint8_t sum = 0;
        for (int64_t i = 0; i < idx.count; i++) sum ^= idx.data[i]; /* a sanitizer sees a short array */
        idx.data[0] = sum;
        free(idx.data);
    }
    return 0;
}
