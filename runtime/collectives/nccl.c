/* nccl.c: an allreduce by one call of NVIDIA's NCCL, ncclAllReduce, on the first GPU of each rank.
 *
 *                  rank 0     rank 1     rank 2
 *     start        A0 B0      A1 B1      A2 B2            in the memory of each rank's GPU
 *     one call     A*  B*     A*  B*     A*  B*           the library chooses the algorithm and the links: NVLink, PCIe, network
 *
 * Limits: it includes all ranks, and each must have a different GPU. It is used only if selected by name, because its cost is an
 * estimate: links between GPUs are not measured, so the cost assumes the network between the main memories of the ranks. The
 * order of additions is unknown. */
#include "config.h"
#include "runtime/collectives/internal.h"

const struct sgrad_collective sgrad_nccl_allreduce = {
    .name = "nccl",
    .kind = SGRAD_ALLREDUCE,
    .summary = "one ncclAllReduce call, on one GPU per rank; never chosen automatically",
    .source = "NCCL 2, ncclAllReduce",
    .library = "NCCL",
    .on_gpus = true,
    .cost = sgrad__library_cost,
    .chunks = sgrad__library_chunks,
    .schedule = sgrad__library_schedule,
};
