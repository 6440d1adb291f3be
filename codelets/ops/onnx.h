/* onnx.h: parts of the ONNX forms of several operations. Private to codelets/. */
#ifndef SGRAD_CODELETS_OPS_ONNX_H
#define SGRAD_CODELETS_OPS_ONNX_H

#include <stdio.h>

/* Writes the attributes of a square window to TO: "kernel_shape = [3, 3], strides = [1, 1], pads = [1, 1, 1, 1]". TAPS above
 * 0: the window is for volumes and has TAPS slices, with stride 1 and DEPTH_PADDING on either side along D. */
void sgrad__onnx_window(int taps, int depth_padding, int kernel, int stride, int padding, FILE *to);

/* Images are (N,C,H,W) in ONNX. Operations on the features of each pixel compute z (N,H,W,C) from last (N,H,W,C): these lines
 * come before and after theirs. */
#define SGRAD__ONNX_CHANNELS_LAST "last = Transpose <perm = [0, 2, 3, 1]> (x)\n"
#define SGRAD__ONNX_CHANNELS_FIRST "\ny = Transpose <perm = [0, 3, 1, 2]> (z)"

#endif
