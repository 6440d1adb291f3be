/* activation.h: the two passes of an activation function, y = f(x) element by element, on CPUs. An operation defines f and the
 * product of its derivative and dy, for one number:
 *
 *     SGRAD_ALWAYS_INLINE float value(float x, const void *attrs) { return x < 0 ? 0 : x; }
 *     SGRAD_ALWAYS_INLINE float gradient(float y, float dy, const void *attrs) { return y <= 0 ? 0 : dy; }
 *     SGRAD_VECTOR(forward)(const struct sgrad_args *args) { activate(args, value, NULL); }
 *     SGRAD_VECTOR(backward)(const struct sgrad_args *args) { activate_backward(args, gradient, NULL); }
 *
 * ATTRS must point to a local variable, or be NULL: only then can the compiler keep the attributes in registers, and vectorise
 * the loops. Private to codelets/ops/. */
#ifndef SGRAD_CODELETS_OPS_ACTIVATION_H
#define SGRAD_CODELETS_OPS_ACTIVATION_H

#include "codelets/cpu/numbers.h"

/* Operands: x, y of any shape. */
SGRAD_ALWAYS_INLINE void activate(const struct sgrad_args *args, float (*value)(float x, const void *attrs), const void *attrs) {
    const enum sgrad_dtype type = args->view[0].dtype;
    float x_room[SGRAD_ROW], y_room[SGRAD_ROW];
    for (int64_t i = 0, n, count = sgrad_shape_count(&args->view[0].shape); (n = sgrad_chunk(i, count)); i += n) {
        const float *x = sgrad_row(type, args->data[0], i, n, x_room);
        float *y = sgrad_row_out(type, args->data[1], i, y_room);
        for (int64_t j = 0; j < n; j++) y[j] = value(x[j], attrs);
        sgrad_row_done(type, args->data[1], i, n, y);
    }
}

/* Operands: x or y, as the record of the operation states; dy, dx; of any shape. */
SGRAD_ALWAYS_INLINE void activate_backward(const struct sgrad_args *args,
                                           float (*gradient)(float x, float dy, const void *attrs), const void *attrs) {
    const enum sgrad_dtype type = args->view[0].dtype;
    float x_room[SGRAD_ROW], dy_room[SGRAD_ROW], dx_room[SGRAD_ROW];
    for (int64_t i = 0, n, count = sgrad_shape_count(&args->view[0].shape); (n = sgrad_chunk(i, count)); i += n) {
        const float *x = sgrad_row(type, args->data[0], i, n, x_room);
        const float *dy = sgrad_row(type, args->data[1], i, n, dy_room);
        float *dx = sgrad_row_sum(type, args->data[2], i, n, sgrad_adds(args, 2), dx_room);
        for (int64_t j = 0; j < n; j++) dx[j] += gradient(x[j], dy[j], attrs);
        sgrad_row_done(type, args->data[2], i, n, dx);
    }
}

/* Test values (struct sgrad_op.fill) for functions that are not differentiable at -3 and 3: absolute values from 0.2 to 3.8. */
static inline void fill_to_4(const struct sgrad_test *test, int input, void *data) {
    float *x = data;
    sgrad_fill_nonzero(test, input, data);
    for (int64_t i = 0, n = sgrad_shape_count(&test->x[input]); i < n; i++) x[i] *= 2;
}

#endif
