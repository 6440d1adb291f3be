/* pass.h: the three passes of a layer that has a weight (convolution, inner product). Private to codelets/, for C and CUDA. */
#ifndef SGRAD_CODELETS_PASS_H
#define SGRAD_CODELETS_PASS_H

/* FORWARD computes the output, BACKWARD_DATA the gradient of the input, BACKWARD_WEIGHT the gradients of the weight and the
 * bias. */
enum sgrad__pass { SGRAD__FORWARD, SGRAD__BACKWARD_DATA, SGRAD__BACKWARD_WEIGHT, SGRAD__PASSES };

#endif
