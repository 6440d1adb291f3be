/* curve.c: draws a learning curve: losses by step on the left, the main metric of the test set by epoch on the right. */
#include "report/pictures.h"
#include "runtime/runtime.h"

#include <math.h>
#include <stdlib.h>

enum { POINTS = 2000 };

static double mean(const struct sgrad__history *history, int from, int to) {
    double sum = 0;
    int count = 0;
    for (int i = from < 0 ? 0 : from; i <= to && i < history->steps; i++) {
        if (!isfinite(history->step[i].loss)) continue;
        sum += history->step[i].loss;
        count++;
    }
    return count ? sum / count : NAN;
}

double sgrad__curve_losses(FILE *to, const char *name, const struct sgrad__history *history) {
    int stride = (history->steps + POINTS - 1) / POINTS, reach = history->steps / 100;
    double top = 0;
    fprintf(to, "$%s << END\n", name);
    for (int i = 0; i < history->steps; i += stride) {
        double smooth = mean(history, i - reach, i + reach);
        if (smooth > top) top = smooth;
        fprintf(to, "%.0f %g %g\n", history->step[i].step, history->step[i].loss, smooth);
    }
    fputs("END\n", to);
    return top;
}

/* Writes epoch, main metric, step, loss, main metric of training. Returns the largest loss. */
static double write_tests(FILE *to, const struct sgrad__history *history) {
    double top = 0;
    fputs("$test << END\n", to);
    for (int i = 0; i < history->epochs; i++) {
        const struct sgrad__history_epoch *e = &history->epoch[i];
        const double main = sgrad__history_shown(&history->metric[history->main], e->test[history->main]);
        const double train =
            history->main == history->trained ? sgrad__history_shown(&history->metric[history->main], e->train) : NAN;
        fprintf(to, "%g %g %.0f %g %g\n", e->epoch, main, e->step, e->test[0], train);
        if (isfinite(e->test[0])) top = fmax(top, e->test[0]);
    }
    fputs("END\n", to);
    return top;
}

/* The first test losses of a network may be very large; the range is limited so that the training losses remain visible. */
static void write_loss_panel(FILE *to, double top, double test_top) {
    fputs("set xlabel 'step'\nset title 'loss'\nset format y '%g'\nset xrange [*:*]\nset xtics auto\nset key top right\n", to);
    fprintf(to, "set yrange [0:%g]\n", 1.15 * fmax(top, fmin(test_top, 2 * top)));
    fputs("plot $loss using 1:2 with lines lc '#c3ced9' notitle, '' using 1:3 with lines lw 2 lc '#2b5c8a' title 'training'", to);
    if (test_top > 0) fputs(", $test using 3:4 with linespoints lw 2 pt 7 ps 0.5 lc '#c8752d' title 'test'", to);
    fputs("\nunset key\n", to);
}

static void write_metric_panel(FILE *to, const struct sgrad__history *history, const struct sgrad__history_epoch *best) {
    const struct sgrad__history_metric *m = &history->metric[history->main];
    char epoch[SGRAD_AMOUNT_TEXT], text[SGRAD_NUMBER_TEXT];
    char *title = sgrad_format("test %s, best %s (epoch %s)", m->title, sgrad__history_text(m, best->test[history->main], text),
                               sgrad_amount_text(best->epoch, epoch));
    fputs("set xlabel 'epoch'\nset title ", to);
    sgrad__plot_quoted(to, title);
    fprintf(to, "\nset format y '%%g%s'\n", m->share ? " %%" : "");
    free(title);
    fprintf(to, "set yrange [*:*]\nset xrange [%g:%g]\n", fmax(0, history->epoch[0].epoch - 0.5),
            history->epoch[history->epochs - 1].epoch + 0.5);
    if (history->epochs <= 15) fputs("set xtics 1\n", to);
    fputs("set key bottom right\nplot $test using 1:2 with linespoints lw 2 pt 7 ps 0.5 lc '#2f7d5b' title 'test'", to);
    if (history->main == history->trained && isfinite(history->epoch[history->epochs - 1].train))
        fputs(", '' using 1:5 with linespoints lw 1 pt 7 ps 0.3 lc '#2b5c8a' title 'training'", to);
    fputs("\nunset key\n", to);
}

/* Omits the left panel if no loss of the run is a number, and the right one if the run has no evaluation. */
static void write_panels(FILE *to, const struct sgrad__history *history, double top, double test_top) {
    const struct sgrad__history_epoch *best = sgrad__history_best(history);
    fprintf(to, "set multiplot layout 1,%d\n", (top > 0) + (best != NULL) > 1 ? 2 : 1);
    if (top > 0) write_loss_panel(to, top, test_top);
    if (best) write_metric_panel(to, history, best);
    fputs("unset multiplot\n", to);
}

static void write_curve(FILE *to, const void *of) {
    const struct sgrad__history *h = of;
    const double top = sgrad__curve_losses(to, "loss", h), test_top = write_tests(to, h);
    write_panels(to, h, top, test_top);
}

bool sgrad__curve_draw(const char *folder, const struct sgrad__history *history) {
    return sgrad__plot_draw(folder, &(struct sgrad__plot){ "curve", "learning curve", 1000, 400, write_curve, history });
}
