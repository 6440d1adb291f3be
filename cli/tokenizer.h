/* tokenizer.h: GPT-2's tokens: bytes of text that are joined, pair by pair, in the order in which pairs were found frequent.
 *
 *     " lower"     Ġ l o w e r  →  Ġ l ow e r  →  Ġ l ow er  →  Ġ low er  →  Ġlow er        two tokens
 *
 * Source: R. Sennrich, B. Haddow, A. Birch, Neural machine translation of rare words with subword units, 2016; on bytes:
 * A. Radford et al., Language models are unsupervised multitask learners, 2019. */
#ifndef SGRAD_CLI_TOKENIZER_H
#define SGRAD_CLI_TOKENIZER_H

#include <stddef.h>
#include <stdint.h>

struct sgrad__tokenizer;

/* FILE is Hugging Face's tokenizer.json, or vocab.json, with merges.txt in the same folder. */
int sgrad__tokenizer_open(const char *file, struct sgrad__tokenizer **tokenizer);
void sgrad__tokenizer_close(struct sgrad__tokenizer *tokenizer);    /* NULL is fine */

/* The tokens of TEXT, COUNT of them; free them. A byte that no token stands for is left out, with a warning. */
int32_t *sgrad__tokenizer_encode(const struct sgrad__tokenizer *tokenizer, const char *text, int *count);
int sgrad__tokenizer_words(const struct sgrad__tokenizer *tokenizer);      /* the highest number in its vocabulary, and 1 */
/* The SIZE bytes of TOKEN; none of one that there is not. */
const char *sgrad__tokenizer_word(const struct sgrad__tokenizer *tokenizer, int token, size_t *size);

#endif
