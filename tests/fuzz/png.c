/* Any bytes as a slice of a PNG series. */
#include "config.h"
#include "volumes/formats.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
#ifdef SGRAD_HAVE_PNG
    struct sgrad__png png;
    if (sgrad__png_header("fuzz", data, size, &png) || (uint64_t)png.width * png.height > 1 << 20) return 0;
    void *to = malloc((size_t)png.width * png.height * sgrad_voxel_size(png.voxel));
    sgrad__png_decode("fuzz", data, size, &png, to);
    free(to);
#else
    (void)data, (void)size;
#endif
    return 0;
}
