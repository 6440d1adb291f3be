/* passes.c: CPU kernels of the three passes of layers with filters (layer.h) and of linear.c. */
#include "config.h"
#include "codelets/cpu/passes.h"
#include "codelets/cpu/algorithms.h"

enum { EXACT = 1 << 8 };    /* flag of a pass: outside training (layer.h) */

static struct sgrad__layer layer_of(int pass, const struct sgrad_args *args) {
    struct sgrad__layer l = sgrad__layer_of((enum sgrad__pass)(pass & ~EXACT), args);
    l.exact = (pass & EXACT) && l.dtype == SGRAD_BF16;
    return l;
}

static void run(int pass, const struct sgrad_args *args) {
    const struct sgrad__layer l = layer_of(pass, args);
    sgrad__algorithms_run(&l, args);
}

static size_t workspace(int pass, const struct sgrad_args *args) {
    const struct sgrad__layer l = layer_of(pass, args);
    return sgrad__algorithms_workspace(&l);
}

static double flops(int pass, const struct sgrad_args *args) {
    const struct sgrad__layer l = layer_of(pass, args);
    return sgrad__layer_flops(&l);
}

static int packing(int pass, const struct sgrad_args *args, size_t *bytes) {
    const struct sgrad__layer l = layer_of(pass, args);
    return sgrad__algorithms_packing(&l, bytes);
}

static void pack(int pass, const struct sgrad_args *args, const void *weight, void *to) {
    const struct sgrad__layer l = layer_of(pass, args);
    sgrad__algorithms_pack(&l, weight, to);
}

void sgrad__pass_forward(const struct sgrad_args *args) { run(SGRAD__FORWARD, args); }
size_t sgrad__pass_forward_workspace(const struct sgrad_args *args) { return workspace(SGRAD__FORWARD, args); }
double sgrad__pass_forward_flops(const struct sgrad_args *args) { return flops(SGRAD__FORWARD, args); }
int sgrad__pass_forward_packing(const struct sgrad_args *args, size_t *bytes) { return packing(SGRAD__FORWARD, args, bytes); }
void sgrad__pass_forward_pack(const struct sgrad_args *args, const void *weight, void *to) {
    pack(SGRAD__FORWARD, args, weight, to);
}

void sgrad__pass_inference(const struct sgrad_args *args) { run(EXACT | SGRAD__FORWARD, args); }
size_t sgrad__pass_inference_workspace(const struct sgrad_args *args) { return workspace(EXACT | SGRAD__FORWARD, args); }
double sgrad__pass_inference_flops(const struct sgrad_args *args) { return flops(EXACT | SGRAD__FORWARD, args); }
int sgrad__pass_inference_packing(const struct sgrad_args *args, size_t *bytes) {
    return packing(EXACT | SGRAD__FORWARD, args, bytes);
}
void sgrad__pass_inference_pack(const struct sgrad_args *args, const void *weight, void *to) {
    pack(EXACT | SGRAD__FORWARD, args, weight, to);
}

void sgrad__pass_backward_data(const struct sgrad_args *args) { run(SGRAD__BACKWARD_DATA, args); }
size_t sgrad__pass_backward_data_workspace(const struct sgrad_args *args) { return workspace(SGRAD__BACKWARD_DATA, args); }
double sgrad__pass_backward_data_flops(const struct sgrad_args *args) { return flops(SGRAD__BACKWARD_DATA, args); }
int sgrad__pass_backward_data_packing(const struct sgrad_args *args, size_t *bytes) {
    return packing(SGRAD__BACKWARD_DATA, args, bytes);
}
void sgrad__pass_backward_data_pack(const struct sgrad_args *args, const void *weight, void *to) {
    pack(SGRAD__BACKWARD_DATA, args, weight, to);
}

void sgrad__pass_transposed_inference(const struct sgrad_args *args) { run(EXACT | SGRAD__BACKWARD_DATA, args); }
size_t sgrad__pass_transposed_inference_workspace(const struct sgrad_args *args) {
    return workspace(EXACT | SGRAD__BACKWARD_DATA, args);
}
double sgrad__pass_transposed_inference_flops(const struct sgrad_args *args) { return flops(EXACT | SGRAD__BACKWARD_DATA, args); }
int sgrad__pass_transposed_inference_packing(const struct sgrad_args *args, size_t *bytes) {
    return packing(EXACT | SGRAD__BACKWARD_DATA, args, bytes);
}
void sgrad__pass_transposed_inference_pack(const struct sgrad_args *args, const void *weight, void *to) {
    pack(EXACT | SGRAD__BACKWARD_DATA, args, weight, to);
}

void sgrad__pass_backward_weight(const struct sgrad_args *args) { run(SGRAD__BACKWARD_WEIGHT, args); }
size_t sgrad__pass_backward_weight_workspace(const struct sgrad_args *args) { return workspace(SGRAD__BACKWARD_WEIGHT, args); }
double sgrad__pass_backward_weight_flops(const struct sgrad_args *args) { return flops(SGRAD__BACKWARD_WEIGHT, args); }

int sgrad_kernel_algorithms(const struct sgrad_bound_kernel *call, struct sgrad_algorithm way[SGRAD_MAX_ALGORITHMS]) {
    static void (*const passes[SGRAD__PASSES])(const struct sgrad_args *) = { sgrad__pass_forward, sgrad__pass_backward_data,
                                                                              sgrad__pass_backward_weight };
    _Static_assert((int)SGRAD__ALGORITHMS <= (int)SGRAD_MAX_ALGORITHMS, "room for every way");
    const struct sgrad_args args = sgrad_bound_kernel_args(call);
    enum sgrad__pass pass = 0;
    while (pass < SGRAD__PASSES && passes[pass] != call->kernel->cpu) pass++;
    if (pass == SGRAD__PASSES) return 0;
    struct sgrad__layer l = sgrad__layer_of(pass, &args);
    l.packed = 0;
    sgrad__algorithms_measure(&l, way);
    return SGRAD__ALGORITHMS;
}
