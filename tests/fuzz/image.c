/* Any bytes as a JPEG, a PNG or a TIFF image: scaled and cropped, of 8 and of 16 bits, and with all hashes. */
#include "datasets/formats.h"
#include "duplicates/duplicates.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct sgrad__image image;
    uint8_t square[9 * 9 * 3];
    if (sgrad__image_decode("fuzz", data, size, &image)) return 0;
    sgrad__image_upright(data, size, &image);
    sgrad__image_fit(&image, 11, 9, square);
    const struct sgrad_picture picture = { image.height, image.width, 3, image.deep, image.animated, image.rgb };
    for (const struct sgrad_hash_kind *const *kind = sgrad_hash_kinds; *kind; kind++)
        for (int side = 8; side <= SGRAD_HASH_SIDE; side *= 2) {
            uint64_t word[SGRAD_HASH_WORDS];
            sgrad_hash_picture(*kind, side, &picture, word);
        }
    free(image.rgb);
    uint16_t deep[9 * 9 * 3];
    if (sgrad__image_decode_deep("fuzz", data, size, &image)) abort();      /* what can be read can be read at any depth */
    sgrad__image_fit(&image, 9, 9, deep);
    free(image.rgb16);
    return 0;
}
