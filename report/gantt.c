/* gantt.c: draws the timeline of a trace: a row for each worker, coloured by kind of task, and rows for each rank's messages and
 * moves; a dashed line at the end of each step.
 *
 * Tasks of one kind with gaps of less than a pixel are drawn as one; likewise messages. */
#include "report/lines.h"
#include "report/pictures.h"
#include "report/spans.h"
#include "runtime/runtime.h"

#include <math.h>
#include <stdlib.h>

enum { WIDTH = 1400, ROW = 34, MANY = 64, LOW_ROW = 17, ROUND = 110 };  /* points; LOW_ROW: above MANY lines; ROUND: margins */
static const char *const dashes = "nohead front dashtype 2 lc '#333333'";

struct picture {
    const struct sgrad__timeline *timeline;
    struct sgrad__lines lines;
};

/* Lines are numbered downwards, gnuplot's axis points upwards. */
static void write_box(FILE *to, double begin, double end, int line, double half, unsigned color) {
    fprintf(to, "%.4f %d %.4f %.4f %.3f %.3f %u\n", begin, -line, begin, end, -line - half, -line + half, color);
}

static void write_tasks(FILE *to, const struct picture *picture, int line) {
    const struct sgrad__timeline *t = picture->timeline;
    const struct sgrad__timeline_row *row = &t->row[picture->lines.row[line]];
    const struct sgrad__timeline_task *open = NULL;
    const double pixel = t->length / WIDTH;
    double end = 0;
    for (int i = row->first; i < row->first + row->tasks; i++) {
        const struct sgrad__timeline_task *task = &t->task[i];
        if (open && (open->kind != task->kind || task->begin - end > pixel)) {
            write_box(to, open->begin, end, line, 0.4, t->kinds.kind[open->kind].color);
            open = NULL;
        }
        if (!open) open = task;
        end = task->end;
    }
    if (open) write_box(to, open->begin, end, line, 0.4, t->kinds.kind[open->kind].color);
}

/* ---- messages ---- */

struct arrow {
    int line;
    struct sgrad__span span;
};

static int by_line(const void *one, const void *other) {
    const struct arrow *a = one, *b = other;
    return a->line != b->line ? a->line - b->line : (a->span.begin > b->span.begin) - (a->span.begin < b->span.begin);
}

static void write_messages(FILE *to, const struct picture *picture) {
    const struct sgrad__timeline *t = picture->timeline;
    const double pixel = t->length / WIDTH;
    struct arrow *arrow = sgrad_xcalloc((size_t)t->messages + 1, sizeof *arrow);
    int count = 0;
    for (int i = 0; i < t->messages; i++) {
        const struct sgrad__timeline_message *m = &t->message[i];
        const double begin = fmax(0, m->begin), end = fmin(t->length, m->end);
        if (begin < end && picture->lines.of_rank[m->to] >= 0)
            arrow[count++] = (struct arrow){ picture->lines.of_rank[m->to], { begin, end } };
    }
    qsort(arrow, (size_t)count, sizeof *arrow, by_line);
    for (int i = 0, next; i < count; i = next) {
        double end = arrow[i].span.end;
        for (next = i + 1; next < count && arrow[next].line == arrow[i].line && arrow[next].span.begin - end <= pixel; next++)
            end = fmax(end, arrow[next].span.end);
        write_box(to, arrow[i].span.begin, end, arrow[i].line, 0.15, SGRAD__MESSAGE_COLOR);
    }
    free(arrow);
}

static void write_moves(FILE *to, const struct picture *picture) {
    const struct sgrad__timeline *t = picture->timeline;
    for (const struct sgrad__timeline_move *m = t->move; m < t->move + t->moves; m++) {
        const double begin = fmax(0, m->begin), end = fmin(t->length, m->end);
        if (begin < end && picture->lines.of_disk[m->rank] >= 0)
            write_box(to, begin, end, picture->lines.of_disk[m->rank], 0.25, m->reads ? SGRAD__FETCH_COLOR : SGRAD__STORE_COLOR);
    }
}

/* ---- the plot ---- */

static void write_names(FILE *to, const struct picture *picture) {
    for (int i = 0; i < picture->lines.count; i++) {
        char *name = sgrad__lines_name(picture->timeline, &picture->lines, i);
        fprintf(to, "%s'%s' %d", i ? ", " : "set ytics (", name, -i);
        free(name);
    }
    fputs(")\n", to);
}

static void write_key(FILE *to, const struct sgrad__timeline *timeline) {
    for (int k = 0; k < timeline->kinds.count; k++) {
        fprintf(to, ", NaN with lines lw 8 lc rgb '#%06x' title ", timeline->kinds.kind[k].color);
        sgrad__plot_quoted(to, timeline->kinds.kind[k].name);
        fputs(" noenhanced", to);
    }
    if (timeline->ranks > 1) fprintf(to, ", NaN with lines lw 8 lc rgb '#%06x' title 'message'", SGRAD__MESSAGE_COLOR);
    if (timeline->moves)
        fprintf(to, ", NaN with lines lw 8 lc rgb '#%06x' title 'store', NaN with lines lw 8 lc rgb '#%06x' title 'fetch'",
                SGRAD__STORE_COLOR, SGRAD__FETCH_COLOR);
}

static void write_gantt(FILE *to, const void *of) {
    const struct picture *p = of;
    const struct sgrad__timeline *t = p->timeline;
    fputs("$box << END\n", to);
    for (int i = 0; i < p->lines.count; i++)
        if (p->lines.row[i] >= 0) write_tasks(to, p, i);
    write_messages(to, p);
    write_moves(to, p);
    fputs("END\n", to);
    write_names(to, p);
    fprintf(to, "set xrange [0:%.4f]\nset yrange [%.1f:0.5]\nset xlabel 'ms'\nset style fill solid 1 noborder\n", t->length,
            0.5 - p->lines.count);
    for (int i = 0; i + 1 < t->steps; i++)
        fprintf(to, "set arrow from %.4f, graph 0 to %.4f, graph 1 %s\n", t->step_end[i], t->step_end[i], dashes);
    if (p->lines.left_out) fprintf(to, "set title '%s'\n", p->lines.left_out);
    fputs("set key outside top center horizontal\nunset grid\nset grid xtics lc '#e4e4e4' lt 1\n"
          "plot $box using 1:2:3:4:5:6:7 with boxxyerror lc rgb variable notitle", to);
    write_key(to, t);
    fputs("\n", to);
}

bool sgrad__gantt_draw(const char *folder, const struct sgrad__timeline *timeline) {
    struct picture p = { .timeline = timeline };
    sgrad__lines_pick(timeline, &p.lines);
    const int height = ROUND + (p.lines.count > MANY ? LOW_ROW : ROW) * p.lines.count;
    const bool drawn =
        sgrad__plot_draw(folder, &(struct sgrad__plot){ "gantt", "plot of the trace", WIDTH, height, write_gantt, &p });
    sgrad__lines_free(&p.lines);
    return drawn;
}
