/* compare.c: stargrad report A B …: compares runs in columns: settings that differ, speed, quality, and the use of time. */
#include "report/overlap.h"
#include "report/pictures.h"
#include "report/report.h"
#include "runtime/runtime.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct run {
    const char *folder, *name; /* name: the folder without the parents that all runs have in common */
    int width;                 /* of its column */
    struct sgrad__history history;
    struct sgrad__timeline timeline;
    struct sgrad__overlap overlap;
    bool traced;
};
struct runs {
    int count, left; /* width of the labels of the rows */
    struct run *run;
};

enum { LEFT = 24, COLUMN = 12 }; /* smallest widths */

/* ---- settings ---- */

/* Options and environment variables; no name occurs in both. */
enum { OPTIONS, ENVIRONMENT, PARTS };
static const json_t *part_of(const struct run *run, int part) {
    return part == OPTIONS ? run->history.options : json_object_get(run->history.config, "environment");
}

/* NULL: this run does not have the setting. */
static const json_t *setting(const struct run *run, const char *key) {
    const json_t *value = NULL;
    for (int p = 0; p < PARTS && !value; p++) value = json_object_get(part_of(run, p), key);
    return value;
}

/* The caller must free the result. */
static char *value_of(const struct run *run, const char *key) {
    const json_t *value = setting(run, key);
    return value ? json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6)) : strdup("-");
}

static bool differs(const struct runs *runs, const char *key) {
    char *first = value_of(&runs->run[0], key);
    bool same = true;
    for (int i = 1; i < runs->count && same; i++) {
        char *other = value_of(&runs->run[i], key);
        same = strcmp(first, other) == 0;
        free(other);
    }
    free(first);
    return !same;
}

/* Returns {key: [value of each run]} of the settings that differ, except the output folder. */
static json_t *find_differences(const struct runs *runs) {
    json_t *all = json_object(), *found = json_object(), *value;
    const char *key;
    for (int p = 0; p < PARTS; p++)
        for (int i = 0; i < runs->count; i++)
            json_object_update_missing(all, (json_t *)part_of(&runs->run[i], p));
    json_object_foreach(all, key, value) {
        if (strcmp(key, "out") == 0 || !differs(runs, key)) continue;
        json_t *values = json_array();
        for (int i = 0; i < runs->count; i++) {
            const json_t *of = setting(&runs->run[i], key);
            json_array_append_new(values, of ? json_deep_copy(of) : json_null());
        }
        json_object_set_new(found, key, values);
    }
    json_decref(all);
    return found;
}

static void print_differences(const struct runs *runs) {
    json_t *found = find_differences(runs), *values;
    const char *key;
    if (json_object_size(found)) printf("\nsettings that differ\n");
    json_object_foreach(found, key, values) {
        printf("%-*s", runs->left, key);
        for (int i = 0; i < runs->count; i++) {
            char *text = value_of(&runs->run[i], key);
            printf(" %*s", runs->run[i].width, text);
            free(text);
        }
        putchar('\n');
    }
    json_decref(found);
}

/* ---- columns: wide enough for all of their texts ---- */

/* Returns the length of the parent directories that all folders have in common. */
static size_t shared_length(const struct runs *runs) {
    const char *first = runs->run[0].folder;
    size_t shared = 0;
    for (size_t at = 0; first[at]; at++) {
        bool begins = first[at] == '/'; /* a path component starts after this slash in every run */
        for (int i = 0; i < runs->count; i++) {
            const char *folder = runs->run[i].folder;
            if (folder[at] != first[at]) return shared;
            begins &= folder[at + 1] && folder[at + 1] != '/';
        }
        if (begins) shared = at + 1;
    }
    return shared;
}

static int wider(int width, const char *text) { return (int)strlen(text) > width ? (int)strlen(text) : width; }

static void set_columns(struct runs *runs) {
    const size_t shared = shared_length(runs);
    json_t *found = find_differences(runs), *values;
    const char *key;
    runs->left = LEFT;
    json_object_foreach(found, key, values) runs->left = wider(runs->left, key);
    for (int i = 0; i < runs->count; i++) {
        struct run *r = &runs->run[i];
        r->name = r->folder + shared;
        r->width = wider(COLUMN, r->name);
        json_object_foreach(found, key, values) {
            char *text = value_of(r, key);
            r->width = wider(r->width, text);
            free(text);
        }
    }
    json_decref(found);
}

/* ---- figures ---- */

struct figure {
    const char *name;                       /* %s: the first run's name for samples, or for its main metric */
    int digits;                             /* after the decimal point; -1: the format of losses */
    double (*of)(const struct run *r);     /* NAN: this run has no such figure */
};

static double steps(const struct run *run) { return run->history.step[run->history.steps - 1].step; }
static double speed(const struct run *run) { return sgrad__history_median_rate(&run->history); }
static double loss(const struct run *run) { return run->history.step[run->history.steps - 1].loss; }
static double best(const struct run *run) {
    const struct sgrad__history *h = &run->history;
    const struct sgrad__history_epoch *e = sgrad__history_best(h);
    return e ? sgrad__history_shown(&h->metric[h->trained], e->test[h->trained]) : NAN;
}
static double traced_step(const struct run *run) {
    return run->traced && run->timeline.steps ? run->timeline.length / run->timeline.steps : NAN;
}

static const struct figure figures[] = {
    { "steps", 0, steps },
    { "%s/s (median)", 1, speed },
    { "loss of the last step", -1, loss },
    { "best test %s", 2, best },
    { "ms per traced step", 1, traced_step },
};
enum { FIGURES = sizeof figures / sizeof *figures };

static const struct sgrad__history_metric *main_metric(const struct runs *runs) {
    const struct sgrad__history *h = &runs->run[0].history;
    return &h->metric[h->trained];
}

/* The caller must free the result. */
static char *figure_name(const struct runs *runs, const struct figure *figure) {
    const struct sgrad__history_metric *m = main_metric(runs);
    if (figure->of == speed) return sgrad_format(figure->name, runs->run[0].history.samples);
    char *name = figure->of == best ? sgrad_format(figure->name, m->title) : sgrad_format("%s", figure->name);
    if (figure->of != best || !m->share) return name;
    char *share = sgrad_format("%s, %%", name);
    free(name);
    return share;
}

/* Mean over the workers, in % of the traced time. NAN: the run was not traced, or has no such kind of task. */
static double share(const struct run *run, const char *name) {
    const struct sgrad__timeline *t = &run->timeline;
    double sum = 0;
    int which = 0;
    if (!run->traced) return NAN;
    while (which < sgrad__shares(t) && strcmp(sgrad__share_name(t, which), name) != 0) which++;
    if (which == sgrad__shares(t)) return NAN;
    for (int i = 0; i < t->rows; i++) sum += sgrad__share(t, &run->overlap.row[i], which);
    return 100 * sum / (t->length * t->rows);
}

/* Names of all kinds of time of all runs: the kinds of task of each run, in order, then those outside tasks. */
static json_t *share_names(const struct runs *runs) {
    json_t *names = json_array(), *known = json_object(), *ends = json_array();
    for (int i = 0; i < runs->count; i++) {
        const struct sgrad__timeline *t = &runs->run[i].timeline;
        for (int k = 0; runs->run[i].traced && k < sgrad__shares(t); k++) {
            const char *name = sgrad__share_name(t, k);
            if (!json_object_get(known, name)) json_array_append_new(k < t->kinds.count ? names : ends, json_string(name));
            json_object_set_new(known, name, json_true());
        }
    }
    json_array_extend(names, ends);
    json_decref(known);
    json_decref(ends);
    return names;
}

static void print_number(const struct run *run, double x, int digits) {
    if (!isfinite(x)) printf(" %*s", run->width, "-");
    else if (digits < 0) printf(" %*s", run->width, sgrad_number_text(x, (char[SGRAD_NUMBER_TEXT]){ 0 }));
    else printf(" %*.*f", run->width, digits, x);
}

static void print(struct runs *runs) {
    bool traced = false;
    for (int f = 0; f < FIGURES; f++) {
        char *label = figure_name(runs, &figures[f]);
        runs->left = wider(runs->left, label);
        free(label);
    }
    printf("%-*s", runs->left, "");
    for (int i = 0; i < runs->count; i++) {
        printf(" %*s", runs->run[i].width, runs->run[i].name);
        traced |= runs->run[i].traced;
    }
    putchar('\n');
    for (int f = 0; f < FIGURES; f++) {
        if (figures[f].of == traced_step && !traced) continue;
        char *label = figure_name(runs, &figures[f]);
        printf("%-*s", runs->left, label);
        free(label);
        for (int i = 0; i < runs->count; i++) print_number(&runs->run[i], figures[f].of(&runs->run[i]), figures[f].digits);
        putchar('\n');
    }
    if (traced) printf("\n%% of the traced steps\n");
    json_t *names = share_names(runs), *name;
    size_t k;
    json_array_foreach(names, k, name) {
        printf("%-*s", runs->left, json_string_value(name));
        for (int i = 0; i < runs->count; i++) print_number(&runs->run[i], share(&runs->run[i], json_string_value(name)), 1);
        putchar('\n');
    }
    json_decref(names);
    print_differences(runs);
}

static json_t *number(double x) { return json_pack("o?", json_real(x)); }   /* null if X is NaN or infinite */

static json_t *as_json(const struct runs *runs) {
    json_t *list = json_array(), *names = share_names(runs), *name;
    size_t k;
    for (int i = 0; i < runs->count; i++) {
        const struct run *r = &runs->run[i];
        json_t *one = json_pack("{s:s}", "folder", r->folder), *shares = json_object();
        for (int f = 0; f < FIGURES; f++) {
            char *label = figure_name(runs, &figures[f]);
            json_object_set_new(one, label, number(figures[f].of(r)));
            free(label);
        }
        json_array_foreach(names, k, name)
            json_object_set_new(shares, json_string_value(name), number(share(r, json_string_value(name))));
        if (r->traced) json_object_set(one, "% of the traced steps", shares);
        json_decref(shares);
        json_array_append_new(list, one);
    }
    json_decref(names);
    return json_pack("{s:o, s:o}", "runs", list, "set otherwise", find_differences(runs));
}

/* ---- curves ---- */

/* Each run has a colour and dashes, and later runs have thinner lines: if a line lies on an earlier one, the edges of the latter
 * remain visible. */
static void write_line(FILE *to, const struct runs *runs, int i) {
    static const char *const colors[] = {
        "#2b5c8a", "#e08a2e", "#2f7d5b", "#b5374f", "#8e5bb5", "#3aa6c4", "#7d5a33", "#777777"
    };
    static const char *const dashes[] = { "1", "(8,6)", "(3,4)", "(12,4,3,4)" };
    enum { COLORS = sizeof colors / sizeof *colors, DASHES = sizeof dashes / sizeof *dashes, THINNEST = 2, THICKEST = 6 };
    const double thick = runs->count > 1 ? (double)(runs->count - 1 - i) / (runs->count - 1) : 0;
    fprintf(to, " lw %.1f lc rgb '%s' dashtype %s", THINNEST + (THICKEST - THINNEST) * thick, colors[i % COLORS],
            dashes[i % DASHES]);
}

static void write_losses(FILE *to, const struct runs *runs, double top) {
    fprintf(to, "set title 'training loss'\nset xlabel 'step'\nset yrange [0:%g]\nset key top right\nplot ", 1.15 * top);
    for (int i = 0; i < runs->count; i++) {
        fprintf(to, "%s$loss%d using 1:3 with lines", i ? ", " : "", i);
        write_line(to, runs, i);
        fputs(" title ", to);
        sgrad__plot_quoted(to, runs->run[i].name);
        fputs(" noenhanced", to);
    }
    fputs("\nunset key\n", to);
}

static void write_tests(FILE *to, const struct runs *runs) {
    const struct sgrad__history_metric *m = main_metric(runs);
    char *title = sgrad_format("test %s", m->title);
    fputs("set title ", to);
    sgrad__plot_quoted(to, title);
    fprintf(to, "\nset xlabel 'epoch'\nset xrange [0<*:*]\nset yrange [*:*]\nset offsets 0.5, 0.5, 0, 0\nset format y '%%g%s'\n"
            "plot ", m->share ? " %%" : "");
    free(title);
    for (int i = 0; i < runs->count; i++) {
        fprintf(to, "%s$test%d using 1:2 with linespoints pt 7 ps 0.5", i ? ", " : "", i);
        write_line(to, runs, i);
    }
    fputs("\n", to);
}

static void write_curves(FILE *to, const void *of) {
    const struct runs *runs = of;
    bool evaluated = false;
    double top = 0;     /* bounded for each run: a run that has diverged must not flatten the others */
    for (int i = 0; i < runs->count; i++) {
        const struct sgrad__history *h = &runs->run[i].history;
        const double first = h->step[0].loss;
        char name[32];
        snprintf(name, sizeof name, "loss%d", i);
        const double own = sgrad__curve_losses(to, name, h);
        top = fmax(top, first > 0 ? fmin(own, 2 * first) : own);
        fprintf(to, "$test%d << END\n", i);
        for (const struct sgrad__history_epoch *e = h->epoch; e < h->epoch + h->epochs; e++)
            fprintf(to, "%g %g\n", e->epoch, sgrad__history_shown(&h->metric[h->trained], e->test[h->trained]));
        fputs("END\n", to);
        evaluated |= sgrad__history_best(h) != NULL;
    }
    fprintf(to, "set multiplot layout 1,%d\nset format y '%%g'\n", (top > 0) + evaluated > 1 ? 2 : 1);
    if (top > 0) write_losses(to, runs, top);
    if (evaluated) write_tests(to, runs);
    fputs("unset multiplot\nset offsets 0, 0, 0, 0\nset xrange [*:*]\n", to);
}

bool sgrad__curves_draw(const char *to, char *const *folder) {
    struct runs runs = { 0 };
    bool read = true;
    for (; folder[runs.count] && read; runs.count++) {
        runs.run = sgrad_array_grow(runs.run, runs.count, sizeof *runs.run);
        runs.run[runs.count] = (struct run){ .folder = folder[runs.count] };
        read = sgrad__history_read(folder[runs.count], &runs.run[runs.count].history) == 0;
    }
    if (read && runs.count) set_columns(&runs);
    const bool drawn = read && runs.count &&
                       sgrad__plot_draw(to, &(struct sgrad__plot){ "curves", "learning curves", 1200, 480, write_curves, &runs });
    for (int i = 0; i < runs.count; i++) sgrad__history_free(&runs.run[i].history);
    free(runs.run);
    return drawn;
}

/* ---- entry point ---- */

static int read_run(const char *folder, struct run *run) {
    run->folder = folder;
    SGRAD_TRY(sgrad__history_read(folder, &run->history));
    SGRAD_TRY(sgrad__timeline_read(folder, &run->timeline, &run->traced));
    if (run->traced) sgrad__overlap_find(&run->timeline, &run->overlap);
    return 0;
}

int sgrad_report_compare(char *const *folder, json_t **json) {
    struct runs runs = { 0 };
    int error = 0;
    for (; folder[runs.count] && !error; runs.count++) {
        runs.run = sgrad_array_grow(runs.run, runs.count, sizeof *runs.run);
        runs.run[runs.count] = (struct run){ 0 };
        error = read_run(folder[runs.count], &runs.run[runs.count]);
    }
    if (!error) set_columns(&runs);
    if (!error && json) *json = as_json(&runs);
    if (!error && !json) print(&runs);
    if (!error && sgrad__plot_draw(folder[0], &(struct sgrad__plot){ "compare", "comparison", 1000, 400, write_curves, &runs }) &&
        !json)
        printf("\nlearning curves: %s/compare.svg, %s/compare.png\n", folder[0], folder[0]);
    for (int i = 0; i < runs.count; i++) {
        sgrad__overlap_free(&runs.run[i].overlap);
        sgrad__timeline_free(&runs.run[i].timeline);
        sgrad__history_free(&runs.run[i].history);
    }
    free(runs.run);
    return error;
}
