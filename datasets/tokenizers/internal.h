/* internal.h: the parts of a tokenizer, for the files of this folder. */
#ifndef SGRAD_DATASETS_TOKENIZERS_INTERNAL_H
#define SGRAD_DATASETS_TOKENIZERS_INTERNAL_H

#include "datasets/tokenizers/tokenizer.h"
#include "datasets/tokenizers/unicode.h"

#include <jansson.h>

enum { SGRAD__BYTES = 256, SGRAD__TOKENS = 1 << 20 }; /* largest number of tokens */

/* ---- table.c: numbers by text, and merges by pairs of tokens ---- */

struct sgrad__table {
    struct sgrad__table_row {
        uint64_t hash;
        size_t text; /* offset in texts */
        uint32_t size;
        int32_t value; /* -1: the row is free */
    } *row;
    size_t rows, used; /* rows: 0, or a power of two */
    struct sgrad__buffer texts;
};

/* Returns the value of TEXT; -1: it has none. */
int32_t sgrad__table_get(const struct sgrad__table *table, const char *text, size_t size);
/* Sets the value of TEXT, which must be at least 0. */
void sgrad__table_put(struct sgrad__table *table, const char *text, size_t size, int32_t value);
void sgrad__table_clear(struct sgrad__table *table); /* removes all rows, keeps the memory */
void sgrad__table_free(struct sgrad__table *table);

struct sgrad__merge {
    int32_t left, right; /* left -1: the row is free */
    int32_t rank, token;
};
struct sgrad__merges {
    struct sgrad__merge *row;
    size_t rows, used;
};
const struct sgrad__merge *sgrad__merges_get(const struct sgrad__merges *merges, int32_t left, int32_t right); /* NULL: none */
void sgrad__merges_put(struct sgrad__merges *merges, struct sgrad__merge merge); /* replaces an equal pair */

/* ---- added.c: tokens that are found before the text is split ---- */

struct sgrad__added {
    char *text;
    size_t size;
    int32_t token;
    bool single_word;    /* only between characters that are not of words */
    bool lstrip, rstrip; /* includes the white space before, after it */
    bool normalized;     /* is looked for in the normalized text */
    bool special;
};

/* A tree of the bytes of texts. Node 0 is free; nodes 1 to 256 are the first bytes. */
struct sgrad__trie {
    struct sgrad__node {
        unsigned char byte;
        int32_t child, sibling; /* 0: none */
        int32_t added;          /* index of the added token that ends here; -1: none */
    } *node;
    int nodes;
};
void sgrad__trie_add(struct sgrad__trie *trie, const char *text, size_t size, int32_t added);
/* Returns the index of the first text of the trie in TEXT from *AT on, the longest of several at one position, and sets *AT and
 * *LENGTH to its position; -1: none. */
int32_t sgrad__trie_find(const struct sgrad__trie *trie, const char *text, size_t size, size_t *at, size_t *length);

/* ---- the tokenizer ---- */

/* A step of the normalizer. */
struct sgrad__normalizer {
    enum { SGRAD__NFC, SGRAD__PREPEND, SGRAD__REPLACE } kind;
    char *from, *to; /* replace: FROM by TO; prepend: TO */
    size_t from_size, to_size;
};

/* Returns the size of the first word of a text of at least one byte. */
typedef size_t sgrad__splitter(const char *text, size_t size);
sgrad__splitter sgrad__split_gpt2, sgrad__split_llama3, sgrad__split_qwen2, sgrad__split_digits, sgrad__split_digit;
/* Returns the splitter for a regular expression; NULL: not supported. */
sgrad__splitter *sgrad__splitter_find(const char *pattern);

enum { SGRAD__STEPS = 8 };

struct sgrad_tokenizer {
    char *file;
    bool pair; /* file is a vocab.json, next to merges.txt */

    struct sgrad__normalizer normalizer[SGRAD__STEPS];
    int normalizers;
    sgrad__splitter *splitter[SGRAD__STEPS];
    int splitters;
    int prefix_at;   /* texts of this splitter get a blank, if they do not begin with one; -1: none do */
    bool byte_level; /* bytes are written as characters: as themselves or from U+0100 on */

    struct sgrad__table vocabulary; /* tokens by their characters */
    struct sgrad__spelling {
        size_t at;           /* in vocabulary.texts */
        uint32_t size;       /* 0: no such token */
    } *spelling;            /* by token of the vocabulary */
    int entries, words, all; /* tokens in the vocabulary; the largest, plus 1; with added tokens */
    struct sgrad__merges merges;
    bool ignore_merges, byte_fallback, fuse_unk;
    int32_t unknown;                  /* -1: characters that are not tokens are left out */
    int32_t byte_token[SGRAD__BYTES]; /* <0x00> …; -1: no such token */

    struct sgrad__added *added;
    int addeds, next;               /* next: the number after those of all added tokens; 0: there are no added tokens */
    struct sgrad__table added_at;   /* index in added, by text */
    struct sgrad__trie plain_added, normalized_added;

    int32_t begin[SGRAD__STEPS]; /* tokens that the template puts before a text */
    int begins;

    struct sgrad__word {
        char *byte; /* NULL: no such token */
        size_t size;
        bool special;
    } *word;                                       /* decoded, by token */
    struct sgrad__normalizer decoder[SGRAD__STEPS]; /* replacements in each token */
    int decoders;
    bool decodes_levels, decodes_bytes; /* characters of bytes become bytes; <0x00> … become bytes */
    int strip;                          /* blanks that are removed from the beginning of a decoded text */
};

extern char sgrad__byte_character[SGRAD__BYTES][4]; /* the character of a byte */
void sgrad__byte_characters_load(void);

/* steps.c: appends TEXT after COUNT steps. */
void sgrad__normalize(const struct sgrad__normalizer *step, int count, const char *text, size_t size, struct sgrad__buffer *to);

/* bpe.c: a word of the vocabulary's characters becomes tokens. */
struct sgrad__bpe {
    struct sgrad__symbol {
        int32_t token, previous, next; /* index of the neighbour; -1: none */
        bool removed;
    } *symbol;
    struct sgrad__candidate {
        int32_t rank, at, token;
    } *heap;
    size_t symbols, capacity, candidates, heap_capacity;
    size_t dropped; /* characters that are not tokens */
};
/* Sets the symbols of BPE to the tokens of the word; removed ones must be skipped. */
void sgrad__bpe_run(const struct sgrad_tokenizer *tokenizer, struct sgrad__bpe *bpe, const char *word, size_t size);
void sgrad__bpe_free(struct sgrad__bpe *bpe);

/* ---- keys.c: checks of a tokenizer.json ---- */

/* Logs that WHERE has the value, which is not supported. Returns SGRAD_EFORMAT. */
int sgrad__refuse(const struct sgrad_tokenizer *tokenizer, const char *where, const json_t *value);
/* Refuses keys of OBJECT that are not in KEYS, which are separated by blanks. WHERE "": it is the whole file. */
int sgrad__check_keys(const struct sgrad_tokenizer *tokenizer, const char *where, const json_t *object, const char *keys);
int sgrad__malformed(const struct sgrad_tokenizer *tokenizer, const char *what); /* logs it; returns SGRAD_EFORMAT */
/* Sets *VALUE to the member KEY, true or false; unchanged: OBJECT does not have it, or it is null. */
int sgrad__read_flag(const struct sgrad_tokenizer *tokenizer, const char *where, const json_t *object, const char *key,
                     bool *value);

/* ---- reading of a tokenizer.json ---- */

/* steps.c: normalizer, pre_tokenizer, post_processor and decoder. */
int sgrad__read_steps(struct sgrad_tokenizer *tokenizer, const json_t *object);
/* model.c: vocabulary and merges, and merges.txt. */
int sgrad__read_model(struct sgrad_tokenizer *tokenizer, const json_t *model);
int sgrad__read_vocabulary(struct sgrad_tokenizer *tokenizer, json_t *vocabulary);
int sgrad__read_merges(struct sgrad_tokenizer *tokenizer, const char *path);
/* words.c: adds the token TEXT to those that are found in a text; reads "added_tokens"; computes the bytes of all tokens. */
void sgrad__add_token(struct sgrad_tokenizer *tokenizer, const char *text, struct sgrad__added added);
int sgrad__read_added(struct sgrad_tokenizer *tokenizer, const json_t *list);
void sgrad__decode_words(struct sgrad_tokenizer *tokenizer);

#endif
