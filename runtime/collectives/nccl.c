/* nccl.c: NVIDIA's NCCL does it: one call of ncclAllReduce, on the first GPU of each rank.
 *
 *                  rank 0     rank 1     rank 2
 *     start        A0 B0      A1 B1      A2 B2            each in its GPU's memory
 *     one call     A*  B*     A*  B*     A*  B*           what happens inside is the library's affair: NVLink, PCIe, networks
 *
 * Limits: all ranks or none, each with a GPU of its own; taken by its name only, since its cost, on links that are not measured,
 * is a guess: that of a library on the network that there is between ranks' main memories. The order of sums is unknown. */
#include "config.h"
#include "runtime/collectives/internal.h"

static int chunks(double bytes, const struct sgrad_network *net) {
    (void)bytes, (void)net;
    return 1;
}

static void schedule(struct sgrad_plan *plan, int rank, const struct sgrad_network *net) {
    (void)net;
    plan->chunks = 1;
    sgrad_plan_add(plan, SGRAD_WHOLE_ON_GPUS, rank, 0);
}

const struct sgrad_collective sgrad_nccl_allreduce = {
    .name = "nccl",
    .kind = SGRAD_ALLREDUCE,
    .summary = "one call of ncclAllReduce, on a GPU of each rank; taken by name only",
    .source = "NCCL 2, ncclAllReduce",
    .library = "NCCL",
    .on_gpus = true,
    .cost = sgrad__library_cost,
    .chunks = chunks,
    .schedule = schedule,
};
