/* drop_path_cuda.cu: drop_path.c on CUDA devices. */
#include "codelets/cuda/cuda.h"
#include "codelets/ops/draw.h"
#include "codelets/ops/drop_path.h"

/* to (N,size) = from · factor of the sample, forward and backward; SIZE in packs, FIRST relative to the step's first sample */
template <typename P>
static __global__ void drop(uint32_t n, const struct sgrad_step *step, struct sgrad_drop_path attrs, int64_t first, uint32_t size,
                            const P *from, P *to, bool add) {
    const uint32_t i = sgrad__thread();
    if (i >= n) return;
    const struct sgrad_random draw =
        sgrad__dropout_draw(step->seed, step->number, attrs.stream, step->first + first + i / size, 0);
    float v[P::size];
    sgrad__load(from + i, v);
    for (float &e : v) e *= sgrad__dropout_factor(draw.word[0], attrs.p);
    sgrad__store(to + i, v, add);
}

static void submit(const struct sgrad_args *args, bool add) {
    const struct sgrad_drop_path attrs = *(const struct sgrad_drop_path *)args->attrs;
    const int64_t n = sgrad_shape_count(&args->view[0].shape), size = n / args->view[0].shape.dim[0];
    sgrad__with_wide_pack(args->view[0].dtype, size, [=](auto pack) {
        using P = decltype(pack);
        sgrad__launch(drop<P>, n / P::size, args->step, attrs, args->first, (uint32_t)(size / P::size), args->data[0],
                      args->data[1], add);
    });
}

/* x, y (N,…) */
extern "C" void sgrad__drop_path_forward_cuda(const struct sgrad_args *args) { submit(args, false); }

/* dy, dx (N,…) */
extern "C" void sgrad__drop_path_backward_cuda(const struct sgrad_args *args) { submit(args, sgrad_adds(args, 1)); }

/* x, y (N,…); y = x */
extern "C" void sgrad__drop_path_inference_cuda(const struct sgrad_args *args) {
    SGRAD_CUDA(cudaMemcpyAsync(args->data[1], args->data[0], sgrad_view_bytes(&args->view[0]), cudaMemcpyDeviceToDevice,
                               sgrad_cuda_stream()));
}
