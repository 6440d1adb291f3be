/* highs.c: integer programs, solved by HiGHS. */
#include "planner/integer_program.h"

#include <interfaces/highs_c_api.h>
#include <stdlib.h>

/* The solution must be exact: by default HiGHS accepts one that is 0.01 % from the optimum. */
static bool state(void *highs, const struct sgrad__integer_program *p) {
    const size_t columns = (size_t)p->columns;
    double *low = calloc(columns, sizeof *low), *high = calloc(columns, sizeof *high);
    HighsInt *kind = calloc(columns, sizeof *kind);
    bool stated = low && high && kind;
    for (int j = 0; j < p->columns && stated; j++) high[j] = p->open[j], kind[j] = kHighsVarTypeInteger;
    stated = stated && Highs_setBoolOptionValue(highs, "output_flag", 0) == kHighsStatusOk &&
             Highs_setIntOptionValue(highs, "threads", 1) == kHighsStatusOk &&
             Highs_setDoubleOptionValue(highs, "mip_rel_gap", 0) == kHighsStatusOk &&
             Highs_setDoubleOptionValue(highs, "mip_abs_gap", 0) == kHighsStatusOk &&
             Highs_passMip(highs, p->columns, p->rows, p->start[p->columns], kHighsMatrixFormatColwise, kHighsObjSenseMinimize, 0,
                           p->cost, low, high, p->low, p->high, p->start, p->row, p->value, kind) != kHighsStatusError;
    free(low);
    free(high);
    free(kind);
    return stated;
}

static bool solve(const struct sgrad__integer_program *p, double *x) {
    void *highs = Highs_create();
    const bool solved = state(highs, p) && Highs_run(highs) == kHighsStatusOk &&
                        Highs_getModelStatus(highs) == kHighsModelStatusOptimal &&
                        Highs_getSolution(highs, x, NULL, NULL, NULL) == kHighsStatusOk;
    Highs_destroy(highs);
    return solved;
}

const struct sgrad__solver sgrad__highs_solver = { .name = "HiGHS", .solve = solve };
