/* tokens.c: numbers of 16 bits, the lower byte first, train.bin and val.bin, as nanoGPT writes them, without a header, or llm.c,
 * with one of 256 numbers of 32 bits: 20240520, the version 1, how many tokens follow. */
#include "config.h"
#include "datasets/formats.h"
#include "datasets/windows.h"

#include <stdlib.h>
#include <string.h>

#define FILE_LIMIT ((size_t)1 << 44)
#define WANTED "a folder with train.bin and val.bin, tokens of 16 bits"
enum { HEADER = 1024, MAGIC = 20240520, FORMAT = 1 };

static uint32_t word(const unsigned char *at, int i) {
    at += 4 * i;
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

int sgrad__tokens_parse(const char *name, const void *data, size_t size, size_t *from) {
    const bool headed = size >= HEADER && word(data, 0) == MAGIC;
    *from = headed ? HEADER : 0;
    if (headed && word(data, 1) != FORMAT)
        return sgrad_fail(SGRAD_EFORMAT, "tokens: %s: byte 4: has version %u of llm.c's format, %d is known", name, word(data, 1),
                          FORMAT);
    if (headed && (size - HEADER) / 2 != word(data, 2))
        return sgrad_fail(SGRAD_EFORMAT, "tokens: %s: byte 8: its header says %u tokens, and it has %zu", name, word(data, 2),
                          (size - HEADER) / 2);
    if (size % 2) return sgrad_fail(SGRAD_EFORMAT, "tokens: %s: has %zu bytes, no whole number of tokens of 16 bits", name, size);
    return 0;
}

/* Opens FILE of FOLDER, whose tokens begin at FROM; more than LARGEST becomes that. */
static int open_file(const char *folder, const char *file, struct sgrad_map *map, size_t *from, int *largest) {
    char *path = sgrad_format("%s/%s", folder, file);
    int error = sgrad_map_open(path, FILE_LIMIT, map);
    if (!error && (error = sgrad__tokens_parse(path, map->data, map->size, from))) sgrad_map_close(map);
    for (size_t i = *from; !error && i + 1 < map->size; i += 2) {
        const int token = map->data[i] | map->data[i + 1] << 8;
        if (token > *largest) *largest = token;
    }
    free(path);
    return error;
}

/* Both files say how many tokens there are. */
static int open_tokens(struct sgrad_dataset *dataset, const char *argument, const struct sgrad_dataset_options *options) {
    static const char *const file[] = { [SGRAD_TRAIN] = "train.bin", [SGRAD_TEST] = "val.bin" };
    struct sgrad_map map, other;
    size_t from = 0, other_from = 0;
    int largest = 0;
    char *folder;
    int64_t length;
    (void)options;
    SGRAD_TRY(sgrad__windows_argument("tokens", argument, &folder, &length));
    int error = sgrad__folder_check("tokens", folder, WANTED);
    if (!error) error = open_file(folder, file[dataset->split], &map, &from, &largest);
    if (!error) {
        error = open_file(folder, file[!dataset->split], &other, &other_from, &largest);
        if (error) sgrad_map_close(&map);
        else sgrad_map_close(&other);
    }
    if (!error) {
        dataset->classes = largest + 1;
        error = sgrad__windows_open(dataset, map, argument, from, (int64_t)((map.size - from) / 2), 2, length);
    }
    free(folder);
    return error;
}

const struct sgrad_reader sgrad_tokens_reader = {
    .name = "tokens",
    .argument = "DIR,T",
    .summary = "train.bin and val.bin in DIR, tokens of 16 bits as nanoGPT and llm.c write them, T in a sample",
    .open = open_tokens,
    .read = sgrad__windows_read,
    .close = sgrad__windows_close,
    .computes = true,
};
