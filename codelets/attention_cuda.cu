/* attention_cuda.cu: attention.c on CUDA devices. A warp looks after a query, and passes along its keys with a running maximum;
 * its threads share a head's columns. Backward, a warp looks after a query for dq, and after a key for dk and dv, so that nobody
 * adds to what another writes. Scores are never written.
 *
 * Limits: no tensor cores. */
#include <cmath>

#include "codelets/cuda.h"
#include "codelets/ops/attention.h"

#define COLUMNS 16 /* of a head, at most, that a thread has: SGRAD_ROW / 32 */

/* A head's matrix: element (t,c) is at[t * stride + c]. What threads have of a row they have of all: columns 32 apart. */
template <typename T> struct matrix {
    const T *at;
    int64_t stride;
    __device__ void load(int t, int size, float *v, float scale = 1) const {
        for (int c = threadIdx.x, k = 0; c < size; c += 32, k++) v[k] = (float)at[t * stride + c] * scale;
    }
    __device__ float times(int t, int size, const float *v) const {
        float sum = 0;
        for (int c = threadIdx.x, k = 0; c < size; c += 32, k++) sum += (float)at[t * stride + c] * v[k];
        return sgrad__warp_sum(sum);
    }
    __device__ void add_to(float *sum, int t, int size, float factor) const {
        for (int c = threadIdx.x, k = 0; c < size; c += 32, k++) sum[k] += (float)at[t * stride + c] * factor;
    }
};

struct sizes {
    int T, width, heads, size; /* rows of a sample; C; heads; C / heads */
    bool causal;
};

/* Of keys and values 0 … COUNT - 1: y = Σ p v. Returns log Σ exp. */
template <typename K, typename T>
static __device__ inline float attend(const float *q, struct matrix<K> keys, struct matrix<K> values, int count, int size, T *y) {
    float sum[COLUMNS] = {}, most = -INFINITY, total = 0;
    for (int j = 0; j < count; j++) {
        const float score = keys.times(j, size, q), before = most;
        most = score > most || score != score ? score : most;
        const float shrink = before == most ? 1 : expf(before - most), p = expf(score - most);
        total = total * shrink + p;
        for (float &e : sum) e *= shrink;
        values.add_to(sum, j, size, p);
    }
    for (int c = threadIdx.x, k = 0; c < size; c += 32, k++) y[c] = sum[k] / total;
    return most + logf(total);
}

/* Row ROW of all N·heads·T: its place in the sample, and where its head's matrices begin. */
template <typename T> struct head {
    int t;
    int64_t in, out; /* of (N,T,3C) and of (N,T,C) */
    struct matrix<T> q, k, v;
    __device__ head(const struct sizes &s, uint32_t row, const T *x) {
        const int64_t number = row / s.T, first = number / s.heads * s.T * s.width, column = number % s.heads * s.size;
        t = (int)(row % s.T), in = 3 * first + column, out = first + column;
        q = { x + in, 3 * s.width }, k = { q.at + s.width, q.stride }, v = { k.at + s.width, q.stride };
    }
};

/* x (N,T,3C), y (N,T,C), keep (N,heads,T) */
template <typename T> static __global__ void forward(uint32_t rows, struct sizes s, const T *x, T *y, float *keep) {
    const uint32_t row = sgrad__warp();
    if (row >= rows) return;
    const struct head<T> h(s, row, x);
    float q[COLUMNS];
    h.q.load(h.t, s.size, q, 1 / sqrtf((float)s.size));
    const float log_sum = attend(q, h.k, h.v, s.causal ? h.t + 1 : s.T, s.size, y + h.out + (int64_t)h.t * s.width);
    if (threadIdx.x == 0) keep[row] = log_sum;
}

/* dq of dx (N,T,3C), from x (N,T,3C), y, dy (N,T,C), keep (N,heads,T) */
template <typename T>
static __global__ void backward_queries(uint32_t rows, struct sizes s, const T *x, const T *y, const T *dy, const float *keep,
                                        T *dx, bool add) {
    const uint32_t row = sgrad__warp();
    if (row >= rows) return;
    const struct head<T> h(s, row, x);
    const struct matrix<T> of_y = { y + h.out, s.width }, of_dy = { dy + h.out, s.width };
    const float scale = 1 / sqrtf((float)s.size);
    float q[COLUMNS], d[COLUMNS], dq[COLUMNS] = {};
    h.q.load(h.t, s.size, q, scale);
    of_dy.load(h.t, s.size, d);
    const float own = of_y.times(h.t, s.size, d);
    for (int j = 0; j < (s.causal ? h.t + 1 : s.T); j++) {
        const float p = expf(h.k.times(j, s.size, q) - keep[row]);
        h.k.add_to(dq, j, s.size, p * (h.v.times(j, s.size, d) - own));
    }
    dx += h.in + (int64_t)h.t * 3 * s.width;
    for (int c = threadIdx.x, k = 0; c < s.size; c += 32, k++) dx[c] = (add ? (float)dx[c] : 0) + dq[k] * scale;
}

/* dk and dv of dx */
template <typename T>
static __global__ void backward_keys(uint32_t rows, struct sizes s, const T *x, const T *y, const T *dy, const float *keep, T *dx,
                                     bool add) {
    const uint32_t row = sgrad__warp();
    if (row >= rows) return;
    const struct head<T> h(s, row, x);
    const struct matrix<T> of_y = { y + h.out, s.width }, of_dy = { dy + h.out, s.width };
    const float scale = 1 / sqrtf((float)s.size);
    float key[COLUMNS], value[COLUMNS], d[COLUMNS], dk[COLUMNS] = {}, dv[COLUMNS] = {};
    h.k.load(h.t, s.size, key, scale);
    h.v.load(h.t, s.size, value);
    for (int i = s.causal ? h.t : 0; i < s.T; i++) {
        of_dy.load(i, s.size, d);
        const float p = expf(h.q.times(i, s.size, key) - keep[row - h.t + i]);
        of_dy.add_to(dv, i, s.size, p);
        h.q.add_to(dk, i, s.size, p * (of_dy.times(i, s.size, value) - of_y.times(i, s.size, d)) * scale);
    }
    dx += h.in + (int64_t)h.t * 3 * s.width + s.width;
    for (int c = threadIdx.x, k = 0; c < s.size; c += 32, k++) {
        dx[c] = (add ? (float)dx[c] : 0) + dk[k];
        dx[s.width + c] = (add ? (float)dx[s.width + c] : 0) + dv[k];
    }
}

/* ---- a row a step ------------------------------------------------------------------------------------------------ */

/* x (1,1,3C), cache (2,places,C): the keys and values of the step's place */
template <typename T>
static __global__ void remember(uint32_t n, const struct sgrad_step *step, int places, const T *x, float *cache) {
    const uint32_t i = sgrad__thread();
    if (i >= n) return;
    const int place = (int)step->number - 1;
    cache[(int64_t)place * n + i] = (float)x[n + i];
    cache[((int64_t)places + place) * n + i] = (float)x[2 * n + i];
}

template <typename T>
static __global__ void attend_to_cache(uint32_t heads, struct sizes s, const struct sgrad_step *step, int places, const T *x,
                                       const float *cache, T *y) {
    const uint32_t number = sgrad__warp();
    if (number >= heads) return;
    const struct matrix<T> queries = { x + number * s.size, 0 };
    const struct matrix<float> keys = { cache + number * s.size, s.width };
    const struct matrix<float> values = { keys.at + (int64_t)places * s.width, s.width };
    float q[COLUMNS];
    queries.load(0, s.size, q, 1 / sqrtf((float)s.size));
    attend(q, keys, values, (int)step->number, s.size, y + number * s.size);
}

/* ---- tasks ------------------------------------------------------------------------------------------------------- */

static struct sizes sizes_of(const struct sgrad_args *a) {
    const struct sgrad_attention *attrs = (const struct sgrad_attention *)a->attrs;
    const int64_t *x = a->view[0].shape.dim;
    const int width = (int)(x[2] / 3);
    return { (int)x[1], width, attrs->heads, width / attrs->heads, attrs->causal };
}

static int64_t rows_of(const struct sgrad_args *a, const struct sizes &s) { return a->view[0].shape.dim[0] * s.heads * s.T; }

/* x (N,T,3C), y (N,T,C), keep (N,heads,T) */
extern "C" void sgrad__attention_forward_cuda(const struct sgrad_args *a) {
    const struct sizes s = sizes_of(a);
    sgrad__with_type(a->view[0].dtype, [=](auto type) {
        sgrad__launch_warps(forward<decltype(type)>, rows_of(a, s), s, a->data[0], a->data[1], a->data[2]);
    });
}

/* x (N,T,3C), y (N,T,C), keep (N,heads,T), cache (2,places,C) or absent */
extern "C" void sgrad__attention_inference_cuda(const struct sgrad_args *a) {
    if (!a->data[3]) return sgrad__attention_forward_cuda(a);
    const struct sizes s = sizes_of(a);
    const int places = (int)a->view[3].shape.dim[1];
    sgrad__with_type(a->view[0].dtype, [=](auto type) {
        using T = decltype(type);
        sgrad__launch(remember<T>, s.width, a->step, places, a->data[0], a->data[3]);
        sgrad__launch_warps(attend_to_cache<T>, s.heads, s, a->step, places, a->data[0], a->data[3], a->data[1]);
    });
}

/* x (N,T,3C), y, dy (N,T,C), keep (N,heads,T), dx (N,T,3C) */
extern "C" void sgrad__attention_backward_cuda(const struct sgrad_args *a) {
    const struct sizes s = sizes_of(a);
    const bool add = sgrad_adds(a, 4);
    sgrad__with_type(a->view[0].dtype, [=](auto type) {
        using T = decltype(type);
        sgrad__launch_warps(backward_queries<T>, rows_of(a, s), s, a->data[0], a->data[1], a->data[2], a->data[3], a->data[4],
                            add);
        sgrad__launch_warps(backward_keys<T>, rows_of(a, s), s, a->data[0], a->data[1], a->data[2], a->data[3], a->data[4], add);
    });
}
