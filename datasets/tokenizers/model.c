/* model.c: the model of a tokenizer: the vocabulary, a number for each token, and the merges, pairs of tokens in the order in
 * which they are merged. */
#include "config.h"
#include "datasets/tokenizers/internal.h"
#include "runtime/runtime.h"

#include <stdlib.h>
#include <string.h>

#define FILE_LIMIT ((size_t)1 << 28)

int sgrad__read_vocabulary(struct sgrad_tokenizer *t, json_t *vocabulary) {
    const char *text;
    json_t *number;
    if (!json_is_object(vocabulary) || !json_object_size(vocabulary)) return sgrad__malformed(t, "has no vocabulary");
    json_object_foreach(vocabulary, text, number) {
        const json_int_t n = json_is_integer(number) ? json_integer_value(number) : -1;
        if (n < 0 || n >= SGRAD__TOKENS)
            return sgrad__malformed(t, "its vocabulary has a token whose number is not from 0 to 1048575");
        if (n >= t->words) t->words = (int)n + 1;
    }
    t->spelling = sgrad_xcalloc((size_t)t->words, sizeof *t->spelling);
    json_object_foreach(vocabulary, text, number) {
        const json_int_t n = json_integer_value(number);
        t->spelling[n] = (struct sgrad__spelling){ t->vocabulary.texts.size, (uint32_t)strlen(text) };
        sgrad__table_put(&t->vocabulary, text, strlen(text), (int32_t)n);
    }
    t->entries = (int)json_object_size(vocabulary);
    t->all = t->words;
    for (int byte = 0; byte < SGRAD__BYTES; byte++) {
        char name[16];
        const int size = snprintf(name, sizeof name, "<0x%02X>", byte);
        t->byte_token[byte] = sgrad__table_get(&t->vocabulary, name, (size_t)size);
    }
    return 0;
}

/* Adds a merge. A later equal pair replaces an earlier one. Both tokens of the pair and the merged one must be in the
 * vocabulary. */
static int add_pair(struct sgrad_tokenizer *t, const char *file, int rank, const char *one, size_t one_size, const char *other,
                    size_t other_size) {
    char *both = sgrad_format("%.*s%.*s", (int)one_size, one, (int)other_size, other);
    const struct {
        const char *text;
        size_t size;
    } piece[] = { { one, one_size }, { other, other_size }, { both, one_size + other_size } };
    int32_t token[3];
    int error = 0;
    for (int i = 0; i < 3 && !error; i++) {
        token[i] = sgrad__table_get(&t->vocabulary, piece[i].text, piece[i].size);
        if (token[i] < 0)
            error = sgrad_log_error(SGRAD_EFORMAT,
                                    "tokenizer: %s: merge %d, '%.100s' with '%.100s': '%.100s' is not a token of the vocabulary",
                                    file, rank + 1, one, other,
                                    i == 2 ? both
                                    : i    ? other
                                           : one);
    }
    if (!error) sgrad__merges_put(&t->merges, (struct sgrad__merge){ token[0], token[1], rank, token[2] });
    free(both);
    return error;
}

/* Adds the merge "a b", and counts it. A line "#version" is skipped. */
static int add_line(struct sgrad_tokenizer *t, const char *file, const char *line, int *rank) {
    if (!strncmp(line, "#version", strlen("#version"))) return 0;
    const size_t one = strcspn(line, " ");
    char *first = sgrad_format("%.*s", (int)one, line);
    const char *other = line[one] ? line + one + 1 : "";
    const int error = add_pair(t, file, (*rank)++, first, one, other, strlen(other));
    free(first);
    return error;
}

/* Adds merges of the form "a b" or ["a","b"]. */
static int take_merges(struct sgrad_tokenizer *t, const json_t *merges) {
    int rank = 0;
    size_t i;
    json_t *merge;
    if (!json_is_array(merges)) return sgrad__malformed(t, "has no merges");
    json_array_foreach(merges, i, merge) {
        const json_t *left = json_array_get(merge, 0), *right = json_array_get(merge, 1);
        const char *one = json_string_value(left), *other = json_string_value(right);
        if (json_is_string(merge)) {
            SGRAD_TRY(add_line(t, t->file, json_string_value(merge), &rank));
        } else if (one && other && json_array_size(merge) == 2) {
            SGRAD_TRY(add_pair(t, t->file, rank++, one, json_string_length(left), other, json_string_length(right)));
        } else
            return sgrad__malformed(t, "one of its merges is not a pair of tokens");
    }
    return 0;
}

int sgrad__read_merges(struct sgrad_tokenizer *t, const char *path) {
    struct sgrad_map map;
    int rank = 0, error = sgrad_map_open(path, FILE_LIMIT, &map);
    char *text = error ? NULL : sgrad_format("%.*s", (int)map.size, (const char *)map.data), *rest = text;
    if (!error) sgrad_map_close(&map);
    for (char *line; !error && (line = strsep(&rest, "\n"));) {
        line[strcspn(line, "\r")] = 0;
        if (*line) error = add_line(t, path, line, &rank);
    }
    free(text);
    return error;
}

/* Texts that the library adds to the parts of words must be missing or empty, and the probability of dropout 0. */
static int check_model(const struct sgrad_tokenizer *t, const json_t *model) {
    static const char *const affixes[] = { "continuing_subword_prefix", "end_of_word_suffix" };
    const json_t *type = json_object_get(model, "type"), *dropout = json_object_get(model, "dropout");
    SGRAD_TRY(sgrad__check_keys(t, "model", model,
                                "type dropout unk_token continuing_subword_prefix end_of_word_suffix fuse_unk byte_fallback "
                                "ignore_merges vocab merges"));
    if (type && (!json_is_string(type) || strcmp(json_string_value(type), "BPE"))) return sgrad__refuse(t, "model.type", type);
    if (dropout && !json_is_null(dropout) && (!json_is_number(dropout) || json_number_value(dropout) != 0))
        return sgrad__refuse(t, "model.dropout", dropout);
    for (int i = 0; i < 2; i++) {
        const json_t *affix = json_object_get(model, affixes[i]);
        if (affix && !json_is_null(affix) && (!json_is_string(affix) || json_string_length(affix)))
            return sgrad__refuse(t, affixes[i], affix);
    }
    return 0;
}

int sgrad__read_model(struct sgrad_tokenizer *t, const json_t *model) {
    const json_t *unknown = json_object_get(model, "unk_token");
    SGRAD_TRY(check_model(t, model));
    SGRAD_TRY(sgrad__read_flag(t, "model", model, "fuse_unk", &t->fuse_unk));
    SGRAD_TRY(sgrad__read_flag(t, "model", model, "byte_fallback", &t->byte_fallback));
    SGRAD_TRY(sgrad__read_flag(t, "model", model, "ignore_merges", &t->ignore_merges));
    SGRAD_TRY(sgrad__read_vocabulary(t, json_object_get(model, "vocab")));
    if (unknown && !json_is_null(unknown)) {
        if (json_is_string(unknown))
            t->unknown = sgrad__table_get(&t->vocabulary, json_string_value(unknown), json_string_length(unknown));
        if (t->unknown < 0) return sgrad__refuse(t, "model.unk_token (not a token of the vocabulary)", unknown);
    }
    return take_merges(t, json_object_get(model, "merges"));
}
