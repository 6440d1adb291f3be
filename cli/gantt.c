/* gantt.c: the picture of a traced stretch: a row for each worker, coloured by kind of task, and one for each rank's messages;
 * a dashed line where a step ends.
 *
 * Tasks of one kind that leave less than a pixel between them are drawn as one. */
#include "cli/timeline.h"

#include <math.h>
#include <stdlib.h>

enum { WIDTH = 1400, ROW = 34, ROUND = 110 };   /* points; around the rows */
static const unsigned message_color = 0xc0392b;

/* Rows from the top: each rank's workers, below them its messages. */
static int rows_of(const struct sgrad__timeline *t) { return t->rows + (t->ranks > 1 ? t->ranks : 0); }
static int level_of(const struct sgrad__timeline *t, int row) { return -row - (t->ranks > 1 ? t->row[row].rank : 0); }
static int level_of_messages(const struct sgrad__timeline *t, int rank) {
    int level = 0;
    for (int i = 0; i < t->rows && t->row[i].rank <= rank; i++) level = level_of(t, i) - 1;
    return level;
}

static void write_box(FILE *to, double begin, double end, int level, double low, double high, unsigned color) {
    fprintf(to, "%.4f %d %.4f %.4f %.3f %.3f %u\n", begin, level, begin, end, level + low, level + high, color);
}

static void write_tasks(FILE *to, const struct sgrad__timeline *t, int row) {
    const struct sgrad__timeline_task *open = NULL;
    const double pixel = t->length / WIDTH;
    double end = 0;
    for (int i = 0; i < t->tasks; i++) {
        const struct sgrad__timeline_task *task = &t->task[i];
        if (task->worker != row) continue;
        if (open && (open->kind != task->kind || task->begin - end > pixel)) {
            write_box(to, open->begin, end, level_of(t, row), -0.4, 0.4, sgrad_kind_color(open->kind));
            open = NULL;
        }
        if (!open) open = task;
        end = task->end;
    }
    if (open) write_box(to, open->begin, end, level_of(t, row), -0.4, 0.4, sgrad_kind_color(open->kind));
}

static void write_messages(FILE *to, const struct sgrad__timeline *t) {
    for (int i = 0; i < t->messages; i++) {
        const struct sgrad__timeline_message *m = &t->message[i];
        const double begin = fmax(0, m->begin), end = fmin(t->length, m->end);
        if (begin < end) write_box(to, begin, end, level_of_messages(t, m->to), -0.15, 0.15, message_color);
    }
}

static void write_names(FILE *to, const struct sgrad__timeline *t) {
    fputs("set ytics (", to);
    for (int i = 0; i < t->rows; i++) {
        if (t->ranks > 1) fprintf(to, "'rank %d worker %d' %d, ", t->row[i].rank, t->row[i].worker, level_of(t, i));
        else fprintf(to, "'worker %d' %d%s", t->row[i].worker, level_of(t, i), i + 1 < t->rows ? ", " : "");
    }
    for (int r = 0; t->ranks > 1 && r < t->ranks; r++)
        fprintf(to, "'rank %d receives' %d%s", r, level_of_messages(t, r), r + 1 < t->ranks ? ", " : "");
    fputs(")\n", to);
}

static void write_gantt(FILE *to, const void *of) {
    const struct sgrad__timeline *t = of;
    fputs("$box << END\n", to);
    for (int i = 0; i < t->rows; i++) write_tasks(to, t, i);
    write_messages(to, t);
    fputs("END\n", to);
    write_names(to, t);
    fprintf(to, "set xrange [0:%.4f]\nset yrange [%.1f:0.5]\nset xlabel 'ms'\nset style fill solid 1 noborder\n", t->length, 0.5 - rows_of(t));
    for (int i = 0; i + 1 < t->steps; i++)
        fprintf(to, "set arrow from %.4f, graph 0 to %.4f, graph 1 nohead front dashtype 2 lc '#333333'\n", t->step_end[i], t->step_end[i]);
    fputs("set key outside top center horizontal\nunset grid\nset grid xtics lc '#e4e4e4' lt 1\n"
          "plot $box using 1:2:3:4:5:6:7 with boxxyerror lc rgb variable notitle", to);
    for (int k = 0; k < SGRAD_KINDS; k++)
        fprintf(to, ", NaN with lines lw 8 lc rgb '#%06x' title '%s'", sgrad_kind_color(k), sgrad_kind_name(k));
    if (t->ranks > 1) fprintf(to, ", NaN with lines lw 8 lc rgb '#%06x' title 'message'", message_color);
    fputs("\n", to);
}

bool sgrad__gantt_draw(const char *folder, const struct sgrad__timeline *t) {
    return sgrad__plot_draw(folder, &(struct sgrad__plot){ "gantt", "picture of the trace", WIDTH, ROUND + ROW * rows_of(t), write_gantt, t });
}
