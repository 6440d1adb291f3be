/* async.c: every rank pushes its gradients when they are complete, and continues with the weights after its push. No rank waits
 * for another one, except for the servers (graphs/engine/server.c), which update in the order of arrival:
 *
 *     rank 0   gradients ──> server: update │        │ ──> weights         the staleness of a gradient is the number of updates
 *     rank 1           gradients ──> server:│ update │ ────> weights       between its weights and its update
 *
 * Limits: an update uses the gradient of one rank's local batch, not of the whole batch, so the learning rate may have to be
 * tuned. The number of steps that a rank may be ahead is limited by the steps in flight (--staleness). */
#include "graphs/compiler/builder.h"

static void exchange(struct sgrad_builder *builder, struct sgrad_bucket *bucket, int number, const char *name) {
    sgrad__add_push(builder, bucket, 1, number, name);
}

static int one(const struct sgrad_program_options *options) { return (void)options, 1; }

const struct sgrad_strategy sgrad_async_strategy = {
    .name = "async",
    .summary = "asynchronous parameter servers: each rank pushes gradients and pulls weights independently",
    .source = "Dean et al., Large scale distributed deep networks, 2012",
    .options = (const char *const[]){ "servers", "staleness", NULL },
    .uses_servers = true,
    .asynchronous = true,
    .ranks = one,
    .exchange = exchange,
};
