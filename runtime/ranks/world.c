/* world.c: the rank of this process, the number of ranks, and the abort of all ranks. */
#include "config.h"
#include "runtime/internal.h"
#include "runtime/runtime.h"

#include <mpi.h>
#include <starpu_mpi.h>
#include <stdlib.h>

struct sgrad__world sgrad__world = { .ranks = 1, .ranks_here = 1 };

bool sgrad__launched(void) {
    const char *size = getenv("OMPI_COMM_WORLD_SIZE");
    if (SGRAD_SIMULATED) return false;
    if (!size && getenv("PMI_RANK")) size = getenv("PMI_SIZE");
    return size ? atoi(size) > 1 : getenv("PMIX_RANK") || getenv("PMI_RANK");
}

int sgrad_launched_rank(void) {
    if (SGRAD_SIMULATED) return starpu_mpi_world_rank();
    static const char *const says[] = { "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK" };
    for (size_t i = 0; i < sizeof says / sizeof *says; i++)
        if (getenv(says[i])) return atoi(getenv(says[i]));
    return 0;
}

int sgrad_launched_ranks(void) {
    if (SGRAD_SIMULATED) return starpu_mpi_world_size();
    static const char *const says[] = { "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "PALS_NRANKS", "PMI_SIZE" };
    if (!sgrad__launched()) return 1;
    for (size_t i = 0; i < sizeof says / sizeof *says; i++)
        if (getenv(says[i])) return atoi(getenv(says[i]));
    return 1;
}

void sgrad_ranks_abort(int status) {
    if (sgrad__world.ranks == 1) return;
    if (!SGRAD_SIMULATED) sgrad__early_flush();
    MPI_Abort(MPI_COMM_WORLD, status);
}
