/* filter.h: functions common to conv2d.c, conv3d.c and conv_transpose.c: the shape rule of filters, their description, their
 * ONNX attributes. Private to codelets/. */
#ifndef SGRAD_CODELETS_OPS_FILTER_H
#define SGRAD_CODELETS_OPS_FILTER_H

#include "codelets/kernels.h"
#include "codelets/ops/conv2d.h"

/* Shape rule (struct sgrad_op.infer) of operation OP, whose attributes begin as CONV2D: sets y, the weight and the bias, and the
 * defaults of attributes that are 0. TAPS 0: filters (K,R,S,C/groups) on images (N,H,W,C), or on the slices of
 * volumes (N,D,H,W,C). Else: filters (K,TAPS,R,S,C/groups) on volumes, with DEPTH_PADDING on either side along D.
 * Errors, which are logged: SGRAD_ESHAPE if the input does not fit, SGRAD_EINVAL if an attribute is out of range. */
int sgrad__filter_infer(struct sgrad_signature *signature, const char *op, struct sgrad_conv2d *conv2d, int taps,
                        int depth_padding);

/* Writes "3x3 stride 2 pad 1", or "3x3x3 pad 1", to TEXT. */
void sgrad__filter_describe(const struct sgrad_conv2d *conv2d, int taps, char *text, size_t size);

/* Writes the attributes of the ONNX node to TO: "kernel_shape = [3, 3], strides = …". */
void sgrad__filter_onnx(const struct sgrad_conv2d *conv2d, int taps, int depth_padding, FILE *to);

#endif
