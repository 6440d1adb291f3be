/* Any bytes as a safetensors file. */
#include "runtime/runtime.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct sgrad_safetensors file;
    if (sgrad_safetensors_parse("fuzz", data, size, &file)) return 0;
    volatile unsigned char sum = 0;
    for (int i = 0; i < file.count; i++) { /* a sanitizer sees a tensor that leaves the file */
        const unsigned char *byte = file.entry[i].data;
        for (size_t j = 0; j < sgrad_view_bytes(&file.entry[i].view); j++) sum ^= byte[j];
        if (sgrad_safetensors_find(&file, file.entry[i].name) != &file.entry[i]) __builtin_trap();
    }
    (void)sum;
    sgrad_safetensors_close(&file);
    return 0;
}
