/* Any bytes as the metrics.jsonl of a run for `stargrad report`. */
#include "report/history.h"
#include "tests/fuzz/folder.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct sgrad__history history;
    folder_with("config.json", "{}", 2);
    if (sgrad__history_read(folder_with("metrics.jsonl", data, size), &history)) return 0;
    if (history.steps < 1) __builtin_trap();
    for (int i = 0; i < history.steps; i++) { /* reports print it as a whole number */
        const double step = history.step[i].step;
        if (!(step >= 0 && step < 0x1p63)) __builtin_trap();
    }
    sgrad__history_best(&history);
    sgrad__history_median_rate(&history);
    sgrad__history_free(&history);
    return 0;
}
