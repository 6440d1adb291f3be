/* direct.h: kernels of convolutions without cuDNN, with one thread for each element of the output: y, dx or dweight. Simple
 * and slow. Private to convolution.h and the files that include it. */
#ifndef SGRAD_CODELETS_CUDA_DIRECT_H
#define SGRAD_CODELETS_CUDA_DIRECT_H

#include "codelets/cuda/cuda.h"

/* Sizes of a convolution; the letters are those of codelets.h. depth_padding: on either side along D. */
struct shape {
    int N, D, H, W, C, K, T, R, S, O, P, Q, stride, padding, dilation, groups, depth_padding;     /* of images D, T and O are 1 */
};

/* input_of returns the coordinate of x that output P reads through tap R. output_of returns the output that reads coordinate H
 * through tap R, or -1. Both may be outside of the image (inside). */
static __device__ inline int input_of(const struct shape &s, int p, int r) { return p * s.stride + r * s.dilation - s.padding; }
static __device__ inline int output_of(const struct shape &s, int h, int r) {
    const int start = h + s.padding - r * s.dilation;
    return start >= 0 && start % s.stride == 0 ? start / s.stride : -1;
}
static __device__ inline bool inside(int h, int w, int H, int W) { return h >= 0 && h < H && w >= 0 && w < W; }

/* y = x * weight, or y += x * weight (ADD). */
template <typename T, typename W>
static __global__ void forward(uint32_t elements, struct shape s, const T *x, const W *weight, T *y, bool add) {
    const uint32_t i = sgrad__thread();
    if (i >= elements) return;
    const struct sgrad__pixel at = sgrad__pixel_of(i, s.P, s.Q, s.K);
    const int C = s.C / s.groups, first = at.c / (s.K / s.groups) * C, area = s.R * s.S;
    float sum = 0;
    for (int tap = 0; tap < s.T * area; tap++) {
        const int d = at.n % s.O + tap / area - s.depth_padding, n = at.n / s.O * s.D + d;
        const int h = input_of(s, at.h, tap % area / s.S), w = input_of(s, at.w, tap % s.S);
        if (d < 0 || d >= s.D || !inside(h, w, s.H, s.W)) continue;
        const W *factor = weight + (at.c * s.T * area + tap) * C;
        for (int c = 0; c < C; c++)
            sum += (float)x[sgrad__index_of(n, h, w, first + c, s.H, s.W, s.C)] * (float)factor[c];
    }
    y[i] = (add ? (float)y[i] : 0) + sum;
}

/* The gradient of x, dx, from dy and the weight; written, or added to dx (ADD). */
template <typename T, typename W>
static __global__ void backward_data(uint32_t elements, struct shape s, const T *dy, const W *weight, T *dx, bool add) {
    const uint32_t i = sgrad__thread();
    if (i >= elements) return;
    const struct sgrad__pixel at = sgrad__pixel_of(i, s.H, s.W, s.C);
    const int C = s.C / s.groups, K = s.K / s.groups, first = at.c / C * K, area = s.R * s.S;
    float sum = add ? (float)dx[i] : 0;
    for (int tap = 0; tap < s.T * area; tap++) {
        const int o = at.n % s.D - tap / area + s.depth_padding, n = at.n / s.D * s.O + o;
        const int p = output_of(s, at.h, tap % area / s.S), q = output_of(s, at.w, tap % s.S);
        if (o < 0 || o >= s.O || !inside(p, q, s.P, s.Q)) continue;
        for (int k = first; k < first + K; k++)
            sum += (float)dy[sgrad__index_of(n, p, q, k, s.P, s.Q, s.K)] * (float)weight[(k * s.T * area + tap) * C + at.c % C];
    }
    dx[i] = sum;
}

/* The gradient of the weight, from x and dy. Sums are in double. */
template <typename T>
static __global__ void backward_weight(uint32_t n, struct shape s, const T *x, const T *dy, float *dweight) {
    const uint32_t i = sgrad__thread();
    if (i >= n) return;
    const int C = s.C / s.groups, area = s.R * s.S, tap = i / C % (s.T * area), k = i / C / (s.T * area);
    const int c = k / (s.K / s.groups) * C + i % C;
    double sum = 0;
    for (int pixel = 0; pixel < s.N * s.O * s.P * s.Q; pixel++) {
        const struct sgrad__pixel at = sgrad__pixel_of(pixel, s.P, s.Q, 1);
        const int d = at.n % s.O + tap / area - s.depth_padding, image = at.n / s.O * s.D + d;
        const int h = input_of(s, at.h, tap % area / s.S), w = input_of(s, at.w, tap % s.S);
        if (d >= 0 && d < s.D && inside(h, w, s.H, s.W))
            sum += (float)x[sgrad__index_of(image, h, w, c, s.H, s.W, s.C)] * (float)dy[(int64_t)pixel * s.K + k];
    }
    dweight[i] = (float)sum;
}

#endif
