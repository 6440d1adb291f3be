/* words.c: the texts of tokens: added tokens, and the bytes that each token stands for. In a vocabulary of bytes, each byte is
 * written as a visible character: as itself, if it is one, else as the next character from U+0100 on; a blank is Ġ. */
#include "config.h"
#include "datasets/tokenizers/internal.h"
#include "runtime/runtime.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { SHIFTED = 0x100, CODES = 2 * SHIFTED };

char sgrad__byte_character[SGRAD__BYTES][4];
static int16_t byte_of[CODES]; /* the byte of a character; -1: none */

static bool shows(int byte) { return (byte > ' ' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD); }

static void load(void) {
    memset(byte_of, 0xFF, sizeof byte_of);
    for (int byte = 0, hidden = 0; byte < SGRAD__BYTES; byte++) {
        const int code = shows(byte) ? byte : SHIFTED + hidden++;
        *sgrad__utf8_put((uint32_t)code, sgrad__byte_character[byte]) = 0;
        byte_of[code] = (int16_t)byte;
    }
}

void sgrad__byte_characters_load(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load);
}

/* ---- added tokens ------------------------------------------------------------------------------------------------ */

void sgrad__add_token(struct sgrad_tokenizer *t, const char *text, struct sgrad__added added) {
    struct sgrad__buffer normal = { 0 };
    t->added = sgrad_array_grow(t->added, t->addeds, sizeof *t->added);
    added.text = sgrad_format("%s", text);
    added.size = strlen(text);
    t->added[t->addeds] = added;
    if (added.normalized) sgrad__normalize(t->normalizer, t->normalizers, text, added.size, &normal);
    if (!added.normalized)
        sgrad__trie_add(&t->plain_added, text, added.size, t->addeds);
    else if (normal.size)
        sgrad__trie_add(&t->normalized_added, normal.text, normal.size, t->addeds);
    if (added.token >= t->all) t->all = added.token + 1;
    if (added.token >= t->next) t->next = added.token + 1;
    sgrad__table_put(&t->added_at, text, added.size, t->addeds++);
    free(normal.text);
}

/* Returns the number that the library `tokenizers` assigns to an added token, independently of the file: its number in the
 * vocabulary, or the next free one. */
static int32_t number_of(const struct sgrad_tokenizer *t, const char *text) {
    const int32_t known = sgrad__table_get(&t->vocabulary, text, strlen(text));
    if (known >= 0) return known;
    return t->next > t->entries ? t->next : t->entries;
}

static bool equals(const struct sgrad__added *a, const struct sgrad__added *b) {
    return a->token == b->token && a->single_word == b->single_word && a->lstrip == b->lstrip && a->rstrip == b->rstrip &&
           a->normalized == b->normalized;
}

static int read_one(struct sgrad_tokenizer *t, const json_t *one) {
    const json_t *content = json_object_get(one, "content"), *id = json_object_get(one, "id");
    const char *text = json_string_value(content);
    const json_int_t token = json_is_integer(id) ? json_integer_value(id) : -1;
    struct sgrad__added added = { .token = (int32_t)token };
    SGRAD_TRY(sgrad__check_keys(t, "added_tokens", one, "id content single_word lstrip rstrip normalized special"));
    if (!text || !*text || strlen(text) != json_string_length(content) || token < 0 || token >= SGRAD__TOKENS)
        return sgrad__malformed(t, "an added token has no content, or a number that is not from 0 to 1048575");
    SGRAD_TRY(sgrad__read_flag(t, "added_tokens", one, "special", &added.special));
    SGRAD_TRY(sgrad__read_flag(t, "added_tokens", one, "single_word", &added.single_word));
    SGRAD_TRY(sgrad__read_flag(t, "added_tokens", one, "lstrip", &added.lstrip));
    SGRAD_TRY(sgrad__read_flag(t, "added_tokens", one, "rstrip", &added.rstrip));
    SGRAD_TRY(sgrad__read_flag(t, "added_tokens", one, "normalized", &added.normalized));
    const int32_t before = sgrad__table_get(&t->added_at, text, strlen(text));
    if (before >= 0) return equals(&t->added[before], &added) ? 0 : sgrad__refuse(t, "added_tokens (again)", one);
    if (token != number_of(t, text))
        return sgrad_log_error(
            SGRAD_EFORMAT,
            "tokenizer: %s: the added token '%.100s' has number %lld, but the vocabulary and the tokens before "
            "it require %d",
            t->file, text, (long long)token, number_of(t, text));
    sgrad__add_token(t, text, added);
    return 0;
}

int sgrad__read_added(struct sgrad_tokenizer *t, const json_t *list) {
    size_t i;
    json_t *one;
    json_array_foreach(list, i, one) SGRAD_TRY(read_one(t, one));
    return 0;
}

/* ---- decoded tokens ---------------------------------------------------------------------------------------------- */

/* Appends the bytes of a token. If one of its characters is that of no byte, the token stands for itself. */
static void decode_levels(const char *text, size_t size, struct sgrad__buffer *to) {
    const size_t before = to->size;
    size_t length;
    for (const char *at = text; at < text + size; at += length) {
        const uint32_t code = sgrad__utf8_get(at, text + size, &length);
        if (code >= CODES || byte_of[code] < 0) {
            to->size = before;
            sgrad__buffer_add(to, text, size);
            return;
        }
        sgrad__buffer_add(to, &(char){ (char)byte_of[code] }, 1);
    }
}

/* Returns the bytes of the token with the characters TEXT. */
static struct sgrad__word decode_word(const struct sgrad_tokenizer *t, int token, const char *text, size_t size) {
    struct sgrad__buffer bytes = { 0 };
    int byte = SGRAD__BYTES;
    if (t->decodes_bytes)
        for (byte = 0; byte < SGRAD__BYTES && t->byte_token[byte] != token;) byte++;
    if (byte < SGRAD__BYTES)
        sgrad__buffer_add(&bytes, &(char){ (char)byte }, 1);
    else if (t->decodes_levels)
        decode_levels(text, size, &bytes);
    else
        sgrad__normalize(t->decoder, t->decoders, text, size, &bytes);
    sgrad__buffer_add(&bytes, "", 1); /* not NULL: the token exists */
    return (struct sgrad__word){ bytes.text, bytes.size - 1, false };
}

void sgrad__decode_words(struct sgrad_tokenizer *t) {
    t->word = sgrad_xcalloc((size_t)t->all, sizeof *t->word);
    for (int i = 0; i < t->words; i++)
        if (t->spelling[i].size)
            t->word[i] = decode_word(t, i, t->vocabulary.texts.text + t->spelling[i].at, t->spelling[i].size);
    for (int i = 0; i < t->addeds; i++) {
        struct sgrad__word *word = &t->word[t->added[i].token];
        free(word->byte);
        *word = (struct sgrad__word){ sgrad_format("%s", t->added[i].text), t->added[i].size, t->added[i].special };
    }
}
