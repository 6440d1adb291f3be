/* gantt.c: the picture of a traced stretch: a row for each worker, coloured by kind of task, and one for each rank's messages;
 * a dashed line where a step ends.
 *
 * Tasks of one kind that leave less than a pixel between them are drawn as one. */
#include "report/pictures.h"

#include <math.h>
#include <stdlib.h>

enum { WIDTH = 1400, ROW = 34, ROUND = 110 };   /* points; around the rows */

/* Lines go down, gnuplot's axis up. */
static void write_box(FILE *to, double begin, double end, int line, double half, unsigned color) {
    fprintf(to, "%.4f %d %.4f %.4f %.3f %.3f %u\n", begin, -line, begin, end, -line - half, -line + half, color);
}

static void write_tasks(FILE *to, const struct sgrad__timeline *t, int row) {
    const struct sgrad__timeline_task *open = NULL;
    const double pixel = t->length / WIDTH;
    double end = 0;
    for (int i = 0; i < t->tasks; i++) {
        const struct sgrad__timeline_task *task = &t->task[i];
        if (task->worker != row) continue;
        if (open && (open->kind != task->kind || task->begin - end > pixel)) {
            write_box(to, open->begin, end, sgrad__timeline_line(t, row), 0.4, t->kinds.kind[open->kind].color);
            open = NULL;
        }
        if (!open) open = task;
        end = task->end;
    }
    if (open) write_box(to, open->begin, end, sgrad__timeline_line(t, row), 0.4, t->kinds.kind[open->kind].color);
}

static void write_messages(FILE *to, const struct sgrad__timeline *t) {
    for (int i = 0; i < t->messages; i++) {
        const struct sgrad__timeline_message *m = &t->message[i];
        const double begin = fmax(0, m->begin), end = fmin(t->length, m->end);
        if (begin < end) write_box(to, begin, end, sgrad__timeline_receives(t, m->to), 0.15, SGRAD__MESSAGE_COLOR);
    }
}

static void write_names(FILE *to, const struct sgrad__timeline *t) {
    for (int i = 0; i < sgrad__timeline_lines(t); i++) {
        char *name = sgrad__timeline_name(t, i);
        fprintf(to, "%s'%s' %d", i ? ", " : "set ytics (", name, -i);
        free(name);
    }
    fputs(")\n", to);
}

static void write_gantt(FILE *to, const void *of) {
    const struct sgrad__timeline *t = of;
    fputs("$box << END\n", to);
    for (int i = 0; i < t->rows; i++) write_tasks(to, t, i);
    write_messages(to, t);
    fputs("END\n", to);
    write_names(to, t);
    fprintf(to, "set xrange [0:%.4f]\nset yrange [%.1f:0.5]\nset xlabel 'ms'\nset style fill solid 1 noborder\n", t->length, 0.5 - sgrad__timeline_lines(t));
    for (int i = 0; i + 1 < t->steps; i++)
        fprintf(to, "set arrow from %.4f, graph 0 to %.4f, graph 1 nohead front dashtype 2 lc '#333333'\n", t->step_end[i], t->step_end[i]);
    fputs("set key outside top center horizontal\nunset grid\nset grid xtics lc '#e4e4e4' lt 1\n"
          "plot $box using 1:2:3:4:5:6:7 with boxxyerror lc rgb variable notitle", to);
    for (int k = 0; k < t->kinds.count; k++) {
        fprintf(to, ", NaN with lines lw 8 lc rgb '#%06x' title ", t->kinds.kind[k].color);
        sgrad__plot_quoted(to, t->kinds.kind[k].name);
        fputs(" noenhanced", to);
    }
    if (t->ranks > 1) fprintf(to, ", NaN with lines lw 8 lc rgb '#%06x' title 'message'", SGRAD__MESSAGE_COLOR);
    fputs("\n", to);
}

bool sgrad__gantt_draw(const char *folder, const struct sgrad__timeline *t) {
    return sgrad__plot_draw(folder, &(struct sgrad__plot){ "gantt", "picture of the trace", WIDTH, ROUND + ROW * sgrad__timeline_lines(t), write_gantt, t });
}
