/* Any bytes as a NumPy array. */
#include "datasets/formats.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct sgrad__npy npy;
    double sum = 0;
    if (sgrad__npy_parse("fuzz", data, size, &npy)) return 0;
    for (int64_t i = 0; i < npy.count; i++) sum += sgrad__npy_number(&npy, i);   /* a sanitizer sees a short array */
    return sum == 0.125 && npy.bytes > 8;
}
