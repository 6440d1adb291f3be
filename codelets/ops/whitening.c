/* whitening.c: initial filters of a network's first layer, computed from patches of images. The eigendecomposition is LAPACK's
 * (dsyevd). */
#include "config.h"
#include "codelets/ops/whitening.h"
#include "codelets/cpu/lapack.h"

#include <math.h>
#include <stdlib.h>

struct sgrad_whitening sgrad_whitening_create(int kernel, int channels) {
    struct sgrad_whitening w = { .kernel = kernel, .channels = channels };
    const size_t n = (size_t)sgrad_whitening_size(&w);
    w.sum = sgrad_xcalloc(n * n, sizeof *w.sum);
    return w;
}

void sgrad_whitening_destroy(struct sgrad_whitening *whitening) { free(whitening->sum); }

static void add_patch(struct sgrad_whitening *whitening, const float *patch, int n) {
    for (int i = 0; i < n; i++)
        for (int j = 0; j <= i; j++) whitening->sum[i * n + j] += (double)patch[i] * (double)patch[j];
}

void sgrad_whitening_add(struct sgrad_whitening *whitening, const float *image, int height, int width) {
    const int n = sgrad_whitening_size(whitening), row = whitening->kernel * whitening->channels;
    float *patch = sgrad_xcalloc((size_t)n, sizeof *patch);
    for (int y = 0; y + whitening->kernel <= height; y++)
        for (int x = 0; x + whitening->kernel <= width; x++) {
            for (int r = 0; r < whitening->kernel; r++)
                for (int i = 0; i < row; i++) patch[r * row + i] = image[((y + r) * width + x) * whitening->channels + i];
            add_patch(whitening, patch, n);
            whitening->count++;
        }
    free(patch);
}

/* Writes the filter of eigenvector Q with eigenvalue VALUE to FILTER, and its negative SIZE numbers later. */
static void put(const double *q, double value, int n, int64_t size, float *filter) {
    int largest = 0;
    for (int i = 1; i < n; i++)
        if (fabs(q[i]) > fabs(q[largest])) largest = i;
    const double scale = (q[largest] < 0 ? -1 : 1) / sqrt(fmax(value, 0) + 5e-4);
    for (int i = 0; i < n; i++) filter[i] = (float)(scale * q[i]), filter[size + i] = -filter[i];
}

int sgrad_whitening_filters(const struct sgrad_whitening *whitening, int m, float *weight) {
    const int n = sgrad_whitening_size(whitening), size = 1 + 6 * n + 2 * n * n, more = 3 + 5 * n;
    double *matrix = sgrad_xcalloc((size_t)(n * n), sizeof *matrix), *values = sgrad_xcalloc((size_t)n, sizeof *values);
    double *work = sgrad_xcalloc((size_t)size, sizeof *work), bad = whitening->count > 0 ? 0 : 1;
    int *more_work = sgrad_xcalloc((size_t)more, sizeof *more_work), info = 0;
    for (int i = 0; i < n; i++)
        for (int j = 0; j <= i; j++) {
            matrix[i * n + j] =
                whitening->sum[i * n + j] / whitening->count; /* the upper triangle for LAPACK, which is column-major */
            bad += 0 * whitening->sum[i * n + j];
        }
    sgrad__lapack_alone();
    if (bad == 0) dsyevd_("V", "U", &n, matrix, &n, values, work, &size, more_work, &more, &info, 1, 1);
    for (int i = 0; i < m && bad == 0 && !info; i++)
        put(&matrix[(n - 1 - i) * n], values[n - 1 - i], n, (int64_t)m * n, weight + (int64_t)i * n);
    free(matrix);
    free(values);
    free(work);
    free(more_work);
    return bad != 0 || info
               ? sgrad_log_error(
                     SGRAD_EINVAL,
                     "whitening: the filters cannot be computed: the second moments of the image patches are not finite")
               : 0;
}
