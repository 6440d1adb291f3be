/* sample.c: generates text with saved weights of a language model, token by token. A program of one row, whose last layer draws
 * the next token, is executed once for each token of the text so far, and once for each generated one:
 *
 *     text so far     T o   b e │            step     1   2   3   4   5   6   7
 *     row             0 1 2 3 4 │ 5 6        draws    -   -   -   -   _   n   o       "-": the next token is known
 *
 * Attention saves keys and values of all earlier rows, so that a step computes only its row. When the context of the network is
 * full, its later half is processed again as the start of a new context. */
#include "datasets/datasets.h"
#include "graphs/api/inference.h"
#include "graphs/train/setup.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Opens the text as a data set whose sample i is token i. The target is not used, but data sets must have one. */
static int open_text(struct sgrad__run *run, const struct sgrad_sample_options *options, int32_t **text) {
    static const struct sgrad_reader reader = { .name = "text" };
    const int64_t count = (int64_t)options->prompt_tokens + options->tokens;
    const struct sgrad_view one = { SGRAD_I32, { 1, { 1 } } };
    *text = sgrad_xcalloc((size_t)count + 1, sizeof **text);
    int32_t *same = sgrad_xcalloc((size_t)count + 1, sizeof *same);
    memcpy(*text, options->prompt, (size_t)options->prompt_tokens * sizeof **text);
    run->data.test = sgrad_xcalloc(1, sizeof *run->data.test);
    *run->data.test = (struct sgrad_dataset){ .reader = &reader, .count = count + 1, .classes = 1,
                                       .field = { { "tokens", one.dtype, one.shape, *text },
                                                  { "next", one.dtype, one.shape, same } } };
    return 0;
}

static int open_program(struct sgrad__run *run) {
    struct sgrad_program_options p = sgrad__run_program_options(run, false, 1, 1);
    p.window = 1;
    SGRAD_TRY(sgrad__program_build(run->graph, &p, &run->program));
    SGRAD_TRY(sgrad__program_allocate(run->program));
    run->runner = sgrad__runner_create(run->program, NULL);
    return 0;
}

/* Processes token AT of the text as row ROW. *DRAWN: the token that is drawn after it. */
static int draw(struct sgrad__run *run, int64_t at, int64_t row, double *drawn) {
    const struct sgrad_step step = { .seed = run->options.training.seed, .number = (uint32_t)row + 1, .first = at };
    const struct sgrad_sample sample = { .index = at };
    const struct sgrad__slot *slot;
    SGRAD_TRY(sgrad__runner_submit(run->runner, &step, &sample));
    SGRAD_TRY(sgrad__runner_wait(run->runner, &slot));
    *drawn = *sgrad__slot_doubles(slot, run->program->statistics);
    return 0;
}

/* Checks that the model is a language model: it has an option "vocabulary". NULL, a model without a name, is not checked. */
static int check_model(const char *text) {
    const struct sgrad_model *model = text ? sgrad_model_find(text) : NULL;
    bool has_vocabulary = !text;
    if (text && !model) return SGRAD_ENAME;
    for (const struct sgrad_model_option *option = model ? model->options : NULL; option && option->name; option++)
        has_vocabulary |= !strcmp(option->name, "vocabulary");
    if (has_vocabulary) return 0;
    return sgrad_log_error(SGRAD_EINVAL,
                           "model %s is not a language model; sample requires a model with a vocabulary, such as gpt", text);
}

static int sample(struct sgrad__run *run, const struct sgrad_sample_options *options) {
    int32_t *text;
    SGRAD_TRY(check_model(run->options.model.name));
    SGRAD_TRY(open_text(run, options, &text));
    SGRAD_TRY(sgrad__run_open_sampling(run));
    const int64_t vocabulary = (int64_t)sgrad_graph_option(run->graph, "vocabulary");
    const int64_t context = (int64_t)sgrad_graph_option(run->graph, "context"), half = context > 1 ? context / 2 : 1;
    if (options->words > vocabulary)
        return sgrad_log_error(SGRAD_EINVAL,
                               "the tokenizer has %d tokens, but the network has %lld; give the tokenizer of this network",
                               options->words, (long long)vocabulary);
    for (int64_t i = 0; i < options->prompt_tokens; i++)
        if (text[i] < 0 || text[i] >= vocabulary)
            return sgrad_log_error(SGRAD_EINVAL, "token %d of the prompt is invalid: it must be from 0 to %lld", text[i],
                                   (long long)vocabulary - 1);
    SGRAD_TRY(open_program(run));
    int64_t known = options->prompt_tokens, first = known > context ? known - context : 0;
    for (int64_t at = first; known < options->prompt_tokens + options->tokens; at++) {
        double drawn;
        if (at - first == context) at = first = known - half;
        SGRAD_TRY(draw(run, at, at - first, &drawn));
        if (at + 1 < known) continue;
        if (isnan(drawn))
            return sgrad_log_error(SGRAD_ENAN, "%s: the logits of the network are NaN or infinite", run->options.model.init);
        text[known++] = (int32_t)drawn;
        options->take(options->arg, (int)drawn);
    }
    return 0;
}

int sgrad_sample(const struct sgrad_train_options *options, const struct sgrad_sample_options *how) {
    struct sgrad__run *r = sgrad_xcalloc(1, sizeof *r);
    r->options = *options;
    r->draw = &(const struct sgrad_draw_token){ .temperature = (float)how->temperature, .top_k = how->top_k };
    int error = sample(r, how);
    sgrad__run_close(r);
    free(r);
    return error;
}
