/* Any bytes as a JPEG or a PNG, scaled and cut, and hashed in every way. */
#include "datasets/formats.h"
#include "duplicates/duplicates.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct sgrad__image image;
    uint8_t square[9 * 9 * 3];
    if (sgrad__image_decode("fuzz", data, size, &image)) return 0;
    sgrad__image_fit(&image, 9, square);
    const struct sgrad_picture picture = { image.height, image.width, 3, image.deep, image.animated, image.rgb };
    for (const struct sgrad_hash_kind *const *kind = sgrad_hash_kinds; *kind; kind++)
        for (int side = 8; side <= SGRAD_HASH_SIDE; side *= 2) {
            uint64_t word[SGRAD_HASH_WORDS];
            sgrad_hash_picture(*kind, side, &picture, word);
        }
    free(image.rgb);
    return 0;
}
