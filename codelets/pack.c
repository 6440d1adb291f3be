/* pack.c: what the tasks of a call have in common, made ready for all of them as their kernel knows to (struct sgrad_kernel). */
#include "config.h"
#include "codelets/codelets.h"

static void forward(const struct sgrad_args *a) {
    const struct sgrad_call *call = a->attrs;
    const struct sgrad_args args = sgrad_call_args(call);
    call->kernel->pack(&args, a->data[0], a->data[1]);
}

const struct sgrad_kernel sgrad_pack_kernel = {
    .name = "pack",
    .kind = &sgrad_forward_kind,
    .cpu = forward,
};
