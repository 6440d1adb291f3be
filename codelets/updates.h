/* updates.h: the kernels of optimizers: how one parameter is updated by its gradient.
 *
 * ATTRS is the parameter's struct sgrad_hyper. Operands: 0 parameter F32 (RW), 1 gradient F32 (R), 2 Σ g² over all parameters
 * F64[1] (R, absent without clipping), 3… the optimizer's states (RW), zeros at first. */
#ifndef SGRAD_CODELETS_UPDATES_H
#define SGRAD_CODELETS_UPDATES_H

#include "codelets/codelets.h"

#include <math.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Declares the kernel of codelets/NAME.c, sgrad_NAME_kernel: an optimizer's file (graphs/programs/optimizers/) says so itself. */
#define SGRAD_UPDATE_KERNEL(name) extern const struct sgrad_kernel sgrad_##name##_kernel

/* The learning rate of the step, for this parameter: on a GPU a device's code asks for it. */
static inline SGRAD_BOTH float sgrad_rate_of(const struct sgrad_hyper *hyper, const struct sgrad_step *step) {
    return hyper->rate != 0 ? step->rate * hyper->rate : step->rate;
}
static inline float sgrad_rate(const struct sgrad_args *args) {
    return sgrad_rate_of((const struct sgrad_hyper *)args->attrs, args->step);
}

/* What gradients are multiplied by so that their norm is at most HYPER's clip_norm, from the sum of their squares, operand 2, or
 * NULL. */
float sgrad_clip_factor(const struct sgrad_hyper *hyper, const double *squares);

/* The moving average of weights, after a step (ema.c). ATTRS is a pointer to its decay, a double. Operands: 0 weights F32 (R),
 * 1 their average (RW). */
SGRAD_UPDATE_KERNEL(ema);
/* How far it goes towards the weights of this step: from 0 to 1. */
static inline SGRAD_BOTH float sgrad_ema_share(double decay, const struct sgrad_step *step) {
    const double before = step->number - 1., share = (1 + before) / (10 + before);
    return before == 0 ? 1 : (float)(1 - (share < decay ? share : decay));
}

/* Lookahead (lookahead.c). ATTRS is this. Operands: 0 weights F32 (RW), 1 slow weights (RW). */
struct sgrad_lookahead {
    double decay, power;    /* how much of themselves the slow weights keep: decay·(step/steps)^power; decay below 0: all */
    long every, steps;      /* of the run */
};
SGRAD_UPDATE_KERNEL(lookahead);
static inline SGRAD_BOTH float sgrad_lookahead_share(const struct sgrad_lookahead *is, const struct sgrad_step *step) {
    if (is->decay < 0) return 0;
    return (float)(1 - is->decay * pow((double)step->number / (double)is->steps, is->power));
}

#ifdef __cplusplus
}
#endif
#endif
