/* async.c: every rank pushes its gradients when it has them, and goes on with the weights that its push leads to. Nobody waits
 * for anybody but the servers (graphs/runs/server.c), who update in the order of arrival:
 *
 *     rank 0   gradients ──> server: update │        │ ──> weights            a gradient is as stale as there were updates
 *     rank 1           gradients ──> server:│ update │ ────> weights          between its weights and its own update
 *
 * Limits: the optimizer sees the gradient of a rank's share at a time, not of the batch: the learning rate may want tuning. How
 * far ahead a rank may run is bounded by the steps in flight (--staleness). */
#include "graphs/programs/builder.h"

static void exchange(struct sgrad__builder *b, struct sgrad__bucket *bucket, int number, const char *name) {
    sgrad__add_push(b, bucket, 1, number, name);
}

static int one(const struct sgrad__program_options *o) { return (void)o, 1; }

const struct sgrad_strategy sgrad_async_strategy = {
    .name = "async",
    .summary = "each rank pushes gradients to the servers and pulls weights when it is ready",
    .source = "Dean et al., Large scale distributed deep networks, 2012",
    .options = (const char *const[]){ "servers", "staleness", NULL },
    .sharded = true,
    .served = true,
    .ranks = one,
    .exchange = exchange,
};
