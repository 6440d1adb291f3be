/* corpus.c: the threads that tokenize the blocks of an input, and the files of tokens. */
#include "config.h"
#include "datasets/corpus/corpus.h"
#include "datasets/formats.h"
#include "runtime/runtime.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_TOKENS 0xFFFFFFFF /* the number of tokens in the header has 32 bits */

/* A block and its tokens. */
struct slot {
    enum { FREE, READY, TAKEN, DONE } state;
    struct sgrad__block block;
    struct sgrad__tokenized part[SGRAD__PARTS];
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
    struct sgrad__documents documents;
    struct sgrad_file file[SGRAD__PARTS], answers[SGRAD__PARTS];
    int number;     /* of the file whose tokens are being written, if each has its own output; -1: none yet */
    int64_t tokens; /* in that output */
    struct sgrad__corpus_result *result;
};

/* ---- signals ----------------------------------------------------------------------------------------------------- */

/* Temporary files, which a signal that ends the process removes first; NULL: none. Another thread of the program may receive the
 * signal, so the names of former files are freed only when signals are handled as before. */
static char *_Atomic unfinished[2 * SGRAD__PARTS];
static char **former;
static int formers;
static const int ends[] = { SIGINT, SIGTERM, SIGHUP };
enum { ENDS = sizeof ends / sizeof *ends };

static void end(int number) {
    for (int i = 0; i < 2 * SGRAD__PARTS; i++) {
        const char *path = unfinished[i];
        if (path) unlink(path);
    }
    signal(number, SIG_DFL);
    raise(number); /* delivered after this handler has returned */
}

/* Blocks or unblocks these signals in this thread. */
static void mask_signals(int how) {
    sigset_t set;
    sigemptyset(&set);
    for (int i = 0; i < ENDS; i++) sigaddset(&set, ends[i]);
    pthread_sigmask(how, &set, NULL);
}

/* Puts the temporary file of FILE into the list, at I. */
static void watch_file(int i, const struct sgrad_file *file) {
    former = sgrad_array_grow(former, formers, sizeof *former);
    former[formers++] = unfinished[i];
    unfinished[i] = file->temporary ? sgrad_format("%s", file->temporary) : NULL;
}

/* Signals that are ignored, for example because of nohup, remain ignored. */
static void watch_signals(const struct corpus *c, struct sigaction before[ENDS]) {
    const struct sigaction action = { .sa_handler = end, .sa_flags = SA_RESTART };
    for (int i = 0; i < 2 * SGRAD__PARTS; i++) watch_file(i, i % 2 ? &c->answers[i / 2] : &c->file[i / 2]);
    for (int i = 0; i < ENDS; i++) {
        sigaction(ends[i], NULL, &before[i]);
        if (before[i].sa_handler != SIG_IGN) sigaction(ends[i], &action, NULL);
    }
}

static void unwatch_signals(const struct sigaction before[ENDS]) {
    for (int i = 0; i < ENDS; i++) sigaction(ends[i], &before[i], NULL);
    for (int i = 0; i < 2 * SGRAD__PARTS; i++) free(unfinished[i]), unfinished[i] = NULL;
    while (formers) free(former[--formers]);
    free(former);
    former = NULL;
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

static void *work(void *arg) {
    struct corpus *c = arg;
    struct sgrad_encoder *encoder = sgrad_encoder_create(c->options->tokenizer);
    mask_signals(SIG_BLOCK);
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
        s->error = sgrad__documents_tokenize(&c->documents, encoder, &s->block, s->part);
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
        sgrad__tokens_header(c->documents.width, (uint32_t)tokens, header);
        rewind(c->file[i].stream);
        fwrite(header, 1, sizeof header, c->file[i].stream);
    }
    for (int i = 0; i < SGRAD__PARTS && c->options->template; i++) SGRAD_TRY(sgrad_file_commit(&c->answers[i]));
    SGRAD_TRY(sgrad_file_commit(&c->file[SGRAD__PART_VAL]));
    return sgrad_file_commit(&c->file[SGRAD__PART_TRAIN]);
}

/* Completes the output of the current file. */
static int finish_output(struct corpus *c) {
    const struct sgrad__corpus_output *output = &c->options->outputs[c->number];
    FILE *stream = c->file[0].stream;
    unsigned char header[SGRAD__TOKENS_HEADER];
    if (!c->tokens)
        return sgrad_log_error(SGRAD_EFORMAT, "%s: %s: has no document", c->options->what, c->options->files[c->number]);
    sgrad__tokens_header(c->documents.width, (uint32_t)c->tokens, header);
    memcpy(header + SGRAD__STAMP_AT, output->stamp, output->stamp_bytes);
    rewind(stream);
    fwrite(header, 1, sizeof header, stream); /* commit reports errors */
    const int error = sgrad_file_commit(&c->file[0]);
    watch_file(0, &c->file[0]);
    return error;
}

/* Completes the outputs before that of file NUMBER, and begins this one, unless all files were read. */
static int turn_to(struct corpus *c, int number) {
    static const unsigned char header[SGRAD__TOKENS_HEADER];
    while (c->number < number) {
        if (c->number >= 0) SGRAD_TRY(finish_output(c));
        if (!c->options->files[++c->number]) break;
        SGRAD_TRY(sgrad_file_begin(c->options->outputs[c->number].path, &c->file[0]));
        watch_file(0, &c->file[0]);
        fwrite(header, 1, sizeof header, c->file[0].stream);
        c->tokens = 0;
    }
    return 0;
}

static int write_bytes(const struct corpus *c, const struct sgrad__buffer *bytes, const struct sgrad_file *file) {
    if (!bytes->size || fwrite(bytes->text, 1, bytes->size, file->stream) == bytes->size) return 0;
    return sgrad_log_error(SGRAD_EIO, "%s: %s: cannot be written; is the disk full?%s", c->options->what, file->path,
                           c->options->outputs ? " Set XDG_CACHE_HOME to a folder with more space" : "");
}

/* Logs that the tokens of FILE are too many. */
static int refuse_tokens(const struct corpus *c, const struct sgrad_file *file) {
    const struct sgrad__corpus_options *o = c->options;
    return sgrad_log_error(SGRAD_EFORMAT, "%s: %s would have more than %lld tokens, which a header cannot state; %s", o->what,
                           o->outputs ? o->files[c->number] : file->path, (long long)MOST_TOKENS,
                           o->outputs ? "divide the file" : "tokenize the input in parts");
}

/* Writes the tokens of a slot, and frees it. */
static int write_slot(struct corpus *c, struct slot *s) {
    int error = s->error ? sgrad_log_error(SGRAD_EFORMAT, "%s: %s", c->options->what, s->error) : 0;
    if (!error && c->options->outputs) error = turn_to(c, s->block.number);
    for (int i = 0; i < SGRAD__PARTS; i++) {
        struct sgrad__corpus_part *sum = &c->result->part[i];
        struct sgrad__tokenized *o = &s->part[i];
        if (!error) error = write_bytes(c, &o->tokens, &c->file[i]);
        if (!error) error = write_bytes(c, &o->answers, &c->answers[i]);
        sum->documents += o->sum.documents;
        sum->tokens += o->sum.tokens;
        sum->bytes += o->sum.bytes;
        c->tokens += o->sum.tokens;
        if (!error && (c->options->outputs ? c->tokens : sum->tokens) > MOST_TOKENS)
            error = refuse_tokens(c, &c->file[i]);
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
    char *left = done > 0 ? sgrad_format("; %.0f s left", seconds / done * (1 - done)) : sgrad_format("%s", "");
    char *text = sgrad_format("%s%.1f MB, %.0f tokens, %.3g tokens/s%s", c->options->outputs ? "tokenizing texts: " : "",
                              bytes / 1e6, tokens, tokens / seconds, left);
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
            error = sgrad_log_error(SGRAD_EIO, "%s: thread %d of %d cannot be started; %s", c->options->what, i + 1,
                                    c->options->threads,
                                    c->options->outputs ? "raise the limit of threads (ulimit -u)" : "set --threads");
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

static int count_files(const struct sgrad__corpus_options *options) {
    int files = 0;
    while (options->files[files]) files++;
    return files;
}

int sgrad__corpus_write(const struct sgrad__corpus_options *options, struct sgrad__corpus_result *result) {
    const int width = sgrad__documents_width(options->tokenizer);
    struct corpus c = { .options = options,
                        .slots = 4 * options->threads + 2,
                        .documents = { options, width, false },
                        .number = -1,
                        .result = result };
    struct sgrad__input *input;
    struct sigaction before[ENDS];
    *result = (struct sgrad__corpus_result){ .bits = 8 * c.documents.width };
    SGRAD_TRY(sgrad__input_open(options->what, options->files, options->lines, options->outputs != NULL,
                                sgrad_tokenizer_cuts_lines(options->tokenizer), options->fraction, &input));
    c.documents.one_text = sgrad__input_has_two(input);
    c.monitor = sgrad_monitor_create();
    c.slot = sgrad_xcalloc((size_t)c.slots, sizeof *c.slot);
    int error = options->outputs ? 0 : begin_files(&c);
    watch_signals(&c, before);
    if (!error) error = run(&c, input);
    if (!error) error = options->outputs ? turn_to(&c, count_files(options)) : commit_files(&c);
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
