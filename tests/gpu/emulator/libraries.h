/* libraries.h: functions that the emulated libraries share: arrays of both types as floats, handles. */
#ifndef SGRAD_EMULATOR_LIBRARIES_H
#define SGRAD_EMULATOR_LIBRARIES_H

#include "tests/gpu/emulator/emulator.h"

#include <cuda_bf16.h>
#include <cudnn.h>

struct array {
    void *data;
    bool half; /* bf16 */
    size_t count;
    size_t bytes() const { return count * (half ? sizeof(__nv_bfloat16) : sizeof(float)); }
    float at(size_t i) const { return half ? (float)((const __nv_bfloat16 *)data)[i] : ((const float *)data)[i]; }
    void set(size_t i, float value) const {
        half ? (void)(((__nv_bfloat16 *)data)[i] = value) : (void)(((float *)data)[i] = value);
    }
};

/* Tensor cores would leave 10 bits of the fraction: here it is 4. */
static inline float to_tf32(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    bits &= ~0x7ffffu;
    memcpy(&value, &bits, sizeof bits);
    return value;
}

/* Of the device that is current when they are made, and has to be when they are used, as its stream's has to be. */
struct handle {
    int device;
    cudaStream_t stream = NULL;
    handle();
    ~handle();
    void exists() const; /* ends the program where it was destroyed, or is not made at all, or another device is current */
    void check() const;  /* the same, and of its stream */
};

struct cudnnContext : handle {};

/* A convolution of samples (H,W,C) with weights (K,R,S,C/groups) to (P,Q,K), of floats. */
struct convolution_of_floats {
    int N, H, W, C, K, R, S, P, Q, groups, stride[2], padding[2], dilation[2];
    void forward(const float *x, const float *w, float *y) const;
    void backward_data(const float *dy, const float *w, float *dx) const;
    void backward_filter(const float *x, const float *dy, unsigned turn, float *dw) const; /* sums from sample number TURN on */
};

#endif
