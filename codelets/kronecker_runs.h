/* kronecker_runs.h: where an image's pixels meet a filter's taps, as kronecker_factor.c and kronecker_tiles.c go by. Private to
 * these. */
#ifndef SGRAD_CODELETS_KRONECKER_RUNS_H
#define SGRAD_CODELETS_KRONECKER_RUNS_H

#include "codelets/kernels.h"
#include "codelets/kronecker.h"

enum { RIGHT = 16, RUNS = 128 };    /* columns of a tile of products; runs at most */

/* FIRST, and COUNT - 1 more by steps: rows or columns that TAPS (bits) meet, at their lower end of a displacement. */
struct run {
    int64_t first, count, step;
    uint32_t taps;
};

/* Samples, as they go by; one long row of pixels where there are no images to be met by several taps. */
struct images {
    int64_t count, height, width, outs, across;     /* outs and across: positions of the filter */
};

struct geometry {
    int64_t taps, stride, padding, dilation, groups;
    int64_t channels;           /* of a group */
    int64_t length;             /* n */
    bool bias, rows;            /* rows: pixels are met by one tap, each once */
    struct images all;
};

struct geometry sgrad__factor_geometry(const struct sgrad_args *args);
/* Into RUN, those of EXTENT lines, met at OUTS positions, that have another BY taps further; how many. */
int sgrad__factor_runs(const struct geometry *g, int64_t extent, int64_t outs, int64_t by,
                       struct run run[RUNS]);

/* Of a tile of products the taps that its two pixels are met by are DOWN and ALONG apart, its HEIGHT rows are channels from I on
 * of the first pixel, its columns those from J on of the other. To the factor it is added in each block of such taps that ROWS
 * and COLUMNS have, where it is inside, and of the upper triangle. */
struct place {
    int64_t down, along, i, j, height;
};
SGRAD_ALWAYS_INLINE void add_tile(const struct geometry *g, const struct place *at, uint32_t rows, uint32_t columns,
                                  float tile[][RIGHT], float *sum) {
    const int64_t height = g->channels - at->i < at->height ? g->channels - at->i : at->height;
    const int64_t width = g->channels - at->j < RIGHT ? g->channels - at->j : RIGHT;
    for (int64_t block = 0; block < g->taps * g->taps; block++) {
        const int64_t r = block / g->taps, s = block % g->taps, other = (r + at->down) * g->taps + s + at->along;
        if (!(rows >> r & 1 && columns >> s & 1)) continue;
        for (int64_t i = 0; i < height; i++) {
            const int64_t row = block * g->channels + at->i + i, column = other * g->channels + at->j;
            const int64_t first = row > column ? row - column : 0;
            if (first >= width) continue;
            float *to = sum + sgrad__triangle_at(g->length, row, column + first) - first;
            if (first == 0 && width == RIGHT)
                for (int j = 0; j < RIGHT; j++) to[j] += tile[i][j];
            else
                for (int64_t j = first; j < width; j++) to[j] += tile[i][j];
        }
    }
}

#endif
