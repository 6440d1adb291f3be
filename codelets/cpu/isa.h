/* isa.h: vector code of the CPU algorithms. winograd.c, product.c and pixels.c plan a call. isa_avx2.c and isa_avx512.c
 * compute it; each contains the same stages, compiled for its vector length. Private to codelets/. */
#ifndef SGRAD_CODELETS_CPU_ISA_H
#define SGRAD_CODELETS_CPU_ISA_H

#include "codelets/cpu/layer.h"

/* ---- Winograd's method: winograd.c ---------------------------------------------------------------------------------- */

/* Side of a window of inputs; points of a transform; largest side of a filter; number of supported sides: 3 and 5. */
enum { WINDOW = 6, POINTS = WINDOW * WINDOW, MOST_SIDE = 5, FILTER_SIDES = 2 };

/* The factors of the matrix products consist of 32-bit words. A word is a float, or a pair of bf16 values that are neighbours
 * along the dimension of the sum: channels or tiles. The instructions of AVX512_BF16 take such pairs: two products per lane. */
enum factors { FLOATS, CHANNEL_PAIRS, TILE_PAIRS, FACTORS_COUNT };

/* Return the number of words for CHANNELS channels (a multiple of 2 for pairs), and for TILES tiles. */
static inline int64_t channel_words(enum factors factors, int64_t channels) {
    return factors == CHANNEL_PAIRS ? channels / 2 : channels;
}
static inline int64_t tile_words(enum factors factors, int64_t tiles) {
    return factors == TILE_PAIRS ? (tiles + 1) / 2 : tiles;
}

/* Returns CHANNELS, rounded up to a multiple of LANES. */
static inline int64_t whole(int64_t channels, int64_t lanes) { return (channels + lanes - 1) / lanes * lanes; }

/* Returns the distance between the matrices of two points, in words. It is not a power of two: at such distances few sets of a
 * cache would be used. */
static inline int64_t point_stride(int64_t rows, int64_t columns) { return rows * columns + 16; }

/* The plan of a call. Tiles are numbered row by row, image by image. */
struct tiling {
    int side;                           /* of an output tile, in pixels: 4 for filters of 3x3, 2 for 5x5 */
    int64_t rows, columns, count;       /* rows and columns of tiles in an image; tiles of all images */
    int64_t padding;                    /* of the images from which windows are read */
    int64_t block;                      /* tiles that pass through the stages together: a multiple of the level's rows */
    int64_t chunk;                      /* channels of the tiled images that are processed together */
    int64_t v, m, size;                 /* in words: start of V and of M in the workspace, where U is first; its size */
};

/* Return the shape of the images from which windows are read, and of the tiled images. These are x and y, except in
 * backward-data, which computes dx from dy as forward computes y from x. */
static inline const int32_t *in_of(const struct sgrad__layer *layer) {
    return layer->pass == SGRAD__BACKWARD_DATA ? layer->y : layer->x;
}
static inline const int32_t *out_of(const struct sgrad__layer *layer) {
    return layer->pass == SGRAD__BACKWARD_DATA ? layer->x : layer->y;
}

/* ---- matrix products: product.c ------------------------------------------------------------------------------------- */

enum { PIECE = 256 };           /* terms of a sum that are added in one pass */

/* The plan of a call: x (R,C), w (K,C), y (R,K). */
struct product {
    int64_t rows, in, out;      /* R, C, K */
    bool few;                   /* few rows: x and y are transposed instead of w */
    bool aside;                 /* sums are computed in the workspace; then they are written to the output */
    int64_t block;              /* rows that are processed together */
    int64_t padded;             /* columns of the packed factor, rounded up to whole vectors */
    int64_t right, sums, size;  /* in floats: start of the right factor (packed, or converted to floats) and of the sums in the
                                 * workspace, where the converted left factor is first; its size */
};

/* ---- small images, pixel by pixel: pixels.c ------------------------------------------------------------------------- */

/* The plan of a call. */
struct pixels {
    int64_t samples, in, out;   /* N, C, K */
    int64_t ins, outs, taps;    /* pixels of an image of x, of y; taps of a filter: R·S */
    int64_t padded;             /* samples, rounded up to whole vectors */
    int64_t left, sums, size;   /* in floats: end of the left factor (transposed, or converted to floats), which is first in the
                                 * workspace; start of the sums of backward-data; size of the workspace */
};

/* ---- a processor's vectors ------------------------------------------------------------------------------------------ */

/* The functions for one vector instruction set. Winograd functions are indexed by filter side (0: 3, 1: 5) and factors, those
 * of the other algorithms by pass; a NULL is not supported. DATA: the layer's operands; their last argument: the workspace. */
struct sgrad__level {
    int lanes, rows;        /* floats of a vector; rows of sums that fit in registers, each two vectors wide */
    void (*winograd[FILTER_SIDES][FACTORS_COUNT])(const struct sgrad__layer *l, struct tiling t, void *const data[], float *room);
    void (*pixels[SGRAD__PASSES])(const struct sgrad__layer *l, struct pixels p, void *const data[], float *room);
    void (*product[SGRAD__PASSES])(const struct sgrad__layer *l, struct product p, void *const data[], float *room);
    /* z (M,N) = e (M,T) v (T,N), or z += e v (ADD). N must be a multiple of LANES. …_row: elements from one row to the next;
     * V_ROW 0: v is packed in panels (product_stages.h). multiply_columns reads e as (T,M), with E_STEP elements from one term
     * to the next. */
    void (*multiply_rows)(int64_t m, int64_t n, int64_t terms, const float *e, int64_t e_row, const float *v, int64_t v_row,
                          float *z, int64_t z_row, bool add);
    void (*multiply_columns)(int64_t m, int64_t n, int64_t terms, const float *e, int64_t e_step, const float *v, int64_t v_row,
                             float *z, int64_t z_row, bool add);
    /* multiply_pairs: the same for words that are pairs of bf16; T counts words. E_STEP must be 1, for e (M,T), or E_ROW must
     * be 1, for e (T,M). make_pairs converts x (ROWS,COUNT) to such words: pairs of neighbours in a row, ALONG (ROWS,COUNT/2),
     * and in a column, ACROSS ((ROWS+1)/2,COUNT), where the last of an odd number of rows is paired with zeros. COUNT must be
     * a multiple of two vectors; ALONG or ACROSS may be NULL. Both functions require AVX512_BF16; they are NULL in a level for
     * processors without it. */
    void (*multiply_pairs)(int64_t m, int64_t n, int64_t terms, const float *e, int64_t e_row, int64_t e_step, const float *v,
                           int64_t v_row, float *z, int64_t z_row, bool add);
    void (*make_pairs)(const float *x, int64_t rows, int64_t count, float *along, float *across);
    void (*widen)(const uint16_t *x, int64_t count, float *to);     /* converts bf16 to floats */
    void (*narrow)(const float *x, int64_t count, uint16_t *to, bool add);      /* converts back; ADD: adds to TO */
};
extern const struct sgrad__level sgrad__level_avx2, sgrad__level_avx512;

/* Returns the level for sgrad_isa(); static. NULL: an x86-64 processor without AVX2. In builds for other processors it is the
 * AVX2 level, compiled for the baseline. */
const struct sgrad__level *sgrad__level(void);
void sgrad__row_widen(const uint16_t *x, int64_t count, float *to);     /* converts COUNT bf16 values to floats */

#endif
