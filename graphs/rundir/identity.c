/* identity.c: the values of a run that must not change when it is continued. */
#include "graphs/rundir/rundir.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define NONE "none"

json_t *sgrad__fingerprint_json(uint64_t fingerprint) { return json_sprintf("%016llx", (unsigned long long)fingerprint); }

static json_t *group_text(long group) {
    const char *name = sgrad_group_name(group);
    return name ? json_string(name) : json_sprintf("%ld", group);
}

/* Returns the optimizer with --lookahead and --ema: a resumed run needs the state that these add. */
static json_t *optimizer_text(const struct sgrad_train_options *options) {
    char *ema = options->training.ema > 0 ? sgrad_format(" --ema %g", options->training.ema) : sgrad_format("%s", "");
    char *lookahead = sgrad_lookahead_text(&options->training.lookahead);
    json_t *text = json_sprintf("%s%s%s%s", options->optimizer.name, *lookahead ? " --lookahead " : "", lookahead, ema);
    free(ema);
    free(lookahead);
    return text;
}

static json_t *lora_text(const struct sgrad__lora *lora) {
    return lora ? json_sprintf("%d:%.15g", lora->rank, lora->alpha) : json_string(NONE);
}

json_t *sgrad__identity_json(const struct sgrad__config *config) {
    const struct sgrad_train_options *o = config->options;
    json_t *object = json_object();
    json_object_set_new(object, "model", json_string(config->model));
    json_object_set_new(object, "batch", json_sprintf("%ld", o->training.batch));
    json_object_set_new(object, "seed", json_sprintf("%llu", (unsigned long long)o->training.seed));
    json_object_set_new(object, "bn-group", group_text(o->training.bn_group));
    json_object_set_new(object, "precision", json_string(sgrad_precision_name(o->model.precision)));
    json_object_set_new(object, "optimizer", optimizer_text(o));
    json_object_set_new(object, "lora", lora_text(config->lora));
    json_object_set_new(object, "lora-on", json_string(config->lora ? config->lora->on : NONE));
    json_object_set_new(object, "data", sgrad__fingerprint_json(config->fingerprint));
    return object;
}

char *sgrad__config_identity(const struct sgrad__config *config) {
    json_t *object = sgrad__identity_json(config);
    char *content = json_dumps(object, JSON_COMPACT);
    json_decref(object);
    return content ? content : sgrad_format("{}");
}

/* Compares two values. IS may contain model options that have been added to Stargrad since WAS was written; they must be 0,
 * which means that they have no effect. */
static bool is_same(const char *was, const char *is) {
    const size_t length = strlen(was);
    if (strncmp(was, is, length)) return false;
    for (is += length; *is; is += 2) {
        if (*is != ':' && *is != ',') return false;
        is += strcspn(is, "=");
        if (strncmp(is, "=0", 2)) return false;
    }
    return true;
}

/* Rewrites the lookahead in the text of an optimizer ("sgd --lookahead 5:.8"), which older versions wrote as it was given. */
static void rewrite_lookahead(json_t *identity) {
    static const char option[] = " --lookahead ";
    const char *text = json_string_value(json_object_get(identity, "optimizer")), *at = text ? strstr(text, option) : NULL;
    if (!at) return;
    const char *value = at + strlen(option), *rest = value + strcspn(value, " ");
    char *given = sgrad_format("%.*s", (int)(rest - value), value);
    struct sgrad_lookahead lookahead;
    if (sgrad_lookahead_parse(given, &lookahead)) {
        char *written = sgrad_lookahead_text(&lookahead);
        json_object_set_new(identity, "optimizer",
                            json_sprintf("%.*s%s%s%s", (int)(at - text), text, option, written, rest));
        free(written);
    }
    free(given);
}

/* Adds the values of a run without adapters, if an older version wrote IDENTITY. */
static void add_lora(json_t *identity) {
    static const char *const key[] = { "lora", "lora-on" };
    for (int i = 0; i < 2; i++)
        if (!json_object_get(identity, key[i])) json_object_set_new(identity, key[i], json_string(NONE));
}

int sgrad__identity_same(const char *where, json_t *before, json_t *now) {
    const char *key;
    json_t *value;
    rewrite_lookahead(before);
    add_lora(before);
    json_object_foreach(now, key, value) {
        const char *was = json_string_value(json_object_get(before, key)), *is = json_string_value(value);
        if (!was) return sgrad_log_error(SGRAD_EFORMAT, "%s: 'identity' has no '%s', so the run cannot be continued", where, key);
        if (!is_same(was, is ? is : ""))
            return sgrad_log_error(SGRAD_EINVAL,
                                   "%s: the run has %s %s, so it cannot be continued with %s; leave that option out, or begin "
                                   "another run (--like DIR copies the options)",
                                   where, key, was, is ? is : "none");
    }
    return 0;
}

int sgrad__config_same(const char *where, const char *before, const char *now) {
    json_t *a = json_loads(before, 0, NULL), *b = json_loads(now, 0, NULL);
    int error = sgrad__identity_same(where, a, b);
    json_decref(a);
    json_decref(b);
    return error;
}
