/* Any bytes as the metadata of a Zarr array, in both versions of the format, and as chunks of each compressor. */
#include "volumes/formats.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct sgrad__zarr zarr;
    char room[64];
    for (int version = 2; version <= 3; version++) sgrad__zarr_parse("fuzz", data, size, version, &zarr);
    for (enum sgrad__codec codec = SGRAD__NO_CODEC; codec <= SGRAD__BLOSC; codec++)
        sgrad__codec_expand(codec, "fuzz", data, size, room, sizeof room), sgrad__codec_whole(codec, data, size, sizeof room);
    return 0;
}
