/* rates.c: draws the plot of a learning-rate range test: the loss by the learning rate. */
#include "report/pictures.h"
#include "report/report.h"

static void write_rates(FILE *to, const void *of) {
    const struct sgrad_rates *r = of;
    double top = 0, bottom = r->smoothed[0];
    fputs("$loss << END\n", to);
    for (int i = 0; i < r->count; i++) {
        fprintf(to, "%g %g %g\n", r->rate[i], r->loss[i], r->smoothed[i]);
        if (r->smoothed[i] > top) top = r->smoothed[i];
        if (r->smoothed[i] < bottom) bottom = r->smoothed[i];
    }
    fputs("END\nset xlabel 'learning rate'\nset ylabel 'loss'\nset logscale x 10\nset format x '%g'\n"
          "set key bottom left\nset title ", to);
    sgrad__plot_quoted(to, r->title);
    fprintf(to, " noenhanced\nset yrange [%g:%g]\nset xrange [%g:%g]\n", bottom - 0.1 * (top - bottom),
            top + 0.05 * (top - bottom), r->rate[0], r->rate[r->count - 1]);
    if (r->suggested > 0)
        fprintf(to, "set arrow 1 from first %g, graph 0 to first %g, graph 1 nohead lw 2 dt 2 lc '#c8752d'\n"
                    "set label 1 ' suggested %.2g' at first %g, graph 0.95 tc '#c8752d'\n",
                r->suggested, r->suggested, r->suggested, r->suggested);
    fputs("plot $loss using 1:2 with lines lc '#c3ced9' title 'per step', '' using 1:3 with lines lw 2 lc '#2b5c8a' "
          "title 'smoothed'\nunset arrow\nunset label\nunset logscale\nunset ylabel\nset format x '%g'\n", to);
}

bool sgrad_report_rates(const char *folder, const char *name, const struct sgrad_rates *rates) {
    return sgrad__plot_draw(folder, &(struct sgrad__plot){ name, "plot of the learning rates", 760, 480, write_rates, rates });
}
