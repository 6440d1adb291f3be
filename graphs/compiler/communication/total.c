/* total.c: a program that sums a tensor over all ranks.
 *
 *     every rank   tensor ─> plan ─> the program's statistics                  (F64) */
#include "graphs/compiler/builder.h"

struct sgrad__program *sgrad__total_build(const struct sgrad_program_options *options, struct sgrad_tensor *tensor) {
    struct sgrad__program *p = sgrad__program_create();
    struct sgrad_builder b = { .p = p, .o = options, .norm = -1 };
    const struct sgrad_group all = sgrad__peers(&b, 0, sgrad__peer_count(options));
    const int total = sgrad__add_collective(&b, SGRAD_ALLREDUCE, &all, -1, sgrad__lend_buffer(&b, tensor),
                                            SGRAD__PRIORITY_UPDATE, tensor->name);
    p->statistics = sgrad__add_output(&b, total);
    sgrad__mark_last_uses(p);
    return p;
}
