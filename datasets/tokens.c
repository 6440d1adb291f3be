/* tokens.c: the reader of tokens: train.bin and val.bin, or train.npy and val.npy. A .bin file contains little-endian integers.
 * It has an index (megatron.c), or no header, as written by nanoGPT, or a header of 256 integers of 32 bits, as written by llm.c:
 *
 *     20240520   1   number of tokens that follow   0 …      tokens of 16 bits (GPT-2's)
 *     20240801   7   number of tokens that follow   0 …      tokens of 32 bits (Llama 3's)
 *
 * A .npy file is an array of integers with one dimension (npy_array.c). */
#include "config.h"
#include "datasets/formats.h"
#include "datasets/windows.h"
#include "runtime/files/contents.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FILE_LIMIT ((size_t)1 << 44)
#define WANTED     "give tokens:DIR,T, where DIR contains train.bin and val.bin, or train.npy and val.npy"
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

int sgrad__tokens_parse(const char *name, const void *data, size_t size, struct sgrad__tokens *tokens) {
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
    const int width = format ? format->bytes : tokens->bytes;
    if (size % (size_t)width)
        return sgrad_log_error(SGRAD_EFORMAT, "tokens: %s: has %zu bytes, which is not a whole number of tokens of %d bits%s",
                               name, size, 8 * width,
                               width == 4 && !format && size % 2 == 0 ? "; replace ,32 by ,16 if tokens have 16 bits" : "");
    if (format && (size - begin) / (size_t)width != word(data, 2))
        return sgrad_log_error(SGRAD_EFORMAT, "tokens: %s: byte 8: its header states %u tokens, but it has %zu", name,
                               word(data, 2), (size - begin) / (size_t)width);
    *tokens = (struct sgrad__tokens){ begin, (size - begin) / (size_t)width, width, .stated = format != NULL };
    return 0;
}

int sgrad__tokens_parse_npy(const char *name, const void *data, size_t size, struct sgrad__tokens *tokens) {
    struct sgrad__npy npy;
    SGRAD_TRY(sgrad__npy_parse(name, data, size, &npy));
    if (npy.shape.rank != 1)
        return sgrad_log_error(SGRAD_EFORMAT, "tokens: %s: has %d dimensions, but tokens must have one; save array.reshape(-1)",
                               name, npy.shape.rank);
    if ((npy.kind != 'i' && npy.kind != 'u') || (npy.kind == 'u' && npy.bytes == 8))
        return sgrad_log_error(SGRAD_EFORMAT,
                               "tokens: %s: has values of type %c%d, but tokens must be integers of up to 32 bits, or int64",
                               name, npy.kind, npy.bytes);
    if (npy.high_first && npy.bytes > 1)
        return sgrad_log_error(SGRAD_EFORMAT, "tokens: %s: is big-endian, but must be little-endian; save array.astype('<%c%d')",
                               name, npy.kind, npy.bytes);
    *tokens = (struct sgrad__tokens){ .from = (size_t)(npy.data - (const unsigned char *)data),
                                      .count = (size_t)npy.count,
                                      .bytes = npy.bytes,
                                      .is_signed = npy.kind == 'i',
                                      .stated = true };
    return 0;
}

/* A file of tokens. */
struct file {
    struct sgrad_map map;
    struct sgrad__tokens is;
};

static int64_t token_at(const struct file *file, size_t i) {
    const int bytes = file->is.bytes, unused = 64 - 8 * bytes;
    const unsigned char *at = file->map.data + file->is.from + i * (size_t)bytes;
    uint64_t bits = at[0];
    if (bytes == 2) bits |= (uint64_t)at[1] << 8;
    if (bytes >= 4) bits = word(at, 0);
    if (bytes == 8) bits |= (uint64_t)word(at, 1) << 32;
    return file->is.is_signed ? (int64_t)(bits << unused) >> unused : (int64_t)bits;
}

/* Returns true if tokens seem to be wider integers: in each group of COUNT, all except the first are 0, or nearly always 0. */
static bool is_wider(const struct file *file, size_t count) {
    enum { LEAST = 64, MOST = 1 << 20, SMALL = 3 };
    const size_t groups = file->is.count / count < MOST ? file->is.count / count : MOST, others = groups * (count - 1);
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
    if (file->is.stated) return false;
    const int parts = 8 / file->is.bytes;
    const bool long_ones = is_wider(file, (size_t)parts), wide = !asked && file->is.bytes == 2 && is_wider(file, 2);
    if (!(long_ones || wide)) return false;
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
    if (file->is.stated || !known) return 0;
    const char *help = is ? is->way_out : "give text:FILE,T to read text";
    return sgrad_log_error(SGRAD_EFORMAT, "tokens: %s: is %s, not tokens; %s%sgive tokens:DIR,T,16 to read it as tokens", path,
                           is ? is->name : "text", help ? help : "", help ? ", or " : "");
}

/* Sets f->is from the file INDEX, the index of the tokens that f->map contains. */
static int read_index(const char *index, struct file *f) {
    struct sgrad_map map;
    SGRAD_TRY(sgrad_map_open(index, FILE_LIMIT, &map));
    int error = refuse_others(index, map.data, map.size);
    if (!error) error = sgrad__tokens_parse_megatron(index, map.data, map.size, f->map.size, &f->is);
    sgrad_map_close(&map);
    return error;
}

/* Checks that each token is a number from 0 on that is less than INT32_MAX. *LARGEST becomes the largest, if it is larger. */
static int check_tokens(const char *path, const struct file *f, int *largest) {
    for (size_t i = 0; i < f->is.count; i++) {
        const int64_t token = token_at(f, i);
        if (token < 0 || token >= INT32_MAX)
            return sgrad_log_error(SGRAD_EFORMAT, "tokens: %s: token %zu is %lld, but tokens must be at least 0 and less than %d",
                                   path, i, (long long)token, INT32_MAX);
        if (token > *largest) *largest = (int)token;
    }
    return 0;
}

static bool exists(const char *path) {
    struct stat status;
    return !stat(path, &status);
}

/* Opens the file of SPLIT, "train" or "val", in FOLDER. Tokens have f->is.bytes bytes, unless the file or its index states the
 * width. *LARGEST becomes the largest token, if it is larger. If *WARNS is true, may warn once, and then clears it. */
static int open_file(const char *folder, const char *split, bool asked, bool *warns, struct file *f, int *largest) {
    char *bin = sgrad_format("%s/%s.bin", folder, split), *npy = sgrad_format("%s/%s.npy", folder, split);
    char *index = sgrad_format("%s/%s.idx", folder, split);
    const bool array = exists(npy);
    const char *path = array ? npy : bin;
    int error = 0;
    if (array && exists(bin))
        error = sgrad_log_error(SGRAD_EFORMAT, "tokens: %s and %s both exist; remove one of them", bin, npy);
    else if (!array && !exists(bin))
        error = sgrad_log_error(SGRAD_EIO, "tokens: %s: neither %s.bin nor %s.npy exists; " WANTED, folder, split, split);
    if (!error) error = sgrad_map_open(path, FILE_LIMIT, &f->map);
    if (!error && array) error = sgrad__tokens_parse_npy(path, f->map.data, f->map.size, &f->is);
    else if (!error && exists(index)) error = read_index(index, f);
    else if (!error) error = sgrad__tokens_parse(path, f->map.data, f->map.size, &f->is);
    if (!error && !asked) error = refuse_likely(path, f);
    if (!error) error = check_tokens(path, f, largest);
    if (!error && *warns) *warns = !warn_of_wider(path, f, asked);
    if (error && f->map.data) sgrad_map_close(&f->map);
    free(bin);
    free(npy);
    free(index);
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
    int error = exists(path) ? sgrad_map_open(path, FILE_LIMIT, &map)
                             : sgrad_log_error(SGRAD_EINVAL,
                                               "--loss-on answers requires %s, which stargrad tokenize --template writes", path);
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
    static const char *const name[] = { [SGRAD_TRAIN] = "train", [SGRAD_TEST] = "val" };
    struct file own, other;
    int largest = 0, asked;
    char *folder;
    int64_t length;
    const bool first = dataset->split == SGRAD_TRAIN || options->origin;       /* warns once, not for both splits */
    bool warns = first && sgrad_launched_rank() == 0;
    SGRAD_TRY(read_argument(argument, &folder, &length, &asked));
    own = other = (struct file){ .is.bytes = asked ? asked : 2 };
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
        dataset->note = sgrad_format("tokens of %d bits", 8 * own.is.bytes);
        error = sgrad__windows_open(dataset, own.map, argument, own.is.from, (int64_t)own.is.count, own.is.bytes, length);
        if (!error && options->answers) error = read_answers(dataset, folder, own.is.count);
        if (!error) error = sgrad__windows_attend(dataset, options->attend, folder);
    }
    free(folder);
    return error;
}

const struct sgrad_reader sgrad_tokens_reader = {
    .name = "tokens",
    .argument = "DIR,T[,16|32]",
    .summary = "tokens, T per sample: train.bin and val.bin in DIR, as written by nanoGPT, llm.c or Megatron-LM (with train.idx "
               "and val.idx), or train.npy and val.npy",
    .open = open_tokens,
    .read = sgrad__windows_read,
    .close = sgrad__windows_close,
    .computes = true,
};
