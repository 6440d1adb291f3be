/* bf16.c: rows of bf16 from floats, and back, by the best instructions that kernels may use here. */
#include "config.h"
#include "codelets/level.h"

void sgrad_row_narrow(const float *x, int64_t count, uint16_t *to, bool add) {
    if (sgrad__level()) sgrad__level()->narrow(x, count, to, add);
    else
        for (int64_t i = 0; i < count; i++) to[i] = sgrad_f32_to_bf16(add ? x[i] + sgrad_bf16_to_f32(to[i]) : x[i]);
}

void sgrad__row_widen(const uint16_t *x, int64_t count, float *to) {
    if (sgrad__level()) sgrad__level()->widen(x, count, to);
    else
        for (int64_t i = 0; i < count; i++) to[i] = sgrad_bf16_to_f32(x[i]);
}
