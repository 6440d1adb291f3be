/* attention.c: multi-head attention between the rows of a sample:
 *
 *     y_i = Σ_j p_ij v_j,    p_i = softmax over j of q_i·k_j / √D         CAUSAL: over j ≤ i
 *
 * x is (N,T,3C): a row is the concatenation of q, k and v, each of C = heads·D numbers, head by head. y is (N,T,C).
 *
 * The matrix p is never stored. Scores are computed block by block, with a running maximum and a running sum per row. Sums that
 * were accumulated with a smaller maximum are scaled down. log Σ exp of each row is saved for backward, which recomputes the
 * blocks from it:
 *
 *              keys →                    forward, row of blocks by row: s = q kᵀ, p = exp(s - max), y = y·shrink + p v
 *     queries  ■                         backward, column by column: recompute p, dv += pᵀ dy, dp = dy vᵀ,
 *        ↓     ■ ■                                  ds = p (dp - y·dy), dq += ds k, dk += dsᵀ q
 *              ■ ■ ■     causal: blocks above the diagonal are left out
 *
 * A network with a key-value cache (attribute .cache, its length in rows) processes one row per step. Step number 1 writes its k
 * and v to row 0 of the cache, step 2 to row 1, and so on. The query of a step attends to all rows written so far.
 *
 * The rows of a head are first copied to contiguous matrices. Computation is in F32 for all types of activations, with one
 * exception: if activations are bf16 and the processor has AVX512_BF16, the factors of products are pairs of bf16, adjacent in
 * the dimension that is summed over, and p and ds are rounded to bf16.
 *
 * Sources: T. Dao et al., FlashAttention: fast and memory-efficient exact attention, 2022; A. Vaswani et al., Attention is all
 * you need, 2017. */
#include "config.h"
#include "codelets/cpu/isa.h"
#include "codelets/cpu/wide.h"
#include "codelets/ops/attention.h"

#include <math.h>

void sgrad__attention_forward_cuda(const struct sgrad_args *args);
void sgrad__attention_backward_cuda(const struct sgrad_args *args);
void sgrad__attention_inference_cuda(const struct sgrad_args *args);

enum { BLOCK = 64 };    /* rows and columns of a block of scores */

static int infer(struct sgrad_signature *signature, void *attributes) {
    const struct sgrad_attention *attrs = attributes;
    const struct sgrad_shape *x = &signature->x[0].shape;
    char text[SGRAD_SHAPE_TEXT];
    if (x->rank != 3 || x->dim[2] % 3)
        return sgrad_log_error(SGRAD_ESHAPE, "%s: attention requires queries, keys and values (N,T,3C), not %s", signature->layer,
                               sgrad_shape_text(x, text));
    const int64_t width = x->dim[2] / 3;
    if (attrs->heads < 1 || width % attrs->heads || width / attrs->heads > SGRAD_ROW)
        return sgrad_log_error(SGRAD_ESHAPE,
                               "%s: attention: a width of %lld cannot be divided into %d heads of at most %d features",
                               signature->layer, (long long)width, attrs->heads, SGRAD_ROW);
    if (attrs->cache && x->dim[1] != 1)
        return sgrad_log_error(SGRAD_ESHAPE, "%s: attention with a cache requires one row per step, not %lld", signature->layer,
                               (long long)x->dim[1]);
    signature->y.shape = (struct sgrad_shape){ 3, { x->dim[0], x->dim[1], width } };
    signature->saved[0] = (struct sgrad_view){ SGRAD_F32, { 3, { x->dim[0], attrs->heads, x->dim[1] } } };
    if (attrs->cache)
        signature->s[0] =
            (struct sgrad_parameter){ .name = "cache", .unsaved = true, .shape = { 3, { 2, attrs->cache, width } } };
    return 0;
}

/* ---- a head's matrices -------------------------------------------------------------------------------------------
 *
 * Matrices consist of 4-byte words. A word is a float or a pair of bf16. A left factor (T,D) has its words along D. So has its
 * transpose, which is a right factor and is stored in blocks of T, each (D,BLOCK). Other right factors (T,D) have their words
 * along T. Rows are padded with zeros to whole vectors. */

typedef uint32_t word __attribute__((may_alias));

/* Sizes of one head, and the offsets of its matrices in the workspace, in words. */
struct head {
    bool pairs;
    int64_t count, width, heads, size;          /* T, C, heads, D */
    int64_t row, deep, rows;                    /* D padded to vectors; words along D; T padded to blocks */
    int64_t q, kt, v, dy, vt, of_q, of_k, of_dy, dq, dk, dv, scores, slopes, words, sum, own, all;
};

static void place(struct head *head, int64_t *matrix, int64_t words) {
    *matrix = head->all;
    head->all += words;
}

static struct head head_of(const struct sgrad_view *view, int heads, bool backward) {
    struct head h = { .count = view->shape.dim[1], .width = view->shape.dim[2] / 3, .heads = heads };
    const struct sgrad__level *level = sgrad__level();
    h.pairs = view->dtype == SGRAD_BF16 && level && level->multiply_pairs && sgrad_isa() >= SGRAD_AVX512_BF16;
    h.size = h.width / heads;
    h.row = (h.size + WIDE - 1) / WIDE * WIDE;
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

static size_t workspace(const struct sgrad_args *args, bool backward) {
    const struct sgrad_attention *attrs = args->attrs;
    return SGRAD_LINE + (size_t)head_of(&args->view[0], attrs->heads, backward).all * sizeof(float);
}
static size_t forward_workspace(const struct sgrad_args *args) { return workspace(args, false); }
static size_t backward_workspace(const struct sgrad_args *args) { return workspace(args, true); }

/* Workspace of backward on a GPU: y·dy of each row of each head. */
static size_t backward_gpu_workspace(const struct sgrad_args *args) {
    const struct sgrad_attention *attrs = args->attrs;
    const int64_t *x = args->view[0].shape.dim;
    return SGRAD_LINE + (size_t)(x[0] * attrs->heads * x[1]) * sizeof(float);
}
static size_t no_workspace(const struct sgrad_args *args) { return (void)args, 0; }

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

/* Copies a head's rows of DATA, STRIDE apart, the first at FROM, as a left factor: words along D. */
SGRAD_ALWAYS_INLINE void gather_left(const struct head *head, enum sgrad_dtype type, const void *data, int64_t from,
                                     int64_t stride, float *to) {
    if (!head->pairs) gather(type, data, from, stride, head->count, head->size, 1, to, head->row);
    for (int64_t t = 0; t < head->count && head->pairs; t++, to += head->deep) {
        memcpy(to, (const uint16_t *)data + from + t * stride, (size_t)head->size * sizeof(uint16_t));
        memset((uint16_t *)(void *)to + head->size, 0, (size_t)(head->row - head->size) * sizeof(uint16_t));
    }
}

/* Copies the same rows as a right factor: words along T. If T is odd, the upper half of the last words is 0. */
SGRAD_ALWAYS_INLINE void gather_right(const struct head *head, enum sgrad_dtype type, const void *data, int64_t from,
                                      int64_t stride, float *to) {
    if (!head->pairs) gather(type, data, from, stride, head->count, head->size, 1, to, head->row);
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

/* ---- training and evaluation ------------------------------------------------------------------------------------- */

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Returns how many of the COUNT keys from FIRST on the query in row I attends to. */
SGRAD_ALWAYS_INLINE int64_t seen(bool causal, int64_t i, int64_t first, int64_t count) {
    if (!causal || i >= first + count - 1) return count;
    return i < first ? 0 : i - first + 1;
}

/* Returns the maximum of the first COUNT scores of a row. */
SGRAD_ALWAYS_INLINE float greatest(const float *x, int64_t count) {
    const wide lowest = wide_of(-INFINITY);
    wide most = lowest;
    for (int64_t j = 0; j < count; j += WIDE) {
        const wide at = wide_either(wide_first(count - j), wide_load(x + j, WIDE, 0), lowest);
        most = wide_choose(at, most, most, at);
    }
    return wide_max(most);
}

/* Replaces the first COUNT scores s of a row by exp(s·SCALE - MAX), the rest of the row by 0. Returns the sum. */
SGRAD_ALWAYS_INLINE float exponentials(float *s, int64_t count, float scale, float max) {
    const wide none = wide_of(0);
    wide sum = none;
    int64_t j = 0;
    for (; j < count; j += WIDE) {
        const wide p = wide_either(wide_first(count - j), wide_exp(wide_load(s + j, WIDE, 0) * scale - max), none);
        wide_store(s + j, WIDE, p);
        sum += p;
    }
    for (; j < BLOCK; j += WIDE) wide_store(s + j, WIDE, none);
    return wide_sum(sum);
}

SGRAD_ALWAYS_INLINE float scale_of(const struct head *head) { return 1 / sqrtf((float)head->size); }

/* Computes queries FIRST to FIRST + ROWS - 1 of a head. Writes their rows of y to the workspace at h.sum, and their log Σ exp
 * to KEEP. */
SGRAD_ALWAYS_INLINE void attend(const struct head *head, bool causal, int64_t first, int64_t rows, float *room, float *keep) {
    float max[BLOCK], total[BLOCK], *sum = room + head->sum, *scores = room + head->scores;
    const int64_t keys = causal ? first + rows : head->count;
    const float *q = room + head->q + first * head->deep, scale = scale_of(head);
    for (int64_t i = 0; i < rows; i++) max[i] = -INFINITY, total[i] = 0;
    memset(sum, 0, (size_t)(rows * head->row) * sizeof *sum);
    for (int64_t from = 0; from < keys; from += BLOCK) {
        const int64_t count = least(BLOCK, keys - from);
        multiply(head, rows, BLOCK, words(head, head->size), q, head->deep, block_turned(head, room + head->kt, from), BLOCK,
                 scores, BLOCK, false);
        for (int64_t i = 0; i < rows; i++) {
            float *s = scores + i * BLOCK;
            const int64_t some = seen(causal, first + i, from, count);
            const float before = max[i], here = some ? greatest(s, some) * scale : -INFINITY;
            max[i] = here > before || here != here ? here : before;
            const float shrink = before == max[i] ? 1 : expf(before - max[i]);
            total[i] = total[i] * shrink + exponentials(s, some, scale, max[i]);
            for (int64_t c = 0; shrink != 1 && c < head->row; c++) sum[i * head->row + c] *= shrink;
        }
        const float *p = along(head, scores, rows, room + head->words);
        multiply(head, rows, head->row, words(head, count), p, words(head, BLOCK), block_of(head, room + head->v, from),
                 head->row, sum, head->row, true);
    }
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t c = 0; c < head->row; c++) sum[i * head->row + c] /= total[i];
        keep[first + i] = max[i] + logf(total[i]);
    }
}

SGRAD_ALWAYS_INLINE void attend_to_all(const struct sgrad_args *args) {
    const struct sgrad_attention *attrs = args->attrs;
    const enum sgrad_dtype type = args->view[0].dtype;
    const struct head h = head_of(&args->view[0], attrs->heads, false);
    float *room = (float *)sgrad_aligned((size_t)args->workspace), *keep = args->data[2];
    for (int64_t k = 0; k < args->view[0].shape.dim[0] * h.heads; k++, keep += h.count) {
        const int64_t row = k / h.heads * h.count, column = k % h.heads * h.size, from = row * 3 * h.width + column;
        gather_left(&h, type, args->data[0], from + h.width, 3 * h.width, room + h.q);
        turn(&h, room + h.q, room + h.kt);
        gather_left(&h, type, args->data[0], from, 3 * h.width, room + h.q);
        gather_right(&h, type, args->data[0], from + 2 * h.width, 3 * h.width, room + h.v);
        for (int64_t first = 0; first < h.count; first += BLOCK) {
            const int64_t rows = least(BLOCK, h.count - first);
            attend(&h, attrs->causal, first, rows, room, keep);
            scatter(room + h.sum, h.row, rows, h.size, 1, type, args->data[1], (row + first) * h.width + column, h.width, false);
        }
    }
}

/* x (N,T,3C), y (N,T,C), saved (N,heads,T): log Σ exp of each row of scores */
SGRAD_VECTOR(forward)(const struct sgrad_args *args) { attend_to_all(args); }

/* Backward of one block of scores, ROWS queries from FIRST on and COUNT keys from FROM on. Adds its terms to dq, dk and dv. */
SGRAD_ALWAYS_INLINE void slope(const struct head *head, bool causal, int64_t first, int64_t rows, int64_t from, int64_t count,
                               float *room, const float *keep) {
    float *p = room + head->scores, *ds = room + head->slopes, *pairs = room + head->words;
    const float *q = room + head->q + first * head->deep, *dy = room + head->dy + first * head->deep,
                *own = room + head->own + first;
    multiply(head, rows, BLOCK, words(head, head->size), q, head->deep, block_turned(head, room + head->kt, from), BLOCK, p,
             BLOCK, false);
    multiply(head, rows, BLOCK, words(head, head->size), dy, head->deep, block_turned(head, room + head->vt, from), BLOCK, ds,
             BLOCK, false);
    for (int64_t i = 0; i < rows; i++) {
        exponentials(p + i * BLOCK, seen(causal, first + i, from, count), scale_of(head), keep[first + i]);
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
SGRAD_ALWAYS_INLINE void sum_own(const struct head *head, enum sgrad_dtype type, const void *y, const void *dy, int64_t from,
                                 float *own) {
    float of_y[SGRAD_ROW], of_dy[SGRAD_ROW];
    for (int64_t t = 0; t < head->count; t++) {
        const float *a = sgrad_row(type, y, from + t * head->width, head->size, of_y),
                    *b = sgrad_row(type, dy, from + t * head->width, head->size, of_dy);
        wide sum = wide_of(0);
        for (int64_t c = 0; c < head->size; c += WIDE)
            sum += wide_load(a + c, head->size - c, 0) * wide_load(b + c, head->size - c, 0);
        own[t] = wide_sum(sum);
    }
}

/* x (N,T,3C), y, dy (N,T,C), saved (N,heads,T), dx (N,T,3C) */
SGRAD_VECTOR(backward)(const struct sgrad_args *args) {
    const struct sgrad_attention *attrs = args->attrs;
    const enum sgrad_dtype type = args->view[0].dtype;
    const struct head h = head_of(&args->view[0], attrs->heads, true);
    const float *keep = args->data[3];
    float *room = (float *)sgrad_aligned((size_t)args->workspace);
    for (int64_t k = 0; k < args->view[0].shape.dim[0] * h.heads; k++, keep += h.count) {
        const int64_t row = k / h.heads * h.count, column = k % h.heads * h.size;
        const int64_t stride = 3 * h.width, from = row * stride + column, out = row * h.width + column;
        gather_left(&h, type, args->data[0], from + h.width, stride, room + h.q);
        turn(&h, room + h.q, room + h.kt);
        gather_left(&h, type, args->data[0], from + 2 * h.width, stride, room + h.q);
        turn(&h, room + h.q, room + h.vt);
        gather_left(&h, type, args->data[0], from, stride, room + h.q);
        gather_left(&h, type, args->data[2], out, h.width, room + h.dy);
        gather_right(&h, type, args->data[0], from + h.width, stride, room + h.of_k);
        if (h.pairs) gather_right(&h, type, args->data[0], from, stride, room + h.of_q);
        if (h.pairs) gather_right(&h, type, args->data[2], out, h.width, room + h.of_dy);
        sum_own(&h, type, args->data[1], args->data[2], out, room + h.own);
        memset(room + h.dq, 0, (size_t)(3 * h.rows * h.row) * sizeof *room);
        for (int64_t key = 0; key < h.count; key += BLOCK)
            for (int64_t first = attrs->causal ? key : 0; first < h.count; first += BLOCK)
                slope(&h, attrs->causal, first, least(BLOCK, h.count - first), key, least(BLOCK, h.count - key), room, keep);
        const bool add = sgrad_adds(args, 4);
        scatter(room + h.dq, h.row, h.count, h.size, scale_of(&h), type, args->data[4], from, stride, add);
        scatter(room + h.dk, h.row, h.count, h.size, scale_of(&h), type, args->data[4], from + h.width, stride, add);
        scatter(room + h.dv, h.row, h.count, h.size, 1, type, args->data[4], from + 2 * h.width, stride, add);
    }
}

/* ---- one row per step, with a cache ------------------------------------------------------------------------------ */

/* x (1,1,3C), y (1,1,C), cache (2,L,C): the keys and values of L rows */
SGRAD_ALWAYS_INLINE void attend_to_cache(const struct sgrad_args *args) {
    const struct sgrad_attention *attrs = args->attrs;
    const struct head h = head_of(&args->view[0], attrs->heads, false);
    const int64_t place = (int64_t)args->step->number - 1, places = attrs->cache;
    float *keys = args->data[3], *values = keys + places * h.width, *q = (float *)sgrad_aligned((size_t)args->workspace);
    gather(args->view[0].dtype, args->data[0], h.width, h.size, h.heads, h.size, 1, keys + place * h.width, h.size);
    gather(args->view[0].dtype, args->data[0], 2 * h.width, h.size, h.heads, h.size, 1, values + place * h.width, h.size);
    for (int64_t k = 0; k < h.heads; k++) {
        float room[SGRAD_ROW] = { 0 }, max = -INFINITY, total = 0;
        gather(args->view[0].dtype, args->data[0], k * h.size, h.size, 1, h.size, 1 / sqrtf((float)h.size), q, h.row);
        for (int64_t t = 0; t <= place; t++) {
            const float *key = keys + t * h.width + k * h.size, *value = values + t * h.width + k * h.size;
            wide sum = wide_of(0);
            for (int64_t c = 0; c < h.size; c += WIDE) sum += wide_load(q + c, h.size - c, 0) * wide_load(key + c, h.size - c, 0);
            const float score = wide_sum(sum), before = max;
            max = score > max || score != score ? score : max;
            const float shrink = before == max ? 1 : expf(before - max), p = expf(score - max);
            total = total * shrink + p;
            for (int64_t c = 0; c < h.size; c++) room[c] = room[c] * shrink + p * value[c];
        }
        scatter(room, h.size, 1, h.size, 1 / total, args->view[0].dtype, args->data[1], k * h.size, h.size, false);
    }
}

/* x (N,T,3C), y (N,T,C), saved (N,heads,T), cache (2,L,C) or absent */
SGRAD_VECTOR(inference)(const struct sgrad_args *args) {
    if (args->data[3]) attend_to_cache(args);
    else attend_to_all(args);
}

/* ---- the record -------------------------------------------------------------------------------------------------- */

/* Forward has two products with the size of the scores, backward five. Causal attention computes half of the scores; with a
 * cache this is the mean over the steps that fill it. */
static double flops(const struct sgrad_args *args, int products) {
    const struct sgrad_attention *attrs = args->attrs;
    const struct sgrad_shape *x = &args->view[0].shape;
    const int64_t keys = attrs->cache ? attrs->cache : x->dim[1];
    return 2.0 * products * (double)(x->dim[0] * x->dim[1] * keys * x->dim[2] / 3) / (attrs->causal ? 2 : 1);
}
static double forward_flops(const struct sgrad_args *args) { return flops(args, 2); }
static double backward_flops(const struct sgrad_args *args) { return flops(args, 5); }

static void describe(const void *attributes, char *text, size_t size) {
    const struct sgrad_attention *attrs = attributes;
    snprintf(text, size, "%d %s%s", attrs->heads, attrs->heads == 1 ? "head" : "heads", attrs->causal ? ", causal" : "");
}

/* In causal attention -∞ is added to the scores above the diagonal. */
static void onnx(const struct sgrad_signature *signature, const void *attrs, FILE *to) {
    const struct sgrad_attention *a = attrs;
    const long long rows = signature->y.shape.dim[1], width = signature->y.shape.dim[2], size = width / a->heads;
    static const char *const part[] = { "query", "key", "worth" };
    if (a->cache) return;
    fprintf(to, "heads = Constant <value = int64[5] {0, %lld, 3, %d, %lld}> ()\nparts = Reshape (x, heads)\n", rows, a->heads,
            size);
    fputs("turned = Transpose <perm = [2, 0, 3, 1, 4]> (parts)\n", to);
    for (int i = 0; i < 3; i++)
        fprintf(to, "number%d = Constant <value = int64 {%d}> ()\n%s = Gather <axis = 0> (turned, number%d)\n", i, i, part[i], i);
    fprintf(to, "column = Transpose <perm = [0, 1, 3, 2]> (key)\nproduct = MatMul (query, column)\n"
                "scale = Constant <value = float {%.9g}> ()\n", 1 / sqrt((double)size));
    fprintf(to, "%s = Mul (product, scale)\n", a->causal ? "all" : "score");
    if (a->causal)
        fprintf(to, "square = Constant <value = int64[2] {%lld, %lld}> ()\n"
                    "never = ConstantOfShape <value = float[1] {-inf}> (square)\none = Constant <value = int64 {1}> ()\n"
                    "later = Trilu <upper = 1> (never, one)\nscore = Add (all, later)\n",
                rows, rows);
    fprintf(to, "share = Softmax <axis = -1> (score)\nmean = MatMul (share, worth)\n"
                "rows = Transpose <perm = [0, 2, 1, 3]> (mean)\n"
                "width = Constant <value = int64[3] {0, %lld, %lld}> ()\ny = Reshape (rows, width)", rows, width);
}

const struct sgrad_op sgrad_attention_op = {
    .name = "attention",
    .summary = "multi-head self-attention over a sample's rows, optionally causal, computed in blocks",
    .source = "T. Dao et al., FlashAttention: fast and memory-efficient exact attention with IO-awareness, 2022",
    .inputs = 1,
    .attrs_size = sizeof(struct sgrad_attention),
    .infer = infer,
    .describe = describe,
    .onnx = onnx,
    .forward = { { { .name = "attention forward", .kind = &sgrad_forward_kind, .cpu = forward,
                     .cuda = SGRAD_ON_CUDA(sgrad__attention_forward_cuda), .workspace = forward_workspace,
                     .gpu_workspace = no_workspace, .flops = forward_flops },
                   { SGRAD_IN(X, 0), SGRAD_OUT(Y, 0), SGRAD_OUT(SAVED, 0) } } },
    .inference = { { { .name = "attention inference", .kind = &sgrad_forward_kind, .cpu = inference,
                     .cuda = SGRAD_ON_CUDA(sgrad__attention_inference_cuda),
                       .workspace = forward_workspace, .gpu_workspace = no_workspace, .flops = forward_flops },
                     { SGRAD_IN(X, 0), SGRAD_OUT(Y, 0), SGRAD_OUT(SAVED, 0), SGRAD_INOUT(S, 0) } } },
    .backward = { { { .name = "attention backward", .kind = &sgrad_backward_kind, .cpu = backward,
                     .cuda = SGRAD_ON_CUDA(sgrad__attention_backward_cuda),
                      .workspace = backward_workspace, .gpu_workspace = backward_gpu_workspace, .flops = backward_flops },
                    { SGRAD_IN(X, 0), SGRAD_IN(Y, 0), SGRAD_IN(DY, 0), SGRAD_IN(SAVED, 0), SGRAD_OUT(DX, 0) } } },
    .tests = {
        { "one row, one head", { { 3, { 1, 1, 12 } } }, &(struct sgrad_attention){ .heads = 1, .causal = true } },
        { "2 heads of 5, causal", { { 3, { 2, 7, 30 } } }, &(struct sgrad_attention){ .heads = 2, .causal = true } },
        { "3 heads of 16", { { 3, { 2, 9, 144 } } }, &(struct sgrad_attention){ .heads = 3 } },
        { "two blocks, causal", { { 3, { 1, 67, 48 } } }, &(struct sgrad_attention){ .heads = 1, .causal = true } },
        { "three blocks", { { 3, { 1, 130, 24 } } }, &(struct sgrad_attention){ .heads = 2 } },
        { "2 heads of 64, causal", { { 3, { 1, 75, 384 } } }, &(struct sgrad_attention){ .heads = 2, .causal = true } },
        { "a head of 100", { { 3, { 1, 40, 300 } } }, &(struct sgrad_attention){ .heads = 1 } },
        { "a head of 136, causal", { { 3, { 1, 5, 408 } } }, &(struct sgrad_attention){ .heads = 1, .causal = true } },
    },
};
