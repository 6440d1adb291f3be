/* decode.c: tokens to text, token by token. A token may end within a character; its bytes are kept until the character is
 * complete. */
#include "config.h"
#include "datasets/tokenizers/internal.h"
#include "runtime/runtime.h"

#include <stdlib.h>
#include <string.h>

struct sgrad_decoder {
    const struct sgrad_tokenizer *tokenizer;
    struct sgrad__buffer pending, text;
    int strip; /* blanks that are still to be removed */
};

struct sgrad_decoder *sgrad_decoder_create(const struct sgrad_tokenizer *tokenizer, bool continues) {
    struct sgrad_decoder *d = sgrad_xcalloc(1, sizeof *d);
    d->tokenizer = tokenizer;
    d->strip = continues ? 0 : tokenizer->strip;
    return d;
}

void sgrad_decoder_destroy(struct sgrad_decoder *d) {
    if (!d) return;
    free(d->pending.text);
    free(d->text.text);
    free(d);
}

/* Returns the number of bytes at AT that begin a character, all of it or less: 0 if the first byte begins none. */
static size_t begun(const char *at, const char *end) {
    const unsigned char *b = (const unsigned char *)at;
    static const unsigned char low[] = { [0x0] = 0xA0, [0x10] = 0x90 }, high[] = { [0xD] = 0x9F, [0x14] = 0x8F };
    if (*b < 0xC2 || *b > 0xF4) return *b < 0x80;
    const size_t all = *b < 0xE0 ? 2 : *b < 0xF0 ? 3 : 4;
    const unsigned char key = *b - 0xE0, least = key == 0 || key == 0x10 ? low[key] : 0x80;
    const unsigned char most = key == 0xD || key == 0x14 ? high[key] : 0xBF;
    size_t size = 1;
    if (at + size < end && b[1] >= least && b[1] <= most) size++;
    while (size > 1 && size < all && at + size < end && b[size] >> 6 == 2) size++;
    return size;
}

/* Moves the complete characters of the pending bytes to the text, and all others as U+FFFD: one for each part of a character, as
 * Unicode recommends. Bytes at the end that may become a character stay, unless LAST. */
static const char *take(struct sgrad_decoder *d, bool last, size_t *size) {
    const char *at = d->pending.size ? d->pending.text : "", *end = at + d->pending.size;
    d->text.size = 0;
    while (at < end) {
        size_t length;
        const bool valid = sgrad__utf8_get(at, end, &length) != SGRAD__NO_CHARACTER;
        const size_t part = valid ? length : begun(at, end);
        if (!valid && !last && part && at + part == end) break;
        if (*at == ' ' && d->strip)
            d->strip--;
        else {
            d->strip = 0;
            sgrad__buffer_add(&d->text, valid ? at : "\uFFFD", valid ? length : 3);
        }
        at += part ? part : 1;
    }
    if (at < end) memmove(d->pending.text, at, (size_t)(end - at));
    d->pending.size = (size_t)(end - at);
    *size = d->text.size;
    return d->text.size ? d->text.text : "";
}

const char *sgrad_decode(struct sgrad_decoder *d, int token, size_t *size) {
    size_t bytes;
    const char *word = sgrad_tokenizer_word(d->tokenizer, token, &bytes);
    sgrad__buffer_add(&d->pending, word, bytes);
    return take(d, false, size);
}

const char *sgrad_decode_end(struct sgrad_decoder *d, size_t *size) { return take(d, true, size); }
