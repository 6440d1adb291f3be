/* cores.c: assigns cores and GPUs of a host to its ranks.
 *
 * A launcher binds each rank to different cores, or allows several ranks to use the same cores. Ranks of a host that may run on
 * the same CPUs get equal slices of these cores, with all hardware threads of each core. Two ranks on two cores with two hardware
 * threads each, as Linux usually numbers them:
 *
 *     core       0     1
 *     CPUs      0 2   1 3
 *     rank 0    ───                not CPUs 0 and 1, each of which is half of a core
 *     rank 1          ───
 *
 * With fewer cores than ranks, the hardware threads are divided; if there are fewer of them as well, all ranks use all.
 *
 * GPUs are assigned by the number of the rank on its host, the same number to each rank. With fewer GPUs than ranks, several
 * ranks use the same GPU:
 *
 *     GPU        0  1  2  3          GPU        0  1
 *     rank 0     ────                rank 0     ─
 *     rank 1           ────          rank 1        ─
 *                                    rank 2     ─
 *
 * Limits: overlapping masks that are not equal are left as the launcher set them. A host may have at most 4096 CPUs. */
#include "config.h"
#include "runtime/internal.h"
#include "runtime/runtime.h"

#include <hwloc.h>
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS = 4096 / (8 * sizeof(unsigned long)) };
struct mask {
    unsigned long word[WORDS];
};

static int count(hwloc_topology_t topology, hwloc_obj_type_t type, hwloc_const_cpuset_t mask) {
    int n = 0;
    for (hwloc_obj_t o = NULL; (o = hwloc_get_next_obj_by_type(topology, type, o));)
        n += hwloc_bitmap_intersects(o->cpuset, mask);
    return n;
}

/* Sets SLICE to the I-th of N slices of MASK's cores, or of their hardware threads; to MASK if there are fewer than N of both. */
static void slice_of(hwloc_topology_t topology, hwloc_const_cpuset_t mask, int i, int n, hwloc_cpuset_t slice) {
    const hwloc_obj_type_t type = count(topology, HWLOC_OBJ_CORE, mask) >= n ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
    const int all = count(topology, type, mask);
    int seen = 0;
    if (all >= n) hwloc_bitmap_zero(slice);
    else hwloc_bitmap_fill(slice);
    for (hwloc_obj_t o = NULL; all >= n && (o = hwloc_get_next_obj_by_type(topology, type, o));)
        if (hwloc_bitmap_intersects(o->cpuset, mask) && seen++ * n / all == i) hwloc_bitmap_or(slice, slice, o->cpuset);
    hwloc_bitmap_and(slice, slice, mask);
}

int sgrad__cores_share(hwloc_topology_t topology, hwloc_bitmap_t const *mask, int ranks, int rank, hwloc_bitmap_t slice) {
    int alike = 0, before = 0;
    for (int r = 0; r < ranks; r++) {
        const bool same = hwloc_bitmap_isequal(mask[r], mask[rank]);
        alike += same;
        before += same && r < rank;
    }
    slice_of(topology, mask[rank], before, alike, slice);
    const bool shared = alike > 1 && hwloc_bitmap_isequal(slice, mask[rank]);
    const int cores = count(topology, HWLOC_OBJ_CORE, slice);
    return shared || !cores ? 1 : cores;
}

/* Returns the masks of all ranks of this host, by rank. The caller must free each mask and the array. */
static hwloc_bitmap_t *gather_masks(hwloc_topology_t topology, MPI_Comm here, int ranks) {
    struct mask own, *of = sgrad_xcalloc((size_t)ranks, sizeof *of);
    hwloc_bitmap_t *mask = sgrad_xcalloc((size_t)ranks, sizeof *mask);
    for (int r = 0; r < ranks; r++) mask[r] = hwloc_bitmap_alloc();
    hwloc_get_cpubind(topology, mask[0], HWLOC_CPUBIND_THREAD);
    for (unsigned i = 0; i < WORDS; i++) own.word[i] = hwloc_bitmap_to_ith_ulong(mask[0], i);
    MPI_Allgather(&own, sizeof own, MPI_BYTE, of, sizeof own, MPI_BYTE, here);
    for (int r = 0; r < ranks; r++) {
        hwloc_bitmap_zero(mask[r]);
        for (unsigned i = 0; i < WORDS; i++) hwloc_bitmap_set_ith_ulong(mask[r], i, of[r].word[i]);
    }
    free(of);
    return mask;
}

int sgrad__gpus_share(int all, int wanted, int ranks, int rank, unsigned *gpu) {
    const int equal = all >= ranks ? all / ranks : 1, own = wanted >= 0 ? wanted : equal;
    if (own > all) return 0;
    for (int i = 0; i < own; i++) gpu[i] = (unsigned)((rank * own + i) % all);
    return own;
}

int sgrad__cores_claim(int *cores) {
    hwloc_topology_t topology;
    MPI_Comm here;
    int rank, ranks;
    if (hwloc_topology_init(&topology) || hwloc_topology_load(topology))
        return sgrad_log_error(SGRAD_EDEVICE, "hwloc cannot find the cores of this host; see 'stargrad doctor'");
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &here);
    MPI_Comm_rank(here, &rank);
    MPI_Comm_size(here, &ranks);
    sgrad__world.rank_here = rank, sgrad__world.ranks_here = ranks;
    hwloc_bitmap_t *mask = gather_masks(topology, here, ranks), slice = hwloc_bitmap_alloc();
    MPI_Comm_free(&here);
    *cores = sgrad__cores_share(topology, mask, ranks, rank, slice);
    if (!hwloc_bitmap_isequal(slice, mask[rank])) hwloc_set_cpubind(topology, slice, HWLOC_CPUBIND_THREAD);
    for (int r = 0; r < ranks; r++) hwloc_bitmap_free(mask[r]);
    hwloc_bitmap_free(slice);
    free(mask);
    hwloc_topology_destroy(topology);
    return 0;
}
