/* concat_cuda.cu: concat.c on CUDA devices, with one kernel launch per input.
 *
 *     y, pixel 0   │ x0 x0 │ x1 x1 x1 │ x2 │
 *     y, pixel 1   │ x0 x0 │ x1 x1 x1 │ x2 │
 */
#include <numeric>

#include "codelets/cuda/cuda.h"
#include "codelets/ops/concat.h"

/* Copies rows of COLUMNS packs, or adds them to TO. Rows begin every FROM_STEP and TO_STEP packs. */
template <typename P>
static __global__ void move(uint32_t n, int columns, int from_step, int to_step, const P *from, P *to, bool add) {
    const uint32_t i = sgrad__thread();
    if (i >= n) return;
    const int64_t row = i / columns, column = i % columns;
    float v[P::size];
    sgrad__load(from + row * from_step + column, v);
    sgrad__store(to + row * to_step + column, v, add);
}

/* Copies input x, of COLUMNS channels, to the channels of y from OFFSET on. BACKWARD: copies these channels of dy to dx, or adds
 * them to it. */
static void submit(const struct sgrad_view *view, void *y_data, void *x_data, int64_t columns, int64_t offset, bool backward,
                   bool add) {
    const int64_t all = view->shape.dim[view->shape.rank - 1], rows = sgrad_shape_count(&view->shape) / all;
    sgrad__with_pack(view->dtype, std::gcd(std::gcd(columns, all), offset), [=](auto pack) {
        using P = decltype(pack);
        P *own = (P *)x_data, *joint = (P *)y_data + offset / P::size;
        const int narrow = (int)(columns / P::size), wide = (int)(all / P::size);
        if (backward)
            sgrad__launch(move<P>, rows * narrow, narrow, wide, narrow, joint, own, add);
        else
            sgrad__launch(move<P>, rows * narrow, narrow, narrow, wide, own, joint, false);
    });
}

static const int *channels(const struct sgrad_args *args) { return ((const struct sgrad_concat *)args->attrs)->channels; }

/* x0 … x7 (those after the last input are absent), y (…,C) */
extern "C" void sgrad__concat_forward_cuda(const struct sgrad_args *args) {
    const int Y = SGRAD_MAX_INPUTS;
    for (int64_t i = 0, offset = 0; i < Y && args->data[i]; offset += channels(args)[i++])
        submit(&args->view[Y], args->data[Y], args->data[i], channels(args)[i], offset, false, false);
}

/* dy (…,C), dx0 … dx7, any of them absent */
extern "C" void sgrad__concat_backward_cuda(const struct sgrad_args *args) {
    for (int64_t i = 0, offset = 0; i < SGRAD_MAX_INPUTS; offset += channels(args)[i++])
        if (args->data[1 + i])
            submit(&args->view[0], args->data[0], args->data[1 + i], channels(args)[i], offset, true, sgrad_adds(args, 1 + i));
}
