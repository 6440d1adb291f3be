/* corpus.c: the threads that tokenize the blocks of an input, and the files of tokens. */

#include "config.h"

#include "datasets/corpus/corpus.h"
#include "datasets/formats.h"
#include "datasets/tokenizers/unicode.h"
#include "runtime/runtime.h"

#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_16 = 65536 };
#define MOST_TOKENS 0xFFFFFFFF /* the number of tokens in the header has 32 bits */

/* A part of a block: its tokens, little-endian, and with a template a byte for each, 1 if it belongs to an answer. */
struct output {
    struct sgrad__buffer tokens, answers;
    struct sgrad__corpus_part sum;
};

/* A block and its tokens. */
struct slot {
    enum { FREE, READY, TAKEN, DONE } state;
    struct sgrad__block block;
    struct output part[SGRAD__PARTS];
    int64_t dropped;
    char *error; /* NULL: none */
};

struct corpus {
    const struct sgrad__corpus_options *options;
    struct sgrad_monitor *monitor;
    struct slot *slot; /* block i is in slot i % slots */
    int slots;
    int64_t taken, read; /* blocks that threads have taken, that were read */
    bool stop;
    int width;     /* bytes of a token */
    bool one_text; /* the only input is a text file, with two documents */
    struct sgrad_file file[SGRAD__PARTS], answers[SGRAD__PARTS];
    struct sgrad__corpus_result *result;
};

/* ---- threads ----------------------------------------------------------------------------------------------------- */

/* Every (1 / fraction)-th document is for validation, from the first on. */
static int part_of(const struct corpus *c, int64_t document) {
    enum { UNIT = 1000000000 };
    const struct sgrad__corpus_options *o = c->options;
    const uint64_t share = (uint64_t)llround(o->fraction * UNIT), i = (uint64_t)document;
    if (c->one_text) return document ? SGRAD__PART_VAL : SGRAD__PART_TRAIN;
    if (o->documents) return document < o->documents ? SGRAD__PART_VAL : SGRAD__PART_TRAIN;
    return ((i + 1) * share + UNIT - 1) / UNIT > (i * share + UNIT - 1) / UNIT ? SGRAD__PART_VAL : SGRAD__PART_TRAIN;
}

/* ANSWER: the tokens belong to an answer. */
static void put(const struct corpus *c, const int32_t *token, size_t count, bool answer, struct output *to) {
    char *at = sgrad__buffer_extend(&to->tokens, count * (size_t)c->width);
    for (size_t i = 0; i < count; i++)
        for (int byte = 0; byte < c->width; byte++) *at++ = (char)((uint32_t)token[i] >> 8 * byte);
    if (c->options->template && count) memset(sgrad__buffer_extend(&to->answers, count), answer, count);
    to->sum.tokens += (int64_t)count;
}

/* Adds a text, of which FIRST: the document begins here; LAST: it ends. */
static void add_text(const struct corpus *c, struct sgrad_encoder *encoder, const char *text, size_t size, bool first, bool last,
                     struct output *to) {
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

static char *check_system(const struct corpus *c, const struct exchange *is) {
    if (!is->system || c->options->template->system[0]) return NULL;
    return sgrad_format("has a system message, but the template has no place for it; add {#system}…{system}…{/system} before "
                        "{prompt}");
}

/* Adds an exchange of a conversation. Its two parts are encoded apart, as sample does. */
static void add_exchange(const struct corpus *c, struct sgrad_encoder *encoder, const struct exchange *is, struct output *to) {
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
                            "take turns", i + 1, is ? is : "", role);
    return *text ? NULL : sgrad_format("message %zu has no text 'content'", i + 1);
}

/* Adds a conversation of messages, which begins after an optional system message. */
static char *add_messages(const struct corpus *c, struct sgrad_encoder *encoder, const json_t *messages, struct output *to) {
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
static char *add_conversation(const struct corpus *c, struct sgrad_encoder *encoder, const json_t *object, struct output *to) {
    const json_t *messages = json_object_get(object, "messages");
    const struct exchange is = { .system = json_string_value(json_object_get(object, "system")),
                                 .prompt = json_string_value(json_object_get(object, "prompt")),
                                 .answer = json_string_value(json_object_get(object, "response")) };
    const json_t *system = json_object_get(object, "system");
    put(c, c->options->begin, (size_t)c->options->begins, false, to);
    char *error = NULL;
    if (system && !is.system && !json_is_null(system)) error = sgrad_format("has a field 'system' that is not a text");
    else if (system && messages)
        error = sgrad_format("has 'messages', so 'system' must be the role of the first one, not a field");
    else if (messages) error = add_messages(c, encoder, messages, to);
    else if (!is.prompt || !is.answer)
        error = sgrad_format("must have the texts 'prompt' and 'response', or an array 'messages'");
    else if (!(error = check_system(c, &is))) add_exchange(c, encoder, &is, to);
    if (error) return error;
    if (c->options->end >= 0) put(c, &c->options->end, 1, true, to);
    to->sum.documents++;
    return NULL;
}

/* Adds the document in a line of JSON. Returns an error, which the caller must free; NULL: none. */
static char *add_line(const struct corpus *c, struct sgrad_encoder *encoder, const char *line, size_t size, struct output *to) {
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

static char *tokenize_lines(const struct corpus *c, struct sgrad_encoder *encoder, struct slot *s) {
    const char *at = s->block.text, *end = at + s->block.size;
    int64_t line = s->block.line, document = s->block.document;
    for (size_t size; at < end; at += size + 1, line++) {
        const char *next = memchr(at, '\n', (size_t)(end - at));
        size = (size_t)((next ? next : end) - at);
        size_t blanks = 0;
        while (blanks < size && strchr(" \t\r", at[blanks]) && at[blanks]) blanks++;
        if (blanks == size) continue;
        char *why = add_line(c, encoder, at, size, &s->part[part_of(c, document++)]);
        if (!why) continue;
        char *error = sgrad_format("%s: line %lld: %s", s->block.file, (long long)line, why);
        free(why);
        return error;
    }
    return NULL;
}

static char *tokenize_text(const struct corpus *c, struct sgrad_encoder *encoder, struct slot *s) {
    const struct sgrad__block *b = &s->block;
    const size_t bad = sgrad__utf8_check(b->text, b->size);
    int64_t line = b->line;
    if (c->options->template)
        return sgrad_format("%s: is text, but --template requires JSON lines, in a file whose name ends with .jsonl", b->file);
    if (bad == b->size) {
        add_text(c, encoder, b->text, b->size, b->first, b->last, &s->part[part_of(c, b->document)]);
        return NULL;
    }
    for (size_t i = 0; i < bad; i++) line += b->text[i] == '\n';
    return sgrad_format("%s: line %lld: byte 0x%02X is not UTF-8; convert the file, for example with iconv -f LATIN1 -t UTF-8",
                        b->file, (long long)line, (unsigned char)b->text[bad]);
}

static void *work(void *arg) {
    struct corpus *c = arg;
    struct sgrad_encoder *encoder = sgrad_encoder_create(c->options->tokenizer);
    sgrad_monitor_lock(c->monitor);
    while (!c->stop) {
        struct slot *s = &c->slot[c->taken % c->slots];
        if (c->taken == c->read) {
            sgrad_monitor_wait(c->monitor, 0);
            continue;
        }
        c->taken++;
        s->state = TAKEN;
        sgrad_monitor_unlock(c->monitor);
        const size_t dropped = sgrad_encoder_dropped(encoder);
        s->error = s->block.lines ? tokenize_lines(c, encoder, s) : tokenize_text(c, encoder, s);
        s->dropped = (int64_t)(sgrad_encoder_dropped(encoder) - dropped);
        sgrad_monitor_lock(c->monitor);
        s->state = DONE;
        sgrad_monitor_notify(c->monitor);
    }
    sgrad_monitor_unlock(c->monitor);
    sgrad_encoder_destroy(encoder);
    return NULL;
}

/* ---- output ------------------------------------------------------------------------------------------------------ */

/* Temporary files, which a signal that ends the process removes first; NULL: none. */
static char *unfinished[2 * SGRAD__PARTS];
static const int ends[] = { SIGINT, SIGTERM, SIGHUP };
enum { ENDS = sizeof ends / sizeof *ends };

static void end(int number) {
    for (int i = 0; i < 2 * SGRAD__PARTS; i++)
        if (unfinished[i]) unlink(unfinished[i]);
    signal(number, SIG_DFL);
    raise(number);      /* delivered after this handler has returned */
}

/* Signals that are ignored, for example because of nohup, remain ignored. */
static void watch_signals(const struct corpus *c, struct sigaction before[ENDS]) {
    const struct sigaction action = { .sa_handler = end, .sa_flags = SA_RESTART };
    for (int i = 0; i < 2 * SGRAD__PARTS; i++) {
        const struct sgrad_file *file = i % 2 ? &c->answers[i / 2] : &c->file[i / 2];
        unfinished[i] = file->temporary ? sgrad_format("%s", file->temporary) : NULL;
    }
    for (int i = 0; i < ENDS; i++) {
        sigaction(ends[i], NULL, &before[i]);
        if (before[i].sa_handler != SIG_IGN) sigaction(ends[i], &action, NULL);
    }
}

static void unwatch_signals(const struct sigaction before[ENDS]) {
    for (int i = 0; i < ENDS; i++) sigaction(ends[i], &before[i], NULL);
    for (int i = 0; i < 2 * SGRAD__PARTS; i++) free(unfinished[i]), unfinished[i] = NULL;
}

static int begin_files(struct corpus *c) {
    static const char *const name[] = { [SGRAD__PART_TRAIN] = "train", [SGRAD__PART_VAL] = "val" };
    static const unsigned char header[SGRAD__TOKENS_HEADER];
    for (int i = 0; i < SGRAD__PARTS; i++) {
        char *path = sgrad_format("%s/%s.bin", c->options->folder, name[i]);
        char *answers = sgrad_format("%s/%s.answers", c->options->folder, name[i]);
        int error = sgrad_file_begin(path, &c->file[i]);
        if (!error && c->options->template) error = sgrad_file_begin(answers, &c->answers[i]);
        free(path);
        free(answers);
        SGRAD_TRY(error);
        fwrite(header, 1, sizeof header, c->file[i].stream); /* commit reports errors */
    }
    return 0;
}

/* Writes the headers, and gives the files their names. */
static int commit_files(struct corpus *c) {
    const int64_t documents = c->result->part[0].documents + c->result->part[1].documents;
    if (documents < 2)
        return sgrad_log_error(
            SGRAD_EFORMAT,
            "tokenize: the input has %lld %s, but train.bin and val.bin need at least one each; give several, or "
            "one text file and --val FRACTION",
            (long long)documents, sgrad_plural(documents, "document", "documents"));
    for (int i = 0; i < SGRAD__PARTS; i++) {
        const int64_t tokens = c->result->part[i].tokens;
        if (!tokens)
            return sgrad_log_error(SGRAD_EFORMAT,
                                   "tokenize: %s would have no tokens: %lld %s of %lld %s for it; set another --val",
                                   i ? "val.bin" : "train.bin", (long long)c->result->part[i].documents,
                                   sgrad_plural(c->result->part[i].documents, "document", "documents"), (long long)documents,
                                   sgrad_plural(c->result->part[i].documents, "is", "are"));
        unsigned char header[SGRAD__TOKENS_HEADER];
        sgrad__tokens_header(c->width, (uint32_t)tokens, header);
        rewind(c->file[i].stream);
        fwrite(header, 1, sizeof header, c->file[i].stream);
    }
    for (int i = 0; i < SGRAD__PARTS && c->options->template; i++) SGRAD_TRY(sgrad_file_commit(&c->answers[i]));
    SGRAD_TRY(sgrad_file_commit(&c->file[SGRAD__PART_VAL]));
    return sgrad_file_commit(&c->file[SGRAD__PART_TRAIN]);
}

static int write_bytes(const struct sgrad__buffer *bytes, const struct sgrad_file *file) {
    if (!bytes->size || fwrite(bytes->text, 1, bytes->size, file->stream) == bytes->size) return 0;
    return sgrad_log_error(SGRAD_EIO, "tokenize: %s: cannot be written; is the disk full?", file->path);
}

/* Writes the tokens of a slot, and frees it. */
static int write_slot(struct corpus *c, struct slot *s) {
    int error = s->error ? sgrad_log_error(SGRAD_EFORMAT, "tokenize: %s", s->error) : 0;
    for (int i = 0; i < SGRAD__PARTS; i++) {
        struct sgrad__corpus_part *sum = &c->result->part[i];
        struct output *o = &s->part[i];
        if (!error) error = write_bytes(&o->tokens, &c->file[i]);
        if (!error) error = write_bytes(&o->answers, &c->answers[i]);
        sum->documents += o->sum.documents;
        sum->tokens += o->sum.tokens;
        sum->bytes += o->sum.bytes;
        if (!error && sum->tokens > MOST_TOKENS)
            error = sgrad_log_error(SGRAD_EFORMAT,
                                    "tokenize: %s would have more than %lld tokens, which its header cannot state; tokenize the "
                                    "input in parts",
                                    c->file[i].path, (long long)MOST_TOKENS);
        o->tokens.size = o->answers.size = 0;
        o->sum = (struct sgrad__corpus_part){ 0 };
    }
    c->result->dropped += s->dropped;
    free(s->block.text);
    free(s->error);
    s->block.text = s->error = NULL;
    s->state = FREE;
    return error;
}

static void show_progress(const struct corpus *c, const struct sgrad__input *input, double began) {
    static double last;
    const double now = sgrad_time_monotonic(), done = sgrad__input_done(input), seconds = now - began;
    const struct sgrad__corpus_part *p = c->result->part;
    const double tokens = (double)(p[0].tokens + p[1].tokens), bytes = (double)(p[0].bytes + p[1].bytes);
    if (!c->options->progress || now - last < 0.2) return;
    last = now;
    char *left =
        done > 0 && !c->options->files[1] ? sgrad_format("; %.0f s left", seconds / done * (1 - done)) : sgrad_format("%s", "");
    char *text = sgrad_format("%.1f MB, %.0f tokens, %.3g tokens/s%s", bytes / 1e6, tokens, tokens / seconds, left);
    sgrad_log_progress(text);
    free(text);
    free(left);
}

/* Reads blocks into free slots, and writes those that are done, in order. */
static int turn(struct corpus *c, struct sgrad__input *input) {
    const double began = sgrad_time_monotonic();
    int64_t written = 0;
    bool more = true;
    while (more || written < c->read) {
        struct slot *s = &c->slot[written % c->slots];
        if (!more || c->read - written == c->slots) {
            sgrad_monitor_lock(c->monitor);
            while (s->state != DONE) sgrad_monitor_wait(c->monitor, 0);
            sgrad_monitor_unlock(c->monitor);
            written++;
            SGRAD_TRY(write_slot(c, s));
            show_progress(c, input, began);
            continue;
        }
        struct sgrad__block block;
        SGRAD_TRY(sgrad__input_next(input, &block, &more));
        if (!more) continue;
        sgrad_monitor_lock(c->monitor);
        c->slot[c->read % c->slots].block = block;
        c->slot[c->read % c->slots].state = READY;
        c->read++;
        sgrad_monitor_notify(c->monitor);
        sgrad_monitor_unlock(c->monitor);
    }
    c->result->seconds = sgrad_time_monotonic() - began;
    return 0;
}

/* Starts the threads and runs them until the input is written. */
static int run(struct corpus *c, struct sgrad__input *input) {
    struct sgrad_thread **thread = sgrad_xcalloc((size_t)c->options->threads, sizeof *thread);
    int error = 0;
    for (int i = 0; i < c->options->threads && !error; i++)
        if (!(thread[i] = sgrad_thread_start(work, c)))
            error = sgrad_log_error(SGRAD_EIO, "tokenize: thread %d of %d cannot be started; set --threads", i + 1,
                                    c->options->threads);
    if (!error) error = turn(c, input);
    sgrad_monitor_lock(c->monitor);
    c->stop = true;
    sgrad_monitor_notify(c->monitor);
    sgrad_monitor_unlock(c->monitor);
    for (int i = 0; i < c->options->threads; i++) sgrad_thread_join(thread[i]);
    free(thread);
    if (c->options->progress) sgrad_log_progress(NULL);
    return error;
}

int sgrad__corpus_write(const struct sgrad__corpus_options *options, struct sgrad__corpus_result *result) {
    const bool wide = sgrad_tokenizer_tokens(options->tokenizer) > MOST_16;
    struct corpus c = { .options = options, .slots = 4 * options->threads + 2, .width = wide ? 4 : 2, .result = result };
    struct sgrad__input *input;
    struct sigaction before[ENDS];
    *result = (struct sgrad__corpus_result){ .bits = 8 * c.width };
    SGRAD_TRY(sgrad__input_open(options->files, options->lines, sgrad_tokenizer_cuts_lines(options->tokenizer),
                                options->fraction, &input));
    c.one_text = sgrad__input_has_two(input);
    c.monitor = sgrad_monitor_create();
    c.slot = sgrad_xcalloc((size_t)c.slots, sizeof *c.slot);
    int error = begin_files(&c);
    watch_signals(&c, before);
    if (!error) error = run(&c, input);
    if (!error) error = commit_files(&c);
    for (int i = 0; i < SGRAD__PARTS; i++) sgrad_file_abort(&c.file[i]), sgrad_file_abort(&c.answers[i]);
    unwatch_signals(before);
    for (int i = 0; i < c.slots; i++) {
        free(c.slot[i].block.text);
        free(c.slot[i].error);
        for (int p = 0; p < SGRAD__PARTS; p++) {
            free(c.slot[i].part[p].tokens.text);
            free(c.slot[i].part[p].answers.text);
        }
    }
    free(c.slot);
    sgrad_monitor_destroy(c.monitor);
    sgrad__input_close(input);
    return error;
}
