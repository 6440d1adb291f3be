/* machine_file.c: reads machine files and checks them against the table of their keys (machine_keys.c).
 *
 *     { "name": "titan", "device": { "count": {"value": 1, "source": "…"}, … }, "measured": [ { "model": "nin", … } ], … }
 *        name                         device.count                                             measured[0].model
 *
 * All problems of a file are reported in one message: first the missing keys, then the wrong ones. */
#include "config.h"
#include "planner/machine_keys.h"

#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* ---- problems --------------------------------------------------------------------------------------------------- */

struct reading {
    const char *file;
    char *missing, *wrong; /* lists for the message; NULL: empty */
    int left_out;          /* problems that the message has no space for */
};
enum { LIST_BYTES = 750 }; /* of each list; a line of the log has at most 2048 */

static void append(struct reading *reading, char **list, const char *separator, char *text) {
    if (*list && strlen(*list) + strlen(text) > LIST_BYTES) {
        reading->left_out++;
        free(text);
        return;
    }
    char *longer = sgrad_format("%s%s%s", *list ? *list : "", *list ? separator : "", text);
    free(*list);
    free(text);
    *list = longer;
}

__attribute__((format(printf, 3, 4))) static void wrong(struct reading *reading, const char *path, const char *format, ...) {
    char what[512];
    va_list list;
    va_start(list, format);
    vsnprintf(what, sizeof what, format, list);
    va_end(list);
    append(reading, &reading->wrong, "; ", sgrad_format("%s: %s", path, what));
}

static void missing(struct reading *reading, const char *path) {
    append(reading, &reading->missing, ", ", sgrad_format("%s", path));
}

/* Logs all problems as one line, and frees the lists. */
static int finish(struct reading *reading) {
    const char *absent = reading->missing, *bad = reading->wrong;
    int error = 0;
    if (absent || bad) {
        char *more = reading->left_out ? sgrad_format("; and %d more", reading->left_out) : sgrad_format("%s", "");
        error = sgrad_log_error(SGRAD_EFORMAT, "%s: %s%s%s%s%s; 'stargrad plan --help' describes the format", reading->file,
                                absent ? "missing: " : "", absent ? absent : "", absent && bad ? "; " : "", bad ? bad : "", more);
        free(more);
    }
    free(reading->missing);
    free(reading->wrong);
    return error;
}

/* ---- reading ---------------------------------------------------------------------------------------------------- */

/* Returns the last word of FIELD's path if its object is PARENT ("" or "bus." or "calls[]."), else NULL. */
static const char *key_in(const struct sgrad__machine_field *field, const char *parent) {
    const size_t length = strlen(parent);
    return strncmp(field->path, parent, length) || strchr(field->path + length, '.') ? NULL : field->path + length;
}

/* Reports keys that are not in the table. Otherwise a misspelt key would be ignored silently. */
static void check_keys(struct reading *reading, const char *parent, const char *shown, const json_t *object) {
    const char *names[SGRAD__MACHINE_FIELDS] = { 0 }, *name;
    json_t *value;
    int count = 0;
    for (const struct sgrad__machine_field *f = sgrad__machine_fields; f->path; f++) {
        const char *key = key_in(f, parent);
        if (key && f->rules & SHARE) return;
        if (key) names[count++] = key;
    }
    json_object_foreach((json_t *)object, name, value) {
        int i = 0;
        while (names[i] && strcmp(names[i], name)) i++;
        if (names[i]) continue;
        const char *near = sgrad_suggest(name, names);
        char *path = sgrad_format("%s%s", shown, name);
        if (near)
            wrong(reading, path, "is an unknown key; did you mean %s?", near);
        else
            wrong(reading, path, "is an unknown key");
        free(path);
    }
}

/* Checks X against FIELD. Returns true if it is valid. */
static bool check_number(struct reading *reading, const struct sgrad__machine_field *field, const char *path, double x) {
    const bool whole = field->rules & WHOLE && x != floor(x), low = x < 0 || (x == 0 && !(field->rules & ZERO));
    if (isfinite(x) && !low && !whole && !(field->rules & SIZES && x < 1) && !(field->most > 0 && x > field->most)) return true;
    char *range = sgrad__machine_range(field);
    wrong(reading, path, "is %.10g, but must be %s%s", x, field->rules & WHOLE ? "a whole number, " : "", range);
    free(range);
    return false;
}

static void read_choice(struct reading *reading, const struct sgrad__machine_field *field, const char *path, const json_t *value,
                        void *to) {
    const char *text = json_string_value(value), *at = field->unit;
    const size_t length = text ? strlen(text) : 0;
    for (int i = 0; text; i++) {
        const size_t word = strcspn(at, " ");
        if (word == length && !strncmp(at, text, length)) {
            if (field->size == sizeof(bool))
                *(bool *)to = i;
            else
                *(int *)to = i;
            return;
        }
        if (!at[word]) break;
        at += word + 1;
    }
    char *all = sgrad__machine_choices(field);
    wrong(reading, path, "must be %s", all);
    free(all);
}

static void read_figure(struct reading *reading, const struct sgrad__machine_field *field, const char *path, const json_t *object,
                        void *to) {
    const json_t *value = json_object_get(object, "value");
    const char *source = json_string_value(json_object_get(object, "source"));
    if (!json_is_number(value)) {
        wrong(reading, path, "is not a figure; write {\"value\": NUMBER, \"source\": \"ORIGIN\"}");
        return;
    }
    if (!source || !*source) wrong(reading, path, "has no source");
    const double x = json_number_value(value);
    if (!check_number(reading, field, path, x)) return;
    if (field->size == sizeof(int))
        *(int *)to = (int)x;
    else if (field->size)
        *(double *)to = x;
}

static void read_object(struct reading *reading, const char *parent, const char *shown, const json_t *object, void *base);

/* Reads VALUE, which is NULL if the key is absent. BASE: structure of the object. */
static void read_field(struct reading *reading, const struct sgrad__machine_field *field, const char *path, const json_t *value,
                       void *base) {
    void *to = (char *)base + field->offset;
    if (field->kind == FIGURE && field->usual > 0 && field->size == sizeof(int)) *(int *)to = (int)field->usual;
    if (field->kind == FIGURE && field->usual > 0 && field->size == sizeof(double)) *(double *)to = field->usual;
    if (field->kind == OBJECT) {
        char *parent = sgrad_format("%s.", field->path), *shown = sgrad_format("%s.", path);
        read_object(reading, parent, shown, value, base);
        free(parent);
        free(shown);
    } else if (!value && field->rules & NEEDED)
        missing(reading, path);
    if (!value) return;
    switch (field->kind) {
    case TEXT:
        if (json_is_string(value) && *json_string_value(value))
            *(char **)to = sgrad_format("%s", json_string_value(value));
        else
            wrong(reading, path, "is not a string");
        break;
    case CHOICE: read_choice(reading, field, path, value, to); break;
    case FIGURE: read_figure(reading, field, path, value, to); break;
    case NUMBER:
        if (!json_is_number(value))
            wrong(reading, path, "is not a number");
        else if (check_number(reading, field, path, json_number_value(value)))
            *(double *)to = json_number_value(value);
        break;
    case INTEGER:
        if (!json_is_integer(value))
            wrong(reading, path, "is not a whole number");
        else if (check_number(reading, field, path, (double)json_integer_value(value)))
            *(uint32_t *)to = (uint32_t)json_integer_value(value);
        break;
    case LIST:
        if (!json_is_array(value)) wrong(reading, path, "is not a list");
        break;
    case OBJECT: break;
    }
}

/* Reads the keys of OBJECT; NULL: an empty object. PARENT: the beginning of their paths in the table, "calls[]."; SHOWN: in the
 * file, "calls[3]."; BASE: their structure. */
static void read_object(struct reading *reading, const char *parent, const char *shown, const json_t *object, void *base) {
    if (object && !json_is_object(object)) {
        char *path = sgrad_format("%.*s", (int)strlen(shown) - 1, shown);
        wrong(reading, *shown ? path : "the file", "is not an object");
        free(path);
        return;
    }
    check_keys(reading, parent, shown, object);
    for (const struct sgrad__machine_field *f = sgrad__machine_fields; f->path; f++) {
        const char *key = key_in(f, parent);
        if (!key || f->rules & SHARE) continue;
        char *path = sgrad_format("%s%s", shown, key);
        read_field(reading, f, path, json_object_get(object, key), base);
        free(path);
    }
}

/* Reads element I of LIST, whose path is NAME ("calls"), into BASE. */
static void read_element(struct reading *reading, const char *name, const json_t *list, size_t i, void *base) {
    char *parent = sgrad_format("%s[].", name), *shown = sgrad_format("%s[%zu].", name, i);
    read_object(reading, parent, shown, json_array_get(list, i), base);
    free(parent);
    free(shown);
}

/* ---- rules of several keys -------------------------------------------------------------------------------------- */

static void read_device(struct reading *reading, const json_t *device, struct sgrad_machine *machine) {
    const char *kind = json_string_value(json_object_get(device, "kind"));
    if (kind && machine->device.is_gpu && json_object_get(device, "workers"))
        wrong(reading, "device.workers", "is only for CPUs");
    if (kind && !strcmp(kind, "cpu") && machine->device.count > 1)
        wrong(reading, "device.count", "is %d, but must be 1 for cpu", machine->device.count);
}

/* Reads the fractions of operations: all keys of device.share except traffic. */
static void read_shares(struct reading *reading, const json_t *shares, struct sgrad_machine *machine) {
    const struct sgrad__machine_field *row = sgrad__machine_fields;
    const char *key;
    json_t *value;
    while (!(row->rules & SHARE)) row++;
    struct sgrad__machine_field field = *row;
    json_object_foreach((json_t *)shares, key, value) {
        double share = 0;
        if (!strcmp(key, "traffic")) continue;
        char *path = sgrad_format("device.share.%s", key);
        field.size = sizeof share;
        read_figure(reading, &field, path, value, &share);
        free(path);
        machine->device.efficiency =
            sgrad_array_grow(machine->device.efficiency, machine->device.efficiencies, sizeof *machine->device.efficiency);
        machine->device.efficiency[machine->device.efficiencies++] = (struct sgrad_efficiency){ sgrad_format("%s", key), share };
    }
}

/* Returns the index of the switch NAME; -1: no such switch. */
static int find_switch(const struct sgrad__switch_entry *entry, int entries, const char *name) {
    for (int i = 0; i < entries; i++)
        if (entry[i].name && !strcmp(entry[i].name, name)) return i;
    return -1;
}

/* Follows the switches from the first one, which has the nodes, to the highest one, and stores them in MACHINE. */
static void link_switches(struct reading *reading, const struct sgrad__switch_entry *entry, int entries,
                          struct sgrad_machine *machine) {
    double below = 0;
    for (int at = 0, next; at >= 0; at = next) {
        const struct sgrad__switch_entry *is = &entry[at];
        char *above = sgrad_format("network.switches[%d].above", at), *nodes = sgrad_format("network.switches[%d].nodes", at);
        const bool circle = is->above && machine->network.levels == entries;
        next = is->above && !circle ? find_switch(entry, entries, is->above) : -1;
        if (circle)
            wrong(reading, above, "forms a cycle");
        else if (is->above && next < 0)
            wrong(reading, above, "is not the name of a switch in the list");
        if (below > 0 && is->nodes > 0 && is->nodes <= below)
            wrong(reading, nodes, "is %.0f, but must be larger than that of the switch below, %.0f", is->nodes, below);
        below = is->nodes;
        if (!is->above)
            machine->network.most = is->nodes;
        else if (!circle)
            machine->network.level[machine->network.levels++] = (struct sgrad_switch_level){ is->nodes, is->uplink };
        free(above);
        free(nodes);
    }
}

static void read_switches(struct reading *reading, const json_t *list, struct sgrad_machine *machine) {
    static const char *const of_lower[] = { "nodes", "uplink" };
    const int entries = (int)json_array_size(list);
    struct sgrad__switch_entry *entry = sgrad_xcalloc((size_t)entries, sizeof *entry);
    if (json_is_array(list) && !entries) wrong(reading, "network.switches", "is empty");
    if (entries && machine->network.dimensions) wrong(reading, "network.torus", "cannot be combined with switches");
    for (int i = 0; i < entries; i++) {
        const json_t *object = json_array_get(list, (size_t)i);
        read_element(reading, "network.switches", list, (size_t)i, &entry[i]);
        for (int k = 0; k < 2; k++) {
            char *path = sgrad_format("network.switches[%d].%s", i, of_lower[k]);
            if (json_object_get(object, "above") && !json_object_get(object, of_lower[k])) missing(reading, path);
            free(path);
        }
    }
    machine->network.level = sgrad_xcalloc((size_t)entries, sizeof *machine->network.level);
    if (entries) link_switches(reading, entry, entries, machine);
    for (int i = 0; i < entries; i++) free(entry[i].name), free(entry[i].above);
    free(entry);
}

/* The model may be unknown to this program. The options of a known model must exist. */
static void check_model(struct reading *reading, size_t i, const char *model) {
    char why[256];
    if (!model) return;
    sgrad_log_capture(why, sizeof why);
    const bool good = sgrad_model_equal(model, model);
    sgrad_log_capture(NULL, 0);
    if (good) return;
    char *path = sgrad_format("measured[%zu].model", i);
    wrong(reading, path, "%s", why);
    free(path);
}

static void read_measured(struct reading *reading, const json_t *list, struct sgrad_machine *machine) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        struct sgrad_measured is = { 0 };
        read_element(reading, "measured", list, i, &is);
        check_model(reading, i, is.model);
        machine->measured = sgrad_array_grow(machine->measured, machine->measurements, sizeof *machine->measured);
        machine->measured[machine->measurements++] = is;
    }
}

static int by_hash(const void *one, const void *other) {
    const struct sgrad_task_timing *a = one, *b = other;
    return a->hash != b->hash ? (a->hash > b->hash) - (a->hash < b->hash) : strcmp(a->kernel, b->kernel);
}

static void read_calls(struct reading *reading, const json_t *list, struct sgrad_machine *machine) {
    machine->timed = sgrad_xcalloc(json_array_size(list), sizeof *machine->timed);
    for (size_t i = 0; i < json_array_size(list); i++)
        read_element(reading, "calls", list, i, &machine->timed[machine->timings++]);
    if (!reading->missing && !reading->wrong) qsort(machine->timed, (size_t)machine->timings, sizeof *machine->timed, by_hash);
}

double sgrad_machine_timed(const struct sgrad_machine *machine, const char *kernel, uint32_t hash) {
    const struct sgrad_task_timing wanted = { .kernel = (char *)kernel, .hash = hash };
    const struct sgrad_task_timing *found = bsearch(&wanted, machine->timed, (size_t)machine->timings, sizeof wanted, by_hash);
    return found ? found->seconds : NAN;
}

static void read_all(struct reading *reading, const json_t *file, struct sgrad_machine *machine) {
    const json_t *device = json_object_get(file, "device"), *network = json_object_get(file, "network");
    const json_t *carrying = json_object_get(network, "carrying"); /* the name in version 0.1.0 */
    read_object(reading, "", "", file, machine);
    read_device(reading, device, machine);
    read_shares(reading, json_object_get(device, "share"), machine);
    if (carrying && !json_object_get(network, "cpu_seconds_per_byte"))
        machine->network.cpu_seconds_per_byte = json_number_value(json_object_get(carrying, "value"));
    read_switches(reading, json_object_get(network, "switches"), machine);
    if (machine->price > 0 && !json_object_get(file, "currency")) missing(reading, "currency");
    read_measured(reading, json_object_get(file, "measured"), machine);
    read_calls(reading, json_object_get(file, "calls"), machine);
}

#define FILE_LIMIT ((size_t)64 << 20)

int sgrad_machine_read(const char *name, struct sgrad_machine **machine) {
    struct sgrad_machine *m = sgrad_xcalloc(1, sizeof *m);
    json_t *file = NULL;
    int error = sgrad_machine_find(name, &m->path);
    if (!error) error = sgrad_json_read(m->path, FILE_LIMIT, &file);
    if (!error) {
        struct reading reading = { .file = m->path };
        read_all(&reading, file, m);
        error = finish(&reading);
        json_decref(file);
    }
    if (error)
        sgrad_machine_free(m);
    else
        *machine = m;
    return error;
}
