/* fields.c: converts training options to and from the JSON object in config.json. */
#include "graphs/rundir/rundir.h"

#include <float.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Table of the options: name in config.json, type, and member of struct sgrad_train_options; FIELD: the member has the same
 * name, CALLED: it has another one. */
enum type { TEXT, REAL, INTEGER, FLAG };
#define CALLED(name, type, member) \
    { name, type, offsetof(struct sgrad_train_options, member), sizeof((struct sgrad_train_options){ 0 }.member) }
#define FIELD(type, name) CALLED(#name, type, name)
static const struct field {
    const char *name;
    enum type type;
    size_t at, size;
} fields[] = {
    FIELD(TEXT, model),
    FIELD(TEXT, data),
    FIELD(TEXT, exclude),
    FIELD(FLAG, skip_damaged),
    FIELD(REAL, epochs),
    FIELD(INTEGER, steps),
    FIELD(INTEGER, batch),
    FIELD(INTEGER, micro_batch),
    FIELD(INTEGER, bn_group),
    FIELD(TEXT, optimizer),
    FIELD(REAL, lr),
    FIELD(INTEGER, lr_scale_base),
    FIELD(REAL, momentum),
    FIELD(FLAG, nesterov),
    FIELD(REAL, weight_decay),
    FIELD(FLAG, no_decay_1d),
    FIELD(REAL, beta1),
    FIELD(REAL, beta2),
    FIELD(REAL, eps),
    FIELD(REAL, trust),
    FIELD(REAL, kfac_damping),
    FIELD(TEXT, kfac_damping_schedule),
    FIELD(REAL, kfac_decay),
    FIELD(REAL, kfac_clip),
    FIELD(INTEGER, kfac_factor_every),
    FIELD(INTEGER, kfac_eigen_every),
    FIELD(INTEGER, kfac_lag),
    FIELD(TEXT, kfac_skip),
    FIELD(TEXT, kfac_variant),
    FIELD(FLAG, kfac_inverse),
    FIELD(TEXT, schedule),
    FIELD(REAL, warmup),
    FIELD(REAL, label_smoothing),
    FIELD(REAL, clip_norm),
    FIELD(REAL, ema),
    FIELD(REAL, dice),
    FIELD(FLAG, no_shuffle),
    FIELD(TEXT, augment),
    FIELD(FLAG, no_fuse),
    FIELD(FLAG, no_cuda_graphs),
    FIELD(FLAG, recompute),
    FIELD(INTEGER, image_size),
    FIELD(FLAG, deterministic),
    FIELD(TEXT, init),
    FIELD(TEXT, init_skip),
    FIELD(TEXT, freeze),
    FIELD(TEXT, freeze_after),
    FIELD(TEXT, optimizer_of),
    FIELD(TEXT, lr_of),
    FIELD(TEXT, weight_decay_of),
    FIELD(TEXT, tta),
    FIELD(TEXT, out),
    FIELD(FLAG, resume),
    FIELD(INTEGER, evaluate_every),
    FIELD(FLAG, evaluate_last),
    FIELD(INTEGER, checkpoint_every),
    FIELD(FLAG, checkpoint_in_steps),
    FIELD(REAL, checkpoint_seconds),
    CALLED("keep", INTEGER, keep_checkpoints),
    FIELD(FLAG, best),
    FIELD(INTEGER, patience),
    FIELD(FLAG, nan_ok),
    FIELD(TEXT, strategy),
    FIELD(TEXT, mesh),
    FIELD(TEXT, shard),
    FIELD(INTEGER, servers),
    CALLED("group", INTEGER, group_ranks),
    FIELD(INTEGER, staleness),
    CALLED("backup", INTEGER, backup_workers),
    FIELD(TEXT, allreduce),
    FIELD(REAL, bucket),
    FIELD(TEXT, network),
    FIELD(FLAG, tensorboard),
    FIELD(INTEGER, histograms),
    FIELD(INTEGER, prometheus),
    CALLED("window", INTEGER, steps_in_flight),
    FIELD(REAL, stall_timeout),
    FIELD(INTEGER, cpus),
    FIELD(INTEGER, gpus),
    FIELD(FLAG, gpus_only),
    FIELD(TEXT, scheduler),
};
enum { FIELDS = sizeof fields / sizeof *fields };

static json_t *value_of(const struct field *f, const struct sgrad_train_options *o) {
    const void *at = (const char *)o + f->at;
    switch (f->type) {
    case TEXT: return *(const char *const *)at ? json_string(*(const char *const *)at) : json_null();
    case REAL: return json_real(*(const double *)at);
    case INTEGER: return json_integer(f->size == sizeof(int) ? *(const int *)at : *(const long *)at);
    case FLAG: return json_boolean(*(const bool *)at);
    }
    return NULL;
}

/* ---- one option ------------------------------------------------------------------------------------------------------- */

/* Copies a string that is never freed, because the options that refer to it have no owner. */
static const char *kept(const char *text) {
    static struct text {
        struct text *before;
        char text[];
    } *last;
    struct text *is = sgrad_xcalloc(1, sizeof *is + strlen(text) + 1);
    strcpy(is->text, text);
    is->before = last;
    last = is;
    return is->text;
}

/* Stores VALUE in the field. Returns false if its type is wrong or it is out of range. */
static bool take(const struct field *f, const json_t *value, struct sgrad_train_options *o) {
    void *at = (char *)o + f->at;
    const json_int_t n = json_integer_value(value);
    switch (f->type) {
    case TEXT:
        if (!json_is_string(value) && !json_is_null(value)) return false;
        *(const char **)at = json_is_null(value) ? NULL : kept(json_string_value(value));
        return true;
    case REAL: return json_is_number(value) ? (*(double *)at = json_number_value(value), true) : false;
    case INTEGER:
        if (!json_is_integer(value) || (f->size == sizeof(int) && (n < INT_MIN || n > INT_MAX))) return false;
        if (f->size == sizeof(int)) *(int *)at = (int)n;
        else *(long *)at = (long)n;
        return true;
    case FLAG: return json_is_boolean(value) ? (*(bool *)at = json_is_true(value), true) : false;
    }
    return false;
}

/* ---- options that need their own conversion -------------------------------------------------------------------------- */

/* The seed is written as text, because it may have 64 bits, which not all JSON readers support in numbers. */
static json_t *seed(const struct sgrad_train_options *o) { return json_sprintf("%llu", (unsigned long long)o->seed); }
static bool take_seed(const json_t *value, struct sgrad_train_options *o) {
    const char *text = json_string_value(value);
    char *end = NULL;
    if (json_is_integer(value) && json_integer_value(value) >= 0) return o->seed = (uint64_t)json_integer_value(value), true;
    if (!text || *text < '0' || *text > '9') return false;
    o->seed = strtoull(text, &end, 10);
    return !*end;
}

static json_t *precision(const struct sgrad_train_options *o) { return json_string(sgrad_precision_name(o->precision)); }
static bool take_precision(const json_t *value, struct sgrad_train_options *o) {
    for (enum sgrad_precision p = SGRAD_PRECISION_F32; json_is_string(value) && p <= SGRAD_PRECISION_BF16; p++)
        if (!strcmp(json_string_value(value), sgrad_precision_name(p))) return o->precision = p, true;
    return false;
}

static json_t *placement(const struct sgrad_train_options *o) {
    return json_string(o->partition_data ? "partition" : "replicate");
}
static bool take_placement(const json_t *value, struct sgrad_train_options *o) {
    const char *text = json_is_string(value) ? json_string_value(value) : "";
    o->partition_data = !strcmp(text, "partition");
    return o->partition_data || !strcmp(text, "replicate");
}

/* Returns TEXT as JSON, null if it is empty, and frees it. */
static json_t *take_text(char *text) {
    json_t *value = *text ? json_string(text) : json_null();
    free(text);
    return value;
}

static json_t *lookahead(const struct sgrad_train_options *o) { return take_text(sgrad_lookahead_text(&o->lookahead)); }
static bool take_lookahead(const json_t *value, struct sgrad_train_options *o) {
    if (json_is_null(value)) return o->lookahead = (struct sgrad_lookahead){ 0 }, true;
    return json_is_string(value) && sgrad_lookahead_parse(json_string_value(value), &o->lookahead);
}

static json_t *trace(const struct sgrad_train_options *o) { return take_text(sgrad_step_range_text(&o->trace)); }
static bool take_trace(const json_t *value, struct sgrad_train_options *o) {
    if (json_is_null(value)) return o->trace = (struct sgrad_step_range){ 0 }, true;
    return json_is_string(value) && sgrad_step_range_parse(json_string_value(value), &o->trace);
}

static bool take_numbers(const json_t *value, struct sgrad_numbers *numbers) {
    if (json_is_null(value)) return *numbers = (struct sgrad_numbers){ 0 }, true;
    return json_is_string(value) && sgrad_numbers_parse(json_string_value(value), numbers);
}
static json_t *weights(const struct sgrad_train_options *o) { return take_text(sgrad_numbers_text(&o->class_weights)); }
static json_t *mean(const struct sgrad_train_options *o) { return take_text(sgrad_numbers_text(&o->mean)); }
static json_t *deviation(const struct sgrad_train_options *o) { return take_text(sgrad_numbers_text(&o->std)); }
static bool take_weights(const json_t *value, struct sgrad_train_options *o) { return take_numbers(value, &o->class_weights); }
static bool take_mean(const json_t *value, struct sgrad_train_options *o) { return take_numbers(value, &o->mean); }
static bool take_deviation(const json_t *value, struct sgrad_train_options *o) { return take_numbers(value, &o->std); }

static const struct other {
    const char *name;
    json_t *(*value)(const struct sgrad_train_options *o);
    bool (*take)(const json_t *value, struct sgrad_train_options *o);
} others[] = {
    { "data_placement", placement, take_placement },
    { "seed", seed, take_seed },
    { "precision", precision, take_precision },
    { "lookahead", lookahead, take_lookahead },
    { "class_weights", weights, take_weights },
    { "mean", mean, take_mean },
    { "deviation", deviation, take_deviation },
    { "trace", trace, take_trace },
};
enum { OTHERS = sizeof others / sizeof *others };

/* ---- all options ----------------------------------------------------------------------------------------------------- */

json_t *sgrad__options_json(const struct sgrad_train_options *o) {
    json_t *object = json_object();
    for (const struct field *f = fields; f < fields + FIELDS; f++) json_object_set_new(object, f->name, value_of(f, o));
    for (const struct other *other = others; other < others + OTHERS; other++)
        json_object_set_new(object, other->name, other->value(o));
    return object;
}

int sgrad__options_check(const struct sgrad_train_options *o) {
    for (const struct field *f = fields; f < fields + FIELDS; f++) {
        json_t *value = f->type == TEXT ? value_of(f, o) : json_null();
        if (!value)
            return sgrad_log_error(SGRAD_EINVAL, "%s '%s': is not UTF-8, which config.json is", f->name,
                                   *(const char *const *)((const char *)o + f->at));
        json_decref(value);
    }
    return 0;
}

/* Options that OBJECT lacks, because an older version wrote it, are unchanged. */
int sgrad__options_take(const char *where, const json_t *object, struct sgrad_train_options *options) {
    struct sgrad_train_options o = *options;
    if (!json_is_object(object)) return sgrad_log_error(SGRAD_EFORMAT, "%s: has no options of a run", where);
    for (const struct field *f = fields; f < fields + FIELDS; f++) {
        const json_t *value = json_object_get(object, f->name);
        if (value && !take(f, value, &o))
            return sgrad_log_error(SGRAD_EFORMAT, "%s: option %s has a value of another kind", where, f->name);
    }
    for (const struct other *other = others; other < others + OTHERS; other++) {
        const json_t *value = json_object_get(object, other->name);
        if (value && !other->take(value, &o))
            return sgrad_log_error(SGRAD_EFORMAT, "%s: option %s has a value of another kind", where, other->name);
    }
    *options = o;
    return 0;
}
