/* shard_parameters.c: every rank stores only its share of weights, gradients and optimizer states. Weights are gathered, bucket
 * by bucket, before layers use them, in forward and once more in backward. Gradients are reduced and scattered, and a rank
 * updates its share of the weights; updated weights are not sent. Three layers a, b and c on two ranks:
 *
 *     rank 0   a│ b│ c│ ─┐ all_     ┌─ a a ─ forward a ─┐ freed;  … b b, c c ─ loss ─ backward c, b b, a a
 *     rank 1   │a │b │c ─┘ gather   └─ a a ─ forward a ─┘ gathered again, in reverse order
 *
 *     gradients of b   b b ─┐ reduce_   ┌─ b│ ─ update b│         memory of gradients of a few layers
 *     gradients of b   b b ─┘ scatter   └─ │b ─ update │b
 *
 * All micro-batches of a rank are computed layer by layer, as with batch norm over the batch of a rank. A step therefore
 * gathers weights twice and scatters gradients once, 3/2 of the bytes of --shard optimizer, for any number of micro-batches,
 * and gradients are summed over them before they are scattered. The alternative, micro-batch by micro-batch, has fewer
 * activations in memory, but would send all of this once per micro-batch. passes/gathering.c adds the all_gathers.
 *
 * If the optimizer needs whole parameters, a share consists of some of these (load_balance.c).
 *
 * Limits: activations of all micro-batches are in memory, unless they are recomputed. Running statistics are on every rank, and
 * so are parameters that several pipeline stages use. Rank 0 has all weights and states in main memory while it reads or copies
 * a checkpoint.
 *
 * (S. Rajbhandari et al., ZeRO: memory optimizations toward training trillion parameter models, 2020, stage 3; Y. Zhao et al.,
 * PyTorch FSDP: experiences on scaling fully sharded data parallel, 2023.) */
#include "graphs/compiler/builder.h"

static void exchange(struct sgrad_builder *builder, struct sgrad_bucket *bucket, int number, const char *name) {
    sgrad__bucket_share(builder, bucket, SGRAD__PRIORITY_UPDATE + number, name);
}

static int all(const struct sgrad_program_options *options) { return sgrad__peer_count(options); }

const struct sgrad_strategy sgrad_shard_parameters_strategy = {
    .name = "shard_parameters",
    .summary = "like shard, with weights sharded over the ranks as well (ZeRO stage 3, FSDP)",
    .source = "S. Rajbhandari et al., ZeRO: memory optimizations toward training trillion parameter models, 2020",
    .options = (const char *const[]){ NULL },
    .shards_optimizer = true,
    .shards_parameters = true,
    .ranks = all,
    .exchange = exchange,
};
