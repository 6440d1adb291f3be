/* winograd.c: 3x3 convolution of stride 1 by Winograd's minimal filtering F(4x4,3x3), on channels-last images as they lie.
 *
 * An output is cut into tiles of 4x4 pixels; a tile needs a window of 6x6 inputs. With the matrices A, B, G below, · elementwise,
 *
 *     forward           y  = Aᵀ [ Σ_c (G w Gᵀ) · (Bᵀ x B) ] A           window x, filter w, tile y
 *     backward-data     the same, of dy, with the filters turned by 180° and their channels exchanged
 *     backward-weight   dw = Gᵀ [ Σ_tiles (Bᵀ x B) · (A dy Aᵀ) ] G
 *
 * so that at each of 36 points a small matrix product remains, with a quarter of direct convolution's multiplications. A block of
 * tiles at a time goes through all three stages, so that V and M stay in a cache:
 *
 *     x ── windows ─> V (36, tiles, C) ──┬─> products ─> M (36, tiles, K) ── tiles_out ─> y
 *     w ── filters ─> U (36, C, K) ──────┘
 *
 * A sample's y and dx have the same bits whatever else is in the call.
 *
 * Sources: S. Winograd, Arithmetic complexity of computations, 1980; A. Lavin and S. Gray, Fast algorithms for convolutional neural
 * networks, 2016. How far results are off depends on the points where polynomials are evaluated (B. Barabasz et al., Error analysis and
 * improving the accuracy of Winograd convolution for deep neural networks, 2020): with 0, ±√½, ±√2 and infinity by 1e-6 of the largest,
 * with the usual 0, ±1, ±2 by 4.5e-6 (measured, 16 to 256 channels; direct convolution: 0.7e-6). */
#include "codelets/onednn.h"

enum { TILE = 4, WINDOW = 6, POINTS = WINDOW * WINDOW, FILTER = 9, LANES = 16 };

typedef float vec __attribute__((vector_size(64)));
typedef float packed __attribute__((vector_size(64), aligned(4), may_alias));   /* a vec in memory */
typedef uint32_t bits __attribute__((vector_size(64)));
typedef uint16_t half __attribute__((vector_size(32), aligned(2), may_alias));

/* A, B and G belong to the polynomial t (t² - p) (t² - q), p = a², q = b² = 1/p; NA and NB are 1/Π(tᵢ - tⱼ) at ±a and ±b, at 0 it is 1. */
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

/* ---- sixteen channels of a pixel ------------------------------------------------------------------------------------ */

SGRAD_ALWAYS_INLINE vec load(enum sgrad_dtype dtype, const void *data, int64_t i) {
    if (dtype == SGRAD_F32) return *(const packed *)((const float *)data + i);
    return (vec)(__builtin_convertvector(*(const half *)((const uint16_t *)data + i), bits) << 16);
}

/* As sgrad_f32_to_bf16 rounds. */
SGRAD_ALWAYS_INLINE void store(enum sgrad_dtype dtype, void *data, int64_t i, vec x) {
    if (dtype == SGRAD_F32) {
        *(packed *)((float *)data + i) = x;
        return;
    }
    const bits u = (bits)x, number = (bits)(x == x), rounded = (u + 0x7fff + ((u >> 16) & 1)) >> 16, nan = (u >> 16) | 0x40;
    *(half *)((uint16_t *)data + i) = __builtin_convertvector((rounded & number) | (nan & ~number), half);
}

/* ---- images, and their tiles ---------------------------------------------------------------------------------------- */

struct images {
    void *data;
    enum sgrad_dtype dtype;
    int64_t height, width, channels;
};

/* What a call computes, in what order: tiles row by row, image by image. */
struct tiling {
    int64_t rows, columns, count;       /* of an image, of an image, of all */
    int64_t padding;                    /* of the windows' images */
    int64_t block;                      /* tiles that go through the stages together: a multiple of TILES_AT_ONCE */
    int64_t chunk;                      /* channels of the tiles' images at a time, for as many filters */
};
/* A pixel, or where a window or a tile begins. */
struct spot {
    int64_t image, row, column;
};
SGRAD_ALWAYS_INLINE struct spot tile_at(struct tiling t, int64_t i) {
    return (struct spot){ i / (t.rows * t.columns), i / t.columns % t.rows * TILE, i % t.columns * TILE };
}
SGRAD_ALWAYS_INLINE int64_t index_of(struct images x, struct spot at) { return ((at.image * x.height + at.row) * x.width + at.column) * x.channels; }

SGRAD_ALWAYS_INLINE bool is_inside(struct images x, int side, struct spot at) {
    return at.row >= 0 && at.row + side <= x.height && at.column >= 0 && at.column + side <= x.width;
}

/* The compiler makes FUNCTION for each type, and for what is inside the image, where it need not look. */
#define SPECIALISED(function, inside, x, ...)                                                                                    \
    do {                                                                                                                         \
        if ((x).dtype == SGRAD_F32 && (inside)) function(SGRAD_F32, true, x, __VA_ARGS__);                                       \
        else if ((x).dtype == SGRAD_F32) function(SGRAD_F32, false, x, __VA_ARGS__);                                             \
        else if (inside) function(SGRAD_BF16, true, x, __VA_ARGS__);                                                             \
        else function(SGRAD_BF16, false, x, __VA_ARGS__);                                                                        \
    } while (0)

/* COUNT pixels of a row, sixteen channels from CHANNEL on; beside the image there are zeros. */
SGRAD_ALWAYS_INLINE void pixels(enum sgrad_dtype dtype, bool inside, struct images x, struct spot at, int64_t channel, int count, vec d[]) {
    const bool in = inside || (at.row >= 0 && at.row < x.height);
    const int64_t from = index_of(x, at) + channel;
#pragma GCC unroll 6
    for (int j = 0; j < count; j++) {
        d[j] = (vec){ 0 };
        if (inside || (in && at.column + j >= 0 && at.column + j < x.width)) d[j] = load(dtype, x.data, from + j * x.channels);
    }
}

/* Tiles of which some channels will be wanted next. */
struct soon {
    struct images images;
    int64_t from, channels, first, count;
};

/* Asks memory for a part of them, one for each point, so that it works while products are made. */
SGRAD_ALWAYS_INLINE void prefetch(struct tiling t, struct soon soon, int point) {
    enum { READ = 0, SECOND_LEVEL = 2 };
    const struct images x = soon.images;
    const int64_t size = (int64_t)sgrad_dtype_size(x.dtype), end = soon.first + soon.count * (point + 1) / POINTS;
    for (int64_t i = soon.first + soon.count * point / POINTS; i < end; i++) {
        const struct spot tile = tile_at(t, i);
        struct spot at = tile;
        for (; at.row < tile.row + TILE && at.row < x.height; at.row++)
            for (at.column = tile.column; at.column < tile.column + TILE && at.column < x.width; at.column++)
                for (int64_t byte = 0; byte < soon.channels * size; byte += SGRAD_LINE)
                    __builtin_prefetch((const char *)x.data + (index_of(x, at) + soon.from) * size + byte, READ, SECOND_LEVEL);
    }
}

/* How far apart two points' matrices lie: not a power of two, for which caches have few places. */
static int64_t point_stride(int64_t rows, int64_t columns) { return rows * columns + LANES; }

SGRAD_ALWAYS_INLINE void window(enum sgrad_dtype dtype, bool inside, struct images x, struct spot at, int64_t channel, float *v, int64_t stride) {
    vec rows[POINTS], d[WINDOW], t[WINDOW];
    for (int r = 0; r < WINDOW; r++, at.row++) {
        pixels(dtype, inside, x, at, channel, WINDOW, d);
        window_row(d, rows + r * WINDOW);
    }
    for (int s = 0; s < WINDOW; s++) {
        for (int r = 0; r < WINDOW; r++) d[r] = rows[r * WINDOW + s];
        window_row(d, t);
        for (int r = 0; r < WINDOW; r++) *(packed *)(v + (r * WINDOW + s) * stride) = t[r];
    }
}

/* Bᵀ x B for COUNT tiles from FIRST on: V[point][tile][channel]. */
SGRAD_VECTOR static void windows(struct tiling t, struct images x, int64_t first, int64_t count, float *v) {
    const int64_t stride = point_stride(t.block, x.channels);
    for (int64_t i = first; i < first + count; i++) {
        struct spot at = tile_at(t, i);
        at.row -= t.padding;
        at.column -= t.padding;
        const bool inside = is_inside(x, WINDOW, at);
        for (int64_t c = 0; c < x.channels; c += LANES, v += LANES) SPECIALISED(window, inside, x, at, c, v, stride);
    }
}

/* The tile's pixels are added to SUM, which may be NULL. */
SGRAD_ALWAYS_INLINE void tile_in(enum sgrad_dtype dtype, bool inside, struct images y, struct spot at, int64_t channel, float *v, int64_t stride, float *sum) {
    vec rows[TILE * WINDOW], d[TILE], t[WINDOW], all = { 0 };
    for (int r = 0; r < TILE; r++, at.row++) {
        pixels(dtype, inside, y, at, channel, TILE, d);
        tile_row(d, rows + r * WINDOW);
        all += (d[0] + d[1]) + (d[2] + d[3]);
    }
    if (sum) *(packed *)sum += all;
    for (int s = 0; s < WINDOW; s++) {
        for (int r = 0; r < TILE; r++) d[r] = rows[r * WINDOW + s];
        tile_row(d, t);
        for (int r = 0; r < WINDOW; r++) *(packed *)(v + (r * WINDOW + s) * stride) = t[r];
    }
}

/* A dy Aᵀ of COUNT tiles, as windows() leaves V; of CHANNELS channels from FROM on. With SUM, each channel's pixels are added to it. */
SGRAD_VECTOR static void tiles_in(struct tiling t, struct images y, int64_t from, int64_t channels, int64_t first, int64_t count, float *v, float *sum) {
    const int64_t stride = point_stride(t.block, channels);
    for (int64_t i = first; i < first + count; i++) {
        const struct spot at = tile_at(t, i);
        const bool inside = is_inside(y, TILE, at);
        for (int64_t c = from; c < from + channels; c += LANES, v += LANES) SPECIALISED(tile_in, inside, y, at, c, v, stride, sum ? sum + c : NULL);
    }
}

SGRAD_ALWAYS_INLINE void tile_out(enum sgrad_dtype dtype, bool inside, struct images y, struct spot at, int64_t channel, const float *m, int64_t stride,
                                  const float *bias, bool add) {
    vec columns[TILE * WINDOW], d[WINDOW], t[TILE];
    for (int s = 0; s < WINDOW; s++) {
        for (int r = 0; r < WINDOW; r++) d[r] = *(const packed *)(m + (r * WINDOW + s) * stride);
        tile_row_back(d, t);
        for (int r = 0; r < TILE; r++) columns[r * WINDOW + s] = t[r];
    }
    for (int r = 0; r < TILE && (inside || at.row < y.height); r++, at.row++) {
        const int64_t to = index_of(y, at) + channel;
        tile_row_back(columns + r * WINDOW, t);
#pragma GCC unroll 4
        for (int s = 0; s < TILE; s++) {
            if (!inside && at.column + s >= y.width) break;
            if (bias) t[s] += *(const packed *)bias;
            if (add) t[s] += load(dtype, y.data, to + s * y.channels);
            store(dtype, y.data, to + s * y.channels, t[s]);
        }
    }
}

/* Y of COUNT tiles from M; CHANNELS channels from FROM on. BIAS may be NULL. */
SGRAD_VECTOR static void tiles_out(struct tiling t, struct images y, int64_t from, int64_t channels, int64_t first, int64_t count, const float *m,
                                    const float *bias, bool add) {
    const int64_t stride = point_stride(t.block, channels);
    for (int64_t i = first; i < first + count; i++) {
        const struct spot at = tile_at(t, i);
        const bool inside = is_inside(y, TILE, at);
        for (int64_t c = from; c < from + channels; c += LANES, m += LANES)
            SPECIALISED(tile_out, inside, y, at, c, m, stride, bias ? bias + c : NULL, add);
    }
}

/* ---- filters -------------------------------------------------------------------------------------------------------
 *
 * U lies as its products take it: in panels of 32 columns, or of 16. */

static int64_t panel_width(int64_t columns) { return columns % (2 * LANES) ? LANES : 2 * LANES; }

SGRAD_ALWAYS_INLINE float *panel_at(float *u, int point, int64_t rows, int64_t columns, int64_t row, int64_t column) {
    const int64_t width = panel_width(columns);
    return u + point * point_stride(rows, columns) + column / width * rows * width + row * width + column % width;
}

SGRAD_ALWAYS_INLINE void filter_points(const vec g[FILTER], vec t[POINTS]) {
    vec rows[3 * WINDOW], column[3], out[WINDOW];
    for (int r = 0; r < 3; r++) filter_row(g + 3 * r, rows + r * WINDOW);
    for (int s = 0; s < WINDOW; s++) {
        for (int r = 0; r < 3; r++) column[r] = rows[r * WINDOW + s];
        filter_row(column, out);
        for (int r = 0; r < WINDOW; r++) t[r * WINDOW + s] = out[r];
    }
}

/* w (K,3,3,C) -> U (36, C, COUNT), of COUNT filters from FROM on */
SGRAD_VECTOR static void filters(const float *w, int64_t from, int64_t count, int64_t channels, float *u) {
    for (int64_t k = 0; k < count; k += LANES)
        for (int64_t first = 0; first < channels; first += LANES) {
            vec g[LANES][FILTER], t[POINTS];
            for (int i = 0; i < FILTER; i++)
                for (int j = 0; j < LANES; j++)
                    for (int c = 0; c < LANES; c++) g[c][i][j] = w[((from + k + j) * FILTER + i) * channels + first + c];
            for (int c = 0; c < LANES; c++) {
                filter_points(g[c], t);
                for (int i = 0; i < POINTS; i++) *(packed *)panel_at(u, i, channels, count, first + c, k) = t[i];
            }
        }
}

/* w (K,3,3,C) -> U (36, K, COUNT) of the filters turned, of COUNT channels from FROM on */
SGRAD_VECTOR static void filters_turned(const float *w, int64_t rows, int64_t channels, int64_t from, int64_t count, float *u) {
    for (int64_t k = 0; k < rows; k++)
        for (int64_t c = 0; c < count; c += LANES) {
            vec g[FILTER], t[POINTS];
            for (int i = 0; i < FILTER; i++) g[i] = *(const packed *)(w + (k * FILTER + FILTER - 1 - i) * channels + from + c);
            filter_points(g, t);
            for (int i = 0; i < POINTS; i++) *(packed *)panel_at(u, i, rows, count, k, c) = t[i];
        }
}

/* U (36, COUNT, C), row by row -> COUNT filters of dw (K,3,3,C) from FROM on */
SGRAD_VECTOR static void filters_back(const float *u, int64_t from, int64_t count, int64_t channels, float *dw, bool add) {
    for (int64_t k = 0; k < count; k++)
        for (int64_t c = 0; c < channels; c += LANES) {
            vec columns[3 * WINDOW], column[WINDOW], out[3];
            for (int s = 0; s < WINDOW; s++) {
                for (int r = 0; r < WINDOW; r++) column[r] = *(const packed *)(u + (r * WINDOW + s) * point_stride(count, channels) + k * channels + c);
                filter_row_back(column, out);
                for (int r = 0; r < 3; r++) columns[r * WINDOW + s] = out[r];
            }
            for (int r = 0; r < 3; r++) {
                filter_row_back(columns + r * WINDOW, out);
                for (int s = 0; s < 3; s++) {
                    packed *to = (packed *)(dw + ((from + k) * FILTER + 3 * r + s) * channels + c);
                    if (add) out[s] += *to;
                    *to = out[s];
                }
            }
        }
}

/* ---- the products at a point ---------------------------------------------------------------------------------------- */

enum { TILES_AT_ONCE = 12 };    /* with two vectors of a panel: 24 sums in registers */

/* Z[i] = Σ_t e[i, t] v[t], or added to it, for ROWS rows I, one or two vectors wide: steps between elements, in floats. */
SGRAD_ALWAYS_INLINE void outer_sums(int rows, int vectors, int64_t count, const float *e, int64_t e_row, int64_t e_step, const float *v,
                                    int64_t v_step, float *z, int64_t z_row, bool add) {
    vec sum[LANES][2];
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int j = 0; j < vectors; j++) {
            sum[i][j] = (vec){ 0 };
            if (add) sum[i][j] = *(const packed *)(z + i * z_row + j * LANES);
        }
    for (int64_t t = 0; t < count; t++) {
#pragma GCC unroll 16
        for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
            for (int j = 0; j < vectors; j++) sum[i][j] += e[i * e_row + t * e_step] * *(const packed *)(v + t * v_step + j * LANES);
    }
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int j = 0; j < vectors; j++) *(packed *)(z + i * z_row + j * LANES) = sum[i][j];
}

/* M (36, tiles, K) = V (36, tiles, C) U (36, C, K). Tiles past COUNT, up to a multiple of TILES_AT_ONCE, hold anything. */
SGRAD_VECTOR static void products(struct tiling t, int64_t count, int64_t c, int64_t k, const float *v, const float *u, float *m,
                                  const struct soon soon[2]) {
    const int64_t width = panel_width(k);
    for (int point = 0; point < POINTS; point++) {
        for (int64_t column = 0; column < k; column += width)
            for (int64_t i = 0; i < count; i += TILES_AT_ONCE) {
                const float *rows = v + point * point_stride(t.block, c) + i * c, *panel = u + point * point_stride(c, k) + column * c;
                float *to = m + point * point_stride(t.block, k) + i * k + column;
                if (width == LANES) outer_sums(TILES_AT_ONCE, 1, c, rows, c, 1, panel, LANES, to, k, false);
                else outer_sums(TILES_AT_ONCE, 2, c, rows, c, 1, panel, 2 * LANES, to, k, false);
            }
        prefetch(t, soon[0], point);
        prefetch(t, soon[1], point);
    }
}

/* U (36, K, C) = Mᵀ (36, K, tiles) V (36, tiles, C), or added to it. */
SGRAD_VECTOR static void transposed_products(struct tiling t, int64_t count, int64_t c, int64_t k, const float *m, const float *v, float *u,
                                             bool add, const struct soon soon[2]) {
    const int64_t width = panel_width(c), rows = width == LANES ? LANES : LANES / 2;
    for (int point = 0; point < POINTS; point++) {
        for (int64_t column = 0; column < c; column += width)
            for (int64_t row = 0; row < k; row += rows) {
                const float *left = m + point * point_stride(t.block, k) + row, *right = v + point * point_stride(t.block, c) + column;
                float *to = u + point * point_stride(k, c) + row * c + column;
                if (width == LANES) outer_sums(LANES, 1, count, left, 1, k, right, c, to, c, add);
                else outer_sums(LANES / 2, 2, count, left, 1, k, right, c, to, c, add);
            }
        prefetch(t, soon[0], point);
        prefetch(t, soon[1], point);
    }
}

/* ---- what onednn.c calls --------------------------------------------------------------------------------------------- */

/* The images whose windows are taken, and those of the tiles: x and y, but backward-data makes dx out of dy as forward makes y out of x. */
static const int32_t *in_of(const struct sgrad__layer *l) { return l->pass == SGRAD__BACKWARD_DATA ? l->y : l->x; }
static const int32_t *out_of(const struct sgrad__layer *l) { return l->pass == SGRAD__BACKWARD_DATA ? l->x : l->y; }

/* U stays in the second-level cache while the tiles pass in small blocks; or where it is too large, a large block's V stays in the third,
 * while U passes in chunks, made anew for each block. */
static struct tiling tiling_of(const struct sgrad__layer *l) {
    enum { U_MOST = 2 << 20, U_CHUNK = 1 << 20, V_LARGE = 8 << 20, V_AND_M = 384 << 10 };    /* bytes */
    const int32_t *in = in_of(l), *out = out_of(l);
    const int64_t bytes = POINTS * (int64_t)sizeof(float), panels = U_CHUNK / (bytes * in[3] * 2 * LANES);
    const bool chunks = bytes * in[3] * out[3] > U_MOST;
    struct tiling t = { .rows = (out[1] + TILE - 1) / TILE, .columns = (out[2] + TILE - 1) / TILE };
    t.padding = l->pass == SGRAD__BACKWARD_DATA ? 2 - l->padding : l->padding;
    t.count = out[0] * t.rows * t.columns;
    t.chunk = chunks ? (panels ? panels : 1) * 2 * LANES : out[3];
    int64_t most = chunks ? V_LARGE / (bytes * in[3]) : V_AND_M / (bytes * (in[3] + out[3]));
    if (most > t.count) most = t.count;
    if (most < 1) most = 1;
    t.block = (most + TILES_AT_ONCE - 1) / TILES_AT_ONCE * TILES_AT_ONCE;
    return t;
}

/* Where V and M begin in the workspace, after U, in floats; and its size. */
struct rooms {
    int64_t v, m, size;
};
static struct rooms rooms_of(const struct sgrad__layer *l, const struct tiling *t) {
    const int64_t u = POINTS * point_stride(in_of(l)[3], t->chunk), v = POINTS * point_stride(t->block, in_of(l)[3]);
    return (struct rooms){ u, u + v, u + v + POINTS * point_stride(t->block, t->chunk) };
}

bool sgrad__winograd_open(const struct sgrad__layer *l) {
    return l->rank == 4 && l->groups == 1 && l->w[1] == 3 && l->w[2] == 3 && l->stride == 1 && l->dilation == 1 && l->padding <= 2 &&
           l->x[3] % LANES == 0 && l->y[3] % LANES == 0;
}

/* 36 for a window and a filter; 9 for each pixel directly. */
double sgrad__winograd_saving(const struct sgrad__layer *l) {
    const struct tiling t = tiling_of(l);
    return (double)FILTER * out_of(l)[1] * out_of(l)[2] / (double)(POINTS * t.rows * t.columns);
}

size_t sgrad__winograd_workspace(const struct sgrad__layer *l) {
    const struct tiling t = tiling_of(l);
    return (size_t)rooms_of(l, &t).size * sizeof(float);
}

void sgrad__winograd_run(const struct sgrad__layer *l, void *const data[], float *room) {
    const struct tiling t = tiling_of(l);
    const struct rooms at = rooms_of(l, &t);
    const bool forward = l->pass == SGRAD__FORWARD, weight = l->pass == SGRAD__BACKWARD_WEIGHT;
    const int32_t *i = in_of(l), *o = out_of(l);
    const struct images in = { data[0], (enum sgrad_dtype)l->dtype, i[1], i[2], i[3] };
    const struct images out = { data[forward ? 3 : weight ? 1 : 2], (enum sgrad_dtype)l->dtype, o[1], o[2], o[3] };
    const bool chunks = t.chunk < out.channels;
    const float *bias = forward && l->bias ? data[2] : NULL;
    float *u = room, *v = room + at.v, *m = room + at.m, *dbias = weight && l->bias ? data[3] : NULL;
    if (dbias && !l->accumulate) memset(dbias, 0, (size_t)out.channels * sizeof *dbias);
    for (int64_t first = 0, count; first < t.count; first += count) {
        count = t.count - first < t.block ? t.count - first : t.block;
        const int64_t next = first + count, more = t.count - next < t.block ? t.count - next : t.block;
        const struct soon next_in = { in, 0, in.channels, next, more };
        windows(t, in, first, count, v);
        for (int64_t from = 0, c; from < out.channels; from += c) {
            c = out.channels - from < t.chunk ? out.channels - from : t.chunk;
            if (weight) {
                tiles_in(t, out, from, c, first, count, m, dbias);
                transposed_products(t, count, in.channels, c, m, v, u, !chunks && first > 0, (struct soon[]){ next_in, { out, from, c, next, more } });
                if (chunks || next == t.count) filters_back(u, from, c, in.channels, data[2], l->accumulate || (chunks && first > 0));
            } else {
                const bool fresh = chunks || first == 0;
                if (fresh && forward) filters(data[1], from, c, in.channels, u);
                else if (fresh) filters_turned(data[1], in.channels, out.channels, from, c, u);
                products(t, count, in.channels, c, v, u, m, (struct soon[]){ next_in, { out, from, c, first, count } });
                tiles_out(t, out, from, c, first, count, m, bias, l->accumulate);
            }
        }
    }
}
