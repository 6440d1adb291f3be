/* normal.h: what of batch norm is done by a convolution's graph beside it. Private to batchnorm_cuda.cu and
 * conv2d_graph_cuda.cu. */
#ifndef SGRAD_CODELETS_NORMAL_H
#define SGRAD_CODELETS_NORMAL_H

#include "codelets/codelets.h"

/* The mean, scale and shift of each channel, F32, so that batch norm is (x - mean) · scale + shift. Of the operands of ARGS its
 * weight is number WEIGHT, its bias the next, and the sums of x number SUM. */
void sgrad__batchnorm_channels(const struct sgrad_args *args, int weight, int sum, float *mean, float *scale, float *shift);

/* What batchnorm sums, whose operands ARGS are, leaves, of Σdz and Σdz · (x - mean) as F32. */
void sgrad__batchnorm_sums_of(const struct sgrad_args *args, const float *sum, const float *product);

/* Whether ARGS, of batchnorm apply or sums, are of a batch norm with a ReLU. */
bool sgrad__batchnorm_has_relu(const struct sgrad_args *args);

#endif
