/* documents.c: tokenizes the documents of a block: lines of JSON, which are texts or conversations, and parts of text files. */
#include "config.h"
#include "datasets/corpus/corpus.h"
#include "runtime/runtime.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

int sgrad__documents_width(const struct sgrad_tokenizer *tokenizer) {
    enum { MOST_16 = 65536 };
    return sgrad_tokenizer_tokens(tokenizer) > MOST_16 ? 4 : 2;
}

int32_t sgrad__documents_end(const struct sgrad_tokenizer *tokenizer) {
    static const char *const usual[] = { "<|endoftext|>", "<|end_of_text|>", "</s>", "<|im_end|>" };
    int32_t end = -1;
    for (int i = 0; i < 4 && end < 0; i++) end = sgrad_tokenizer_find(tokenizer, usual[i], true);
    return end;
}

/* Every (1 / fraction)-th document is for validation, from the first on. */
static int part_of(const struct sgrad__documents *c, int64_t document) {
    enum { UNIT = 1000000000 };
    const struct sgrad__corpus_options *o = c->options;
    const uint64_t share = (uint64_t)llround(o->fraction * UNIT), i = (uint64_t)document;
    if (o->outputs) return SGRAD__PART_TRAIN;
    if (c->one_text) return document ? SGRAD__PART_VAL : SGRAD__PART_TRAIN;
    if (o->documents) return document < o->documents ? SGRAD__PART_VAL : SGRAD__PART_TRAIN;
    return ((i + 1) * share + UNIT - 1) / UNIT > (i * share + UNIT - 1) / UNIT ? SGRAD__PART_VAL : SGRAD__PART_TRAIN;
}

/* ANSWER: the tokens belong to an answer. */
static void put(const struct sgrad__documents *c, const int32_t *token, size_t count, bool answer, struct sgrad__tokenized *to) {
    char *at = sgrad__buffer_extend(&to->tokens, count * (size_t)c->width);
    for (size_t i = 0; i < count; i++)
        for (int byte = 0; byte < c->width; byte++) *at++ = (char)((uint32_t)token[i] >> 8 * byte);
    if (c->options->template && count) memset(sgrad__buffer_extend(&to->answers, count), answer, count);
    to->sum.tokens += (int64_t)count;
}

/* Adds a text, of which FIRST: the document begins here; LAST: it ends. */
static void add_text(const struct sgrad__documents *c, struct sgrad_encoder *encoder, const char *text, size_t size, bool first,
                     bool last, struct sgrad__tokenized *to) {
    size_t count;
    const int32_t *token = sgrad_encode(encoder, text, size, &count);
    if (first) put(c, c->options->begin, (size_t)c->options->begins, false, to);
    put(c, token, count, false, to);
    if (last && c->options->end >= 0) put(c, &c->options->end, 1, false, to);
    to->sum.documents += last;
    to->sum.bytes += (int64_t)size;
}

struct exchange {
    const char *system, *prompt, *answer; /* system: NULL if there was no system message, and in later exchanges */
};

static char *check_system(const struct sgrad__documents *c, const struct exchange *is) {
    if (!is->system || c->options->template->system[0]) return NULL;
    return sgrad_format("has a system message, but the template has no place for it; add {#system}…{system}…{/system} before "
                        "{prompt}");
}

/* Adds an exchange of a conversation. Its two parts are encoded apart, as sample does. */
static void add_exchange(const struct sgrad__documents *c, struct sgrad_encoder *encoder, const struct exchange *is,
                         struct sgrad__tokenized *to) {
    const struct sgrad__template *form = c->options->template;
    char *text[2] = { sgrad__template_prompt(form, is->system, is->prompt), sgrad_format("%s%s", is->answer, form->after) };
    for (int i = 0; i < 2; i++) {
        size_t count;
        const int32_t *token = sgrad_encode(encoder, text[i], strlen(text[i]), &count);
        put(c, token, count, i == 1, to);
        to->sum.bytes += (int64_t)strlen(text[i]);
        free(text[i]);
    }
}

/* Sets TEXT to the content of message I, which must have this role. Returns an error, as add_line; NULL: none. */
static char *content_of(const json_t *messages, size_t i, const char *role, const char **text) {
    const json_t *message = json_array_get(messages, i);
    const char *is = json_string_value(json_object_get(message, "role"));
    *text = json_string_value(json_object_get(message, "content"));
    if (!message) return sgrad_format("ends with a message of role 'user'; the last one must be of role 'assistant'");
    if (!is || strcmp(is, role))
        return sgrad_format("message %zu has role '%s', but must have role '%s': after a system message, users and assistants "
                            "take turns",
                            i + 1, is ? is : "", role);
    return *text ? NULL : sgrad_format("message %zu has no text 'content'", i + 1);
}

/* Adds a conversation of messages, which begins after an optional system message. */
static char *add_messages(const struct sgrad__documents *c, struct sgrad_encoder *encoder, const json_t *messages,
                          struct sgrad__tokenized *to) {
    const char *first = json_string_value(json_object_get(json_array_get(messages, 0), "role"));
    const bool system = first && !strcmp(first, "system");
    const size_t count = json_array_size(messages);
    struct exchange is = { 0 };
    char *error = system ? content_of(messages, 0, "system", &is.system) : NULL;
    if (!error && count <= system) error = sgrad_format("'messages' is not an array with a message of a user");
    for (size_t i = system; i < count && !error; i += 2) {
        error = content_of(messages, i, "user", &is.prompt);
        if (!error) error = content_of(messages, i + 1, "assistant", &is.answer);
        if (!error) error = check_system(c, &is);
        if (!error) add_exchange(c, encoder, &is, to);
        is.system = NULL;
    }
    return error;
}

/* Adds the conversation in a line of JSON, a document: an object with prompt and response, or with an array of messages. */
static char *add_conversation(const struct sgrad__documents *c, struct sgrad_encoder *encoder, const json_t *object,
                              struct sgrad__tokenized *to) {
    const json_t *messages = json_object_get(object, "messages");
    const struct exchange is = { .system = json_string_value(json_object_get(object, "system")),
                                 .prompt = json_string_value(json_object_get(object, "prompt")),
                                 .answer = json_string_value(json_object_get(object, "response")) };
    const json_t *system = json_object_get(object, "system");
    put(c, c->options->begin, (size_t)c->options->begins, false, to);
    char *error = NULL;
    if (system && !is.system && !json_is_null(system))
        error = sgrad_format("has a field 'system' that is not a text");
    else if (system && messages)
        error = sgrad_format("has 'messages', so 'system' must be the role of the first one, not a field");
    else if (messages)
        error = add_messages(c, encoder, messages, to);
    else if (!is.prompt || !is.answer)
        error = sgrad_format("must have the texts 'prompt' and 'response', or an array 'messages'");
    else if (!(error = check_system(c, &is)))
        add_exchange(c, encoder, &is, to);
    if (error) return error;
    if (c->options->end >= 0) put(c, &c->options->end, 1, true, to);
    to->sum.documents++;
    return NULL;
}

/* Adds the document in a line of JSON. Returns an error, which the caller must free; NULL: none. */
static char *add_line(const struct sgrad__documents *c, struct sgrad_encoder *encoder, const char *line, size_t size,
                      struct sgrad__tokenized *to) {
    json_error_t problem;
    json_t *object = json_loadb(line, size, JSON_ALLOW_NUL, &problem);
    const json_t *text = json_object_get(object, c->options->field);
    char *error = NULL;
    if (!object)
        error = sgrad_format("is not JSON: %s", problem.text);
    else if (!json_is_object(object))
        error = sgrad_format("is not an object; each line must be one, such as {\"text\": \"…\"}");
    else if (c->options->template)
        error = add_conversation(c, encoder, object, to);
    else if (!text) {
        const char *key = json_object_iter_key(json_object_iter(object));
        error = sgrad_format("has no field '%s'; set --field%s%s%s", c->options->field, key ? ", for example to '" : "",
                             key ? key : "", key ? "'" : "");
    } else if (!json_is_string(text))
        error = sgrad_format("its field '%s' is not a text; set --field", c->options->field);
    else
        add_text(c, encoder, json_string_value(text), json_string_length(text), true, true, to);
    json_decref(object);
    return error;
}

static char *tokenize_lines(const struct sgrad__documents *c, struct sgrad_encoder *encoder, const struct sgrad__block *b,
                            struct sgrad__tokenized *part) {
    const char *at = b->text, *end = at + b->size;
    int64_t line = b->line, document = b->document;
    for (size_t size; at < end; at += size + 1, line++) {
        const char *next = memchr(at, '\n', (size_t)(end - at));
        size = (size_t)((next ? next : end) - at);
        size_t blanks = 0;
        while (blanks < size && strchr(" \t\r", at[blanks]) && at[blanks]) blanks++;
        if (blanks == size) continue;
        char *why = add_line(c, encoder, at, size, &part[part_of(c, document++)]);
        if (!why) continue;
        char *error = sgrad_format("%s: line %lld: %s", b->file, (long long)line, why);
        free(why);
        return error;
    }
    return NULL;
}

static char *tokenize_text(const struct sgrad__documents *c, struct sgrad_encoder *encoder, const struct sgrad__block *b,
                           struct sgrad__tokenized *part) {
    const size_t bad = sgrad__utf8_check(b->text, b->size);
    int64_t line = b->line;
    if (c->options->template)
        return sgrad_format("%s: is text, but --template requires JSON lines, in a file whose name ends with .jsonl", b->file);
    if (bad == b->size) {
        add_text(c, encoder, b->text, b->size, b->first, b->last, &part[part_of(c, b->document)]);
        return NULL;
    }
    for (size_t i = 0; i < bad; i++) line += b->text[i] == '\n';
    return sgrad_format("%s: line %lld: byte 0x%02X is not UTF-8; convert the file, for example with iconv -f LATIN1 -t UTF-8",
                        b->file, (long long)line, (unsigned char)b->text[bad]);
}

char *sgrad__documents_tokenize(const struct sgrad__documents *documents, struct sgrad_encoder *encoder,
                                const struct sgrad__block *block, struct sgrad__tokenized part[SGRAD__PARTS]) {
    return (block->lines ? tokenize_lines : tokenize_text)(documents, encoder, block, part);
}
