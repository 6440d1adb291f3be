/* updates.h: the kernels of optimizers; each updates one parameter from its gradient.
 *
 * Attributes: the parameter's struct sgrad_hyper. Operands: 0 parameter F32 (RW); 1 gradient F32 (R); 2 Σ g² over all parameters
 * F64[1] (R, absent without clipping; of kfac it is Σ V·∇ instead, see kfac.c); 3… the optimizer's states (RW), which start as
 * zeros. */
#ifndef SGRAD_CODELETS_UPDATES_H
#define SGRAD_CODELETS_UPDATES_H

#include "codelets/codelets.h"

#include <math.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Declares sgrad_NAME_kernel, the kernel of codelets/optimizers/NAME.c. The file of each optimizer (graphs/compiler/optimizers/)
 * contains this declaration for its kernel. */
#define SGRAD_UPDATE_KERNEL(name) extern const struct sgrad_kernel sgrad_##name##_kernel

/* Return the learning rate of the step for this parameter: the step's rate times the parameter's multiplier. sgrad_lr is for
 * CPU kernels only. A CUDA kernel must call sgrad_lr_of in device code, because there args->step is device memory. */
static inline SGRAD_BOTH float sgrad_lr_of(const struct sgrad_hyper *hyper, const struct sgrad_step *step) {
    return hyper->lr_scale != 0 ? step->lr * hyper->lr_scale : step->lr;
}
static inline float sgrad_lr(const struct sgrad_args *args) {
    return sgrad_lr_of((const struct sgrad_hyper *)args->attrs, args->step);
}

/* Returns the factor, at most 1, that reduces the norm of all gradients to HYPER's clip_norm (torch.nn.utils.clip_grad_norm_).
 * SQUARES is the sum of the squares of all gradients, operand 2. Returns 1 if it is NULL or clip_norm is 0. */
float sgrad_clip_factor(const struct sgrad_hyper *hyper, const double *squares);

/* Updates the exponential moving average of weights after a step (ema.c). Attributes: pointer to the decay, a double. Operands:
 * 0 weights F32 (R), 1 their average F32 (RW). */
SGRAD_UPDATE_KERNEL(ema);
/* Returns the weight, from 0 to 1, of this step's weights in the new average: 1 - min(decay, (1 + t)/(10 + t)) after t earlier
 * steps; 1 in the first step of a run. */
static inline SGRAD_BOTH float sgrad_ema_weight(double decay, const struct sgrad_step *step) {
    const double before = step->number - 1., weight = (1 + before) / (10 + before);
    const double decayed = weight < decay ? weight : decay;
    return before == 0 ? 1 : (float)(1 - decayed);
}

/* Returns the weight, from 0 to 1, of this step's weights in the new average of schedule-free training (schedulefree.c). */
static inline SGRAD_BOTH float sgrad_schedulefree_weight(float beta1, const struct sgrad_step *step) {
    const float share = step->lr_share, all = 1 - beta1 * (1 - share);
    return all > 0 ? share / all : 1;
}

/* The longest side of a matrix that SOAP (soap.c) rotates. */
enum { SGRAD_SOAP_SIDE = 2048 };

/* Lookahead (lookahead.c; Zhang, Lucas, Hinton, Ba, arXiv:1907.08610; Jordan, arXiv:2404.00498). Attributes: this struct.
 * Operands: 0 weights F32 (RW), 1 slow weights F32 (RW). The slow weights retain the fraction decay·(step/steps)^power of their
 * value and take the rest from the weights. The weights are then set to the slow weights. */
struct sgrad_lookahead {
    double decay, power;    /* decay below 0: the slow weights do not change */
    long every, steps;      /* steps between two updates of the slow weights; steps of the run */
};
SGRAD_UPDATE_KERNEL(lookahead);
/* Returns the weight, from 0 to 1, of the weights in the new slow weights; 0 if decay is below 0. */
static inline SGRAD_BOTH float sgrad_lookahead_weight(const struct sgrad_lookahead *is, const struct sgrad_step *step) {
    if (is->decay < 0) return 0;
    return (float)(1 - is->decay * pow((double)step->number / (double)is->steps, is->power));
}

#ifdef __cplusplus
}
#endif
#endif
