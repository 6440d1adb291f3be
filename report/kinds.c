/* kinds.c: reads kernels.json, which a traced run writes (runtime/trace.c), because StarPU's files name the kernel of a task, but
 * not its kind.
 *
 *     {"kinds": [{"name": "forward", "color": "#3b82c4"}, …], "kernels": {"stargrad_relu_forward": "forward", …}}
 *
 * The file of older runs is only the object that is now "kernels"; their kinds are the five of old_kinds. */
#include "report/kinds.h"
#include "runtime/runtime.h"

#include <stdlib.h>
#include <string.h>

static const struct sgrad__kind old_kinds[] = {
    { "forward", 0x3b82c4 }, { "backward", 0xe08a2e }, { "reduction", 0x8e5bb5 }, { "update", 0x3fa34d }, { "input", 0x9a9a9a },
};
enum { OLD_KINDS = sizeof old_kinds / sizeof *old_kinds };

int sgrad__kinds_find(const struct sgrad__kinds *kinds, const char *name) {
    int i = 0;
    while (i < kinds->count && strcmp(kinds->kind[i].name, name) != 0) i++;
    return i < kinds->count ? i : -1;
}

int sgrad__kinds_of(const struct sgrad__kinds *kinds, const char *model) {
    const char *name = model ? json_string_value(json_object_get(kinds->kernels, model)) : NULL;
    const int kind = name ? sgrad__kinds_find(kinds, name) : -1, input = sgrad__kinds_find(kinds, "input");
    if (kind >= 0) return kind;
    return input >= 0 ? input : kinds->count - 1;
}

static int refuse(const char *path, const char *why) {
    return sgrad_log_error(SGRAD_EFORMAT, "%s: %s; trace the run again", path, why);
}

/* Reads a colour such as "#3b82c4". */
static bool read_color(const char *text, unsigned *color) {
    if (!text || text[0] != '#' || strlen(text) != 7 || strspn(text + 1, "0123456789abcdefABCDEF") != 6) return false;
    *color = (unsigned)strtoul(text + 1, NULL, 16);
    return true;
}

static int read_kinds(const char *path, const json_t *list, struct sgrad__kinds *kinds) {
    json_t *kind;
    size_t i;
    if (!json_array_size(list)) return refuse(path, "contains no kinds of tasks");
    if (json_array_size(list) > SGRAD__KINDS)
        return sgrad_log_error(SGRAD_EFORMAT, "%s: contains %zu kinds of tasks, but a report can have %d at most", path,
                               json_array_size(list), SGRAD__KINDS);
    json_array_foreach(list, i, kind) {
        const char *name = json_string_value(json_object_get(kind, "name"));
        if (!name || !*name || sgrad__kinds_find(kinds, name) >= 0)
            return refuse(path, "a kind of task has no name or the name of another kind");
        kinds->kind[kinds->count].name = name;
        if (!read_color(json_string_value(json_object_get(kind, "color")), &kinds->kind[kinds->count].color))
            return refuse(path, "the color of a kind of task is not like \"#3b82c4\"");
        kinds->count++;
    }
    return 0;
}

static int read_kernels(const char *path, struct sgrad__kinds *kinds) {
    const char *model;
    json_t *kind;
    if (!json_is_object(kinds->kernels)) return refuse(path, "contains no kernels");
    json_object_foreach((json_t *)kinds->kernels, model,
                        kind) if (!json_is_string(kind) ||
                                  sgrad__kinds_find(kinds, json_string_value(kind)) <
                                      0) return sgrad_log_error(SGRAD_EFORMAT,
                                                                "%s: the kind of kernel %s is unknown; trace the run again", path,
                                                                model);
    return 0;
}

static int read_file(const char *path, struct sgrad__kinds *kinds) {
    kinds->file = json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
    if (!json_is_object(kinds->file)) return refuse(path, "was not written by Stargrad, or is incomplete");
    kinds->kernels = json_object_get(kinds->file, "kernels");
    if (json_object_get(kinds->file, "kinds")) {
        SGRAD_TRY(read_kinds(path, json_object_get(kinds->file, "kinds"), kinds));
    } else {
        memcpy(kinds->kind, old_kinds, sizeof old_kinds);
        kinds->count = OLD_KINDS;
        kinds->kernels = kinds->file;
    }
    return read_kernels(path, kinds);
}

int sgrad__kinds_read(const char *folder, struct sgrad__kinds *kinds) {
    struct sgrad__kinds k = { 0 };
    char *path = sgrad_format("%s/trace/kernels.json", folder);
    const int error = read_file(path, &k);
    free(path);
    if (error) sgrad__kinds_free(&k);
    else *kinds = k;
    return error;
}

void sgrad__kinds_free(struct sgrad__kinds *kinds) {
    json_decref(kinds->file);
    *kinds = (struct sgrad__kinds){ 0 };
}
