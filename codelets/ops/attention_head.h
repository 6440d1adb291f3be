/* attention_head.h: the matrices of an attention head in a worker's memory, and their products. Private to attention_blocks.h.
 *
 * Matrices consist of 4-byte words. A word is a float or a pair of bf16. A left factor (T,D) has its words along D. So has its
 * transpose, which is a right factor and is stored in blocks of T, each (D,BLOCK). Other right factors (T,D) have their words
 * along T. Rows are padded with zeros to whole vectors. */
#ifndef SGRAD_CODELETS_OPS_ATTENTION_HEAD_H
#define SGRAD_CODELETS_OPS_ATTENTION_HEAD_H

#include "codelets/cpu/isa.h"
#include "codelets/cpu/numbers.h"
#include "codelets/kernels.h"

enum { BLOCK = 64 };    /* rows and columns of a block of scores */

typedef uint32_t word __attribute__((may_alias));

/* The rows of q, k or v: element (n,t,h,d) is DATA[(n·T + t)·stride + first + h·D + d]. SLOPE has the gradient, of TYPE, in the
 * same manner; ADD: it is added to. */
struct rows {
    const void *data;
    void *slope;
    int64_t stride, first;
    enum sgrad_dtype type;
    bool add;
};

/* Sizes of one head, and the offsets of its matrices in the workspace, in words. */
struct head {
    bool pairs;
    enum sgrad_dtype type;
    int64_t count, width, heads, kv, group, size;   /* T, C, heads, kv_heads, heads / kv_heads, D */
    int64_t row, deep, rows;                    /* D padded to vectors; words along D; T padded to blocks */
    int64_t q, kt, v, dy, vt, of_q, of_k, of_dy, dq, dk, dv, scores, slopes, words, sum, own, all;
};

static void place(struct head *head, int64_t *matrix, int64_t words) {
    *matrix = head->all;
    head->all += words;
}

/* Operand 1 is y (N,T,C). */
static struct head head_of(const struct sgrad_args *args, int64_t heads, int64_t kv, bool backward) {
    const struct sgrad_view *y = &args->view[1];
    struct head h = { .type = y->dtype, .count = y->shape.dim[1], .heads = heads, .kv = kv, .group = heads / kv };
    h.width = y->shape.dim[2];
    h.size = h.width / heads;
    const struct sgrad__level *level = sgrad__level();
    h.pairs = h.type == SGRAD_BF16 && level && level->multiply_pairs && sgrad_isa() >= SGRAD_AVX512_BF16;
    h.row = (h.size + LANES - 1) / LANES * LANES;
    h.deep = h.pairs ? h.row / 2 : h.row;
    h.rows = (h.count + BLOCK - 1) / BLOCK * BLOCK;
    int64_t *const left[] = { &h.q, &h.kt, &h.dy, &h.vt }, *const right[] = { &h.v, &h.of_k, &h.of_q, &h.of_dy };
    for (int i = 0; i < (backward ? 4 : 2); i++) place(&h, left[i], h.rows * h.deep);
    if (!backward) place(&h, &h.v, h.rows * h.row);
    for (int i = 1; i < (h.pairs ? 4 : 2) && backward; i++) place(&h, right[i], h.rows * h.row);
    if (!h.pairs) h.of_q = h.q, h.of_dy = h.dy;     /* words of one number fit both kinds of factors */
    int64_t *const sums[] = { &h.dq, &h.dk, &h.dv };
    for (int i = 0; i < 3 && backward; i++) place(&h, sums[i], h.rows * h.row);
    place(&h, &h.scores, BLOCK * BLOCK);
    place(&h, &h.slopes, BLOCK * BLOCK);
    place(&h, &h.words, BLOCK * BLOCK);
    place(&h, &h.sum, BLOCK * h.row);
    place(&h, &h.own, h.rows);
    return h;
}

/* Copies COUNT rows of SIZE numbers, STRIDE apart, the first at FROM, times SCALE. The rows of TO are TO_ROW numbers long and are
 * padded with zeros. */
SGRAD_ALWAYS_INLINE void gather(enum sgrad_dtype type, const void *data, int64_t from, int64_t stride, int64_t count,
                                int64_t size, float scale, float *to, int64_t to_row) {
    float room[SGRAD_ROW];
    for (int64_t t = 0; t < count; t++, to += to_row) {
        const float *x = sgrad_row(type, data, from + t * stride, size, room);
        for (int64_t i = 0; i < size; i++) to[i] = x[i] * scale;
        for (int64_t i = size; i < to_row; i++) to[i] = 0;
    }
}

/* Returns the index of the first row's first element, of sample N and head K. */
static int64_t begin(const struct head *head, const struct rows *rows, int64_t n, int64_t k) {
    return n * head->count * rows->stride + rows->first + k * head->size;
}

/* Copies a head's rows, the first at FROM, as a left factor: words along D. */
SGRAD_ALWAYS_INLINE void gather_left(const struct head *head, const struct rows *rows, int64_t from, float *to) {
    const void *data = rows->data;
    const int64_t stride = rows->stride;
    if (!head->pairs) gather(head->type, data, from, stride, head->count, head->size, 1, to, head->row);
    for (int64_t t = 0; t < head->count && head->pairs; t++, to += head->deep) {
        memcpy(to, (const uint16_t *)data + from + t * stride, (size_t)head->size * sizeof(uint16_t));
        memset((uint16_t *)(void *)to + head->size, 0, (size_t)(head->row - head->size) * sizeof(uint16_t));
    }
}

/* Copies the same rows as a right factor: words along T. If T is odd, the upper half of the last words is 0. */
SGRAD_ALWAYS_INLINE void gather_right(const struct head *head, const struct rows *rows, int64_t from, float *to) {
    const void *data = rows->data;
    const int64_t stride = rows->stride;
    if (!head->pairs) gather(head->type, data, from, stride, head->count, head->size, 1, to, head->row);
    for (int64_t t = 0; t < head->count && head->pairs; t += 2, to += head->row) {
        const uint16_t *low = (const uint16_t *)data + from + t * stride, *high = t + 1 < head->count ? low + stride : NULL;
        word *y = (word *)to;
        for (int64_t c = 0; c < head->size; c++) y[c] = high ? low[c] | (uint32_t)high[c] << 16 : low[c];
        for (int64_t c = head->size; c < head->row; c++) y[c] = 0;
    }
}

/* Writes the transpose of the left factor LEFT as a right factor. */
SGRAD_ALWAYS_INLINE void turn(const struct head *head, const float *left, float *to) {
    for (int64_t from = 0; from < head->count; from += BLOCK, to += BLOCK * head->deep) {
        const word *x = (const word *)left + from * head->deep;
        const int64_t count = head->count - from < BLOCK ? head->count - from : BLOCK;
        word *y = (word *)to;
        for (int64_t d = 0; d < head->deep; d++, y += BLOCK) {
            for (int64_t t = 0; t < count; t++) y[t] = x[t * head->deep + d];
            for (int64_t t = count; t < BLOCK; t++) y[t] = 0;
        }
    }
}

/* Inverse of gather: writes COUNT rows of SIZE numbers, X_ROW apart, times SCALE, to rows STRIDE apart, or adds to these. */
SGRAD_ALWAYS_INLINE void scatter(const float *x, int64_t x_row, int64_t count, int64_t size, float scale, enum sgrad_dtype type,
                                 void *data, int64_t to, int64_t stride, bool add) {
    float room[SGRAD_ROW];
    for (int64_t t = 0; t < count; t++, x += x_row) {
        float *y = sgrad_row_sum(type, data, to + t * stride, size, add, room);
        for (int64_t i = 0; i < size; i++) y[i] += x[i] * scale;
        sgrad_row_done(type, data, to + t * stride, size, y);
    }
}

/* ---- products: Z (M,N) = E (M,T) V (T,N), or added to Z; N is a multiple of the vector length --------------------- */

static void plain(int64_t m, int64_t n, int64_t terms, const float *e, int64_t e_row, int64_t e_step, const float *v,
                  int64_t v_row, float *z, int64_t z_row, bool add) {
    for (int64_t i = 0; i < m; i++, z += z_row) {
        if (!add) memset(z, 0, (size_t)n * sizeof *z);
        for (int64_t t = 0; t < terms; t++)
            for (int64_t j = 0; j < n; j++) z[j] += e[i * e_row + t * e_step] * v[t * v_row + j];
    }
}

/* E and V have their words along the dimension that is summed over, which is TERMS words long. A row of E is E_ROW words long. */
static void multiply(const struct head *head, int64_t m, int64_t n, int64_t terms, const float *e, int64_t e_row, const float *v,
                     int64_t v_row, float *z, int64_t z_row, bool add) {
    const struct sgrad__level *level = sgrad__level();
    if (head->pairs) level->multiply_pairs(m, n, terms, e, e_row, 1, v, v_row, z, z_row, add);
    else if (level) level->multiply_rows(m, n, terms, e, e_row, v, v_row, z, z_row, add);
    else plain(m, n, terms, e, e_row, 1, v, v_row, z, z_row, add);
}

/* Adds the product of E's transpose and V to Z. E is (T,M); its rows are BLOCK words long. */
static void multiply_turned(const struct head *head, int64_t m, int64_t n, int64_t terms, const float *e, const float *v,
                            int64_t v_row, float *z, int64_t z_row) {
    const struct sgrad__level *level = sgrad__level();
    if (head->pairs) level->multiply_pairs(m, n, terms, e, 1, BLOCK, v, v_row, z, z_row, true);
    else if (level) level->multiply_columns(m, n, terms, e, BLOCK, v, v_row, z, z_row, true);
    else plain(m, n, terms, e, 1, BLOCK, v, v_row, z, z_row, true);
}

static int64_t words(const struct head *head, int64_t terms) { return head->pairs ? (terms + 1) / 2 : terms; }

/* Return ROWS rows of a block of floats as a left factor (along), or as a factor whose transpose is a left factor (across).
 * If words are pairs, the result is written to the given buffer; else it is BLOCK itself. */
static const float *along(const struct head *head, const float *block, int64_t rows, float *room) {
    if (!head->pairs) return block;
    sgrad__level()->make_pairs(block, rows, BLOCK, room, NULL);
    return room;
}
static const float *across(const struct head *head, const float *block, int64_t rows, float *room) {
    if (!head->pairs) return block;
    sgrad__level()->make_pairs(block, rows, BLOCK, NULL, room);
    return room;
}

/* Return the block of rows that begins at row FROM: of a transposed right factor, and of another right factor. */
static const float *block_turned(const struct head *head, const float *x, int64_t from) { return x + from * head->deep; }
static const float *block_of(const struct head *head, const float *x, int64_t from) { return x + words(head, from) * head->row; }

#endif
