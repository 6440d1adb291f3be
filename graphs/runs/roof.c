/* roof.c: the most that each worker can do: arithmetic, by a matrix product that stays in its caches, and memory, by a sum of
 * arrays that do not fit into any. Every worker is busy with the same at once. Source: Williams, Waterman, Patterson, "Roofline:
 * An Insightful Visual Performance Model for Multicore Architectures", Communications of the ACM 52(4), 2009. */
#include "graphs/runs/run.h"
#include "codelets/ops/linear.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = 512, ELEMENTS = 16 << 20 };

static struct sgrad_call product(enum sgrad_dtype dtype) {
    static const struct sgrad_batch batch = { SIDE, SIDE, SIDE };
    static const struct sgrad_linear attrs = { .features = SIDE };
    struct sgrad_call c = {
        .kernel = &sgrad_linear_op.forward[0].kernel, .attrs = &attrs, .operands = 4, .batch = &batch
    };
    for (int i = 0; i < c.operands; i++) {
        c.view[i] = (struct sgrad_view){ i == 1 ? SGRAD_F32 : dtype, sgrad_shape(2, SIDE, SIDE) };
        c.access[i] = i < 3 ? SGRAD_R : SGRAD_W;
    }
    c.view[2].shape.rank = -1;      /* no bias */
    return c;
}

static struct sgrad_call addition(void) {
    struct sgrad_call c = { .kernel = &sgrad_sum_kernel, .operands = SGRAD_SUM_INPUTS + 1 };
    for (int i = 0; i < c.operands; i++) {
        c.view[i] = (struct sgrad_view){ SGRAD_F32, sgrad_shape(1, ELEMENTS) };
        c.access[i] = i < SGRAD_SUM_INPUTS ? SGRAD_R : SGRAD_W;
        if (i > 1 && i < SGRAD_SUM_INPUTS) c.view[i].shape.rank = -1;
    }
    return c;
}

int sgrad__roof_measure(enum sgrad_precision precision, struct sgrad__roof *roof) {
    struct sgrad_call call[] = { product(precision == SGRAD_PRECISION_BF16 ? SGRAD_BF16 : SGRAD_F32), addition() };
    double *result[] = { roof->flops, roof->bytes };
    roof->workers = sgrad_workers();
    for (int i = 0; i < 2; i++) {
        sgrad_call_prepare(&call[i]);
        SGRAD_TRY(sgrad_call_time(&call[i], &(struct sgrad_step){ .training = true }, result[i]));
        const double amount = 1e-9 * (i ? call[i].bytes : call[i].flops);
        for (int w = 0; w < roof->workers; w++) result[i][w] = amount / result[i][w];
    }
    return 0;
}

int sgrad__roof_write(const struct sgrad__run *r) {
    struct sgrad__roof own = { 0 };
    json_t *all = json_array();
    SGRAD_TRY(sgrad__roof_measure(r->options.precision, &own));
    for (int rank = 0; rank < r->context->ranks; rank++) {
        struct sgrad__roof its = own;
        sgrad_ranks_broadcast(&its, sizeof its, rank);
        for (int w = 0; w < its.workers; w++)
            json_array_append_new(all, json_pack("{s:i, s:i, s:f, s:f}", "rank", rank, "worker", w, "gflops", its.flops[w],
                                                 "gbytes", its.bytes[w]));
    }
    char *path = sgrad_format("%s/trace/roof.json", r->folder ? r->folder : "");
    if (r->context->rank == 0 && json_dump_file(all, path, JSON_INDENT(1)))
        sgrad_warn("%s: cannot be written: %s", path, strerror(errno));
    free(path);
    json_decref(all);
    return 0;
}
