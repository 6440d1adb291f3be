/* sync.c: every rank has the sum of all gradients, and does every update.
 *
 *     rank 0   gradients ─┐           ┌─ sum   update
 *     rank 1   gradients ─┼ allreduce ┼─ sum   update
 *     rank 2   gradients ─┘           └─ sum   update
 *
 * Where updates are much work one rank does each, and tells the others what became of the weights (dealing.c). */
#include "graphs/programs/builder.h"

static void exchange(struct sgrad__builder *b, struct sgrad__bucket *bucket, int number, const char *name) {
    sgrad__bucket_sum(b, bucket, b->o->allreduce, SGRAD__PRIORITY_UPDATE + number, name);
    sgrad__bucket_join(b, bucket, name);
}

static int all(const struct sgrad__program_options *o) { return sgrad__peer_count(o); }

const struct sgrad_strategy sgrad_sync_strategy = {
    .name = "sync",
    .summary = "all ranks add their gradients by --allreduce, and update alike",
    .options = (const char *const[]){ "allreduce", NULL },
    .deals = true,
    .ranks = all,
    .exchange = exchange,
};
