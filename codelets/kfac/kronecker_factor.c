/* kronecker_factor.c: Σ ã ãᵀ over all patches ã of a layer's input, or over the columns of its output's gradient: K-FAC's factors
 * before they are scaled (kronecker.h).
 *
 * Patches are not stored. Two elements of a patch, at taps (r,s) and (r',s'), are pixels of the image that are (r'-r, s'-s) taps
 * apart. Most pairs of pixels at this displacement are covered by every pair of taps at this displacement. So each product is
 * computed once, and added to all blocks of A that contain it. For example, among the 45 blocks of A of a 3x3 filter:
 *
 *     (0,0)(0,1)  (0,1)(0,2)  (1,0)(1,1)  (1,1)(1,2)  (2,0)(2,1)  (2,1)(2,2)       all are Σ x[h,w]·x[h,w+1]ᵀ, except at borders
 *
 * so that 13 displacements are sufficient for all. At borders, the rows of an image are divided into runs, each of which is
 * covered by the same taps. With padding 1 the first row is covered by r = 0 and 1, the last one by 1 and 2, and those between by
 * all. The same is done for columns. With a stride, the lines of a run are a stride apart.
 *
 * In the inner loop, tiles of 6x16 products, or 16x16 with AVX-512, stay in registers, while pixels are read from the workspace
 * as floats, with the channels rounded up to a multiple of 16. bf16 is multiplied by AMX if possible (kronecker_tiles.c). Limits:
 * filters of up to 31x31 taps; CPUs only. */
#include "config.h"
#include "codelets/kfac/kronecker_runs.h"
#include "codelets/kfac/kronecker_tiles.h"

enum { LEFT = 6, LEFT_AVX512 = 16, SHORT = 256 };
static const int64_t CACHE = 512 << 10;     /* bytes of pixels that are read repeatedly: a fraction of the second-level cache */

/* Returns the floats of a pixel in the workspace: its channels, rounded up to a multiple of 16. */
static int64_t floats(const struct geometry *geometry) { return (geometry->channels + RIGHT - 1) / RIGHT * RIGHT; }

/* Returns the number of pixels that are processed together: whole images or, if each pixel is a patch, as many as fit in the
 * cache. */
static int64_t pixels_at_once(const struct geometry *geometry) {
    const int64_t fit = CACHE / (floats(geometry) * (int64_t)sizeof(float)), image = geometry->all.height * geometry->all.width;
    if (geometry->rows) return sgrad_clamp(fit, 1, geometry->all.count * image);
    return image * sgrad_clamp(fit / image, 1, geometry->all.count);
}

/* ---- products ---------------------------------------------------------------------------------------------------------- */

typedef float vec __attribute__((vector_size(4 * RIGHT)));             /* AVX-512 */
typedef float half __attribute__((vector_size(4 * RIGHT / 2)));        /* AVX2 */
typedef vec packed __attribute__((aligned(4), may_alias));
typedef half packed_half __attribute__((aligned(4), may_alias));

/* A tile in registers: wide with AVX-512, else narrow. */
struct sums {
    vec wide[LEFT_AVX512];
    half narrow[LEFT][2];
};

/* For COUNT pixels, STEP elements apart: sum[i] += left[i]·right, where right is DISTANCE elements after left. */
SGRAD_ALWAYS_INLINE void multiply(const float *left, int64_t count, int64_t step, int64_t distance, bool wide, struct sums *sum) {
    for (int64_t w = 0; w < count && wide; w++, left += step) {
        const vec right = *(const packed *)(left + distance);
#pragma GCC unroll 16
        for (int i = 0; i < LEFT_AVX512; i++) sum->wide[i] += left[i] * right;
    }
    for (int64_t w = 0; w < count && !wide; w++, left += step) {
        const half low = *(const packed_half *)(left + distance), high = *(const packed_half *)(left + distance + RIGHT / 2);
#pragma GCC unroll 6
        for (int i = 0; i < LEFT; i++) {
            sum->narrow[i][0] += left[i] * low;
            sum->narrow[i][1] += left[i] * high;
        }
    }
}

SGRAD_ALWAYS_INLINE void flush(bool wide, struct sums *sum, float to[][RIGHT]) {
    for (int i = 0; i < LEFT_AVX512 && wide; i++) *(packed *)to[i] += sum->wide[i], sum->wide[i] = (vec){ 0 };
    for (int i = 0; i < LEFT && !wide; i++)
        for (int j = 0; j < 2; j++) {
            *(packed_half *)&to[i][j * RIGHT / 2] += sum->narrow[i][j];
            sum->narrow[i][j] = (half){ 0 };
        }
}

/* Sets TO to a tile of products, summed over the pixels of the runs. To limit rounding errors, a sum in registers has some
 * hundred pixels at most; it is then added to TO. */
SGRAD_ALWAYS_INLINE void multiply_runs(const struct images *images, const struct run *row, const struct run *column, int64_t wide,
                                       const float *x, int64_t distance, bool wide_tile, float to[][RIGHT]) {
    struct sums sum = { 0 };
    const int64_t step = column->step * wide, line = images->width * wide, image = images->height * line;
    const float *first = x + row->first * line + column->first * wide;
    int64_t pixels = 0;
    memset(to, 0, (wide_tile ? LEFT_AVX512 : LEFT) * sizeof *to);
    for (int64_t n = 0; n < images->count; n++, first += image)
        for (int64_t k = 0; k < row->count; k++)
            for (int64_t begin = 0, count; begin < column->count; begin += count) {
                count = column->count - begin < SHORT ? column->count - begin : SHORT;
                multiply(first + k * row->step * line + begin * step, count, step, distance, wide_tile, &sum);
                pixels += count;
                if (pixels < SHORT) continue;
                flush(wide_tile, &sum, to);
                pixels = 0;
            }
    flush(wide_tile, &sum, to);
}

/* Computes one tile and adds it to all blocks whose taps are (DOWN,ALONG) apart. */
SGRAD_ALWAYS_INLINE void add_displacement(const struct geometry *geometry, const struct images *images, const float *x,
                                          int64_t down, int64_t along, int64_t i, int64_t j, int height, const struct run *row,
                                          int rows, const struct run *column, int columns, float *sum) {
    const int64_t distance = (down * images->width + along) * geometry->dilation * floats(geometry) + j - i;
    for (int a = 0; a < rows; a++)
        for (int b = 0; b < columns; b++) {
            float tile[LEFT_AVX512][RIGHT];
            multiply_runs(images, &row[a], &column[b], floats(geometry), x + i, distance, height == LEFT_AVX512, tile);
            add_tile(geometry, &(struct place){ down, along, i, j, height }, row[a].taps, column[b].taps, tile, sum);
        }
}

/* Adds the last column: Σ ã, and the number of patches. */
SGRAD_ALWAYS_INLINE void add_bias(const struct geometry *geometry, const struct images *images, const float *x,
                                  const struct run *row, int rows, const struct run *column, int columns, float *sum) {
    const int64_t last = geometry->length - 1;
    for (int a = 0; a < rows; a++)
        for (int b = 0; b < columns; b++)
            for (int64_t c = 0; c < geometry->channels; c++) {
                double all = 0;
                for (int64_t n = 0; n < images->count; n++)
                    for (int64_t k = 0; k < row[a].count; k++)
                        for (int64_t w = 0; w < column[b].count; w++)
                            all += x[((n * images->height + row[a].first + k * row[a].step) * images->width + column[b].first +
                                      w * column[b].step) * floats(geometry) + c];
                for (int64_t r = 0; r < geometry->taps; r++)
                    for (int64_t s = 0; s < geometry->taps; s++)
                        if (row[a].taps >> r & 1 && column[b].taps >> s & 1)
                            sum[sgrad__triangle_at(geometry->length, (r * geometry->taps + s) * geometry->channels + c, last)] +=
                                (float)all;
            }
    sum[sgrad__triangle_at(geometry->length, last, last)] += (float)(images->count * images->outs * images->across);
}

/* Adds all products of these images. X: the channels of one group. HEIGHT: the rows of a tile. */
SGRAD_ALWAYS_INLINE void add_images(const struct geometry *geometry, const struct images *images, const float *x, int height,
                                    float *sum) {
    struct run row[RUNS], column[RUNS];
    for (int64_t down = 0; down < geometry->taps; down++)
        for (int64_t along = down ? 1 - geometry->taps : 0; along < geometry->taps; along++) {
            const int rows = sgrad__factor_runs(geometry, images->height, images->outs, down, row);
            const int columns = sgrad__factor_runs(geometry, images->width, images->across, along, column);
            const bool diagonal = !down && !along;
            if (diagonal && geometry->bias) add_bias(geometry, images, x, row, rows, column, columns, sum);
            for (int64_t i = 0; i < geometry->channels; i += height)
                for (int64_t j = diagonal ? i / RIGHT * RIGHT : 0; j < geometry->channels; j += RIGHT)
                    add_displacement(geometry, images, x, down, along, i, j, height, row, rows, column, columns, sum);
        }
}

/* Copies COUNT pixels, from FIRST on, as floats: a group's channels, from CHANNEL on, and zeros up to a multiple of 16. */
SGRAD_ALWAYS_INLINE void take_pixels(const struct geometry *geometry, enum sgrad_dtype dtype, const void *x, int64_t first,
                                     int64_t count, int64_t channel, float *to) {
    const int64_t all = geometry->channels * geometry->groups, wide = floats(geometry);
    for (int64_t k = 0; k < count; k++, to += wide) {
        for (int64_t c = 0; c < geometry->channels; c++) to[c] = sgrad_get(dtype, x, (first + k) * all + channel + c);
        for (int64_t c = geometry->channels; c < wide; c++) to[c] = 0;
    }
}

SGRAD_VECTOR(by_vectors)(const struct sgrad_args *args) {
    const struct geometry g = sgrad__factor_geometry(args);
    const int64_t image = g.all.height * g.all.width, all = g.all.count * image, most = pixels_at_once(&g);
    const bool wide = sgrad_isa() >= SGRAD_AVX512;      /* enough registers for wide tiles */
    float *x = (float *)sgrad_aligned((size_t)args->workspace), *sum = args->data[1];
    if (!sgrad_adds(args, 1)) memset(sum, 0, sgrad_view_bytes(&args->view[1]));
    memset(x + most * floats(&g), 0, RIGHT * sizeof *x);     /* a tile may read beyond the last pixel */
    for (int64_t group = 0; group < g.groups; group++, sum += sgrad__triangle(g.length))
        for (int64_t first = 0; first < all; first += most) {
            const int64_t count = all - first < most ? all - first : most;
            struct images m = g.all;
            m.count = count / image;
            if (g.rows) m = (struct images){ 1, 1, count, 1, count };
            if (args->view[0].dtype == SGRAD_F32) take_pixels(&g, SGRAD_F32, args->data[0], first, count, group * g.channels, x);
            else take_pixels(&g, SGRAD_BF16, args->data[0], first, count, group * g.channels, x);
            if (wide) add_images(&g, &m, x, LEFT_AVX512, sum);
            else add_images(&g, &m, x, LEFT, sum);
        }
}

static void kronecker_factor(const struct sgrad_args *args) {
    if (sgrad__factor_tiles_workspace(args)) sgrad__factor_tiles(args);
    else by_vectors(args);
}

static size_t workspace(const struct sgrad_args *args) {
    const struct geometry g = sgrad__factor_geometry(args);
    const size_t tiles = sgrad__factor_tiles_workspace(args);
    if (tiles) return tiles;
    return SGRAD_LINE + (size_t)(pixels_at_once(&g) * floats(&g) + RIGHT) * sizeof(float);
}

/* Counts a multiplication and an addition for each pair of channels, displacement and pixel. */
static double flops(const struct sgrad_args *args) {
    const struct geometry g = sgrad__factor_geometry(args);
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
    .accumulates = true,
};
