/* kronecker.h: kernels of second-order training, K-FAC (graphs/compiler/optimizers/kfac.c). Private to the library.
 *
 * A layer computes W ã, where ã is a patch of its input, followed by a 1 if the layer has a bias. Its curvature is approximated
 * by A ⊗ G. From A, G and the gradient ∇, the preconditioned gradient V is computed:
 *
 *     x ── patches ã ── A = Σ ã ãᵀ / (B·S²) ── Q_A, d_A ─┐
 *                                                        ├─ V = Q_G ((Q_Gᵀ ∇ Q_A) / (d_G d_Aᵀ + γ)) Q_Aᵀ
 *     dy ─── columns g ── G = B·S Σ g gᵀ ───── Q_G, d_G ─┘
 *
 * The loss is the mean over B samples. The filter has S positions in an image. If the input of a layer is not images, its rows
 * are the samples, and S is 1. With groups, each group has a separate A and G. The elements of ã are in the filter's order,
 * (r,s,c), followed by the 1. γ is the damping.
 *
 * A *factor*, A or G, is stored as (groups, n(n+1)/2): the upper triangle of each group's matrix, row-major. Its decomposition,
 * *eigen*, is (groups, 1 + n, n): the eigenvalues in ascending order, then their eigenvectors, one per row. Its damped *inverse*,
 * (groups, n, n), can be used instead: V = (G + γI)⁻¹ ∇ (A + γI)⁻¹.
 *
 * Sources: J. Martens, R. Grosse: Optimizing Neural Networks with Kronecker-factored Approximate Curvature, 2015; R. Grosse,
 * J. Martens: A Kronecker-factored approximate Fisher matrix for convolution layers, 2016; J. G. Pauloski, Z. Zhang, L. Huang,
 * W. Xu, I. T. Foster: Convolutional Neural Network Training with Distributed K-FAC, 2020. */
#ifndef SGRAD_CODELETS_KFAC_KRONECKER_H
#define SGRAD_CODELETS_KFAC_KRONECKER_H

#include "codelets/codelets.h"

/* Return the length of a triangle, n(n+1)/2, and the index in it of element (i,j), i ≤ j. */
static inline int64_t sgrad__triangle(int64_t n) { return n * (n + 1) / 2; }
static inline int64_t sgrad__triangle_at(int64_t n, int64_t i, int64_t j) { return i * n - i * (i - 1) / 2 + j - i; }
/* Returns n of a factor: the channels of a group, for each pixel of a patch, plus 1 with a bias. */
static inline int64_t sgrad__patch_length(const struct sgrad_patches *patches, int64_t channels, bool bias) {
    const int64_t kernel = patches->kernel ? patches->kernel : 1;
    return kernel * kernel * channels / patches->groups + bias;
}

/* The name of a factor, and how often it was invalid. infinite: new values had a NaN or an infinity and were skipped. unmade:
 * no decomposition or inverse could be computed. negative: there were negative eigenvalues; for the inverse, eigenvalues of -γ
 * or less. */
struct sgrad_factor_health {
    const char *name;
    long infinite, unmade, negative;
};
/* Adds 1 to *COUNT, a member of HEALTH, and logs a warning with the number of STEP, the factor's name and the text if the result
 * is 1, 10, 100, …. */
void sgrad__factor_tell(const struct sgrad_factor_health *health, long *count, const struct sgrad_step *step, const char *what);

/* Σ ã ãᵀ over the patches of x, for A; Σ g gᵀ if x is dy and its rows are the patches (kernel 0), for G. Attributes: this
 * struct. Operands: 0 x F32 or BF16, (N,H,W,C), or (N,…,C) if it is not images (R); 1 the sum F32, in the shape of a factor
 * (W; may be added to). CPUs only. */
struct sgrad_kronecker_factor {
    struct sgrad_patches patches;
    bool bias;
};
extern const struct sgrad_kernel sgrad_kronecker_factor_kernel;

/* y = decay·y + (1 - decay)·scale·x; in the first step of a run y = scale·x. If x has a NaN or an infinity, y does not change
 * and a warning is logged. Attributes: this struct. Operands: 0 x F32 (R), 1 y F32 (RW), of one shape. CPUs only. */
struct sgrad_running_average {
    double decay, scale;
    struct sgrad_factor_health *health;
};
extern const struct sgrad_kernel sgrad_running_average_kernel;

/* Compute the eigen, or the damped inverse, of a factor, in double. Eigenvalues of at most 1e-10 become 0. γ is step->damping.
 * If a group has no decomposition or no inverse, its previous result does not change and a warning is logged. Attributes: a
 * pointer to the factor's struct sgrad_factor_health. Operands: 0 the factor F32 (R), 1 its eigen, or its inverse, F32 (RW).
 * CPUs only. */
extern const struct sgrad_kernel sgrad_eigendecomposition_kernel, sgrad_damped_inverse_kernel;

/* Compute V from the gradients ∇ and from the eigen, or the damped inverses, of A and G. γ is step->damping. Operands: 0 ∇ of
 * the weight F32 (K,…), 1 ∇ of the bias F32 (K) or absent, 2 the eigen, or inverse, of A F32, 3 that of G F32 (all R); 4 V of
 * the weight, 5 V of the bias or absent (W). */
extern const struct sgrad_kernel sgrad_precondition_kernel, sgrad_precondition_by_inverse_kernel;

#endif
