/* glpk.c: integer programs, solved by GLPK. */
#include "planner/integer_program.h"

#include <glpk.h>
#include <math.h>

static int bounds_of(double low, double high) {
    if (isfinite(low) && isfinite(high)) return low == high ? GLP_FX : GLP_DB;
    if (isfinite(low)) return GLP_LO;
    return isfinite(high) ? GLP_UP : GLP_FR;
}

/* GLPK counts rows, columns and the entries of a list from 1. */
static glp_prob *state(const struct sgrad__integer_program *p) {
    glp_prob *glpk = glp_create_prob();
    glp_set_obj_dir(glpk, GLP_MIN);
    glp_add_rows(glpk, p->rows);
    glp_add_cols(glpk, p->columns);
    for (int i = 0; i < p->rows; i++) glp_set_row_bnds(glpk, i + 1, bounds_of(p->low[i], p->high[i]), p->low[i], p->high[i]);
    for (int j = 0; j < p->columns; j++) {
        const int first = p->start[j], count = p->start[j + 1] - first;
        int row[count + 1];
        for (int k = 0; k < count; k++) row[k + 1] = p->row[first + k] + 1;
        glp_set_col_kind(glpk, j + 1, GLP_BV);
        if (!p->open[j]) glp_set_col_bnds(glpk, j + 1, GLP_FX, 0, 0);
        glp_set_obj_coef(glpk, j + 1, p->cost[j]);
        glp_set_mat_col(glpk, j + 1, count, row, p->value + first - 1);
    }
    return glpk;
}

static bool solve(const struct sgrad__integer_program *p, double *x) {
    glp_iocp how;
    glp_prob *glpk = state(p);
    glp_init_iocp(&how);
    how.presolve = GLP_ON;
    how.msg_lev = GLP_MSG_OFF;
    const bool solved = !glp_intopt(glpk, &how) && glp_mip_status(glpk) == GLP_OPT;
    for (int j = 0; j < p->columns && solved; j++) x[j] = glp_mip_col_val(glpk, j + 1);
    glp_delete_prob(glpk);
    return solved;
}

const struct sgrad__solver sgrad__glpk_solver = { .name = "GLPK", .solve = solve };
