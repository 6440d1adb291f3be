/* class_counts.c: precision, recall and F1 of the classes, from the predictions of an evaluation.
 *
 *     counts     samples of each class │ predictions of each class │ correct ones          classes numbers each
 *
 * Averages over classes are those of scikit-learn, with zero_division=0: precision, recall and F1 of a class are 0 where their
 * denominator is 0; macro F1 is the mean over the classes that have samples or predictions (f1_score, average="macro"), balanced
 * accuracy the mean recall over the classes that have samples (balanced_accuracy_score). */
#include "graphs/rundir/rundir.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct sgrad_metric class_metrics[] = {
    { "macro_f1", "macro F1", "macro F1", true, .by_class = true },
    { "balanced_accuracy", "balanced accuracy", "balanced accuracy", true, .by_class = true },
};
enum { CLASS_METRICS = sizeof class_metrics / sizeof *class_metrics };

/* Each list is created once and never freed, because results of runs refer to it. */
const struct sgrad_metric *sgrad__class_metrics_add(const struct sgrad_metric *metric, int *count) {
    static struct list {
        const struct list *before;
        const struct sgrad_metric *of;
        int count;
        struct sgrad_metric metric[SGRAD_MAX_METRICS];
    } *last;
    const struct list *known = last;
    while (known && (known->of != metric || known->count != *count)) known = known->before;
    if (!known) {
        struct list *list = sgrad_xcalloc(1, sizeof *list);
        *list = (struct list){ .before = last, .of = metric, .count = *count };
        memcpy(list->metric, metric, (size_t)*count * sizeof *metric);
        memcpy(list->metric + *count, class_metrics, sizeof class_metrics);
        known = last = list;
    }
    *count += CLASS_METRICS;
    return known->metric;
}

int64_t sgrad__predicted_class(const float *logit, int64_t classes) {
    int64_t best = 0;
    for (int64_t c = 0; c < classes; c++) {
        if (isnan(logit[c])) return -1;
        if (logit[c] > logit[best]) best = c;
    }
    return isfinite(logit[best]) ? best : -1;
}

void sgrad__class_counts_add(double *count, int classes, const struct sgrad_predictions *predictions) {
    for (int64_t i = 0; i < predictions->samples; i++) {
        const int64_t label = predictions->label[i];
        const int64_t best = sgrad__predicted_class(predictions->logits + i * predictions->width, classes);
        if (label < 0 || label >= classes) continue;
        count[label]++;
        if (best >= 0) count[classes + best]++;
        if (best == label) count[2 * classes + label]++;
    }
}

static double ratio(double part, double of) { return of > 0 ? part / of : 0; }

struct sgrad_class_score sgrad_class_score(double samples, double predicted, double right) {
    return (struct sgrad_class_score){ ratio(right, predicted), ratio(right, samples), ratio(2 * right, samples + predicted) };
}

void sgrad__class_metrics(const double *count, int classes, double *value) {
    double f1 = 0, recall = 0;
    int used = 0, present = 0;
    for (int c = 0; c < classes; c++) {
        const double samples = count[c], predicted = count[classes + c];
        const struct sgrad_class_score score = sgrad_class_score(samples, predicted, count[2 * classes + c]);
        if (samples + predicted > 0) f1 += score.f1, used++;
        if (samples > 0) recall += score.recall, present++;
    }
    value[0] = ratio(f1, used);
    value[1] = ratio(recall, present);
}
