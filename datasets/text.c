/* text.c: the reader of a file's bytes as tokens: a network learns to predict each byte. The last tenth of the file is the test
 * set. */
#include "config.h"
#include "datasets/formats.h"
#include "datasets/windows.h"
#include "runtime/files/contents.h"
#include "runtime/files/parts.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BYTES = 256 };
#define FILE_LIMIT ((size_t)1 << 40)

/* Warns of a file that is not text, or that is a Git LFS pointer, by its first SIZE bytes. Any bytes can be learned, but such a
 * file is probably a mistake. */
static void warn_of_others(const char *path, const unsigned char *data, size_t size) {
    const struct sgrad_contents *is = sgrad_contents(data, size);
    if (sgrad_launched_rank() || !is || (sgrad__is_text(data, size) && !strstr(is->name, "LFS"))) return;
    sgrad_log_warning("text: %s: is %s; its bytes are read as text%s%s", path, is->name, is->way_out ? "; " : "",
                      is->way_out ? is->way_out : "");
}

/* Sets *SIZE to the size of the file and *VERSION to its version, and warns if it is not text. */
static int look_at(const char *path, bool warns, size_t *size, struct sgrad_file_version *version) {
    enum { FIRST = 512 };
    unsigned char data[FIRST];
    int file;
    SGRAD_TRY(sgrad__file_open(path, FILE_LIMIT, &file, size));
    const size_t first = *size < FIRST ? *size : FIRST;
    int error = sgrad__version_read(file, path, version);
    if (!error) error = sgrad__file_read(file, path, 0, first, data);
    close(file);
    if (!error && warns) warn_of_others(path, data, first);
    return error;
}

static int open_text(struct sgrad_dataset *dataset, const char *argument, const struct sgrad_dataset_options *options) {
    const bool train = dataset->split == SGRAD_TRAIN;
    const uint64_t start = 1;
    struct sgrad_file_version version;
    size_t size;
    char *path;
    int64_t length;
    SGRAD_TRY(sgrad__windows_argument("text", argument, &path, &length));
    int error = look_at(path, train, &size, &version);
    if (!error) {
        const size_t border = size / 10 * 9 + size % 10 * 9 / 10, from = train ? 0 : border;
        struct sgrad__numbers *in = sgrad_xcalloc(1, sizeof *in);
        struct sgrad__sequences sequences = { .count = 1, .numbers = in, .hash = sgrad_xcalloc(1, sizeof *sequences.hash) };
        struct sgrad__pass pass;
        const int64_t count = (int64_t)(train ? border : size - border);
        *in = (struct sgrad__numbers){ sgrad_format("%s", path), version, from, count, 1, false };
        dataset->classes = BYTES;
        error = sgrad__numbers_pass(in, &start, 1, BYTES, &pass);
        sequences.hash[0] = pass.hash;
        if (!error)
            error = sgrad__windows_open(dataset, &sequences, path, "bytes", length);
        else
            sgrad__sequences_free(&sequences);
    }
    if (!error) error = sgrad__windows_attend(dataset, options->attend, NULL, 0);
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
