/* dispatch.c: sends the rows of each rank to the ranks of their experts, which are divided over an axis (routes.h). Two ranks, of
 * which rank 0 has experts 0 and 1, and rank 1 experts 2 and 3; the digits are a row's experts:
 *
 *     rank    0                  1                          0                          1
 *     x       a02 b01 c23        d13 e12 f23   ->   y       a b · | d e ·              a c · | d e f
 *
 * x is (N,T,C), the weights of the experts are (N,T,E), and y is (N,P·T,C) on P ranks: T rows from each, of which the last ones
 * are unused. A row is sent once to a rank, even if several experts of this rank use it. In backward, gradients of the rows
 * return, and are summed.
 *
 * With .columns, x is the weights themselves, and y (N,P·T,E/P) those of the rank's experts; unused rows are 0.
 *
 * Source: D. Lepikhin et al., GShard: scaling giant models with conditional computation and automatic sharding, 2020. */
#include "config.h"
#include "codelets/ops/dispatch.h"
#include "codelets/ops/routes.h"

static int infer(struct sgrad_signature *signature, void *attributes) {
    const struct sgrad_dispatch *attrs = attributes;
    SGRAD_TRY(sgrad__infer_dispatch(signature, attrs->axis, attrs->columns));
    signature->shard_use = (double)attrs->share;
    if (signature->axis)
        signature->saved[0] =
            (struct sgrad_view){ SGRAD_I32, { 2, { signature->y.shape.dim[0], signature->axis->ranks } } };
    return 0;
}

static void place(const struct sgrad_args *args) {
    enum { NUMBERS = SGRAD_MAX_INPUTS + 1 };
    sgrad__routes_place(args, args->data[NUMBERS], ((const struct sgrad_dispatch *)args->attrs)->columns);
}

static void describe(const void *attributes, char *text, size_t size) {
    const struct sgrad_dispatch *attrs = attributes;
    snprintf(text, size, "over %s%s", attrs->axis, attrs->columns ? ", weights" : "");
}

const struct sgrad_op sgrad_dispatch_op = {
    .name = "dispatch",
    .summary = "rows of all ranks of a mesh axis, on the ranks that have their experts",
    .source = "D. Lepikhin et al., GShard: scaling giant models with conditional computation and automatic sharding, 2020",
    .inputs = 2,
    .attrs_size = sizeof(struct sgrad_dispatch),
    .infer = infer,
    .describe = describe,
    .forward = { { .kernel = { .name = "dispatch pack", .kind = &sgrad_forward_kind, .cpu = sgrad__routes_pack,
                               .flops = sgrad_no_flops },
                   .use = { SGRAD_IN(X, 0), SGRAD_IN(X, 1), SGRAD__SHARDS(SGRAD_OUT) } },
                 SGRAD__EXCHANGE(dispatch, forward),
                 { .kernel = { .name = "dispatch place", .kind = &sgrad_forward_kind, .cpu = place, .flops = sgrad_no_flops },
                   .use = { SGRAD__SHARDS(SGRAD_IN), SGRAD_OUT(Y, 0), SGRAD_OUT(SAVED, 0) } } },
    .backward = { { .kernel = { .name = "dispatch cut", .kind = &sgrad_backward_kind, .cpu = sgrad__routes_cut,
                                .flops = sgrad_no_flops },
                    .use = { SGRAD_IN(DY, 0), SGRAD_IN(SAVED, 0), SGRAD__SHARDS(SGRAD_OUT) } },
                  SGRAD__EXCHANGE(dispatch, backward),
                  { .kernel = { .name = "dispatch sum", .kind = &sgrad_backward_kind, .cpu = sgrad__routes_sum,
                                .accumulates = true, .flops = sgrad_no_flops },
                    .use = { SGRAD__SHARDS(SGRAD_IN), SGRAD_IN(X, 1), SGRAD_OUT(DX, 0) } } },
    .tests = { { "alone, 7 samples of 5 rows", .x = { { 3, { 7, 5, 3 } }, { 3, { 7, 5, 4 } } },
                 &(struct sgrad_dispatch){ .axis = "expert" } } },
};
