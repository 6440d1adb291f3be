/* copy.c: copies segments of several tensors into one: gradients into the buckets that are sent between ranks, and back;
 * and a task without work, whose operands define its position among other tasks. */
#include "config.h"
#include "codelets/kernels.h"

#include <string.h>

void sgrad__copy_cuda(const struct sgrad_args *a);

/* in (any shape, some absent), out (any shape) */
static void copy(const struct sgrad_args *args) {
    const struct sgrad_copy *attrs = args->attrs;
    const enum sgrad_dtype dtype = args->view[SGRAD_COPY_INPUTS].dtype;
    const size_t size = sgrad_dtype_size(dtype);
    for (int i = 0; i < SGRAD_COPY_INPUTS; i++) {
        const struct sgrad_copy_block *p = &attrs->block[i];
        char *to = (char *)args->data[SGRAD_COPY_INPUTS] + (size_t)p->to * size;
        if (args->data[i]) memcpy(to, (const char *)args->data[i] + (size_t)p->from * size, (size_t)p->count * size);
        for (int64_t j = 0; !args->data[i] && j < p->count; j++)
            if (dtype == SGRAD_F64) ((double *)to)[j] = -0.0;
            else if (dtype == SGRAD_BF16) ((uint16_t *)to)[j] = sgrad_f32_to_bf16(-0.0f);
            else ((float *)to)[j] = -0.0f;
    }
}

static double bytes(const struct sgrad_args *args) {
    const struct sgrad_copy *attrs = args->attrs;
    double elements = 0;
    for (int i = 0; i < SGRAD_COPY_INPUTS; i++) elements += 2 * (double)attrs->block[i].count;
    return elements * (double)sgrad_dtype_size(args->view[SGRAD_COPY_INPUTS].dtype);
}

static void nothing(const struct sgrad_args *args) { (void)args; }

const struct sgrad_kernel sgrad_wait_kernel = {
    .name = "wait",
    .kind = &sgrad_reduction_kind,
    .cpu = nothing,
    .flops = sgrad_no_flops,
    .bytes = sgrad_no_flops,
};

const struct sgrad_kernel sgrad_copy_kernel = {
    .name = "copy",
    .kind = &sgrad_reduction_kind,
    .cpu = copy,
    .cuda = SGRAD_ON_CUDA(sgrad__copy_cuda),
    .flops = sgrad_no_flops,
    .bytes = bytes,
};
