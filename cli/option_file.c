/* option_file.c: reads a file of options: a JSON object, by the long names of the options.
 *
 *     { "model": "resnet20", "batch": 64, "no-shuffle": true }      is inserted before the words of the command line,
 *     --model=resnet20 --batch=64 --no-shuffle                      so that options on the command line override it
 *
 * false disables a flag that is set in the options of a run (--like, --resume). */
#include "cli/cli.h"

#include <stdlib.h>
#include <string.h>

const struct sgrad__option *sgrad__option_find(const struct sgrad__command *command, const char *name) {
    for (const struct sgrad__option *o = command->options; o->help; o++)
        if (o->name && strcmp(o->name, name) == 0) return o;
    return NULL;
}

#define FILE_LIMIT ((size_t)1 << 20)

/* Returns the word of option OPTION with VALUE; "" if it has no effect; NULL: VALUE is invalid. The caller must free it. */
static char *word_of(const struct sgrad__option *option, const json_t *value) {
    const bool leaves = !option->value || *option->value == '[';
    if (json_is_false(value) && sgrad__option_is_flag(option)) {
        char *opposite = sgrad__option_opposite(option->name), *word = sgrad_format("--%s", opposite);
        free(opposite);
        return word;
    }
    if (json_is_null(value) || json_is_false(value)) return sgrad_format("%s", "");
    if (json_is_true(value)) return leaves ? sgrad_format("--%s", option->name) : NULL;
    if (!option->value) return NULL;
    if (json_is_string(value)) return sgrad_format("--%s=%s", option->name, json_string_value(value));
    if (json_is_integer(value)) return sgrad_format("--%s=%lld", option->name, (long long)json_integer_value(value));
    return json_is_real(value) ? sgrad_format("--%s=%.17g", option->name, json_real_value(value)) : NULL;
}

static int take(const struct sgrad__command *command, const char *path, const json_t *object, char **word, int *words) {
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)object, name, value) {
        const struct sgrad__option *o = strcmp(name, "config") ? sgrad__option_find(command, name) : NULL;
        if (!o && json_object_get(object, "identity"))
            return sgrad__wrong("%s: %s is the config.json of a run, not a file of options; use --like and the folder of the run",
                                command->name, path);
        if (!o) return sgrad__wrong("%s: %s: unknown option '%s'; see stargrad %s --help", command->name, path, name,
                                    command->name);
        char *is = word_of(o, value);
        if (!is)
            return sgrad__wrong("%s: %s: option '%s' must be %s; see stargrad %s --help", command->name, path, name,
                                o->value ? "a string or a number" : "true or false", command->name);
        if (*is) word[(*words)++] = is;
        else free(is);
    }
    return SGRAD__DONE;
}

int sgrad__config_words(const struct sgrad__command *command, const char *path, int argc, char **argv, char ***all, int *count) {
    json_t *object;
    if (sgrad_json_read(path, FILE_LIMIT, &object)) return SGRAD__FAILED;
    if (!json_is_object(object)) {
        sgrad_log_error(SGRAD_EFORMAT, "%s: is not a JSON object of options", path);
        json_decref(object);
        return SGRAD__FAILED;
    }
    char **word = sgrad_xcalloc((size_t)argc + json_object_size(object) + 1, sizeof *word);
    int words = 1;
    word[0] = argv[0];
    const int status = take(command, path, object, word, &words);
    json_decref(object);
    memcpy(word + words, argv + 1, (size_t)(argc - 1) * sizeof *word);
    *all = word;
    *count = words + argc - 1;
    return status;
}
