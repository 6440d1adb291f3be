/* winograd_vectors.h: the functions that the stages of winograd.c consist of, for LANES channels at a time. Included by
 * isa_avx2.c and isa_avx512.c. */
#include "codelets/cpu/winograd_transforms.h"

/* Writes the value X of a point to V as words. Pairs of tiles are X and the value of the tile before it, EVEN[POINT]. */
SGRAD_ALWAYS_INLINE void put(enum factors factors, float *v, const vec *even, int point, vec x) {
    if (factors == FLOATS) *(packed *)v = x;
    else if (factors == CHANNEL_PAIRS) *(packed_halves *)v = narrow(true, x);
    else *(packed *)v = paired(even[point], x);
}

/* ---- images, and their tiles ---------------------------------------------------------------------------------------- */

/* Channels-last images (N,height,width,channels). */
struct images {
    void *data;
    enum sgrad_dtype dtype;
    int64_t height, width, channels;
};

/* The position of a pixel, or of the first pixel of a window or a tile. */
struct spot {
    int64_t image, row, column;
};
static const struct spot nowhere = { 0, -WINDOW, 0 };       /* outside of all images, where pixels are zeros */
/* Returns the first pixel of tile I. */
SGRAD_ALWAYS_INLINE struct spot tile_at(struct tiling t, int64_t i) {
    return (struct spot){ i / (t.rows * t.columns), i / t.columns % t.rows * t.side, i % t.columns * t.side };
}
/* Returns the index of the first channel of a pixel. */
SGRAD_ALWAYS_INLINE int64_t index_of(struct images x, struct spot at) {
    return ((at.image * x.height + at.row) * x.width + at.column) * x.channels;
}

/* Returns true if the square of SIDE pixels at AT is inside the image and the number of channels is a multiple of LANES. */
SGRAD_ALWAYS_INLINE bool is_inside(struct images x, int side, struct spot at) {
    return at.row >= 0 && at.row + side <= x.height && at.column >= 0 && at.column + side <= x.width && x.channels % LANES == 0;
}

/* Calls FUNCTION with a constant type and a constant INSIDE (is_inside). So the compiler generates one version for each type,
 * and one without bounds checks. */
#define SPECIALISED(function, inside, x, ...)                                                                                    \
    do {                                                                                                                         \
        if ((x).dtype == SGRAD_F32 && (inside)) function(SGRAD_F32, true, x, __VA_ARGS__);                                       \
        else if ((x).dtype == SGRAD_F32) function(SGRAD_F32, false, x, __VA_ARGS__);                                             \
        else if (inside) function(SGRAD_BF16, true, x, __VA_ARGS__);                                                             \
        else function(SGRAD_BF16, false, x, __VA_ARGS__);                                                                        \
    } while (0)

/* Reads COUNT pixels of a row, LANES channels from CHANNEL on. Pixels outside of the image are zeros. */
SGRAD_ALWAYS_INLINE void pixels(enum sgrad_dtype dtype, bool inside, struct images x, struct spot at, int64_t channel, int count,
                                vec d[]) {
    const bool in = inside || (at.row >= 0 && at.row < x.height);
    const int64_t from = index_of(x, at) + channel;
#pragma GCC unroll 6
    for (int j = 0; j < count; j++) {
        d[j] = (vec){ 0 };
        if (inside) d[j] = load(dtype, x.data, from + j * x.channels);
        else if (in && at.column + j >= 0 && at.column + j < x.width)
            d[j] = load_some(dtype, x.data, from + j * x.channels, x.channels - channel);
    }
}

/* Data that is needed soon: CHANNELS channels, from channel FROM on, of COUNT tiles, from tile FIRST on. */
struct soon {
    struct images images;
    int64_t from, channels, first, count;
};

/* Prefetches the POINT-th fraction, of POINTS, of the data SOON, so that memory is read while products are computed. */
SGRAD_ALWAYS_INLINE void prefetch(struct tiling t, struct soon soon, int point) {
    enum { READ = 0, SECOND_LEVEL = 2 };
    const struct images x = soon.images;
    const int64_t size = (int64_t)sgrad_dtype_size(x.dtype), end = soon.first + soon.count * (point + 1) / POINTS;
    for (int64_t i = soon.first + soon.count * point / POINTS; i < end; i++) {
        const struct spot tile = tile_at(t, i);
        struct spot at = tile;
        for (; at.row < tile.row + t.side && at.row < x.height; at.row++)
            for (at.column = tile.column; at.column < tile.column + t.side && at.column < x.width; at.column++)
                for (int64_t byte = 0; byte < soon.channels * size; byte += SGRAD_LINE)
                    __builtin_prefetch((const char *)x.data + (index_of(x, at) + soon.from) * size + byte, READ, SECOND_LEVEL);
    }
}

/* Computes Bᵀ x B of the window at AT; the points in V are STRIDE words apart. */
SGRAD_ALWAYS_INLINE void window(enum sgrad_dtype dtype, bool inside, struct images x, struct spot at, int64_t channel,
                                enum factors factors, float *v, int64_t stride, const vec *even) {
    vec rows[POINTS], d[WINDOW], t[WINDOW];
    for (int r = 0; r < WINDOW; r++, at.row++) {
        pixels(dtype, inside, x, at, channel, WINDOW, d);
        window_row(d, rows + r * WINDOW);
    }
    for (int s = 0; s < WINDOW; s++) {
        for (int r = 0; r < WINDOW; r++) d[r] = rows[r * WINDOW + s];
        window_row(d, t);
        for (int r = 0; r < WINDOW; r++) put(factors, v + (r * WINDOW + s) * stride, even, r * WINDOW + s, t[r]);
    }
}

/* Returns the first pixel of the window of tile I. */
SGRAD_ALWAYS_INLINE struct spot window_at(struct tiling t, int64_t i) {
    const struct spot at = tile_at(t, i);
    return (struct spot){ at.image, at.row - t.padding, at.column - t.padding };
}

/* Computes A y Aᵀ of the tile at AT, in the layout of window. Adds the tile's pixels to SUM if it is not NULL. */
SGRAD_ALWAYS_INLINE void tile_in(enum sgrad_dtype dtype, bool inside, struct images y, int side, struct spot at, int64_t channel,
                                 enum factors factors, float *v, int64_t stride, const vec *even, float *sum) {
    vec rows[POINTS], d[WINDOW], t[WINDOW], all = { 0 };
    for (int r = 0; r < side; r++, at.row++) {
        pixels(dtype, inside, y, at, channel, side, d);
        tile_row(side, d, rows + r * WINDOW);
        all += side == 2 ? d[0] + d[1] : (d[0] + d[1]) + (d[2] + d[3]);
    }
    if (sum) store_some(false, SGRAD_F32, sum, 0, all + load_some(SGRAD_F32, sum, 0, y.channels - channel), y.channels - channel);
    for (int s = 0; s < WINDOW; s++) {
        for (int r = 0; r < side; r++) d[r] = rows[r * WINDOW + s];
        tile_row(side, d, t);
        for (int r = 0; r < WINDOW; r++) put(factors, v + (r * WINDOW + s) * stride, even, r * WINDOW + s, t[r]);
    }
}

/* Computes the tile at AT, Aᵀ m A plus the bias if it is not NULL; writes it, or adds it to y (ADD). */
SGRAD_ALWAYS_INLINE void tile_out(enum sgrad_dtype dtype, bool inside, struct images y, int side, struct spot at, int64_t channel,
                                  bool has_bf16, const float *m, int64_t stride, const float *bias, bool add) {
    vec columns[POINTS], d[WINDOW], t[WINDOW];
    for (int s = 0; s < WINDOW; s++) {
        for (int r = 0; r < WINDOW; r++) d[r] = *(const packed *)(m + (r * WINDOW + s) * stride);
        tile_row_back(side, d, t);
        for (int r = 0; r < side; r++) columns[r * WINDOW + s] = t[r];
    }
    const int64_t some = inside ? LANES : y.channels - channel;
    for (int r = 0; r < side && (inside || at.row < y.height); r++, at.row++) {
        const int64_t to = index_of(y, at) + channel;
        tile_row_back(side, columns + r * WINDOW, t);
#pragma GCC unroll 4
        for (int s = 0; s < side; s++) {
            if (!inside && at.column + s >= y.width) break;
            if (bias) t[s] += load_some(SGRAD_F32, bias, 0, some);
            if (add) t[s] += load_some(dtype, y.data, to + s * y.channels, some);
            store_some(has_bf16, dtype, y.data, to + s * y.channels, t[s], some);
        }
    }
}

/* ---- filters -------------------------------------------------------------------------------------------------------
 *
 * U is packed in panels (product_stages.h) of two vectors, or of one if the columns are not a multiple of two. */

/* Prefetch distances: floats along a filter, and filters. Filters are too far apart in memory for the processor's prefetching. */
enum { FLOATS_ON = 32, FILTERS_ON = 4 };

/* Returns the width of a panel, in floats. */
static int64_t panel_width(int64_t columns) { return columns % (2 * LANES) ? LANES : 2 * LANES; }

/* Transforms the filters g[0] (of pairs also g[1]), LANES of them, and writes their points to U (36, ROWS, COLUMNS), at row
 * ROW of words and columns COLUMN …. */
SGRAD_ALWAYS_INLINE void put_filters(enum factors factors, int side, const vec *g[2], int64_t rows, int64_t columns, int64_t row,
                                     int64_t column, float *u) {
    const int64_t width = panel_width(columns), stride = point_stride(rows, columns);
    vec t[POINTS], next[POINTS];
    filter_points(side, g[0], t);
    if (factors != FLOATS) filter_points(side, g[1], next);
    u += column / width * rows * width + row * width + column % width;
    for (int i = 0; i < POINTS; i++) *(packed *)(u + i * stride) = factors == FLOATS ? t[i] : paired(t[i], next[i]);
}
