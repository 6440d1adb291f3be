/* The solvers of integer programs that are built in: each chooses algorithms as good as brute force does. */
#include "config.h"
#include "planner/integer_program.h"
#include "planner/planner.h"
#include "tests/scratch.h"

enum { LAYERS = 5, WAYS = 4 };

/* The least seconds of all combinations that fit; INFINITY: none does. */
static double brute_force(const struct sgrad_algorithm *way, double bound, bool share) {
    double best = INFINITY;
    for (int all = 0; all < 1 << (2 * LAYERS); all++) {
        double seconds = 0, bytes = 0;
        for (int k = 0; k < LAYERS; k++) {
            const struct sgrad_algorithm *w = &way[k * WAYS + (all >> 2 * k & 3)];
            seconds += w->seconds;
            bytes = share ? fmax(bytes, w->bytes) : bytes + w->bytes;
        }
        if (bytes <= bound && seconds < best) best = seconds;
    }
    return best;
}

static void check_solver(const struct sgrad__solver *solver) {
    int infeasible = 0;
    srand(1);
    for (int again = 0; again < 60; again++) {
        struct sgrad_algorithm way[LAYERS * WAYS], *w = way;
        const bool share = again % 2;
        for (; w < way + LAYERS * WAYS; w++)
            *w = (struct sgrad_algorithm){ "", rand() % 7 ? 1e-3 * (1 + rand() % 1000) : INFINITY, 1e6 * (rand() % 100) };
        const double bound = 1e6 * (1 + rand() % (share ? 100 : 250)), best = brute_force(way, bound, share);
        struct sgrad_algorithm_plan choice;
        if (isinf(best)) {
            assert_int_equal(sgrad__algorithm_plan_by(solver, way, LAYERS, WAYS, bound, share, &choice), SGRAD_ENOMEM);
            infeasible++;
            continue;
        }
        assert_done(sgrad__algorithm_plan_by(solver, way, LAYERS, WAYS, bound, share, &choice));
        assert_true(fabs(choice.seconds - best) <= 1e-9 * best);
        assert_true(choice.bytes <= bound);
        free(choice.algorithm);
    }
    assert_in_range(infeasible, 1, 40);
}

static void solvers(void **state) {
    (void)state;
    const struct sgrad_algorithm large = { "", 1, 2e6 };
    struct sgrad_algorithm_plan choice;
    assert_fails(sgrad_algorithm_plan_make(&large, 1, 1, 1e6, false, &choice), SGRAD_ENOMEM,
                 "fits into workspaces of 1000000 bytes");
    for (const struct sgrad__solver *const *s = sgrad__solvers; *s; s++) {
        print_message("%s\n", (*s)->name);
        check_solver(*s);
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        sentence("every solver finds the fastest choice of algorithms that fits", solvers),
    };
    return run_sentences(argc, argv, tests, NULL, NULL);
}
