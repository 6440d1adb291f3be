/* plan.c: chooses the algorithm of a search and its parameters by the estimated number of comparisons: multi-index hashing, with
 * the number of segments and the radius of each, or comparison of hashes with similar numbers of ones. */
#include "duplicates/internal.h"

#include <math.h>

enum { BITS_MOST = 20 };

static double choose(int n, int k) {
    double c = 1;
    for (int i = 0; i < k; i++) c = c * (n - i) / (i + 1);
    return c;
}

double sgrad__plan_lists(int bits, int radius) {
    double sum = 0;
    for (int r = 0; r <= radius && r <= bits; r++) sum += choose(bits, r);
    return sum;
}

static struct sgrad__plan plan_parts(int bits, int threshold, int parts, double n) {
    struct sgrad__plan plan = { .parts = parts };
    for (int p = 0, first = 0; p < parts; p++) {
        struct sgrad__part *part = &plan.part[p];
        *part = (struct sgrad__part){ first, bits / parts + (p < bits % parts), threshold / parts - (p > threshold % parts) };
        first += part->bits;
        if (part->bits > BITS_MOST) part->bits = BITS_MOST; /* further bits are not indexed; comparison checks them */
        if (part->radius < 0) continue;
        const double lists = (double)(1u << part->bits), visits = sgrad__plan_lists(part->bits, part->radius);
        plan.cost += visits * (10 * lists + n * n / lists / 2) + 20 * n;
        if (visits > 1 << 22) plan.cost = INFINITY;
    }
    return plan;
}

struct sgrad__plan sgrad__plan_make(int bits, const struct sgrad_search *search, int64_t images) {
    const double n = (double)images;
    struct sgrad__plan best = { .weights = true, .parts = 1, .cost = n * n / 2 };
    best.part[0] = (struct sgrad__part){ 0, bits, search->threshold };
    if (search->method == SGRAD_SEARCH_WEIGHTS) return best;
    if (search->method == SGRAD_SEARCH_SEGMENTS) best.cost = INFINITY;
    for (int parts = bits / 16 - 1; parts <= bits / 4 && parts < SGRAD__PARTS_MOST; parts++) {
        const struct sgrad__plan plan = plan_parts(bits, search->threshold, parts, n);
        if (plan.cost < best.cost) best = plan;
    }
    return best;
}
