/* combine.c: returns the results of experts, which are divided over the ranks of an axis, to the ranks of their rows, and sums
 * those of a row; the inverse of dispatch.c. Two ranks, with the rows of its figure:
 *
 *     rank    0                    1                            0            1
 *     x       a0 b01 · | d1 e1 ·   a2 c23 · | d3 e2 f23   ->    y a0+a2 b01 c23    d1+d3 e1+e2 f23
 *
 * x is (N,P·T,C) on P ranks, input 1 the weights of the experts at home (N,T,E), input 2 those at the experts (N,P·T,E/P), from
 * dispatch; y is (N,T,C). In backward, the gradient of a row is sent to the ranks of its experts.
 *
 * Source: D. Lepikhin et al., GShard: scaling giant models with conditional computation and automatic sharding, 2020. */
#include "config.h"
#include "codelets/ops/combine.h"
#include "codelets/ops/routes.h"

static int infer(struct sgrad_signature *signature, void *attributes) {
    const struct sgrad_combine *attrs = attributes;
    signature->shard_use = (double)attrs->share;
    return sgrad__infer_combine(signature, attrs->axis);
}

static void place(const struct sgrad_args *args) { sgrad__routes_place(args, NULL, false); }

static void describe(const void *attributes, char *text, size_t size) {
    snprintf(text, size, "over %s", ((const struct sgrad_combine *)attributes)->axis);
}

const struct sgrad_op sgrad_combine_op = {
    .name = "combine",
    .summary = "results of experts, summed for each row, on the ranks of a mesh axis that have the rows",
    .source = "D. Lepikhin et al., GShard: scaling giant models with conditional computation and automatic sharding, 2020",
    .inputs = 3,
    .attrs_size = sizeof(struct sgrad_combine),
    .infer = infer,
    .describe = describe,
    .forward = { { .kernel = { .name = "combine cut", .kind = &sgrad_forward_kind, .cpu = sgrad__routes_cut,
                               .flops = sgrad_no_flops },
                   .use = { SGRAD_IN(X, 0), SGRAD_IN(X, 2), SGRAD__SHARDS(SGRAD_OUT) } },
                 SGRAD__EXCHANGE(combine, forward),
                 { .kernel = { .name = "combine sum", .kind = &sgrad_forward_kind, .cpu = sgrad__routes_sum,
                               .flops = sgrad_no_flops },
                   .use = { SGRAD__SHARDS(SGRAD_IN), SGRAD_IN(X, 1), SGRAD_OUT(Y, 0) } } },
    .backward = { { .kernel = { .name = "combine pack", .kind = &sgrad_backward_kind, .cpu = sgrad__routes_pack,
                                .flops = sgrad_no_flops },
                    .use = { SGRAD_IN(DY, 0), SGRAD_IN(X, 1), SGRAD__SHARDS(SGRAD_OUT) } },
                  SGRAD__EXCHANGE(combine, backward),
                  { .kernel = { .name = "combine place", .kind = &sgrad_backward_kind, .cpu = place, .flops = sgrad_no_flops },
                    .use = { SGRAD__SHARDS(SGRAD_IN), SGRAD_OUT(DX, 0) } } },
    .tests = { { "alone, 7 samples of 5 rows", .x = { { 3, { 7, 5, 3 } }, { 3, { 7, 5, 4 } }, { 3, { 7, 5, 4 } } },
                 &(struct sgrad_combine){ .axis = "expert" } } },
};
