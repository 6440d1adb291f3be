/* scaling.c: draws the plot of a scaling study: speed-up by devices, with the straight line of linear speed-up. */
#include "report/pictures.h"
#include "report/report.h"

static void write_scaling(FILE *to, const void *of) {
    static const char *const colors[] = { "#2b5c8a", "#c8752d", "#2f7d5b", "#8e44ad" };
    const struct sgrad_scaling *s = of;
    double most = 2;    /* an empty range is an error */
    for (int i = 0; i < s->count; i++) {
        fprintf(to, "$series%d << END\n", i);
        for (int j = 0; j < s->series[i].count; j++) {
            fprintf(to, "%g %g\n", s->series[i].devices[j], s->series[i].speedup[j]);
            if (s->series[i].devices[j] > most) most = s->series[i].devices[j];
        }
        fputs("END\n", to);
    }
    fputs("set title ", to);
    sgrad__plot_quoted(to, s->title);
    fputs(" noenhanced\nset key top left\nset xlabel 'devices'\nset ylabel 'speed-up'\nset logscale xy 2\n", to);
    fprintf(to, "set xrange [1:%g]\nset yrange [1:*]\nplot x with lines lc '#bbbbbb' title 'ideal'", most);
    for (int i = 0; i < s->count; i++) {
        fprintf(to, ", $series%d using 1:2 with linespoints lw 2 pt 7 ps 0.6 lc '%s' title ", i, colors[i % 4]);
        sgrad__plot_quoted(to, s->series[i].title);
    }
    fputs("\nunset logscale\nunset ylabel\n", to);
}

bool sgrad_report_scaling(const char *folder, const char *name, const struct sgrad_scaling *scaling) {
    return sgrad__plot_draw(folder, &(struct sgrad__plot){ name, "plot of the scaling", 760, 480, write_scaling, scaling });
}
