/* soap.c: Adam in the eigenbasis of Shampoo; its kernel is codelets/optimizers/soap.c. */
#include "codelets/updates.h"
#include "graphs/compiler/compiler.h"

SGRAD_UPDATE_KERNEL(soap);

/* Returns the shape of a matrix of a side of this length; sides that are not rotated have none. */
static struct sgrad_shape square(const struct sgrad_shape *parameter, int64_t length) {
    const bool none = parameter->rank < 2 || length > SGRAD_SOAP_SIDE;
    return none ? (struct sgrad_shape){ 1, { 1 } } : (struct sgrad_shape){ 2, { length, length } };
}
static struct sgrad_shape left(const struct sgrad_shape *parameter) { return square(parameter, parameter->dim[0]); }
static struct sgrad_shape right(const struct sgrad_shape *parameter) {
    return square(parameter, sgrad_shape_count(parameter) / parameter->dim[0]);
}

const struct sgrad_optimizer sgrad_soap_optimizer = {
    .name = "soap",
    .summary = "Adam in the eigenbasis of Shampoo's preconditioner",
    .source = "N. Vyas and others, SOAP: improving and stabilizing Shampoo using Adam, 2024",
    .default_lr = 0.003,
    .beta1 = 0.95,
    .beta2 = 0.95,
    .options = (const char *const[]){ "beta1", "beta2", "eps", "soap-every", NULL },
    .update = &sgrad_soap_kernel,
    .needs_full_tensor = true,
    .expensive = true,
    .states = (const struct sgrad_state[]){ { .name = "exp_avg" },
                                            { .name = "exp_avg_sq" },
                                            { .name = "left", .shape = left },
                                            { .name = "right", .shape = right },
                                            { .name = "left_basis", .shape = left },
                                            { .name = "right_basis", .shape = right },
                                            { 0 } },
};
