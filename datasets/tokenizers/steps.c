/* steps.c: the steps of a tokenizer.json before and after the model: normalizer, pre_tokenizer, post_processor, decoder. Each is
 * null, an object with a type, or a sequence of such objects. */
#include "config.h"
#include "datasets/tokenizers/internal.h"
#include "runtime/runtime.h"

#include <stdlib.h>
#include <string.h>

/* ---- normalizers ------------------------------------------------------------------------------------------------- */

static void replace(const struct sgrad__normalizer *step, const char *text, size_t size, struct sgrad__buffer *to) {
    const char *end = text + size;
    for (const char *found; (found = memmem(text, (size_t)(end - text), step->from, step->from_size));) {
        sgrad__buffer_add(to, text, (size_t)(found - text));
        sgrad__buffer_add(to, step->to, step->to_size);
        text = found + step->from_size;
    }
    sgrad__buffer_add(to, text, (size_t)(end - text));
}

static void apply(const struct sgrad__normalizer *step, const char *text, size_t size, struct sgrad__buffer *to) {
    if (step->kind == SGRAD__NFC) sgrad__nfc(text, size, to);
    if (step->kind == SGRAD__REPLACE) replace(step, text, size, to);
    if (step->kind != SGRAD__PREPEND || !size) return;
    sgrad__buffer_add(to, step->to, step->to_size);
    sgrad__buffer_add(to, text, size);
}

void sgrad__normalize(const struct sgrad__normalizer *step, int count, const char *text, size_t size, struct sgrad__buffer *to) {
    struct sgrad__buffer other = { 0 };
    if (!count)
        sgrad__buffer_add(to, text, size);
    else if (count == 1)
        apply(step, text, size, to);
    else {
        apply(step, text, size, &other);
        sgrad__normalize(step + 1, count - 1, other.text, other.size, to);
    }
    free(other.text);
}

static char *copy_of(const json_t *text) {
    char *copy = sgrad_xcalloc(json_string_length(text) + 1, 1);
    memcpy(copy, json_string_value(text), json_string_length(text));
    return copy;
}

/* Reads Replace: "pattern": {"String": "a"}, "content": "b". */
static int read_replace(struct sgrad_tokenizer *t, const char *where, const json_t *step, struct sgrad__normalizer *to) {
    const json_t *pattern = json_object_get(step, "pattern"), *from = json_object_get(pattern, "String");
    const json_t *content = json_object_get(step, "content");
    SGRAD_TRY(sgrad__check_keys(t, where, step, "type pattern content"));
    if (!json_string_length(from) || json_object_size(pattern) != 1 || !json_is_string(content))
        return sgrad__refuse(t, where, step);
    *to = (struct sgrad__normalizer){ SGRAD__REPLACE, copy_of(from), copy_of(content), json_string_length(from),
                                      json_string_length(content) };
    return 0;
}

static int read_normalizer(struct sgrad_tokenizer *t, const char *where, const json_t *step, const char *type) {
    struct sgrad__normalizer *to = &t->normalizer[t->normalizers];
    const json_t *prepend = json_object_get(step, "prepend");
    if (t->normalizers == SGRAD__STEPS) return sgrad__refuse(t, where, step);
    if (!strcmp(type, "NFC")) {
        SGRAD_TRY(sgrad__check_keys(t, where, step, "type"));
        *to = (struct sgrad__normalizer){ .kind = SGRAD__NFC };
    } else if (!strcmp(type, "Replace")) {
        SGRAD_TRY(read_replace(t, where, step, to));
    } else if (!strcmp(type, "Prepend") && json_is_string(prepend)) {
        SGRAD_TRY(sgrad__check_keys(t, where, step, "type prepend"));
        *to =
            (struct sgrad__normalizer){ .kind = SGRAD__PREPEND, .to = copy_of(prepend), .to_size = json_string_length(prepend) };
    } else
        return sgrad__refuse(t, where, step);
    t->normalizers++;
    return 0;
}

/* ---- pre-tokenizers ---------------------------------------------------------------------------------------------- */

/* The words of a pattern with "Isolated" are its matches and the text between them; every text consists of matches. */
static int read_split(struct sgrad_tokenizer *t, const char *where, const json_t *step, sgrad__splitter **split) {
    const json_t *pattern = json_object_get(step, "pattern"), *regex = json_object_get(pattern, "Regex");
    const json_t *behavior = json_object_get(step, "behavior");
    bool invert = false;
    SGRAD_TRY(sgrad__check_keys(t, where, step, "type pattern behavior invert"));
    SGRAD_TRY(sgrad__read_flag(t, where, step, "invert", &invert));
    *split = json_is_string(regex) ? sgrad__splitter_find(json_string_value(regex)) : NULL;
    if (!*split || json_object_size(pattern) != 1) return sgrad__refuse(t, where, pattern);
    const char *wanted = invert ? "Removed" : "Isolated";
    if (!json_is_string(behavior) || strcmp(json_string_value(behavior), wanted)) return sgrad__refuse(t, where, step);
    return 0;
}

static int read_pre_tokenizer(struct sgrad_tokenizer *t, const char *where, const json_t *step, const char *type) {
    sgrad__splitter **split = &t->splitter[t->splitters];
    bool prefix = false, regex = true, each = false, unused = false;
    if (t->splitters == SGRAD__STEPS || t->byte_level) return sgrad__refuse(t, where, step); /* ByteLevel must be the last */
    if (!strcmp(type, "Split")) {
        SGRAD_TRY(read_split(t, where, step, split));
        t->splitters++;
    } else if (!strcmp(type, "Digits")) {
        SGRAD_TRY(sgrad__check_keys(t, where, step, "type individual_digits"));
        SGRAD_TRY(sgrad__read_flag(t, where, step, "individual_digits", &each));
        *split = each ? sgrad__split_digit : sgrad__split_digits;
        t->splitters++;
    } else if (!strcmp(type, "ByteLevel")) {
        SGRAD_TRY(sgrad__check_keys(t, where, step, "type add_prefix_space trim_offsets use_regex"));
        SGRAD_TRY(sgrad__read_flag(t, where, step, "add_prefix_space", &prefix));
        SGRAD_TRY(sgrad__read_flag(t, where, step, "use_regex", &regex));
        SGRAD_TRY(sgrad__read_flag(t, where, step, "trim_offsets", &unused));
        if (prefix) t->prefix_at = t->splitters;
        if (regex) t->splitter[t->splitters++] = sgrad__split_gpt2;
        t->byte_level = true;
    } else
        return sgrad__refuse(t, where, step);
    return 0;
}

/* ---- post-processors --------------------------------------------------------------------------------------------- */

/* Reads the numbers of the special token ID of a template. */
static int read_special(struct sgrad_tokenizer *t, const char *where, const json_t *template, const char *id) {
    const json_t *ids = json_object_get(json_object_get(json_object_get(template, "special_tokens"), id), "ids");
    json_t *one;
    size_t i;
    if (!json_array_size(ids)) return sgrad__refuse(t, where, json_object_get(template, "single"));
    json_array_foreach(ids, i, one) {
        const json_int_t token = json_is_integer(one) ? json_integer_value(one) : -1;
        if (token < 0 || token > INT32_MAX || t->begins == SGRAD__STEPS) return sgrad__refuse(t, where, ids);
        t->begin[t->begins++] = (int32_t)token;
    }
    return 0;
}

/* Reads "single" of a template: special tokens, then the text A, and nothing after it. */
static int read_post_processor(struct sgrad_tokenizer *t, const char *where, const json_t *step, const char *type) {
    const json_t *single = json_object_get(step, "single");
    json_t *one;
    size_t i;
    if (!strcmp(type, "ByteLevel")) return sgrad__check_keys(t, where, step, "type add_prefix_space trim_offsets use_regex");
    if (strcmp(type, "TemplateProcessing") || t->begins || !json_array_size(single)) return sgrad__refuse(t, where, step);
    SGRAD_TRY(sgrad__check_keys(t, where, step, "type single pair special_tokens"));
    json_array_foreach(single, i, one) {
        const char *id = json_string_value(json_object_get(json_object_get(one, "SpecialToken"), "id"));
        const char *text = json_string_value(json_object_get(json_object_get(one, "Sequence"), "id"));
        const bool last = i + 1 == json_array_size(single);
        if (last ? !text || strcmp(text, "A") : !id) return sgrad__refuse(t, where, single);
        if (!last) SGRAD_TRY(read_special(t, where, step, id));
    }
    return 0;
}

/* ---- decoders ---------------------------------------------------------------------------------------------------- */

static int read_strip(struct sgrad_tokenizer *t, const char *where, const json_t *step) {
    const char *content = json_string_value(json_object_get(step, "content"));
    const json_int_t start = json_integer_value(json_object_get(step, "start"));
    SGRAD_TRY(sgrad__check_keys(t, where, step, "type content start stop"));
    if (!content || strcmp(content, " ") || start < 0 || start > 1000 || json_integer_value(json_object_get(step, "stop")))
        return sgrad__refuse(t, where, step);
    t->strip = (int)start;
    return 0;
}

/* Replace, ByteFallback, Fuse, Strip: each may be missing, but the order must be this one. */
static int read_decoder(struct sgrad_tokenizer *t, const char *where, const json_t *step, const char *type) {
    const bool fused = t->strip >= 0;
    if (!strcmp(type, "ByteLevel") && !t->decoders && !t->decodes_bytes && !fused) {
        t->decodes_levels = true;
        return sgrad__check_keys(t, where, step, "type add_prefix_space trim_offsets use_regex");
    }
    if (t->decodes_levels) return sgrad__refuse(t, where, step);
    if (!strcmp(type, "Replace") && !t->decodes_bytes && !fused && t->decoders < SGRAD__STEPS) {
        SGRAD_TRY(read_replace(t, where, step, &t->decoder[t->decoders]));
        t->decoders++;
        return 0;
    }
    if (!strcmp(type, "ByteFallback") && !t->decodes_bytes && !fused) {
        t->decodes_bytes = true;
        return sgrad__check_keys(t, where, step, "type");
    }
    if (!strcmp(type, "Fuse") && !fused) {
        t->strip = 0;
        return sgrad__check_keys(t, where, step, "type");
    }
    return !strcmp(type, "Strip") && fused && !t->strip ? read_strip(t, where, step) : sgrad__refuse(t, where, step);
}

/* ---- all steps --------------------------------------------------------------------------------------------------- */

/* A kind of step: its key in the file, that of the list in its sequences, and the function that reads one. */
struct kind {
    const char *key, *list;
    int (*read)(struct sgrad_tokenizer *tokenizer, const char *where, const json_t *step, const char *type);
};

/* DEPTH limits sequences in sequences. */
static int read_step(struct sgrad_tokenizer *t, const struct kind *kind, const json_t *step, int depth) {
    const char *type = json_string_value(json_object_get(step, "type"));
    const json_t *list = json_object_get(step, kind->list);
    json_t *one;
    size_t i;
    if (!step || json_is_null(step)) return 0;
    if (!type) return sgrad__refuse(t, kind->key, step);
    if (strcmp(type, "Sequence")) return kind->read(t, kind->key, step, type);
    if (!json_is_array(list) || depth > SGRAD__STEPS) return sgrad__refuse(t, kind->key, step);
    json_array_foreach(list, i, one) SGRAD_TRY(read_step(t, kind, one, depth + 1));
    return 0;
}

int sgrad__read_steps(struct sgrad_tokenizer *t, const json_t *object) {
    static const struct kind kinds[] = {
        { "normalizer", "normalizers", read_normalizer },
        { "pre_tokenizer", "pretokenizers", read_pre_tokenizer },
        { "post_processor", "processors", read_post_processor },
        { "decoder", "decoders", read_decoder },
    };
    t->strip = -1;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        SGRAD_TRY(read_step(t, &kinds[i], json_object_get(object, kinds[i].key), 0));
    const json_t *decoder = json_object_get(object, "decoder");
    if (!decoder || json_is_null(decoder)) {
        t->decodes_levels = true;
        if (!t->byte_level) return sgrad__refuse(t, "decoder", decoder);
    }
    if (t->strip < 0) t->strip = 0;
    return 0;
}
