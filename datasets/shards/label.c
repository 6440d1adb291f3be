/* label.c: parses the label of a sample in a shard.
 *
 *     0001.cls     "7\n"                            a decimal integer
 *     0001.json    {"label": 7}, {"class": "cat"}   the first of the keys label, class and cls: an integer, or a class's name;
 *                                                  other values, such as null, are no label */
#include "config.h"
#include "datasets/shards/shards.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN = 40, NAME_LIMIT = 1024 };
#define BLANKS " \t\r\n"

static int out_of_range(const char *where, long long label) {
    return sgrad_log_error(SGRAD_EFORMAT, "%s: the label is %lld, but labels must be 0 to %d", where, label,
                           SGRAD__LABELS_LIMIT - 1);
}

static int mixed(const char *where) {
    return sgrad_log_error(SGRAD_EFORMAT, "%s: labels must be all integers or all names of classes, but the shard has both",
                           where);
}

static int take_number(const char *where, long long number, struct sgrad__draft *draft, int32_t *label) {
    if (number < 0 || number >= SGRAD__LABELS_LIMIT) return out_of_range(where, number);
    if (draft->named) return mixed(where);
    draft->numbered = true;
    *label = (int32_t)number;
    return 0;
}

/* Sets *LABEL to the number of NAME in this shard. The last name is tried first, because classes may be sorted. */
static int take_name(const char *where, const char *name, size_t length, struct sgrad__draft *draft, int32_t *label) {
    if (draft->numbered) return mixed(where);
    if (!length || length > NAME_LIMIT || strlen(name) != length || !sgrad__is_text(name, length))
        return sgrad_log_error(SGRAD_EFORMAT, "%s: the name of a class must be 1 to %d bytes of text", where, NAME_LIMIT);
    draft->named = true;
    int c = draft->classes - 1;
    while (c >= 0 && strcmp(draft->class_name[c], name)) c--;
    if (c < 0) {
        if (draft->classes == SGRAD__LABELS_LIMIT)
            return sgrad_log_error(SGRAD_EFORMAT, "%s: a shard must have at most %d classes", where, SGRAD__LABELS_LIMIT);
        c = draft->classes++;
        draft->class_name = sgrad_array_grow(draft->class_name, c, sizeof *draft->class_name);
        draft->class_name[c] = sgrad_format("%s", name);
    }
    *label = c;
    return 0;
}

static int parse_cls(const char *where, const char *text, size_t size, struct sgrad__draft *draft, int32_t *label) {
    char line[SHOWN];
    snprintf(line, sizeof line, "%.*s", (int)(size < SHOWN ? size : SHOWN), text);
    const bool whole = strlen(line) == size;
    const char *number = line + strspn(line, BLANKS), *digits = number + (*number == '-');
    const size_t count = strspn(digits, "0123456789"), blanks = strspn(digits + count, BLANKS);
    if (!whole || !count || count > 18 || digits[count + blanks])
        return sgrad_log_error(SGRAD_EFORMAT, "%s: '%s' must be a decimal integer; write the name of a class to a .json member",
                               where, number);
    return take_number(where, strtoll(number, NULL, 10), draft, label);
}

static int parse_json(const char *where, const char *text, size_t size, struct sgrad__draft *draft, int32_t *label) {
    static const char *const keys[] = { "label", "class", "cls" };
    json_error_t problem;
    json_t *json = json_loadb(text, size, JSON_REJECT_DUPLICATES, &problem), *value = NULL;
    if (!json) return sgrad_log_error(SGRAD_EFORMAT, "%s: line %d: %s", where, problem.line, problem.text);
    for (size_t k = 0; k < sizeof keys / sizeof *keys && !value; k++) {
        value = json_object_get(json, keys[k]);
        if (!json_is_number(value) && !json_is_string(value)) value = NULL;
    }
    int error = 0;
    if (!value)
        *label = SGRAD__NO_LABEL;
    else if (json_is_integer(value))
        error = take_number(where, json_integer_value(value), draft, label);
    else if (json_is_string(value))
        error = take_name(where, json_string_value(value), json_string_length(value), draft, label);
    else
        error = sgrad_log_error(SGRAD_EFORMAT, "%s: the label must be an integer or the name of a class", where);
    json_decref(json);
    return error;
}

int sgrad__label_parse(const char *where, const char *ending, const void *data, size_t size, struct sgrad__draft *draft,
                       int32_t *label) {
    return (strcmp(ending, ".cls") ? parse_json : parse_cls)(where, data, size, draft, label);
}
