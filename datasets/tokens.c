/* tokens.c: the reader of tokens, little-endian integers of 16 or 32 bits, in train.bin and val.bin. The files have no header, as
 * written by nanoGPT, or a header of 256 integers of 32 bits, as written by llm.c:
 *
 *     20240520   1   number of tokens that follow   0 …      tokens of 16 bits (GPT-2's)
 *     20240801   7   number of tokens that follow   0 …      tokens of 32 bits (Llama 3's) */
#include "config.h"
#include "datasets/formats.h"
#include "datasets/windows.h"
#include "runtime/files/contents.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_LIMIT ((size_t)1 << 44)
#define WANTED     "give tokens:DIR,T, where DIR contains train.bin and val.bin, tokens of 16 or 32 bits"
enum { HEADER = SGRAD__TOKENS_HEADER, WORDS = HEADER / 4, USED = 8 };

static const struct format {
    uint32_t magic, version;
    int bytes;
} formats[] = { { 20240520, 1, 2 }, { 20240801, 7, 4 } };

static uint32_t word(const unsigned char *at, size_t i) {
    at += 4 * i;
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static const struct format *find_format(const void *data, size_t size) {
    for (size_t i = 0; size >= HEADER && i < sizeof formats / sizeof *formats; i++)
        if (word(data, 0) == formats[i].magic) return &formats[i];
    return NULL;
}

void sgrad__tokens_header(int bytes, uint32_t count, unsigned char header[SGRAD__TOKENS_HEADER]) {
    const struct format *format = &formats[bytes == formats[1].bytes];
    const uint32_t numbers[] = { format->magic, format->version, count };
    memset(header, 0, HEADER);
    for (size_t i = 0; i < sizeof numbers; i++) header[i] = (unsigned char)(numbers[i / 4] >> 8 * (i % 4));
}

/* Returns true if the file begins with a header of any kind: a few numbers, then only zeros. */
static bool has_header(const void *data, size_t size) {
    if (size <= HEADER || !word(data, 0)) return false;
    for (size_t i = USED; i < WORDS; i++)
        if (word(data, i)) return false;
    return true;
}

/* Refuses files that cannot contain tokens: kinds whose signature is too long to occur in tokens by chance. SGRAD_EFORMAT. */
static int refuse_others(const char *name, const void *data, size_t size) {
    static const char *const sure[] = { "LFS", "NumPy", "HTML", "HDF5", "Parquet", "Arrow", "safetensors", "zip archive" };
    const struct sgrad_contents *is = sgrad_contents(data, size < 512 ? size : 512);
    for (size_t i = 0; is && i < sizeof sure / sizeof *sure; i++)
        if (strstr(is->name, sure[i]))
            return sgrad_log_error(SGRAD_EFORMAT, "tokens: %s: is %s, not tokens%s%s", name, is->name, is->way_out ? "; " : "",
                                   is->way_out ? is->way_out : "");
    return 0;
}

int sgrad__tokens_parse(const char *name, const void *data, size_t size, size_t *from, int *bytes) {
    const struct format *format = find_format(data, size);
    SGRAD_TRY(refuse_others(name, data, size));
    if (!format && has_header(data, size))
        return sgrad_log_error(
            SGRAD_EFORMAT,
            "tokens: %s: byte 0: unknown header: its first number is %u, but llm.c's are %u (16 bits) and %u (32 bits)", name,
            word(data, 0), formats[0].magic, formats[1].magic);
    if (format && word(data, 1) != format->version)
        return sgrad_log_error(SGRAD_EFORMAT,
                               "tokens: %s: byte 4: llm.c's format %u has version %u here, but only version %u is supported",
                               name, format->magic, word(data, 1), format->version);
    const size_t begin = format ? HEADER : 0;
    const int width = format ? format->bytes : *bytes;
    if (size % (size_t)width)
        return sgrad_log_error(SGRAD_EFORMAT, "tokens: %s: has %zu bytes, which is not a whole number of tokens of %d bits%s",
                               name, size, 8 * width,
                               width == 4 && !format && size % 2 == 0 ? "; replace ,32 by ,16 if tokens have 16 bits" : "");
    if (format && (size - begin) / (size_t)width != word(data, 2))
        return sgrad_log_error(SGRAD_EFORMAT, "tokens: %s: byte 8: its header states %u tokens, but it has %zu", name,
                               word(data, 2), (size - begin) / (size_t)width);
    *from = begin;
    *bytes = width;
    return 0;
}

/* A file of tokens. */
struct file {
    struct sgrad_map map;
    size_t from;
    int bytes;
};

static uint32_t token_at(const struct file *file, size_t i) {
    const unsigned char *at = file->map.data + file->from + i * (size_t)file->bytes;
    return file->bytes == 4 ? word(at, 0) : (uint32_t)at[0] | (uint32_t)at[1] << 8;
}

static size_t tokens_of(const struct file *file) { return (file->map.size - file->from) / (size_t)file->bytes; }

/* Returns true if tokens seem to be wider integers: in each group of COUNT, all except the first are 0, or nearly always 0. */
static bool is_wider(const struct file *file, size_t count) {
    enum { LEAST = 64, MOST = 1 << 20, SMALL = 3 };
    const size_t groups = tokens_of(file) / count < MOST ? tokens_of(file) / count : MOST, others = groups * (count - 1);
    size_t zeros = 0, small = 0, lower = 0;
    for (size_t i = 0; i < groups; i++) {
        lower += token_at(file, count * i) == 0;
        for (size_t k = 1; k < count; k++) {
            zeros += token_at(file, count * i + k) == 0;
            small += token_at(file, count * i + k) <= SMALL;
        }
    }
    return groups >= LEAST && small * 100 >= others * 98 && zeros * 2 > others && lower * 2 < groups;
}

/* Warns of tokens that seem to be wider integers. ASKED: the argument specifies the width. Returns true if it warned. */
static bool warn_of_wider(const char *path, const struct file *file, bool asked) {
    const int parts = 8 / file->bytes;
    const bool long_ones = is_wider(file, (size_t)parts), wide = !asked && file->bytes == 2 && is_wider(file, 2);
    if (file->from || !(long_ones || wide)) return false;
    if (long_ones)
        sgrad_log_warning("tokens: %s: looks like int64 (%d of every %d values %s 0); write it as uint16 or uint32", path,
                          parts - 1, parts, sgrad_plural(parts - 1, "is", "are"));
    else
        sgrad_log_warning("tokens: %s: looks like 32-bit tokens (every second value is 0); give tokens:DIR,T,32 to read 32 bits, "
                          "or tokens:DIR,T,16 if they are 16-bit tokens",
                          path);
    return true;
}

/* Refuses files that probably do not contain tokens: text, and kinds with a signature of at least three bytes. SGRAD_EFORMAT. */
static int refuse_likely(const char *path, const struct file *file) {
    static const char *const likely[] = { "gzip", "xz", "Zstandard", "bzip2", "7-Zip", "tar", "GGUF", "PyTorch", "pickle",
                                         "PNG" };
    enum { LEAST = 64, MOST = 4096 };
    const struct sgrad_contents *is = sgrad_contents(file->map.data, file->map.size < 512 ? file->map.size : 512);
    const bool text = file->map.size >= LEAST && sgrad__is_text(file->map.data, file->map.size < MOST ? file->map.size : MOST);
    bool known = text;
    for (size_t i = 0; is && i < sizeof likely / sizeof *likely; i++) known |= strstr(is->name, likely[i]) != NULL;
    if (file->from || !known) return 0;
    const char *help = is ? is->way_out : "give text:FILE,T to read text";
    return sgrad_log_error(SGRAD_EFORMAT, "tokens: %s: is %s, not tokens; %s%sgive tokens:DIR,T,16 to read it as tokens", path,
                           is ? is->name : "text", help ? help : "", help ? ", or " : "");
}

/* Opens FILE of FOLDER. Tokens have f->bytes bytes, unless the header states otherwise. *LARGEST becomes the largest token, if it
 * is larger. If *WARNS is true, may warn once, and then clears it. */
static int open_file(const char *folder, const char *file, bool asked, bool *warns, struct file *f, int *largest) {
    char *path = sgrad_format("%s/%s", folder, file);
    int error = sgrad_map_open(path, FILE_LIMIT, &f->map);
    if (!error) error = sgrad__tokens_parse(path, f->map.data, f->map.size, &f->from, &f->bytes);
    if (!error && !asked) error = refuse_likely(path, f);
    for (size_t i = 0; !error && i < tokens_of(f); i++) {
        const uint32_t token = token_at(f, i);
        if (token >= INT32_MAX)
            error = sgrad_log_error(SGRAD_EFORMAT, "tokens: %s: token %zu is %u, but tokens must be less than %d", path, i, token,
                                    INT32_MAX);
        else if ((int)token > *largest) *largest = (int)token;
    }
    if (!error && *warns) *warns = !warn_of_wider(path, f, asked);
    if (error && f->map.data) sgrad_map_close(&f->map);
    free(path);
    return error;
}

/* Parses "DIR,T", "DIR,T,16" or "DIR,T,32". *BYTES becomes 2 or 4; 0: not specified. */
static int read_argument(const char *argument, char **folder, int64_t *length, int *bytes) {
    char *text = sgrad_format("%s", argument), *last = strrchr(text, ',');
    const bool width = last && (!strcmp(last, ",16") || !strcmp(last, ",32"));
    struct stat status;
    *bytes = 0;
    if (width && memchr(text, ',', (size_t)(last - text))) {
        *last = 0;
        if (stat(text, &status)) *bytes = last[1] == '3' ? 4 : 2;       /* else it is T, and DIR contains a comma */
        else *last = ',';
    }
    const int error = sgrad__windows_argument("tokens", text, folder, length);
    free(text);
    return error;
}

/* Restricts the targets to the tokens of answers, by FOLDER/train.answers or val.answers, which has a byte for each token. */
static int read_answers(struct sgrad_dataset *dataset, const char *folder, size_t tokens) {
    char *path = sgrad_format("%s/%s.answers", folder, dataset->split == SGRAD_TRAIN ? "train" : "val");
    struct sgrad_map map;
    size_t bad = 0;
    int error = access(path, F_OK) ? sgrad_log_error(SGRAD_EINVAL,
                                                     "--loss-on answers requires %s, which stargrad tokenize --template writes",
                                                     path)
                                   : sgrad_map_open(path, FILE_LIMIT, &map);
    if (!error) {
        while (bad < map.size && map.data[bad] <= 1) bad++;
        if (bad < map.size)
            error = sgrad_log_error(SGRAD_EFORMAT, "tokens: %s: byte %zu is %d, not 0 or 1", path, bad, map.data[bad]);
        else if (map.size != tokens)
            error = sgrad_log_error(SGRAD_EFORMAT, "tokens: %s: has %zu bytes, but must have one for each of the %zu tokens",
                                    path, map.size, tokens);
        else if (!memchr(map.data, 1, map.size))
            error = sgrad_log_error(SGRAD_EFORMAT, "tokens: %s: no token belongs to an answer", path);
        if (error) sgrad_map_close(&map);
        else sgrad__windows_restrict(dataset, map);
    }
    free(path);
    return error;
}

/* The number of classes is determined by the tokens of both files. */
static int open_tokens(struct sgrad_dataset *dataset, const char *argument, const struct sgrad_dataset_options *options) {
    static const char *const name[] = { [SGRAD_TRAIN] = "train.bin", [SGRAD_TEST] = "val.bin" };
    struct file own, other;
    int largest = 0, asked;
    char *folder;
    int64_t length;
    const bool first = dataset->split == SGRAD_TRAIN || options->origin;       /* warns once, not for both splits */
    bool warns = first && sgrad_launched_rank() == 0;
    SGRAD_TRY(read_argument(argument, &folder, &length, &asked));
    own = other = (struct file){ .bytes = asked ? asked : 2 };
    int error = sgrad__folder_check("tokens", folder, WANTED);
    if (!error) error = open_file(folder, name[dataset->split], asked, &warns, &own, &largest);
    if (!error) {
        warns &= dataset->split == SGRAD_TRAIN;
        error = open_file(folder, name[!dataset->split], asked, &warns, &other, &largest);
        if (error) sgrad_map_close(&own.map);
        else sgrad_map_close(&other.map);
    }
    if (!error) {
        dataset->classes = largest + 1;
        dataset->note = sgrad_format("tokens of %d bits", 8 * own.bytes);
        const size_t tokens = tokens_of(&own);
        error = sgrad__windows_open(dataset, own.map, argument, own.from, (int64_t)tokens, own.bytes, length);
        if (!error && options->answers) error = read_answers(dataset, folder, tokens);
        if (error && dataset->state) sgrad__windows_close(dataset), dataset->state = NULL;
    }
    free(folder);
    return error;
}

const struct sgrad_reader sgrad_tokens_reader = {
    .name = "tokens",
    .argument = "DIR,T[,16|32]",
    .summary = "train.bin and val.bin in DIR: tokens of 16 or 32 bits in the format of nanoGPT and llm.c, T per sample",
    .open = open_tokens,
    .read = sgrad__windows_read,
    .close = sgrad__windows_close,
    .computes = true,
};
