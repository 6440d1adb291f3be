/* unicode.c: checks of UTF-8 and conversion from Latin-1, for the names of classes and columns: config.json and other files match
 * them as UTF-8. */
#include "config.h"
#include "datasets/formats.h"

#include <stdlib.h>
#include <string.h>

/* Returns the number of bytes that follow the first byte of a character; -1: FIRST cannot be a first byte. */
static int more_of(unsigned char first) {
    if (first < 0x80) return 0;
    if (first < 0xc2 || first >= 0xf5) return -1;
    if (first < 0xe0) return 1;
    return first < 0xf0 ? 2 : 3;
}

/* TEXT: refuses control characters, and allows an incomplete last character. */
static bool is_utf8(const unsigned char *at, const unsigned char *end, bool text) {
    while (at < end) {
        const unsigned char first = *at++;
        int more = more_of(first);
        if (more < 0 || (!text && more > end - at)) return false;
        if (text && (first == 0x7f || (first < ' ' && first != '\n' && first != '\r' && first != '\t'))) return false;
        for (; more > 0 && at < end; more--)
            if ((*at++ & 0xc0) != 0x80) return false;
    }
    return true;
}

bool sgrad__is_utf8(const void *data, size_t size) { return is_utf8(data, (const unsigned char *)data + size, false); }
bool sgrad__is_text(const void *data, size_t size) { return is_utf8(data, (const unsigned char *)data + size, true); }

char *sgrad__put_latin(unsigned char byte, char *to) {
    if (byte >= 0x80) *to++ = (char)(0xc0 | byte >> 6), byte = 0x80 | (byte & 0x3f);
    *to++ = (char)byte;
    return to;
}

char *sgrad__utf8_of(const char *text) {
    if (sgrad__is_utf8(text, strlen(text))) return sgrad_format("%s", text);
    char *copy = sgrad_xcalloc(2 * strlen(text) + 1, 1), *to = copy;
    for (; *text; text++) to = sgrad__put_latin((unsigned char)*text, to);
    *to = 0;
    return copy;
}
