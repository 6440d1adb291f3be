/* tiles_sums.c: forward and backward-data of tiles.c, which describes them. */
#include "config.h"
#include "codelets/cpu/tiles_registers.h"

#if SGRAD_LEVELS

enum {
    BOTH = AT_ONCE / 2,         /* tiles of sums for each of two columns of tiles */
    NARROW = 12,                /* maximum width of an output for which rows of tiles are samples */
    COPY = 128 << 10,           /* bytes of images that are copied at a time: a small fraction of the second-level cache */
    SAMPLES = 768 << 10,        /* the same if rows of tiles are samples: larger, since each panel is multiplied by all of them */
};

/* ---- inputs of an output --------------------------------------------------------------------------------------------- */

/* One dimension of an image, height or width. Output i, at index OUT + i OUT_STEP, reads input FROM + i BY + t DILATION through
 * tap TAP + t TAP_STEP, if this input exists. OUTS, INS and TAPS are the numbers of these. */
struct axis {
    int64_t tap, tap_step, taps, from, by, dilation, out, out_step, outs, ins;
};

static struct axis axis_of(const struct sgrad__layer *layer, int dim, int64_t phase) {
    const int64_t taps = layer->w[dim];
    if (layer->pass == SGRAD__FORWARD)
        return (struct axis){ 0, 1, taps, -layer->padding, layer->stride, layer->dilation, 0, 1, layer->y[dim], layer->x[dim] };
    const int64_t first = layer->stride == 1 ? 0 : (phase + layer->padding) % layer->stride;
    struct axis a = { .tap_step = -layer->stride,
                      .taps = taps > first ? (taps - first - 1) / layer->stride + 1 : 0,
                      .by = 1,
                      .dilation = layer->stride == 1 ? layer->dilation : 1,
                      .out = phase,
                      .out_step = layer->stride,
                      .outs = layer->x[dim] > phase ? (layer->x[dim] - phase - 1) / layer->stride + 1 : 0,
                      .ins = layer->y[dim] };
    a.tap = first + (a.taps - 1) * layer->stride;
    a.from = layer->stride == 1 ? layer->padding - (taps - 1) * layer->dilation
                                : (phase + layer->padding - first) / layer->stride - (a.taps - 1);
    return a;
}
static int64_t phases_of(const struct sgrad__layer *layer) {
    return layer->pass == SGRAD__FORWARD ? 1 : (int64_t)layer->stride * layer->stride;
}

struct sums {
    int64_t samples, height, width, in, out; /* of the input images; channels */
    bool by_samples;                         /* the rows of a tile are samples; false: pixels */
    int64_t touching, slot;                  /* adjacent pixels whose channels a slot contains; elements of a slot, whole tiles */
    int64_t above, left, rows, columns;      /* of the margin; of an image with its margin */
    int64_t row, image;                      /* elements from one row, or image, to the next */
    int64_t block;                           /* images that are copied at a time */
    int64_t filters;                         /* bytes of the packed filters of a phase */
    int64_t line, images, size;              /* bytes: offsets of the line buffer and the images, after the filters; total */
};

/* Return the sizes of a phase's filters for 16 outputs: tiles of a run, runs in a row of taps, and tiles of all. If taps are
 * adjacent, a row of taps is one run; else each tap is one. */
static int64_t run_tiles(const struct sums *sums, const struct axis *axis) {
    return tiles_for(axis->dilation == 1 ? axis->taps : 1, sums->touching) * (sums->slot / TERMS);
}
static int64_t runs_in_row(const struct axis *axis) { return axis->dilation == 1 ? axis->taps > 0 : axis->taps; }
static int64_t panel_tiles(const struct sums *sums, const struct axis *height, const struct axis *width) {
    return height->taps * runs_in_row(width) * run_tiles(sums, width);
}

static int64_t panel_bytes(const struct sums *sums, const struct axis *height, const struct axis *width) {
    return panel_tiles(sums, height, width) * TILE;
}

static struct sums sums_of(const struct sgrad__layer *layer) {
    const bool forward = layer->pass == SGRAD__FORWARD;
    const int32_t *in = forward ? layer->x : layer->y, *out = forward ? layer->y : layer->x;
    struct sums s = { .samples = in[0], .height = in[1], .width = in[2], .in = in[3], .out = out[3], .touching = 1 };
    int64_t below = 0, right = 0, tiles = 0;
    const bool pixels = out[1] == 1 && out[2] == 1 && layer->w[1] == 1 && layer->w[2] == 1;
    const int64_t image = 2 * s.height * s.width * tiles_for(s.in, TERMS) * TERMS, together = least(s.samples, BOTH * SIDE);
    const bool fits = together * image <= SGRAD__TILES_ROOM / 2;
    s.by_samples = pixels || (out[2] <= NARROW && s.samples > SIDE / 2 && s.in >= TERMS && fits);
    for (int64_t phase = 0; phase < phases_of(layer) && s.in < TERMS; phase++) {
        const struct axis w = axis_of(layer, 2, phase % layer->stride);
        if (w.dilation == 1) s.touching = most(s.touching, least(w.taps, TERMS / s.in));
    }
    s.slot = tiles_for(s.touching * s.in, TERMS) * TERMS;
    for (int64_t phase = 0; phase < phases_of(layer); phase++) {
        const struct axis h = axis_of(layer, 1, phase / layer->stride), w = axis_of(layer, 2, phase % layer->stride);
        tiles = most(tiles, panel_tiles(&s, &h, &w));
        if (s.by_samples || h.taps <= 0 || w.taps <= 0) continue;
        s.above = most(s.above, -h.from), s.left = most(s.left, -w.from);
        below = most(below, h.from + (h.outs - 1) * h.by + (h.taps - 1) * h.dilation - (h.ins - 1));
        right = most(right, w.from + (w.outs - 1) * w.by + (w.taps - 1) * w.dilation - (w.ins - 1));
    }
    s.rows = s.above + s.height + below, s.columns = s.left + s.width + right;
    s.row = s.columns * s.slot, s.image = s.rows * s.row;
    if (s.by_samples && s.image / TERMS % 2 == 0) s.image += TERMS; /* not a power of two, which would use few cache sets */
    const int64_t whole = s.by_samples ? BOTH * SIDE : 1, some = (s.by_samples ? SAMPLES : COPY) / (2 * s.image);
    s.block = least(s.samples, most(1, some / whole) * whole);
    s.filters = tiles * tiles_for(s.out, SIDE) * TILE;
    s.line = layer->packed ? 0 : s.filters;
    s.images = s.line + (s.slot != s.in ? tiles_for(2 * (s.columns * s.in + TERMS), SGRAD_LINE) * SGRAD_LINE : 0);
    s.size = s.images + 2 * s.block * s.image;
    return s;
}

static __mmask32 first_terms(int64_t count) { return (__mmask32)((UINT64_C(1) << most(0, least(count, TERMS))) - 1); }

/* Copies a line of pixels to slots. A slot contains the channels of its pixel and, as far as they fit, of the pixels to the
 * right. */
FOR_AMX void spread(const struct sums *sums, const uint16_t *line, uint16_t *to) {
    for (int64_t j = 0; j < sums->columns; j++, line += sums->in) {
        const int64_t terms = least(sums->touching, sums->columns - j) * sums->in;
        for (int64_t i = 0; i < sums->slot; i += TERMS, to += TERMS)
            _mm512_store_si512(to, _mm512_maskz_loadu_epi16(first_terms(terms - i), line + i));
    }
}

/* Copies COUNT images, and sets their margins to zeros. */
FOR_AMX void copy_images(const struct sums *sums, const uint16_t *x, int64_t count, uint16_t *line, uint16_t *to) {
    const int64_t row = sums->width * sums->in, left = sums->left * sums->in, all = sums->columns * sums->in;
    for (int64_t i = 0; i < count; i++)
        for (int64_t r = -sums->above; r < sums->rows - sums->above; r++) {
            uint16_t *at = to + i * sums->image + (r + sums->above) * sums->row, *whole = sums->slot == sums->in ? at : line;
            if (r < 0 || r >= sums->height) {
                memset(at, 0, (size_t)sums->row * sizeof *at);
                continue;
            }
            memset(whole, 0, (size_t)left * sizeof *whole);
            memcpy(whole + left, x + (i * sums->height + r) * row, (size_t)row * sizeof *whole);
            memset(whole + left + row, 0, (size_t)(all - left - row) * sizeof *whole);
            if (whole == line) spread(sums, line, at);
        }
}

/* Packs COUNT B tiles of forward. Column k has the consecutive terms of filter k, from W on. */
FOR_AMX void pack_along(const float *w, int64_t filter, int64_t columns, int64_t terms, int64_t count, __m512i *tile) {
    for (int64_t from = 0; count > 0; count--, from += TERMS, tile += SIDE) {
        const __mmask16 low = first_lanes(terms - from), high = first_lanes(terms - from - LANES);
        vec t[SIDE];
        for (int k = 0; k < SIDE; k++) {
            const float *at = w + k * filter + from;
            const bool there = k < columns;
            t[k] = (vec)_mm512_cvtne2ps_pbh(_mm512_maskz_loadu_ps(there ? high : 0, at + LANES),
                                            _mm512_maskz_loadu_ps(there ? low : 0, at));
        }
        transpose(t);
        for (int j = 0; j < SIDE; j++) tile[j] = (__m512i)t[j];
    }
}

/* Packs the B tiles of forward: columns are filters, and their terms are in the order of the runs. */
static void pack_along_all(const struct sgrad__layer *layer, const struct sums *sums, const struct axis *height,
                           const struct axis *width, const float *weight, char *to) {
    const int64_t channels = layer->w[3], filter = (int64_t)layer->w[1] * layer->w[2] * channels, tiles = sums->slot / TERMS;
    for (int64_t column = 0; column < sums->out; column += SIDE)
        for (int64_t r = 0; r < height->taps; r++)
            for (int64_t tap = 0; tap < width->taps; tap += sums->touching, to += tiles * TILE)
                pack_along(weight + column * filter + (r * layer->w[2] + tap) * channels, filter, least(SIDE, sums->out - column),
                           least(sums->touching, width->taps - tap) * channels, tiles, (__m512i *)to);
}

/* Packs the B tiles of backward-data, two filters at a time. The channels of a tap are a row of a tile in each panel. */
FOR_AMX void pack_across(const struct sgrad__layer *layer, const struct sums *sums, const struct axis *height,
                         const struct axis *width, const float *weight, char *to) {
    const int64_t channels = layer->w[3], filter = (int64_t)layer->w[1] * layer->w[2] * channels, tiles = sums->slot / TERMS;
    const int64_t panel = panel_bytes(sums, height, width), in_row = tiles_for(width->taps, sums->touching) * tiles;
    if (sums->touching * sums->in != sums->slot || width->taps % sums->touching != 0)
        memset(to, 0, (size_t)(panel * tiles_for(sums->out, SIDE)));
    for (int64_t f = 0; f < sums->in; f += 2)
        for (int64_t r = 0; r < height->taps; r++)
            for (int64_t t = 0; t < width->taps; t++) {
                const float *at =
                    weight + f * filter +
                    ((height->tap + r * height->tap_step) * layer->w[2] + width->tap + t * width->tap_step) * channels;
                const int64_t term = t % sums->touching * sums->in + f;
                char *row = to + (r * in_row + t / sums->touching * tiles + term / TERMS) * TILE + term % TERMS / 2 * 4 * SIDE;
                for (int64_t c = 0; c < channels; c += SIDE, row += panel) {
                    const __mmask16 some = first_lanes(channels - c);
                    _mm512_store_si512(row,
                                       interleaved((__m256i)_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(some, at + c)),
                                                   (__m256i)_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(some, at + filter + c))));
                }
            }
}

/* A run of terms: its offset in A, in elements, and in B, in bytes; its number of tiles. */
struct run {
    int64_t a, b, tiles;
};

/* A tile of the output: its first element in A; its offset in the output; the number of its first rows that the previous tile
 * contains, too, and that must not be written again. */
struct place {
    const uint16_t *a;
    int64_t to, done;
};

/* The output of sums: CHANNELS channels, at most 16, of ROWS rows that are STRIDE elements apart. */
struct target {
    uint16_t *data;
    const float *bias;
    int64_t rows, stride, channels;
    bool add;
};

/* Sums to be written: COUNT tiles, for PLACES tiles of the output and, if COUNT is twice that, for the next 16 channels of these.
 * TILE and ROW are the next to be written. */
struct outgoing {
    _Alignas(64) float sum[AT_ONCE][SIDE * SIDE];
    struct place place[AT_ONCE];
    struct target target;
    int64_t places, count, tile, row;
};

/* Two buffers that are used alternately: one is computed while the other one is written. */
struct pipe {
    struct outgoing out[2];
    int turn;
};

INLINE_FOR_AMX void put_rows(struct outgoing *outgoing, int64_t wanted) {
    const struct target t = outgoing->target;
    const __mmask16 some = first_lanes(t.channels);
    const int64_t count = outgoing->count, places = outgoing->places;
    int64_t tile = outgoing->tile, row = outgoing->row;
    while (wanted > 0 && tile < count) {
        const int64_t last = least(t.rows, row + wanted), column = tile < places ? 0 : SIDE;
        const __m512 bias = t.bias ? _mm512_maskz_loadu_ps(some, t.bias + column) : _mm512_setzero_ps();
        const float *from = &outgoing->sum[tile][row * SIDE];
        uint16_t *to = t.data + outgoing->place[tile < places ? tile : tile - places].to + column + row * t.stride;
        wanted -= last - row;
        if (t.add)
            for (; row < last; row++, from += SIDE, to += t.stride) {
                const __m512 there = (__m512)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(some, to)), 16);
                const __m512 x = _mm512_add_ps(_mm512_add_ps(_mm512_load_ps(from), bias), there);
                _mm256_mask_storeu_epi16(to, some, (__m256i)_mm512_cvtneps_pbh(x));
            }
        else
            for (; row < last; row++, from += SIDE, to += t.stride)
                _mm256_mask_storeu_epi16(to, some, (__m256i)_mm512_cvtneps_pbh(_mm512_add_ps(_mm512_load_ps(from), bias)));
        if (row < t.rows) break;
        tile++;
        row = 0;
        if (tile < count) row = outgoing->place[tile < places ? tile : tile - places].done;
    }
    outgoing->tile = tile, outgoing->row = row;
}

/* Computes the sums of COUNT tiles of the output. Meanwhile, the previous sums are written, ROWS_EACH rows after each step. */
INLINE_FOR_AMX void sum_up(int count, const struct place p[AT_ONCE], int64_t stride, int64_t step, const struct run *run,
                           int64_t runs, const char *b, int64_t panel, struct outgoing *before,
                           int64_t rows_each, float sum[AT_ONCE][SIDE * SIDE]) {
    const char *a0 = (const char *)p[0].a, *a1 = (const char *)p[1].a, *a2 = (const char *)p[2].a, *a3 = (const char *)p[3].a,
               *a4 = (const char *)p[4].a, *a5 = (const char *)p[5].a;
#define ZERO(i) TILE_ZERO(i);
#define ADD(i)                                                                                                                   \
    if (count > (i)) {                                                                                                           \
        TILE_LOAD(6, a##i + at, stride);                                                                                         \
        TILE_PRODUCT(i, 6, 7);                                                                                                   \
    }
#define KEEP(i)                                                                                                                  \
    if (!panel && count > (i)) TILE_STORE(i, sum[i], 4 * SIDE);                                                                  \
    if (panel && count > (i) % BOTH) TILE_STORE(i, sum[(i) / BOTH * count + (i) % BOTH], 4 * SIDE);
#define ADD_BOTH(i, first, second)                                                                                               \
    if (count > (i)) {                                                                                                           \
        TILE_LOAD(6, a##i + at, stride);                                                                                         \
        TILE_LOAD(7, right, 4 * SIDE);                                                                                           \
        TILE_PRODUCT(first, 6, 7);                                                                                               \
        TILE_LOAD(7, right + panel, 4 * SIDE);                                                                                   \
        TILE_PRODUCT(second, 6, 7);                                                                                              \
    }
    EACH(ZERO)
    for (int64_t r = 0; r < runs; r++) {
        const char *right = b + run[r].b;
        int64_t at = 2 * run[r].a;
        for (int64_t t = 0; t < run[r].tiles; t++, at += step, right += TILE) {
            if (panel) {
                ADD_BOTH(0, 0, 3)
                ADD_BOTH(1, 1, 4)
                ADD_BOTH(2, 2, 5)
            } else {
                TILE_LOAD(7, right, 4 * SIDE);
                EACH(ADD)
            }
            put_rows(before, rows_each);
        }
    }
    put_rows(before, AT_ONCE * SIDE);
    EACH(KEEP)
#undef ZERO
#undef ADD
#undef ADD_BOTH
#undef KEEP
}

/* Computes the sums of COUNT tiles of the output for target T and, if PANEL is not 0, also for the next 16 channels. PANEL is the
 * distance of the two panels in bytes. */
FOR_AMX void go(struct pipe *pipe, int count, const struct place p[AT_ONCE], int64_t stride, int64_t step, const struct run *run,
                int64_t runs, const char *b, int64_t panel, const struct target *target) {
    struct outgoing *before = &pipe->out[pipe->turn], *o = &pipe->out[pipe->turn ^= 1];
    int64_t tiles = 0;
    for (int64_t r = 0; r < runs; r++) tiles += run[r].tiles;
    const int64_t each = tiles_for(before->count * SIDE, tiles ? tiles : 1);
#define GO(n, distance) sum_up(n, p, stride, step, run, runs, b, distance, before, each, o->sum)
    switch (panel ? AT_ONCE + count : count) {
    case 1: GO(1, 0); break;
    case 2: GO(2, 0); break;
    case 3: GO(3, 0); break;
    case 4: GO(4, 0); break;
    case 5: GO(5, 0); break;
    case 6: GO(6, 0); break;
    case AT_ONCE + 1: GO(1, panel); break;
    case AT_ONCE + 2: GO(2, panel); break;
    default: GO(3, panel); break;
    }
#undef GO
    memcpy(o->place, p, sizeof o->place);
    o->target = *target, o->places = count, o->count = panel ? 2 * count : count, o->tile = 0, o->row = p[0].done;
}

/* Sets RUN to the runs that reach the output at row I, column J from inside the image and its margin, with offsets relative to
 * this output's first element in A. Returns the number of runs. For images with a margin these are all runs. */
static int64_t runs_at(const struct sums *sums, const struct axis *height, const struct axis *width, int64_t i, int64_t j,
                       struct run *run) {
    const int64_t each = run_tiles(sums, width), in_row = runs_in_row(width), a_tap = width->dilation * sums->slot,
                  b_tap = sums->slot / TERMS * TILE;
    const int64_t top = height->from + i * height->by, start = width->from + j * width->by;
    int64_t count = 0, first = 0, last = width->taps;
    while (first < last && start + first * width->dilation < -sums->left) first++;
    while (last > first && start + (last - 1) * width->dilation >= sums->columns - sums->left) last--;
    for (int64_t r = 0; r < height->taps && first < last; r++) {
        const int64_t row = top + r * height->dilation, a = r * height->dilation * sums->row + first * a_tap,
                      b = r * in_row * each * TILE + first * b_tap;
        if (row < -sums->above || row >= sums->rows - sums->above) continue;
        if (width->dilation == 1)
            run[count++] = (struct run){ a, b, tiles_for(last - first, sums->touching) * (sums->slot / TERMS) };
        else for (int64_t t = 0; t < last - first; t++) run[count++] = (struct run){ a + t * a_tap, b + t * b_tap, each };
    }
    return count;
}

/* Computes one phase for COUNT images. IN is pixel 0, 0 of the first one. */
FOR_AMX void convolve(const struct sgrad__layer *layer, const struct sums *sums, const struct axis *height,
                      const struct axis *width, const uint16_t *in, int64_t count, const char *filters, const float *bias,
                      uint16_t *out) {
    const int32_t *dim = layer->pass == SGRAD__FORWARD ? layer->y : layer->x;
    const int64_t out_row = dim[2] * sums->out, out_image = dim[1] * out_row, all = sums->by_samples ? count : width->outs;
    const int64_t across = tiles_for(all, SIDE), rows = tiles_for(all, across), panel = panel_bytes(sums, height, width);
    const int64_t stride = 2 * (sums->by_samples ? sums->image : width->by * sums->slot), step = 2 * TERMS * sums->touching;
    const int64_t places = across * height->outs * (sums->by_samples ? width->outs : count);
    struct run run[2][height->taps * runs_in_row(width) + 1];
    const bool both = sums->by_samples && sums->out % (2 * SIDE) == 0 && panel > 0;      /* 0: no tap reaches the phase */
    const int64_t columns = both ? 2 * SIDE : SIDE, at_once = both ? BOTH : AT_ONCE;
    struct pipe pipe = { .turn = 0 };
    configure(rows);
    for (int64_t column = 0; column < sums->out; column += columns) {
        const struct target t = { out + column,
                                  bias ? bias + column : NULL,
                                  rows,
                                  sums->by_samples ? out_image : width->out_step * sums->out,
                                  least(SIDE, sums->out - column),
                                  layer->accumulate };
        const char *panels = filters + column / SIDE * panel;
        struct place p[AT_ONCE] = { 0 };
        int ready = 0, turn = 0;
        int64_t runs[2] = { 0 };
        for (int64_t k = 0; k < places; k++) {
            const int64_t tile = k % across, first = least(tile * rows, all - rows);
            const int64_t j = sums->by_samples ? k / across % width->outs : first,
                          spot = k / across / (sums->by_samples ? width->outs : 1);
            const int64_t i = spot % height->outs, n = sums->by_samples ? first : spot / height->outs;
            if (k == 0 || (sums->by_samples && tile == 0)) {    /* another pixel, which may have other taps */
                runs[!turn] = runs_at(sums, height, width, i, j, run[!turn]);
                if (ready > 0 && (runs[0] != runs[1] || memcmp(run[0], run[1], (size_t)runs[0] * sizeof **run) != 0)) {
                    go(&pipe, ready, p, stride, step, run[turn], runs[turn], panels, both ? panel : 0, &t);
                    ready = 0;
                }
                turn = !turn;
            }
            p[ready++] = (struct place){
                in + n * sums->image + (height->from + i * height->by) * sums->row + (width->from + j * width->by) * sums->slot,
                n * out_image + (height->out + i * height->out_step) * out_row + (width->out + j * width->out_step) * sums->out,
                tile * rows - first
            };
            if (ready == at_once || k + 1 == places) {
                go(&pipe, ready, p, stride, step, run[turn], runs[turn], panels, both ? panel : 0, &t);
                ready = 0;
            }
        }
    }
    put_rows(&pipe.out[pipe.turn], AT_ONCE * SIDE);
}

static void pack(const struct sgrad__layer *layer, const struct sums *sums, const struct axis *height, const struct axis *width,
                 const float *weight, char *to) {
    if (layer->pass == SGRAD__FORWARD) pack_along_all(layer, sums, height, width, weight, to);
    else pack_across(layer, sums, height, width, weight, to);
}

size_t sgrad__tiles_sums_packed(const struct sgrad__layer *layer) {
    const struct sums s = sums_of(layer);
    return (size_t)(phases_of(layer) * s.filters);
}

void sgrad__tiles_sums_pack(const struct sgrad__layer *layer, const float *weight, char *to) {
    const struct sums s = sums_of(layer);
    for (int64_t phase = 0; phase < phases_of(layer); phase++, to += s.filters) {
        const struct axis h = axis_of(layer, 1, phase / layer->stride), w = axis_of(layer, 2, phase % layer->stride);
        if (h.outs > 0 && w.outs > 0) pack(layer, &s, &h, &w, weight, to);
    }
}

void sgrad__tiles_sums(const struct sgrad__layer *layer, void *const data[], char *room) {
    const struct sums s = sums_of(layer);
    const bool forward = layer->pass == SGRAD__FORWARD;
    const int32_t *dim = forward ? layer->y : layer->x;
    uint16_t *copy = (uint16_t *)(room + s.images);
    const char *packed = layer->packed ? data[1] : NULL;
    const int64_t image = s.height * s.width * s.in, out_image = (int64_t)dim[1] * dim[2] * dim[3];
    for (int64_t phase = 0; phase < phases_of(layer); phase++) {
        const struct axis h = axis_of(layer, 1, phase / layer->stride), w = axis_of(layer, 2, phase % layer->stride);
        if (h.outs <= 0 || w.outs <= 0) continue;
        if (!packed) pack(layer, &s, &h, &w, data[1], room);
        for (int64_t n = 0, count; n < s.samples; n += count) {
            count = least(s.block, s.samples - n);
            const uint16_t *x = (const uint16_t *)data[0] + n * image;
            if (phase == 0 || s.block < s.samples) copy_images(&s, x, count, (uint16_t *)(room + s.line), copy);
            convolve(layer, &s, &h, &w, copy + s.above * s.row + s.left * s.slot, count,
                     packed ? packed + phase * s.filters : room, forward && layer->bias ? data[2] : NULL,
                     (uint16_t *)data[forward ? 3 : 2] + n * out_image);
        }
    }
}

size_t sgrad__tiles_sums_workspace(const struct sgrad__layer *layer) { return (size_t)sums_of(layer).size; }

#endif
