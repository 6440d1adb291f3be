/* sample.c: what saved weights of a language model say, token by token. A program of one row, whose last layer draws the next
 * token, is turned once for each token of the text so far, and once for each that follows:
 *
 *     text so far     T o   b e │            step     1   2   3   4   5   6   7
 *     row             0 1 2 3 4 │ 5 6        draws    -   -   -   -   _   n   o       "-": what comes next is known
 *
 * Attention keeps keys and values of all rows before, so a step costs as much as its row. Where the network's context is full,
 * its later half is read again as a new beginning. */
#include "datasets/datasets.h"
#include "graphs/runs/run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The text as a data set, of which sample i is token i. There is no target, but data sets have one. */
static int open_text(struct sgrad__run *r, const struct sgrad_sample_options *o, int32_t **text) {
    static const struct sgrad_reader reader = { .name = "text" };
    const int64_t count = (int64_t)o->prompt_tokens + o->tokens;
    const struct sgrad_view one = { SGRAD_I32, { 1, { 1 } } };
    *text = sgrad_alloc((size_t)count + 1, sizeof **text);
    int32_t *same = sgrad_alloc((size_t)count + 1, sizeof *same);
    memcpy(*text, o->prompt, (size_t)o->prompt_tokens * sizeof **text);
    r->test = sgrad_alloc(1, sizeof *r->test);
    *r->test = (struct sgrad_dataset){ .reader = &reader, .count = count + 1, .classes = 1,
                                       .field = { { "tokens", one.dtype, one.shape, *text },
                                                  { "next", one.dtype, one.shape, same } } };
    return 0;
}

static int open_program(struct sgrad__run *r) {
    struct sgrad__program_options p = sgrad__run_program_options(r, false, 1, 1);
    p.window = 1;
    SGRAD_TRY(sgrad__program_build(r->graph, &p, &r->program));
    SGRAD_TRY(sgrad__program_allocate(r->program));
    r->runner = sgrad__runner_create(r->program, NULL);
    return 0;
}

/* Token AT of the text is row ROW; what is drawn after it. */
static int draw(struct sgrad__run *r, int64_t at, int64_t row, double *drawn) {
    const struct sgrad_step step = { .seed = r->options.seed, .number = (uint32_t)row + 1 };
    const struct sgrad__slot *slot;
    SGRAD_TRY(sgrad__runner_submit(r->runner, &step, &at));
    SGRAD_TRY(sgrad__runner_wait(r->runner, &slot));
    *drawn = *sgrad__slot_doubles(slot, r->program->statistics);
    return 0;
}

/* Language models have a vocabulary. NULL: a model without a name, of which nobody knows. */
static int check_model(const char *text) {
    const struct sgrad_model *model = text ? sgrad_model_find(text) : NULL;
    bool speaks = !text;
    if (text && !model) return SGRAD_ENAME;
    for (const struct sgrad_model_option *option = model ? model->options : NULL; option && option->name; option++)
        speaks |= !strcmp(option->name, "vocabulary");
    if (speaks) return 0;
    return sgrad_fail(SGRAD_EINVAL, "model %s is no language model: sample takes one that has a vocabulary, as gpt", text);
}

static int sample(struct sgrad__run *r, const struct sgrad_sample_options *o) {
    int32_t *text;
    SGRAD_TRY(check_model(r->options.model));
    SGRAD_TRY(open_text(r, o, &text));
    SGRAD_TRY(sgrad__run_open_sampling(r));
    const int64_t vocabulary = (int64_t)sgrad_graph_option(r->graph, "vocabulary");
    const int64_t context = (int64_t)sgrad_graph_option(r->graph, "context"), half = context > 1 ? context / 2 : 1;
    if (o->words > vocabulary)
        return sgrad_fail(SGRAD_EINVAL, "the tokenizer has %d tokens, and the network knows %lld: the tokenizer is another "
                          "network's", o->words, (long long)vocabulary);
    for (int64_t i = 0; i < o->prompt_tokens; i++)
        if (text[i] < 0 || text[i] >= vocabulary)
            return sgrad_fail(SGRAD_EINVAL, "the prompt's token %d: the network knows 0 to %lld", text[i],
                              (long long)vocabulary - 1);
    SGRAD_TRY(open_program(r));
    int64_t known = o->prompt_tokens, first = known > context ? known - context : 0;
    for (int64_t at = first; known < o->prompt_tokens + o->tokens; at++) {
        double drawn;
        if (at - first == context) at = first = known - half;
        SGRAD_TRY(draw(r, at, at - first, &drawn));
        if (at + 1 < known) continue;
        if (isnan(drawn)) return sgrad_fail(SGRAD_ENAN, "%s: the network's logits are no numbers", r->options.init);
        text[known++] = (int32_t)drawn;
        o->take(o->arg, (int)drawn);
    }
    return 0;
}

int sgrad_sample(const struct sgrad_train_options *options, const struct sgrad_sample_options *how) {
    struct sgrad__run *r = sgrad_alloc(1, sizeof *r);
    r->options = *options;
    r->draw = &(const struct sgrad_draw_token){ .temperature = (float)how->temperature, .top_k = how->top_k };
    int error = sample(r, how);
    sgrad__run_close(r);
    free(r);
    return error;
}
