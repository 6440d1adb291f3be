/* kronecker_runs.h: which taps of a filter cover which pixels of an image: functions common to kronecker_factor.c and
 * kronecker_tiles.c. Private to these files.
 *
 * A tap (r,s) covers a pixel if the filter, at one of its positions, multiplies the pixel by this tap's weight. Factor A
 * consists of products of two pixels. A pair of taps BY apart, in one dimension, covers pairs of lines (rows or columns of the
 * image) that are BY · dilation apart. */
#ifndef SGRAD_CODELETS_KFAC_KRONECKER_RUNS_H
#define SGRAD_CODELETS_KFAC_KRONECKER_RUNS_H

#include "codelets/kernels.h"
#include "codelets/kfac/kronecker.h"

enum { RIGHT = 16, RUNS = 128 };    /* columns of a tile of products; maximum number of runs */

/* COUNT lines, from line FIRST on, STEP apart. They are the first lines of pairs that are covered by the same pairs of taps;
 * TAPS has the bits of the first taps of these. */
struct run {
    int64_t first, count, step;
    uint32_t taps;
};

/* The input as COUNT images. It is one image with a single row of all pixels if each pixel is covered by one tap, once (.rows
 * of struct geometry). */
struct images {
    int64_t count, height, width, outs, across;     /* outs, across: filter positions, vertically and horizontally */
};

struct geometry {
    int64_t taps, stride, padding, dilation, groups;     /* taps: in each dimension */
    int64_t channels;           /* of a group */
    int64_t length;             /* n of the factor (kronecker.h) */
    bool bias, rows;            /* rows: each pixel is a patch */
    struct images all;
};

/* Returns the geometry of a task of sgrad_kronecker_factor_kernel. */
struct geometry sgrad__factor_geometry(const struct sgrad_args *args);
/* Writes the runs of lines 0 … EXTENT - 1 to RUN, for a filter with OUTS positions and for pairs of taps BY apart. Returns the
 * number of runs. */
int sgrad__factor_runs(const struct geometry *geometry, int64_t extent, int64_t outs, int64_t by,
                       struct run run[RUNS]);

/* Position of a tile of products of two pixels, summed over the pairs of pixels of a run of rows and a run of columns. The
 * taps that cover the two pixels are DOWN rows and ALONG columns apart. The tile's rows are HEIGHT channels of the first
 * pixel, from channel I on; its columns are channels of the second pixel, from channel J on.
 *
 * add_tile adds a tile to the factor SUM: to the block of each pair of taps whose first tap (r,s) has bit r in ROWS and bit s
 * in COLUMNS. It leaves out channels after the last one, and elements below the factor's diagonal. */
struct place {
    int64_t down, along, i, j, height;
};
SGRAD_ALWAYS_INLINE void add_tile(const struct geometry *geometry, const struct place *at, uint32_t rows, uint32_t columns,
                                  float tile[][RIGHT], float *sum) {
    const int64_t height = geometry->channels - at->i < at->height ? geometry->channels - at->i : at->height;
    const int64_t width = geometry->channels - at->j < RIGHT ? geometry->channels - at->j : RIGHT;
    for (int64_t block = 0; block < geometry->taps * geometry->taps; block++) {
        const int64_t r = block / geometry->taps, s = block % geometry->taps,
                      other = (r + at->down) * geometry->taps + s + at->along;
        if (!(rows >> r & 1 && columns >> s & 1)) continue;
        for (int64_t i = 0; i < height; i++) {
            const int64_t row = block * geometry->channels + at->i + i, column = other * geometry->channels + at->j;
            const int64_t first = row > column ? row - column : 0;
            if (first >= width) continue;
            float *to = sum + sgrad__triangle_at(geometry->length, row, column + first) - first;
            if (first == 0 && width == RIGHT)
                for (int j = 0; j < RIGHT; j++) to[j] += tile[i][j];
            else
                for (int64_t j = first; j < width; j++) to[j] += tile[i][j];
        }
    }
}

#endif
