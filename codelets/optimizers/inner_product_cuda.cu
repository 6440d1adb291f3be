/* inner_product_cuda.cu: inner_product.c on CUDA devices. */
#include "codelets/cuda/cuda.h"

/* Terms for sgrad__sum_rows: each pack is a row with one column. Its only sum is that of the products. */
template <typename P> struct product_term {
    static constexpr int values = 1, size = 1;
    const P *x, *y;
    __device__ void column(int) {}
    __device__ void add(int row, int, double (*sum)[size]) const {
        float v[P::size], w[P::size];
        sgrad__load(x + row, v);
        sgrad__load(y + row, w);
        for (int j = 0; j < P::size; j++) sum[0][0] += (double)v[j] * w[j];
    }
};

/* Operands: x, y (any shape), out (1). */
extern "C" void sgrad__inner_product_cuda(const struct sgrad_args *args) {
    const int64_t n = sgrad_shape_count(&args->view[0].shape);
    sgrad__with_pack(SGRAD_F32, n, [=](auto pack) {
        using P = decltype(pack);
        sgrad__sum_rows(product_term<P>{ (const P *)args->data[0], (const P *)args->data[1] }, n / P::size, 1,
                        (double *)args->data[2]);
    });
}
