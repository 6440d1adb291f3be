/* added.c: a tree of the bytes of texts, which finds the first of them in a text, and the longest at that position. */
#include "config.h"
#include "datasets/tokenizers/internal.h"
#include "runtime/runtime.h"

#include <string.h>

enum { ROOTS = 256 };

static int32_t add_node(struct sgrad__trie *trie, int byte) {
    trie->node = sgrad_array_grow(trie->node, trie->nodes, sizeof *trie->node);
    trie->node[trie->nodes] = (struct sgrad__node){ .byte = (unsigned char)byte, .added = -1 };
    return trie->nodes++;
}

/* Returns the child of a node for BYTE; 0: it has no such child. */
static int32_t child_of(const struct sgrad__trie *trie, int32_t node, unsigned char byte) {
    int32_t child = trie->node[node].child;
    while (child && trie->node[child].byte != byte) child = trie->node[child].sibling;
    return child;
}

void sgrad__trie_add(struct sgrad__trie *trie, const char *text, size_t size, int32_t added) {
    for (int byte = -1; byte < ROOTS && trie->nodes <= ROOTS; byte++) add_node(trie, byte < 0 ? 0 : byte);
    int32_t node = 1 + (unsigned char)*text;
    for (size_t i = 1; i < size; i++) {
        int32_t child = child_of(trie, node, (unsigned char)text[i]);
        if (!child) {
            child = add_node(trie, (unsigned char)text[i]);
            trie->node[child].sibling = trie->node[node].child;
            trie->node[node].child = child;
        }
        node = child;
    }
    if (trie->node[node].added < 0) trie->node[node].added = added;
}

int32_t sgrad__trie_find(const struct sgrad__trie *trie, const char *text, size_t size, size_t *at, size_t *length) {
    if (!trie->nodes) return -1;
    for (size_t i = *at; i < size; i++) {
        int32_t node = 1 + (unsigned char)text[i], found = -1;
        const struct sgrad__node *root = &trie->node[node];
        if (!root->child && root->added < 0) continue;
        for (size_t end = i + 1; node; node = end < size ? child_of(trie, node, (unsigned char)text[end]) : 0, end++)
            if (trie->node[node].added >= 0) found = trie->node[node].added, *length = end - i;
        if (found >= 0) return *at = i, found;
    }
    return -1;
}
