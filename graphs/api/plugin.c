/* plugin.c: loads plug-ins: adds the records of a shared object to the lists of the built-in ones. */
#include "graphs/api/plugin.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char *const none[] = { NULL };
const char *const *sgrad_plugins = none;

/* Every record starts with its name. Two collectives may have the same name if they are of different kinds. */
static const char *name_of(const void *record) { return *(const char *const *)record; }

static bool same_name(const void *a, const void *b) { return !strcmp(name_of(a), name_of(b)); }
static bool same_collective(const void *a, const void *b) {
    const struct sgrad_collective *one = a, *other = b;
    return one->kind == other->kind && same_name(a, b);
}

/* ---- errors in a record, except for missing members; NULL: none ---- */

static bool runs(const struct sgrad_kernel *kernel) { return kernel->cpu || kernel->cuda; }
static bool all_run(const struct sgrad_task *task) {
    bool all = true;
    for (int i = 0; i < SGRAD_MAX_TASKS && task[i].kernel.name; i++) all &= runs(&task[i].kernel);
    return all;
}

static const char *wrong_operation(const void *record) {
    const struct sgrad_op *op = record;
    const unsigned inputs = (1u << op->inputs) - 1;
    if (!all_run(op->forward)) return "has a forward kernel without .cpu";
    if (!all_run(op->backward)) return "has a backward kernel without .cpu";
    if (op->backward[0].kernel.name || (op->no_gradient & inputs) == inputs) return NULL;
    return "has no .backward, so .no_gradient must contain all inputs";
}

static const char *wrong_optimizer(const void *record) {
    const struct sgrad_optimizer *is = record;
    return runs(is->update) ? NULL : "has an update without .cpu";
}

static const char *wrong_augmentation(const void *record) {
    const struct sgrad_augmentation *is = record;
    const int does = (is->move != NULL) + (is->change != NULL) + (is->mix != NULL);
    if (does != 1) return does ? "must have only one of .move, .change, .mix" : "must have one of .move, .change, .mix";
    if (is->numbers < 0 || is->numbers > SGRAD_AUGMENTATION_NUMBERS) return "has an invalid .numbers";
    if ((is->numbers > 0) != (is->argument != NULL)) return "must have .numbers and .argument, their description, or neither";
    for (const struct sgrad_augmentation_number *n = is->number; n < is->number + is->numbers; n++)
        if (n->low > n->high || (n->usual != 0 && (n->usual < n->low || n->usual > n->high)))
            return "has a number whose .usual is not between .low and .high";
    return NULL;
}

/* The lists: address of the built-in list; its offset in the record of a plug-in; members that a record must have. */
struct member {
    const char *name;
    size_t at;
};
#define MEMBER(record, member) { #member, offsetof(struct record, member) }
static const struct list {
    const char *what;
    void *all;
    size_t own;
    bool (*same)(const void *a, const void *b);
    struct member owes[5];
    const char *(*wrong)(const void *record);
} lists[] = {
    { "operation", &sgrad_ops, offsetof(struct sgrad_plugin, ops), same_name,
      { MEMBER(sgrad_op, summary), MEMBER(sgrad_op, infer), MEMBER(sgrad_op, forward[0].kernel.name) }, wrong_operation },
    { "model", &sgrad_models, offsetof(struct sgrad_plugin, models), same_name,
      { MEMBER(sgrad_model, summary), MEMBER(sgrad_model, build) }, NULL },
    { "data set reader", &sgrad_readers, offsetof(struct sgrad_plugin, readers), same_name,
      { MEMBER(sgrad_reader, summary), MEMBER(sgrad_reader, open) }, NULL },
    { "augmentation", &sgrad_augmentations, offsetof(struct sgrad_plugin, augmentations), same_name,
      { MEMBER(sgrad_augmentation, summary) }, wrong_augmentation },
    { "optimizer", &sgrad_optimizers, offsetof(struct sgrad_plugin, optimizers), same_name,
      { MEMBER(sgrad_optimizer, summary), MEMBER(sgrad_optimizer, update), MEMBER(sgrad_optimizer, states) },
      wrong_optimizer },
    { "collective", &sgrad_collectives, offsetof(struct sgrad_plugin, collectives), same_collective,
      { MEMBER(sgrad_collective, summary), MEMBER(sgrad_collective, cost), MEMBER(sgrad_collective, chunks),
        MEMBER(sgrad_collective, schedule) }, NULL },
};
enum { LISTS = sizeof lists / sizeof *lists };

/* Arrays of pointers to records of any type have the same representation in memory, and are accessed as such. */
static const void *const *array_at(const void *place) {
    const void *const *array;
    memcpy(&array, place, sizeof array);
    return array;
}
static const void *const *own_list(const struct list *list, const struct sgrad_plugin *plugin) {
    return array_at((const char *)plugin + list->own);
}

static int count(const void *const *array) {
    int n = 0;
    while (array && array[n]) n++;
    return n;
}

/* ---- checks: completeness and unique names ---- */

static int check_record(const char *path, const struct list *list, const void *record) {
    static const void *nothing;
    if (!name_of(record)) return sgrad_log_error(SGRAD_EFORMAT, "plug-in %s: %s has no name", path, list->what);
    for (const struct member *m = list->owes; m->name; m++)
        if (!memcmp((const char *)record + m->at, &nothing, sizeof nothing))
            return sgrad_log_error(SGRAD_EFORMAT, "plug-in %s: %s %s has no .%s", path, list->what, name_of(record), m->name);
    const char *wrong = list->wrong ? list->wrong(record) : NULL;
    return wrong ? sgrad_log_error(SGRAD_EFORMAT, "plug-in %s: %s %s %s", path, list->what, name_of(record), wrong) : 0;
}

static int check_list(const char *path, const struct list *list, const struct sgrad_plugin *plugin) {
    const void *const *own = own_list(list, plugin);
    for (int i = 0; i < count(own); i++) {
        SGRAD_TRY(check_record(path, list, own[i]));
        for (const void *const *there = array_at(list->all); *there; there++)
            if (list->same(*there, own[i]))
                return sgrad_log_error(SGRAD_ENAME, "plug-in %s: %s '%s' exists already; choose another name", path, list->what,
                                       name_of(own[i]));
        for (int j = 0; j < i; j++)
            if (list->same(own[j], own[i]))
                return sgrad_log_error(SGRAD_ENAME, "plug-in %s: %s '%s' is defined twice", path, list->what, name_of(own[i]));
    }
    return 0;
}

static int check(const char *path, const struct sgrad_plugin *plugin) {
    static const size_t size[SGRAD_RECORD_KINDS] = SGRAD_RECORD_SIZES;
    if (!plugin)
        return sgrad_log_error(SGRAD_EFORMAT, "plug-in %s: is not a plug-in: it has no SGRAD_PLUGIN (graphs/api/plugin.h)", path);
    if (plugin->version != SGRAD_PLUGIN_VERSION)
        return sgrad_log_error(SGRAD_EFORMAT,
                               "plug-in %s: was compiled for version %d of the plug-in interface, but this Stargrad requires "
                               "version %d; compile the plug-in again with the headers of this Stargrad",
                               path, plugin->version, SGRAD_PLUGIN_VERSION);
    if (memcmp(plugin->size, size, sizeof size))
        return sgrad_log_error(SGRAD_EFORMAT,
                               "plug-in %s: its records have other sizes than in this Stargrad; compile the plug-in again with "
                               "the headers of this Stargrad",
                               path);
    for (int k = 0; k < LISTS; k++) SGRAD_TRY(check_list(path, &lists[k], plugin));
    return 0;
}

/* ---- adding ---- */

/* Returns a new list. The old one is not freed, because other threads may be reading it. */
static const void *const *joined(const void *const *a, const void *const *b) {
    const int n = count(a), m = count(b);
    const void **both = sgrad_xcalloc((size_t)n + (size_t)m + 1, sizeof *both);
    memcpy(both, a, (size_t)n * sizeof *both);
    if (m) memcpy(both + n, b, (size_t)m * sizeof *both);
    return both;
}

static void add(char *path, const struct sgrad_plugin *plugin) {
    const void *const file[] = { path, NULL };
    for (int k = 0; k < LISTS; k++) {
        const void *const *all = joined(array_at(lists[k].all), own_list(&lists[k], plugin));
        memcpy(lists[k].all, &all, sizeof all);
    }
    const void *const *files = joined(array_at(&sgrad_plugins), file);
    memcpy(&sgrad_plugins, &files, sizeof files);
}

static int load(char *path) {
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!object) return sgrad_log_error(SGRAD_EIO, "plug-in %s: cannot be loaded: %s", path, dlerror());
    const struct sgrad_plugin *plugin = dlsym(object, "sgrad_plugin");
    int error = check(path, plugin);
    if (error) dlclose(object);
    else add(path, plugin);
    return error;
}

int sgrad_plugin_open(const char *path) {
    char *real = realpath(path, NULL);
    if (!real) return sgrad_log_error(SGRAD_EIO, "plug-in %s: %s", path, strerror(errno));
    for (const char *const *p = sgrad_plugins; *p; p++)
        if (!strcmp(*p, real)) return free(real), 0;
    int error = load(real);
    if (error) free(real);
    return error;
}
