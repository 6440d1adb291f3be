/* dropout_cuda.cu: dropout.c on CUDA devices. One draw gives four numbers for four neighbours, which are one pack. If runs of
 * elements do not begin and end at multiples of four, a pack has one element, and a thread uses one of the numbers of its
 * draw. */
#include "codelets/cuda/cuda.h"
#include "codelets/ops/draw.h"
#include "codelets/ops/dropout.h"

struct chances {
    const struct sgrad_step *step;
    int64_t first; /* sample, relative to the step's first */
    uint32_t begin, run, row; /* a shard: index of its first element in the sample, length of its rows and of the sample's */
    uint32_t layer;
    float p;
    struct sgrad_zigzag zigzag; /* of the rows */
};

/* to (N,size) = from · factor, forward and backward; SIZE in packs */
template <typename P>
static __global__ void drop(uint32_t n, struct chances chances, uint32_t size, const P *from, P *to, bool add) {
    const uint32_t i = sgrad__thread();
    if (i >= n) return;
    const uint32_t own = i % size * P::size;
    const int t = own / chances.run, row = t + (t < chances.zigzag.half ? chances.zigzag.early : chances.zigzag.late);
    const uint32_t element = chances.begin + row * chances.row + own % chances.run;
    const struct sgrad_random draw = sgrad__dropout_draw(chances.step->seed, chances.step->number, chances.layer,
                                                         chances.step->first + chances.first + i / size, element / 4);
    float v[P::size];
    sgrad__load(from + i, v);
    for (int j = 0; j < P::size; j++) v[j] *= sgrad__dropout_factor(draw.word[(element + j) % 4], chances.p);
    sgrad__store(to + i, v, add);
}

static void submit(const struct sgrad_args *args, bool add) {
    const struct sgrad_dropout *attrs = (const struct sgrad_dropout *)args->attrs;
    const int64_t n = sgrad_shape_count(&args->view[0].shape), size = n / args->view[0].shape.dim[0];
    const int64_t width = args->view[0].shape.dim[args->view[0].shape.rank - 1];
    const int64_t run = attrs->row > width || attrs->zigzag.early != attrs->zigzag.late ? width : size;
    const struct chances s = { args->step,    args->first, (uint32_t)attrs->first, (uint32_t)run, (uint32_t)attrs->row,
                               attrs->stream, attrs->p,    attrs->zigzag };
    const int64_t row = run < size || attrs->zigzag.early ? attrs->row : 0;
    sgrad__with_pack(args->view[0].dtype, run | row | attrs->first, [=](auto pack) { /* one draw per pack */
        using P = decltype(pack);
        sgrad__launch(drop<P>, n / P::size, s, (uint32_t)(size / P::size), args->data[0], args->data[1], add);
    });
}

/* x, y of any shape */
extern "C" void sgrad__dropout_forward_cuda(const struct sgrad_args *args) { submit(args, false); }

/* dy, dx of any shape */
extern "C" void sgrad__dropout_backward_cuda(const struct sgrad_args *args) { submit(args, sgrad_adds(args, 1)); }

/* x, y of any shape; y = x */
extern "C" void sgrad__dropout_inference_cuda(const struct sgrad_args *args) {
    SGRAD_CUDA(cudaMemcpyAsync(args->data[1], args->data[0], sgrad_view_bytes(&args->view[0]), cudaMemcpyDeviceToDevice,
                               sgrad_cuda_stream()));
}
