/* whitening.h: filters that make what images show of no more variance along any direction than along another: the eigenvectors of
 * patches' second moments over the roots of their eigenvalues, the largest first, and the negatives of them all.
 *
 *     M = mean of p pᵀ = Q diag(d) Qᵀ,   filter i = q_i / √(d_i + 5e-4),   filter m + i = -filter i,   i < m
 *
 * A patch p is kernel x kernel pixels, (R,S,C). (D. Page, How to train your ResNet 8: bag of tricks, 2019; K. Jordan, 94 % on
 * CIFAR-10 in 3.29 seconds on a single GPU, arXiv:2404.00498, section 3.2.) */
#ifndef SGRAD_CODELETS_WHITENING_H
#define SGRAD_CODELETS_WHITENING_H

#include "runtime/runtime.h"

/* Images that the method looks at. */
enum { SGRAD_WHITENING_IMAGES = 5000 };

/* What is known of patches: the sums of p pᵀ, of which the lower triangle by rows is kept, and how many there are. */
struct sgrad_whitening {
    int kernel, channels;
    double *sum, count;
};
static inline int sgrad_whitening_size(const struct sgrad_whitening *w) { return w->kernel * w->kernel * w->channels; }

struct sgrad_whitening sgrad_whitening_create(int kernel, int channels);
void sgrad_whitening_destroy(struct sgrad_whitening *whitening);
/* Adds all patches of IMAGE (HEIGHT,WIDTH,channels). */
void sgrad_whitening_add(struct sgrad_whitening *whitening, const float *image, int height, int width);
/* The first M filters and their negatives, WEIGHT (2 M,kernel,kernel,channels), M at most the size; of each and its negative that
 * one comes first whose largest element is positive. SGRAD_EINVAL: the images are not finite, or have no patch. */
int sgrad_whitening_filters(const struct sgrad_whitening *whitening, int m, float *weight);

#endif
