/* onnx.h: what operations' forms in ONNX share. Private to codelets/. */
#ifndef SGRAD_CODELETS_ONNX_H
#define SGRAD_CODELETS_ONNX_H

#include <stdio.h>

/* Square windows: "kernel_shape = [3, 3], strides = [1, 1], pads = [1, 1, 1, 1]"; of volumes (TAPS above 0) of so many slices,
 * one by one, with DEPTH_PADDING on either side. */
void sgrad__onnx_window(int taps, int depth_padding, int kernel, int stride, int padding, FILE *to);

#endif
