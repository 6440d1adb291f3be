/* tiles_weight.c: backward-weight of tiles.c, which describes it. */
#include "config.h"
#include "codelets/cpu/tiles_registers.h"

#if SGRAD_LEVELS

enum {
    BAND = 768 << 10,           /* bytes of packed rows of x and dy in the second-level cache */
    WHOLE = 2560 << 10,         /* the same for all rows as one band, if the sums take at least half as much */
};

/* The terms of the sums: in each of GROUPS groups, a column of 32 samples at each pixel of an output of HEIGHT x WIDTH. If images
 * have one pixel, 32 images are a column, and the columns are used as the pixels of a larger image. */
struct columns {
    int64_t groups, height, width;
    int64_t x_sample, x_row, x_column, y_sample, y_row, y_column;   /* elements from one to the next */
    int64_t ins, x_width;        /* of x: blocks of 16 channels; pixels of a row and its margin */
    int64_t outs, chunk, chunks; /* of dy: blocks of 16 channels; pairs of a tap and a block of x in a chunk; chunks */
    int64_t band, ring;          /* rows of dy and of x that are packed at a time */
    int64_t y, sums, size;       /* bytes: start of dy and of the sums, after x; size of the workspace */
    bool whole;                  /* all rows are one band: the workspace has no sums */
    bool flat;                   /* images have one pixel */
};

static struct columns columns_of(const struct sgrad__layer *layer) {
    enum { FLAT_WIDTH = 16 };
    struct columns c = { .groups = tiles_for(layer->x[0], TERMS),
                         .height = layer->y[1],
                         .width = layer->y[2],
                         .x_sample = (int64_t)layer->x[1] * layer->x[2] * layer->x[3],
                         .x_row = (int64_t)layer->x[2] * layer->x[3],
                         .x_column = layer->x[3],
                         .y_sample = (int64_t)layer->y[1] * layer->y[2] * layer->y[3],
                         .y_row = (int64_t)layer->y[2] * layer->y[3],
                         .y_column = layer->y[3] };
    c.flat =
        layer->x[1] == 1 && layer->x[2] == 1 && layer->w[1] == 1 && layer->w[2] == 1 && layer->stride == 1 && layer->padding == 0;
    if (c.flat) {
        const int64_t columns = tiles_for(layer->x[0], TERMS);
        c.groups = 1;
        c.width = least(FLAT_WIDTH, columns), c.height = tiles_for(columns, c.width);
        c.x_sample = layer->x[3], c.x_column = TERMS * c.x_sample, c.x_row = c.width * c.x_column;
        c.y_sample = layer->y[3], c.y_column = TERMS * c.y_sample, c.y_row = c.width * c.y_column;
    }
    c.ins = tiles_for(layer->x[3], SIDE), c.outs = tiles_for(layer->y[3], SIDE);
    c.x_width = (c.width - 1) * layer->stride + (layer->w[2] - 1) * layer->dilation + 1;
    c.chunk = layer->w[2] <= AT_ONCE ? AT_ONCE / layer->w[2] * layer->w[2] : AT_ONCE;
    c.chunks = tiles_for(c.ins * layer->w[2], c.chunk);
    const int64_t x_row = c.ins * c.x_width * TILE, y_row = c.outs * c.width * TILE;
    c.band = least(c.height, most(1, (BAND - (layer->w[1] - 1) * layer->dilation * x_row) / (layer->stride * x_row + y_row)));
    const int64_t rows = (c.height - 1) * layer->stride + (layer->w[1] - 1) * layer->dilation + 1,
                  all = rows * x_row + c.height * y_row;
    const int64_t sums = c.outs * layer->w[1] * c.chunks * c.chunk * TILE;
    if (all <= WHOLE && 2 * sums >= all) c.band = c.height;
    c.ring = (c.band - 1) * layer->stride + (layer->w[1] - 1) * layer->dilation + 1;
    c.whole = c.band == c.height && c.groups == 1;
    c.y = c.ring * x_row;
    c.sums = c.y + c.band * y_row;
    c.size = c.sums + (c.whole ? 0 : sums);
    return c;
}

/* Returns the number of columns of a row, and sets *LAST to the number of samples of its last column: FULL and SAMPLES. If images
 * have one pixel, the last row may have fewer columns, and its last column fewer samples. */
static int64_t columns_in(const struct sgrad__layer *layer, const struct columns *columns, int64_t row, int64_t full,
                          int64_t samples, int64_t *last) {
    *last = samples;
    if (!columns->flat) return full;
    const int64_t count = least(full, tiles_for(layer->x[0], TERMS) - row * full);
    *last = least(TERMS, layer->x[0] - (row * full + count - 1) * TERMS);
    return count;
}

ON_AMX void sgrad__tiles_pack_row(const uint16_t *x, int64_t sample, int64_t column, int64_t count, int64_t samples, int64_t last,
                                  int64_t channels, int64_t first, int64_t width, char *to) {
    const int64_t blocks = tiles_for(channels, SIDE);
    for (int64_t b = 0; b < blocks && x; b++) {
        memset(to + b * width * TILE, 0, (size_t)(first * TILE));
        memset(to + (b * width + first + count) * TILE, 0, (size_t)((width - first - count) * TILE));
    }
    if (!x) memset(to, 0, (size_t)(blocks * width * TILE));
    for (int64_t j = 0; j < SIDE && x; j++)
        for (int64_t i = 0; i < count; i++) {
            const int64_t there = i == count - 1 ? last : samples;
            const uint16_t *low = x + i * column + 2 * j * sample, *high = low + sample;
            for (int64_t b = 0; b < blocks; b++) {
                const __mmask16 some = first_lanes(channels - b * SIDE);
                const __m256i one = _mm256_maskz_loadu_epi16(2 * j < there ? some : 0, low + b * SIDE),
                              other = _mm256_maskz_loadu_epi16(2 * j + 1 < there ? some : 0, high + b * SIDE);
                _mm512_store_si512(to + (b * width + first + i) * TILE + j * 4 * SIDE, interleaved(one, other));
            }
        }
}

ON_AMX void sgrad__tiles_turn(char *tile, int64_t count) {
    for (; count > 0; count--, tile += TILE) {
        vec t[SIDE];
        memcpy(t, tile, TILE);
        transpose(t);
        memcpy(tile, t, TILE);
    }
}

/* Writes the gradient of 16 filters from K on, for tap row R and COUNT pairs of a tap and a channel block, from pair FIRST on. If
 * the layer accumulates, it is added to DW. */
FOR_AMX void put_filters(const struct sgrad__layer *layer, int64_t k, int64_t r, int64_t first, int64_t count, const float *sum,
                         float *dw) {
    const int64_t taps = layer->w[2], channels = layer->w[3], filters = least(SIDE, layer->w[0] - k);
    for (int64_t i = 0; i < count; i++, sum += SIDE * SIDE) {
        const int64_t s = (first + i) % taps, c = (first + i) / taps * SIDE;
        const __mmask16 some = first_lanes(channels - c);
        for (int64_t f = 0; f < filters; f++) {
            float *to = dw + (((k + f) * layer->w[1] + r) * taps + s) * channels + c;
            __m512 x = _mm512_load_ps(sum + f * SIDE);
            if (layer->accumulate) x = _mm512_add_ps(x, _mm512_maskz_loadu_ps(some, to));
            _mm512_mask_storeu_ps(to, some, x);
        }
    }
}

/* The first tile of A and of B of a row. */
struct line {
    const char *a, *b;
};
/* Adds to the COUNT tiles of SUM, for each line, the products of WIDTH tiles of A, stored one after another, and of tiles of B
 * that are BY bytes apart. SHIFT is the offset of the tiles of B in bytes, for each sum. FROM_ZERO: the sums start at 0. */
INLINE_FOR_AMX void sum_columns(int count, const struct line *line, int64_t lines, int64_t width, const int64_t shift[AT_ONCE],
                                int64_t by, bool from_zero, float *sum) {
#define BEGIN(i)                                                                                                                 \
    if (count > (i)) {                                                                                                           \
        if (from_zero) TILE_ZERO(i);                                                                                             \
        else TILE_LOAD(i, sum + (i)*SIDE * SIDE, 4 * SIDE);                                                                      \
    }
#define ADD(i)                                                                                                                   \
    if (count > (i)) {                                                                                                           \
        TILE_LOAD(7, b + shift[i], 4 * SIDE);                                                                                    \
        TILE_PRODUCT(i, 6, 7);                                                                                                   \
    }
#define KEEP(i)                                                                                                                  \
    if (count > (i)) TILE_STORE(i, sum + (i)*SIDE * SIDE, 4 * SIDE);
    EACH(BEGIN)
    for (int64_t j = 0; j < lines; j++) {
        const char *a = line[j].a, *b = line[j].b;
        for (int64_t i = 0; i < width; i++, a += TILE, b += by) {
            TILE_LOAD(6, a, 4 * SIDE);
            EACH(ADD)
        }
    }
    EACH(KEEP)
#undef BEGIN
#undef ADD
#undef KEEP
}

FOR_AMX void columns_go(int count, const struct line *line, int64_t lines, int64_t width, const int64_t shift[AT_ONCE],
                        int64_t by, bool from_zero, float *sum) {
    switch (count) {
    case 1: sum_columns(1, line, lines, width, shift, by, from_zero, sum); break;
    case 2: sum_columns(2, line, lines, width, shift, by, from_zero, sum); break;
    case 3: sum_columns(3, line, lines, width, shift, by, from_zero, sum); break;
    case 4: sum_columns(4, line, lines, width, shift, by, from_zero, sum); break;
    case 5: sum_columns(5, line, lines, width, shift, by, from_zero, sum); break;
    default: sum_columns(6, line, lines, width, shift, by, from_zero, sum); break;
    }
}

FOR_AMX void sum_bias(const struct sgrad__layer *layer, const uint16_t *dy, float *dbias) {
    const int64_t rows = (int64_t)layer->y[0] * layer->y[1] * layer->y[2], out = layer->y[3];
    if (!layer->accumulate) memset(dbias, 0, (size_t)out * sizeof *dbias);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < out; k++) dbias[k] += sgrad_bf16_to_f32(dy[r * out + k]);
}

void sgrad__tiles_weight(const struct sgrad__layer *layer, void *const data[], char *room) {
    const struct columns c = columns_of(layer);
    const uint16_t *x = data[0], *dy = data[1];
    const int64_t taps = layer->w[2], x_row = c.ins * c.x_width * TILE, y_row = c.outs * c.width * TILE;
    _Alignas(64) float sum[AT_ONCE * SIDE * SIDE];
    struct line line[c.band];
    if (layer->bias) sum_bias(layer, dy, data[3]);
    configure(SIDE);
    for (int64_t group = 0; group < c.groups; group++) {
        const int64_t samples = c.flat ? TERMS : least(TERMS, layer->x[0] - group * TERMS);
        int64_t ready = 0; /* packed rows of x, including margins */
        for (int64_t first = 0, rows; first < c.height; first += rows) {
            rows = least(c.band, c.height - first);
            for (int64_t i = first; i < first + rows; i++) {
                int64_t last;
                const int64_t columns = columns_in(layer, &c, i, c.width, samples, &last);
                char *to = room + c.y + (i - first) * y_row;
                const uint16_t *from = dy + group * TERMS * c.y_sample + i * c.y_row;
                sgrad__tiles_pack_row(from, c.y_sample, c.y_column, columns, samples, last, layer->y[3], 0, c.width, to);
                sgrad__tiles_turn(to, c.outs * c.width);
            }
            const int64_t need = (first + rows - 1) * layer->stride + (layer->w[1] - 1) * layer->dilation + 1;
            for (; ready < need; ready++) {
                int64_t last;
                const int64_t row = ready - layer->padding,
                              full = c.flat ? c.width : least(layer->x[2], c.x_width - layer->padding);
                const int64_t columns = columns_in(layer, &c, row, full, samples, &last);
                const bool inside = row >= 0 && (c.flat || row < layer->x[1]) && columns > 0;
                sgrad__tiles_pack_row(inside ? x + group * TERMS * c.x_sample + row * c.x_row : NULL, c.x_sample, c.x_column,
                                      columns, samples, last, layer->x[3], layer->padding, c.x_width,
                                      room + ready % c.ring * x_row);
            }
            for (int64_t k = 0; k < c.outs; k++)
                for (int64_t r = 0; r < layer->w[1]; r++) {
                    int64_t lines = 0;
                    for (int64_t i = 0; i < rows; i++) {
                        const int64_t row = (first + i) * layer->stride + r * layer->dilation;
                        if (row < layer->padding || (!c.flat && row >= layer->padding + layer->x[1])) continue;
                        line[lines++] = (struct line){ room + c.y + i * y_row + k * c.width * TILE, room + row % c.ring * x_row };
                    }
                    for (int64_t chunk = 0; chunk < c.chunks; chunk++) {
                        const int64_t from = chunk * c.chunk, count = least(c.chunk, c.ins * taps - from);
                        float *at = c.whole ? sum
                                            : (float *)(room + c.sums) +
                                                  ((k * layer->w[1] + r) * c.chunks + chunk) * c.chunk * SIDE * SIDE;
                        int64_t shift[AT_ONCE] = { 0 };
                        for (int64_t i = 0; i < count; i++)
                            shift[i] = ((from + i) / taps * c.x_width + (from + i) % taps * layer->dilation) * TILE;
                        columns_go((int)count, line, lines, c.width, shift, layer->stride * TILE, group == 0 && first == 0, at);
                        if (group == c.groups - 1 && first + rows == c.height)
                            put_filters(layer, k * SIDE, r, from, count, at, data[2]);
                    }
                }
        }
    }
}

size_t sgrad__tiles_weight_workspace(const struct sgrad__layer *layer) { return (size_t)columns_of(layer).size; }

#endif
