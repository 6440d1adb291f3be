/* adapter.c: reads and writes low-rank adapters in the format of Hugging Face peft, a folder with two files:
 *
 *     adapter_config.json           rank (r), lora_alpha, and the adapted layers (target_modules)
 *     adapter_model.safetensors     base_model.model.LAYER.lora_A.weight (r,C), base_model.model.LAYER.lora_B.weight (K,r)
 *
 * The adapted layers are read from the tensors, because target_modules may be a regular expression.
 *
 * Source: LoraConfig of Hugging Face peft 0.21. */
#include "graphs/rundir/rundir.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CONFIG "adapter_config.json"
#define MODEL  "adapter_model.safetensors"
#define PREFIX "base_model.model."
#define LORA_A ".lora_A.weight"

enum { CONFIG_LIMIT = 1 << 20 };

/* ---- reading ------------------------------------------------------------------------------------------------------ */

/* Values that must be absent, null, false, empty or, for bias, "none": otherwise the adapter is more than the two matrices. */
static const char *const unsupported[] = { "use_dora",     "lora_bias",         "modules_to_save", "rank_pattern",
                                           "alpha_pattern", "layer_replication", "bias",            NULL };

static bool is_unset(const json_t *value) {
    if (json_is_string(value)) return !strcmp(json_string_value(value), "none");
    return !value || json_is_null(value) || json_is_false(value) || (json_is_object(value) && !json_object_size(value)) ||
           (json_is_array(value) && !json_array_size(value));
}

static int read_config(const char *path, const json_t *config, struct sgrad__adapter *adapter) {
    const char *type = json_string_value(json_object_get(config, "peft_type"));
    const json_t *rank = json_object_get(config, "r"), *alpha = json_object_get(config, "lora_alpha");
    if (!type || strcmp(type, "LORA"))
        return sgrad_log_error(SGRAD_EINVAL, "%s: peft_type %s is not supported; it must be LORA", path,
                               type ? type : "(absent)");
    for (const char *const *key = unsupported; *key; key++) {
        const json_t *value = json_object_get(config, *key);
        if (is_unset(value)) continue;
        char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
        int error = sgrad_log_error(SGRAD_EINVAL, "%s: %s %.60s is not supported", path, *key, text ? text : "");
        free(text);
        return error;
    }
    if (!json_is_integer(rank) || json_integer_value(rank) < 1 || json_integer_value(rank) > SGRAD__LORA_RANK)
        return sgrad_log_error(SGRAD_EFORMAT, "%s: r must be a whole number from 1 to %d", path, SGRAD__LORA_RANK);
    if (!json_is_number(alpha) || !(json_number_value(alpha) > 0))
        return sgrad_log_error(SGRAD_EFORMAT, "%s: lora_alpha must be a number above 0", path);
    adapter->rank = (int)json_integer_value(rank);
    adapter->alpha = json_number_value(alpha);
    /* its factor is alpha / √rank */
    if (json_is_true(json_object_get(config, "use_rslora"))) adapter->alpha *= sqrt(adapter->rank);
    if (json_number_value(json_object_get(config, "lora_dropout")) > 0)
        sgrad_log_warning("%s: lora_dropout is ignored; adapters are trained without dropout", path);
    return 0;
}

/* Returns the names of the adapted weights, separated by commas. The caller must free it. */
static char *adapted(const struct sgrad_safetensors *file) {
    const size_t before = strlen(PREFIX), after = strlen(LORA_A);
    char *text = NULL;
    size_t size;
    FILE *to = open_memstream(&text, &size);
    for (int i = 0, count = 0; i < file->count; i++) {
        const char *name = file->entry[i].name;
        const size_t length = strlen(name);
        if (length <= before + after || strncmp(name, PREFIX, before) || strcmp(name + length - after, LORA_A)) continue;
        fprintf(to, "%s%.*s.weight", count++ ? "," : "", (int)(length - before - after), name + before);
    }
    fclose(to);
    return text;
}

int sgrad__adapter_read(const char *folder, struct sgrad__adapter *adapter) {
    struct sgrad__adapter is = { 0 };
    json_t *config;
    char *path = sgrad_format("%s/" CONFIG, folder), *model = sgrad_format("%s/" MODEL, folder);
    int error = sgrad_json_read(path, CONFIG_LIMIT, &config);
    if (!error) error = read_config(path, config, &is);
    json_decref(config);
    if (!error) error = sgrad_safetensors_open(model, &is.file);
    if (!error) {
        is.on = adapted(&is.file);
        *adapter = is;
        if (!*is.on) {
            error = sgrad_log_error(SGRAD_EFORMAT, "%s: has no tensor " PREFIX "NAME" LORA_A, model);
            sgrad__adapter_close(adapter);
        }
    }
    free(path);
    free(model);
    return error;
}

void sgrad__adapter_close(struct sgrad__adapter *adapter) {
    sgrad_safetensors_close(&adapter->file);
    free(adapter->on);
}

/* Returns the name in files of a parameter of an adapter. The caller must free it. */
static char *name_in_file(const char *name) { return sgrad_format(PREFIX "%s", name); }

int sgrad__adapter_load(struct sgrad_graph *graph, const struct sgrad__adapter *adapter) {
    struct sgrad__items items = sgrad__parameters_list(graph);
    sgrad__items_select(&items, true);
    for (int i = 0; i < items.count; i++) {
        char *name = items.item[i].name;
        items.item[i].name = name_in_file(name);
        free(name);
    }
    return sgrad__weights_load(graph, items, &adapter->file, NULL);
}

/* ---- writing ------------------------------------------------------------------------------------------------------ */

static int write_tensors(const struct sgrad__weights *copy, const char *path) {
    struct sgrad_entry *entry = sgrad_xcalloc((size_t)copy->items.count + 1, sizeof *entry);
    int count = 0;
    for (int i = 0; i < copy->items.count; i++) {
        const struct sgrad__item *item = &copy->items.item[i];
        if (sgrad__is_adapter(item->name))
            entry[count++] = (struct sgrad_entry){ name_in_file(item->name), item->view, copy->value[i] };
    }
    int error = sgrad_safetensors_write(path, entry, count, (const char *const[]){ "format", "pt" }, 1);
    for (int i = 0; i < count; i++) free(entry[i].name);
    free(entry);
    return error;
}

/* Returns the names of the adapted layers. *TRANSPOSED becomes true if their weights are (C,K) in files. */
static json_t *target_modules(const struct sgrad__weights *copy, bool *transposed) {
    json_t *list = json_array();
    for (int i = 0; i < copy->items.count; i++) {
        const char *name = copy->items.item[i].name;
        const size_t length = strlen(name) - strlen(".weight"), layer = length - strlen(".lora_A");
        if (!sgrad__is_adapter(name) || strcmp(name + layer, LORA_A)) continue;
        json_array_append_new(list, json_stringn(name, layer));
        for (int j = 0; j < copy->items.count; j++) {
            const struct sgrad__item *weight = &copy->items.item[j];
            if (!strncmp(weight->name, name, layer) && !strcmp(weight->name + layer, ".weight"))
                *transposed = weight->layout == SGRAD_TRANSPOSED;
        }
    }
    return list;
}

int sgrad__adapter_write(const struct sgrad_graph *graph, const struct sgrad__weights *copy, const char *folder,
                         const char *base) {
    const bool predicts_tokens = !strcmp(graph->node[graph->loss].op->name, "token_cross_entropy");
    const double alpha = graph->lora.alpha;
    bool transposed = false;
    json_t *layers = target_modules(copy, &transposed);
    json_t *config = json_pack("{s:s, s:o, s:s?, s:i, s:o, s:f, s:o, s:s, s:b, s:b, s:b, s:b, s:b, s:n}",
                               "peft_type", "LORA", "task_type", predicts_tokens ? json_string("CAUSAL_LM") : json_null(),
                               "base_model_name_or_path", base, "r", graph->lora.rank, "lora_alpha",
                               alpha == floor(alpha) ? json_integer((json_int_t)alpha) : json_real(alpha), "lora_dropout", 0.0,
                               "target_modules", layers, "bias", "none", "fan_in_fan_out", transposed, "inference_mode", true,
                               "init_lora_weights", true, "use_rslora", false, "use_dora", false, "modules_to_save");
    char *path = sgrad_format("%s/" CONFIG, folder), *model = sgrad_format("%s/" MODEL, folder);
    int error = write_tensors(copy, model);
    if (!error) error = sgrad_json_write(path, config, 17);
    else json_decref(config);
    free(path);
    free(model);
    return error;
}
