/* list.c: the table of all operations of codelets.def, and its search function. */
#include "config.h"
#include "codelets/kernels.h"
#include "codelets/operations.h"

static const struct sgrad_op *const built_in[] = {
#define SGRAD_OP(name, ...) &sgrad_##name##_op,
#include "codelets/codelets.def"
#undef SGRAD_OP
    NULL,
};
const struct sgrad_op *const *sgrad_ops = built_in;

const struct sgrad_op *sgrad_op_find(const char *name) {
    for (const struct sgrad_op *const *op = sgrad_ops; *op; op++)
        if (!strcmp((*op)->name, name)) return *op;
    return NULL;
}
