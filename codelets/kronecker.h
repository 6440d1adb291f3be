/* kronecker.h: what second-order training is made of (graphs/programs/optimizers/kfac.c). Private to the library.
 *
 * A layer whose outputs are W ã (ã: a patch of its input, with a 1 behind it where there is a bias) has a curvature near A ⊗ G:
 *
 *     x ── patches ã ── A = Σ ã ãᵀ / (B·S²) ── Q_A, d_A ─┐
 *                                                        ├─ V = Q_G ((Q_Gᵀ ∇ Q_A) / (d_G d_Aᵀ + γ)) Q_Aᵀ
 *     dy ─── columns g ── G = B·S Σ g gᵀ ───── Q_G, d_G ─┘
 *
 * B samples, of which the loss is the mean; S positions of an image. Where a layer has no images its rows count as samples, and S
 * is 1. With groups each of them has its own A and G. ã lies as the filter does, (r,s,c), then the 1.
 *
 * A *factor* is (groups, n(n+1)/2): of each group the upper triangle by rows. What it is decomposed into, *eigen*, is
 * (groups, 1 + n, n): the eigenvalues, rising, then of each its eigenvector. Its damped *inverse*, (groups, n, n), may stand for
 * that: V = (G + γI)⁻¹ ∇ (A + γI)⁻¹.
 *
 * Sources: J. Martens, R. Grosse: Optimizing Neural Networks with Kronecker-factored Approximate Curvature, 2015; R. Grosse,
 * J. Martens: A Kronecker-factored approximate Fisher matrix for convolution layers, 2016; J. G. Pauloski, Z. Zhang, L. Huang,
 * W. Xu, I. T. Foster: Convolutional Neural Network Training with Distributed K-FAC, 2020. */
#ifndef SGRAD_CODELETS_KRONECKER_H
#define SGRAD_CODELETS_KRONECKER_H

#include "codelets/codelets.h"

/* n(n+1)/2, and where the element (i,j), i ≤ j, lies there. */
static inline int64_t sgrad__triangle(int64_t n) { return n * (n + 1) / 2; }
static inline int64_t sgrad__triangle_at(int64_t n, int64_t i, int64_t j) { return i * n - i * (i - 1) / 2 + j - i; }
/* The n of a factor or an eigen: kernel² channels of a group, and a bias. */
static inline int64_t sgrad__patch_length(const struct sgrad_patches *p, int64_t channels, bool bias) {
    const int64_t kernel = p->kernel ? p->kernel : 1;
    return kernel * kernel * channels / p->groups + bias;
}

/* A factor's name, and how often something was wrong with it. */
struct sgrad_factor_health {
    const char *name;
    long infinite, unmade, negative;
};
/* Once more it was so: counts, and the first, tenth, hundredth … time tells, as of STEP, "curvature of NAME WHAT". */
void sgrad__factor_tell(const struct sgrad_factor_health *health, long *count, const struct sgrad_step *step, const char *what);

/* Σ ã ãᵀ over the patches of x. Operands: 0 x F32 or BF16, (N,H,W,C), or (N,…,C) where it has no images (R); 1 the sum F32, a
 * factor's shape (W, or added to). */
struct sgrad_kronecker_factor {
    struct sgrad_patches patches;
    bool bias;
};
extern const struct sgrad_kernel sgrad_kronecker_factor_kernel;

/* y = decay·y + (1 - decay)·scale·x; in the run's first step y = scale·x. Where x is not finite y stays. Operands: 0 x F32 (R), 1
 * y F32 (RW), of one shape. */
struct sgrad_running_average {
    double decay, scale;
    struct sgrad_factor_health *health;
};
extern const struct sgrad_kernel sgrad_running_average_kernel;

/* Eigenvalues of at most 1e-10 become 0. Where there is no decomposition, or no inverse, what was made before stays, and is told.
 * γ is step->damping. Operands: 0 a factor F32 (R), 1 its eigen, or its inverse, F32 (RW). Attributes: a pointer to its
 * health. */
extern const struct sgrad_kernel sgrad_eigendecomposition_kernel, sgrad_damped_inverse_kernel;

/* V of the gradients ∇; γ is step->damping. Operands: 0 ∇ of the weight F32 (K,…), 1 of the bias F32 (K) or absent, 2 A's eigen,
 * or inverse, 3 G's (R), 4 V of the weight, 5 of the bias or absent (W). */
extern const struct sgrad_kernel sgrad_precondition_kernel, sgrad_precondition_by_inverse_kernel;

#endif
