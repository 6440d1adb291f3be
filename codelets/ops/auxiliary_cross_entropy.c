/* auxiliary_cross_entropy.c: the loss of a network with several classifiers (heads), whose logits are concatenated: the loss of
 * the first head, plus WEIGHT times the losses of the others. The other heads provide gradients for layers far from the output.
 * The accuracy is that of the first head. Outside training the loss, too, is only that of the first head.
 *
 *     x  | first  | second | third  |  of a sample        loss  -log p_first(t) - w log p_second(t) - w log p_third(t)
 *
 * Limits: CPUs only; there are few logits. */
#include "config.h"
#include "codelets/ops/auxiliary_cross_entropy.h"
#include "codelets/ops/softmax.h"

static int infer(struct sgrad_signature *signature, void *attrs) {
    struct sgrad_auxiliary_cross_entropy *loss = attrs;
    const struct sgrad_shape *x = &signature->x[0].shape, *labels = &signature->x[1].shape;
    char text[2][SGRAD_SHAPE_TEXT];
    if (loss->heads < 1) loss->heads = 1;
    if (loss->weight == 0) loss->weight = 0.3f;
    if (x->rank != 2 || labels->rank != 1 || labels->dim[0] != x->dim[0] || x->dim[1] % loss->heads)
        return sgrad_log_error(SGRAD_ESHAPE, "%s: auxiliary_cross_entropy requires logits (N,%d·C) and labels (N), not %s and %s",
                               signature->layer, loss->heads, sgrad_shape_text(x, text[0]), sgrad_shape_text(labels, text[1]));
    signature->stat[0] = (struct sgrad_shape){ 1, { 3 } };
    return 0;
}

/* x (N,heads·C), labels (N), stat (3): Σ loss of the first HEADS heads; number of rows in which the first head's largest logit is
 * the label's; number of rows. A label that is not a class makes the loss NaN. */
static void forward_heads(const struct sgrad_args *args, int heads) {
    const struct sgrad_auxiliary_cross_entropy *attrs = args->attrs;
    const enum sgrad_dtype type = args->view[0].dtype;
    const int64_t rows = args->view[0].shape.dim[0], classes = args->view[0].shape.dim[1] / attrs->heads;
    const int32_t *label = args->data[1];
    double *stat = args->data[2], loss = 0, correct = 0;
    for (int64_t s = 0; s < rows; s++)
        for (int h = 0; h < heads; h++) {
            const int64_t from = (s * attrs->heads + h) * classes, t = label[s];
            const struct sgrad__normalizer r = sgrad__normalize(type, args->data[0], from, classes);
            const double own = t >= 0 && t < classes ? sgrad_get(type, args->data[0], from + t) : NAN;
            loss += (h ? attrs->weight : 1) * (r.max + r.log_sum - own);
            correct += h == 0 && sgrad__is_sure(&r) && r.argmax == t;
        }
    stat[0] = loss, stat[1] = correct, stat[2] = (double)rows;
}

static void forward(const struct sgrad_args *args) {
    forward_heads(args, ((const struct sgrad_auxiliary_cross_entropy *)args->attrs)->heads);
}

static void inference(const struct sgrad_args *args) { forward_heads(args, 1); }

/* x (N,heads·C), labels (N), dx (N,heads·C) */
static void backward(const struct sgrad_args *args) {
    const struct sgrad_auxiliary_cross_entropy *attrs = args->attrs;
    const enum sgrad_dtype type = args->view[0].dtype;
    const int64_t rows = args->view[0].shape.dim[0], classes = args->view[0].shape.dim[1] / attrs->heads;
    const int32_t *label = args->data[1];
    for (int64_t s = 0; s < rows; s++)
        for (int h = 0; h < attrs->heads; h++) {
            const int64_t from = (s * attrs->heads + h) * classes;
            const struct sgrad__normalizer r = sgrad__normalize(type, args->data[0], from, classes);
            const float scale = (h ? attrs->weight : 1) / (float)args->batch->averaged;
            for (int64_t c = 0; c < classes; c++) {
                const float p = expf(sgrad_get(type, args->data[0], from + c) - r.max - (float)r.log_sum);
                const float old = sgrad_adds(args, 2) ? sgrad_get(type, args->data[2], from + c) : 0;
                sgrad_put(type, args->data[2], from + c, old + (p - (c == label[s])) * scale);
            }
        }
}

static void describe(const void *attrs, char *text, size_t size) {
    const struct sgrad_auxiliary_cross_entropy *loss = attrs;
    snprintf(text, size, "%d heads, weight %g", loss->heads, loss->weight);
}

static void fill(const struct sgrad_test *test, int input, void *data) {
    int32_t *label = data;
    if (input == 0) {
        sgrad_fill_nonzero(test, 0, data);
        return;
    }
    const struct sgrad_auxiliary_cross_entropy *attrs = test->attrs;
    for (int64_t s = 0; s < test->x[1].dim[0]; s++) label[s] = (int32_t)(5 * s % (test->x[0].dim[1] / attrs->heads));
}

const struct sgrad_op sgrad_auxiliary_cross_entropy_op = {
    .name = "auxiliary_cross_entropy",
    .summary = "softmax cross entropy of several classifiers: that of the first, plus a fraction of that of the others",
    .source = "Szegedy et al., Going deeper with convolutions, 2014, section 5",
    .inputs = 2,
    .attrs_size = sizeof(struct sgrad_auxiliary_cross_entropy),
    .no_gradient = 1u << 1,
    .input_dtype = { [1] = SGRAD_I32 },
    .infer = infer,
    .describe = describe,
    .forward = { { { .name = "auxiliary_cross_entropy forward", .kind = &sgrad_forward_kind, .cpu = forward },
                   .use = { SGRAD_IN(X, 0), SGRAD_IN(X, 1), SGRAD_OUT(STAT, 0) } } },
    .backward = { { { .name = "auxiliary_cross_entropy backward", .kind = &sgrad_backward_kind, .cpu = backward },
                    .use = { SGRAD_IN(X, 0), SGRAD_IN(X, 1), SGRAD_OUT(DX, 0) } } },
    .inference = { { { .name = "auxiliary_cross_entropy inference", .kind = &sgrad_forward_kind, .cpu = inference },
                     .use = { SGRAD_IN(X, 0), SGRAD_IN(X, 1), SGRAD_OUT(STAT, 0) } } },
    .metrics = { { "loss", "loss", "loss", false }, { "top1", "top-1", "accuracy", true } },
    .fill = fill,
    .tests = {
        { "3 samples of 2 heads of 5", .x = { { 2, { 3, 10 } }, { 1, { 3 } } },
          &(struct sgrad_auxiliary_cross_entropy){ .heads = 2, .weight = 0.3f } },
        { "7 samples of 3 heads of 4", .x = { { 2, { 7, 12 } }, { 1, { 7 } } },
          &(struct sgrad_auxiliary_cross_entropy){ .heads = 3, .weight = 0.5f } },
    },
};
