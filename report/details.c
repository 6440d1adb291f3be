/* details.c: reads, prints and draws the results of eval --details:
 *
 *     confusion: a row for each class,        accuracy         reliability: accuracy of the samples whose most
 *     a column for each predicted class       of each class    probable class has about this probability  */
#include "report/details.h"

#include "report/pictures.h"
#include "runtime/runtime.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

enum { FILE_LIMIT = 1 << 28 };
enum { MATRIX = 100, NAMES = 40, COLUMNS = 20, COUNTS = 12 };   /* maximum classes: matrix, row names, column names, counts */
enum { WIDTH = 1240, HEIGHT = 430, ROW = 16, FRAME = 90 };  /* points; height of a name; height above and below the names */
#define RIGHT 0x2b5c8a
#define WRONG 0xc0392b

/* ---- reading --------------------------------------------------------------------------------------------------------- */

static bool is_share(const json_t *value) {
    return json_is_null(value) || (json_is_number(value) && json_number_value(value) >= 0 && json_number_value(value) <= 1);
}

static bool is_count(const json_t *value) { return json_is_integer(value) && json_integer_value(value) >= 0; }

static bool is_class(const json_t *class) {
    return json_is_string(json_object_get(class, "name")) && is_count(json_object_get(class, "samples")) &&
           is_share(json_object_get(class, "accuracy"));
}

static bool is_bin(const json_t *bin) {
    return is_count(json_object_get(bin, "samples")) && is_share(json_object_get(bin, "probability")) &&
           is_share(json_object_get(bin, "accuracy"));
}

/* Returns true if IS is true for all elements of LIST. COUNT: the required number of elements; 0: at least one. */
static bool are(const json_t *list, size_t count, bool (*is)(const json_t *value)) {
    const size_t size = json_array_size(list);
    if (!json_is_array(list) || !size || (count && size != count)) return false;
    for (size_t i = 0; i < size; i++)
        if (!is(json_array_get(list, i))) return false;
    return true;
}

static bool is_whole(const json_t *details) {
    const json_t *classes = json_object_get(details, "classes"), *confusion = json_object_get(details, "confusion");
    const json_t *top5 = json_object_get(details, "top5");      /* NULL: there are five classes or fewer */
    const size_t count = json_array_size(classes);
    bool whole = are(classes, 0, is_class) && json_array_size(confusion) == count &&
                 are(json_object_get(details, "calibration"), 0, is_bin) && (!top5 || is_share(top5)) &&
                 is_share(json_object_get(details, "calibration_error")) && json_is_string(json_object_get(details, "data")) &&
                 json_is_string(json_object_get(details, "weights"));
    for (size_t i = 0; i < count && whole; i++) whole = are(json_array_get(confusion, i), count, is_count);
    return whole;
}

int sgrad__details_read(const char *folder, json_t **details) {
    char *path = sgrad_format("%s/details.json", folder);
    json_t *json = NULL;
    int error = access(path, F_OK) ? 0 : sgrad_json_read(path, FILE_LIMIT, &json);
    if (json && !is_whole(json)) {
        error = sgrad_log_error(SGRAD_EFORMAT, "%s: was not written by stargrad eval --details; run that command again", path);
        json_decref(json);
    }
    if (!error) *details = json;
    free(path);
    return error;
}

/* ---- printing -------------------------------------------------------------------------------------------------------- */

static double number(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

static const char *name_of(const json_t *classes, size_t i) {
    return json_string_value(json_object_get(json_array_get(classes, i), "name"));
}

void sgrad__details_print(const json_t *details) {
    const json_t *classes = json_object_get(details, "classes");
    const size_t count = json_array_size(classes);
    size_t worst = count;
    for (size_t i = 0; i < count; i++) {
        const double accuracy = number(json_array_get(classes, i), "accuracy");
        if (isfinite(accuracy) && (worst == count || accuracy < number(json_array_get(classes, worst), "accuracy"))) worst = i;
    }
    printf("evaluated on %s: ", json_string_value(json_object_get(details, "data")));
    if (json_object_get(details, "top5")) printf("top-5 %.2f %%, ", 100 * number(details, "top5"));
    printf("calibration error %.2f %%", 100 * number(details, "calibration_error"));
    if (worst < count)
        printf(", worst class %s, %.2f %%", name_of(classes, worst), 100 * number(json_array_get(classes, worst), "accuracy"));
    putchar('\n');
}

/* ---- drawing --------------------------------------------------------------------------------------------------------- */

static void write_classes(FILE *to, const json_t *classes, bool named) {
    const size_t count = json_array_size(classes);
    fprintf(to, "set yrange [%g:-0.5]\nunset ytics\n", (double)count - 0.5);
    for (size_t i = 0; i < count && named; i++) {
        fputs(i ? "set ytics add (" : "set ytics (", to);
        sgrad__plot_quoted(to, name_of(classes, i));
        fprintf(to, " %zu) scale 0 noenhanced\n", i);
    }
}

/* Mixes white and COLOR; SHARE: the fraction of COLOR. */
static unsigned tint(double share, unsigned color) {
    unsigned mixed = 0;
    for (int shift = 0; shift < 24; shift += 8)
        mixed |= (unsigned)lround(255 + share * ((double)(color >> shift & 255) - 255)) << shift;
    return mixed;
}

/* Writes the cells that are not empty. The colour shows the fraction of the row's samples; small fractions remain visible. */
static void write_matrix(FILE *to, const json_t *details) {
    const json_t *classes = json_object_get(details, "classes"), *confusion = json_object_get(details, "confusion");
    const size_t count = json_array_size(classes);
    fputs("$cell << END\n", to);
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < count; j++) {
            const double n = json_number_value(json_array_get(json_array_get(confusion, i), j));
            const double share = fmin(1, n / fmax(1, number(json_array_get(classes, i), "samples")));
            if (n > 0)
                fprintf(to, "%zu %zu %u %.0f %u\n", j, i, tint(sqrt(share), i == j ? RIGHT : WRONG), n,
                        share > 0.4 ? 0xffffff : 0x222222);
        }
    fputs("END\nset title 'confusion'\n", to);
    fprintf(to, "set xrange [-0.5:%g]\nunset xtics\nunset grid\n", (double)count - 0.5);
    for (size_t i = 0; i < count && count <= COLUMNS; i++) {
        fputs(i ? "set xtics add (" : "set xtics (", to);
        sgrad__plot_quoted(to, name_of(classes, i));
        fprintf(to, " %zu) rotate by -45 scale 0 noenhanced\n", i);
    }
    fputs("set style fill solid 1 noborder\nplot $cell using 1:2:($1-.5):($1+.5):($2-.5):($2+.5):3 with boxxyerror "
          "lc rgb variable", to);
    if (count <= COUNTS) fputs(", '' using 1:2:4:5 with labels tc rgb variable", to);
    fputs("\nset xtics auto rotate by 0 nomirror scale 1\nset grid xtics lc '#e4e4e4' lt 1\n", to);
}

static void write_accuracies(FILE *to, const json_t *classes) {
    fputs("$class << END\n", to);
    for (size_t i = 0; i < json_array_size(classes); i++) {
        const double accuracy = number(json_array_get(classes, i), "accuracy");
        if (isfinite(accuracy)) fprintf(to, "%zu %g\n", i, 100 * accuracy);
    }
    fputs("END\nset title 'accuracy of each class'\nset xrange [0:100]\nset format x '%g %%'\nset style fill solid 1 noborder\n"
          "plot $class using 2:1:(0):2:($1-.4):($1+.4) with boxxyerror lc rgb '#2b5c8a'\nset format x '%g'\n", to);
}

/* Guo et al., 2017, figure 1: bars below the diagonal are overconfident. */
static void write_reliability(FILE *to, const json_t *details) {
    const json_t *bins = json_object_get(details, "calibration");
    const double width = 1 / (double)json_array_size(bins);
    fputs("$bin << END\n", to);
    for (size_t i = 0; i < json_array_size(bins); i++) {
        const json_t *bin = json_array_get(bins, i);
        if (json_integer_value(json_object_get(bin, "samples")))
            fprintf(to, "%g %g %g %g\n", ((double)i + 0.5) * width, number(bin, "accuracy"), (double)i * width,
                    (double)(i + 1) * width);
    }
    fprintf(to,
            "END\nset title 'calibration error %.2f %%'\nset xlabel 'probability of the predicted class'\nset ylabel 'fraction "
            "correct'\n",
            100 * number(details, "calibration_error"));
    fputs("set xrange [0:1]\nset yrange [0:1]\nset xtics auto\nset ytics auto scale 1\nset style fill solid 1 noborder\n"
          "plot $bin using 1:2:3:4:(0):2 with boxxyerror lc rgb '#2b5c8a', x with lines dt 2 lc '#c8752d'\n"
          "unset xlabel\nunset ylabel\n", to);
}

static void write_details(FILE *to, const void *of) {
    const json_t *details = of, *classes = json_object_get(details, "classes");
    const size_t count = json_array_size(classes);
    fprintf(to, "set multiplot layout 1,%d\n", count <= MATRIX ? 3 : 2);
    write_classes(to, classes, count <= NAMES);
    if (count <= MATRIX) write_matrix(to, details);
    write_accuracies(to, classes);
    write_reliability(to, details);
    fputs("unset multiplot\nset grid noxtics\n", to);
}

bool sgrad__details_draw(const char *folder, const json_t *details) {
    const int classes = (int)json_array_size(json_object_get(details, "classes")), named = FRAME + ROW * classes;
    return sgrad__plot_draw(folder,
                            &(struct sgrad__plot){ "details", "plot of the classes", WIDTH,
                                                   classes <= NAMES && named > HEIGHT ? named : HEIGHT, write_details, details });
}
