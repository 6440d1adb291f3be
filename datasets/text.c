/* text.c: the reader of a file's bytes as tokens: a network learns to predict each byte. The last tenth of the file is the test
 * set. */
#include "config.h"
#include "datasets/formats.h"
#include "datasets/windows.h"
#include "runtime/files/contents.h"

#include <stdlib.h>
#include <string.h>

enum { BYTES = 256 };
#define FILE_LIMIT ((size_t)1 << 40)

/* Warns of a file that is not text, or that is a Git LFS pointer. Any bytes can be learned, but such a file is probably a
 * mistake. */
static void warn_of_others(const char *path, const struct sgrad_map *map) {
    enum { FIRST = 512 };
    const size_t size = map->size < FIRST ? map->size : FIRST;
    const struct sgrad_contents *is = sgrad_contents(map->data, size);
    if (sgrad_launched_rank() || !is || (sgrad__is_text(map->data, size) && !strstr(is->name, "LFS"))) return;
    sgrad_log_warning("text: %s: is %s; its bytes are read as text%s%s", path, is->name, is->way_out ? "; " : "",
                      is->way_out ? is->way_out : "");
}

static int open_text(struct sgrad_dataset *dataset, const char *argument, const struct sgrad_dataset_options *options) {
    struct sgrad_map map;
    char *path;
    int64_t length;
    SGRAD_TRY(sgrad__windows_argument("text", argument, &path, &length));
    int error = sgrad_map_open(path, FILE_LIMIT, &map);
    if (!error && dataset->split == SGRAD_TRAIN) warn_of_others(path, &map);
    if (!error) {
        const size_t train = map.size / 10 * 9 + map.size % 10 * 9 / 10, from = dataset->split == SGRAD_TRAIN ? 0 : train;
        dataset->classes = BYTES;
        error = sgrad__windows_open(dataset, map, path, from, (int64_t)(from ? map.size - train : train), 1, length);
        if (!error) error = sgrad__windows_attend(dataset, options->attend, NULL);
    }
    free(path);
    return error;
}

const struct sgrad_reader sgrad_text_reader = {
    .name = "text",
    .argument = "FILE,T",
    .summary = "the bytes of FILE, T per sample; the target is the next byte; the last tenth is the test set",
    .open = open_text,
    .read = sgrad__windows_read,
    .close = sgrad__windows_close,
    .computes = true,
};
