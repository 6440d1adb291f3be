/* encode.c: text to tokens. Added tokens are found first; the texts between them are normalized, split into words, and merged.
 * The tokens of a word are stored in a cache, because most words of a text have occurred before. */
#include "config.h"
#include "datasets/tokenizers/internal.h"
#include "runtime/runtime.h"

#include <stdlib.h>
#include <string.h>

enum { CACHED = 64, CACHE_WORDS = 1 << 17, CACHE_TOKENS = 1 << 20 }; /* bytes of a word; size of the cache */

struct sgrad_encoder {
    const struct sgrad_tokenizer *tokenizer;
    int32_t *token;
    size_t tokens, capacity;
    struct sgrad__buffer normal, prefixed, word;
    struct sgrad__bpe bpe;
    struct sgrad__table cache; /* by word: index in the list of its tokens, which begins with their number */
    int32_t *cached;
    size_t cached_size;
};

struct sgrad_encoder *sgrad_encoder_create(const struct sgrad_tokenizer *tokenizer) {
    struct sgrad_encoder *e = sgrad_xcalloc(1, sizeof *e);
    e->tokenizer = tokenizer;
    e->cached = sgrad_xcalloc(CACHE_TOKENS, sizeof *e->cached);
    e->token = sgrad_xcalloc(e->capacity = CACHED, sizeof *e->token);
    return e;
}

void sgrad_encoder_destroy(struct sgrad_encoder *e) {
    if (!e) return;
    sgrad__bpe_free(&e->bpe);
    sgrad__table_free(&e->cache);
    free(e->normal.text);
    free(e->prefixed.text);
    free(e->word.text);
    free(e->cached);
    free(e->token);
    free(e);
}

size_t sgrad_encoder_dropped(const struct sgrad_encoder *e) { return e->bpe.dropped; }

/* Returns memory for COUNT more tokens. */
static int32_t *more_tokens(struct sgrad_encoder *e, size_t count) {
    if (e->capacity - e->tokens < count) {
        int32_t *larger = sgrad_xcalloc(e->capacity = 2 * (e->tokens + count) + 1024, sizeof *larger);
        if (e->tokens) memcpy(larger, e->token, e->tokens * sizeof *larger);
        free(e->token);
        e->token = larger;
    }
    return e->token + e->tokens;
}

/* ---- words ------------------------------------------------------------------------------------------------------- */

static void store(struct sgrad_encoder *e, const char *text, size_t size, const int32_t *token, size_t count) {
    if (e->cache.used >= CACHE_WORDS || e->cached_size + count + 1 > CACHE_TOKENS) {
        sgrad__table_clear(&e->cache);
        e->cached_size = 0;
    }
    sgrad__table_put(&e->cache, text, size, (int32_t)e->cached_size);
    e->cached[e->cached_size++] = (int32_t)count;
    memcpy(e->cached + e->cached_size, token, count * sizeof *token);
    e->cached_size += count;
}

static void take_word(struct sgrad_encoder *e, const char *text, size_t size) {
    const int32_t hit = size <= CACHED ? sgrad__table_get(&e->cache, text, size) : -1;
    if (hit >= 0) {
        const size_t count = (size_t)e->cached[hit];
        memcpy(more_tokens(e, count), e->cached + hit + 1, count * sizeof *e->token);
        e->tokens += count;
        return;
    }
    const char *word = text;
    size_t length = size, dropped = e->bpe.dropped;
    if (e->tokenizer->byte_level) {
        e->word.size = 0;
        for (size_t i = 0; i < size; i++) {
            const char *character = sgrad__byte_character[(unsigned char)text[i]];
            sgrad__buffer_add(&e->word, character, strlen(character));
        }
        word = e->word.text;
        length = e->word.size;
    }
    sgrad__bpe_run(e->tokenizer, &e->bpe, word, length);
    int32_t *to = more_tokens(e, e->bpe.symbols);
    size_t count = 0;
    for (size_t i = 0; i < e->bpe.symbols; i++)
        if (!e->bpe.symbol[i].removed) to[count++] = e->bpe.symbol[i].token;
    e->tokens += count;
    if (size <= CACHED && dropped == e->bpe.dropped) store(e, text, size, to, count);
}

/* Splits a text by the pre-tokenizers from number STEP on. */
static void split(struct sgrad_encoder *e, const char *text, size_t size, int step) {
    const struct sgrad_tokenizer *t = e->tokenizer;
    if (step == t->prefix_at && *text != ' ') {
        e->prefixed.size = 0;
        sgrad__buffer_add(&e->prefixed, " ", 1);
        sgrad__buffer_add(&e->prefixed, text, size);
        text = e->prefixed.text;
        size = e->prefixed.size;
    }
    if (step == t->splitters) {
        take_word(e, text, size);
        return;
    }
    for (size_t length; size; text += length, size -= length) {
        length = t->splitter[step](text, size);
        split(e, text, length, step + 1);
    }
}

/* ---- added tokens ------------------------------------------------------------------------------------------------ */

static bool is_word(const char *at, const char *end) {
    return at < end && sgrad__unicode_class[sgrad__utf8_get(at, end, &(size_t){ 0 })] & SGRAD__WORD;
}

/* Returns the beginning of the last character before AT, which is after TEXT. */
static const char *before(const char *text, const char *at) {
    const char *from = at - 1;
    size_t length;
    while (from > text && at - from < 4 && (*(const unsigned char *)from & 0xC0) == 0x80) from--;
    sgrad__utf8_get(from, at, &length);
    return length == (size_t)(at - from) ? from : at - 1;
}

static bool is_space(const char *at, const char *end, size_t *length) {
    return sgrad__unicode_class[sgrad__utf8_get(at, end, length)] & SGRAD__SPACE;
}

static const char *strip_left(const char *text, const char *at) {
    size_t length;
    while (at > text && is_space(before(text, at), at, &length)) at = before(text, at);
    return at;
}

static const char *strip_right(const char *at, const char *end) {
    size_t length;
    for (; at < end && is_space(at, end, &length); at += length) {}
    return at;
}

/* Adds the tokens of TEXT: the added ones that TRIE finds, and those of the texts between them, by PLAIN. The white space that an
 * added token includes may itself be the next added token. */
static void split_added(struct sgrad_encoder *e, const struct sgrad__trie *trie, const char *text, size_t size,
                        void (*plain)(struct sgrad_encoder *encoder, const char *text, size_t size)) {
    const char *done = text, *end = text + size, *blank = end, *solid = end;     /* from blank to solid there is white space */
    size_t at = 0, length;
    for (int32_t i; (i = sgrad__trie_find(trie, text, size, &at, &length)) >= 0;) {
        const struct sgrad__added *added = &e->tokenizer->added[i];
        const char *from = text + at, *to = from + length;
        at += length;
        if (added->single_word && ((from > text && is_word(before(text, from), from)) || is_word(to, end))) continue;
        if (added->lstrip) from = from > done ? strip_left(done, from) : done;
        if (added->rstrip && (to < blank || to > solid)) blank = to, solid = strip_right(to, end);
        if (added->rstrip) to = solid;
        if (done < from) plain(e, done, (size_t)(from - done));
        if (from < to) {
            *more_tokens(e, 1) = added->token;
            e->tokens++;
        }
        done = to;
    }
    if (done < end) plain(e, done, (size_t)(end - done));
}

static void take_normal(struct sgrad_encoder *e, const char *text, size_t size) {
    if (size) split(e, text, size, 0);
}

static void take_plain(struct sgrad_encoder *e, const char *text, size_t size) {
    const struct sgrad_tokenizer *t = e->tokenizer;
    if (t->normalizers) {
        e->normal.size = 0;
        sgrad__normalize(t->normalizer, t->normalizers, text, size, &e->normal);
        text = e->normal.text;
        size = e->normal.size;
    }
    if (t->normalized_added.nodes)
        split_added(e, &t->normalized_added, text, size, take_normal);
    else
        take_normal(e, text, size);
}

const int32_t *sgrad_encode(struct sgrad_encoder *e, const char *text, size_t size, size_t *count) {
    e->tokens = 0;
    if (size) split_added(e, &e->tokenizer->plain_added, text, size, take_plain);
    *count = e->tokens;
    return e->token;
}
