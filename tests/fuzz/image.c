/* Any bytes as a JPEG or a PNG, scaled and cut. */
#include "datasets/formats.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct sgrad__image image;
    uint8_t square[9 * 9 * 3];
    if (sgrad__image_decode("fuzz", data, size, &image)) return 0;
    sgrad__image_fit(&image, 9, square);
    free(image.rgb);
    return 0;
}
