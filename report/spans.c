/* spans.c: lists of time spans, which are merged once and then searched by bisection. */
#include "report/spans.h"

#include <math.h>
#include <stdlib.h>

static int by_begin(const void *one, const void *other) {
    const struct sgrad__span *a = one, *b = other;
    return (a->begin > b->begin) - (a->begin < b->begin);
}

int sgrad__spans_unite(struct sgrad__span *span, int count) {
    int kept = 0;
    if (count) qsort(span, (size_t)count, sizeof *span, by_begin);
    for (int i = 0; i < count; i++) {
        if (kept && span[i].begin <= span[kept - 1].end) span[kept - 1].end = fmax(span[kept - 1].end, span[i].end);
        else span[kept++] = span[i];
    }
    return kept;
}

void sgrad__spans_settle(struct sgrad__spans *spans) {
    spans->count = sgrad__spans_unite(spans->span, spans->count);
    spans->before[0] = 0;
    for (int i = 0; i < spans->count; i++) spans->before[i + 1] = spans->before[i] + (spans->span[i].end - spans->span[i].begin);
}

double sgrad__spans_before(const struct sgrad__spans *spans, double ms) {
    int low = 0, high = spans->count;   /* spans before LOW begin before MS, those from HIGH on do not */
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (spans->span[middle].begin < ms) low = middle + 1;
        else high = middle;
    }
    return low ? spans->before[low - 1] + (fmin(ms, spans->span[low - 1].end) - spans->span[low - 1].begin) : 0;
}

double sgrad__spans_length(const struct sgrad__spans *spans) { return spans->before[spans->count]; }
