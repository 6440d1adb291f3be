/* attention_blocks.h: blocks of the scores of attention heads, forward and backward: attention.c describes the method. Private to
 * attention.c and ring_attention.c. */
#ifndef SGRAD_CODELETS_OPS_ATTENTION_BLOCKS_H
#define SGRAD_CODELETS_OPS_ATTENTION_BLOCKS_H

#include "codelets/ops/attention_head.h"

#include <math.h>

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* The keys that queries attend to, by the index of the query's row and the indices of keys among those of the block that is at
 * hand. Both limits never decrease with the query.
 *
 * CAUSAL: only keys whose positions are not after that of the query. START (T): for each query, the position of the first row of
 * its document; NULL: a sample is one document. HALF 0: queries and keys are those of the same rows, and positions are indices.
 * Else queries and keys are those of two ranks, as struct sgrad_zigzag describes, and have two chunks of HALF rows each. The
 * chunks of the keys begin at positions EARLY and LATE. ORDER is the rank of the keys minus that of the queries. */
struct seen {
    bool causal;
    const int32_t *start;
    int order;
    int64_t half, early, late;
};

/* Return the first key that query I attends to, and the end of these keys, of which there are COUNT. */
SGRAD_ALWAYS_INLINE int64_t first_seen(const struct seen *seen, int64_t i) {
    if (!seen->start) return 0;
    const int64_t at = seen->start[i];
    if (!seen->half) return at;
    return at < seen->late ? sgrad_clamp(at - seen->early, 0, seen->half) : at - seen->late + seen->half;
}
SGRAD_ALWAYS_INLINE int64_t end_seen(const struct seen *seen, int64_t i, int64_t count) {
    if (!seen->causal) return count;
    if (!seen->order) return i + 1;
    if (seen->order < 0) return seen->half;
    return i < seen->half ? 0 : count;
}

/* Returns how many of the keys from FIRST on, COUNT of a head's KEYS, query I attends to. Those before its document are given the
 * score -∞. S: the scores of the row. */
SGRAD_ALWAYS_INLINE int64_t seen_of(const struct seen *seen, int64_t i, int64_t first, int64_t count, int64_t keys, float *s) {
    const int64_t some = sgrad_clamp(end_seen(seen, i, keys) - first, 0, count), others = first_seen(seen, i) - first;
    if (others >= some) return 0;
    for (int64_t j = 0; j < others; j++) s[j] = -INFINITY;
    return some;
}

/* Replaces the first COUNT scores s of a row by exp(s·SCALE - MAX), the rest of the row by 0. Returns the sum. */
SGRAD_ALWAYS_INLINE float exponentials(float *s, int64_t count, float scale, float max) {
    const int64_t padded = (count + LANES - 1) / LANES * LANES;
    for (int64_t j = count; j < padded; j++) s[j] = -INFINITY;
    for (int64_t j = 0; j < padded; j++) s[j] = exp_of(s[j] * scale - max);
    for (int64_t j = padded; j < BLOCK; j++) s[j] = 0;
    return sum_of(s, padded);
}

SGRAD_ALWAYS_INLINE float scale_of(const struct head *head) { return 1 / sqrtf((float)head->size); }

/* Computes queries FIRST to FIRST + ROWS - 1 of a head. Writes their rows of y to the workspace at h.sum, and their log Σ exp
 * to KEEP: -∞, with y = 0, of a query that attends to no key. */
SGRAD_ALWAYS_INLINE void attend(const struct head *head, const struct seen *seen, int64_t first, int64_t rows, float *room,
                                float *keep) {
    float max[BLOCK], total[BLOCK], *sum = room + head->sum, *scores = room + head->scores;
    const int64_t keys = end_seen(seen, first + rows - 1, head->count);
    const float *q = room + head->q + first * head->deep, scale = scale_of(head);
    for (int64_t i = 0; i < rows; i++) max[i] = -INFINITY, total[i] = 0;
    memset(sum, 0, (size_t)(rows * head->row) * sizeof *sum);
    for (int64_t from = first_seen(seen, first) / BLOCK * BLOCK; from < keys; from += BLOCK) {
        const int64_t count = least(BLOCK, keys - from);
        multiply(head, rows, BLOCK, words(head, head->size), q, head->deep, block_turned(head, room + head->kt, from), BLOCK,
                 scores, BLOCK, false);
        for (int64_t i = 0; i < rows; i++) {
            float *s = scores + i * BLOCK;
            const int64_t some = seen_of(seen, first + i, from, count, head->count, s);
            const float before = max[i];
            max[i] = fmaxf(before, largest(s, some) * scale);
            const float shrink = before == max[i] ? 1 : expf(before - max[i]);
            total[i] = total[i] * shrink + exponentials(s, some, scale, max[i]);
            for (int64_t c = 0; shrink != 1 && c < head->row; c++) sum[i * head->row + c] *= shrink;
        }
        const float *p = along(head, scores, rows, room + head->words);
        multiply(head, rows, head->row, words(head, count), p, words(head, BLOCK), block_of(head, room + head->v, from),
                 head->row, sum, head->row, true);
    }
    for (int64_t i = 0; i < rows; i++) {
        const float all = total[i] == 0 ? 1 : total[i];
        for (int64_t c = 0; c < head->row; c++) sum[i * head->row + c] /= all;
        keep[first + i] = max[i] + logf(total[i]);
    }
}

/* ---- backward ---------------------------------------------------------------------------------------------------- */

/* Backward of one block of scores, ROWS queries from FIRST on and COUNT keys from FROM on. Adds its terms to dq, dk and dv. */
SGRAD_ALWAYS_INLINE void slope(const struct head *head, const struct seen *seen, int64_t first, int64_t rows, int64_t from,
                               int64_t count, float *room, const float *keep) {
    float *p = room + head->scores, *ds = room + head->slopes, *pairs = room + head->words;
    const float *q = room + head->q + first * head->deep, *dy = room + head->dy + first * head->deep,
                *own = room + head->own + first;
    multiply(head, rows, BLOCK, words(head, head->size), q, head->deep, block_turned(head, room + head->kt, from), BLOCK, p,
             BLOCK, false);
    multiply(head, rows, BLOCK, words(head, head->size), dy, head->deep, block_turned(head, room + head->vt, from), BLOCK, ds,
             BLOCK, false);
    for (int64_t i = 0; i < rows; i++) {
        const int64_t some = seen_of(seen, first + i, from, count, head->count, p + i * BLOCK);
        exponentials(p + i * BLOCK, some, scale_of(head), keep[first + i]);
        for (int64_t j = 0; j < BLOCK; j++) ds[i * BLOCK + j] = p[i * BLOCK + j] * (ds[i * BLOCK + j] - own[i]);
    }
    multiply_turned(head, count, head->row, words(head, rows), across(head, p, rows, pairs),
                    block_of(head, room + head->of_dy, first), head->row, room + head->dv + from * head->row, head->row);
    multiply_turned(head, count, head->row, words(head, rows), across(head, ds, rows, pairs),
                    block_of(head, room + head->of_q, first), head->row, room + head->dk + from * head->row, head->row);
    multiply(head, rows, head->row, words(head, count), along(head, ds, rows, pairs), words(head, BLOCK),
             block_of(head, room + head->of_k, from), head->row, room + head->dq + first * head->row, head->row, true);
}

/* Computes own[t] = y·dy of each row t of a head. */
SGRAD_ALWAYS_INLINE void sum_own(const struct head *head, const void *y, const void *dy, int64_t from, float *own) {
    float of_y[SGRAD_ROW], of_dy[SGRAD_ROW];
    for (int64_t t = 0; t < head->count; t++) {
        const float *a = sgrad_row(head->type, y, from + t * head->width, head->size, of_y),
                    *b = sgrad_row(head->type, dy, from + t * head->width, head->size, of_dy);
        own[t] = sum_of_products(a, b, head->size);
    }
}

/* Writes the gradient of a head's rows, times SCALE. */
SGRAD_ALWAYS_INLINE void put(const struct head *head, const float *slope, float scale, const struct rows *rows, int64_t to) {
    if (rows->slope)
        scatter(slope, head->row, head->count, head->size, scale, rows->type, rows->slope, to, rows->stride, rows->add);
}

/* The same of all blocks of a head. Adds the terms of dk and dv, and sets dq. KEEP: log Σ exp of its queries. */
SGRAD_ALWAYS_INLINE void slope_all(const struct head *head, const struct seen *seen, float *room, const float *keep) {
    memset(room + head->dq, 0, (size_t)(head->rows * head->row) * sizeof *room);
    for (int64_t key = 0; key < head->count; key += BLOCK)
        for (int64_t first = 0; first < head->count && first_seen(seen, first) < key + BLOCK; first += BLOCK) {
            const int64_t rows = least(BLOCK, head->count - first);
            if (end_seen(seen, first + rows - 1, head->count) > key)
                slope(head, seen, first, rows, key, least(BLOCK, head->count - key), room, keep);
        }
}

/* Copies the queries of sample N and head K, and their dy, from operands, and computes y·dy of each. */
SGRAD_ALWAYS_INLINE void take_slopes(const struct head *head, const struct rows *of_q, const void *y, const void *dy, int64_t n,
                                     int64_t k, float *room) {
    const struct rows of_dy = { .data = dy, .stride = head->width };
    const int64_t from = begin(head, of_q, n, k), out = begin(head, &of_dy, n, k);
    gather_left(head, of_q, from, room + head->q);
    gather_left(head, &of_dy, out, room + head->dy);
    if (head->pairs) gather_right(head, of_q, from, room + head->of_q);
    if (head->pairs) gather_right(head, &of_dy, out, room + head->of_dy);
    sum_own(head, y, dy, out, room + head->own);
}

/* Copies the keys and values of sample N and head SHARED for forward, and for backward, where dk and dv become 0. */
SGRAD_ALWAYS_INLINE void take_keys(const struct head *head, const struct rows of[3], int64_t n, int64_t shared, float *room) {
    gather_left(head, &of[1], begin(head, &of[1], n, shared), room + head->q);
    turn(head, room + head->q, room + head->kt);
    gather_right(head, &of[2], begin(head, &of[2], n, shared), room + head->v);
}
SGRAD_ALWAYS_INLINE void take_keys_back(const struct head *head, const struct rows of[3], int64_t n, int64_t shared,
                                        float *room) {
    const int64_t of_k = begin(head, &of[1], n, shared), of_v = begin(head, &of[2], n, shared);
    gather_left(head, &of[1], of_k, room + head->q);
    turn(head, room + head->q, room + head->kt);
    gather_left(head, &of[2], of_v, room + head->q);
    turn(head, room + head->q, room + head->vt);
    gather_right(head, &of[1], of_k, room + head->of_k);
    memset(room + head->dk, 0, (size_t)(2 * head->rows * head->row) * sizeof *room);
}

#endif
