/* cores.c: which cores of its host are a rank's. */
#include "config.h"
#include "runtime/internal.h"
#include "runtime/runtime.h"

#include <mpi.h>
#include <sched.h>
#include <unistd.h>

/* Ranks that share a host, not bound by the launcher, share its cores: each takes its slice. */
int sgrad__cores_claim(void) {
    MPI_Comm here;
    cpu_set_t all, mine;
    int at, count, cores, seen = 0;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &here);
    MPI_Comm_rank(here, &at);
    MPI_Comm_size(here, &count);
    sched_getaffinity(0, sizeof all, &all);
    cores = CPU_COUNT(&all);
    int bound = cores < (int)sysconf(_SC_NPROCESSORS_ONLN), any;
    MPI_Allreduce(&bound, &any, 1, MPI_INT, MPI_MAX, here);
    MPI_Comm_free(&here);
    if (any || count == 1 || cores < count) return any || count == 1 ? cores : 1;
    CPU_ZERO(&mine);
    for (int c = 0; c < CPU_SETSIZE; c++)
        if (CPU_ISSET(c, &all) && seen++ * count / cores == at) CPU_SET(c, &mine);
    sched_setaffinity(0, sizeof mine, &mine);
    return CPU_COUNT(&mine);
}
