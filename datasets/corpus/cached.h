/* cached.h: token files of texts, in the user's cache folder. Private to datasets/. */
#ifndef SGRAD_DATASETS_CORPUS_CACHED_H
#define SGRAD_DATASETS_CORPUS_CACHED_H

#include "datasets/shards/pattern.h"
#include "datasets/tokenizers/tokenizer.h"

/* How texts become tokens. */
struct sgrad__recipe {
    const char *what; /* name of the reader, for messages */
    const struct sgrad_tokenizer *tokenizer;
    uint64_t checksum; /* of the tokenizer's files */
    const char *field; /* of the objects of JSON lines */
    int32_t end;       /* token after each document */
};

/* Opens the tokenizer FILE: RECIPE, with WHAT and FIELD, which must outlive it. The caller closes the tokenizer. SGRAD_EFORMAT:
 * it has none of the usual tokens that end a document. Other errors: as sgrad_tokenizer_open. */
int sgrad__recipe_open(const char *what, const char *file, const char *field, struct sgrad__recipe *recipe,
                       struct sgrad_tokenizer **tokenizer);

/* Sets token file i of TOKENS to that of file i of TEXTS, JSON lines. Those that are not in the cache are tokenized, each by one
 * process. The caller must free TOKENS, also after an error. SGRAD_EIO: a file cannot be read or written, or there is no cache
 * folder. SGRAD_EFORMAT: a file is malformed. */
int sgrad__cached_tokens(const struct sgrad__recipe *recipe, const struct sgrad__paths *texts, struct sgrad__paths *tokens);

#endif
