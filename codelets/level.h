/* level.h: what is computed with a processor's vectors: winograd.c, product.c and pixels.c plan a call, level_avx2.c and
 * level_avx512.c, each with stages of its own vectors' width, compute it. Private to codelets/. */
#ifndef SGRAD_CODELETS_LEVEL_H
#define SGRAD_CODELETS_LEVEL_H

#include "codelets/layer.h"

/* ---- Winograd's method: winograd.c ---------------------------------------------------------------------------------- */

enum { WINDOW = 6, POINTS = WINDOW * WINDOW, MOST_SIDE = 5, FILTER_SIDES = 2 };    /* of filters: 3 or 5 */

/* The products' factors are words of 32 bits: floats, or pairs of bf16, neighbours in what is summed over, channels or tiles, as
 * AVX512_BF16 takes them, two products a lane at a time. */
enum factors { FLOATS, CHANNEL_PAIRS, TILE_PAIRS, FACTORS_COUNT };

static inline int64_t channel_words(enum factors factors, int64_t channels) {
    return factors == CHANNEL_PAIRS ? channels / 2 : channels;
}
static inline int64_t tile_words(enum factors factors, int64_t tiles) {
    return factors == TILE_PAIRS ? (tiles + 1) / 2 : tiles;
}

/* CHANNELS and what fills up their last vector of LANES. */
static inline int64_t whole(int64_t channels, int64_t lanes) { return (channels + lanes - 1) / lanes * lanes; }

/* How far apart two points' matrices of words lie: not a power of two, for which caches have few places. */
static inline int64_t point_stride(int64_t rows, int64_t columns) { return rows * columns + 16; }

/* What a call computes, in what order: tiles row by row, image by image. */
struct tiling {
    int side;                           /* of a tile */
    int64_t rows, columns, count;       /* of an image, of an image, of all */
    int64_t padding;                    /* of the windows' images */
    int64_t block;                      /* tiles that go through the stages together: a multiple of the level's rows */
    int64_t chunk;                      /* channels of the tiles' images at a time, for as many filters */
    int64_t v, m, size;                 /* where V and M begin in the workspace, after U, in words; and its size */
};

/* The images whose windows are taken, and those of the tiles: x and y, but backward-data makes dx out of dy as forward makes y
 * out of x. */
static inline const int32_t *in_of(const struct sgrad__layer *l) { return l->pass == SGRAD__BACKWARD_DATA ? l->y : l->x; }
static inline const int32_t *out_of(const struct sgrad__layer *l) { return l->pass == SGRAD__BACKWARD_DATA ? l->x : l->y; }

/* ---- matrix products: product.c ------------------------------------------------------------------------------------- */

enum { PIECE = 256 };           /* terms of a sum at a time */

struct product {
    int64_t rows, in, out;      /* R, C, K */
    bool few;                   /* rows: x and y are turned, not w */
    bool aside;                 /* the sums are not made where they belong */
    int64_t block;              /* rows of images at a time */
    int64_t padded;             /* columns of what is packed: whole vectors */
    int64_t right, sums, size;  /* where the packed or widened right factor and sums begin in the workspace, after the widened
                                 * left one, in floats; and its size */
};

/* ---- small images, pixel by pixel: pixels.c ------------------------------------------------------------------------- */

struct pixels {
    int64_t samples, in, out;   /* N, C, K */
    int64_t ins, outs, taps;    /* pixels of an image of x, of y; taps of a filter */
    int64_t padded;             /* samples: whole vectors */
    int64_t left, sums, size;   /* where what follows the widened or turned left factor begins in the workspace,
                                 * and backward-data's sums, in floats; and its size */
};

/* ---- a processor's vectors ------------------------------------------------------------------------------------------ */

struct sgrad__level {
    int lanes, rows;        /* floats of a vector; rows of a product's that stay in registers, each two vectors wide */
    void (*winograd[FILTER_SIDES][FACTORS_COUNT])(const struct sgrad__layer *l, struct tiling t, void *const data[], float *room);
    void (*pixels[SGRAD__PASSES])(const struct sgrad__layer *l, struct pixels p, void *const data[], float *room);
    void (*product[SGRAD__PASSES])(const struct sgrad__layer *l, struct product p, void *const data[], float *room);
    /* Z (M,N) = E (M,T) V (T,N), or ADDed to it, N whole vectors, rows strides apart; for multiply_columns E lies (T,M), E_STEP
     * between terms. */
    void (*multiply_rows)(int64_t m, int64_t n, int64_t terms, const float *e, int64_t e_row, const float *v, int64_t v_row,
                          float *z, int64_t z_row, bool add);
    void (*multiply_columns)(int64_t m, int64_t n, int64_t terms, const float *e, int64_t e_step, const float *v, int64_t v_row,
                             float *z, int64_t z_row, bool add);
    /* The same of words that are pairs of bf16, which E's rows (E_STEP 1) or its terms (E_ROW 1) are; and X (ROWS,COUNT) as such:
     * pairs ALONG its rows (ROWS,COUNT/2), and ACROSS two of them (ROWS/2,COUNT), either of which may be NULL. Neither is there
     * where the level has no processors with instructions for bf16. */
    void (*multiply_pairs)(int64_t m, int64_t n, int64_t terms, const float *e, int64_t e_row, int64_t e_step, const float *v,
                           int64_t v_row, float *z, int64_t z_row, bool add);
    void (*make_pairs)(const float *x, int64_t rows, int64_t count, float *along, float *across);
    void (*widen)(const uint16_t *x, int64_t count, float *to);     /* bf16 to floats */
    void (*narrow)(const float *x, int64_t count, uint16_t *to, bool add);      /* and back, ADDed to what is there */
};
extern const struct sgrad__level sgrad__level_avx2, sgrad__level_avx512;

const struct sgrad__level *sgrad__level(void);      /* that kernels may use here; NULL: none */
void sgrad__row_widen(const uint16_t *x, int64_t count, float *to);     /* COUNT elements of bf16 as floats */

#endif
