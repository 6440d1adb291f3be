/* winograd_level.h: what winograd.c, which plans a call, and winograd_avx2.c and winograd_avx512.c, which compute it, share. */
#ifndef SGRAD_CODELETS_WINOGRAD_LEVEL_H
#define SGRAD_CODELETS_WINOGRAD_LEVEL_H

#include "codelets/layer.h"

enum { TILE = 4, WINDOW = 6, POINTS = WINDOW * WINDOW, FILTER = 9 };

/* The products' factors are words of 32 bits: floats, or pairs of bf16, neighbours in what is summed over, channels or tiles, as
 * AVX512_BF16 takes them, two products a lane at a time. */
enum factors { FLOATS, CHANNEL_PAIRS, TILE_PAIRS, FACTORS_COUNT };

static inline int64_t channel_words(enum factors factors, int64_t channels) {
    return factors == CHANNEL_PAIRS ? channels / 2 : channels;
}
static inline int64_t tile_words(enum factors factors, int64_t tiles) {
    return factors == TILE_PAIRS ? (tiles + 1) / 2 : tiles;
}

/* How far apart two points' matrices of words lie: not a power of two, for which caches have few places. */
static inline int64_t point_stride(int64_t rows, int64_t columns) { return rows * columns + 16; }

/* What a call computes, in what order: tiles row by row, image by image. */
struct tiling {
    int64_t rows, columns, count;       /* of an image, of an image, of all */
    int64_t padding;                    /* of the windows' images */
    int64_t block;                      /* tiles that go through the stages together: a multiple of the level's */
    int64_t chunk;                      /* channels of the tiles' images at a time, for as many filters */
    int64_t v, m, size;                 /* where V and M begin in the workspace, after U, in words; and its size */
};

/* The images whose windows are taken, and those of the tiles: x and y, but backward-data makes dx out of dy as forward makes y
 * out of x. */
static inline const int32_t *in_of(const struct sgrad__layer *l) { return l->pass == SGRAD__BACKWARD_DATA ? l->y : l->x; }
static inline const int32_t *out_of(const struct sgrad__layer *l) { return l->pass == SGRAD__BACKWARD_DATA ? l->x : l->y; }

/* A processor's vectors. */
struct sgrad__winograd_level {
    int lanes, tiles;       /* floats of a vector; tiles at a time, whose sums, of two vectors each, stay in registers */
    void (*run[FACTORS_COUNT])(const struct sgrad__layer *l, struct tiling t, void *const data[], float *room);
};
extern const struct sgrad__winograd_level sgrad__winograd_avx2, sgrad__winograd_avx512;

#endif
