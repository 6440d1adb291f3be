/* Ranks of one host share its cores: whole cores while there are enough, unless the launcher has bound the ranks to different
 * cores. */
#include "config.h"
#include "runtime/internal.h"
#include "runtime/runtime.h"
#include "tests/asserts.h"

#include <hwloc.h>

enum { MOST = 20 };

/* Two packages of four cores of two threads, CPU n and n + 8, as Linux numbers them. */
#define USUAL "pack:2 core:4 pu:2(indexes=0,8,1,9,2,10,3,11,4,12,5,13,6,14,7,15)"

static hwloc_topology_t topology;
static hwloc_bitmap_t mask[MOST], slice[MOST];

static void machine(const char *description) {
    hwloc_topology_init(&topology);
    assert_int_equal(hwloc_topology_set_synthetic(topology, description), 0);
    assert_int_equal(hwloc_topology_load(topology), 0);
    for (int r = 0; r < MOST; r++) {
        mask[r] = hwloc_bitmap_dup(hwloc_topology_get_topology_cpuset(topology));
        slice[r] = hwloc_bitmap_alloc();
    }
}

static void end(void) {
    for (int r = 0; r < MOST; r++) {
        hwloc_bitmap_free(mask[r]);
        hwloc_bitmap_free(slice[r]);
    }
    hwloc_topology_destroy(topology);
}

static void is(hwloc_const_bitmap_t set, const char *cpus) {
    char text[256];
    hwloc_bitmap_list_snprintf(text, sizeof text, set);
    assert_string_equal(text, cpus);
}

/* The slices of so many ranks; returns the cores of the last. */
static int share(int ranks) {
    int cores = 0;
    for (int r = 0; r < ranks; r++) cores = sgrad__cores_share(topology, mask, ranks, r, slice[r]);
    return cores;
}

static void check_parts(int ranks) {
    const int cores = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE);
    const int threads = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PU);
    hwloc_bitmap_t all = hwloc_bitmap_alloc();
    for (int r = 0; r < ranks; r++) {
        const int own = sgrad__cores_share(topology, mask, ranks, r, slice[r]);
        assert_false(hwloc_bitmap_iszero(slice[r]));
        if (ranks <= threads) assert_false(hwloc_bitmap_intersects(all, slice[r]));
        if (ranks <= cores) assert_in_range(own, cores / ranks, cores / ranks + (cores % ranks != 0));
        else assert_in_range(own, 1, 2);
        for (hwloc_obj_t o = NULL; ranks <= cores && (o = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_CORE, o));)
            assert_true(hwloc_bitmap_isincluded(o->cpuset, slice[r]) || !hwloc_bitmap_intersects(o->cpuset, slice[r]));
        hwloc_bitmap_or(all, all, slice[r]);
    }
    assert_true(hwloc_bitmap_isequal(all, mask[0]));
    hwloc_bitmap_free(all);
}

static void every_number_of_ranks(void **state) {
    (void)state;
    const char *const machines[] = { USUAL, "pack:2 core:4 pu:2", "core:3 pu:1", "numa:2 core:2 pu:4", "pu:6", "core:1 pu:1" };
    for (size_t m = 0; m < sizeof machines / sizeof *machines; m++) {
        machine(machines[m]);
        for (int ranks = 1; ranks <= MOST; ranks++) check_parts(ranks);
        end();
    }
}

static void whole_cores(void **state) {
    (void)state;
    machine(USUAL);
    assert_int_equal(share(2), 4);
    is(slice[0], "0-3,8-11");
    is(slice[1], "4-7,12-15");
    assert_int_equal(share(3), 2);
    is(slice[0], "0-2,8-10");
    is(slice[2], "6-7,14-15");
    assert_int_equal(share(16), 1);
    is(slice[0], "0");
    is(slice[1], "8");
    assert_int_equal(share(17), 1);
    is(slice[16], "0-15");
    end();
}

/* A container that has three cores, of the second only one thread. */
static void inside_a_cpuset(void **state) {
    (void)state;
    machine(USUAL);
    for (int r = 0; r < MOST; r++) hwloc_bitmap_list_sscanf(mask[r], "2-4,10,12");
    assert_int_equal(share(3), 1);
    is(slice[0], "2,10");
    is(slice[1], "3");
    is(slice[2], "4,12");
    assert_int_equal(share(1), 3);
    is(slice[0], "2-4,10,12");
    end();
}

/* Four ranks, two on each package; then each on cores of its own, though these are not all that there are. */
static void what_the_launcher_bound(void **state) {
    (void)state;
    machine(USUAL);
    for (int r = 0; r < 4; r++) hwloc_bitmap_list_sscanf(mask[r], r % 2 ? "4-7,12-15" : "0-3,8-11");
    assert_int_equal(share(4), 2);
    is(slice[0], "0-1,8-9");
    is(slice[1], "4-5,12-13");
    is(slice[2], "2-3,10-11");
    is(slice[3], "6-7,14-15");
    hwloc_bitmap_list_sscanf(mask[0], "0-1");
    hwloc_bitmap_list_sscanf(mask[1], "2-4");
    assert_int_equal(share(2), 3);
    is(slice[0], "0-1");
    is(slice[1], "2-4");
    end();
}

static void gpus_of_ranks(void **state) {
    static const struct {
        int all, wanted, ranks, rank, own;
        unsigned first;
    } cases[] = {
        { 4, -1, 2, 0, 2, 0 }, { 4, -1, 2, 1, 2, 2 },       /* alike */
        { 2, -1, 3, 1, 1, 1 }, { 2, -1, 3, 2, 1, 0 },       /* fewer than ranks */
        { 4, 1, 2, 1, 1, 1 },  { 4, 3, 2, 1, 3, 3 },        /* as many as wanted, shared where there are not so many */
        { 2, 3, 2, 0, 0, 0 },                               /* more than there are */
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        unsigned gpu[4] = { 0 };
        assert_int_equal(sgrad__gpus_share(cases[i].all, cases[i].wanted, cases[i].ranks, cases[i].rank, gpu), cases[i].own);
        assert_int_equal(gpu[0], cases[i].first);
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        sentence("ranks of one host share all of its cores, and none is left out", every_number_of_ranks),
        sentence("ranks get whole cores while there are enough", whole_cores),
        sentence("ranks share only the cores of their container", inside_a_cpuset),
        sentence("ranks keep the cores to which the launcher has bound them", what_the_launcher_bound),
        sentence("ranks of one host share its GPUs", gpus_of_ranks),
    };
    return run_sentences(argc, argv, tests, NULL, NULL);
}
