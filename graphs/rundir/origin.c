/* origin.c: converts the description of a run's features and target to and from config.json. Samples that are used later are
 * encoded in the same manner (datasets/origin.c).
 *
 *     "classes": 2, "class_names": ["no", "yes"],
 *     "features": {"count": 2, "titles": ["a", "b"], "target": "label", "target_column": 3, "mean": […], "deviation": […]}
 *
 * A table whose columns are not all numbers also has a list of its columns:
 *
 *     "columns": [{"title": "a", "fill": 2.5, "flag": true}, {"title": "b", "categories": ["no", "yes"], "fill": 1},
 *                 {"title": "id", "ignored": true}], "missing": "mean", "target_mean": 20.5, "target_deviation": 3.1 */
#include "datasets/datasets.h"
#include "graphs/rundir/rundir.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- writing --------------------------------------------------------------------------------------------------------- */

/* Returns the text as a JSON string; null if TEXT is NULL. A title that is not UTF-8 becomes "", which matches no title. */
static json_t *text_of(const char *text) {
    json_t *string = text ? json_string(text) : json_null();
    return string ? string : json_string("");
}

static json_t *numbers_of(const double *number, int64_t count) {
    json_t *array = json_array();
    for (int64_t i = 0; i < count; i++) json_array_append_new(array, json_real(number[i]));
    return array;
}

static json_t *column_of(const struct sgrad_column *column) {
    json_t *object = json_object();
    if (column->title) json_object_set_new(object, "title", text_of(column->title));
    if (column->kind == SGRAD_COLUMN_IGNORED) {
        json_object_set_new(object, "ignored", json_true());
        return object;
    }
    if (column->kind == SGRAD_COLUMN_CATEGORY) {
        json_t *names = json_array();
        for (int i = 0; i < column->categories; i++) json_array_append_new(names, text_of(column->category[i]));
        json_object_set_new(object, "categories", names);
    }
    json_object_set_new(object, "fill", json_real(column->fill));
    if (column->flagged) json_object_set_new(object, "flag", json_true());
    return object;
}

/* Adds the columns, unless all are numbers and none has missing values, and the scale of the target. */
static void add_columns(json_t *object, const struct sgrad_origin *origin) {
    bool plain = !origin->missing;
    json_t *columns = json_array();
    for (int k = 0; k < origin->columns; k++) {
        plain &= origin->column[k].kind == SGRAD_COLUMN_NUMBER;
        json_array_append_new(columns, column_of(&origin->column[k]));
    }
    if (!plain) json_object_set(object, "columns", columns);
    json_decref(columns);
    if (origin->missing) json_object_set_new(object, "missing", json_string(origin->missing));
    if (!(origin->target_deviation > 0)) return;
    json_object_set_new(object, "target_mean", json_real(origin->target_mean));
    json_object_set_new(object, "target_deviation", json_real(origin->target_deviation));
}

json_t *sgrad__origin_json(const struct sgrad_dataset *dataset) {
    const struct sgrad_origin *o = dataset->origin;
    if (!o) return NULL;
    json_t *object = json_object();
    json_object_set_new(object, "count", json_integer(o->features));
    if (o->shape.rank) {
        json_t *shape = json_array();
        for (int i = 0; i < o->shape.rank; i++) json_array_append_new(shape, json_integer(o->shape.dim[i]));
        json_object_set_new(object, "shape", shape);
    }
    if (o->title) {
        json_t *titles = json_array();
        for (int64_t i = 0; i < o->features; i++) json_array_append_new(titles, text_of(o->title[i]));
        json_object_set_new(object, "titles", titles);
    }
    if (o->target) json_object_set_new(object, "target", text_of(o->target));
    if (o->target_column) json_object_set_new(object, "target_column", json_integer(o->target_column));
    if (o->mean) {
        json_object_set_new(object, "mean", numbers_of(o->mean, o->groups));
        json_object_set_new(object, "deviation", numbers_of(o->deviation, o->groups));
    }
    add_columns(object, o);
    return object;
}

/* ---- reading --------------------------------------------------------------------------------------------------------- */

/* Returns COUNT strings; NULL if COUNT is 0 or differs from the length of the array. The caller must free them. */
static char **take_texts(const json_t *array, int64_t count) {
    if (!count || json_array_size(array) != (size_t)count) return NULL;
    char **text = sgrad_xcalloc((size_t)count + 1, sizeof *text);
    for (int64_t i = 0; i < count; i++) {
        const char *value = json_string_value(json_array_get(array, (size_t)i));
        text[i] = sgrad_format("%s", value ? value : "");
    }
    return text;
}

/* Reads finite numbers of at least LOWEST. *COUNT: their number; if it is not 0 already, it must agree. An absent array is
 * valid: *NUMBER is then unchanged. Returns false if the array is malformed. */
static bool take_numbers(const json_t *array, double lowest, int64_t *count, double **number) {
    const size_t size = json_array_size(array);
    if (!array) return true;
    if (!size || (*count && (size_t)*count != size)) return false;
    *count = (int64_t)size;
    *number = sgrad_xcalloc(size, sizeof **number);
    for (size_t i = 0; i < size; i++) {
        (*number)[i] = json_number_value(json_array_get(array, i));
        if (!json_is_number(json_array_get(array, i)) || !((*number)[i] >= lowest) || !isfinite((*number)[i])) return false;
    }
    return true;
}

/* Reads a shape of COUNT elements. An absent shape is valid: SHAPE is then unchanged. Returns false if it is malformed. */
static bool take_shape(const json_t *array, int64_t count, struct sgrad_shape *shape) {
    if (!array) return true;
    if (json_array_size(array) > SGRAD_MAX_RANK) return false;
    for (size_t i = 0; i < json_array_size(array); i++) {
        const json_int_t side = json_integer_value(json_array_get(array, i));
        if (side < 1 || count % side) return false;
        shape->dim[shape->rank++] = side;
        count /= side;
    }
    return shape->rank > 0 && count == 1;
}

/* Reads one column, and adds the number of its features to *FEATURES. Returns false if it is malformed. */
static bool take_column(const json_t *object, struct sgrad_column *column, int64_t *features) {
    const json_t *names = json_object_get(object, "categories"), *fill = json_object_get(object, "fill");
    const char *title = json_string_value(json_object_get(object, "title"));
    column->title = title ? sgrad_format("%s", title) : NULL;
    column->kind = names ? SGRAD_COLUMN_CATEGORY : SGRAD_COLUMN_NUMBER;
    if (json_is_true(json_object_get(object, "ignored"))) return column->kind = SGRAD_COLUMN_IGNORED, true;
    column->flagged = json_is_true(json_object_get(object, "flag"));
    column->fill = json_number_value(fill);
    column->category = take_texts(names, (int64_t)json_array_size(names));
    column->categories = (int)json_array_size(names);
    *features += (names ? column->categories : 1) + column->flagged;
    return json_is_number(fill) && isfinite(column->fill) &&
           (!names || (column->categories && column->fill >= 0 && column->fill < column->categories));
}

/* Reads the columns, which must have the features of ORIGIN. Absent columns are valid. */
static bool take_columns(const json_t *features, struct sgrad_origin *origin) {
    enum { MOST = 1 << 24 };
    const json_t *columns = json_object_get(features, "columns");
    const char *missing = json_string_value(json_object_get(features, "missing"));
    int64_t count = 0;
    if (missing && strcmp(missing, "mean") && strcmp(missing, "frequent")) return false;
    origin->missing = missing ? sgrad_format("%s", missing) : NULL;
    origin->target_mean = json_number_value(json_object_get(features, "target_mean"));
    origin->target_deviation = json_number_value(json_object_get(features, "target_deviation"));
    if (!isfinite(origin->target_mean) || !isfinite(origin->target_deviation) || origin->target_deviation < 0) return false;
    if (!columns) return !missing;
    if (!json_array_size(columns) || json_array_size(columns) > MOST) return false;
    origin->column = sgrad_xcalloc(json_array_size(columns) + 1, sizeof *origin->column);
    for (size_t k = 0; k < json_array_size(columns); k++, origin->columns++)
        if (!take_column(json_array_get(columns, k), &origin->column[k], &count)) return origin->columns++, false;
    for (int k = 0; k < origin->columns; k++)
        if (!origin->column[k].title != !origin->target) return false;
    return count == origin->features;
}

static bool take_features(const json_t *features, struct sgrad_origin *origin) {
    enum { MOST = 1 << 30 };
    if (!features) return true;
    const json_int_t count = json_integer_value(json_object_get(features, "count"));
    const json_int_t column = json_integer_value(json_object_get(features, "target_column"));
    const char *target = json_string_value(json_object_get(features, "target"));
    const json_t *columns = json_object_get(features, "columns");
    const json_int_t most = columns ? (json_int_t)json_array_size(columns) : count;
    if (count < 1 || count > MOST || column < 0 || column > most + 1) return false;
    origin->features = count;
    origin->target_column = (int)column;
    if (!take_shape(json_object_get(features, "shape"), count, &origin->shape)) return false;
    origin->target = target ? sgrad_format("%s", target) : NULL;
    origin->title = target ? take_texts(json_object_get(features, "titles"), count) : NULL;
    if (!take_columns(features, origin)) return false;
    if (!take_numbers(json_object_get(features, "mean"), -INFINITY, &origin->groups, &origin->mean)) return false;
    if (!take_numbers(json_object_get(features, "deviation"), 1e-300, &origin->groups, &origin->deviation)) return false;
    return !origin->mean == !origin->deviation && (!origin->groups || count % origin->groups == 0) && (!origin->title || column);
}

static bool take(const json_t *config, struct sgrad_origin *origin) {
    const json_int_t classes = json_integer_value(json_object_get(config, "classes"));
    const json_int_t targets = json_integer_value(json_object_get(config, "targets"));      /* old runs have none */
    if (classes < 0 || classes > 1 << 20 || targets < 0 || targets > INT32_MAX) return false;
    origin->classes = (int)classes;
    origin->targets = targets;
    origin->class_name = take_texts(json_object_get(config, "class_names"), classes);
    return take_features(json_object_get(config, "features"), origin);
}

struct sgrad_origin *sgrad__origin_of(const json_t *config) {
    struct sgrad_origin *o = sgrad_xcalloc(1, sizeof *o);
    if (take(config, o)) return o;
    sgrad_origin_free(o);
    return NULL;
}
