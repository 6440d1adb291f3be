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

const struct sgrad_collective sgrad_nccl_allreduce = {
    .name = "nccl",
    .kind = SGRAD_ALLREDUCE,
    .summary = "one call of ncclAllReduce, on a GPU of each rank; taken by name only",
    .source = "NCCL 2, ncclAllReduce",
    .library = "NCCL",
    .on_gpus = true,
    .cost = sgrad__library_cost,
    .chunks = sgrad__library_chunks,
    .schedule = sgrad__library_schedule,
};
