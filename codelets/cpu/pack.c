/* pack.c: the kernel that packs an operand of another kernel, once for all tasks that read it (.pack of struct sgrad_kernel).
 * Attributes: the bound kernel whose operand is packed. Operands: the operand, its packed copy. */
#include "config.h"
#include "codelets/codelets.h"

static void forward(const struct sgrad_args *a) {
    const struct sgrad_bound_kernel *call = a->attrs;
    const struct sgrad_args args = sgrad_bound_kernel_args(call);
    call->kernel->pack(&args, a->data[0], a->data[1]);
}

const struct sgrad_kernel sgrad_pack_kernel = {
    .name = "pack",
    .kind = &sgrad_forward_kind,
    .cpu = forward,
};
