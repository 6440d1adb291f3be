/* filter.h: what conv2d.c, conv3d.c and conv_transpose.c share: the rule of what a filter makes of an input. Private to
 * codelets/. */
#ifndef SGRAD_CODELETS_FILTER_H
#define SGRAD_CODELETS_FILTER_H

#include "codelets/kernels.h"
#include "codelets/ops/conv2d.h"

/* y and the parameters of operation OP, whose attributes begin as C. TAPS 0: filters (K,R,S,C/groups) on images (N,H,W,C) or on
 * the slices of volumes (N,D,H,W,C); else filters (K,TAPS,R,S,C/groups) on volumes, with so much padding on either side of D. */
int sgrad__filter_infer(struct sgrad_signature *s, const char *op, struct sgrad_conv2d *c, int taps, int depth_padding);

/* "3x3 stride 2 pad 1", "3x3x3 pad 1" */
void sgrad__filter_describe(const struct sgrad_conv2d *c, int taps, char *text, size_t size);

/* The attributes of its node in ONNX: "kernel_shape = [3, 3], strides = …". */
void sgrad__filter_onnx(const struct sgrad_conv2d *c, int taps, int depth_padding, FILE *to);

#endif
