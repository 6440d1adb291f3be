/* tokenizer.h: GPT-2's byte-level byte pair encoding: bytes of text are merged, pair by pair, in the order of a list of merges,
 * which is sorted by the frequency of the pairs in the tokenizer's training text.
 *
 *     " lower"     Ġ l o w e r  →  Ġ l ow e r  →  Ġ l ow er  →  Ġ low er  →  Ġlow er        two tokens
 *
 * Source: R. Sennrich, B. Haddow, A. Birch, Neural machine translation of rare words with subword units, 2016; applied to bytes:
 * A. Radford et al., Language models are unsupervised multitask learners, 2019. */
#ifndef SGRAD_CLI_TOKENIZER_H
#define SGRAD_CLI_TOKENIZER_H

#include <stddef.h>
#include <stdint.h>

struct sgrad__tokenizer;

/* Reads FILE: tokenizer.json of Hugging Face, or vocab.json, with merges.txt in the same folder. The caller must close
 * *TOKENIZER. SGRAD_EFORMAT: a file is malformed, or has features that GPT-2's tokenizer lacks. Other errors: as
 * sgrad_map_open. */
int sgrad__tokenizer_open(const char *file, struct sgrad__tokenizer **tokenizer);
void sgrad__tokenizer_close(struct sgrad__tokenizer *tokenizer);    /* NULL is allowed */

/* Returns the *COUNT tokens of TEXT, which the caller must free. A byte that has no token is skipped, with a warning. */
int32_t *sgrad__tokenizer_encode(const struct sgrad__tokenizer *tokenizer, const char *text, int *count);
int sgrad__tokenizer_words(const struct sgrad__tokenizer *tokenizer);      /* largest token in the vocabulary, plus 1 */
/* Returns the bytes of TOKEN and sets *SIZE to their number; 0: no such token. The tokenizer owns them. */
const char *sgrad__tokenizer_word(const struct sgrad__tokenizer *tokenizer, int token, size_t *size);

#endif
