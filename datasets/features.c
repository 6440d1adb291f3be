/* features.c: normalises numbers of different size and unit to (x - mean) / deviation of the training samples. Which numbers have
 * a common mean and deviation depends on the shape of a sample:
 *
 *     (8)         each of the 8 numbers is normalised separately, as the columns of a table
 *     (2,3)       each of the 6 numbers, too
 *     (H,W,C)     each of the C channels, over all pixels, as images of bytes
 *
 * With more than 65,536 numbers, each index of the last dimension is normalised separately; if there are more of these, too, all
 * numbers are normalised together. */
#include "config.h"
#include "datasets/datasets.h"
#include "datasets/formats.h"

#include <math.h>
#include <stdlib.h>

enum { MOST_GROUPS = 1 << 16 };         /* config.json lists mean and deviation of each */

int64_t sgrad__feature_groups(const struct sgrad_shape *shape) {
    const int64_t all = sgrad_shape_count(shape), last = shape->rank ? shape->dim[shape->rank - 1] : 1;
    if (shape->rank < 3 && all <= MOST_GROUPS) return all;
    return last <= MOST_GROUPS ? last : 1;
}

double sgrad__feature(const struct sgrad_origin *origin, int64_t i, double number) {
    return origin->mean ? (number - origin->mean[i % origin->groups]) / origin->deviation[i % origin->groups] : number;
}

double sgrad__as_written(double x) {
    char digits[32];
    snprintf(digits, sizeof digits, "%.15g", x);
    return strtod(digits, NULL);
}

void sgrad__features_measure(struct sgrad_origin *origin, int64_t count, double (*number)(const void *of, int64_t i),
                             const void *of) {
    const int64_t all = count * origin->features, groups = origin->groups;
    const double each = (double)(all / groups);
    bool *changes = sgrad_xcalloc((size_t)groups, sizeof *changes);
    double *first = sgrad_xcalloc((size_t)groups, sizeof *first);
    for (int64_t g = 0; g < groups; g++) first[g] = number(of, g);
    origin->mean = sgrad_xcalloc((size_t)groups, sizeof *origin->mean);
    origin->deviation = sgrad_xcalloc((size_t)groups, sizeof *origin->deviation);
    for (int64_t i = 0; i < all; i++) {
        const double x = number(of, i);
        origin->mean[i % groups] += x;
        changes[i % groups] |= x != first[i % groups];
    }
    for (int64_t g = 0; g < groups; g++) origin->mean[g] = sgrad__as_written(changes[g] ? origin->mean[g] / each : first[g]);
    for (int64_t i = 0; i < all; i++) {
        const double from = number(of, i) - origin->mean[i % groups];
        origin->deviation[i % groups] += from * from;
    }
    for (int64_t g = 0; g < groups; g++) {
        const double deviation = sqrt(origin->deviation[g] / each);
        origin->deviation[g] = changes[g] && deviation > 0 ? sgrad__as_written(deviation) : 1;
    }
    free(changes);
    free(first);
}
