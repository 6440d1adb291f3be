/* identity_cuda.cu: identity.c on CUDA devices. */
#include "codelets/cuda/cuda.h"

/* x, y of any shape */
extern "C" void sgrad__identity_forward_cuda(const struct sgrad_args *a) {
    sgrad__move(&a->view[0], a->data[0], a->data[1], false);
}

/* dy, dx of any shape */
extern "C" void sgrad__identity_backward_cuda(const struct sgrad_args *a) {
    sgrad__move(&a->view[0], a->data[0], a->data[1], sgrad_adds(a, 1));
}
