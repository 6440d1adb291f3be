/* libraries.h: what the emulated libraries share: arrays of either type as floats, handles. */
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

/* Of the device that is current when they are made, and has to be when they are used. */
struct handle {
    int device;
    cudaStream_t stream = NULL;
    handle() { cudaGetDevice(&device); }
    void check() const {
        int current;
        cudaGetDevice(&current);
        if (current != device) emulator::fail("a handle of device %d is used while device %d is current", device, current);
    }
};

struct cudnnContext : handle {};

#endif
