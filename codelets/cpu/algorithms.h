/* algorithms.h: computes a layer (layer.h) with the algorithm that is fastest on this processor. Private to codelets/.
 *
 * plain      onednn.c: a convolution of channels-last images, with the weight in the layout that oneDNN prefers; an inner product
 *            with all operands in the layout of their tensors
 * blocked    onednn.c: a convolution of images in blocks of 16 channels (the layout of 16 channels is the same as in plain, but
 *            oneDNN selects another kernel); an inner product with the weight in the layout that oneDNN prefers
 * winograd   winograd.c: a quarter of the multiplications; rounding errors are 1e-6 of the largest output, instead of 7e-7. In
 *            training on bf16 images, on processors with bf16 instructions, noise of 1.2 % of the root mean square
 * product    product.c: a matrix product of the library, in F32
 * pixels     pixels.c: for small images, one matrix product for each pair of a filter tap and an output pixel, in F32; pairs
 *            that would read outside the image are left out
 * tiles      tiles.c: bf16 with AMX */
#ifndef SGRAD_CODELETS_CPU_ALGORITHMS_H
#define SGRAD_CODELETS_CPU_ALGORITHMS_H

#include "codelets/cpu/layer.h"

enum sgrad__algorithm {
    SGRAD__PLAIN,
    SGRAD__BLOCKED,
    SGRAD__WINOGRAD,
    SGRAD__PRODUCT,
    SGRAD__PIXELS,
    SGRAD__TILES,
    SGRAD__ALGORITHMS
};

/* The algorithms' names. They are values of the environment variable STARGRAD_CPU_ALGORITHM: every layer that supports the
 * named algorithm uses it, the others use plain. Two more values: "rule" selects by a fixed rule, as --deterministic does;
 * "measured" (default) selects by measurement, unless the run is deterministic or has CUDA workers. Other values are ignored
 * with a warning. */
extern const char *const sgrad__algorithm_name[SGRAD__ALGORITHMS];

/* workspace returns the size of the layer's workspace in bytes, including padding for alignment: the workspace may start at
 * any address. run computes the layer on the operands of ARGS, in args->workspace. The plan of the computation is created at
 * the first call for a layer on a worker and freed when the context closes. */
size_t sgrad__algorithms_workspace(const struct sgrad__layer *layer);
void sgrad__algorithms_run(const struct sgrad__layer *layer, const struct sgrad_args *args);

/* In bf16 runs a weight may be packed: converted once for many tasks. It is packed for one algorithm and one number of
 * samples; tasks with fewer samples use the same algorithm. The first function encodes the two as the value of struct
 * sgrad__layer.packed, the others decode it. */
static inline int sgrad__packed_for(enum sgrad__algorithm way, int samples) { return 1 + (int)way + SGRAD__ALGORITHMS * samples; }
static inline enum sgrad__algorithm sgrad__packed_way(const struct sgrad__layer *layer) {
    return (enum sgrad__algorithm)((layer->packed - 1) % SGRAD__ALGORITHMS);
}
static inline int sgrad__packed_samples(const struct sgrad__layer *layer) { return (layer->packed - 1) / SGRAD__ALGORITHMS; }
/* Implement .pack_layout and .pack of struct sgrad_kernel (runtime.h). pack_layout returns the encoded value and sets *bytes;
 * both are 0 for F32 layers and if the layer's algorithm does not gain from packing. pack writes WEIGHT to TO in the layout of
 * layer->packed, which must not be 0; TO must be 64-byte aligned and have that size. */
int sgrad__algorithms_packing(const struct sgrad__layer *layer, size_t *bytes);
void sgrad__algorithms_pack(const struct sgrad__layer *layer, const float *weight, void *to);

/* Measures the layer with every algorithm, on generated data and with one thread; implements sgrad_kernel_algorithms
 * (codelets.h). Sets all elements of the array; seconds is INFINITY for an algorithm that does not support the layer. Blocks
 * until done. */
void sgrad__algorithms_measure(const struct sgrad__layer *layer, struct sgrad_algorithm way[SGRAD__ALGORITHMS]);

#endif
