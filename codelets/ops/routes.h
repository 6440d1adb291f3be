/* routes.h: the tasks that operations dispatch and combine share. Private to codelets/.
 *
 * The E experts of a mixture are divided over the P ranks of an axis: rank i has experts i·E/P to (i+1)·E/P. The *routes* of a
 * rank are the weights of the experts (N,T,E) for its rows. A row is routed to the ranks of which an expert has a weight that is
 * not 0. The rows of a sample that are routed to rank i are its shard i, one after another in their order. A shard has room for
 * all rows, and starts with the number of its bytes in use, which are the only ones that are sent. A value is *at home* on the
 * rank of its rows; *at the experts*, a rank has the rows that are routed to it:
 *
 *     shard (N)     bytes in use  (SGRAD_LINE bytes) | row | row | row | unused …
 *
 * Every task computes each sample alone. */
#ifndef SGRAD_CODELETS_OPS_ROUTES_H
#define SGRAD_CODELETS_OPS_ROUTES_H

#include "codelets/kernels.h"

/* Shape rules. A value has (N,T,C) at home, and (N,P·T,C) at the experts: P blocks of T rows. Input 0 of dispatch is the value at
 * home, that of combine the value at the experts; input 1 is the routes. COLUMNS: the value is the routes, and (N,P·T,E/P) at the
 * experts. Sets the axis, the output, and the shard; s->view_of_input, if the mesh has no such axis or one rank along it.
 * SGRAD_ESHAPE: shapes do not fit; SGRAD_EINVAL: E is not a multiple of P, or P is above SGRAD_MAX_INPUTS. */
int sgrad__infer_dispatch(struct sgrad_signature *signature, const char *axis, bool columns);
int sgrad__infer_combine(struct sgrad_signature *signature, const char *axis);

/* CPU kernels; there are no CUDA kernels, because shards are sent as messages, which are in main memory. If the value is the
 * routes, a row of shard i has only the columns of the experts of rank i; kernels recognize this by its bytes.
 * pack: copies rows to the shards. Operands: value at home, routes; shards 0 … 7, absent after the last one.
 * place: copies rows of the shards to their blocks, and writes their NUMBERS (N,P), unless that is NULL. Unused rows remain
 * undefined, or with ZEROS become 0. Operands: shards 0 … 7; value at the experts.
 * cut: the inverse. Operands: value at the experts; the numbers, I32, or the weights (N,P·T,E/P) at the experts, whose unused
 * rows are 0; shards 0 … 7.
 * sum: for each row at home, sums its rows in the shards, in the order of the ranks. Operands: shards 0 … 7, routes; value at
 * home. */
void sgrad__routes_pack(const struct sgrad_args *args);
void sgrad__routes_place(const struct sgrad_args *args, int32_t *numbers, bool zeros);
void sgrad__routes_cut(const struct sgrad_args *args);
void sgrad__routes_sum(const struct sgrad_args *args);

#define SGRAD__SHARDS(in_or_out)                                                                                                 \
    in_or_out(SHARD, 0), in_or_out(SHARD, 1), in_or_out(SHARD, 2), in_or_out(SHARD, 3), in_or_out(SHARD, 4),                     \
        in_or_out(SHARD, 5), in_or_out(SHARD, 6), in_or_out(SHARD, 7)
/* The task that sends shard i to rank i and receives the shard of this rank from each; WHAT: the kind, e.g. forward. */
#define SGRAD__EXCHANGE(op, what)                                                                                                \
    { .kernel = { .name = #op " exchange", .kind = &sgrad_##what##_kind, .flops = sgrad_no_flops },                              \
      .move = SGRAD_MOVE_ALL_TO_ALL, .use = { SGRAD_IN(SHARD, 0), SGRAD_OUT(SHARD, 0) } }

#endif
