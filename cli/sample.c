/* sample.c: stargrad sample: generates text with a language model. */
#include "cli/cli.h"
#include "graphs/api/inference.h"
#include "datasets/tokenizers/tokenizer.h"

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
    { "tokens", "N", "number of tokens to generate", &sgrad__whole, SGRAD__PLACE(sample.tokens), 1, 100000000 },
    { "temperature", "T", "sampling temperature; values below 1 favour probable tokens; 0: always the most probable token",
      &sgrad__real, SGRAD__PLACE(sample.temperature), 0, 1000 },
    { "top-k", "K", "sample from the K most probable tokens; 0: from all", &sgrad__whole, SGRAD__PLACE(sample.top_k), 0, 65536 },
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
    request->sample.temperature = 1;
}

/* The output, printed as tokens are generated; the prompt is the first. */
struct speech {
    const char *prompt;                     /* NULL: already printed */
    struct sgrad__decoder *decoder;         /* NULL: there is no tokenizer */
    bool bytes;                             /* tokens are bytes; false, without a tokenizer: print numbers */
};

static bool take(void *arg, int text, int token) {
    struct speech *s = arg;
    (void)text;
    size_t size;
    if (s->prompt) fputs(s->prompt, stdout);
    s->prompt = NULL;
    if (s->decoder) {
        const char *text = sgrad__decode(s->decoder, token, &size);
        fwrite(text, 1, size, stdout);
    } else if (s->bytes) putchar(token);
    else printf(" %d", token);
    fflush(stdout);
    return true;
}

/* Returns true if the tokens of the network are bytes, by the options of the model. */
static bool takes_bytes(const char *model) {
    const char *vocabulary = strstr(model, "vocabulary=");
    return vocabulary ? atoi(vocabulary + strlen("vocabulary=")) == 256 : strncmp(model, "gpt2", strlen("gpt2")) != 0;
}

/* Parses "464 2068": numbers of tokens, separated by blanks or commas. */
static int read_numbers(const char *text, int32_t **tokens, int *count) {
    int32_t *number = sgrad_xcalloc(strlen(text) + 1, sizeof *number);
    char *end;
    *count = 0;
    for (text += strspn(text, " ,\n"); *text; text = end + strspn(end, " ,\n")) {
        const long n = strtol(text, &end, 10);
        if (end == text || n < 0 || n >= INT32_MAX) {
            free(number);
            return sgrad__wrong("sample: --prompt: '%s' is not a token number; to give text, set --tokenizer FILE", text);
        }
        number[(*count)++] = (int32_t)n;
    }
    *tokens = number;
    return SGRAD__DONE;
}

/* Returns the *COUNT tokens of PROMPT, after those that the tokenizer's template puts before a text, unless the prompt begins
 * with them. The caller must free them. */
static int32_t *encode(const struct sgrad__tokenizer *tokenizer, const char *prompt, int *count) {
    struct sgrad__encoder *encoder = sgrad__encoder_create(tokenizer);
    size_t own;
    int begins;
    const int32_t *begin = sgrad__tokenizer_begin(tokenizer, &begins);
    const int32_t *text = sgrad__encode(encoder, prompt, strlen(prompt), &own);
    int32_t *token = sgrad_xcalloc((size_t)begins + own + 1, sizeof *token);
    if (own >= (size_t)begins && !memcmp(text, begin, (size_t)begins * sizeof *text)) begins = 0;
    memcpy(token, begin, (size_t)begins * sizeof *token);
    memcpy(token + begins, text, own * sizeof *token);
    *count = begins + (int)own;
    const size_t dropped = sgrad__encoder_dropped(encoder);
    if (dropped)
        sgrad_log_warning("sample: %zu %s of the prompt %s not in the tokenizer's vocabulary and %s left out", dropped,
                          sgrad_plural((int64_t)dropped, "character", "characters"), sgrad_plural((int64_t)dropped, "is", "are"),
                          sgrad_plural((int64_t)dropped, "was", "were"));
    sgrad__encoder_destroy(encoder);
    return token;
}

/* Opens the specified tokenizer, or the one in the run's folder. *TOKENIZER is unchanged if neither exists. */
static int open_tokenizer(const struct sgrad__request *request, struct sgrad__tokenizer **tokenizer) {
    if (request->sample.tokenizer) return sgrad__tokenizer_open(request->sample.tokenizer, tokenizer);
    if (!request->argument) return 0;
    char *path = sgrad_format("%s/tokenizer.json", request->argument);
    const int error = access(path, F_OK) ? 0 : sgrad__tokenizer_open(path, tokenizer);
    free(path);
    return error;
}

static int run(const struct sgrad__request *request) {
    const char *prompt = request->sample.prompt ? request->sample.prompt : "\n";
    struct sgrad_train_options options = request->train;
    struct sgrad__tokenizer *tokenizer = NULL;
    int32_t *token = NULL;
    int count = (int)strlen(prompt), status = SGRAD__DONE;
    sgrad__weights_of_run(request, &options);
    if (!options.model.init) return sgrad__wrong("sample: --weights FILE is missing");
    options.parallel.mesh = NULL;        /* of the run; sampling uses one rank */
    const bool bytes = takes_bytes(options.model.name);
    const int error = open_tokenizer(request, &tokenizer);
    if (error) return sgrad__status(error);
    if (tokenizer) {
        token = encode(tokenizer, prompt, &count);
    } else if (bytes) {
        token = sgrad_xcalloc((size_t)count + 1, sizeof *token);
        for (int i = 0; i < count; i++) token[i] = (unsigned char)prompt[i];
    } else status = read_numbers(prompt, &token, &count);
    if (!status && !count) status = sgrad__wrong("sample: --prompt is empty; give at least one token");
    if (!status) {
        struct speech speech = { tokenizer || bytes ? prompt : "",
                                 tokenizer ? sgrad__decoder_create(tokenizer, true) : NULL, bytes };
        const struct sgrad_sample_options how = {
            .prompt = &(struct sgrad_prompt){ token, count }, .prompts = 1, .tokens = request->sample.tokens,
            .temperature = request->sample.temperature, .top_k = request->sample.top_k, .take = take, .arg = &speech,
            .words = tokenizer ? sgrad__tokenizer_words(tokenizer) : 0,
        };
        status = sgrad__status(sgrad_sample(&options, &how));
        size_t size = 0;
        const char *rest = speech.decoder ? sgrad__decode_end(speech.decoder, &size) : "";
        fwrite(rest, 1, size, stdout);
        sgrad__decoder_destroy(speech.decoder);
        if (!status) putchar('\n');
    }
    free(token);
    sgrad__tokenizer_close(tokenizer);
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
    .notes = "Weights, model and tokenizer.json, if there is one, are read from RUN-DIR; options given here override them. "
             "For example:\n\n"
             "  stargrad sample runs/gpt --prompt 'To be, ' --top-k 40\n"
             "  stargrad sample --weights runs/gpt/model.safetensors \\\n"
             "      --model gpt:context=64 --prompt 'To be, ' --top-k 40",
};
