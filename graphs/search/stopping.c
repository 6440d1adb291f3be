/* stopping.c: stopping rules of a search: functions of the results of the trials, independent of the times and ranks at which
 * they were computed.
 *
 *     halving, first 1, factor 3        epochs   1     3     9          of 9 trials 9, 3 and 1 continue          */
#include "graphs/search/search.h"
#include "graphs/api/search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int first(const struct sgrad_stop *stop) { return stop->first ? stop->first : 1; }
static int factor(const struct sgrad_stop *stop) { return stop->factor ? stop->factor : 3; }

/* ---- halving ------------------------------------------------------------------------------------------------------ */

static int next_rung(const struct sgrad_stop *stop, int epoch, int epochs) {
    long rung = first(stop);
    while (rung <= epoch) rung *= factor(stop);
    return rung < epochs ? (int)rung : epochs;
}

static void halve(const struct sgrad_stop *stop, int epoch, struct sgrad__score *score, int count) {
    const int stay = (count + factor(stop) - 1) / factor(stop);
    for (int i = 0; i < count; i++) {
        int better = 0;
        for (int j = 0; j < count; j++) {
            const double a = score[i].value[epoch - 1], b = score[j].value[epoch - 1];
            better += b > a || (b == a && j < i);
        }
        score[i].stops = better >= stay;
    }
}

/* ---- median ------------------------------------------------------------------------------------------------------- */

static int each_epoch(const struct sgrad_stop *stop, int epoch, int epochs) {
    const int next = epoch < first(stop) ? first(stop) : epoch + 1;
    return next < epochs ? next : epochs;
}

static int by_value(const void *one, const void *other) {
    const double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

static double median(double *value, int count) {
    qsort(value, (size_t)count, sizeof *value, by_value);
    return count % 2 ? value[count / 2] : (value[count / 2 - 1] + value[count / 2]) / 2;
}

static void compare_with_median(const struct sgrad_stop *stop, int epoch, struct sgrad__score *score, int count) {
    (void)stop;
    double *mean = sgrad_xcalloc((size_t)count, sizeof *mean), *others = sgrad_xcalloc((size_t)count, sizeof *others);
    for (int i = 0; i < count; i++)
        for (int e = 0; e < epoch; e++) mean[i] += score[i].value[e] / epoch;
    for (int i = 0; i < count; i++) {
        double best = -INFINITY;
        int n = 0;
        for (int e = 0; e < epoch; e++) best = fmax(best, score[i].value[e]);
        for (int j = 0; j < count; j++)
            if (j != i) others[n++] = mean[j];
        score[i].stops = n && best < median(others, n);
    }
    free(mean);
    free(others);
}

/* ---- rules -------------------------------------------------------------------------------------------------------- */

static int at_the_end(const struct sgrad_stop *stop, int epoch, int epochs) { return (void)stop, (void)epoch, epochs; }
static void spare(const struct sgrad_stop *stop, int epoch, struct sgrad__score *score, int count) {
    (void)stop, (void)epoch, (void)score, (void)count;
}

static const struct rule {
    const char *name;
    int (*next)(const struct sgrad_stop *stop, int epoch, int epochs);
    void (*decide)(const struct sgrad_stop *stop, int epoch, struct sgrad__score *score, int count);
} none = { "none", at_the_end, spare }, halving = { "halving", next_rung, halve },
  by_median = { "median", each_epoch, compare_with_median };
static const struct rule *const rules[] = { &none, &halving, &by_median, NULL };

static const struct rule *rule_of(const struct sgrad_stop *stop) {
    for (int i = 0; stop->rule && rules[i]; i++)
        if (strcmp(stop->rule, rules[i]->name) == 0) return rules[i];
    return &none;
}

int sgrad__stop_check(const struct sgrad_stop *stop) {
    if (stop->rule && !sgrad_registry_find("stopping rule", stop->rule, rules)) return SGRAD_ENAME;
    if (factor(stop) < 2) return sgrad_log_error(SGRAD_EINVAL, "stop: factor is %d, but must be at least 2", stop->factor);
    return first(stop) > 0 ? 0 : sgrad_log_error(SGRAD_EINVAL, "stop: first is %d, but must be at least 1", stop->first);
}

int sgrad__stop_next(const struct sgrad_stop *stop, int epoch, int epochs) { return rule_of(stop)->next(stop, epoch, epochs); }

void sgrad__stop_decide(const struct sgrad_stop *stop, int epoch, struct sgrad__score *score, int count) {
    for (int i = 0; i < count; i++) score[i].stops = false;
    rule_of(stop)->decide(stop, epoch, score, count);
}
