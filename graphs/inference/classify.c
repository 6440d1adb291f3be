/* classify.c: statistics of the predictions of a classifier: accuracy, confusion matrix, calibration. */
#include "config.h"
#include "graphs/rundir/rundir.h"

#include <math.h>
#include <stdlib.h>

void sgrad_probabilities(const float *logit, int64_t count, double *probability) {
    double most = -INFINITY, sum = 0;
    for (int64_t c = 0; c < count; c++) most = fmax(most, logit[c]);
    for (int64_t c = 0; c < count; c++) sum += probability[c] = exp(logit[c] - most);
    for (int64_t c = 0; c < count; c++) probability[c] /= sum;
}

bool sgrad_is_sure(const float *logit, int64_t count) {
    return count > 0 && sgrad__predicted_class(logit, count) >= 0;
}

/* Returns the number of logits that count as larger than that of class C; of equal ones, the first counts as larger. */
static int64_t larger(const float *logit, int64_t count, int64_t c) {
    int64_t n = 0;
    for (int64_t k = 0; k < count; k++) n += logit[k] > logit[c] || (logit[k] == logit[c] && k < c);
    return n;
}

struct sgrad_classification sgrad_classify(const struct sgrad_predictions *predictions) {
    const int64_t classes = predictions->width;
    struct sgrad_classification all = { .classes = (int)classes };
    double *probability = sgrad_xcalloc((size_t)classes, sizeof *probability);
    all.unsure = sgrad_xcalloc((size_t)classes, sizeof *all.unsure);
    all.confusion = sgrad_xcalloc((size_t)(classes * classes), sizeof *all.confusion);
    for (int64_t i = 0; i < predictions->samples; i++) {
        const float *logit = predictions->logits + i * classes;
        const int64_t label = predictions->label[i], best = sgrad__predicted_class(logit, classes);
        if (best < 0) {
            all.unsure[label]++;
            all.all_unsure++;
            continue;
        }
        sgrad_probabilities(logit, classes, probability);
        const double sure = probability[best];
        const int part = (int)sgrad_clamp((int64_t)(sure * SGRAD_CONFIDENCES), 0, SGRAD_CONFIDENCES - 1);
        struct sgrad_confidence *confidence = &all.confidence[part];
        all.confusion[label * classes + best]++;
        all.top1 += best == label;
        all.top5 += larger(logit, classes, label) < 5;
        confidence->count++;
        confidence->probability += sure;
        confidence->right += best == label;
    }
    free(probability);
    for (struct sgrad_confidence *c = all.confidence; c < all.confidence + SGRAD_CONFIDENCES; c++) {
        all.calibration_error += fabs(c->probability - c->right) / (double)(predictions->samples - all.all_unsure);
        if (c->count) c->probability /= (double)c->count, c->right /= (double)c->count;
    }
    all.top1 /= (double)predictions->samples;
    all.top5 /= (double)predictions->samples;
    return all;
}

void sgrad_classification_free(struct sgrad_classification *classification) {
    free(classification->confusion);
    free(classification->unsure);
    *classification = (struct sgrad_classification){ 0 };
}
