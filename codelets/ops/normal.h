/* normal.h: functions for batch norm that is fused into the graph of a convolution. Private to batchnorm_cuda.cu and
 * conv2d_graph_cuda.cu. */
#ifndef SGRAD_CODELETS_OPS_NORMAL_H
#define SGRAD_CODELETS_OPS_NORMAL_H

#include "codelets/codelets.h"

/* Enqueues the computation of the mean, scale and shift of each channel (C, F32): batch norm is (x - mean) · scale + shift.
 * WEIGHT and SUM are indices of operands of ARGS: of its weight, followed by its bias, and of the sums [Σx, Σx²]. */
void sgrad__batchnorm_channels(const struct sgrad_args *args, int weight, int sum, float *mean, float *scale, float *shift);

/* Enqueues the computation of the output of task batchnorm sums, whose operands are ARGS, from SUM, Σdz, and PRODUCT, Σdz · (x
 * - mean) (C, F32). dz is dy after the mask of the ReLU. */
void sgrad__batchnorm_sums_of(const struct sgrad_args *args, const float *sum, const float *product);

/* Returns true if ARGS, of task batchnorm apply or sums, belong to a batch norm with a ReLU. */
bool sgrad__batchnorm_has_relu(const struct sgrad_args *args);

#endif
