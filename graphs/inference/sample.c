/* sample.c: generates texts with saved weights of a language model, token by token. A program of one row of each text is executed
 * once for each token of a text so far, and once for each generated one:
 *
 *     text so far     T o   b e │            step     1   2   3   4   5   6   7
 *     row             0 1 2 3 4 │ 5 6        draws    -   -   -   -   _   n   o       "-": the next token is known
 *     shorter one     N o │     │            draws    -   t   ,   _   a   n   d
 *
 * Attention saves keys and values of all earlier rows, so that a step computes only its row. When the context of the network is
 * full, its later half is processed again as the start of a new context. */
#include "datasets/datasets.h"
#include "graphs/api/inference.h"
#include "graphs/inference/draw.h"
#include "graphs/train/setup.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Texts that are generated together: token t of text i is token[i·length + t]. A prompt that is longer than the context has lost
 * its beginning. */
struct texts {
    int first, count;               /* index of the first prompt; number of texts, of which the last ones may have no prompt */
    int64_t length, longest;        /* tokens of a text that can be stored; of the longest prompt */
    int32_t *token;                 /* owned by the data set, as its first field */
    int64_t *known;                 /* by text: number of tokens, those of the prompt and those generated */
    int64_t *last;                  /* by text: number at which it ends */
    float *logit;                   /* of a row */
};

/* Limits of the texts that are generated together: their number, and their tokens. */
enum { MOST_TEXTS = 64, MOST_TOKENS = 1 << 20 };

/* Opens the texts as a data set whose sample i is token[i]. The targets are not used, but data sets must have them. */
static void open_texts(struct sgrad__run *run, const struct sgrad_sample_options *how, struct texts *texts) {
    static const struct sgrad_reader reader = { .name = "text" };
    const struct sgrad_view one = { SGRAD_I32, { 1, { 1 } } };
    for (int i = 0; i < how->prompts; i++)
        if (how->prompt[i].tokens > texts->longest) texts->longest = how->prompt[i].tokens;
    texts->length = texts->longest + how->tokens + 1;
    texts->count = (int)sgrad_clamp(MOST_TOKENS / texts->length, 1, how->prompts < MOST_TEXTS ? how->prompts : MOST_TEXTS);
    texts->known = sgrad_xcalloc((size_t)texts->count, sizeof *texts->known);
    texts->last = sgrad_xcalloc((size_t)texts->count, sizeof *texts->last);
    const int64_t all = texts->count * texts->length;
    texts->token = sgrad_xcalloc((size_t)all, sizeof *texts->token);
    run->data.test = sgrad_xcalloc(1, sizeof *run->data.test);
    *run->data.test =
        (struct sgrad_dataset){ .reader = &reader,
                                .count = all,
                                .classes = 1,
                                .field = { { "tokens", one.dtype, one.shape, texts->token },
                                           { "next", one.dtype, one.shape, sgrad_xcalloc((size_t)all, sizeof *texts->token) } } };
    run->generation.rows = (int)(texts->length < INT32_MAX ? texts->length : INT32_MAX);
    run->generation.sequences = texts->count;
}

/* Checks the tokens of all prompts, and warns of those of which only the last CONTEXT tokens are used. */
static int check_prompts(const struct sgrad_sample_options *how, int64_t context, int64_t vocabulary) {
    int cut = 0;
    for (int i = 0; i < how->prompts; i++) {
        const struct sgrad_prompt *prompt = &how->prompt[i];
        for (int t = 0; t < prompt->tokens; t++)
            if (prompt->token[t] < 0 || prompt->token[t] >= vocabulary)
                return sgrad_log_error(SGRAD_EINVAL, "token %d of the prompt is invalid: it must be from 0 to %lld",
                                       prompt->token[t], (long long)vocabulary - 1);
        cut += prompt->tokens > context;
    }
    if (cut)
        sgrad_log_warning("%d %s longer than the context of %lld tokens; only the last %lld tokens are used", cut,
                          sgrad_plural(cut, "prompt is", "prompts are"), (long long)context, (long long)context);
    return 0;
}

/* Copies the prompts from texts->first on, the last CONTEXT tokens of each. A text without a prompt has ended. */
static void copy_prompts(const struct sgrad_sample_options *how, int64_t context, const struct texts *texts) {
    for (int i = 0; i < texts->count; i++) {
        texts->known[i] = texts->last[i] = 0;
        if (texts->first + i >= how->prompts) continue;
        const struct sgrad_prompt *prompt = &how->prompt[texts->first + i];
        const int64_t lost = prompt->tokens > context ? prompt->tokens - context : 0;
        texts->known[i] = prompt->tokens - lost;
        texts->last[i] = texts->known[i] + how->tokens;
        memcpy(texts->token + i * texts->length, prompt->token + lost, (size_t)texts->known[i] * sizeof *texts->token);
    }
}

static int open_program(struct sgrad__run *run, int sequences) {
    struct sgrad_program_options p = sgrad__run_program_options(run, false, sequences, sequences);
    p.window = 1;
    p.answers = true;
    SGRAD_TRY(sgrad__program_build(run->graph, &p, &run->program));
    SGRAD_TRY(sgrad__program_allocate(run->program));
    run->runner = sgrad__runner_create(run->program, NULL);
    return 0;
}

/* Processes token AT of every text as row ROW, and sets *SLOT, which contains the logits. A text that has ended is
 * processed, too, with any token; its logits are not used. */
static int process(struct sgrad__run *run, const struct texts *texts, int64_t at, int64_t row, const struct sgrad__slot **slot) {
    const struct sgrad_step step = { .seed = run->options.training.seed, .number = (uint32_t)row + 1 };
    struct sgrad_sample *sample = sgrad_xcalloc((size_t)texts->count, sizeof *sample);
    for (int i = 0; i < texts->count; i++) sample[i].index = i * texts->length + at;
    int error = sgrad__runner_submit(run->runner, &step, sample);
    if (!error) error = sgrad__runner_wait(run->runner, slot);
    free(sample);
    return error;
}

/* Returns the logits of text I as floats. */
static float *logits_of(const struct sgrad__run *run, const struct texts *texts, const struct sgrad__slot *slot, int i,
                        int64_t classes) {
    const int output = run->program->answer[0];
    const enum sgrad_dtype type = run->program->buffer[run->program->output[output].buffer].view.dtype;
    const char *from = (const char *)slot->output[output] + (size_t)(i * classes) * sgrad_dtype_size(type);
    sgrad__to_floats(type, from, classes, texts->logit);
    return texts->logit;
}

/* Appends the next token to each text whose last token is AT. *LEFT: the number of texts that have not ended. */
static int extend(struct sgrad__run *run, const struct sgrad_sample_options *how, const struct texts *texts, int64_t at,
                  const struct sgrad__slot *slot, int *left) {
    const int64_t vocabulary = (int64_t)sgrad_graph_option(run->graph, "vocabulary");
    *left = 0;
    for (int i = 0; i < texts->count; i++) {
        int32_t *text = texts->token + i * texts->length;
        if (texts->known[i] == at + 1 && at + 1 < texts->last[i]) {
            float *logit = logits_of(run, texts, slot, i, vocabulary);
            const int drawn = sgrad__draw_token(how, logit, vocabulary, text, at + 1, run->options.training.seed,
                                                texts->first + i);
            if (drawn < 0)
                return sgrad_log_error(SGRAD_ENAN, "%s: the logits of the network are NaN or infinite", run->options.model.init);
            text[texts->known[i]++] = drawn;
            if (!how->take(how->arg, texts->first + i, drawn)) texts->last[i] = texts->known[i];
        }
        *left += texts->known[i] < texts->last[i];
    }
    return 0;
}

/* Checks that the model is a language model. NULL, a model without a name, is not checked. */
static int check_model(const char *text) {
    int vocabulary = 1;
    if (text) SGRAD_TRY(sgrad_model_vocabulary(text, &vocabulary));
    if (vocabulary) return 0;
    return sgrad_log_error(SGRAD_EINVAL,
                           "model %s is not a language model; sample requires a model with a vocabulary, such as gpt", text);
}

static int check_options(const struct sgrad_sample_options *how) {
    if (sgrad_launched_ranks() > 1)
        return sgrad_log_error(SGRAD_EINVAL, "sample: uses one rank, but %d were started; run it without mpirun",
                               sgrad_launched_ranks());
    if (how->prompts < 1 || how->tokens < 0)
        return sgrad_log_error(SGRAD_EINVAL, "sample requires at least one prompt, and a number of tokens that is not negative");
    if (!(how->temperature >= 0) || how->top_k < 0 || !(how->top_p >= 0 && how->top_p <= 1) || !(how->repetition_penalty >= 0))
        return sgrad_log_error(
            SGRAD_EINVAL, "sample: temperature %g, top-k %d and repetition penalty %g must be 0 or more, top-p %g from 0 to 1",
            how->temperature, how->top_k, how->repetition_penalty, how->top_p);
    return 0;
}

/* Generates the texts whose prompts were copied. */
static int generate_group(struct sgrad__run *run, const struct sgrad_sample_options *how, int64_t context,
                          const struct texts *texts) {
    const int64_t half = context > 1 ? context / 2 : 1;
    int left = 1;
    for (int64_t at = 0, first = 0, furthest = 0; left; at++) {
        const struct sgrad__slot *slot;
        if (sgrad__signal_caught()) return SGRAD_EINTR;
        if (at - first == context) at = first = at + 1 - half;
        SGRAD_TRY(process(run, texts, at, at - first, &slot));
        if (at < furthest) continue;        /* a row that is processed again */
        furthest = at + 1;
        SGRAD_TRY(extend(run, how, texts, at, slot, &left));
    }
    return 0;
}

static int generate(struct sgrad__run *run, const struct sgrad_sample_options *how, struct texts *texts) {
    SGRAD_TRY(check_options(how));
    SGRAD_TRY(check_model(run->options.model.name));
    open_texts(run, how, texts);
    SGRAD_TRY(sgrad__run_open_sampling(run));
    const int64_t vocabulary = (int64_t)sgrad_graph_option(run->graph, "vocabulary");
    const int64_t context = (int64_t)sgrad_graph_option(run->graph, "context");
    if (how->words > vocabulary)
        return sgrad_log_error(SGRAD_EINVAL,
                               "the tokenizer has %d tokens, but the network has %lld; give the tokenizer of this network",
                               how->words, (long long)vocabulary);
    SGRAD_TRY(check_prompts(how, context, vocabulary));
    SGRAD_TRY(open_program(run, texts->count));
    texts->logit = sgrad_xcalloc((size_t)vocabulary, sizeof *texts->logit);
    for (; texts->first < how->prompts && how->tokens; texts->first += texts->count) {
        copy_prompts(how, context, texts);
        SGRAD_TRY(generate_group(run, how, context, texts));
    }
    return 0;
}

int sgrad_sample(const struct sgrad_train_options *options, const struct sgrad_sample_options *how) {
    struct sgrad__run *r = sgrad_xcalloc(1, sizeof *r);
    struct texts texts = { 0 };
    r->options = *options;
    r->options.parallel.mesh = NULL;        /* of a run on several ranks */
    int error = generate(r, how, &texts);
    sgrad__run_close(r);
    free(texts.known);
    free(texts.last);
    free(texts.logit);
    free(r);
    return error;
}
