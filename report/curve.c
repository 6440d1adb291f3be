/* curve.c: the picture of a learning curve: loss by step on the left, test accuracy by epoch on the right. */
#include "report/pictures.h"

#include <math.h>

enum { POINTS = 2000 };

static double mean(const struct sgrad__history *h, int from, int to) {
    double sum = 0;
    int count = 0;
    for (int i = from < 0 ? 0 : from; i <= to && i < h->steps; i++) {
        if (!isfinite(h->step[i].loss)) continue;
        sum += h->step[i].loss;
        count++;
    }
    return count ? sum / count : NAN;
}

/* Step, loss, loss smoothed over a fiftieth of the run; at most POINTS rows. Returns the largest smoothed loss. */
static double write_losses(FILE *to, const struct sgrad__history *h) {
    int stride = (h->steps + POINTS - 1) / POINTS, reach = h->steps / 100;
    double top = 0;
    fputs("$loss << END\n", to);
    for (int i = 0; i < h->steps; i += stride) {
        double smooth = mean(h, i - reach, i + reach);
        if (smooth > top) top = smooth;
        fprintf(to, "%.0f %g %g\n", h->step[i].step, h->step[i].loss, smooth);
    }
    fputs("END\n", to);
    return top;
}

static void write_accuracies(FILE *to, const struct sgrad__history *h) {
    fputs("$accuracy << END\n", to);
    for (int i = 0; i < h->epochs; i++) fprintf(to, "%g %g\n", h->epoch[i].epoch, 100 * h->epoch[i].top1);
    fputs("END\n", to);
}

static void write_loss_panel(FILE *to, double top) {
    fputs("set xlabel 'step'\nset title 'training loss'\nset format y '%g'\nset xrange [*:*]\nset xtics auto\n", to);
    fprintf(to, "set yrange [0:%g]\n", 1.15 * top);
    fputs("plot $loss using 1:2 with lines lc '#c3ced9' notitle, '' using 1:3 with lines lw 2 lc '#2b5c8a' notitle\n", to);
}

static void write_accuracy_panel(FILE *to, const struct sgrad__history *h, const struct sgrad__history_epoch *best) {
    fprintf(to, "set xlabel 'epoch'\nset title 'test accuracy, best %.2f %% (epoch %.4g)'\nset format y '%%g %%%%'\n",
            100 * best->top1, best->epoch);
    fprintf(to, "set yrange [*:*]\nset xrange [%g:%g]\n", h->epoch[0].epoch - 0.5, h->epoch[h->epochs - 1].epoch + 0.5);
    if (h->epochs <= 15) fputs("set xtics 1\n", to);
    fputs("plot $accuracy using 1:2 with linespoints lw 2 pt 7 ps 0.5 lc '#2f7d5b' notitle\n", to);
}

/* A run whose loss was never a number has no left panel, one without evaluation no right one. */
static void write_panels(FILE *to, const struct sgrad__history *h, double top) {
    const struct sgrad__history_epoch *best = sgrad__history_best(h);
    fprintf(to, "set multiplot layout 1,%d\n", (top > 0) + (best != NULL) > 1 ? 2 : 1);
    if (top > 0) write_loss_panel(to, top);
    if (best) write_accuracy_panel(to, h, best);
    fputs("unset multiplot\n", to);
}

static void write_curve(FILE *to, const void *of) {
    const struct sgrad__history *h = of;
    double top = write_losses(to, h);
    write_accuracies(to, h);
    write_panels(to, h, top);
}

bool sgrad__curve_draw(const char *folder, const struct sgrad__history *history) {
    return sgrad__plot_draw(folder, &(struct sgrad__plot){ "curve", "learning curve", 1000, 400, write_curve, history });
}
