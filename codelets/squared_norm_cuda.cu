/* squared_norm_cuda.cu: squared_norm.c on CUDA devices. */
#include "codelets/cuda.h"

/* Every pack is a row of one column, whose one sum is that of its squares. */
template <typename P> struct square_term {
    static constexpr int values = 1, size = 1;
    const P *x;
    __device__ void column(int) {}
    __device__ void add(int row, int, double (*sum)[size]) const {
        float v[P::size];
        sgrad__load(x + row, v);
        for (float e : v) sum[0][0] += (double)e * e;
    }
};

/* x (any shape), out (1) */
extern "C" void sgrad__squared_norm_cuda(const struct sgrad_args *a) {
    const int64_t n = sgrad_shape_count(&a->view[0].shape);
    sgrad__with_pack(SGRAD_F32, n, [=](auto pack) {
        using P = decltype(pack);
        sgrad__sum_rows(square_term<P>{ (const P *)a->data[0] }, n / P::size, 1, (double *)a->data[1]);
    });
}
