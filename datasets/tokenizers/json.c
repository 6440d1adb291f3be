/* json.c: reads tokenizer.json, or vocab.json with merges.txt, and answers questions about the tokenizer. */
#include "config.h"
#include "datasets/tokenizers/internal.h"
#include "runtime/runtime.h"

#include <stdlib.h>
#include <string.h>

#define FILE_LIMIT ((size_t)1 << 28)

static int read_whole(struct sgrad_tokenizer *t, const json_t *object, const json_t *model) {
    static const char *const unused[] = { "truncation", "padding" };
    SGRAD_TRY(sgrad__check_keys(t, "", object,
                                "version truncation padding added_tokens normalizer pre_tokenizer post_processor decoder model"));
    for (int i = 0; i < 2; i++) {
        const json_t *step = json_object_get(object, unused[i]);
        if (step && !json_is_null(step)) return sgrad__refuse(t, unused[i], step);
    }
    SGRAD_TRY(sgrad__read_model(t, model));
    SGRAD_TRY(sgrad__read_steps(t, object));
    SGRAD_TRY(sgrad__read_added(t, json_object_get(object, "added_tokens")));
    for (int i = 0; i < t->begins; i++)
        if (t->begin[i] >= t->all) return sgrad__malformed(t, "its post_processor has a token that is not in the vocabulary");
    return 0;
}

/* Reads vocab.json, with only integers as values, and merges.txt of the same folder. GPT-2's added token is in its vocabulary. */
static int read_pair(struct sgrad_tokenizer *t, json_t *object) {
    static const char end[] = "<|endoftext|>";
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value) if (!json_is_integer(value)) return sgrad__malformed(
        t, "is neither a tokenizer.json (with a model) nor a vocab.json (with a number for each token)");
    t->pair = t->byte_level = t->decodes_levels = true;
    t->splitter[t->splitters++] = sgrad__split_gpt2;
    SGRAD_TRY(sgrad__read_vocabulary(t, object));
    const int32_t token = sgrad__table_get(&t->vocabulary, end, strlen(end));
    if (token >= 0) sgrad__add_token(t, end, (struct sgrad__added){ .token = token });
    char *path = sgrad_tokenizer_merges(t->file);
    const int error = sgrad__read_merges(t, path);
    free(path);
    return error;
}

int sgrad_tokenizer_parse(const char *name, const void *data, size_t size, struct sgrad_tokenizer **tokenizer) {
    json_error_t problem;
    json_t *object = json_loadb(data, size, JSON_ALLOW_NUL, &problem);
    if (!object) return sgrad_log_error(SGRAD_EFORMAT, "tokenizer: %s: line %d: %s", name, problem.line, problem.text);
    struct sgrad_tokenizer *t = sgrad_xcalloc(1, sizeof *t);
    t->file = sgrad_format("%s", name);
    t->unknown = t->prefix_at = -1;
    sgrad__unicode_load();
    sgrad__byte_characters_load();
    const json_t *model = json_object_get(object, "model"); /* in vocab.json, "model" may be a token */
    const int error = json_is_object(model) ? read_whole(t, object, model) : read_pair(t, object);
    json_decref(object);
    if (error)
        sgrad_tokenizer_close(t);
    else {
        sgrad__decode_words(t);
        *tokenizer = t;
    }
    return error;
}

int sgrad_tokenizer_open(const char *file, struct sgrad_tokenizer **tokenizer) {
    struct sgrad_map map;
    SGRAD_TRY(sgrad_map_open(file, FILE_LIMIT, &map));
    const int error = sgrad_tokenizer_parse(file, map.data, map.size, tokenizer);
    sgrad_map_close(&map);
    return error;
}

static void free_steps(struct sgrad__normalizer *step, int count) {
    for (int i = 0; i < count; i++) {
        free(step[i].from);
        free(step[i].to);
    }
}

void sgrad_tokenizer_close(struct sgrad_tokenizer *t) {
    if (!t) return;
    for (int i = 0; t->word && i < t->all; i++) free(t->word[i].byte);
    for (int i = 0; i < t->addeds; i++) free(t->added[i].text);
    free_steps(t->normalizer, t->normalizers);
    free_steps(t->decoder, t->decoders);
    sgrad__table_free(&t->vocabulary);
    sgrad__table_free(&t->added_at);
    free(t->merges.row);
    free(t->plain_added.node);
    free(t->normalized_added.node);
    free(t->spelling);
    free(t->added);
    free(t->word);
    free(t->file);
    free(t);
}

/* ---- questions --------------------------------------------------------------------------------------------------- */

int sgrad_tokenizer_words(const struct sgrad_tokenizer *t) { return t->words; }
int sgrad_tokenizer_tokens(const struct sgrad_tokenizer *t) { return t->all; }

int sgrad_tokenizer_find(const struct sgrad_tokenizer *t, const char *text, bool added) {
    for (int i = 0; i < t->addeds; i++)
        if (!strcmp(t->added[i].text, text)) return t->added[i].token;
    return added ? -1 : sgrad__table_get(&t->vocabulary, text, strlen(text));
}

const int32_t *sgrad_tokenizer_begin(const struct sgrad_tokenizer *t, int *count) {
    *count = t->begins;
    return t->begin;
}

const char *sgrad_tokenizer_word(const struct sgrad_tokenizer *t, int token, size_t *size) {
    const bool known = token >= 0 && token < t->all && t->word[token].byte;
    *size = known ? t->word[token].size : 0;
    return known ? t->word[token].byte : "";
}

bool sgrad_tokenizer_is_special(const struct sgrad_tokenizer *t, int token) {
    return token >= 0 && token < t->all && t->word[token].special;
}

/* GPT-2's, Llama 3's and Qwen's expressions end a word before such a line break, and another one after it. */
bool sgrad_tokenizer_cuts_lines(const struct sgrad_tokenizer *t) {
    bool cuts = t->prefix_at < 0 && t->splitters;
    for (int i = 0; i < t->splitters; i++)
        cuts &= i > 0 || (t->splitter[i] != sgrad__split_digits && t->splitter[i] != sgrad__split_digit);
    for (int i = 0; i < t->normalizers; i++) cuts &= t->normalizer[i].kind == SGRAD__NFC;
    for (int i = 0; i < t->addeds; i++) cuts &= !strchr(t->added[i].text, '\n') && !t->added[i].lstrip && !t->added[i].rstrip;
    return cuts;
}
