/* image_cuda.cu: image.c on CUDA devices. The samples' indices lie in the host's memory, so their crops are drawn there and
 * travel as a kernel parameter, some samples a launch. */
#include <algorithm>

#include "codelets/cuda.h"
#include "codelets/draw.h"
#include "codelets/ops/image.h"

#define CROPS 256 /* 3 KiB of the 4 that a kernel's parameters may take */
struct crops {
    struct sgrad__crop at[CROPS];
};

/* One thread for each element of y: x (N,H,W,C) U8, y (N,H,W,C). */
template <typename T>
static __global__ void image(uint32_t n, int H, int W, int C, struct sgrad_image attrs,
                             const __grid_constant__ struct crops crops, const uint8_t *x, T *y) {
    const uint32_t i = sgrad__thread();
    if (i >= n) return;
    const struct sgrad__pixel to = sgrad__pixel_of(i, H, W, C);
    const struct sgrad__crop crop = crops.at[to.n];
    const int h = to.h + crop.down, w = (crop.flip ? W - 1 - to.w : to.w) + crop.right;
    const bool inside = h >= 0 && h < H && w >= 0 && w < W;
    const float pixel = inside ? x[sgrad__index_of(to.n, h, w, to.c, H, W, C)] : 0;
    y[i] = (pixel / attrs.full_scale - attrs.mean[to.c]) / attrs.deviation[to.c];
}

extern "C" void sgrad__image_cuda(const struct sgrad_args *a) {
    const struct sgrad_image *attrs = (const struct sgrad_image *)a->attrs;
    const struct sgrad_step *step = a->step;
    const int64_t *dim = a->view[0].shape.dim, samples = dim[0], size = dim[1] * dim[2] * dim[3];
    for (int64_t first = 0; first < samples; first += CROPS) {
        const int64_t count = std::min<int64_t>(samples - first, CROPS);
        struct crops crops = {};
        for (int64_t s = 0; step->training && s < count; s++)
            crops.at[s] = sgrad__image_draw(step->seed, step->epoch, step->sample[a->first - step->first + first + s], attrs->pad,
                                            attrs->flip);
        sgrad__with_type(a->view[1].dtype, [&](auto type) {
            using T = decltype(type);
            sgrad__launch(image<T>, count * size, dim[1], dim[2], dim[3], *attrs, crops, (uint8_t *)a->data[0] + first * size,
                          (T *)a->data[1] + first * size);
        });
    }
}
