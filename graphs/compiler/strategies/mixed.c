/* mixed.c: synchronous within groups of --group ranks, asynchronous between groups (Campos et al. 2017: the ranks of a node are a
 * group). The first rank of a group communicates with the servers:
 *
 *     group 0   ranks 0 1   gradients, sum ──> server: update │ ──> rank 0 ──> 1
 *     group 1   ranks 2 3        gradients, sum ──> server:   │ update ──> rank 2 ──> 3
 *
 * Limits: as async.c, with fewer and better gradients. */
#include "graphs/compiler/builder.h"

static int group(const struct sgrad_program_options *options) { return options->group_ranks; }

static void exchange(struct sgrad_builder *builder, struct sgrad_bucket *bucket, int number, const char *name) {
    sgrad__add_push(builder, bucket, group(builder->o), number, name);
}

const struct sgrad_strategy sgrad_mixed_strategy = {
    .name = "mixed",
    .summary = "synchronous within groups of --group ranks, asynchronous between groups",
    .source = "Campos et al., Distributed training strategies for a computer vision deep learning algorithm, 2017",
    .options = (const char *const[]){ "servers", "group", "staleness", NULL },
    .uses_servers = true,
    .asynchronous = true,
    .ranks = group,
    .exchange = exchange,
};
