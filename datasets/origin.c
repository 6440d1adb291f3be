/* origin.c: matches samples with those that a network was trained on, by the names of their classes.
 *
 *     trained on     0 cat    1 dog    2 owl
 *     read           0 dog    1 owl             labels 0 1 become 1 2; a warning lists the missing class cat
 *     read           0 cat    1 emu             refused: emu is unknown
 *
 * Labels without names are numbers and are not changed. */
#include "config.h"
#include "datasets/datasets.h"
#include "datasets/formats.h"

#include <stdlib.h>
#include <string.h>

static char **copy_names(char *const *name, int64_t count) {
    char **copy = name ? sgrad_xcalloc((size_t)count + 1, sizeof *copy) : NULL;
    for (int64_t i = 0; name && i < count; i++) copy[i] = sgrad_format("%s", name[i]);
    return copy;
}

static void free_names(char **name, int64_t count) {
    for (int64_t i = 0; name && i < count; i++) free(name[i]);
    free(name);
}

static double *copy_numbers(const double *number, int64_t count) {
    double *copy = number ? sgrad_xcalloc((size_t)count, sizeof *copy) : NULL;
    if (copy) memcpy(copy, number, (size_t)count * sizeof *copy);
    return copy;
}

static char *copy_text(const char *text) { return text ? sgrad_format("%s", text) : NULL; }

static struct sgrad_column *copy_columns(const struct sgrad_column *column, int count) {
    struct sgrad_column *copy = count ? sgrad_xcalloc((size_t)count + 1, sizeof *copy) : NULL;
    for (int k = 0; k < count; k++) {
        copy[k] = column[k];
        copy[k].title = copy_text(column[k].title);
        copy[k].category = copy_names(column[k].category, column[k].categories);
    }
    return copy;
}

void sgrad__origin_add_columns(struct sgrad_origin *origin) {
    if (origin->columns) return;
    if (!origin->target_column) origin->target_column = (int)origin->features + 1;
    origin->columns = (int)origin->features;
    origin->column = sgrad_xcalloc((size_t)origin->columns + 1, sizeof *origin->column);
    for (int k = 0; k < origin->columns; k++) origin->column[k].title = copy_text(origin->title ? origin->title[k] : NULL);
}

struct sgrad_origin *sgrad__origin_copy(const struct sgrad_origin *from) {
    struct sgrad_origin *o = sgrad_xcalloc(1, sizeof *o);
    *o = *from;
    o->class_name = copy_names(from->class_name, from->classes);
    o->title = copy_names(from->title, from->features);
    o->column = copy_columns(from->column, from->columns);
    o->missing = copy_text(from->missing);
    o->target = copy_text(from->target);
    o->mean = copy_numbers(from->mean, from->groups);
    o->deviation = copy_numbers(from->deviation, from->groups);
    return o;
}

void sgrad_origin_free(struct sgrad_origin *origin) {
    if (!origin) return;
    free_names(origin->class_name, origin->classes);
    free_names(origin->title, origin->features);
    for (int k = 0; k < origin->columns; k++) {
        free(origin->column[k].title);
        free_names(origin->column[k].category, origin->column[k].categories);
    }
    free(origin->column);
    free(origin->missing);
    free(origin->target);
    free(origin->mean);
    free(origin->deviation);
    free(origin);
}

char *sgrad__class_name(const char *const *name, int class) {
    return name ? sgrad_format("%s", name[class]) : sgrad_format("%d", class);
}

/* Returns true if two names are equal, as texts or, as in a table, as numbers: "1" and "1.0" are the same class. */
static bool is_same(const char *a, const char *b) {
    double x, y;
    return !strcmp(a, b) || (sgrad__csv_number(a, &x) && sgrad__csv_number(b, &y) && !sgrad__csv_order(a, b));
}

/* Returns the class of ORIGIN that is called NAME; -1: no such class. Equal texts take precedence over equal numbers. */
static int find(const struct sgrad_origin *origin, const char *name) {
    int found = -1;
    for (int c = 0; c < origin->classes; c++) {
        char *known = sgrad__class_name((const char *const *)origin->class_name, c);
        const bool equal = !strcmp(known, name);
        if (equal || (found < 0 && is_same(known, name))) found = c;
        free(known);
        if (equal) break;
    }
    return found;
}

void sgrad__list_name(char **list, int *count, int few, bool quoted, const char *name) {
    const char *quote = quoted ? "'" : "", *before = *list ? *list : "", *comma = *list ? ", " : "";
    if (++*count > few + 1) return;
    char *longer = *count <= few ? sgrad_format("%s%s%s%.100s%s", before, comma, quote, name, quote)
                                 : sgrad_format("%s, …", before);
    free(*list);
    *list = longer;
}

enum { FEW = 10 };

/* Checks labels without names: the largest must be a class of the network. With EVERY, a larger one makes the data set
 * unlabelled. SGRAD_EFORMAT. */
static int take_numbers(struct sgrad_dataset *dataset, const char *data, const struct sgrad_origin *origin, bool every) {
    if (dataset->classes <= origin->classes) return 0;
    if (every) {
        sgrad_log_warning("%s: has classes up to %d, but the network has %d classes; labels are not compared", data,
                          dataset->classes - 1, origin->classes);
        dataset->unlabelled = true;
        return 0;
    }
    return sgrad_log_error(SGRAD_EFORMAT, "%s: has a class %d, but the network was trained on %d classes: 0 to %d", data,
                           dataset->classes - 1, origin->classes, origin->classes - 1);
}

static int take_names(struct sgrad_dataset *dataset, const char *data, const struct sgrad_origin *origin, bool every) {
    char *unknown = NULL, *missing = NULL;
    bool *there = sgrad_xcalloc((size_t)origin->classes, sizeof *there);
    int unknowns = 0, missings = 0, error = 0;
    dataset->label_of = sgrad_xcalloc((size_t)dataset->classes, sizeof *dataset->label_of);
    for (int c = 0; c < dataset->classes; c++) {
        const int label = dataset->label_of[c] = find(origin, dataset->class_name[c]);
        if (label < 0) sgrad__list_name(&unknown, &unknowns, FEW, true, dataset->class_name[c]);
        else there[label] = true;
    }
    for (int c = 0; c < origin->classes && !unknowns; c++) {
        char *name = there[c] ? NULL : sgrad__class_name((const char *const *)origin->class_name, c);
        if (name) sgrad__list_name(&missing, &missings, FEW, true, name);
        free(name);
    }
    const char *are = sgrad_plural(unknowns, "class", "classes");
    if (unknowns && every)
        sgrad_log_warning("%s: the network was not trained on the %s %s; labels are not compared", data, are, unknown);
    else if (unknowns)
        error = sgrad_log_error(
            SGRAD_EFORMAT, "%s: the network was not trained on the %s %s; use 'stargrad predict', which accepts unknown classes",
            data, are, unknown);
    if (missings && !every)
        sgrad_log_warning("%s: has no sample of the %s %s, on which the network was trained", data,
                          sgrad_plural(missings, "class", "classes"), missing);
    dataset->unlabelled |= unknowns > 0;
    free(unknown);
    free(missing);
    free(there);
    return error;
}

int sgrad__origin_match(struct sgrad_dataset *dataset, const char *data, const struct sgrad_origin *origin, bool every) {
    if (!dataset->classes || !origin->classes) return 0;
    const bool windows = dataset->shifts > 0;     /* their classes are the tokens of the files */
    if (!windows && !dataset->unlabelled)
        SGRAD_TRY(dataset->class_name ? take_names(dataset, data, origin, every) : take_numbers(dataset, data, origin, every));
    if (windows) return 0;
    dataset->own_name = copy_names(origin->class_name, origin->classes);
    dataset->class_name = (const char *const *)dataset->own_name;
    dataset->classes = origin->classes;
    int32_t *label = (int32_t *)sgrad_dataset_target(dataset)->data;
    const int64_t count = dataset->count * sgrad_shape_count(&sgrad_dataset_target(dataset)->shape);
    for (int64_t i = 0; label && i < count; i++)
        if (dataset->unlabelled) label[i] = 0;
        else if (dataset->label_of && label[i] >= 0) label[i] = dataset->label_of[label[i]];
    return 0;
}
