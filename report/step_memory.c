/* step_memory.c: draws the memory of a step over time, without and with a limit, and the moves that keep it within the limit. */
#include "report/pictures.h"
#include "report/report.h"

enum { WIDTH = 860, HEIGHT = 480 };
static const char *const colors[] = { "#c3ced9", "#2b5c8a" }, *const moves[] = { "#c8752d", "#2f7d5b" };

static void write_series(FILE *to, int number, const struct sgrad_step_memory_series *series) {
    fprintf(to, "$series%d << END\n", number);
    for (int i = 0; i < series->count; i++) {
        if (i && series->bytes[i] == series->bytes[i - 1]) continue;
        if (i) fprintf(to, "%g %g\n", series->seconds[i], 1e-6 * series->bytes[i - 1]);
        fprintf(to, "%g %g\n", series->seconds[i], 1e-6 * series->bytes[i]);
    }
    if (series->count) fprintf(to, "%g %g\n", series->end, 1e-6 * series->bytes[series->count - 1]);
    fputs("END\n", to);
}

static double largest(const struct sgrad_step_memory *m) {
    double most = m->limit;
    for (int s = 0; s < 2; s++)
        for (int i = 0; i < m->series[s].count; i++)
            if (m->series[s].bytes[i] > most) most = m->series[s].bytes[i];
    return 1e-6 * most;
}

static void write_box(FILE *to, double begin, double end, double y, double half) {
    fprintf(to, "%g %g %g %g %g %g\n", begin, y, begin, end, y - half, y + half);
}

/* Moves are boxes below the axis: writes above reads. Those with gaps of less than a pixel are drawn as one. */
static void write_moves(FILE *to, const struct sgrad_step_memory *m, double most) {
    for (int reads = 0; reads < 2; reads++) {
        const double y = -most * (reads ? 0.09 : 0.04), gap = m->series[1].end / WIDTH;
        double begin = 0, end = 0;
        fprintf(to, "$moves%d << END\n", reads);
        for (int i = 0; i < m->moves; i++) {
            const double *move = &m->move[3 * i];
            if ((move[2] > 0) != reads) continue;
            if (end > begin && move[0] - end > gap) write_box(to, begin, end, y, 0.018 * most), begin = move[0];
            if (!(end > begin)) begin = move[0];
            end = move[1];
        }
        if (end > begin) write_box(to, begin, end, y, 0.018 * most);
        fputs("END\n", to);
    }
}

static void write_step_memory(FILE *to, const void *of) {
    const struct sgrad_step_memory *m = of;
    const double most = largest(m);
    for (int s = 0; s < 2; s++) write_series(to, s, &m->series[s]);
    write_moves(to, m, most);
    fputs("set title ", to);
    sgrad__plot_quoted(to, m->title);
    fprintf(to,
            " noenhanced\nset key outside bottom center horizontal samplen 2\nset xlabel 'time in s'\nset ylabel 'memory in "
            "MB'\nset xrange [0:*]\n"
            "set yrange [%g:%g]\nset style fill solid 1 noborder\nset arrow 1 from graph 0, first %g to graph 1, first %g nohead "
            "front dashtype 2 lc '#c0392b'\nset label 1 'limit' at graph 0.01, first %g offset 0, 0.6 front tc '#c0392b'\n",
            m->moves ? -0.12 * most : 0, 1.06 * most, 1e-6 * m->limit, 1e-6 * m->limit, 1e-6 * m->limit);
    fputs("plot ", to);
    for (int s = 0; s < 2; s++) {
        if (!m->series[s].count) continue;
        fprintf(to, "%s$series%d using 1:2 with filledcurves y=0 lc '%s' title ", s ? ", " : "", s, colors[s]);
        sgrad__plot_quoted(to, m->series[s].title);
    }
    for (int reads = 0; reads < 2 && m->moves; reads++)
        fprintf(to, ", $moves%d using 1:2:3:4:5:6 with boxxyerror lc '%s' title '%s'", reads, moves[reads],
                reads ? "read" : "write");
    fputs("\nunset arrow 1\nunset label 1\nunset ylabel\n", to);
}

bool sgrad_report_step_memory(const char *folder, const char *name, const struct sgrad_step_memory *memory) {
    return sgrad__plot_draw(folder,
                            &(struct sgrad__plot){ name, "plot of the memory", WIDTH, HEIGHT, write_step_memory, memory });
}
