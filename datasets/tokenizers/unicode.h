/* unicode.h: characters of UTF-8 text, their classes, and the normal form NFC. The tables are those of the library `tokenizers`;
 * the C locale has no effect. */
#ifndef SGRAD_DATASETS_TOKENIZERS_UNICODE_H
#define SGRAD_DATASETS_TOKENIZERS_UNICODE_H

#include <stddef.h>
#include <stdint.h>

/* Classes of a character, as bits. */
enum {
    SGRAD__LETTER = 1,    /* \p{L} */
    SGRAD__NUMBER = 2,    /* \p{N} */
    SGRAD__SPACE = 4,     /* \s */
    SGRAD__WORD = 8,      /* \w */
    SGRAD__NUMERIC = 16,  /* the numbers of the pre-tokenizer Digits */
    SGRAD__UNSTABLE = 32, /* NFC may change it, or join it to the character before it */
};

enum { SGRAD__NO_CHARACTER = 0x110000, SGRAD__CHARACTERS }; /* a byte that starts no valid character; number of codes */

/* Loads the tables. Must be called before the other functions; later calls have no effect. */
void sgrad__unicode_load(void);
extern uint8_t sgrad__unicode_class[SGRAD__CHARACTERS]; /* by code; of SGRAD__NO_CHARACTER 0 */

/* Returns the code of the character at AT, before END, and sets *LENGTH to its bytes. A byte that starts no valid character is
 * SGRAD__NO_CHARACTER, of length 1. */
uint32_t sgrad__utf8_get(const char *at, const char *end, size_t *length);
/* Returns the address after the character CODE, which is written to TO, of at least 4 bytes. */
char *sgrad__utf8_put(uint32_t code, char *to);
/* Returns the offset of the first byte of TEXT that is not UTF-8; SIZE if all are. */
size_t sgrad__utf8_check(const char *text, size_t size);

/* A text that grows. */
struct sgrad__buffer {
    char *text;
    size_t size, capacity;
};
/* Returns the address of SIZE bytes that are appended, with any content; it is valid until the next call. */
char *sgrad__buffer_extend(struct sgrad__buffer *buffer, size_t size);
void sgrad__buffer_add(struct sgrad__buffer *buffer, const char *text, size_t size);

/* Appends TEXT in the normal form NFC. Bytes that are not UTF-8 are unchanged. Source: Unicode Standard Annex 15. */
void sgrad__nfc(const char *text, size_t size, struct sgrad__buffer *to);

#endif
