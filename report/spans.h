/* spans.h: stretches of time, and how much of them lies where. */
#ifndef SGRAD_REPORT_SPANS_H
#define SGRAD_REPORT_SPANS_H

struct sgrad__span {
    double begin, end;                  /* ms */
};
/* Makes the spans disjoint, in order of time. Returns how many are left. */
int sgrad__spans_unite(struct sgrad__span *span, int count);

/* Disjoint spans in order of time, that can be asked how much of them lies before a moment. */
struct sgrad__spans {
    int count;
    struct sgrad__span *span;
    double *before;                     /* [count + 1]: ms of the spans before each, and of all */
};
/* Unites what is in SPANS->span, of which there is room for BEFORE, too. */
void sgrad__spans_settle(struct sgrad__spans *spans);
double sgrad__spans_before(const struct sgrad__spans *spans, double ms);
double sgrad__spans_length(const struct sgrad__spans *spans);

#endif
