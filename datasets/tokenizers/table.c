/* table.c: hash tables with open addressing: of texts, and of pairs of tokens. */
#include "config.h"
#include "datasets/tokenizers/internal.h"
#include "runtime/runtime.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_ROWS = 256 };

static uint64_t mix(uint64_t x) {
    x = (x ^ x >> 32) * 0xD6E8FEB86659FD93u;
    return x ^ x >> 32;
}

static uint64_t hash_of(const char *text, size_t size) {
    uint64_t hash = size, eight;
    for (; size >= 8; text += 8, size -= 8) {
        memcpy(&eight, text, 8);
        hash = mix(hash ^ eight);
    }
    eight = 0;
    memcpy(&eight, text, size);
    return mix(hash ^ eight);
}

/* Returns the row of TEXT, or the free row for it. The table has at least one free row. */
static struct sgrad__table_row *row_of(const struct sgrad__table *table, const char *text, size_t size, uint64_t hash) {
    for (size_t i = hash & (table->rows - 1);; i = (i + 1) & (table->rows - 1)) {
        struct sgrad__table_row *row = &table->row[i];
        if (row->value < 0 || (row->hash == hash && row->size == size && !memcmp(table->texts.text + row->text, text, size)))
            return row;
    }
}

int32_t sgrad__table_get(const struct sgrad__table *table, const char *text, size_t size) {
    return table->rows ? row_of(table, text, size, hash_of(text, size))->value : -1;
}

static void grow(struct sgrad__table *table) {
    struct sgrad__table_row *old = table->row;
    const size_t rows = table->rows;
    table->rows = rows ? 2 * rows : FIRST_ROWS;
    table->row = sgrad_xcalloc(table->rows, sizeof *table->row);
    for (size_t i = 0; i < table->rows; i++) table->row[i].value = -1;
    for (size_t i = 0; i < rows; i++)
        if (old[i].value >= 0) *row_of(table, table->texts.text + old[i].text, old[i].size, old[i].hash) = old[i];
    free(old);
}

void sgrad__table_put(struct sgrad__table *table, const char *text, size_t size, int32_t value) {
    if (2 * table->used >= table->rows) grow(table);
    const uint64_t hash = hash_of(text, size);
    struct sgrad__table_row *row = row_of(table, text, size, hash);
    if (row->value < 0) {
        *row = (struct sgrad__table_row){ .hash = hash, .text = table->texts.size, .size = (uint32_t)size };
        sgrad__buffer_add(&table->texts, text, size);
        table->used++;
    }
    row->value = value;
}

void sgrad__table_clear(struct sgrad__table *table) {
    for (size_t i = 0; i < table->rows; i++) table->row[i].value = -1;
    table->used = table->texts.size = 0;
}

void sgrad__table_free(struct sgrad__table *table) {
    free(table->row);
    free(table->texts.text);
    *table = (struct sgrad__table){ 0 };
}

/* ---- pairs of tokens --------------------------------------------------------------------------------------------- */

static struct sgrad__merge *pair_of(const struct sgrad__merges *merges, int32_t left, int32_t right) {
    const uint64_t hash = mix((uint64_t)(uint32_t)left << 32 | (uint32_t)right);
    for (size_t i = hash & (merges->rows - 1);; i = (i + 1) & (merges->rows - 1)) {
        struct sgrad__merge *row = &merges->row[i];
        if (row->left < 0 || (row->left == left && row->right == right)) return row;
    }
}

const struct sgrad__merge *sgrad__merges_get(const struct sgrad__merges *merges, int32_t left, int32_t right) {
    const struct sgrad__merge *row = merges->rows ? pair_of(merges, left, right) : NULL;
    return row && row->left >= 0 ? row : NULL;
}

void sgrad__merges_put(struct sgrad__merges *merges, struct sgrad__merge merge) {
    if (2 * merges->used >= merges->rows) {
        const struct sgrad__merges old = *merges;
        merges->rows = old.rows ? 2 * old.rows : FIRST_ROWS;
        merges->row = sgrad_xcalloc(merges->rows, sizeof *merges->row);
        for (size_t i = 0; i < merges->rows; i++) merges->row[i].left = -1;
        for (size_t i = 0; i < old.rows; i++)
            if (old.row[i].left >= 0) *pair_of(merges, old.row[i].left, old.row[i].right) = old.row[i];
        free(old.row);
    }
    struct sgrad__merge *row = pair_of(merges, merge.left, merge.right);
    merges->used += row->left < 0;
    *row = merge;
}
