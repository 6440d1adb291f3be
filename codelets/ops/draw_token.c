/* draw_token.c: draws the next token of a language model from softmax(x / temperature), restricted to the top_k largest logits x
 * (0: all of them). With temperature 0 it is the first of the largest logits. The random number is a function of the seed and of
 * the number of the token in the text, step->first, so that drawing is reproducible.
 *
 * The operation is used in the position of a loss, and its metric is the token that was drawn. */
#include "config.h"
#include "codelets/kernels.h"
#include "codelets/ops/draw_token.h"

#include <math.h>

static int infer(struct sgrad_signature *signature, void *attributes) {
    const struct sgrad_draw_token *attrs = attributes;
    const struct sgrad_shape *x = &signature->x[0].shape;
    char text[SGRAD_SHAPE_TEXT];
    if (x->rank < 2 || sgrad_shape_count(x) != x->dim[x->rank - 1])
        return sgrad_log_error(SGRAD_ESHAPE, "%s: draw_token requires the logits of one token (1,…,C), not %s", signature->layer,
                               sgrad_shape_text(x, text));
    if (!(attrs->temperature >= 0) || attrs->top_k < 0)
        return sgrad_log_error(SGRAD_EINVAL, "%s: draw_token: temperature %g and top-k %d must be 0 or more", signature->layer,
                               attrs->temperature, attrs->top_k);
    signature->stat[0] = sgrad_shape(1, 2);
    return 0;
}

/* Returns the K-th largest of COUNT logits, counting equal ones separately. */
static float threshold(enum sgrad_dtype type, const void *x, int64_t count, int64_t k) {
    float limit = INFINITY;
    for (int64_t seen = 0; seen < k;) {
        float next = -INFINITY;
        int64_t equal = 0;
        for (int64_t i = 0; i < count; i++) {
            const float at = sgrad_get(type, x, i);
            if (at >= limit || at < next) continue;
            equal = at > next ? 1 : equal + 1;
            next = at;
        }
        if (!equal) break;
        seen += equal;
        limit = next;
    }
    return limit;
}

/* x (1,…,C), stat (2): the token that was drawn, NaN if a logit is NaN; and 1, the number of rows. */
static void forward(const struct sgrad_args *args) {
    const struct sgrad_draw_token *attrs = args->attrs;
    const enum sgrad_dtype type = args->view[0].dtype;
    const int64_t classes = sgrad_shape_count(&args->view[0].shape);
    int64_t k = attrs->top_k && attrs->top_k < classes ? attrs->top_k : classes;
    if (attrs->temperature == 0) k = 1;
    const float least = k < classes ? threshold(type, args->data[0], classes, k) : -INFINITY;
    const float temperature = attrs->temperature > 0 ? attrs->temperature : 1;
    float max = -INFINITY;
    double *stat = args->data[1], total = 0;
    for (int64_t i = 0; i < classes; i++) max = fmaxf(max, sgrad_get(type, args->data[0], i));
    for (int64_t i = 0; i < classes; i++) {
        const float x = sgrad_get(type, args->data[0], i);
        total += x < least ? 0 : exp((double)(x - max) / temperature);      /* NaN if x is */
    }
    const uint64_t place = (uint64_t)args->step->first;
    const struct sgrad_random r = sgrad_philox(args->step->seed, SGRAD_STREAM_TOKEN, 0, place, 0);
    double left = attrs->temperature > 0 ? total * ((double)r.word[0] + 0.5) * 0x1p-32 : 0;
    int64_t drawn = -1;
    for (int64_t i = 0; i < classes && left >= 0; i++) {
        const float x = sgrad_get(type, args->data[0], i);
        if (x < least) continue;
        drawn = i;
        left -= exp((double)(x - max) / temperature);
        if (attrs->temperature == 0) break;
    }
    stat[0] = total == total ? (double)drawn : NAN;
    stat[1] = 1;
}

const struct sgrad_op sgrad_draw_token_op = {
    .name = "draw_token",
    .summary = "a token drawn from softmax(x / temperature), or the most probable token; replaces the loss in generation",
    .inputs = 1,
    .attrs_size = sizeof(struct sgrad_draw_token),
    .infer = infer,
    .forward = { { { .name = "draw_token forward", .kind = &sgrad_forward_kind, .cpu = forward },
                   { SGRAD_IN(X, 0), SGRAD_OUT(STAT, 0) } } },
    .metrics = { { "token", "token", "token", false } },
    .not_differentiable = true,
    .tests = {
        { "the largest of 17", { { 3, { 1, 1, 17 } } } },
        { "of 40", { { 2, { 1, 40 } } }, &(struct sgrad_draw_token){ .temperature = 1 } },
        { "of the 3 largest of 100", { { 3, { 1, 1, 100 } } }, &(struct sgrad_draw_token){ .temperature = 0.5f, .top_k = 3 } },
    },
};
