/* mpi.c: an allreduce by one call of MPI_Iallreduce (MPI 4.0, section 6.12.8), for comparison.
 *
 *                  rank 0     rank 1     rank 2
 *     start        A0 B0      A1 B1      A2 B2
 *     one call     A*  B*     A*  B*     A*  B*          the algorithm is chosen by the library
 *
 * Limits: it is used only if selected by name. The order of additions is unknown, and may vary with library and length. */
#include "config.h"
#include "runtime/collectives/internal.h"

const struct sgrad_collective sgrad_mpi_allreduce = {
    .name = "mpi",
    .kind = SGRAD_ALLREDUCE,
    .summary = "one MPI_Iallreduce call, for comparison; never chosen automatically",
    .library = "MPI",
    .source = "MPI 4.0, section 6.12.8",
    .cost = sgrad__library_cost,
    .chunks = sgrad__library_chunks,
    .schedule = sgrad__library_schedule,
};
