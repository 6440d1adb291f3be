/* bf16.c: converts rows of floats to bf16 and back, with the best instructions that kernels may use on this processor. */
#include "config.h"
#include "codelets/cpu/isa.h"

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
