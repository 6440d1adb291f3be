/* pass.h: what a layer with a weight is computed for. Private to codelets/, for C and CUDA. */
#ifndef SGRAD_CODELETS_PASS_H
#define SGRAD_CODELETS_PASS_H

enum sgrad__pass { SGRAD__FORWARD, SGRAD__BACKWARD_DATA, SGRAD__BACKWARD_WEIGHT, SGRAD__PASSES };

#endif
