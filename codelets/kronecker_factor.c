/* kronecker_factor.c: Σ ã ãᵀ over all patches ã of a layer's input, or over the columns of its output's gradient: K-FAC's factors
 * before they are scaled (kronecker.h).
 *
 * Patches are not written out. Two of their elements, of taps (r,s) and (r',s'), are pixels of an image (r'-r, s'-s) taps apart,
 * and most pairs of pixels so far apart are met by every pair of taps so far apart: each product is made once, and added
 * wherever it belongs. Of a 3x3 filter's 45 blocks of A:
 *
 *     (0,0)(0,1)  (0,1)(0,2)  (1,0)(1,1)  (1,1)(1,2)  (2,0)(2,1)  (2,1)(2,2)         all are Σ x[h,w]·x[h,w+1]ᵀ, but at borders
 *
 * so that 13 displacements make all. Borders: the rows of an image are cut into runs, each met by the same taps; with padding 1
 * the first by r = 0 and 1, the last by 1 and 2, those between by all; columns likewise. With a stride runs go by steps.
 *
 * Inside, tiles of 6x16 products, or 16x16 with AVX-512, stay in registers while pixels go by, which are floats, of 16 channels
 * or a multiple, in the workspace. Limits: filters of up to 31x31 taps. On CPUs alone. */
#include "config.h"
#include "codelets/kernels.h"
#include "codelets/kronecker.h"

#include <assert.h>

enum { LEFT = 6, LEFT_AVX512 = 16, RIGHT = 16, RUNS = 128, SHORT = 256 };
static const int64_t CACHE = 512 << 10;     /* bytes of pixels that go by again and again: a part of the second level */

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
    int64_t channels, wide;     /* of a group; in the workspace */
    int64_t length;             /* n */
    bool bias, rows;            /* rows: pixels are met by one tap, each once */
    struct images all;
};

static int64_t positions(int64_t extent, const struct geometry *g) {
    return (extent + 2 * g->padding - (g->taps - 1) * g->dilation - 1) / g->stride + 1;
}

static struct geometry geometry_of(const struct sgrad_args *a) {
    const struct sgrad_kronecker_factor *f = a->attrs;
    const struct sgrad_patches *p = &f->patches;
    const struct sgrad_shape *x = &a->view[0].shape;
    const int64_t channels = x->dim[x->rank - 1], pixels = sgrad_shape_count(x) / channels;
    struct geometry g = { .taps = p->kernel ? p->kernel : 1, .stride = p->kernel ? p->stride : 1, .padding = p->padding,
                          .dilation = p->kernel ? p->dilation : 1, .groups = p->groups, .channels = channels / p->groups,
                          .bias = f->bias };
    g.rows = g.taps == 1 && g.stride == 1 && g.padding == 0;
    g.wide = (g.channels + RIGHT - 1) / RIGHT * RIGHT;
    g.length = sgrad__patch_length(p, channels, f->bias);
    g.all = (struct images){ 1, 1, pixels, 1, pixels };
    if (g.rows) return g;
    const int64_t height = x->dim[x->rank - 3], width = x->dim[x->rank - 2];    /* of images, and of slices of volumes */
    g.all = (struct images){ pixels / (height * width), height, width, positions(height, &g), positions(width, &g) };
    return g;
}

/* Pixels that go by at once: whole images, or of a long row as many as the cache holds. */
static int64_t pixels_at_once(const struct geometry *g) {
    const int64_t fit = CACHE / (g->wide * (int64_t)sizeof(float)), image = g->all.height * g->all.width;
    const int64_t most = g->all.count * image;
    if (g->rows) return fit < most ? fit > 0 ? fit : 1 : most;
    const int64_t images = fit / image < g->all.count ? fit / image : g->all.count;
    return image * (images > 0 ? images : 1);
}

/* Which taps meet line H of EXTENT, where the other pixel is BY taps further? */
static uint32_t taps_at(const struct geometry *g, int64_t h, int64_t extent, int64_t outs, int64_t by) {
    uint32_t taps = 0;
    if (h + by * g->dilation < 0 || h + by * g->dilation >= extent) return 0;
    for (int64_t r = 0; r < g->taps; r++) {
        const int64_t p = h + g->padding - r * g->dilation;
        if (r + by >= 0 && r + by < g->taps && p >= 0 && p % g->stride == 0 && p / g->stride < outs) taps |= 1u << r;
    }
    return taps;
}

static int runs_of(const struct geometry *g, int64_t extent, int64_t outs, int64_t by, struct run run[RUNS]) {
    int count = 0;
    for (int64_t start = 0; start < g->stride && start < extent; start++) {
        uint32_t last = 0;
        for (int64_t h = start; h < extent; h += g->stride) {
            const uint32_t taps = taps_at(g, h, extent, outs, by);
            if (taps && taps != last) {
                assert(count < RUNS);
                run[count++] = (struct run){ h, 0, g->stride, taps };
            }
            if (taps) run[count - 1].count++;
            last = taps;
        }
    }
    return count;
}

/* ---- products ---------------------------------------------------------------------------------------------------------- */

typedef float vec __attribute__((vector_size(4 * RIGHT)));
typedef vec packed __attribute__((aligned(4), may_alias));

/* COUNT pixels, STEP elements from one to the next: sum[i] += left[i]·right, where right lies APART elements further. */
SGRAD_ALWAYS_INLINE void multiply(const float *left, int64_t count, int64_t step, int64_t apart, int height, vec sum[]) {
    for (int64_t w = 0; w < count; w++, left += step) {
        const vec right = *(const packed *)(left + apart);
#pragma GCC unroll 16
        for (int i = 0; i < height; i++) sum[i] += left[i] * right;
    }
}

SGRAD_ALWAYS_INLINE void flush(int height, vec sum[], float to[][RIGHT]) {
#pragma GCC unroll 16
    for (int i = 0; i < height; i++) {
        *(packed *)to[i] += sum[i];
        sum[i] = (vec){ 0 };
    }
}

/* Over the pixels of the runs. No sum is longer than some hundred pixels before it is added to others, for rounding's sake. */
SGRAD_ALWAYS_INLINE void multiply_runs(const struct images *m, const struct run *row, const struct run *column, int64_t wide,
                                       const float *x, int64_t apart, int height, float to[][RIGHT]) {
    vec sum[LEFT_AVX512] = { { 0 } };
    const int64_t step = column->step * wide, line = m->width * wide, image = m->height * line;
    const float *first = x + row->first * line + column->first * wide;
    int64_t pixels = 0;
    memset(to, 0, (size_t)height * sizeof *to);
    for (int64_t n = 0; n < m->count; n++, first += image)
        for (int64_t k = 0; k < row->count; k++)
            for (int64_t begin = 0, count; begin < column->count; begin += count) {
                count = column->count - begin < SHORT ? column->count - begin : SHORT;
                multiply(first + k * row->step * line + begin * step, count, step, apart, height, sum);
                pixels += count;
                if (pixels < SHORT) continue;
                flush(height, sum, to);
                pixels = 0;
            }
    flush(height, sum, to);
}

/* Where a tile of products begins: the block's, and its own in that. */
struct place {
    int64_t row, column, i, j;
};

/* What is inside the block, and of the upper triangle. */
SGRAD_ALWAYS_INLINE void add_tile(const struct geometry *g, float tile[][RIGHT], int most, struct place at, float *sum) {
    const int64_t height = g->channels - at.i < most ? g->channels - at.i : most;
    const int64_t width = g->channels - at.j < RIGHT ? g->channels - at.j : RIGHT;
    for (int64_t i = 0; i < height; i++) {
        const int64_t row = at.row + at.i + i, column = at.column + at.j, first = row > column ? row - column : 0;
        if (first >= width) continue;
        float *to = sum + sgrad__triangle_at(g->length, row, column + first) - first;
        if (first == 0 && width == RIGHT)
            for (int j = 0; j < RIGHT; j++) to[j] += tile[i][j];
        else
            for (int64_t j = first; j < width; j++) to[j] += tile[i][j];
    }
}

/* One tile of all blocks whose taps lie (DOWN,RIGHT) apart. */
SGRAD_ALWAYS_INLINE void add_displacement(const struct geometry *g, const struct images *m, const float *x, int64_t down,
                                          int64_t along, int64_t i, int64_t j, int height, const struct run *row, int rows,
                                          const struct run *column, int columns, float *sum) {
    const int64_t apart = (down * m->width + along) * g->dilation * g->wide + j - i;
    for (int a = 0; a < rows; a++)
        for (int b = 0; b < columns; b++) {
            float tile[LEFT_AVX512][RIGHT];
            multiply_runs(m, &row[a], &column[b], g->wide, x + i, apart, height, tile);
            for (int64_t r = 0; r < g->taps; r++)
                for (int64_t s = 0; s < g->taps; s++)
                    if (row[a].taps >> r & 1 && column[b].taps >> s & 1)
                        add_tile(g, tile, height, (struct place){ (r * g->taps + s) * g->channels,
                                                                  ((r + down) * g->taps + s + along) * g->channels, i, j },
                                 sum);
        }
}

/* The last column: Σ ã, and how many patches there are. */
SGRAD_ALWAYS_INLINE void add_bias(const struct geometry *g, const struct images *m, const float *x, const struct run *row,
                                  int rows, const struct run *column, int columns, float *sum) {
    const int64_t last = g->length - 1;
    for (int a = 0; a < rows; a++)
        for (int b = 0; b < columns; b++)
            for (int64_t c = 0; c < g->channels; c++) {
                double all = 0;
                for (int64_t n = 0; n < m->count; n++)
                    for (int64_t k = 0; k < row[a].count; k++)
                        for (int64_t w = 0; w < column[b].count; w++)
                            all += x[((n * m->height + row[a].first + k * row[a].step) * m->width + column[b].first +
                                      w * column[b].step) * g->wide + c];
                for (int64_t r = 0; r < g->taps; r++)
                    for (int64_t s = 0; s < g->taps; s++)
                        if (row[a].taps >> r & 1 && column[b].taps >> s & 1)
                            sum[sgrad__triangle_at(g->length, (r * g->taps + s) * g->channels + c, last)] += (float)all;
            }
    sum[sgrad__triangle_at(g->length, last, last)] += (float)(m->count * m->outs * m->across);
}

/* X: a group's channels of these images. Tiles have HEIGHT rows. */
SGRAD_ALWAYS_INLINE void add_images(const struct geometry *g, const struct images *m, const float *x, int height, float *sum) {
    struct run row[RUNS], column[RUNS];
    for (int64_t down = 0; down < g->taps; down++)
        for (int64_t along = down ? 1 - g->taps : 0; along < g->taps; along++) {
            const int rows = runs_of(g, m->height, m->outs, down, row), columns = runs_of(g, m->width, m->across, along, column);
            const bool diagonal = !down && !along;
            if (diagonal && g->bias) add_bias(g, m, x, row, rows, column, columns, sum);
            for (int64_t i = 0; i < g->channels; i += height)
                for (int64_t j = diagonal ? i / RIGHT * RIGHT : 0; j < g->channels; j += RIGHT)
                    add_displacement(g, m, x, down, along, i, j, height, row, rows, column, columns, sum);
        }
}

/* COUNT pixels from FIRST on, the channels from CHANNEL on, as floats, WIDE apart. */
SGRAD_ALWAYS_INLINE void take_pixels(const struct geometry *g, enum sgrad_dtype dtype, const void *x, int64_t first,
                                     int64_t count, int64_t channel, float *to) {
    const int64_t all = g->channels * g->groups;
    for (int64_t k = 0; k < count; k++, to += g->wide) {
        for (int64_t c = 0; c < g->channels; c++) to[c] = sgrad_get(dtype, x, (first + k) * all + channel + c);
        for (int64_t c = g->channels; c < g->wide; c++) to[c] = 0;
    }
}

SGRAD_VECTOR(kronecker_factor)(const struct sgrad_args *a) {
    const struct geometry g = geometry_of(a);
    const int64_t image = g.all.height * g.all.width, all = g.all.count * image, most = pixels_at_once(&g);
    const bool wide = sgrad_isa() >= SGRAD_AVX512;      /* there are registers for it */
    float *x = (float *)sgrad_aligned((size_t)a->workspace), *sum = a->data[1];
    if (!sgrad_adds(a, 1)) memset(sum, 0, sgrad_view_bytes(&a->view[1]));
    memset(x + most * g.wide, 0, RIGHT * sizeof *x);     /* a tile may look beyond the last pixel */
    for (int64_t group = 0; group < g.groups; group++, sum += sgrad__triangle(g.length))
        for (int64_t first = 0; first < all; first += most) {
            const int64_t count = all - first < most ? all - first : most;
            struct images m = g.all;
            m.count = count / image;
            if (g.rows) m = (struct images){ 1, 1, count, 1, count };
            if (a->view[0].dtype == SGRAD_F32) take_pixels(&g, SGRAD_F32, a->data[0], first, count, group * g.channels, x);
            else take_pixels(&g, SGRAD_BF16, a->data[0], first, count, group * g.channels, x);
            if (wide) add_images(&g, &m, x, LEFT_AVX512, sum);
            else add_images(&g, &m, x, LEFT, sum);
        }
}

static size_t workspace(const struct sgrad_args *a) {
    const struct geometry g = geometry_of(a);
    return SGRAD_LINE + (size_t)(pixels_at_once(&g) * g.wide + RIGHT) * sizeof(float);
}

/* A multiplication and an addition for each pair of channels, displacement and pixel. */
static double flops(const struct sgrad_args *a) {
    const struct geometry g = geometry_of(a);
    const double side = 2.0 * (double)g.taps - 1, displacements = (side * side + 1) / 2;
    const double pixels = (double)(g.all.count * g.all.height * g.all.width), channels = (double)g.channels;
    return pixels * (double)g.groups * (g.rows ? channels * (channels + 1) : 2 * displacements * channels * channels);
}

const struct sgrad_kernel sgrad_kronecker_factor_kernel = {
    .name = "kronecker_factor",
    .kind = &sgrad_reduction_kind,
    .cpu = kronecker_factor,
    .workspace = workspace,
    .flops = flops,
    .adds = true,
};
