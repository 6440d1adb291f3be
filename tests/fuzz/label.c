/* Any bytes as the label of a sample in a shard: the first says whether in .cls or in .json. Two samples have it, so that the
 * second one finds the class of the first. */
#include "datasets/shards/shards.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct sgrad__draft draft = { 0 };
    int32_t label[2] = { 0 };
    if (!size) return 0;
    const char *ending = *data % 2 ? ".cls" : ".json";
    int done = 0;
    while (done < 2 && !sgrad__label_parse("fuzz", ending, data + 1, size - 1, &draft, &label[done])) done++;
    if (done == 1 || (done == 2 && label[0] != label[1])) abort();
    if (done && (label[0] < SGRAD__NO_LABEL || label[0] >= SGRAD__LABELS_LIMIT || draft.classes > 1)) abort();
    sgrad__draft_free(&draft);
    return 0;
}
