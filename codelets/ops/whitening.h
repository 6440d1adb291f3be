/* whitening.h: initial filters that whiten image patches: the second moment of their outputs is the same along every direction.
 * They are the eigenvectors of the patches' second moments, divided by the square roots of their eigenvalues, the largest first,
 * followed by the negatives of all of these.
 *
 *     M = mean of p pᵀ = Q diag(d) Qᵀ,   filter i = q_i / √(d_i + 5e-4),   filter m + i = -filter i,   i < m
 *
 * A patch p is kernel x kernel pixels, (R,S,C). Sources: D. Page, How to train your ResNet 8: bag of tricks, 2019; K. Jordan,
 * 94 % on CIFAR-10 in 3.29 seconds on a single GPU, arXiv:2404.00498, section 3.2. */
#ifndef SGRAD_CODELETS_OPS_WHITENING_H
#define SGRAD_CODELETS_OPS_WHITENING_H

#include "runtime/runtime.h"

/* Number of images that a training run uses: the first ones of the training set, or all if there are fewer. */
enum { SGRAD_WHITENING_IMAGES = 5000 };

/* Statistics of patches. sum is Σ p pᵀ (size,size), row-major, of which only the lower triangle is computed. count is the
 * number of patches. */
struct sgrad_whitening {
    int kernel, channels;
    double *sum, count;
};
/* Returns the number of elements of a patch. */
static inline int sgrad_whitening_size(const struct sgrad_whitening *whitening) {
    return whitening->kernel * whitening->kernel * whitening->channels;
}

/* Returns statistics without patches. They must be freed with sgrad_whitening_destroy. */
struct sgrad_whitening sgrad_whitening_create(int kernel, int channels);
void sgrad_whitening_destroy(struct sgrad_whitening *whitening);
/* Adds all patches of IMAGE (HEIGHT,WIDTH,channels) to the statistics. */
void sgrad_whitening_add(struct sgrad_whitening *whitening, const float *image, int height, int width);
/* Writes the first M filters, then their negatives, to WEIGHT (2 M,kernel,kernel,channels). M must be at most the size. The
 * sign of a filter is such that its element of largest absolute value is positive. Returns SGRAD_EINVAL, and logs it, if the
 * images are not finite, or if there are no patches. */
int sgrad_whitening_filters(const struct sgrad_whitening *whitening, int m, float *weight);

#endif
