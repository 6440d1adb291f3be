/* roof.c: measures the maximum throughput of each worker: arithmetic, by a matrix product that fits into the caches of a core;
 * memory, by a sum of arrays that do not fit into any cache. All workers execute the same task concurrently. A product of 512
 * rows ends before a large GPU has started it on all of its multiprocessors; GPUs therefore get larger ones, of up to 4096 rows,
 * as long as these take less than a second. Source: Williams, Waterman, Patterson, "Roofline: An Insightful Visual Performance
 * Model for Multicore Architectures", Communications of the ACM 52(4), 2009. */
#include "graphs/costs/costs.h"
#include "codelets/ops/linear.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = 512, GPU_SIDE = 4096, ELEMENTS = 16 << 20 };
static const double PATIENCE = 1;   /* seconds */

/* The call refers to batch and attrs, which must remain valid as long as it is used. */
struct product {
    struct sgrad_batch batch;
    struct sgrad_linear attrs;
    struct sgrad_bound_kernel call;
};
static void make_product(struct product *product, enum sgrad_dtype dtype, int side) {
    struct sgrad_bound_kernel *c = &product->call;
    product->batch = (struct sgrad_batch){ side, side, side };
    product->attrs = (struct sgrad_linear){ .features = side };
    *c = (struct sgrad_bound_kernel){
        .kernel = &sgrad_linear_op.forward[0].kernel, .attrs = &product->attrs, .operands = 4, .batch = &product->batch
    };
    for (int i = 0; i < c->operands; i++) {
        c->view[i] = (struct sgrad_view){ i == 1 ? SGRAD_F32 : dtype, sgrad_shape(2, side, side) };
        c->access[i] = i < 3 ? SGRAD_R : SGRAD_W;
    }
    c->view[2].shape.rank = -1;     /* no bias */
    sgrad_bound_kernel_prepare(c);
}

static struct sgrad_bound_kernel addition(void) {
    struct sgrad_bound_kernel c = { .kernel = &sgrad_sum_kernel, .operands = SGRAD_SUM_INPUTS + 1 };
    for (int i = 0; i < c.operands; i++) {
        c.view[i] = (struct sgrad_view){ SGRAD_F32, sgrad_shape(1, ELEMENTS) };
        c.access[i] = i < SGRAD_SUM_INPUTS ? SGRAD_R : SGRAD_W;
        if (i > 1 && i < SGRAD_SUM_INPUTS) c.view[i].shape.rank = -1;
    }
    return c;
}

/* Measures RATE: 1e9 units per second of each of WORKERS; a CALL consists of AMOUNT units. */
static int measure(const struct sgrad_bound_kernel *call, double amount, enum sgrad_workers workers, double *rate) {
    double seconds[SGRAD_MAX_WORKERS];
    SGRAD_TRY(sgrad_bound_kernel_time_on(call, &(struct sgrad_step){ .training = true }, workers, seconds));
    for (int w = 0; w < sgrad_workers(); w++)
        if (workers == SGRAD_ANY_WORKER || sgrad_worker_is_cuda(w)) rate[w] = 1e-9 * amount / seconds[w];
    return 0;
}

/* Each size takes eight times the work of the preceding one, so that its time can be estimated. */
static int measure_gpus(enum sgrad_dtype dtype, double *rate) {
    struct product p;
    double took = 0;
    for (int side = SIDE; side <= GPU_SIDE && 8 * took < PATIENCE; side *= 2) {
        double larger[SGRAD_MAX_WORKERS];
        make_product(&p, dtype, side);
        const double start = sgrad_time_monotonic();
        SGRAD_TRY(measure(&p.call, p.call.flops, SGRAD_GPU_WORKERS, larger));
        took = sgrad_time_monotonic() - start;
        for (int w = 0; w < sgrad_workers(); w++)
            if (sgrad_worker_is_cuda(w)) rate[w] = fmax(rate[w], larger[w]);
    }
    return 0;
}

int sgrad__roof_measure(enum sgrad_precision precision, struct sgrad__roof *roof) {
    const enum sgrad_dtype dtype = precision == SGRAD_PRECISION_BF16 ? SGRAD_BF16 : SGRAD_F32;
    struct sgrad_bound_kernel sum = addition();
    struct product p;
    roof->workers = sgrad_workers();
    make_product(&p, dtype, SIDE);
    SGRAD_TRY(measure(&p.call, p.call.flops, SGRAD_ANY_WORKER, roof->flops));
    if (sgrad_cuda_workers()) SGRAD_TRY(measure_gpus(dtype, roof->flops));
    sgrad_bound_kernel_prepare(&sum);
    return measure(&sum, sum.bytes, SGRAD_ANY_WORKER, roof->bytes);
}

int sgrad__roof_write(const struct sgrad__run *run) {
    struct sgrad__roof own = { 0 };
    json_t *all = json_array();
    SGRAD_TRY(sgrad__roof_measure(run->options.model.precision, &own));
    for (int rank = 0; rank < run->context->ranks; rank++) {
        struct sgrad__roof its = own;
        sgrad_ranks_broadcast(&its, sizeof its, rank);
        for (int w = 0; w < its.workers; w++)
            json_array_append_new(all, json_pack("{s:i, s:i, s:f, s:f}", "rank", rank, "worker", w, "gflops", its.flops[w],
                                                 "gbytes", its.bytes[w]));
    }
    char *path = sgrad_format("%s/trace/roof.json", run->files.folder ? run->files.folder : "");
    if (run->context->rank == 0 && json_dump_file(all, path, JSON_INDENT(1)))
        sgrad_log_warning("%s: cannot be written: %s", path, strerror(errno));
    free(path);
    json_decref(all);
    return 0;
}
