/* spans.h: time intervals, and the total time that they cover. */
#ifndef SGRAD_REPORT_SPANS_H
#define SGRAD_REPORT_SPANS_H

struct sgrad__span {
    double begin, end;                  /* ms */
};
/* Sorts the spans by time and merges those that overlap, in SPAN. Returns the number of remaining spans. */
int sgrad__spans_unite(struct sgrad__span *span, int count);

/* Disjoint spans, sorted by time, with cumulative lengths. */
struct sgrad__spans {
    int count;
    struct sgrad__span *span;
    double *before;                     /* [count + 1]: total ms of the spans before each span; the last element: of all spans */
};
/* Merges SPANS->span and sets SPANS->count and SPANS->before, which the caller must allocate for one element more than spans. */
void sgrad__spans_settle(struct sgrad__spans *spans);
double sgrad__spans_before(const struct sgrad__spans *spans, double ms);    /* ms that the spans cover before the time MS */
double sgrad__spans_length(const struct sgrad__spans *spans);               /* ms that the spans cover */

#endif
