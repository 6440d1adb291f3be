/* check.h: checks of custom operations, collectives and optimizers. */
#ifndef SGRAD_GRAPHS_API_CHECK_H
#define SGRAD_GRAPHS_API_CHECK_H

#include "graphs/compiler/compiler.h"
#include "graphs/networks/networks.h"

#ifdef __cplusplus
extern "C" {
#endif

struct sgrad_collective;

/* Checks OP on each of its test shapes: derivatives against finite differences of the forward pass, accumulation into existing
 * gradients, a backward pass without some of the gradients, and bf16 against f32. A context must be open (runtime.h); the kernels
 * run on CPUs. Returns 0 if OP is correct. SGRAD_EINVAL: it is not, or it has no test shapes; one line with the error and its
 * size is logged. */
int sgrad_op_check(const struct sgrad_op *op);
/* The same for a collective: executes its plans for 1 to 33 ranks in this process (check_collective.c). No context is needed. */
int sgrad_collective_check(const struct sgrad_collective *method);
/* The same for an optimizer: checks states, direction of a step, learning rate, clipping, and updates of shards, on parameters of
 * several shapes (check_update.c). SGRAD_EINVAL also if its kernel has no CPU function. No context is needed. */
int sgrad_optimizer_check(const struct sgrad_optimizer *optimizer);

#ifdef __cplusplus
}
#endif
#endif
