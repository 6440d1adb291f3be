/* onnx.c: functions for the ONNX forms of several operations. */
#include "config.h"
#include "codelets/ops/onnx.h"

void sgrad__onnx_window(int taps, int depth_padding, int kernel, int stride, int padding, FILE *to) {
    if (taps)
        fprintf(to, "kernel_shape = [%d, %d, %d], strides = [1, %d, %d], pads = [%d, %d, %d, %d, %d, %d]", taps, kernel, kernel,
                stride, stride, depth_padding, padding, padding, depth_padding, padding, padding);
    else
        fprintf(to, "kernel_shape = [%d, %d], strides = [%d, %d], pads = [%d, %d, %d, %d]", kernel, kernel, stride, stride,
                padding, padding, padding, padding);
}
