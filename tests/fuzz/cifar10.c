/* Any bytes as a file of CIFAR-10. Whole records are long, so short inputs are repeated to fill them. */
#include "datasets/formats.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    enum { RECORD = 3073 };
    const size_t records = size % 4;
    uint8_t *pixels = malloc(3072 * (size / RECORD + records) + 1), *stretched = malloc(records * RECORD + 1);
    int32_t *labels = malloc((size / RECORD + records) * sizeof *labels + 1);
    sgrad__cifar10_parse("fuzz", data, size, pixels, labels);
    if (size) {
        for (size_t i = 0; i < records * RECORD; i++) stretched[i] = data[i % size];
        sgrad__cifar10_parse("fuzz", stretched, records * RECORD, pixels, labels);
    }
    free(pixels);
    free(stretched);
    free(labels);
    return 0;
}
