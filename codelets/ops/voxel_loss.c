/* voxel_loss.c: the loss of a network that classifies every voxel (or pixel), and metrics of the resulting segmentation.
 *
 * Let p = softmax(x), and q the one-hot labels: q is 1 for the class of the voxel, else 0. The loss of a sample is the mean over
 * its voxels of -weight[label]·log p[label]. This is PyTorch's weighted cross entropy, except that PyTorch divides by the sum of
 * the weights. DICE times the Dice loss is added:
 *
 *     1 - mean over classes of (2 Σ p q + 1) / (Σ p + Σ q + 1)        sums over the voxels of the sample
 *
 * The loss of a batch is the mean over its samples. Label -1 marks unlabelled voxels; the means and sums of a sample are over its
 * labelled voxels. A sample without labelled voxels has loss 0; outside training it is excluded from all metrics.
 *
 * Outside training the loss is the plain cross entropy: without class weights, without the Dice loss.
 *
 * Metrics in training and outside: the accuracy, which is the fraction of a sample's labelled voxels that are classified
 * correctly (1 in training if there are none). Metrics outside training only, computed per sample and averaged over samples:
 *
 *     IoU     intersection over union of the voxels predicted as a class and the voxels of that class; the mean over the
 *             classes that occur
 *     Rand    Rand F-score of the segments
 *     VOI     variation of information of the segments, H(S|T) + H(T|S), in bits
 *
 * A segment is a connected component of voxels of one class other than 0; voxels are connected through faces. Voxels whose
 * true class is 0 do not count. A voxel that is predicted as class 0, but is not, is a segment by itself.
 *
 * Sources: F. Milletari et al., V-Net, 2016 (Dice); I. Arganda-Carreras et al., Crowdsourcing the creation of image segmentation
 * algorithms for connectomics, 2015 (Rand F-score, information); M. Meila, Comparing clusterings, 2007 (variation of
 * information).
 *
 * Limits: CPUs only. */
#include "config.h"
#include "codelets/kernels.h"
#include "codelets/ops/voxel_loss.h"

#include <math.h>
#include <stdlib.h>

static int infer(struct sgrad_signature *signature, void *attrs) {
    struct sgrad_voxel_loss *loss = attrs;
    const struct sgrad_shape *x = &signature->x[0].shape, *labels = &signature->x[1].shape;
    char text[2][SGRAD_SHAPE_TEXT];
    bool fits = x->rank >= 4 && labels->rank == x->rank - 1 && x->dim[x->rank - 1] <= SGRAD_MAX_WEIGHTED;
    for (int i = 0; i < labels->rank && fits; i++) fits = labels->dim[i] == x->dim[i];
    if (!fits)
        return sgrad_log_error(
            SGRAD_ESHAPE, "%s: voxel_loss requires logits (N,…,H,W,C) of at most %d classes and labels (N,…,H,W), not %s and %s",
            signature->layer, SGRAD_MAX_WEIGHTED, sgrad_shape_text(x, text[0]), sgrad_shape_text(labels, text[1]));
    for (int c = 0; c < SGRAD_MAX_WEIGHTED; c++) {
        if (loss->weight[c] == 0) loss->weight[c] = 1;
        if (!(loss->weight[c] > 0 && isfinite(loss->weight[c])))
            return sgrad_log_error(SGRAD_EINVAL, "%s: the weight of a class must be above 0, not %g", signature->layer,
                                   loss->weight[c]);
    }
    if (!(loss->dice >= 0 && isfinite(loss->dice)))
        return sgrad_log_error(SGRAD_EINVAL, "%s: the weight of the Dice loss must be 0 or more, not %g", signature->layer,
                               loss->dice);
    signature->stat[0] = sgrad_shape(1, 6);
    return 0;
}

static int64_t voxels_of(const struct sgrad_args *args) {
    return sgrad_shape_count(&args->view[1].shape) / args->view[1].shape.dim[0];
}
static int classes_of(const struct sgrad_args *args) { return (int)args->view[0].shape.dim[args->view[0].shape.rank - 1]; }

/* ---- the loss ---------------------------------------------------------------------------------------------------- */

/* Computes p of the voxel whose logits begin at FROM. Returns -log p[LABEL]; NaN if LABEL is not a class. */
SGRAD_ALWAYS_INLINE float softmax(enum sgrad_dtype type, const void *logits, int64_t from, int classes, int32_t label, float *p) {
    float x[SGRAD_MAX_WEIGHTED], most = -INFINITY, sum = 0;
    for (int c = 0; c < classes; c++) x[c] = sgrad_get(type, logits, from + c);
    for (int c = 0; c < classes; c++) most = x[c] > most || x[c] != x[c] ? x[c] : most;
    for (int c = 0; c < classes; c++) sum += p[c] = expf(x[c] - most);
    for (int c = 0; c < classes; c++) p[c] /= sum;
    return label >= 0 && label < classes ? logf(sum) + most - x[label] : NAN;
}

/* Sums of the Dice loss over a sample, per class: both = Σ p q, all = Σ p + Σ q. */
struct overlap {
    double both[SGRAD_MAX_WEIGHTED], all[SGRAD_MAX_WEIGHTED];
};
static double dice_of(const struct overlap *overlap, int classes) {
    double sum = 0;
    for (int c = 0; c < classes; c++) sum += (2 * overlap->both[c] + 1) / (overlap->all[c] + 1);
    return 1 - sum / classes;
}

/* Returns the sum of the cross entropy over the labelled voxels of sample S; in training it is weighted. Sets OVERLAP, the sums
 * of the Dice loss, and COUNTED, the number of labelled voxels. */
static double run_over(const struct sgrad_args *args, int64_t s, struct overlap *overlap, double *counted) {
    const struct sgrad_voxel_loss *attrs = args->attrs;
    const int64_t voxels = voxels_of(args);
    const int32_t *label = (const int32_t *)args->data[1] + s * voxels;
    const int classes = classes_of(args);
    double loss = 0;
    memset(overlap, 0, sizeof *overlap);
    *counted = 0;
    for (int64_t i = 0; i < voxels; i++) {
        float p[SGRAD_MAX_WEIGHTED];
        if (label[i] == -1) continue;
        const float own = softmax(args->view[0].dtype, args->data[0], (s * voxels + i) * classes, classes, label[i], p);
        ++*counted;
        loss += own == own && args->step->training ? attrs->weight[label[i]] * own : own;
        for (int c = 0; c < classes; c++) {
            overlap->both[c] += c == label[i] ? p[c] : 0;
            overlap->all[c] += p[c] + (c == label[i]);
        }
    }
    return loss;
}

/* ---- metrics of the segmentation --------------------------------------------------------------------------------- */

/* Arrays of one sample, in the workspace. The first two have the true and the predicted class of every voxel, later its true
 * and its predicted segment. PAIR has (true segment, predicted segment) of every voxel that counts. SIZE has the number of
 * voxels of every predicted segment; before that it is the scratch buffer of connect(). */
struct segments {
    int64_t voxels, height, width;
    int32_t *truth, *predicted, *size;
    uint64_t *pair;
};

static struct segments segments_in(const struct sgrad_args *args) {
    const struct sgrad_shape *labels = &args->view[1].shape;
    const int64_t voxels = voxels_of(args);
    char *room = (char *)sgrad_aligned((size_t)args->workspace);
    const size_t part = sgrad_aligned((size_t)voxels * sizeof(int32_t));
    return (struct segments){ voxels, labels->dim[labels->rank - 2], labels->dim[labels->rank - 1], (int32_t *)room,
                              (int32_t *)(room + part), (int32_t *)(room + 2 * part), (uint64_t *)(room + 3 * part) };
}
static size_t workspace(const struct sgrad_args *args) {
    return SGRAD_LINE + 5 * sgrad_aligned((size_t)voxels_of(args) * sizeof(int32_t));
}

static void take_classes(const struct sgrad_args *args, int64_t s, struct segments *segments) {
    const int classes = classes_of(args);
    memcpy(segments->truth, (const int32_t *)args->data[1] + s * segments->voxels,
           (size_t)segments->voxels * sizeof *segments->truth);
    for (int64_t i = 0; i < segments->voxels; i++) {
        const int64_t from = (s * segments->voxels + i) * classes;
        int best = 0;
        for (int c = 1; c < classes; c++)
            if (sgrad_get(args->view[0].dtype, args->data[0], from + c) >
                sgrad_get(args->view[0].dtype, args->data[0], from + best))
                best = c;
        segments->predicted[i] = best;
        if (segments->truth[i] == -1) segments->predicted[i] = -1;
    }
}

static double count_right(const struct segments *segments) {
    int64_t right = 0;
    for (int64_t i = 0; i < segments->voxels; i++)
        right += segments->truth[i] != -1 && segments->truth[i] == segments->predicted[i];
    return (double)right;
}

/* Returns the mean of the intersection over union of the classes that occur; 1 if none does. */
static double take_iou(const struct segments *segments, int classes) {
    double both[SGRAD_MAX_WEIGHTED] = { 0 }, any[SGRAD_MAX_WEIGHTED] = { 0 }, sum = 0;
    int there = 0;
    for (int64_t i = 0; i < segments->voxels; i++) {
        const int32_t t = segments->truth[i], s = segments->predicted[i];
        if (t == -1) continue;
        if (t == s) both[t]++, any[t]++;
        else any[s]++, any[t >= 0 && t < classes ? t : s]++;
    }
    for (int c = 0; c < classes; c++)
        if (any[c] > 0) sum += both[c] / any[c], there++;
    return there ? sum / there : 1;
}

static int32_t root_of(int32_t *parent, int32_t i) {
    while (parent[i] != i) i = parent[i] = parent[parent[i]];
    return i;
}
static void join(int32_t *parent, int32_t i, int32_t j) {
    const int32_t a = root_of(parent, i), b = root_of(parent, j);
    if (a > b) parent[a] = b;
    else parent[b] = a;
}

/* Replaces the class of every voxel by the number of its segment, which is 1 + the index of the segment's first voxel. Class 0
 * remains 0. PARENT is a scratch buffer with one element per voxel. */
static void connect(const struct segments *segments, int32_t *class, int32_t *parent) {
    const int64_t area = segments->height * segments->width;
    for (int64_t i = 0; i < segments->voxels; i++) {
        const int32_t c = class[i];
        parent[i] = (int32_t)i;
        if (c == 0) continue;
        if (i % segments->width && class[i - 1] == c) join(parent, (int32_t)i, (int32_t)(i - 1));
        if (i % area >= segments->width && class[i - segments->width] == c)
            join(parent, (int32_t)i, (int32_t)(i - segments->width));
        if (i >= area && class[i - area] == c) join(parent, (int32_t)i, (int32_t)(i - area));
    }
    for (int64_t i = 0; i < segments->voxels; i++) class[i] = class[i] ? root_of(parent, (int32_t)i) + 1 : 0;
}

static int by_number(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Computes the Rand F-score and the variation of information of the segments; 1 and 0 if no voxel counts. Overwrites SEGMENTS. */
static void compare_segments(struct segments *segments, double *rand, double *voi) {
    for (int64_t i = 0; i < segments->voxels; i++)
        if (segments->truth[i] == -1) segments->truth[i] = segments->predicted[i] = 0;
    connect(segments, segments->truth, segments->size);
    connect(segments, segments->predicted, segments->size);
    memset(segments->size, 0, (size_t)segments->voxels * sizeof *segments->size);
    int64_t count = 0;
    for (int64_t i = 0; i < segments->voxels; i++)
        if (segments->truth[i]) {
            segments->pair[count++] = (uint64_t)(uint32_t)segments->truth[i] << 32 | (uint32_t)segments->predicted[i];
            if (segments->predicted[i]) segments->size[segments->predicted[i] - 1]++;
        }
    qsort(segments->pair, (size_t)count, sizeof *segments->pair, by_number);
    double pairs = 0, truths = 0, saids = 0, information = 0;
    for (int64_t i = 0, end; i < count; i = end) {
        const uint64_t t = segments->pair[i] >> 32;
        for (end = i; end < count && segments->pair[end] >> 32 == t;) end++;
        const double n = (double)(end - i);
        truths += n * n;
        for (int64_t j = i, next; j < end; j = next) {
            for (next = j; next < end && segments->pair[next] == segments->pair[j];) next++;
            const double both = (double)(next - j), predicted = (uint32_t)segments->pair[j];
            if (predicted > 0) {
                const double s = segments->size[(int32_t)predicted - 1];
                pairs += both * both;
                information -= both * (log2(both / n) + log2(both / s));
            } else {
                pairs += both;
                saids += both;
                information -= both * log2(1 / n);
            }
        }
    }
    for (int64_t i = 0; i < segments->voxels; i++) saids += (double)segments->size[i] * segments->size[i];
    *rand = count ? 2 * pairs / (truths + saids) : 1;
    *voi = count ? information / (double)count : 0;
}

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

/* x (N,…,C), labels (N,…), stat (6). Elements 0 to 4 of stat are sums over samples of the number of voxels, labelled or not,
 * times: the loss; the accuracy; outside training also intersection over union, Rand F-score and variation of information.
 * Element 5 is the number of voxels. A label that is not a class makes the loss NaN. */
static void forward(const struct sgrad_args *args) {
    const struct sgrad_voxel_loss *attrs = args->attrs;
    struct segments g = segments_in(args);
    double *stat = args->data[2];
    memset(stat, 0, 6 * sizeof *stat);
    for (int64_t s = 0; s < args->view[1].shape.dim[0]; s++) {
        struct overlap o;
        double known, rand, voi;
        const double loss = run_over(args, s, &o, &known), voxels = (double)g.voxels;
        if (!known && !args->step->training) continue;
        stat[0] += known ? loss / known * voxels : 0;
        stat[0] += attrs->dice > 0 && args->step->training ? attrs->dice * dice_of(&o, classes_of(args)) * voxels : 0;
        stat[5] += voxels;
        take_classes(args, s, &g);
        stat[1] += voxels * (known ? count_right(&g) / known : 1);
        if (args->step->training) continue;
        stat[2] += voxels * take_iou(&g, classes_of(args));
        compare_segments(&g, &rand, &voi);
        stat[3] += voxels * rand;
        stat[4] += voxels * voi;
    }
}

/* x (N,…,C), labels (N,…), dx (N,…,C). The gradient of the cross entropy is weight·(p - q). The gradient of the Dice loss is
 * p·(g - Σ p g), where g is its gradient with respect to p. */
static void backward(const struct sgrad_args *args) {
    const struct sgrad_voxel_loss *attrs = args->attrs;
    const enum sgrad_dtype type = args->view[0].dtype;
    const int64_t voxels = voxels_of(args);
    const int32_t *labels = args->data[1];
    const int classes = classes_of(args);
    const float samples = (float)args->batch->averaged, share = attrs->dice / samples;
    for (int64_t s = 0; s < args->view[1].shape.dim[0]; s++) {
        struct overlap o;
        double counted = 0;
        if (share > 0) run_over(args, s, &o, &counted);
        else
            for (int64_t i = s * voxels; i < (s + 1) * voxels; i++) counted += labels[i] != -1;
        const float scale = 1 / (samples * (float)counted);     /* unused if COUNTED is 0 */
        float own[SGRAD_MAX_WEIGHTED] = { 0 },
              other[SGRAD_MAX_WEIGHTED] = { 0 }; /* gradient of Dice with respect to p, for label and others */
        for (int c = 0; c < classes && share > 0; c++) {
            const double all = o.all[c] + 1;
            other[c] = (float)(share / classes * (2 * o.both[c] + 1) / (all * all));
            own[c] = other[c] - (float)(share / classes * 2 / all);
        }
        for (int64_t i = s * voxels; i < (s + 1) * voxels; i++) {
            const int32_t label = labels[i];
            float p[SGRAD_MAX_WEIGHTED], mean = 0;
            if (label == -1) {
                for (int c = 0; c < classes; c++)
                    if (!sgrad_adds(args, 2)) sgrad_put(type, args->data[2], i * classes + c, 0);
                continue;
            }
            const float loss = softmax(type, args->data[0], i * classes, classes, label, p);
            const float weight = loss == loss ? attrs->weight[label] * scale : NAN;
            for (int c = 0; c < classes; c++) mean += p[c] * (c == label ? own[c] : other[c]);
            for (int c = 0; c < classes; c++) {
                const float old = sgrad_adds(args, 2) ? sgrad_get(type, args->data[2], i * classes + c) : 0;
                const float dice = p[c] * ((c == label ? own[c] : other[c]) - mean);
                sgrad_put(type, args->data[2], i * classes + c, old + weight * (p[c] - (c == label)) + dice);
            }
        }
    }
}

static double flops(const struct sgrad_args *args) { return 20.0 * (double)sgrad_shape_count(&args->view[0].shape); }

static void describe(const void *attributes, char *text, size_t size) {
    const struct sgrad_voxel_loss *loss = attributes;
    if (loss->dice > 0) snprintf(text, size, "Dice %g", loss->dice);
    else snprintf(text, size, "%s", "");
}

static void fill(const struct sgrad_test *test, int input, void *data) {
    int32_t *label = data;
    if (input == 0) sgrad_fill_nonzero(test, 0, data);
    else
        for (int64_t i = 0; i < sgrad_shape_count(&test->x[1]); i++) {
            const bool unknown = strstr(test->name, "unknown") && (i % 3 == 1 || (i > 3 && i < 12) || i >= 40);
            label[i] = unknown ? -1 : (int32_t)((5 * i + i / 7) % test->x[0].dim[test->x[0].rank - 1]);
        }
}

const struct sgrad_op sgrad_voxel_loss_op = {
    .name = "voxel_loss",
    .summary = "cross entropy of each voxel with class weights, plus Dice loss; also measures segment agreement (Rand, VOI)",
    .source = "F. Milletari et al., V-Net, 2016 (Dice)",
    .inputs = 2,
    .attrs_size = sizeof(struct sgrad_voxel_loss),
    .no_gradient = 1u << 1,
    .input_dtype = { [1] = SGRAD_I32 },
    .infer = infer,
    .describe = describe,
    .forward = { { { .name = "voxel_loss forward", .kind = &sgrad_forward_kind, .cpu = forward, .workspace = workspace,
                     .flops = flops },
                   { SGRAD_IN(X, 0), SGRAD_IN(X, 1), SGRAD_OUT(STAT, 0) } } },
    .backward = { { { .name = "voxel_loss backward", .kind = &sgrad_backward_kind, .cpu = backward, .flops = flops },
                    { SGRAD_IN(X, 0), SGRAD_IN(X, 1), SGRAD_OUT(DX, 0) } } },
    .metrics = { { "loss", "loss", "loss", false },
                 { "accuracy", "voxels", "voxel accuracy", true },
                 { "iou", "IoU", "intersection over union", true, .unprefixed = true },
                 { "rand", "Rand", "Rand F-score", true, .unprefixed = true },
                 { "voi", "VOI", "variation of information", false, .unprefixed = true } },
    .fill = fill,
    .tests = {
        { "one slice of 4x5, 2 classes", { { 4, { 1, 4, 5, 2 } }, { 3, { 1, 4, 5 } } } },
        { "2 volumes of 2x3x4, 3 classes, weights", { { 5, { 2, 2, 3, 4, 3 } }, { 4, { 2, 2, 3, 4 } } },
          &(struct sgrad_voxel_loss){ .weight = { 0.5f, 2, 3 } } },
        { "2 volumes of 2x3x4, Dice", { { 5, { 2, 2, 3, 4, 2 } }, { 4, { 2, 2, 3, 4 } } },
          &(struct sgrad_voxel_loss){ .weight = { 1, 0.25f }, .dice = 0.5f } },
        { "3 slices of 4x5, some voxels unknown, all of the last", { { 4, { 3, 4, 5, 2 } }, { 3, { 3, 4, 5 } } },
          &(struct sgrad_voxel_loss){ .weight = { 1, 3 } } },
        { "3 slices of 4x5, some voxels unknown, Dice", { { 4, { 3, 4, 5, 3 } }, { 3, { 3, 4, 5 } } },
          &(struct sgrad_voxel_loss){ .dice = 1 } },
    },
};
