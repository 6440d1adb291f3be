/* updates.h: the kernels of optimizers: how one parameter is updated by its gradient.
 *
 * ATTRS is the parameter's struct sgrad_hyper. Operands: 0 parameter F32 (RW), 1 gradient F32 (R), 2 Σ g² over all parameters
 * F64[1] (R, absent without clipping), 3… the optimizer's states (RW), zeros at first. */
#ifndef SGRAD_CODELETS_UPDATES_H
#define SGRAD_CODELETS_UPDATES_H

#include "codelets/codelets.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Declares the kernel of codelets/NAME.c, sgrad_NAME_kernel: an optimizer's file (graphs/programs/optimizers/) says so itself. */
#define SGRAD_UPDATE_KERNEL(name) extern const struct sgrad_kernel sgrad_##name##_kernel

/* What gradients are multiplied by so that their norm is at most HYPER's clip_norm, from the sum of their squares, operand 2, or
 * NULL. */
float sgrad_clip_factor(const struct sgrad_hyper *hyper, const double *squares);

#ifdef __cplusplus
}
#endif
#endif
