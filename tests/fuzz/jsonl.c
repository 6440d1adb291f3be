/* Any bytes as JSON lines, compressed or not. */
#include "datasets/formats.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct sgrad__csv csv;
    size_t sum = 0, bytes = size;
    void *content = NULL;
    if (sgrad__decompress("fuzz", data, size, 1 << 20, &content, &bytes)) return 0;
    if (!sgrad__jsonl_parse("fuzz", content ? content : data, bytes, &csv)) {
        for (int64_t i = 0; i < csv.cells; i++) sum += strlen(csv.cell[i]);     /* a sanitizer sees a short one */
        sgrad__csv_free(&csv);
    }
    free(content);
    return sum == 1 && bytes == 0;
}
