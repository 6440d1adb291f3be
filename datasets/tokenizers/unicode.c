/* unicode.c: decoding of UTF-8, and the classes of characters. */
#include "datasets/tokenizers/unicode.h"
#include "config.h"
#include "datasets/tokenizers/unicode_data.h"
#include "runtime/runtime.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

uint8_t sgrad__unicode_class[SGRAD__CHARACTERS];

static void mark(const uint32_t (*range)[2], size_t count, uint8_t class) {
    for (size_t i = 0; i < count; i++)
        for (uint32_t code = range[i][0]; code <= range[i][1]; code++) sgrad__unicode_class[code] |= class;
}
#define MARK(name, class) mark(unicode_##name, sizeof unicode_##name / sizeof *unicode_##name, class)

static void load(void) {
    MARK(letters, SGRAD__LETTER);
    MARK(numbers, SGRAD__NUMBER | SGRAD__NUMERIC);
    MARK(later_numbers, SGRAD__NUMERIC);
    MARK(spaces, SGRAD__SPACE);
    MARK(words, SGRAD__WORD);
    MARK(unstable, SGRAD__UNSTABLE);
}

void sgrad__unicode_load(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load);
}

/* The second byte of a character has a narrower range after E0, ED, F0 and F4: no long forms, surrogates or codes above 10FFFF.
 */
uint32_t sgrad__utf8_get(const char *at, const char *end, size_t *length) {
    const unsigned char *b = (const unsigned char *)at, first = *b;
    *length = 1;
    if (first < 0x80) return first;
    if (first < 0xC2 || first > 0xF4) return SGRAD__NO_CHARACTER;
    const int more = first < 0xE0 ? 1 : first < 0xF0 ? 2 : 3;
    if (end - at <= more) return SGRAD__NO_CHARACTER;
    uint32_t code = first & (0x3Fu >> more);
    for (int i = 1; i <= more; i++) {
        if (b[i] >> 6 != 2) return SGRAD__NO_CHARACTER;
        code = code << 6 | (b[i] & 63);
    }
    static const uint32_t least[] = { 0, 0x80, 0x800, 0x10000 };
    if (code < least[more] || code >= SGRAD__NO_CHARACTER || (code >= 0xD800 && code < 0xE000)) return SGRAD__NO_CHARACTER;
    *length = (size_t)more + 1;
    return code;
}

char *sgrad__utf8_put(uint32_t code, char *to) {
    if (code < 0x80) return *to = (char)code, to + 1;
    const int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    static const unsigned char first[] = { 0, 0xC0, 0xE0, 0xF0 };
    *to++ = (char)(first[more] | code >> 6 * more);
    for (int i = more - 1; i >= 0; i--) *to++ = (char)(0x80 | (code >> 6 * i & 63));
    return to;
}

size_t sgrad__utf8_check(const char *text, size_t size) {
    const char *end = text + size;
    size_t length;
    for (const char *at = text; at < end; at += length) {
        for (uint64_t eight; end - at >= 8 && (memcpy(&eight, at, 8), !(eight & 0x8080808080808080u));) at += 8;
        if (at == end) break;
        if (sgrad__utf8_get(at, end, &length) == SGRAD__NO_CHARACTER) return (size_t)(at - text);
    }
    return size;
}

char *sgrad__buffer_extend(struct sgrad__buffer *buffer, size_t size) {
    if (buffer->capacity - buffer->size < size) {
        const size_t capacity = 2 * (buffer->size + size) + 64;
        char *larger = sgrad_xcalloc(capacity, 1);
        if (buffer->size) memcpy(larger, buffer->text, buffer->size);
        free(buffer->text);
        buffer->text = larger;
        buffer->capacity = capacity;
    }
    buffer->size += size;
    return buffer->text + buffer->size - size;
}

void sgrad__buffer_add(struct sgrad__buffer *buffer, const char *text, size_t size) {
    char *to = sgrad__buffer_extend(buffer, size);
    if (size) memcpy(to, text, size);
}
