/* frequencies.h: the angular frequencies of rotary positions: rotary.c. Private to rotary.c and rotary_cuda.cu. */
#ifndef SGRAD_CODELETS_OPS_FREQUENCIES_H
#define SGRAD_CODELETS_OPS_FREQUENCIES_H

#include <math.h>

#include "codelets/ops/rotary.h"

/* Returns the frequency of pair I of a head of SIZE features: the listed one, or base^(-2i/size), scaled as the attributes
 * specify. */
static inline float sgrad__frequency(const struct sgrad_rotary *attrs, int size, int i) {
    const double two_pi = 6.283185307179586;
    if (attrs->listed) return attrs->frequency[i];
    const float f = (float)(1 / pow((double)attrs->base, (double)(2 * i) / size));
    if (attrs->original == 0) return f / attrs->factor;
    const float turns = (float)attrs->original * f / (float)two_pi;
    if (turns <= attrs->low) return f / attrs->factor;
    if (turns >= attrs->high) return f;
    const float share = (turns - attrs->low) / (attrs->high - attrs->low);
    return (1 - share) * f / attrs->factor + share * f;
}

#endif
