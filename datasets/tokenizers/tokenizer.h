/* tokenizer.h: byte pair encoding, as the library `tokenizers` of Hugging Face computes it. A text becomes tokens in these steps,
 * each of which a tokenizer may lack:
 *
 *     "Naïve <|end|>"
 *     added tokens     "Naïve "            <|end|>             found in the text, by name
 *     normalize        "Naïve "                                NFC (Qwen); " " becomes "▁" (Llama 2)
 *     split            "Naïve" " "                             by a regular expression: GPT-2's, Llama 3's or Qwen's
 *     bytes            N a Ã ¯ v e   Ġ                         each byte becomes a visible character; not with Llama 2
 *     merge            Na Ã¯ ve      Ġ                         pairs, in the order of the list of merges
 *
 * Sources: R. Sennrich, B. Haddow, A. Birch, Neural machine translation of rare words with subword units, 2016; applied to bytes:
 * A. Radford et al., Language models are unsupervised multitask learners, 2019; byte fallback: T. Kudo, J. Richardson,
 * SentencePiece, 2018.
 *
 *     struct sgrad_tokenizer *t;
 *     SGRAD_TRY(sgrad_tokenizer_open("tokenizer.json", &t));
 *     struct sgrad_encoder *encoder = sgrad_encoder_create(t);
 *     size_t count;
 *     const int32_t *token = sgrad_encode(encoder, "To be", 5, &count); */
#ifndef SGRAD_DATASETS_TOKENIZERS_TOKENIZER_H
#define SGRAD_DATASETS_TOKENIZERS_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct sgrad_tokenizer; /* not changed after open: threads may share it */
struct sgrad_encoder;   /* buffers and a cache of words, for one thread; its tokenizer must remain open */
struct sgrad_decoder;   /* bytes of characters that are not complete, for one text; likewise */

/* Reads FILE: tokenizer.json of Hugging Face, or vocab.json, with merges.txt in the same folder. The caller must close
 * *TOKENIZER. SGRAD_EFORMAT: a file is malformed, or has a key or a value that is not supported. Other errors: as
 * sgrad_map_open. */
int sgrad_tokenizer_open(const char *file, struct sgrad_tokenizer **tokenizer);
/* Reads the SIZE bytes of a tokenizer.json. NAME is its name in messages. */
int sgrad_tokenizer_parse(const char *name, const void *data, size_t size, struct sgrad_tokenizer **tokenizer);
void sgrad_tokenizer_close(struct sgrad_tokenizer *tokenizer); /* NULL is allowed */

int sgrad_tokenizer_words(const struct sgrad_tokenizer *tokenizer);  /* largest token of the vocabulary, plus 1 */
int sgrad_tokenizer_tokens(const struct sgrad_tokenizer *tokenizer); /* the same with added tokens */
/* Returns the token with this text, which may be an added token. ADDED: must be one. -1: none. */
int sgrad_tokenizer_find(const struct sgrad_tokenizer *tokenizer, const char *text, bool added);
/* Returns the tokens that the file's template puts before a text, for example <|begin_of_text|>. The tokenizer owns them. */
const int32_t *sgrad_tokenizer_begin(const struct sgrad_tokenizer *tokenizer, int *count);
/* Returns true if the tokens of a text are those of its two parts, wherever a letter, a line break and a letter (of ASCII) follow
 * each other and the cut is after the line break. */
bool sgrad_tokenizer_cuts_lines(const struct sgrad_tokenizer *tokenizer);
/* Returns the bytes of TOKEN and sets *SIZE to their number; 0: no such token. The tokenizer owns them. They may be a part of a
 * character. */
const char *sgrad_tokenizer_word(const struct sgrad_tokenizer *tokenizer, int token, size_t *size);
/* Returns true if TOKEN is an added token that the file marks as special, for example <|end_of_text|>. */
bool sgrad_tokenizer_is_special(const struct sgrad_tokenizer *tokenizer, int token);
/* files.c */
bool sgrad_tokenizer_is_pair(const struct sgrad_tokenizer *tokenizer); /* it is vocab.json with merges.txt */
/* Returns the usual name of the tokenizer's file: tokenizer.json or vocab.json. */
const char *sgrad_tokenizer_name(const struct sgrad_tokenizer *tokenizer);
/* Returns the path of merges.txt in the folder of FILE, a vocab.json. The caller must free it. */
char *sgrad_tokenizer_merges(const char *file);
/* Returns the path of the tokenizer in FOLDER: of tokenizer.json, or else of vocab.json. NULL: there is none. The caller must
 * free it. */
char *sgrad_tokenizer_in(const char *folder);
/* Copies the files of a tokenizer to FOLDER, under their usual names, whatever they are called. */
int sgrad_tokenizer_copy(const struct sgrad_tokenizer *tokenizer, const char *folder);

/* The caller must destroy the encoder. */
struct sgrad_encoder *sgrad_encoder_create(const struct sgrad_tokenizer *tokenizer);
void sgrad_encoder_destroy(struct sgrad_encoder *encoder); /* NULL is allowed */
/* Returns the *COUNT tokens of TEXT, of less than 2 GiB, without those of the template. They are valid until the next call. */
const int32_t *sgrad_encode(struct sgrad_encoder *encoder, const char *text, size_t size, size_t *count);
/* Returns the number of characters, of all calls, that have no token and were left out, as the library does. */
size_t sgrad_encoder_dropped(const struct sgrad_encoder *encoder);

/* A decoder returns text as soon as its characters are complete. CONTINUES: the tokens follow a text; else a tokenizer of
 * SentencePiece's style removes the blank at their beginning. The caller must destroy the decoder. */
struct sgrad_decoder *sgrad_decoder_create(const struct sgrad_tokenizer *tokenizer, bool continues);
void sgrad_decoder_destroy(struct sgrad_decoder *decoder); /* NULL is allowed */
/* Return valid UTF-8 of *SIZE bytes, which is valid until the next call: the characters that TOKEN completes, and those that the
 * end completes. Bytes that belong to no character become U+FFFD. */
const char *sgrad_decode(struct sgrad_decoder *decoder, int token, size_t *size);
const char *sgrad_decode_end(struct sgrad_decoder *decoder, size_t *size);

#ifdef __cplusplus
}
#endif
#endif
