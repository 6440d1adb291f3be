/* sample.c: stargrad sample: generates text with a language model. */
#include "cli/cli.h"
#include "datasets/corpus/template.h"
#include "datasets/tokenizers/tokenizer.h"
#include "graphs/api/inference.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct sgrad__option options[] = {
    { "weights", "FILE", "weights (safetensors) [RUN-DIR/model.safetensors]", &sgrad__text, SGRAD__FIELD(model.init),
      .required = true },
    { "model", "NAME", "network that the weights belong to: gpt, gpt2 or llama, with its options; see stargrad list models",
      &sgrad__text, SGRAD__FIELD(model.name), .required = true },
    { "prompt", "TEXT", "text to continue; token numbers if the network has neither byte tokens nor a tokenizer [line break]",
      &sgrad__text, SGRAD__PLACE(sample.prompt) },
    { "prompts", "FILE", "a prompt per line, or - for standard input; the texts are generated together, and printed as JSON",
      &sgrad__text, SGRAD__PLACE(sample.prompts) },
    { "template", "FILE", "text with {prompt}, in whose place each prompt is put, up to {answer}; only the answer is printed",
      &sgrad__file, SGRAD__PLACE(sample.template) },
    { "system", "TEXT", "system message, for a --template with {system} [none]", &sgrad__text, SGRAD__PLACE(sample.system) },
    { "tokens", "N", "number of tokens to generate", &sgrad__whole, SGRAD__PLACE(sample.tokens), 1, 100000000 },
    { "temperature", "T", "sampling temperature; values below 1 favour probable tokens; 0: always the most probable token",
      &sgrad__real, SGRAD__PLACE(sample.temperature), 0, 1000 },
    { "top-k", "K", "sample from the K most probable tokens; 0: from all", &sgrad__whole, SGRAD__PLACE(sample.top_k), 0, 65536 },
    { "top-p", "P", "sample from the most probable tokens that together have probability P; 1: from all", &sgrad__real,
      SGRAD__PLACE(sample.top_p), 0.0001, 1 },
    { "repetition-penalty", "X", "divide positive logits of tokens in the text by X, and multiply negative ones; 1: off",
      &sgrad__real, SGRAD__PLACE(sample.repetition_penalty), 0.01, 100 },
    { "stop", "TEXT", "end a text where TEXT is generated, for example <|endoftext|>; TEXT is not printed", &sgrad__text,
      SGRAD__PLACE(sample.stop) },
    { "tokenizer", "FILE", "tokenizer.json, or vocab.json with merges.txt in the same folder", &sgrad__text,
      SGRAD__PLACE(sample.tokenizer) },
    SGRAD__PLUGIN_OPTION,
    { "seed", "N", "seed of the sampling", &sgrad__whole, SGRAD__FIELD(training.seed), 0, 9007199254740992.0 },
    { "precision", "f32|tf32|bf16",
      "tf32: GPU tensor cores may round the inputs of matrix products to TF32; bf16: bfloat16 activations",
      &sgrad__choice, SGRAD__FIELD(model.precision) },
    { "cpus", "N", "number of CPU workers", &sgrad__workers, SGRAD__FIELD(parallel.cpus), 0, 4096 },
    { "scheduler", "NAME", "StarPU scheduler [lws; with GPUs dmdas]", &sgrad__text, SGRAD__FIELD(parallel.scheduler) },
    { 0 },
};

static void defaults(struct sgrad__request *request) {
    request->sample.tokens = 256;
    request->sample.temperature = request->sample.top_p = request->sample.repetition_penalty = 1;
}

/* ---- output ---- */

struct output {
    char **prompt;              /* owned; as given */
    int count;
    const char *opening;        /* text that is printed before the only text, unless that is numbers; NULL: none */
    bool lines;                 /* print JSON lines; false: the only text, while it is generated */
    size_t printed;             /* bytes of the only text */
    int finished;               /* texts that were printed as JSON */
    long tokens;                /* that a text gets, unless it is stopped */
    double begin, seconds;      /* time of the first generated token; from there to the last */
};

static void print_rest(struct output *to, const struct sgrad_text *text) {
    if (to->opening && !text->numbers) fputs(to->opening, stdout);
    to->opening = NULL;
    fwrite(text->text + to->printed, 1, text->size - to->printed, stdout);
    fflush(stdout);
    to->printed = text->size;
}

/* Prints the texts that have ended, one JSON object each, up to the first that has not. */
static void print_lines(struct output *to, const struct sgrad_text *texts) {
    for (; to->finished < to->count; to->finished++) {
        const struct sgrad_text *t = &texts[to->finished];
        if (!t->stopped && t->tokens < to->tokens) return;
        sgrad__print_json(sgrad_text_json(to->prompt[to->finished], t));
        fflush(stdout);
    }
}

static bool take(void *arg, const struct sgrad_text *texts, int text) {
    struct output *to = arg;
    if (!to->begin) to->begin = sgrad_time_monotonic();
    to->seconds = sgrad_time_monotonic() - to->begin;
    if (to->lines) print_lines(to, texts);
    else print_rest(to, &texts[text]);
    return true;
}

/* Prints the speed on a terminal. */
static void report(const struct output *from, const struct sgrad_text *texts) {
    long tokens = 0;
    for (int i = 0; i < from->count; i++) tokens += texts[i].tokens;
    tokens -= tokens > 0;           /* the first one, at which the clock started */
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "%ld %s in %.1f s, %.1f tokens/s\n", tokens, sgrad_plural(tokens, "token", "tokens"), from->seconds,
                from->seconds > 0 ? (double)tokens / from->seconds : 0);
}

/* ---- prompts ---- */

/* Reads the prompts of FILE, one per line. */
static int read_lines(const char *name, FILE *file, struct output *texts) {
    char *line = NULL;
    int status = SGRAD__DONE;
    size_t room = 0;
    for (ssize_t length; !status && (length = getline(&line, &room, file)) > 0;) {
        length -= line[length - 1] == '\n';
        length -= length && line[length - 1] == '\r';
        if (!length || memchr(line, 0, (size_t)length))
            status = sgrad__wrong("sample: --prompts: line %d of %s %s; each line must be a prompt", texts->count + 1, name,
                                  length ? "contains a byte 0" : "is empty");
        texts->prompt = sgrad_array_grow(texts->prompt, texts->count, sizeof *texts->prompt);
        texts->prompt[texts->count++] = sgrad_format("%.*s", (int)length, line);
    }
    if (ferror(file)) status = sgrad__status(sgrad_log_error(SGRAD_EIO, "sample: --prompts: %s: %s", name, strerror(errno)));
    free(line);
    return status;
}

/* Reads the prompts, those of --prompts or the one of --prompt. */
static int read_prompts(const struct sgrad__request *request, struct output *texts) {
    const char *name = request->sample.prompts;
    if (!name) {
        texts->prompt = sgrad_xcalloc(texts->count = 1, sizeof *texts->prompt);
        *texts->prompt = sgrad_format("%s", request->sample.prompt ? request->sample.prompt : "\n");
        return SGRAD__DONE;
    }
    if (request->sample.prompt) return sgrad__wrong("sample: --prompt and --prompts cannot be combined");
    FILE *file = strcmp(name, "-") ? fopen(name, "r") : stdin;
    if (!file) return sgrad__status(sgrad_log_error(SGRAD_EIO, "sample: --prompts: %s: %s", name, strerror(errno)));
    int status = read_lines(name, file, texts);
    if (!status && !texts->count) status = sgrad__wrong("sample: --prompts: %s is empty", name);
    if (file != stdin) fclose(file);
    return status;
}

/* Returns the prompts in the form of the template, unless that is NULL. */
static int fill_template(const struct sgrad__request *request, const struct output *texts, char ***prompts) {
    const char *form = request->sample.template, *system = request->sample.system;
    struct sgrad__template template = { 0 };
    if (form) SGRAD_TRY(sgrad__template_open(form, false, &template));
    const bool lacks = system && !template.system[0];
    char **prompt = sgrad_xcalloc((size_t)texts->count, sizeof *prompt);
    for (int i = 0; i < texts->count && !lacks; i++)
        prompt[i] = form ? sgrad__template_prompt(&template, system, texts->prompt[i]) : sgrad_format("%s", texts->prompt[i]);
    sgrad__template_close(&template);
    *prompts = prompt;
    if (!lacks) return 0;
    return sgrad_log_error(SGRAD_EINVAL,
                           "sample: --system requires a --template with {#system}…{system}…{/system} before {prompt}");
}

static void free_prompts(char **prompt, int count) {
    for (int i = 0; prompt && i < count; i++) free(prompt[i]);
    free(prompt);
}

/* ---- the command ---- */

/* Opens the specified tokenizer, or that of the run. *TOKENIZER is unchanged if the run has no tokenizer. */
static int open_tokenizer(const struct sgrad__request *request, struct sgrad_tokenizer **tokenizer) {
    if (request->sample.tokenizer) return sgrad_tokenizer_open(request->sample.tokenizer, tokenizer);
    char *path = request->argument ? sgrad_run_tokenizer(request->argument, request->train.data.name) : NULL;
    const int error = path ? sgrad_tokenizer_open(path, tokenizer) : 0;
    free(path);
    return error;
}

static int generate(const struct sgrad__request *request, const struct sgrad_train_options *options,
                    const struct sgrad_tokenizer *tokenizer, struct output *to) {
    char **prompt = NULL;
    struct sgrad_text *texts = NULL;
    int error = fill_template(request, to, &prompt);
    if (!request->sample.template) to->opening = *to->prompt;
    const struct sgrad_text_options how = {
        .prompt = (const char *const *)prompt, .prompts = to->count, .tokenizer = tokenizer, .stop = request->sample.stop,
        .sampling = { .tokens = request->sample.tokens, .temperature = request->sample.temperature,
                      .top_k = request->sample.top_k, .top_p = request->sample.top_p,
                      .repetition_penalty = request->sample.repetition_penalty },
        .take = take, .arg = to,
    };
    if (!error) error = sgrad_sample_texts(options, &how, &texts);
    if (!error && !to->lines) putchar('\n');
    if (!error) report(to, texts);
    sgrad_texts_free(texts, to->count);
    free_prompts(prompt, to->count);
    return error;
}

static int run(const struct sgrad__request *request) {
    struct sgrad_train_options options = request->train;
    struct sgrad_tokenizer *tokenizer = NULL;
    struct output output = { .lines = request->sample.prompts != NULL, .tokens = request->sample.tokens };
    sgrad__weights_of_run(request, &options);
    if (!options.model.init) return sgrad__wrong("sample: --weights FILE is missing");
    int status = sgrad__status(open_tokenizer(request, &tokenizer));
    if (!status) status = read_prompts(request, &output);
    if (!status) status = sgrad__status(generate(request, &options, tokenizer, &output));
    free_prompts(output.prompt, output.count);
    sgrad_tokenizer_close(tokenizer);
    return status;
}

const struct sgrad__command sgrad__sample_command = {
    .name = "sample",
    .summary = "generate text with a language model",
    .argument = "[RUN-DIR]",
    .of_run = true,
    .options = options,
    .defaults = defaults,
    .run = run,
    .notes = "Weights, model and tokenizer, if there is one, are read from RUN-DIR; options given here override them. "
             "For example:\n\n"
             "  stargrad sample runs/gpt --prompt 'To be, ' --top-k 40\n"
             "  stargrad sample --weights runs/gpt/model.safetensors \\\n"
             "      --model gpt:context=64 --prompt 'To be, ' --top-k 40",
};
