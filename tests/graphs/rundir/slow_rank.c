/* The rank that computes for longer than the others, by the busy fractions of the workers of four ranks with two workers each. */
#include "graphs/compiler/program.h"
#include "graphs/rundir/rundir.h"
#include "tests/asserts.h"

enum { RANKS = 4, WORKERS = 2 * RANKS, WINDOW = 20 };

static char *name[WORKERS] = { "rank0/cpu0", "rank0/cpu1", "rank1/cpu0", "rank1/cpu1",
                               "rank2/cpu0", "rank2/cpu1", "rank3/cpu0", "rank3/cpu1" };
static struct sgrad__workers workers = { .count = WORKERS, .name = name };

/* Adds windows in which the ranks are busy for these fractions. Returns the last rank that was reported; -1: none. */
static int add(struct sgrad__slow_rank *slow, int windows, const double share[RANKS], double *times) {
    int reported = -1;
    for (int step = 0; step < windows * WINDOW; step++) {
        double busy[WORKERS];
        for (int i = 0; i < WORKERS; i++) busy[i] = share[i / 2];
        const int rank = sgrad__slow_rank_add(slow, busy, times);
        if (rank >= 0) reported = rank;
    }
    return reported;
}

static const double even[] = { 0.9, 0.85, 0.9, 0.8 }, third[] = { 0.4, 0.5, 0.95, 0.4 }, first[] = { 0.9, 0.3, 0.3, 0.3 },
                    idle[] = { 0.1, 0.1, 0.4, 0.1 };

static void a_slow_rank_is_named_once(void **state) {
    (void)state;
    double times = 0;
    struct sgrad__slow_rank *slow = sgrad__slow_rank_open(&workers);
    assert_int_equal(add(slow, 1, third, &times), -1);
    assert_int_equal(add(slow, 1, third, &times), 2);
    assert_true(times > 2.3 && times < 2.4);
    assert_int_equal(add(slow, 5, third, &times), -1);
    sgrad__slow_rank_close(slow);
}

static void it_is_named_again_after_it_was_not_slow(void **state) {
    (void)state;
    double times;
    struct sgrad__slow_rank *slow = sgrad__slow_rank_open(&workers);
    assert_int_equal(add(slow, 2, third, &times), 2);
    assert_int_equal(add(slow, 1, even, &times), -1);
    assert_int_equal(add(slow, 2, third, &times), 2);
    assert_int_equal(add(slow, 2, first, &times), 0);
    sgrad__slow_rank_close(slow);
}

static void ranks_that_wait_for_something_else_are_not_slow(void **state) {
    (void)state;
    double times;
    struct sgrad__slow_rank *slow = sgrad__slow_rank_open(&workers);
    assert_int_equal(add(slow, 4, even, &times), -1);
    assert_int_equal(add(slow, 4, idle, &times), -1);
    for (int i = 0; i < 4; i++) {       /* never the same one twice in succession */
        assert_int_equal(add(slow, 1, third, &times), -1);
        assert_int_equal(add(slow, 1, first, &times), -1);
    }
    sgrad__slow_rank_close(slow);
}

/* Rank 0 has a GPU and three cores, which have nothing to do; rank 1 has one core, and waits. Then rank 1 is the slow one. */
static void ranks_of_different_hosts_are_compared(void **state) {
    (void)state;
    static char *mixed[] = { "rank0/cuda0", "rank0/cpu0", "rank0/cpu1", "rank0/cpu2", "rank1/cpu0" };
    static const double of_gpu[] = { 0.95, 0, 0.01, 0.02, 0.3 }, of_core[] = { 0.3, 0.3, 0.3, 0.3, 0.95 };
    struct sgrad__workers all = { .count = 5, .name = mixed };
    struct sgrad__slow_rank *slow = sgrad__slow_rank_open(&all);
    double times;
    int reported = -1;
    for (int step = 0; step < 4 * WINDOW; step++) {
        const int rank = sgrad__slow_rank_add(slow, step < 2 * WINDOW ? of_gpu : of_core, &times);
        if (rank < 0) continue;
        assert_int_equal(rank, step < 2 * WINDOW ? 0 : 1);
        assert_true(times > 3.1 && times < 3.2);
        reported = rank;
    }
    assert_int_equal(reported, 1);
    sgrad__slow_rank_close(slow);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        sentence("a rank that computes for longer than the others is named once", a_slow_rank_is_named_once),
        sentence("a slow rank is named again after it was not slow", it_is_named_again_after_it_was_not_slow),
        sentence("ranks with different workers are compared by their busiest ones", ranks_of_different_hosts_are_compared),
        sentence("ranks that wait, or that are slow in turn, are not named", ranks_that_wait_for_something_else_are_not_slow),
    };
    return run_sentences(argc, argv, tests, NULL, NULL);
}
