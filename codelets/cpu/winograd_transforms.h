/* winograd_transforms.h: the transforms of Winograd's F(4x4,3x3) and F(2x2,5x5), which use the same points; for LANES channels
 * at a time. Private to winograd_vectors.h. */
#ifndef SGRAD_CODELETS_CPU_WINOGRAD_TRANSFORMS_H
#define SGRAD_CODELETS_CPU_WINOGRAD_TRANSFORMS_H

#include "codelets/cpu/vectors.h"

/* The matrices A, B and G are derived from the polynomial t (t² - p) (t² - q), with p = a² and q = b² = 1/p. Its roots and
 * infinity are the six points. NA and NB are 1/Π(tᵢ - tⱼ) at ±a and at ±b; at 0 this is 1. */
#define a 0.707106781f
#define b 1.414213562f
#define p 0.5f
#define q 2.0f
#define NA (1 / (2 * p * (p - q)))
#define NB (1 / (2 * q * (q - p)))

/* ---- the one-dimensional transforms: each is applied to rows, then to columns --------------------------------------- */

/* The values at ±a and ±b, from the sums of the even powers (ea, eb) and of the odd ones (oa, ob). */
SGRAD_ALWAYS_INLINE void even_and_odd(vec ea, vec oa, vec eb, vec ob, vec t[WINDOW]) {
    t[1] = ea + oa;
    t[2] = ea - oa;
    t[3] = eb + ob;
    t[4] = eb - ob;
}

/* t = Bᵀ d */
SGRAD_ALWAYS_INLINE void window_row(const vec d[WINDOW], vec t[WINDOW]) {
    const vec ea = d[4] - q * d[2], oa = d[3] - q * d[1], eb = d[4] - p * d[2], ob = d[3] - p * d[1];
    t[0] = d[0] - (p + q) * d[2] + d[4];
    even_and_odd(ea, a * oa, eb, b * ob, t);
    t[5] = d[1] - (p + q) * d[3] + d[5];
}

/* Evaluates the polynomial with N coefficients, C, at all points. The values at ±a and ±b are multiplied by the second and the
 * third argument; the value at infinity is the last coefficient. With N = 4 or 2 and the factors 1 this is A, for tiles. With
 * N = 3 or 5 and the factors NA and NB it is G, for filters. */
SGRAD_ALWAYS_INLINE void evaluate(int n, float na, float nb, const vec c[], vec t[WINDOW]) {
    vec ea = na * c[0], eb = nb * c[0], oa = na * a * c[1], ob = nb * b * c[1];
    if (n > 2) ea += na * p * c[2], eb += nb * q * c[2];
    if (n > 3) oa += na * a * p * c[3], ob += nb * b * q * c[3];
    if (n > 4) ea += na * p * p * c[4], eb += nb * q * q * c[4];
    t[0] = c[0];
    even_and_odd(ea, oa, eb, ob, t);
    t[5] = c[n - 1];
}

/* The transpose of this: Aᵀ or Gᵀ. */
SGRAD_ALWAYS_INLINE void evaluate_back(int n, float na, float nb, const vec t[WINDOW], vec c[]) {
    const vec ea = na * (t[1] + t[2]), oa = na * (t[1] - t[2]), eb = nb * (t[3] + t[4]), ob = nb * (t[3] - t[4]);
    c[0] = t[0] + ea + eb;
    c[1] = a * oa + b * ob;
    if (n > 2) c[2] = p * ea + q * eb;
    if (n > 3) c[3] = a * p * oa + b * q * ob;
    if (n > 4) c[4] = p * p * ea + q * q * eb;
    c[n - 1] += t[5];
}

SGRAD_ALWAYS_INLINE void filter_row(int side, const vec g[], vec t[WINDOW]) { evaluate(side, NA, NB, g, t); }
SGRAD_ALWAYS_INLINE void filter_row_back(int side, const vec t[WINDOW], vec g[]) { evaluate_back(side, NA, NB, t, g); }
SGRAD_ALWAYS_INLINE void tile_row(int side, const vec y[], vec t[WINDOW]) { evaluate(side, 1, 1, y, t); }
SGRAD_ALWAYS_INLINE void tile_row_back(int side, const vec t[WINDOW], vec y[]) { evaluate_back(side, 1, 1, t, y); }

#undef a
#undef b
#undef p
#undef q
#undef NA
#undef NB

/* t = G g Gᵀ for a filter g (side,side); both are row-major. */
SGRAD_ALWAYS_INLINE void filter_points(int side, const vec g[], vec t[POINTS]) {
    vec rows[MOST_SIDE * WINDOW], column[MOST_SIDE], out[WINDOW];
    for (int r = 0; r < side; r++) filter_row(side, g + side * r, rows + r * WINDOW);
    for (int s = 0; s < WINDOW; s++) {
        for (int r = 0; r < side; r++) column[r] = rows[r * WINDOW + s];
        filter_row(side, column, out);
        for (int r = 0; r < WINDOW; r++) t[r * WINDOW + s] = out[r];
    }
}

#endif
