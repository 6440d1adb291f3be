/* token_file.c: files of tokens. A .bin file contains little-endian integers. It has an index (megatron.c), or no header, as
 * written by nanoGPT, or a header of 256 integers of 32 bits, as written by llm.c:
 *
 *     20240520   1   number of tokens that follow   0 …      tokens of 16 bits (GPT-2's)
 *     20240801   7   number of tokens that follow   0 …      tokens of 32 bits (Llama 3's)
 *
 * A .npy file is an array of integers with one dimension (npy_array.c). Only the beginning of a file is read. */
#include "config.h"
#include "datasets/token_file.h"
#include "datasets/formats.h"
#include "runtime/files/contents.h"
#include "runtime/files/parts.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_LIMIT ((size_t)1 << 50)
enum { HEADER = SGRAD__TOKENS_HEADER, WORDS = HEADER / 4, USED = 8, BEGIN = 1 << 17 }; /* a header has less than BEGIN bytes */

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

/* Reads at most MOST bytes from the beginning of the file PATH to BEGIN, and sets *SIZE to their number, and *VERSION to that of
 * the file. */
static int read_begin(const char *path, unsigned char *begin, size_t most, size_t *size, struct sgrad_file_version *version) {
    size_t whole;
    int file;
    SGRAD_TRY(sgrad__file_open(path, FILE_LIMIT, &file, &whole));
    *size = whole < most ? whole : most;
    int error = sgrad__version_read(file, path, version);
    if (!error) error = sgrad__file_read(file, path, 0, *size, begin);
    close(file);
    return error;
}

/* Returns token I of a file, whose first bytes are BEGIN. */
static int64_t token(const struct sgrad__numbers *in, const unsigned char *begin, size_t i) {
    return sgrad__number_at(begin + in->from + i * (size_t)in->bytes, in->bytes, in->is_signed);
}

/* Returns true if tokens seem to be wider integers: in each group of COUNT, all except the first are 0, or nearly always 0. */
static bool is_wider(const struct sgrad__numbers *in, const unsigned char *begin, size_t size, size_t count) {
    enum { LEAST = 64, SMALL = 3 };
    const size_t bytes = (size_t)in->bytes, groups = (size - in->from) / bytes / count, others = groups * (count - 1);
    size_t zeros = 0, small = 0, lower = 0;
    for (size_t i = 0; i < groups; i++) {
        lower += token(in, begin, count * i) == 0;
        for (size_t k = 1; k < count; k++) {
            zeros += token(in, begin, count * i + k) == 0;
            small += token(in, begin, count * i + k) <= SMALL;
        }
    }
    return groups >= LEAST && small * 100 >= others * 98 && zeros * 2 > others && lower * 2 < groups;
}

bool sgrad__token_file_warn(const struct sgrad__token_file *file, bool asked) {
    const struct sgrad__numbers *in = &file->numbers;
    unsigned char *begin = sgrad_xcalloc(1, BEGIN);
    struct sgrad_file_version version;
    size_t size = 0;
    bool warned = false;
    if (!file->stated && !read_begin(in->path, begin, BEGIN, &size, &version)) {
        const int parts = 8 / in->bytes;
        const bool long_ones = is_wider(in, begin, size, (size_t)parts);
        const bool wide = !long_ones && !asked && in->bytes == 2 && is_wider(in, begin, size, 2);
        if (long_ones)
            sgrad_log_warning("tokens: %s: looks like int64 (%d of every %d values %s 0); write it as uint16 or uint32", in->path,
                              parts - 1, parts, sgrad_plural(parts - 1, "is", "are"));
        if (wide)
            sgrad_log_warning("tokens: %s: looks like 32-bit tokens (every second value is 0); give tokens:DIR,T,32 to read 32 "
                              "bits, or tokens:DIR,T,16 if they are 16-bit tokens",
                              in->path);
        warned = long_ones || wide;
    }
    free(begin);
    return warned;
}

/* Refuses files that probably do not contain tokens: text, and kinds with a signature of at least three bytes. SGRAD_EFORMAT. */
static int refuse_likely(const char *path, const unsigned char *begin, size_t size) {
    static const char *const likely[] = {
        "gzip", "xz", "Zstandard", "bzip2", "7-Zip", "tar", "GGUF", "PyTorch", "pickle", "PNG"
    };
    enum { LEAST = 64, MOST = 4096 };
    const struct sgrad_contents *is = sgrad_contents(begin, size < 512 ? size : 512);
    const bool text = size >= LEAST && sgrad__is_text(begin, size < MOST ? size : MOST);
    bool known = text;
    for (size_t i = 0; is && i < sizeof likely / sizeof *likely; i++) known |= strstr(is->name, likely[i]) != NULL;
    if (!known) return 0;
    const char *help = is ? is->way_out : "give text:FILE,T to read text";
    return sgrad_log_error(SGRAD_EFORMAT, "tokens: %s: is %s, not tokens; %s%sgive tokens:DIR,T,16 to read it as tokens", path,
                           is ? is->name : "text", help ? help : "", help ? ", or " : "");
}

/* Reads the file INDEX, the index of a .bin file of BIN_SIZE bytes. The result is cached, because a large index takes long. */
static int read_index(const char *index, size_t bin_size, struct sgrad__tokens *is) {
    struct sgrad_file_version version;
    SGRAD_TRY(sgrad__version_read(-1, index, &version));
    char *what = sgrad_format("index %zu", bin_size), *key = sgrad__pass_key(index, &version, what);
    struct sgrad_map map;
    int64_t number[2];
    int error = 0;
    if (sgrad__pass_get(key, number, 2) && number[0] > 0) {
        const int bytes = (int)number[0];
        *is = (struct sgrad__tokens){ .count = bin_size / (size_t)bytes, .bytes = bytes, .is_signed = number[1], .stated = true };
    } else if (!(error = sgrad_map_open(index, FILE_LIMIT, &map))) {
        error = refuse_others(index, map.data, map.size);
        if (!error) error = sgrad__tokens_parse_megatron(index, map.data, map.size, bin_size, is);
        if (!error) error = sgrad__version_check(-1, index, &version);
        if (!error) sgrad__pass_put(key, (int64_t[]){ is->bytes, is->is_signed }, 2);
        sgrad_map_close(&map);
    }
    free(key);
    free(what);
    return error;
}

int sgrad__token_file_open(const char *path, int asked, struct sgrad__token_file *file) {
    const size_t length = strlen(path) - strlen(".bin");
    const bool array = strcmp(path + length, ".npy") == 0;
    char *index = sgrad_format("%.*s.idx", (int)length, path);
    unsigned char *begin = sgrad_xcalloc(1, BEGIN);
    struct sgrad__tokens is = { .bytes = asked ? asked : 2 };
    struct sgrad_file_version version;
    size_t size = 0;
    int error = read_begin(path, begin, BEGIN, &size, &version);
    const size_t all = error ? 0 : (size_t)version.bytes;
    if (!error && array)
        error = sgrad__tokens_parse_npy(path, begin, all, &is);
    else if (!error && !access(index, F_OK))
        error = read_index(index, all, &is);
    else if (!error)
        error = sgrad__tokens_parse(path, begin, all, &is);
    if (!error && !asked && !is.stated) error = refuse_likely(path, begin, size);
    if (!error)
        *file = (struct sgrad__token_file){
            .numbers = { sgrad_format("%s", path), version, is.from, (int64_t)is.count, is.bytes, is.is_signed },
            .stated = is.stated,
        };
    free(begin);
    free(index);
    return error;
}
