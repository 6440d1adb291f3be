/* bpe.c: the merges of a word. The pairs that can be merged are in a heap, those of the lowest rank first, and of equal ranks the
 * leftmost. A pair of the heap may have changed since it was added; as in the library, it is then merged only if the pair that is
 * now at its position becomes the same token.
 *
 *     h e l l o     he l l o     he ll o     hell o     hello */
#include "config.h"
#include "datasets/tokenizers/internal.h"
#include "runtime/runtime.h"

#include <stdlib.h>
#include <string.h>

static bool precedes(const struct sgrad__candidate *one, const struct sgrad__candidate *other) {
    return one->rank < other->rank || (one->rank == other->rank && one->at < other->at);
}

static void push(struct sgrad__bpe *bpe, struct sgrad__candidate candidate) {
    if (bpe->candidates == bpe->heap_capacity) {
        struct sgrad__candidate *larger = sgrad_xcalloc(bpe->heap_capacity = 2 * bpe->heap_capacity + 64, sizeof *larger);
        if (bpe->candidates) memcpy(larger, bpe->heap, bpe->candidates * sizeof *larger);
        free(bpe->heap);
        bpe->heap = larger;
    }
    size_t i = bpe->candidates++;
    for (size_t parent; i && precedes(&candidate, &bpe->heap[parent = (i - 1) / 2]); i = parent) bpe->heap[i] = bpe->heap[parent];
    bpe->heap[i] = candidate;
}

static struct sgrad__candidate pop(struct sgrad__bpe *bpe) {
    const struct sgrad__candidate top = bpe->heap[0], last = bpe->heap[--bpe->candidates];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < bpe->candidates; i = child) {
        child += child + 1 < bpe->candidates && precedes(&bpe->heap[child + 1], &bpe->heap[child]);
        if (!precedes(&bpe->heap[child], &last)) break;
        bpe->heap[i] = bpe->heap[child];
    }
    bpe->heap[i] = last;
    return top;
}

/* Adds the pair of the symbol AT and the next one to the heap, if there is a merge of it. */
static void consider(const struct sgrad_tokenizer *tokenizer, struct sgrad__bpe *bpe, int32_t at) {
    const int32_t next = at < 0 ? -1 : bpe->symbol[at].next;
    if (next < 0) return;
    const struct sgrad__merge *merge = sgrad__merges_get(&tokenizer->merges, bpe->symbol[at].token, bpe->symbol[next].token);
    if (merge) push(bpe, (struct sgrad__candidate){ merge->rank, at, merge->token });
}

static void merge_all(const struct sgrad_tokenizer *tokenizer, struct sgrad__bpe *bpe) {
    bpe->candidates = 0;
    for (size_t i = 0; i < bpe->symbols; i++) {
        bpe->symbol[i].previous = (int32_t)i - 1;
        bpe->symbol[i].next = i + 1 < bpe->symbols ? (int32_t)i + 1 : -1;
    }
    for (size_t i = 0; i < bpe->symbols; i++) consider(tokenizer, bpe, (int32_t)i);
    while (bpe->candidates) {
        const struct sgrad__candidate top = pop(bpe);
        struct sgrad__symbol *left = &bpe->symbol[top.at];
        if (left->removed || left->next < 0) continue;
        struct sgrad__symbol *right = &bpe->symbol[left->next];
        const struct sgrad__merge *merge = sgrad__merges_get(&tokenizer->merges, left->token, right->token);
        if (!merge || merge->token != top.token) continue;
        left->token = top.token;
        left->next = right->next;
        right->removed = true;
        if (left->next >= 0) bpe->symbol[left->next].previous = top.at;
        consider(tokenizer, bpe, left->previous);
        consider(tokenizer, bpe, top.at);
    }
}

static void add(struct sgrad__bpe *bpe, int32_t token) { bpe->symbol[bpe->symbols++] = (struct sgrad__symbol){ .token = token }; }

/* Adds the bytes of a character as tokens <0x00> …; false: the vocabulary lacks one of them. */
static bool add_bytes(const struct sgrad_tokenizer *tokenizer, struct sgrad__bpe *bpe, const char *character, size_t size) {
    for (size_t i = 0; i < size; i++)
        if (tokenizer->byte_token[(unsigned char)character[i]] < 0) return false;
    for (size_t i = 0; i < size; i++) add(bpe, tokenizer->byte_token[(unsigned char)character[i]]);
    return true;
}

/* An unknown token is added only before the next known one, or at the end: after bytes that follow it. The library does so. */
static void add_characters(const struct sgrad_tokenizer *tokenizer, struct sgrad__bpe *bpe, const char *word, size_t size) {
    const char *end = word + size;
    size_t length;
    bool unknown = false;
    for (; word < end; word += length) {
        sgrad__utf8_get(word, end, &length);
        const int32_t token = sgrad__table_get(&tokenizer->vocabulary, word, length);
        if (token >= 0) {
            if (unknown) add(bpe, tokenizer->unknown);
            unknown = false;
            add(bpe, token);
        } else if (!(tokenizer->byte_fallback && add_bytes(tokenizer, bpe, word, length))) {
            if (unknown && !tokenizer->fuse_unk) add(bpe, tokenizer->unknown);
            unknown = tokenizer->unknown >= 0;
            bpe->dropped += !unknown;
        }
    }
    if (unknown) add(bpe, tokenizer->unknown);
}

void sgrad__bpe_run(const struct sgrad_tokenizer *tokenizer, struct sgrad__bpe *bpe, const char *word, size_t size) {
    if (bpe->capacity < size + 1) {
        free(bpe->symbol);
        bpe->symbol = sgrad_xcalloc(bpe->capacity = size + size / 2 + 64, sizeof *bpe->symbol);
    }
    bpe->symbols = 0;
    const int32_t whole = tokenizer->ignore_merges ? sgrad__table_get(&tokenizer->vocabulary, word, size) : -1;
    if (whole >= 0) {
        add(bpe, whole);
        return;
    }
    add_characters(tokenizer, bpe, word, size);
    merge_all(tokenizer, bpe);
}

void sgrad__bpe_free(struct sgrad__bpe *bpe) {
    free(bpe->symbol);
    free(bpe->heap);
}
