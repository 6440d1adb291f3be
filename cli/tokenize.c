/* tokenize.c: stargrad tokenize: writes token files from text or JSON lines. */
#include "cli/cli.h"
#include "datasets/corpus/corpus.h"
#include "runtime/terminal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct sgrad__option options[] = {
    { "tokenizer", "FILE", "tokenizer.json, or vocab.json with merges.txt in the same folder", &sgrad__text,
      SGRAD__PLACE(tokenize.tokenizer), .required = true },
    { "out", "DIR", "folder for train.bin, val.bin, tokens.json and a copy of the tokenizer", &sgrad__folder,
      SGRAD__FIELD(output.folder), .required = true },
    { "field", "NAME", "field of JSON lines that contains the text; if set, standard input has JSON lines [text]", &sgrad__text,
      SGRAD__PLACE(tokenize.field) },
    { "template", "FILE",
      "JSON lines are conversations, with prompt and response or messages: text with {prompt} and {answer}, in whose places each "
      "prompt and answer is put, and optionally {#system}...{system}...{/system}; for --loss-on answers",
      &sgrad__file, SGRAD__PLACE(tokenize.template) },
    { "begin", "TOKEN", "token before each document; none: no token [the tokenizer's, such as <|begin_of_text|>, if it has one]",
      &sgrad__text, SGRAD__PLACE(tokenize.begin) },
    { "end", "TOKEN",
      "token after each document; none: no token [the first that the tokenizer has of <|endoftext|>, "
      "<|end_of_text|>, </s>, <|im_end|>]",
      &sgrad__text, SGRAD__PLACE(tokenize.end) },
    { "val", "FRACTION|N",
      "fraction of the documents for val.bin, or number of the first documents; of a text file that is the "
      "only input, the end [0.1]",
      &sgrad__text, SGRAD__PLACE(tokenize.val) },
    { "threads", "N", "number of threads [number of CPUs]", &sgrad__whole, SGRAD__PLACE(tokenize.threads), 1, 4096 },
    { "json", NULL, "print the result as a JSON object", &sgrad__flag, SGRAD__FIELD(output.json) },
    { "quiet", NULL, "print no progress", &sgrad__flag, SGRAD__FIELD(output.quiet) },
    { 0 },
};

static void defaults(struct sgrad__request *request) { request->tokenize.threads = sgrad_cpus(); }

/* Sets corpus->fraction or corpus->documents. */
static int read_val(const char *text, struct sgrad__corpus_options *corpus) {
    char *end;
    const double number = text ? strtod(text, &end) : 0.1;
    const bool whole = number >= 1 && number == floor(number) && number <= 1e15;
    if (text && (end == text || *end || !(whole || (number > 1e-9 && number < 1))))
        return sgrad__wrong("tokenize: --val: '%s' is neither a fraction between 0 and 1 nor a number of documents", text);
    if (whole)
        corpus->documents = (int64_t)number;
    else
        corpus->fraction = number;
    return SGRAD__DONE;
}

static int no_token(const char *option, const char *token) {
    return sgrad__wrong("tokenize: --%s: the tokenizer has no token '%s'", option, token);
}

static int find_begin(const struct sgrad__request *request, struct sgrad__corpus_options *corpus, int32_t *own) {
    const char *name = request->tokenize.begin;
    corpus->begin = sgrad_tokenizer_begin(corpus->tokenizer, &corpus->begins);
    if (!name) return SGRAD__DONE;
    *own = sgrad_tokenizer_find(corpus->tokenizer, name, false);
    corpus->begin = own;
    corpus->begins = strcmp(name, "none") != 0;
    return corpus->begins && *own < 0 ? no_token("begin", name) : SGRAD__DONE;
}

static int find_end(const struct sgrad__request *request, struct sgrad__corpus_options *corpus) {
    const char *name = request->tokenize.end;
    corpus->end = -1;
    if (name && !strcmp(name, "none")) return SGRAD__DONE;
    corpus->end = name ? sgrad_tokenizer_find(corpus->tokenizer, name, false) : sgrad__documents_end(corpus->tokenizer);
    if (corpus->end >= 0) return SGRAD__DONE;
    if (name) return no_token("end", name);
    return sgrad__wrong(
        "tokenize: the tokenizer has none of the tokens " SGRAD__END_TOKENS ", one of which would follow each document; "
        "set --end TOKEN, or --end none");
}

/* ---- files in the folder ----------------------------------------------------------------------------------------- */

/* Files of an earlier call are not replaced. */
static int check_folder(const char *folder) {
    for (const char *const *name = (const char *const[]){ "train.bin", "val.bin", NULL }; *name; name++) {
        char *path = sgrad_format("%s/%s", folder, *name);
        const bool exists = access(path, F_OK) == 0;
        const int status =
            exists ? sgrad__wrong("tokenize: --out: %s exists; remove it, or give another folder", path) : SGRAD__DONE;
        free(path);
        if (status) return status;
    }
    return SGRAD__DONE;
}

/* ---- result ------------------------------------------------------------------------------------------------------ */

static json_t *part_as_json(const struct sgrad__corpus_part *part) {
    return json_pack("{s:I, s:I, s:I}", "documents", (json_int_t)part->documents, "tokens", (json_int_t)part->tokens, "bytes",
                     (json_int_t)part->bytes);
}

static json_t *as_json(const struct sgrad__corpus_options *corpus, const struct sgrad__corpus_result *result) {
    json_t *begin = json_array();
    for (int i = 0; i < corpus->begins; i++) json_array_append_new(begin, json_integer(corpus->begin[i]));
    return json_pack("{s:s, s:i, s:i, s:o, s:o, s:I, s:o, s:o}", "tokenizer",
                     sgrad_tokenizer_name(corpus->tokenizer), "vocabulary", sgrad_tokenizer_tokens(corpus->tokenizer),
                     "bits", result->bits, "begin", begin, "end",
                     corpus->end < 0 ? json_null() : json_integer(corpus->end), "dropped", (json_int_t)result->dropped, "train",
                     part_as_json(&result->part[SGRAD__PART_TRAIN]), "val", part_as_json(&result->part[SGRAD__PART_VAL]));
}

static void print(const struct sgrad__corpus_options *corpus, const struct sgrad__corpus_result *result) {
    static const char *const name[] = { [SGRAD__PART_TRAIN] = "train.bin", [SGRAD__PART_VAL] = "val.bin" };
    double tokens = 0, bytes = 0;
    for (int i = 0; i < SGRAD__PARTS; i++) {
        const struct sgrad__corpus_part *p = &result->part[i];
        printf("%s/%s: %lld %s, %lld tokens of %d bits\n", corpus->folder, name[i], (long long)p->documents,
               sgrad_plural(p->documents, "document", "documents"), (long long)p->tokens, result->bits);
        tokens += (double)p->tokens;
        bytes += (double)p->bytes;
    }
    const double seconds = result->seconds > 1e-9 ? result->seconds : 1e-9;
    printf("%.1f MB in %.1f s on %d %s: %.3g MB/s, %.3g tokens/s\n", bytes / 1e6, seconds, corpus->threads,
           sgrad_plural(corpus->threads, "thread", "threads"), bytes / 1e6 / seconds, tokens / seconds);
}

static int write_all(const struct sgrad__request *request, const struct sgrad__corpus_options *corpus) {
    struct sgrad__corpus_result result;
    SGRAD_TRY(sgrad_folder_make(corpus->folder));
    SGRAD_TRY(sgrad__corpus_write(corpus, &result));
    SGRAD_TRY(sgrad_tokenizer_copy(corpus->tokenizer, corpus->folder));
    char *path = sgrad_format("%s/tokens.json", corpus->folder);
    const int error = sgrad_json_write(path, as_json(corpus, &result), 9);
    free(path);
    if (result.dropped)
        sgrad_log_warning("tokenize: %lld %s no token and no unknown token and %s left out", (long long)result.dropped,
                          sgrad_plural(result.dropped, "character has", "characters have"),
                          sgrad_plural(result.dropped, "was", "were"));
    if (error) return error;
    if (request->train.output.json)
        sgrad__print_json(as_json(corpus, &result));
    else
        print(corpus, &result);
    return 0;
}

static int run(const struct sgrad__request *request) {
    struct sgrad_tokenizer *tokenizer;
    struct sgrad__corpus_options corpus = {
        .what = "tokenize",
        .files = request->words,
        .field = request->tokenize.field ? request->tokenize.field : "text",
        .lines = request->tokenize.field != NULL,
        .threads = request->tokenize.threads,
        .folder = request->train.output.folder,
        .progress = !request->train.output.quiet && sgrad_terminal(STDERR_FILENO),
    };
    struct sgrad__template template = { 0 };
    int32_t begin;
    int status = read_val(request->tokenize.val, &corpus);
    if (!status) status = check_folder(corpus.folder);
    if (status) return status;
    const int error = sgrad_tokenizer_open(request->tokenize.tokenizer, &tokenizer);
    if (error) return sgrad__status(error);
    corpus.tokenizer = tokenizer;
    if (request->tokenize.template) {
        status = sgrad__status(sgrad__template_open(request->tokenize.template, true, &template));
        corpus.template = &template;
        corpus.lines = true;
    }
    if (!status && corpus.template && request->tokenize.field)
        status = sgrad__wrong("tokenize: --template and --field cannot be combined: a conversation has more than one text");
    if (!status) status = find_begin(request, &corpus, &begin);
    if (!status) status = find_end(request, &corpus);
    if (!status) status = sgrad__status(write_all(request, &corpus));
    sgrad_tokenizer_close(tokenizer);
    sgrad__template_close(&template);
    return status;
}

const struct sgrad__command sgrad__tokenize_command = {
    .name = "tokenize",
    .summary = "write token files from text or JSON lines",
    .argument = "IN",
    .repeats = true,
    .options = options,
    .defaults = defaults,
    .run = run,
    .notes = "IN is a text file, which is one document, or a file of JSON lines (.jsonl, .ndjson, .json), where each line is a "
             "document; - is standard input. The result is for train --data tokens:DIR,T. For example:\n\n"
             "  stargrad tokenize --tokenizer tokenizer.json corpus.jsonl --out tokens\n"
             "  stargrad tokenize --tokenizer tokenizer.json input.txt --val 0.05 --out tokens",
};
