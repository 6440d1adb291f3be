/* softmax_cross_entropy.c: the loss of a classifier from logits and labels, and the number of correct predictions. A prediction
 * is correct if the label's logit is the largest. With many classes the top-5 predictions are counted, too: those in which it is
 * one of the five largest. Of equal logits the first counts as the larger one.
 *
 * With e = label_smoothing, the loss of a sample with label t is  Σ_c q_c (-log p_c),  p = softmax(x), q_c = (1-e)[c = t] + e/C;
 * its gradient is p - q. The loss of the batch is the mean, over all rows if samples have several. Logits are evaluated as
 * x - max(x), which cannot overflow. Outside training there is no smoothing: e is 0. A row without a finite probability counts as
 * incorrect.
 *
 * A sample mixed from two classes has a second label u and a weight s of the first label: [c = t] is replaced by
 * s[c = t] + (1-s)[c = u]. The label with the larger weight is the correct one.
 *
 * Class weights w: the loss of a sample is  Σ_c w_c q_c (-log p_c),  its gradient p Σ_c w_c q_c - w q. The loss of the batch is
 * divided by the sum over its samples of w_t, or by the number of samples if they are mixed: torch.nn.CrossEntropyLoss(weight).
 * This sum needs the labels of the whole batch, of all ranks; therefore the run computes it (step->weight_scale).
 *
 * Focal loss with exponent g (Lin et al., 2017, with softmax): the loss of a sample is  w_t (1-p_t)^g (-log p_t),  its gradient
 * w_t f (p - q),  f = (1-p_t)^g - g p_t (1-p_t)^(g-1) log p_t.  The divisor is the same.
 *
 * Outside training there are no class weights, and no focal loss. */
#include "config.h"
#include "codelets/ops/softmax_cross_entropy.h"
#include "codelets/ops/softmax.h"

void sgrad__softmax_cross_entropy_forward_cuda(const struct sgrad_args *a);
void sgrad__softmax_cross_entropy_backward_cuda(const struct sgrad_args *a);

enum { MANY = 20 }; /* minimum number of classes for which top-5 is counted */

static int infer(struct sgrad_signature *signature, void *attrs) {
    const struct sgrad_softmax_cross_entropy *loss = attrs;
    const struct sgrad_shape *x = &signature->x[0].shape, *labels = &signature->x[1].shape;
    if (signature->inputs == 3 || !sgrad_shape_equal(labels, &signature->x[signature->inputs > 2 ? 2 : 1].shape) ||
        !sgrad_shape_equal(labels, &signature->x[signature->inputs > 2 ? 3 : 1].shape))
        return sgrad_log_error(SGRAD_ESHAPE,
                               "%s: softmax_cross_entropy requires a second label and a weight for each label, or neither",
                               signature->layer);
    char text[2][SGRAD_SHAPE_TEXT];
    bool fits = x->rank >= 2 && labels->rank == x->rank - 1;
    for (int i = 0; i < labels->rank && fits; i++) fits = labels->dim[i] == x->dim[i];
    if (!fits)
        return sgrad_log_error(SGRAD_ESHAPE, "%s: softmax_cross_entropy requires logits (N,…,C) and labels (N,…), not %s and %s",
                               signature->layer, sgrad_shape_text(x, text[0]), sgrad_shape_text(labels, text[1]));
    if (!(loss->label_smoothing >= 0 && loss->label_smoothing <= 1))
        return sgrad_log_error(SGRAD_EINVAL, "%s: label smoothing must be from 0 to 1, not %g", signature->layer,
                               loss->label_smoothing);
    if (!(loss->focal_gamma >= 0 && isfinite(loss->focal_gamma)))
        return sgrad_log_error(SGRAD_EINVAL, "%s: the exponent of the focal loss must be 0 or more, not %g", signature->layer,
                               loss->focal_gamma);
    if (loss->focal_gamma > 0 && (loss->label_smoothing > 0 || signature->inputs > 2))
        return sgrad_log_error(SGRAD_EINVAL,
                               "%s: the focal loss requires one class per sample: no label smoothing, no augmentation that mixes",
                               signature->layer);
    signature->stat[0] = (struct sgrad_shape){ 1, { x->dim[x->rank - 1] < MANY ? 3 : 4 } };
    if (loss->class_weight)
        signature->s[0] = (struct sgrad_parameter){
            .name = "class_weight", .unsaved = true, .shape = { 1, { x->dim[x->rank - 1] } }, .values = loss->class_weight };
    return 0;
}

/* Each index of the leading dimensions is a row with its own label. */
static int64_t rows_of(const struct sgrad_view *labels) { return sgrad_shape_count(&labels->shape); }
static int64_t classes_of(const struct sgrad_view *view) { return view->shape.dim[view->shape.rank - 1]; }

/* Targets of a row: its label, or two labels and the weight of the first. */
struct targets {
    const int32_t *label, *other;
    const float *share;
};
static struct targets targets_of(const struct sgrad_args *args) {
    return (struct targets){ args->data[1], args->data[3], args->data[4] };
}
static float target_of(const struct targets *targets, int64_t row, int64_t class) {
    if (!targets->other) return class == targets->label[row] ? 1 : 0;
    const float share = targets->share[row];
    return (class == targets->label[row] ? share : 0) + (class == targets->other[row] ? 1 - share : 0);
}

/* Returns the weight of CLASS, which may be invalid. WEIGHT: of each class; NULL: all 1. */
static float weight_of(const float *weight, int64_t class, int64_t classes) {
    return weight && class >= 0 && class < classes ? weight[class] : 1;
}
static float scale_of(const struct sgrad_step *step) { return step->weight_scale > 0 ? step->weight_scale : 1; }

/* Returns the factor f of the gradient of the focal loss. */
static float focus(double log_p, double gamma) {
    const double rest = -expm1(log_p);
    if (rest <= 0) return 0;
    return (float)(pow(rest, gamma) - gamma * exp(log_p) * pow(rest, gamma - 1) * log_p);
}

/* Returns whether logit T is one of the five largest of the COUNT logits from FROM on. */
static bool in_five(enum sgrad_dtype type, const void *logits, int64_t from, int64_t count, int64_t t) {
    const float own = sgrad_get(type, logits, from + t);
    int larger = 0;
    for (int64_t c = 0; c < count; c++) {
        const float x = sgrad_get(type, logits, from + c);
        larger += x > own || (x == own && c < t);
    }
    return larger < 5;
}

/* x (N,…,C), labels (N,…), stat (3 or 4), second labels and weights of the first ones (N,…) or absent, weights of the classes (C)
 * or absent. Elements of stat: Σ loss; number of correct rows; with many classes the number of top-5 correct rows; number of
 * rows. A label that is not a class makes the loss NaN. */
static void forward(const struct sgrad_args *args) {
    const struct sgrad_softmax_cross_entropy *attrs = args->attrs;
    enum sgrad_dtype type = args->view[0].dtype;
    int64_t rows = rows_of(&args->view[1]), classes = classes_of(&args->view[0]);
    const struct targets target = targets_of(args);
    const bool many = classes >= MANY;
    double *stat = args->data[2], loss = 0, correct = 0, near = 0;
    const double smoothing = args->step->training ? attrs->label_smoothing : 0;
    const double gamma = args->step->training ? attrs->focal_gamma : 0;
    const float *weight = args->step->training ? args->data[5] : NULL;
    for (int64_t s = 0; s < rows; s++) {
        const int64_t from = s * classes, t = target.label[s], u = target.other ? target.other[s] : t;
        const double share = target.other ? target.share[s] : 1;
        const int64_t major = share >= 0.5 ? t : u;
        struct sgrad__normalizer r = sgrad__normalize(type, args->data[0], from, classes);
        /* Σ w q, w q x, over the labels, and means of w, w x over all classes */
        double log_z = r.max + r.log_sum, mass = weight_of(weight, t, classes), mean = 0, mean_weight = smoothing > 0 ? 0 : 1;
        for (int64_t c = 0; c < classes && smoothing > 0; c++) {
            mean += weight_of(weight, c, classes) * sgrad_get(type, args->data[0], from + c) / (double)classes;
            mean_weight += weight_of(weight, c, classes) / (double)classes;
        }
        const double x = t >= 0 && t < classes ? sgrad_get(type, args->data[0], from + t) : NAN;
        double own = mass * x;
        if (u != t) {
            const double second = weight_of(weight, u, classes);
            own = share * own +
                  (1 - share) * second * (u >= 0 && u < classes ? sgrad_get(type, args->data[0], from + u) : NAN);
            mass = share * mass + (1 - share) * second;
        }
        double lost = ((1 - smoothing) * mass + smoothing * mean_weight) * log_z - (1 - smoothing) * own - smoothing * mean;
        if (gamma > 0) lost *= pow(-expm1(fmin(0, x - log_z)), gamma);
        loss += lost;
        correct += sgrad__is_sure(&r) && r.argmax == major;
        near += many && sgrad__is_sure(&r) && major >= 0 && major < classes && in_five(type, args->data[0], from, classes, major);
    }
    stat[0] = weight ? loss * scale_of(args->step) : loss;
    stat[1] = correct;
    if (many) stat[2] = near;
    stat[2 + many] = (double)rows;
}

/* x (N,…,C), labels (N,…), dx (N,…,C), second labels and weights of the first ones (N,…) or absent, weights of the classes (C) or
 * absent */
static void backward(const struct sgrad_args *args) {
    const struct sgrad_softmax_cross_entropy *attrs = args->attrs;
    enum sgrad_dtype type = args->view[0].dtype;
    int64_t rows = rows_of(&args->view[1]), classes = classes_of(&args->view[0]), per_sample = rows / args->view[1].shape.dim[0];
    const struct targets target = targets_of(args);
    float smooth = attrs->label_smoothing / (float)classes, mean = 1.0f / (float)(args->batch->averaged * per_sample);
    const float *weight = args->data[5];
    if (weight) mean *= scale_of(args->step);
    for (int64_t s = 0; s < rows; s++) {
        int64_t from = s * classes;
        struct sgrad__normalizer r = sgrad__normalize(type, args->data[0], from, classes);
        const int64_t t = target.label[s];
        float scale = mean, mass = weight ? 0 : 1;      /* mass: Σ w q */
        for (int64_t c = 0; c < classes && weight; c++)
            mass += weight[c] * (smooth + target_of(&target, s, c) * (1 - attrs->label_smoothing));
        if (attrs->focal_gamma > 0 && t >= 0 && t < classes)
            scale *= focus(sgrad_get(type, args->data[0], from + t) - r.max - r.log_sum, attrs->focal_gamma);
        for (int64_t c = 0; c < classes; c++) {
            float p = expf(sgrad_get(type, args->data[0], from + c) - r.max - (float)r.log_sum);
            float q = smooth + target_of(&target, s, c) * (1 - attrs->label_smoothing);
            float old = sgrad_adds(args, 2) ? sgrad_get(type, args->data[2], from + c) : 0;
            sgrad_put(type, args->data[2], from + c, old + (p * mass - weight_of(weight, c, classes) * q) * scale);
        }
    }
}

static void describe(const void *attrs, char *text, size_t size) {
    const struct sgrad_softmax_cross_entropy *loss = attrs;
    char smoothing[48] = "", gamma[48] = "";
    if (loss->label_smoothing > 0) snprintf(smoothing, sizeof smoothing, "label smoothing %g", loss->label_smoothing);
    if (loss->focal_gamma > 0) snprintf(gamma, sizeof gamma, "focal loss, exponent %g", loss->focal_gamma);
    const char *both = (*smoothing || *gamma) && loss->class_weight ? ", " : "";
    snprintf(text, size, "%s%s%s%s", smoothing, gamma, both, loss->class_weight ? "class weights" : "");
}

static void fill(const struct sgrad_test *test, int input, void *data) {
    int32_t *label = data;
    float *share = data;
    if (input == 0)
        sgrad_fill_nonzero(test, 0, data);
    else if (input == 3)
        for (int64_t s = 0; s < sgrad_shape_count(&test->x[3]); s++) share[s] = 1 - 0.3f * (float)(s % 3);
    else
        for (int64_t s = 0; s < sgrad_shape_count(&test->x[1]); s++)
            label[s] = (int32_t)((5 + 2 * (input - 1)) * s % test->x[0].dim[test->x[0].rank - 1]);
}

/* of the test shapes; the tests set other values */
static const float test_weight[] = { 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3 };

const struct sgrad_op sgrad_softmax_cross_entropy_op = {
    .name = "softmax_cross_entropy",
    .summary = "mean over the batch of -log softmax(x) at the labels, with label smoothing and class weights, or the focal loss; "
               "counts correct predictions",
    .source = "Szegedy et al., Rethinking the Inception architecture, 2015, section 7 (label smoothing); Lin et al., Focal loss "
              "for dense object detection, 2017",
    .inputs = 2,
    .optional_inputs = 2,
    .attrs_size = sizeof(struct sgrad_softmax_cross_entropy),
    .no_gradient = 1u << 1 | 1u << 2 | 1u << 3,
    .input_dtype = { [1] = SGRAD_I32, SGRAD_I32, SGRAD_F32 },
    .infer = infer,
    .describe = describe,
    .forward = { { { .name = "softmax_cross_entropy forward", .kind = &sgrad_forward_kind,
                     .cpu = forward, .cuda = SGRAD_ON_CUDA(sgrad__softmax_cross_entropy_forward_cuda) },
                   .use = { SGRAD_IN(X, 0), SGRAD_IN(X, 1), SGRAD_OUT(STAT, 0), SGRAD_IN(X, 2), SGRAD_IN(X, 3),
                            SGRAD_IN(S, 0) } } },
    .backward = { { { .name = "softmax_cross_entropy backward", .kind = &sgrad_backward_kind,
                      .cpu = backward, .cuda = SGRAD_ON_CUDA(sgrad__softmax_cross_entropy_backward_cuda) },
                    .use = { SGRAD_IN(X, 0), SGRAD_IN(X, 1), SGRAD_OUT(DX, 0), SGRAD_IN(X, 2), SGRAD_IN(X, 3),
                             SGRAD_IN(S, 0) } } },
    .metrics = { { "loss", "loss", "loss", false }, { "top1", "top-1", "accuracy", true },
                 { "top5", "top-5", "top-5 accuracy", true } },
    .fill = fill,
    .tests = {
        { "one sample of 3", .x = { { 2, { 1, 3 } }, { 1, { 1 } } } },
        { "3 samples of 4 rows of 5", .x = { { 3, { 3, 4, 5 } }, { 2, { 3, 4 } } } },
        { "6 samples of 20", .x = { { 2, { 6, 20 } }, { 1, { 6 } } } },
        { "7 samples of 17", .x = { { 2, { 7, 17 } }, { 1, { 7 } } } },
        { "label smoothing, 5 of 1003", .x = { { 2, { 5, 1003 } }, { 1, { 5 } } },
          &(struct sgrad_softmax_cross_entropy){ .label_smoothing = 0.1f } },
        { "7 samples of two classes of 21", .x = { { 2, { 7, 21 } }, { 1, { 7 } }, { 1, { 7 } }, { 1, { 7 } } },
          &(struct sgrad_softmax_cross_entropy){ .label_smoothing = 0.1f } },
        { "class weights, 6 samples of 21", .x = { { 2, { 6, 21 } }, { 1, { 6 } } },
          &(struct sgrad_softmax_cross_entropy){ .class_weight = test_weight } },
        { "class weights, label smoothing, 7 samples of two classes of 21",
          .x = { { 2, { 7, 21 } }, { 1, { 7 } }, { 1, { 7 } }, { 1, { 7 } } },
          &(struct sgrad_softmax_cross_entropy){ .label_smoothing = 0.1f, .class_weight = test_weight } },
        { "focal loss, 6 samples of 5", .x = { { 2, { 6, 5 } }, { 1, { 6 } } },
          &(struct sgrad_softmax_cross_entropy){ .focal_gamma = 2 } },
        { "focal loss, class weights, 6 samples of 21", .x = { { 2, { 6, 21 } }, { 1, { 6 } } },
          &(struct sgrad_softmax_cross_entropy){ .focal_gamma = 0.5f, .class_weight = test_weight } },
    },
};
