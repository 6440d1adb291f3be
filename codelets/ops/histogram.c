/* histogram.c: histogram of the values of one tensor, for TensorBoard. The buckets are those of TensorFlow: limits grow by 10 %
 * from 1e-12 to 1e20, on both sides of 0 (tensorflow/core/lib/histogram/histogram.cc, InitDefaultBucketsInner), so that they
 * resolve the distribution of any tensor.
 *
 * Limits: CPUs only; a tensor on a GPU is copied to the host. */
#include "config.h"
#include "codelets/kernels.h"

#include <float.h>
#include <math.h>
#include <pthread.h>

static double limit[SGRAD_HISTOGRAM_BUCKETS];

static void set_limits(void) {
    enum { ZERO = SGRAD_HISTOGRAM_BUCKETS / 2 };
    double value = 1e-12;
    for (int i = 1; i <= ZERO; i++, value *= 1.1) {
        limit[ZERO + i] = i < ZERO ? value : DBL_MAX;
        limit[ZERO - i] = -limit[ZERO + i];
    }
}

const double *sgrad_histogram_limits(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, set_limits);
    return limit;
}

/* Returns the first bucket whose limit is above X, which must be finite. */
static int bucket_of(const double *limits, double x) {
    int first = 0, last = SGRAD_HISTOGRAM_BUCKETS - 1;
    while (first < last) {
        const int middle = (first + last) / 2;
        if (limits[middle] > x) last = middle;
        else first = middle + 1;
    }
    return first;
}

/* x (any shape), out (SGRAD_HISTOGRAM) */
static void histogram(const struct sgrad_args *args) {
    const float *x = args->data[0];
    struct sgrad_histogram *h = args->data[1];
    const double *limits = sgrad_histogram_limits();
    *h = (struct sgrad_histogram){ .min = DBL_MAX, .max = -DBL_MAX };
    for (int64_t i = 0; i < sgrad_shape_count(&args->view[0].shape); i++) {
        const double value = (double)x[i];
        if (!isfinite(value)) continue;
        h->min = value < h->min ? value : h->min;
        h->max = value > h->max ? value : h->max;
        h->count++;
        h->sum += value;
        h->sum_squares += value * value;
        h->bucket[bucket_of(limits, value)]++;
    }
    if (h->count == 0) h->min = h->max = 0;
}

const struct sgrad_kernel sgrad_histogram_kernel = { .name = "histogram", .kind = &sgrad_reduction_kind, .cpu = histogram };
