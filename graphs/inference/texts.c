/* texts.c: generates texts for prompts that are texts. The tokens of a text become bytes as they are generated. Bytes that may be
 * the beginning of the stop text are withheld until this is known:
 *
 *     stop text "<end>"       generated "a <b> <en"       returned so far "a <b> "       withheld "<en" */
#include "config.h"
#include "datasets/formats.h"
#include "datasets/tokenizers/tokenizer.h"
#include "datasets/tokenizers/unicode.h"
#include "graphs/api/inference.h"
#include "graphs/networks/networks.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BYTES = 256 };               /* tokens of a network of bytes */

struct item {
    int32_t *token;                 /* owned; of the prompt */
    int tokens;
    struct sgrad_decoder *decoder;  /* NULL: there is no tokenizer */
    struct sgrad__buffer bytes;     /* generated, including those that are withheld */
};

struct generation {
    const struct sgrad_text_options *how;
    bool bytes;                     /* tokens are bytes; false, without a tokenizer: texts are token numbers */
    struct item *item;              /* by prompt */
    struct sgrad_text *text;        /* by prompt; owns no memory: .text is that of the item */
};

/* ---- generated texts ---- */

/* Returns the number of bytes at the end of the generated ones that may be the beginning of STOP. */
static size_t count_withheld(const struct sgrad__buffer *bytes, const char *stop) {
    const size_t length = stop ? strlen(stop) : 0;
    for (size_t n = length > bytes->size ? bytes->size : length; n > 0; n--)
        if (!memcmp(bytes->text + bytes->size - n, stop, n)) return n;
    return 0;
}

/* Appends SIZE bytes to text NUMBER, up to the stop text. LAST: no other bytes follow. */
static void append(struct generation *g, int number, const char *more, size_t size, bool last) {
    struct sgrad__buffer *bytes = &g->item[number].bytes;
    struct sgrad_text *text = &g->text[number];
    const char *stop = g->how->stop;
    const size_t length = stop ? strlen(stop) : 0, from = bytes->size > length ? bytes->size - length : 0;
    sgrad__buffer_add(bytes, more, size);
    const char *found = length ? memmem(bytes->text + from, bytes->size - from, stop, length) : NULL;
    if (found) bytes->size = (size_t)(found - bytes->text), text->stopped = true;
    text->size = bytes->size - (last || text->stopped ? 0 : count_withheld(bytes, stop));
    sgrad__buffer_add(bytes, "", 1);
    bytes->size--;
    text->text = bytes->text;
}

/* Adds the characters that are not complete, and those that were withheld. */
static void finish(struct generation *g, int number) {
    size_t size = 0;
    if (g->text[number].stopped) return;
    const char *rest = g->item[number].decoder ? sgrad_decode_end(g->item[number].decoder, &size) : "";
    append(g, number, rest, size, true);
}

static bool take(void *arg, int number, int token) {
    struct generation *g = arg;
    struct sgrad_text *text = &g->text[number];
    struct sgrad_decoder *decoder = g->item[number].decoder;
    char word[16] = { (char)token };
    size_t size = 1;
    const char *bytes = word;
    if (decoder) bytes = sgrad_decode(decoder, token, &size);
    else if (!g->bytes) size = (size_t)snprintf(word, sizeof word, " %d", token);
    append(g, number, bytes, size, false);
    if (++text->tokens == g->how->sampling.tokens) finish(g, number);
    const bool goes_on = !g->how->take || g->how->take(g->how->arg, g->text, number);
    return goes_on && !text->stopped;
}

/* ---- prompts ---- */

/* Parses "464 2068": token numbers, separated by blanks or commas. */
static int read_numbers(const char *text, struct item *item) {
    char *end;
    item->token = sgrad_xcalloc(strlen(text) + 1, sizeof *item->token);
    for (text += strspn(text, " ,\n"); *text; text = end + strspn(end, " ,\n")) {
        const long n = strtol(text, &end, 10);
        if (end == text || n < 0 || n >= INT32_MAX)
            return sgrad_log_error(SGRAD_EINVAL,
                                   "sample: the prompt '%.40s' is not a token number; to use text, specify a tokenizer", text);
        item->token[item->tokens++] = (int32_t)n;
    }
    return 0;
}

/* Sets the tokens of PROMPT, after those that the tokenizer's template puts before a text, unless the prompt begins with them. */
static void encode(const struct sgrad_tokenizer *tokenizer, struct sgrad_encoder *encoder, const char *prompt,
                   struct item *item) {
    const size_t before = sgrad_encoder_dropped(encoder);
    size_t own;
    int begins;
    const int32_t *begin = sgrad_tokenizer_begin(tokenizer, &begins);
    const int32_t *text = sgrad_encode(encoder, prompt, strlen(prompt), &own);
    item->token = sgrad_xcalloc((size_t)begins + own + 1, sizeof *item->token);
    if (own >= (size_t)begins && !memcmp(text, begin, (size_t)begins * sizeof *text)) begins = 0;
    memcpy(item->token, begin, (size_t)begins * sizeof *begin);
    if (own) memcpy(item->token + begins, text, own * sizeof *text);
    item->tokens = begins + (int)own;
    const size_t dropped = sgrad_encoder_dropped(encoder) - before;
    if (dropped)
        sgrad_log_warning("sample: %zu %s of the prompt %s not in the tokenizer's vocabulary and %s left out", dropped,
                          sgrad_plural((int64_t)dropped, "character", "characters"), sgrad_plural((int64_t)dropped, "is", "are"),
                          sgrad_plural((int64_t)dropped, "was", "were"));
}

static int read_prompt(const struct generation *g, struct sgrad_encoder *encoder, int number) {
    const struct sgrad_tokenizer *tokenizer = g->how->tokenizer;
    const char *prompt = g->how->prompt[number];
    struct item *item = &g->item[number];
    if (tokenizer) {
        encode(tokenizer, encoder, prompt, item);
        item->decoder = sgrad_decoder_create(tokenizer, true);
    } else if (g->bytes) {
        item->token = sgrad_xcalloc(strlen(prompt) + 1, sizeof *item->token);
        for (; prompt[item->tokens]; item->tokens++) item->token[item->tokens] = (unsigned char)prompt[item->tokens];
    } else {
        SGRAD_TRY(read_numbers(prompt, item));
    }
    if (item->tokens) return 0;
    return sgrad_log_error(SGRAD_EINVAL, "sample: prompt %d is empty; it must have at least one token", number + 1);
}

static int read_prompts(const struct generation *g) {
    const struct sgrad_tokenizer *tokenizer = g->how->tokenizer;
    struct sgrad_encoder *encoder = tokenizer ? sgrad_encoder_create(tokenizer) : NULL;
    int error = 0;
    for (int i = 0; i < g->how->prompts && !error; i++) error = read_prompt(g, encoder, i);
    sgrad_encoder_destroy(encoder);
    return error;
}

/* ---- calls ---- */

static int generate(const struct sgrad_train_options *options, struct generation *g) {
    const struct sgrad_text_options *how = g->how;
    struct sgrad_sample_options sampling = how->sampling;
    int vocabulary = 0;
    if (options->model.name) SGRAD_TRY(sgrad_model_vocabulary(options->model.name, &vocabulary));
    g->bytes = vocabulary == BYTES || !vocabulary;      /* 0: sgrad_sample fails */
    for (int i = 0; i < how->prompts; i++) g->text[i].numbers = !how->tokenizer && !g->bytes;
    SGRAD_TRY(read_prompts(g));
    struct sgrad_prompt *prompt = sgrad_xcalloc((size_t)how->prompts + 1, sizeof *prompt);
    for (int i = 0; i < how->prompts; i++) prompt[i] = (struct sgrad_prompt){ g->item[i].token, g->item[i].tokens };
    sampling.prompt = prompt;
    sampling.prompts = how->prompts;
    sampling.take = take;
    sampling.arg = g;
    sampling.words = how->tokenizer ? sgrad_tokenizer_words(how->tokenizer) : 0;
    const int error = sgrad_sample(options, &sampling);
    for (int i = 0; i < how->prompts && !error; i++) finish(g, i);
    free(prompt);
    return error;
}

int sgrad_sample_texts(const struct sgrad_train_options *options, const struct sgrad_text_options *how,
                       struct sgrad_text **texts) {
    const size_t count = how->prompts > 0 ? (size_t)how->prompts : 0;
    struct generation g = { .how = how,
                            .item = sgrad_xcalloc(count + 1, sizeof *g.item),
                            .text = sgrad_xcalloc(count + 1, sizeof *g.text) };
    const int error = generate(options, &g);
    for (size_t i = 0; i < count; i++) {
        sgrad_decoder_destroy(g.item[i].decoder);
        free(g.item[i].token);
        if (error) free(g.item[i].bytes.text);
    }
    free(g.item);
    if (error) free(g.text);
    else *texts = g.text;
    return error;
}

void sgrad_texts_free(struct sgrad_text *texts, int count) {
    for (int i = 0; texts && i < count; i++) free(texts[i].text);
    free(texts);
}

json_t *sgrad_text_json(const char *prompt, const struct sgrad_text *text) {
    char *valid = sgrad_xcalloc(text->size + 1, 1);
    for (size_t i = 0; i < text->size; i++) valid[i] = text->text[i] ? text->text[i] : (char)0xFF; /* U+FFFD, as invalid bytes */
    json_t *json = json_pack("{s:o, s:o, s:I, s:b}", "prompt", sgrad_json_text(prompt), "text", sgrad_json_text(valid), "tokens",
                             (json_int_t)text->tokens, "stopped", text->stopped);
    free(valid);
    return json;
}

char *sgrad_run_tokenizer(const char *folder, const char *data) {
    static const char kind[] = "tokens:";
    char *path = sgrad_tokenizer_in(folder);
    if (path || !data || strncmp(data, kind, strlen(kind))) return path;
    char *tokens = sgrad__tokens_folder(data + strlen(kind));
    path = tokens ? sgrad_tokenizer_in(tokens) : NULL;
    free(tokens);
    return path;
}
