/* winograd_transforms.h: the matrices of Winograd's F(4x4,3x3), LANES channels at a time. Private to winograd_vectors.h. */
#ifndef SGRAD_CODELETS_WINOGRAD_TRANSFORMS_H
#define SGRAD_CODELETS_WINOGRAD_TRANSFORMS_H

#include "codelets/winograd_level.h"

typedef float vec __attribute__((vector_size(4 * LANES)));
typedef float packed __attribute__((vector_size(4 * LANES), aligned(4), may_alias));    /* a vec in memory */

/* A, B and G belong to the polynomial t (t² - p) (t² - q), p = a², q = b² = 1/p; NA and NB are 1/Π(tᵢ - tⱼ) at ±a and ±b, at 0
 * it is 1. */
#define a 0.707106781f
#define b 1.414213562f
#define p 0.5f
#define q 2.0f
#define NA (1 / (2 * p * (p - q)))
#define NB (1 / (2 * q * (q - p)))

/* ---- the one-dimensional transforms: each is applied to rows, then to columns --------------------------------------- */

/* ±a and ±b: the even powers' part plus the odd ones', and less it. */
SGRAD_ALWAYS_INLINE void even_and_odd(vec ea, vec oa, vec eb, vec ob, vec t[WINDOW]) {
    t[1] = ea + oa;
    t[2] = ea - oa;
    t[3] = eb + ob;
    t[4] = eb - ob;
}

/* Bᵀ */
SGRAD_ALWAYS_INLINE void window_row(const vec d[WINDOW], vec t[WINDOW]) {
    const vec ea = d[4] - q * d[2], oa = d[3] - q * d[1], eb = d[4] - p * d[2], ob = d[3] - p * d[1];
    t[0] = d[0] - (p + q) * d[2] + d[4];
    even_and_odd(ea, a * oa, eb, b * ob, t);
    t[5] = d[1] - (p + q) * d[3] + d[5];
}

/* G */
SGRAD_ALWAYS_INLINE void filter_row(const vec g[3], vec t[WINDOW]) {
    const vec ea = NA * g[0] + NA * p * g[2], oa = NA * a * g[1], eb = NB * g[0] + NB * q * g[2], ob = NB * b * g[1];
    t[0] = g[0];
    even_and_odd(ea, oa, eb, ob, t);
    t[5] = g[2];
}

/* Gᵀ */
SGRAD_ALWAYS_INLINE void filter_row_back(const vec t[WINDOW], vec g[3]) {
    const vec ea = NA * (t[1] + t[2]), oa = NA * (t[1] - t[2]), eb = NB * (t[3] + t[4]), ob = NB * (t[3] - t[4]);
    g[0] = t[0] + ea + eb;
    g[1] = a * oa + b * ob;
    g[2] = p * ea + q * eb + t[5];
}

/* A */
SGRAD_ALWAYS_INLINE void tile_row(const vec y[TILE], vec t[WINDOW]) {
    const vec ea = y[0] + p * y[2], oa = a * y[1] + a * p * y[3], eb = y[0] + q * y[2], ob = b * y[1] + b * q * y[3];
    t[0] = y[0];
    even_and_odd(ea, oa, eb, ob, t);
    t[5] = y[3];
}

/* Aᵀ */
SGRAD_ALWAYS_INLINE void tile_row_back(const vec t[WINDOW], vec y[TILE]) {
    const vec ea = t[1] + t[2], oa = t[1] - t[2], eb = t[3] + t[4], ob = t[3] - t[4];
    y[0] = t[0] + ea + eb;
    y[1] = a * oa + b * ob;
    y[2] = p * ea + q * eb;
    y[3] = a * p * oa + b * q * ob + t[5];
}

#undef a
#undef b
#undef p
#undef q
#undef NA
#undef NB

/* G g Gᵀ of a filter, row by row */
SGRAD_ALWAYS_INLINE void filter_points(const vec g[FILTER], vec t[POINTS]) {
    vec rows[3 * WINDOW], column[3], out[WINDOW];
    for (int r = 0; r < 3; r++) filter_row(g + 3 * r, rows + r * WINDOW);
    for (int s = 0; s < WINDOW; s++) {
        for (int r = 0; r < 3; r++) column[r] = rows[r * WINDOW + s];
        filter_row(column, out);
        for (int r = 0; r < WINDOW; r++) t[r * WINDOW + s] = out[r];
    }
}

#endif
