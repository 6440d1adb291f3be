/* choice.c: chooses an algorithm for each layer, so that the total time is the shortest and the workspaces fit (Zou et al.,
 * arXiv:1709.06622): an integer program, solved by HiGHS or GLPK.
 *
 *     x[k,l] in {0, 1}: layer k uses algorithm l   minimise Σ x[k,l] T[k,l]
 *     Σ_l x[k,l] = 1 for each k                    Σ x[k,l] M[k,l] ≤ bound, or, of a shared workspace, each M[k,l] ≤ bound
 *
 * T: seconds; M: bytes of the workspace. */
#include "config.h"
#include "planner/integer_program.h"
#include "planner/planner.h"

#include <math.h>
#include <stdlib.h>

const struct sgrad__solver *const sgrad__solvers[] = {
#ifdef SGRAD_HAVE_HIGHS
    &sgrad__highs_solver,
#endif
#ifdef SGRAD_HAVE_GLPK
    &sgrad__glpk_solver,
#endif
    NULL,
};

static bool open_way(const struct sgrad_algorithm *way, double bound) { return isfinite(way->seconds) && way->bytes <= bound; }

/* Row K: layer K uses one algorithm. The last row: bytes of all workspaces. Each algorithm of each layer has a column; the
 * columns of algorithms that do not apply, or do not fit, are closed. */
static struct sgrad__integer_program state(const struct sgrad_algorithm *way, int layers, int ways, double bound, bool share) {
    const int columns = layers * ways;
    const size_t most = (size_t)columns + 1, rows = (size_t)layers + 1;
    struct sgrad__integer_program p = {
        .columns = columns, .rows = layers + 1, .cost = sgrad_xcalloc(most, sizeof *p.cost),
        .low = sgrad_xcalloc(rows, sizeof *p.low), .high = sgrad_xcalloc(rows, sizeof *p.high),
        .value = sgrad_xcalloc(2 * most, sizeof *p.value), .open = sgrad_xcalloc(most, sizeof *p.open),
        .start = sgrad_xcalloc(most, sizeof *p.start), .row = sgrad_xcalloc(2 * most, sizeof *p.row),
    };
    double least = INFINITY;
    for (int i = 0; i < columns; i++)
        if (open_way(&way[i], bound)) least = fmin(least, way[i].seconds);
    for (int k = 0; k < layers; k++) p.low[k] = p.high[k] = 1;
    p.low[layers] = -INFINITY;
    p.high[layers] = share ? INFINITY : 1;
    for (int i = 0, count = 0; i < columns; i++) {
        p.open[i] = open_way(&way[i], bound);
        p.cost[i] = p.open[i] ? way[i].seconds / least : 0;     /* scaled near 1, for numerical stability */
        p.row[count] = i / ways, p.value[count++] = 1;
        if (p.open[i] && way[i].bytes > 0) p.row[count] = layers, p.value[count++] = way[i].bytes / bound;
        p.start[i + 1] = count;
    }
    return p;
}

static void release(struct sgrad__integer_program *p) {
    free(p->cost);
    free(p->low);
    free(p->high);
    free(p->value);
    free(p->open);
    free(p->start);
    free(p->row);
}

static void read_choice(const double *x, const struct sgrad_algorithm *way, int layers, int ways, bool share,
                        struct sgrad_algorithm_plan *choice) {
    *choice = (struct sgrad_algorithm_plan){ .algorithm = sgrad_xcalloc((size_t)layers, sizeof *choice->algorithm) };
    for (int i = 0; i < layers * ways; i++) {
        if (x[i] < 0.5) continue;
        choice->algorithm[i / ways] = i % ways;
        choice->seconds += way[i].seconds;
        choice->bytes = share ? fmax(choice->bytes, way[i].bytes) : choice->bytes + way[i].bytes;
    }
}

int sgrad_algorithm_plan_check(void) {
    return sgrad__solvers[0] ? 0 : sgrad_log_error(SGRAD_ELIBRARY, "cannot choose algorithms: this build has neither HiGHS nor "
                                                   "GLPK; install libhighs-dev or libglpk-dev, then configure --with-highs=yes "
                                                   "or --with-glpk=yes and build again");
}

int sgrad__algorithm_plan_by(const struct sgrad__solver *solver, const struct sgrad_algorithm *way, int layers, int ways,
                             double bound, bool share, struct sgrad_algorithm_plan *choice) {
    struct sgrad__integer_program p = state(way, layers, ways, bound, share);
    double *x = sgrad_xcalloc((size_t)p.columns + 1, sizeof *x);
    const bool solved = solver->solve(&p, x);
    if (solved) read_choice(x, way, layers, ways, share, choice);
    release(&p);
    free(x);
    return solved ? 0 : SGRAD_ENOMEM;
}

int sgrad_algorithm_plan_make(const struct sgrad_algorithm *way, int layers, int ways, double bound, bool share,
                              struct sgrad_algorithm_plan *choice) {
    SGRAD_TRY(sgrad_algorithm_plan_check());
    if (!sgrad__algorithm_plan_by(sgrad__solvers[0], way, layers, ways, bound, share, choice)) return 0;
    return sgrad_log_error(SGRAD_ENOMEM,
                           "no choice of algorithms for the %d %s fits into workspaces of %.0f bytes; give a larger --workspace",
                           layers, sgrad_plural(layers, "layer", "layers"), bound);
}
