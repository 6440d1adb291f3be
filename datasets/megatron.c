/* megatron.c: parses the index of a data set of Megatron-LM, the file train.idx next to train.bin. Its numbers are little-endian.
 *
 *     byte 0     9 bytes   MMIDIDX\0\0
 *          9     8         version: 1
 *          17    1         type of a token: a row of the table below
 *          18    8         S, the number of sequences
 *          26    8         D, the number of document indices: one more than documents
 *          34    4·S       number of tokens of each sequence
 *                8·S       byte of train.bin at which each sequence begins
 *                8·D       number of the first sequence of each document, and finally S
 *                S         modes of the sequences; only multimodal data sets have them, and they are not supported
 *
 * Megatron-LM writes sequences one after another, without gaps, so the tokens of train.bin are one stream. An index with another
 * order is refused. Source: NVIDIA Megatron-LM, megatron/core/datasets/indexed_dataset.py. */
#include "config.h"
#include "datasets/formats.h"

#include <string.h>

enum { VERSION_AT = 9, TYPE_AT = 17, SEQUENCES_AT = 18, DOCUMENTS_AT = 26, HEADER = 34 };
static const char magic[VERSION_AT] = "MMIDIDX\0"; /* the ninth byte is the 0 at the end of the text */

static const struct type {
    int code, bytes;
    bool is_signed;
} types[] = { { 1, 1, false }, { 2, 1, true }, { 3, 2, true }, { 4, 4, true }, { 5, 8, true }, { 8, 2, false } };

/* The three lists of an index. */
struct lists {
    const char *name;
    const unsigned char *lengths, *begins, *documents;
    uint64_t sequences, document_indices;
};

static uint64_t number(const unsigned char *at, int bytes) {
    uint64_t bits = 0;
    while (bytes-- > 0) bits = bits << 8 | at[bytes];
    return bits;
}

static const struct type *find_type(int code) {
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].code == code) return &types[i];
    return NULL;
}

/* Checks all that precedes the lists. */
static int check_header(const char *name, const unsigned char *data, size_t size) {
    if (size < sizeof magic || memcmp(data, magic, sizeof magic))
        return sgrad_log_error(
            SGRAD_EFORMAT, "tokens: %s: byte 0: is not an index of Megatron-LM; remove it if the .bin file needs no index", name);
    if (size < HEADER)
        return sgrad_log_error(SGRAD_EFORMAT, "tokens: %s: has %zu bytes, but an index of Megatron-LM has at least %d", name,
                               size, HEADER);
    if (number(data + VERSION_AT, 8) != 1)
        return sgrad_log_error(SGRAD_EFORMAT, "tokens: %s: byte %d: version %llu is not supported; it must be 1", name,
                               VERSION_AT, (unsigned long long)number(data + VERSION_AT, 8));
    if (!find_type(data[TYPE_AT]))
        return sgrad_log_error(SGRAD_EFORMAT,
                               "tokens: %s: byte %d: tokens of type %d are not supported; it must be 1 (uint8), 2 (int8), "
                               "3 (int16), 4 (int32), 5 (int64) or 8 (uint16)",
                               name, TYPE_AT, data[TYPE_AT]);
    return 0;
}

/* Sets *LISTS, if the lists are as long as the header states and fill the file. */
static int find_lists(const char *name, const unsigned char *data, size_t size, struct lists *lists) {
    const uint64_t sequences = number(data + SEQUENCES_AT, 8), documents = number(data + DOCUMENTS_AT, 8);
    if (sequences > (size - HEADER) / 12)
        return sgrad_log_error(SGRAD_EFORMAT, "tokens: %s: byte %d: states %llu sequences, but the file has only %zu bytes", name,
                               SEQUENCES_AT, (unsigned long long)sequences, size);
    const unsigned char *lengths = data + HEADER, *begins = lengths + 4 * sequences, *indices = begins + 8 * sequences;
    if (documents > (size_t)(data + size - indices) / 8)
        return sgrad_log_error(SGRAD_EFORMAT,
                               "tokens: %s: byte %d: states %llu document indices, but the file has only %zu bytes", name,
                               DOCUMENTS_AT, (unsigned long long)documents, size);
    const size_t end = (size_t)(indices - data) + 8 * documents;
    if (size > end && size - end == sequences)
        return sgrad_log_error(SGRAD_EFORMAT, "tokens: %s: byte %zu: has modes of sequences; multimodal data are not supported",
                               name, end);
    if (size > end)
        return sgrad_log_error(SGRAD_EFORMAT, "tokens: %s: byte %zu: %zu %s the document indices, but the file must end", name,
                               end, size - end, sgrad_plural((int64_t)(size - end), "byte follows", "bytes follow"));
    *lists = (struct lists){ name, lengths, begins, indices, sequences, documents };
    return 0;
}

/* Checks that the sequences follow each other without gaps, and fill the .bin file of BIN_SIZE bytes. TOKEN: bytes of a token. */
static int check_sequences(const struct lists *lists, int token, size_t bin_size) {
    uint64_t at = 0;
    for (uint64_t i = 0; i < lists->sequences; i++) {
        const size_t length_at = HEADER + 4 * i, begin_at = HEADER + 4 * lists->sequences + 8 * i;
        const int32_t length = (int32_t)number(lists->lengths + 4 * i, 4);
        const uint64_t begin = number(lists->begins + 8 * i, 8);
        if (length < 0)
            return sgrad_log_error(SGRAD_EFORMAT, "tokens: %s: byte %zu: sequence %llu has %d tokens, a negative number",
                                   lists->name, length_at, (unsigned long long)i, (int)length);
        if (begin != at)
            return sgrad_log_error(SGRAD_EFORMAT,
                                   "tokens: %s: byte %zu: sequence %llu begins at byte %lld of the .bin file, but the sequences "
                                   "before it end at byte %llu",
                                   lists->name, begin_at, (unsigned long long)i, (long long)begin, (unsigned long long)at);
        at += (uint64_t)length * (uint64_t)token;
        if (at > bin_size)
            return sgrad_log_error(
                SGRAD_EFORMAT, "tokens: %s: byte %zu: sequence %llu ends at byte %llu of the .bin file, which has only %zu bytes",
                lists->name, length_at, (unsigned long long)i, (unsigned long long)at, bin_size);
    }
    if (at == bin_size) return 0;
    return sgrad_log_error(SGRAD_EFORMAT, "tokens: %s: byte %d: its %llu %s %llu bytes, but the .bin file has %zu bytes",
                           lists->name, SEQUENCES_AT, (unsigned long long)lists->sequences,
                           sgrad_plural((int64_t)lists->sequences, "sequence has", "sequences have"), (unsigned long long)at,
                           bin_size);
}

/* Checks that the document indices begin with 0, never decrease, and end with the number of sequences. */
static int check_documents(const struct lists *lists) {
    const uint64_t count = lists->document_indices;
    const size_t from = HEADER + 12 * lists->sequences;
    uint64_t before = 0;
    if (!count) return sgrad_log_error(SGRAD_EFORMAT, "tokens: %s: byte %d: has no document indices", lists->name, DOCUMENTS_AT);
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t index = number(lists->documents + 8 * i, 8);
        if ((i == 0 && index != 0) || index < before || index > lists->sequences || (i == count - 1 && index != lists->sequences))
            return sgrad_log_error(
                SGRAD_EFORMAT,
                "tokens: %s: byte %zu: document index %llu is %lld, but the indices must rise from 0 to %llu, the "
                "number of sequences",
                lists->name, from + 8 * i, (unsigned long long)i, (long long)index, (unsigned long long)lists->sequences);
        before = index;
    }
    return 0;
}

int sgrad__tokens_parse_megatron(const char *name, const void *data, size_t size, size_t bin_size, struct sgrad__tokens *tokens) {
    struct lists lists = { .name = name };
    SGRAD_TRY(check_header(name, data, size));
    SGRAD_TRY(find_lists(name, data, size, &lists));
    const struct type *type = find_type(((const unsigned char *)data)[TYPE_AT]);
    SGRAD_TRY(check_sequences(&lists, type->bytes, bin_size));
    SGRAD_TRY(check_documents(&lists));
    *tokens = (struct sgrad__tokens){
        .count = bin_size / (size_t)type->bytes, .bytes = type->bytes, .is_signed = type->is_signed, .stated = true
    };
    return 0;
}
