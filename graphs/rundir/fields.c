/* fields.c: converts training options to and from the JSON object in config.json. */
#include "graphs/rundir/rundir.h"

#include <float.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Table of the options: name in config.json, type, and member of struct sgrad_train_options. */
enum type { TEXT, REAL, INTEGER, FLAG, NUMBERS, STEPS, LOOKAHEAD };
#define FIELD(name, type, member) \
    { name, type, offsetof(struct sgrad_train_options, member), sizeof(((struct sgrad_train_options *)NULL)->member) }
static const struct field {
    const char *name;
    enum type type;
    size_t at, size;
} fields[] = {
    FIELD("model", TEXT, model.name),
    FIELD("data", TEXT, data.name),
    FIELD("tokenizer", TEXT, data.tokenizer),
    FIELD("field", TEXT, data.field),
    FIELD("exclude", TEXT, data.exclude),
    FIELD("loss_on_answers", FLAG, data.loss_on_answers),
    FIELD("attend", TEXT, data.attend),
    FIELD("skip_damaged", FLAG, data.skip_damaged),
    FIELD("epochs", REAL, training.epochs),
    FIELD("steps", INTEGER, training.steps),
    FIELD("batch", INTEGER, training.batch),
    FIELD("micro_batch", INTEGER, training.micro_batch),
    FIELD("bn_group", INTEGER, training.bn_group),
    FIELD("optimizer", TEXT, optimizer.name),
    FIELD("lr", REAL, optimizer.lr),
    FIELD("lr_scale_base", INTEGER, optimizer.lr_scale_base),
    FIELD("momentum", REAL, optimizer.momentum),
    FIELD("nesterov", FLAG, optimizer.nesterov),
    FIELD("weight_decay", REAL, optimizer.weight_decay),
    FIELD("no_decay_1d", FLAG, optimizer.no_decay_1d),
    FIELD("beta1", REAL, optimizer.beta1),
    FIELD("beta2", REAL, optimizer.beta2),
    FIELD("eps", REAL, optimizer.eps),
    FIELD("trust", REAL, optimizer.trust),
    FIELD("soap_every", INTEGER, optimizer.soap_every),
    FIELD("kfac_damping", REAL, optimizer.kfac.damping),
    FIELD("kfac_damping_schedule", TEXT, optimizer.kfac.damping_schedule),
    FIELD("kfac_decay", REAL, optimizer.kfac.decay),
    FIELD("kfac_clip", REAL, optimizer.kfac.clip),
    FIELD("kfac_factor_every", INTEGER, optimizer.kfac.factor_every),
    FIELD("kfac_eigen_every", INTEGER, optimizer.kfac.eigen_every),
    FIELD("kfac_lag", INTEGER, optimizer.kfac.lag),
    FIELD("kfac_skip", TEXT, optimizer.kfac.skip),
    FIELD("kfac_variant", TEXT, optimizer.kfac.variant),
    FIELD("kfac_inverse", FLAG, optimizer.kfac.inverse),
    FIELD("schedule", TEXT, optimizer.schedule),
    FIELD("warmup", REAL, optimizer.warmup),
    FIELD("label_smoothing", REAL, training.label_smoothing),
    FIELD("clip_norm", REAL, training.clip_norm),
    FIELD("ema", REAL, training.ema),
    FIELD("class_weights", TEXT, training.class_weights),
    FIELD("focal_gamma", REAL, training.focal_gamma),
    FIELD("dice", REAL, training.dice),
    FIELD("no_shuffle", FLAG, data.no_shuffle),
    FIELD("shuffle_window", INTEGER, data.shuffle_window),
    FIELD("data_memory", INTEGER, data.memory),
    FIELD("sampler", TEXT, data.sampler),
    FIELD("augment", TEXT, data.augment),
    FIELD("no_fuse", FLAG, parallel.no_fuse),
    FIELD("no_cuda_graphs", FLAG, parallel.no_cuda_graphs),
    FIELD("recompute", FLAG, model.recompute),
    FIELD("image_size", INTEGER, data.image_size),
    FIELD("eval_resize", INTEGER, data.eval_resize),
    FIELD("exif", FLAG, data.exif),
    FIELD("reduced", FLAG, data.reduced),
    FIELD("split", REAL, data.split),
    FIELD("on", TEXT, data.on),
    FIELD("id", TEXT, data.id),
    FIELD("class_names", TEXT, data.class_names),
    FIELD("deterministic", FLAG, training.deterministic),
    FIELD("init", TEXT, model.init),
    FIELD("init_skip", TEXT, model.init_skip),
    FIELD("lora", TEXT, model.lora),
    FIELD("lora_on", TEXT, model.lora_on),
    FIELD("adapter", TEXT, model.adapter),
    FIELD("freeze", TEXT, training.freeze),
    FIELD("freeze_after", TEXT, training.freeze_after),
    FIELD("optimizer_of", TEXT, optimizer.of),
    FIELD("lr_of", TEXT, optimizer.lr_of),
    FIELD("weight_decay_of", TEXT, optimizer.weight_decay_of),
    FIELD("lookahead", LOOKAHEAD, training.lookahead),
    FIELD("tta", TEXT, evaluation.tta),
    FIELD("mean", NUMBERS, data.mean),
    FIELD("deviation", NUMBERS, data.std),
    FIELD("out", TEXT, output.folder),
    FIELD("resume", FLAG, checkpoint.resume),
    FIELD("evaluate_every", INTEGER, evaluation.every),
    FIELD("evaluate_last", FLAG, evaluation.only_last),
    FIELD("checkpoint_every", INTEGER, checkpoint.every),
    FIELD("checkpoint_in_steps", FLAG, checkpoint.in_steps),
    FIELD("checkpoint_seconds", REAL, checkpoint.seconds),
    FIELD("keep", INTEGER, checkpoint.keep),
    FIELD("snapshot_every", INTEGER, checkpoint.snapshot_every),
    FIELD("best", FLAG, evaluation.best),
    FIELD("best_metric", TEXT, evaluation.metric),
    FIELD("patience", INTEGER, evaluation.patience),
    FIELD("min_delta", REAL, evaluation.min_delta),
    FIELD("nan_ok", FLAG, training.nan_ok),
    FIELD("strategy", TEXT, parallel.strategy),
    FIELD("mesh", TEXT, parallel.mesh),
    FIELD("shard", TEXT, parallel.shard),
    FIELD("memory", INTEGER, parallel.memory),
    FIELD("gpu_memory", INTEGER, parallel.gpu_memory),
    FIELD("spill", TEXT, parallel.spill),
    FIELD("servers", INTEGER, parallel.servers),
    FIELD("group", INTEGER, parallel.group_ranks),
    FIELD("staleness", INTEGER, parallel.staleness),
    FIELD("backup", INTEGER, parallel.backup_workers),
    FIELD("allreduce", TEXT, parallel.allreduce),
    FIELD("bucket", REAL, parallel.bucket),
    FIELD("network", TEXT, parallel.network),
    FIELD("trace", STEPS, output.trace),
    FIELD("tensorboard", FLAG, output.tensorboard),
    FIELD("histograms", INTEGER, output.histograms),
    FIELD("prometheus", INTEGER, output.prometheus),
    FIELD("slow_rank", FLAG, output.slow_rank),
    FIELD("window", INTEGER, parallel.steps_in_flight),
    FIELD("stall_timeout", REAL, parallel.stall_timeout),
    FIELD("cpus", INTEGER, parallel.cpus),
    FIELD("gpus", INTEGER, parallel.gpus),
    FIELD("gpus_only", FLAG, parallel.gpus_only),
    FIELD("scheduler", TEXT, parallel.scheduler),
};
enum { FIELDS = sizeof fields / sizeof *fields };

/* Returns TEXT as JSON, null if it is empty, and frees it. */
static json_t *take_text(char *text) {
    json_t *value = *text ? json_string(text) : json_null();
    free(text);
    return value;
}

static json_t *value_of(const struct field *field, const struct sgrad_train_options *options) {
    const void *at = (const char *)options + field->at;
    switch (field->type) {
    case TEXT: return *(const char *const *)at ? json_string(*(const char *const *)at) : json_null();
    case REAL: return json_real(*(const double *)at);
    case INTEGER: return json_integer(field->size == sizeof(int) ? *(const int *)at : *(const long *)at);
    case FLAG: return json_boolean(*(const bool *)at);
    case NUMBERS: return take_text(sgrad_numbers_text(at));
    case STEPS: return take_text(sgrad_step_range_text(at));
    case LOOKAHEAD: return take_text(sgrad_lookahead_text(at));
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

/* The values of each type, for messages. */
static const char *const wanted[] = {
    [TEXT] = "a text",
    [REAL] = "a number",
    [INTEGER] = "a whole number",
    [FLAG] = "true or false",
    [NUMBERS] = "a text of numbers, such as '0.5,0.4'",
    [STEPS] = "a text of steps, such as '10-20'",
    [LOOKAHEAD] = "a text, such as '5:0.5'",
};

/* Stores VALUE in the field. Returns false if its type is wrong or it is out of range. */
static bool take(const struct field *field, const json_t *value, struct sgrad_train_options *options) {
    void *at = (char *)options + field->at;
    const json_int_t n = json_integer_value(value);
    const char *text = json_string_value(value);
    if (field->type >= NUMBERS && json_is_null(value)) return memset(at, 0, field->size), true;
    switch (field->type) {
    case TEXT:
        if (!json_is_string(value) && !json_is_null(value)) return false;
        *(const char **)at = json_is_null(value) ? NULL : kept(json_string_value(value));
        return true;
    case REAL: return json_is_number(value) ? (*(double *)at = json_number_value(value), true) : false;
    case INTEGER:
        if (!json_is_integer(value) || (field->size == sizeof(int) && (n < INT_MIN || n > INT_MAX))) return false;
        if (field->size == sizeof(int)) *(int *)at = (int)n;
        else *(long *)at = (long)n;
        return true;
    case FLAG: return json_is_boolean(value) ? (*(bool *)at = json_is_true(value), true) : false;
    case NUMBERS: return text && sgrad_numbers_parse(text, at);
    case STEPS: return text && sgrad_step_range_parse(text, at);
    case LOOKAHEAD: return text && sgrad_lookahead_parse(text, at);
    }
    return false;
}

/* ---- options that need their own conversion -------------------------------------------------------------------------- */

/* The seed is written as text, because it may have 64 bits, which not all JSON readers support in numbers. */
static json_t *seed(const struct sgrad_train_options *options) {
    return json_sprintf("%llu", (unsigned long long)options->training.seed);
}
static bool take_seed(const json_t *value, struct sgrad_train_options *options) {
    const char *text = json_string_value(value);
    char *end = NULL;
    if (json_is_integer(value) && json_integer_value(value) >= 0)
        return options->training.seed = (uint64_t)json_integer_value(value), true;
    if (!text || *text < '0' || *text > '9') return false;
    options->training.seed = strtoull(text, &end, 10);
    return !*end;
}

static json_t *precision(const struct sgrad_train_options *options) {
    return json_string(sgrad_precision_name(options->model.precision));
}
static bool take_precision(const json_t *value, struct sgrad_train_options *options) {
    for (enum sgrad_precision p = SGRAD_PRECISION_F32; json_is_string(value) && p <= SGRAD_PRECISION_BF16; p++)
        if (!strcmp(json_string_value(value), sgrad_precision_name(p))) return options->model.precision = p, true;
    return false;
}

static json_t *placement(const struct sgrad_train_options *options) {
    return json_string(options->data.partition ? "partition" : "replicate");
}
static bool take_placement(const json_t *value, struct sgrad_train_options *options) {
    const char *text = json_is_string(value) ? json_string_value(value) : "";
    options->data.partition = !strcmp(text, "partition");
    return options->data.partition || !strcmp(text, "replicate");
}

static const struct other {
    const char *name;
    json_t *(*value)(const struct sgrad_train_options *o);
    bool (*take)(const json_t *value, struct sgrad_train_options *o);
} others[] = {
    { "data_placement", placement, take_placement },
    { "seed", seed, take_seed },
    { "precision", precision, take_precision },
};
enum { OTHERS = sizeof others / sizeof *others };

/* ---- all options ----------------------------------------------------------------------------------------------------- */

json_t *sgrad__options_json(const struct sgrad_train_options *options) {
    json_t *object = json_object();
    for (const struct field *f = fields; f < fields + FIELDS; f++) json_object_set_new(object, f->name, value_of(f, options));
    for (const struct other *other = others; other < others + OTHERS; other++)
        json_object_set_new(object, other->name, other->value(options));
    return object;
}

int sgrad__options_check(const struct sgrad_train_options *options) {
    for (const struct field *f = fields; f < fields + FIELDS; f++) {
        json_t *value = f->type == TEXT ? value_of(f, options) : json_null();
        if (!value)
            return sgrad_log_error(SGRAD_EINVAL, "%s '%s': must be UTF-8, because it is written to config.json", f->name,
                                   *(const char *const *)((const char *)options + f->at));
        json_decref(value);
    }
    return 0;
}

/* Options that OBJECT lacks, because an older version wrote it, are unchanged. */
int sgrad__options_take(const char *where, const json_t *object, struct sgrad_train_options *options) {
    struct sgrad_train_options o = *options;
    if (!json_is_object(object)) return sgrad_log_error(SGRAD_EFORMAT, "%s: the options of the run are missing", where);
    for (const struct field *f = fields; f < fields + FIELDS; f++) {
        const json_t *value = json_object_get(object, f->name);
        if (value && !take(f, value, &o))
            return sgrad_log_error(SGRAD_EFORMAT, "%s: option %s has a value of the wrong type; it must be %s", where, f->name,
                                   wanted[f->type]);
    }
    for (const struct other *other = others; other < others + OTHERS; other++) {
        const json_t *value = json_object_get(object, other->name);
        if (value && !other->take(value, &o))
            return sgrad_log_error(SGRAD_EFORMAT, "%s: option %s has a value of the wrong type", where, other->name);
    }
    *options = o;
    return 0;
}
