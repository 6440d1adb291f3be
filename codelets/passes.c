/* passes.c: the three passes of layers with filters (layer.h) and of linear.c as kernels of CPUs. */
#include "config.h"
#include "codelets/passes.h"
#include "codelets/ways.h"

size_t sgrad__linear_workspace_cuda(const struct sgrad_args *args);

size_t sgrad__pass_gpu_workspace(const struct sgrad_args *a) {
#ifdef SGRAD_HAVE_CUDA
    const bool matrix = a->view[1].shape.rank == 2 || a->view[2].shape.rank == 2;      /* where a weight or its gradient is */
    return matrix ? sgrad__linear_workspace_cuda(a) : sgrad__conv2d_workspace_cuda(a);
#else
    return (void)a, 0;
#endif
}

static struct sgrad__layer layer_of(enum sgrad__pass pass, bool exact, const struct sgrad_args *a) {
    struct sgrad__layer l = sgrad__layer_of(pass, a);
    l.exact = exact && l.dtype == SGRAD_BF16;
    return l;
}

#define PASS(name, pass, exact)                                                                                                  \
    void sgrad__pass_##name(const struct sgrad_args *a) {                                                                        \
        const struct sgrad__layer l = layer_of(pass, exact, a);                                                                  \
        sgrad__ways_run(&l, a);                                                                                                  \
    }                                                                                                                            \
    size_t sgrad__pass_##name##_workspace(const struct sgrad_args *a) {                                                          \
        const struct sgrad__layer l = layer_of(pass, exact, a);                                                                  \
        return sgrad__ways_workspace(&l);                                                                                        \
    }                                                                                                                            \
    double sgrad__pass_##name##_flops(const struct sgrad_args *a) {                                                              \
        const struct sgrad__layer l = layer_of(pass, exact, a);                                                                  \
        return sgrad__layer_flops(&l);                                                                                           \
    }                                                                                                                            \
    int sgrad__pass_##name##_packing(const struct sgrad_args *a, size_t *bytes) {                                                \
        const struct sgrad__layer l = layer_of(pass, exact, a);                                                                  \
        return sgrad__ways_packing(&l, bytes);                                                                                   \
    }                                                                                                                            \
    void sgrad__pass_##name##_pack(const struct sgrad_args *a, const void *weight, void *to) {                                   \
        const struct sgrad__layer l = layer_of(pass, exact, a);                                                                  \
        sgrad__ways_pack(&l, weight, to);                                                                                        \
    }
PASS(forward, SGRAD__FORWARD, false)
PASS(inference, SGRAD__FORWARD, true)
PASS(backward_data, SGRAD__BACKWARD_DATA, false)
PASS(transposed_inference, SGRAD__BACKWARD_DATA, true)
PASS(backward_weight, SGRAD__BACKWARD_WEIGHT, false)

int sgrad_call_ways(const struct sgrad_call *call, struct sgrad_way way[SGRAD_MAX_WAYS]) {
    static void (*const passes[SGRAD__PASSES])(const struct sgrad_args *) = { sgrad__pass_forward, sgrad__pass_backward_data,
                                                                              sgrad__pass_backward_weight };
    _Static_assert((int)SGRAD__WAYS <= (int)SGRAD_MAX_WAYS, "room for every way");
    const struct sgrad_args args = sgrad_call_args(call);
    enum sgrad__pass pass = 0;
    while (pass < SGRAD__PASSES && passes[pass] != call->kernel->cpu) pass++;
    if (pass == SGRAD__PASSES) return 0;
    struct sgrad__layer l = sgrad__layer_of(pass, &args);
    l.packed = 0;
    sgrad__ways_measure(&l, way);
    return SGRAD__WAYS;
}
