/* integer_program.h: integer programs, and the solvers of this build. Private to planner/. */
#ifndef SGRAD_PLANNER_INTEGER_PROGRAM_H
#define SGRAD_PLANNER_INTEGER_PROGRAM_H

#include <stdbool.h>

/* minimise Σ cost[j] x[j]    with x[j] 0 or 1, and 0 unless open[j]
 * low[i] ≤ Σ value[i,j] x[j] ≤ high[i] for each row i; a limit may be infinite
 *
 * The matrix is stored by columns: column j has the entries start[j] to start[j+1]-1 of row and value. */
struct sgrad__integer_program {
    int columns, rows;
    double *cost, *low, *high, *value;
    bool *open;
    int *start, *row;
};

/* solve sets X, of P's columns, to an optimal solution. It returns false if there is none. */
struct sgrad__solver {
    const char *name;
    bool (*solve)(const struct sgrad__integer_program *p, double *x);
};
extern const struct sgrad__solver sgrad__highs_solver, sgrad__glpk_solver;
/* Those that are built in, the preferred one first; ends with NULL. */
extern const struct sgrad__solver *const sgrad__solvers[];

struct sgrad_algorithm;
struct sgrad_algorithm_plan;
/* As sgrad_algorithm_plan_make, with this SOLVER, and without a message for SGRAD_ENOMEM. */
int sgrad__algorithm_plan_by(const struct sgrad__solver *solver, const struct sgrad_algorithm *algorithm, int layers,
                             int algorithms, double bound, bool shared, struct sgrad_algorithm_plan *choice);

#endif
