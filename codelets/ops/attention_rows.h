/* attention_rows.h: the matrices of an attention head in memory, and attention row by row: for heads of more than 128 columns,
 * which do not fit the block algorithm of attention_cuda.cu, and for inference with a cache, one row per step. A warp
 * processes one query and iterates over the keys; in backward, for dk and dv, it processes one key and iterates over the
 * queries. Private to attention_cuda.cu. */
#ifndef SGRAD_CODELETS_OPS_ATTENTION_ROWS_H
#define SGRAD_CODELETS_OPS_ATTENTION_ROWS_H

#include <cmath>

#include "codelets/cuda/cuda.h"

struct sizes {
    int T, width, heads, size; /* rows of a sample; C; heads; C / heads */
    bool causal;
};

/* A head's matrix: element (t,c) is at[t * stride + c]. */
template <typename T> struct matrix {
    const T *at;
    int64_t stride;
};

/* The matrices of one head in x; NUMBER is its index among all N·heads. */
template <typename T> struct head {
    int64_t in, out; /* index of its first element in (N,T,3C), in (N,T,C) */
    struct matrix<T> q, k, v;
    __device__ head(const struct sizes &s, int64_t number, const T *x) {
        const int64_t first = number / s.heads * s.T * s.width, column = number % s.heads * s.size;
        in = 3 * first + column, out = first + column;
        q = { x + in, 3 * s.width }, k = { q.at + s.width, q.stride }, v = { k.at + s.width, q.stride };
    }
};

#define COLUMNS 16 /* maximum columns of a head per thread: SGRAD_ROW / 32 */

/* The columns of a row are distributed over the threads of a warp: each thread has columns 32 apart, the same in every row,
 * with index k in its array. load reads row T, multiplied by SCALE. times returns the dot product of row T and V. add_to adds
 * FACTOR times row T. */
template <typename T> static __device__ void load(struct matrix<T> m, int t, int size, float *v, float scale = 1) {
    for (int c = threadIdx.x, k = 0; c < size; c += 32, k++) v[k] = (float)m.at[t * m.stride + c] * scale;
}
template <typename T> static __device__ float times(struct matrix<T> m, int t, int size, const float *v) {
    float sum = 0;
    for (int c = threadIdx.x, k = 0; c < size; c += 32, k++) sum += (float)m.at[t * m.stride + c] * v[k];
    return sgrad__warp_sum(sum);
}
template <typename T> static __device__ void add_to(float *sum, struct matrix<T> m, int t, int size, float factor) {
    for (int c = threadIdx.x, k = 0; c < size; c += 32, k++) sum[k] += (float)m.at[t * m.stride + c] * factor;
}

/* y = Σ p v over keys and values 0 … COUNT - 1, where p is the softmax of the scores, the dot products of Q and the keys.
 * Returns log Σ exp(score). */
template <typename K, typename T>
static __device__ inline float attend(const float *q, struct matrix<K> keys, struct matrix<K> values, int count, int size, T *y) {
    float sum[COLUMNS] = {}, most = -INFINITY, total = 0;
    for (int j = 0; j < count; j++) {
        const float score = times(keys, j, size, q), before = most;
        most = score > most || score != score ? score : most;
        const float shrink = before == most ? 1 : expf(before - most), p = expf(score - most);
        total = total * shrink + p;
        for (float &e : sum) e *= shrink;
        add_to(sum, values, j, size, p);
    }
    for (int c = threadIdx.x, k = 0; c < size; c += 32, k++) y[c] = sum[k] / total;
    return most + logf(total);
}

/* Forward: x (N,T,3C), y (N,T,C), keep (N,heads,T): log Σ exp(score) of each row, saved for backward. */
template <typename T> static __global__ void forward_rows(uint32_t rows, struct sizes s, const T *x, T *y, float *keep) {
    const uint32_t row = sgrad__warp();
    if (row >= rows) return;
    const struct head<T> h(s, row / s.T, x);
    const int t = row % s.T;
    float q[COLUMNS];
    load(h.q, t, s.size, q, 1 / sqrtf((float)s.size));
    const float log_sum = attend(q, h.k, h.v, s.causal ? t + 1 : s.T, s.size, y + h.out + (int64_t)t * s.width);
    if (threadIdx.x == 0) keep[row] = log_sum;
}

/* Backward, dq in dx (N,T,3C), from x (N,T,3C), y, dy (N,T,C), keep (N,heads,T). */
template <typename T>
static __global__ void backward_query_rows(uint32_t rows, struct sizes s, const T *x, const T *y, const T *dy, const float *keep,
                                           T *dx, bool add) {
    const uint32_t row = sgrad__warp();
    if (row >= rows) return;
    const struct head<T> h(s, row / s.T, x);
    const int t = row % s.T;
    const struct matrix<T> of_y = { y + h.out, s.width }, of_dy = { dy + h.out, s.width };
    const float scale = 1 / sqrtf((float)s.size);
    float q[COLUMNS], d[COLUMNS], dq[COLUMNS] = {};
    load(h.q, t, s.size, q, scale);
    load(of_dy, t, s.size, d);
    const float own = times(of_y, t, s.size, d);
    for (int j = 0; j < (s.causal ? t + 1 : s.T); j++) {
        const float p = expf(times(h.k, j, s.size, q) - keep[row]);
        add_to(dq, h.k, j, s.size, p * (times(h.v, j, s.size, d) - own));
    }
    dx += h.in + (int64_t)t * 3 * s.width;
    for (int c = threadIdx.x, k = 0; c < s.size; c += 32, k++) dx[c] = (add ? (float)dx[c] : 0) + dq[k] * scale;
}

/* Backward, dk and dv in dx, from the same operands. */
template <typename T>
static __global__ void backward_key_rows(uint32_t rows, struct sizes s, const T *x, const T *y, const T *dy, const float *keep,
                                         T *dx, bool add) {
    const uint32_t row = sgrad__warp();
    if (row >= rows) return;
    const struct head<T> h(s, row / s.T, x);
    const int t = row % s.T;
    const struct matrix<T> of_y = { y + h.out, s.width }, of_dy = { dy + h.out, s.width };
    const float scale = 1 / sqrtf((float)s.size);
    float key[COLUMNS], value[COLUMNS], d[COLUMNS], dk[COLUMNS] = {}, dv[COLUMNS] = {};
    load(h.k, t, s.size, key, scale);
    load(h.v, t, s.size, value);
    for (int i = s.causal ? t : 0; i < s.T; i++) {
        load(of_dy, i, s.size, d);
        const float p = expf(times(h.q, i, s.size, key) - keep[row - t + i]);
        add_to(dv, of_dy, i, s.size, p);
        add_to(dk, h.q, i, s.size, p * (times(of_dy, i, s.size, value) - times(of_y, i, s.size, d)) * scale);
    }
    dx += h.in + (int64_t)t * 3 * s.width + s.width;
    for (int c = threadIdx.x, k = 0; c < s.size; c += 32, k++) {
        dx[c] = (add ? (float)dx[c] : 0) + dk[k];
        dx[s.width + c] = (add ? (float)dx[s.width + c] : 0) + dv[k];
    }
}

/* Writes the key and the value in x (1,1,3C) to the cache (2,positions,C), at the position of the step: its number - 1. */
template <typename T>
static __global__ void remember(uint32_t n, const struct sgrad_step *step, int places, const T *x, float *cache) {
    const uint32_t i = sgrad__thread();
    if (i >= n) return;
    const int place = (int)step->number - 1;
    cache[(int64_t)place * n + i] = (float)x[n + i];
    cache[((int64_t)places + place) * n + i] = (float)x[2 * n + i];
}

/* y (1,1,C): attention of the query in x (1,1,3C) to the positions of the cache up to that of the step. */
template <typename T>
static __global__ void attend_to_cache(uint32_t heads, struct sizes s, const struct sgrad_step *step, int places, const T *x,
                                       const float *cache, T *y) {
    const uint32_t number = sgrad__warp();
    if (number >= heads) return;
    const struct matrix<T> queries = { x + number *s.size, 0 };
    const struct matrix<float> keys = { cache + number *s.size, s.width };
    const struct matrix<float> values = { keys.at + (int64_t)places *s.width, s.width };
    float q[COLUMNS];
    load(queries, 0, s.size, q, 1 / sqrtf((float)s.size));
    attend(q, keys, values, (int)step->number, s.size, y + number * s.size);
}

#endif
