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

void sgrad__spans_settle(struct sgrad__spans *s) {
    s->count = sgrad__spans_unite(s->span, s->count);
    s->before[0] = 0;
    for (int i = 0; i < s->count; i++) s->before[i + 1] = s->before[i] + (s->span[i].end - s->span[i].begin);
}

double sgrad__spans_before(const struct sgrad__spans *s, double ms) {
    int low = 0, high = s->count;       /* spans before LOW begin before MS, those from HIGH on do not */
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (s->span[middle].begin < ms) low = middle + 1;
        else high = middle;
    }
    return low ? s->before[low - 1] + (fmin(ms, s->span[low - 1].end) - s->span[low - 1].begin) : 0;
}

double sgrad__spans_length(const struct sgrad__spans *s) { return s->before[s->count]; }
