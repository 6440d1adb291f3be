/* choice.c: chooses an algorithm for each layer, so that the total time is the shortest and the workspaces fit (Zou et al.,
 * arXiv:1709.06622): an integer program, solved by GLPK.
 *
 *     x[k,l] in {0, 1}: layer k uses algorithm l   minimise Σ x[k,l] T[k,l]
 *     Σ_l x[k,l] = 1 for each k                    Σ x[k,l] M[k,l] ≤ bound, or, of a shared workspace, each M[k,l] ≤ bound
 *
 * T: seconds; M: bytes of the workspace. */
#include "config.h"
#include "planner/planner.h"

#include <glpk.h>
#include <math.h>
#include <stdlib.h>

static bool open_way(const struct sgrad_algorithm *way, double bound) { return isfinite(way->seconds) && way->bytes <= bound; }

/* Rows 1 to LAYERS: each layer uses one algorithm. The next row: bytes of all workspaces. Each algorithm of each layer has a
 * column; the columns of algorithms that do not apply, or do not fit, are fixed at 0. */
static glp_prob *state(const struct sgrad_algorithm *way, int layers, int ways, double bound, bool share) {
    glp_prob *p = glp_create_prob();
    const int columns = layers * ways;
    const size_t most = 2 * (size_t)columns + 1;        /* GLPK counts from 1 */
    int *row = sgrad_xcalloc(most, sizeof *row), *column = sgrad_xcalloc(most, sizeof *column);
    double *value = sgrad_xcalloc(most, sizeof *value), least = INFINITY;
    int count = 0;
    for (int i = 0; i < columns; i++)
        if (open_way(&way[i], bound)) least = fmin(least, way[i].seconds);
    glp_set_obj_dir(p, GLP_MIN);
    glp_add_rows(p, layers + 1);
    glp_add_cols(p, columns);
    for (int k = 0; k < layers; k++) glp_set_row_bnds(p, k + 1, GLP_FX, 1, 1);
    glp_set_row_bnds(p, layers + 1, share ? GLP_FR : GLP_UP, 0, 1);
    for (int i = 0; i < columns; i++) {
        const bool is_open = open_way(&way[i], bound);
        glp_set_col_kind(p, i + 1, GLP_BV);
        if (!is_open) glp_set_col_bnds(p, i + 1, GLP_FX, 0, 0);
        glp_set_obj_coef(p, i + 1, is_open ? way[i].seconds / least : 0);   /* scaled near 1, for numerical stability */
        row[++count] = i / ways + 1, column[count] = i + 1, value[count] = 1;
        if (is_open && way[i].bytes > 0)
            row[++count] = layers + 1, column[count] = i + 1, value[count] = way[i].bytes / bound;
    }
    glp_load_matrix(p, count, row, column, value);
    free(row);
    free(column);
    free(value);
    return p;
}

static void read_choice(glp_prob *p, const struct sgrad_algorithm *way, int layers, int ways, bool share,
                        struct sgrad_algorithm_plan *choice) {
    *choice = (struct sgrad_algorithm_plan){ .algorithm = sgrad_xcalloc((size_t)layers, sizeof *choice->algorithm) };
    for (int i = 0; i < layers * ways; i++) {
        if (glp_mip_col_val(p, i + 1) < 0.5) continue;
        choice->algorithm[i / ways] = i % ways;
        choice->seconds += way[i].seconds;
        choice->bytes = share ? fmax(choice->bytes, way[i].bytes) : choice->bytes + way[i].bytes;
    }
}

int sgrad_algorithm_plan_make(const struct sgrad_algorithm *way, int layers, int ways, double bound, bool share,
                              struct sgrad_algorithm_plan *choice) {
    glp_iocp how;
    glp_prob *p = state(way, layers, ways, bound, share);
    glp_init_iocp(&how);
    how.presolve = GLP_ON;
    how.msg_lev = GLP_MSG_OFF;
    const int failed = glp_intopt(p, &how), is = glp_mip_status(p);
    if (!failed && is == GLP_OPT) read_choice(p, way, layers, ways, share, choice);
    glp_delete_prob(p);
    if (!failed && is == GLP_OPT) return 0;
    return sgrad_log_error(SGRAD_ENOMEM,
                           "the algorithms of all %d %s require workspaces of more than %.0f bytes, whichever are chosen; give a "
                           "larger --workspace",
                           layers, sgrad_plural(layers, "layer", "layers"), bound);
}
