/* attention_rows.h: the matrices of an attention head in memory, and attention row by row: for heads of more than 128 columns,
 * which do not fit the block algorithm of attention_cuda.cu, and for inference with a cache, one row per step. A warp
 * processes one query and iterates over the keys; in backward, for dk and dv, it processes one key and iterates over the
 * queries. Private to attention_cuda.cu. */
#ifndef SGRAD_CODELETS_OPS_ATTENTION_ROWS_H
#define SGRAD_CODELETS_OPS_ATTENTION_ROWS_H

#include <cmath>

#include "codelets/cuda/cuda.h"

struct sizes {
    int T, width, heads, kv, size; /* rows of a sample; C; heads of queries, of keys; D */
    bool causal;
    const int32_t *start; /* (N,T): first row of the document of each row; NULL: a sample is one document */

    /* Returns start of sample N. */
    __device__ const int32_t *start_of(int64_t n) const { return start ? start + n * T : nullptr; }
};

/* Returns the first key that query ROW attends to. START: those of the sample, or NULL. */
static __device__ inline int first_key(const int32_t *start, int row) { return start ? start[row] : 0; }

/* A head's matrix: element (t,c) is at[t * stride + c]. */
template <typename T> struct matrix {
    const T *at;
    int64_t stride;
};

/* The rows of q, k or v of all heads: element (n,t,head,c) is at[(n·T + t) * stride + head * D + c]. SLOPE has the gradient in
 * the same manner, or is NULL; ADD: it is added to. */
template <typename T> struct operand {
    const T *at;
    T *slope;
    int64_t stride;
    bool add;
};
template <typename T> struct operands {
    struct operand<T> q, k, v;
};

/* The matrices of one head; NUMBER is its index among all N·heads. */
template <typename T> struct head {
    int64_t of_q, of_k, of_v, out; /* index of its first element in q, k, v, in (N,T,C) */
    struct matrix<T> q, k, v;
    const int32_t *start; /* of the sample's rows, or NULL */
    __device__ head(const struct sizes &s, int64_t number, const struct operands<T> &in) {
        const int64_t first = number / s.heads * s.T, column = number % s.heads * s.size;
        const int64_t shared = number % s.heads / (s.heads / s.kv) * s.size;
        of_q = first * in.q.stride + column, of_k = first * in.k.stride + shared, of_v = first * in.v.stride + shared;
        out = first * s.width + column, start = s.start_of(number / s.heads);
        q = { in.q.at + of_q, in.q.stride }, k = { in.k.at + of_k, in.k.stride }, v = { in.v.at + of_v, in.v.stride };
    }
};

/* Returns the number of the first head of queries that uses head SHARED of all N·kv heads of keys. */
static __device__ inline int64_t first_head(const struct sizes &s, int64_t shared) { return shared * (s.heads / s.kv); }

#define COLUMNS 16 /* maximum columns of a head per thread: SGRAD_ROW / 32 */

/* Calls f(c, k) for the columns C of a row that the thread has: C = 32·k + lane, the same in every row. The loop is unrolled,
 * so that arrays with the index K are in registers. */
template <typename F> static __device__ inline void each_column(int size, F f) {
    _Pragma("unroll") for (int k = 0; k < COLUMNS; k++) {
        const int c = threadIdx.x + 32 * k;
        if (c < size) f(c, k);
    }
}

/* load reads row T, multiplied by SCALE. times returns the dot product of row T and V. add_to adds FACTOR times row T. */
template <typename T>
static __device__ inline void load(struct matrix<T> m, int t, int size, float (&v)[COLUMNS], float scale = 1) {
    each_column(size, [&](int c, int k) { v[k] = (float)m.at[t * m.stride + c] * scale; });
}
template <typename T> static __device__ inline float times(struct matrix<T> m, int t, int size, const float (&v)[COLUMNS]) {
    float sum = 0;
    each_column(size, [&](int c, int k) { sum += (float)m.at[t * m.stride + c] * v[k]; });
    return sgrad__warp_sum(sum);
}
template <typename T>
static __device__ inline void add_to(float (&sum)[COLUMNS], struct matrix<T> m, int t, int size, float factor) {
    each_column(size, [&](int c, int k) { sum[k] += (float)m.at[t * m.stride + c] * factor; });
}

/* Writes V, times FACTOR, to row T of a head's gradient, which begins at element FIRST, or adds it. */
template <typename T>
static __device__ inline void store(const float (&v)[COLUMNS], float factor, const struct operand<T> &to, int64_t first, int t,
                                    int size) {
    T *x = to.slope + first + t * to.stride;
    if (to.slope) each_column(size, [&](int c, int k) { x[c] = (to.add ? (float)x[c] : 0) + v[k] * factor; });
}

/* y = Σ p v over keys and values 0 … COUNT - 1, where p is the softmax of the scores, the dot products of Q and the keys.
 * Returns log Σ exp(score). */
template <typename K, typename T>
static __device__ inline float attend(const float (&q)[COLUMNS], struct matrix<K> keys, struct matrix<K> values, int count,
                                      int size, T *y) {
    float sum[COLUMNS] = {}, most = -INFINITY, total = 0;
    for (int j = 0; j < count; j++) {
        const float score = times(keys, j, size, q), before = most;
        most = score > most || score != score ? score : most;
        const float shrink = before == most ? 1 : expf(before - most), p = expf(score - most);
        total = total * shrink + p;
        _Pragma("unroll") for (int k = 0; k < COLUMNS; k++) sum[k] *= shrink;
        add_to(sum, values, j, size, p);
    }
    each_column(size, [&](int c, int k) { y[c] = sum[k] / total; });
    return most + logf(total);
}

/* Forward: q, k, v, y (N,T,C), keep (N,heads,T): log Σ exp(score) of each row, saved for backward. */
template <typename T>
static __global__ void forward_rows(uint32_t rows, struct sizes s, struct operands<T> in, T *y, float *keep) {
    const uint32_t row = sgrad__warp();
    if (row >= rows) return;
    const struct head<T> h(s, row / s.T, in);
    const int t = row % s.T;
    float q[COLUMNS] = {};
    load(h.q, t, s.size, q, 1 / sqrtf((float)s.size));
    const int from = first_key(h.start, t);
    const struct matrix<T> keys = { h.k.at + from * h.k.stride, h.k.stride }, values = { h.v.at + from * h.v.stride, h.v.stride };
    const float log_sum = attend(q, keys, values, (s.causal ? t + 1 : s.T) - from, s.size, y + h.out + (int64_t)t * s.width);
    if (threadIdx.x == 0) keep[row] = log_sum;
}

/* Backward, dq, from q, k, v, y, dy (N,T,C), keep (N,heads,T). */
template <typename T>
static __global__ void backward_query_rows(uint32_t rows, struct sizes s, struct operands<T> in, const T *y, const T *dy,
                                           const float *keep) {
    const uint32_t row = sgrad__warp();
    if (row >= rows) return;
    const struct head<T> h(s, row / s.T, in);
    const int t = row % s.T;
    const struct matrix<T> of_y = { y + h.out, s.width }, of_dy = { dy + h.out, s.width };
    const float scale = 1 / sqrtf((float)s.size);
    float q[COLUMNS] = {}, d[COLUMNS] = {}, dq[COLUMNS] = {};
    load(h.q, t, s.size, q, scale);
    load(of_dy, t, s.size, d);
    const float own = times(of_y, t, s.size, d);
    for (int j = first_key(h.start, t); j < (s.causal ? t + 1 : s.T); j++) {
        const float p = expf(times(h.k, j, s.size, q) - keep[row]);
        add_to(dq, h.k, j, s.size, p * (times(h.v, j, s.size, d) - own));
    }
    store(dq, scale, in.q, h.of_q, t, s.size);
}

/* Backward, dk and dv, from the same operands; ROWS are those of the N·kv heads of keys. */
template <typename T>
static __global__ void backward_key_rows(uint32_t rows, struct sizes s, struct operands<T> in, const T *y, const T *dy,
                                         const float *keep) {
    const uint32_t row = sgrad__warp();
    if (row >= rows) return;
    const int64_t number = first_head(s, row / s.T);
    const struct head<T> shared(s, number, in);
    const int t = row % s.T;
    const float scale = 1 / sqrtf((float)s.size);
    float key[COLUMNS] = {}, value[COLUMNS] = {}, d[COLUMNS] = {}, dk[COLUMNS] = {}, dv[COLUMNS] = {};
    load(shared.k, t, s.size, key, scale);
    load(shared.v, t, s.size, value);
    for (int g = 0; g < s.heads / s.kv; g++) {
        const struct head<T> h(s, number + g, in);
        const struct matrix<T> of_y = { y + h.out, s.width }, of_dy = { dy + h.out, s.width };
        for (int i = s.causal ? t : 0; i < s.T && first_key(h.start, i) <= t; i++) {
            load(of_dy, i, s.size, d);
            const float p = expf(times(h.q, i, s.size, key) - keep[(number + g) * s.T + i]);
            add_to(dv, of_dy, i, s.size, p);
            add_to(dk, h.q, i, s.size, p * (times(of_dy, i, s.size, value) - times(of_y, i, s.size, d)) * scale);
        }
    }
    store(dk, 1, in.k, shared.of_k, t, s.size);
    store(dv, 1, in.v, shared.of_v, t, s.size);
}

/* Writes keys and values of one row, of WIDTH numbers each, to the cache (2,positions,width), at the position of the step: its
 * number - 1. */
template <typename T>
static __global__ void remember(uint32_t width, const struct sgrad_step *step, int places, struct operands<T> in, float *cache) {
    const uint32_t i = sgrad__thread();
    if (i >= width) return;
    const int place = (int)step->number - 1;
    cache[(int64_t)place * width + i] = (float)in.k.at[i];
    cache[((int64_t)places + place) * width + i] = (float)in.v.at[i];
}

/* y (1,1,C): attention of the queries of one row to the positions of the cache up to that of the step. */
template <typename T>
static __global__ void attend_to_cache(uint32_t heads, struct sizes s, const struct sgrad_step *step, int places,
                                       struct operands<T> in, const float *cache, T *y) {
    const uint32_t number = sgrad__warp();
    if (number >= heads) return;
    const int64_t width = s.kv * s.size, column = number / (s.heads / s.kv) * s.size;
    const struct matrix<T> queries = { in.q.at + number *s.size, 0 };
    const struct matrix<float> keys = { cache + column, width };
    const struct matrix<float> values = { keys.at + (int64_t)places *width, width };
    float q[COLUMNS] = {};
    load(queries, 0, s.size, q, 1 / sqrtf((float)s.size));
    attend(q, keys, values, (int)step->number, s.size, y + number * s.size);
}

#endif
