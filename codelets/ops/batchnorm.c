/* batchnorm.c: batch normalisation, fused with the addition and the ReLU that follow it in residual networks:
 *
 *     y = relu?(x̂ · weight + bias + r?),     x̂ = (x - mean) / √(var + eps)
 *
 * Mean and biased variance are per channel, over the *group*, which may be more samples than a micro-batch. Therefore forward and
 * backward are two passes each, connected by sums:
 *
 *     stats:  x            ->  partial 0 = [Σx, Σx²]      ── added over the group ──> sum 0
 *     apply:  x, sum 0     ->  y
 *     sums:   x, dy, sum 0 ->  partial 1 = [Σdz, Σdz·x̂]   ── added over the group ──> sum 1 = [dbias, dweight]
 *     data:   x, dy, sum 0, sum 1  ->  dx, dr = dz
 *
 * where dz is dy, set to 0 where the ReLU is inactive. The passes are bound by memory: each reads each of its tensors once.
 *
 * Exactness. Σx²/n - mean² suffers from cancellation if the mean is larger than the standard deviation. Therefore totals are F64,
 * which suffices for a mean of up to a million standard deviations. Short runs of rows are summed in F32, which is fast, after
 * their first row was subtracted, so that the numbers have the size of the standard deviation ("shifted data": Chan, Golub,
 * LeVeque 1983); the shift is added back in F64. The other passes subtract the mean rounded to F32; the rounding error, known in
 * F64, is included in their constant term. */
#include "config.h"
#include "codelets/kernels.h"
#include "codelets/ops/batchnorm.h"

#include <math.h>

void sgrad__batchnorm_stats_cuda(const struct sgrad_args *args);
void sgrad__batchnorm_moments_cuda(const struct sgrad_args *args);
void sgrad__batchnorm_apply_cuda(const struct sgrad_args *args);
int sgrad__batchnorm_apply_with_cuda(const struct sgrad_args *args, const struct sgrad_next *next, int count);
void sgrad__batchnorm_sums_cuda(const struct sgrad_args *args);
void sgrad__batchnorm_parameters_cuda(const struct sgrad_args *args);
void sgrad__batchnorm_data_cuda(const struct sgrad_args *args);
void sgrad__batchnorm_inference_cuda(const struct sgrad_args *args);
void sgrad__batchnorm_finish_cuda(const struct sgrad_args *args);

/* ---- iteration over rows -----------------------------------------------------------------------------------------
 *
 * x has rows of C channels. Inner loops run over the *lanes* of a line: neighbours in memory, several vectors long for any C.
 * A line consists of several short rows, or of a segment of a long row. Lane j is channel j % C, or channel first + j of a row
 * that was split. With at most 7 lanes:
 *
 *     C = 3:   a b c a b c | a b c a b c | a b c             lines of two rows, the last one shorter
 *     C = 9:   a b c d e f g . . | a b c d e f g . .         channels a to g of every row,
 *              . . . . . . . h i | . . . . . . . h i         then h and i */

enum { LANES = 256, RUN = 64 }; /* maxima: lanes of a line; lines of a tile, which is summed in F32 */

struct tile { /* lines of WIDTH lanes, STRIDE elements apart, the first at element FROM */
    int64_t from, stride, end;
    int lines, width, lanes;
};

static void fit(struct tile *tile) {
    const int64_t left = tile->end - tile->from;
    tile->width = left < tile->lanes ? (int)left : tile->lanes;
    const int64_t lines = left > 0 ? (left - tile->width) / tile->stride + 1 : 0;
    tile->lines = lines < RUN ? (int)lines : RUN;
}

/* tile_first: the first tile of the channels from CHANNEL on. tile_next: the tile after T. After the last one, lines is 0. */
static struct tile tile_first(int64_t channel, int64_t channels, int64_t rows) {
    struct tile t = { .from = channel, .end = rows * channels };
    t.stride = channels < LANES ? LANES / channels * channels : channels;
    t.lanes = (int)(t.stride - channel < LANES ? t.stride - channel : LANES);
    fit(&t);
    return t;
}
static void tile_next(struct tile *tile) {
    tile->from += tile->lines * tile->stride;
    fit(tile);
}

/* ---- values of a channel --------------------------------------------------------------------------------------- */

static int64_t channels_of(const struct sgrad_view *view) { return view->shape.dim[view->shape.rank - 1]; }
static int64_t rows_of(const struct sgrad_view *view) { return sgrad_shape_count(&view->shape) / channels_of(view); }

/* Number of elements of a channel in the group. */
static double group_count(const struct sgrad_args *args) {
    return (double)args->batch->group * ((const struct sgrad_batchnorm *)args->attrs)->area;
}

struct moments {
    double mean, variance; /* biased */
};
static struct moments moments_of(const double *sum, int64_t channels, int64_t c, double count) {
    const double mean = sum[c] / count, variance = sum[channels + c] / count - mean * mean;
    return (struct moments){ mean, variance > 0 ? variance : 0 };
}

/* Per lane, an affine map of x - mean and dz: (x - mean) · x_scale + dz · dz_scale + constant. */
struct lanes {
    float mean[LANES], x_scale[LANES], dz_scale[LANES], constant[LANES];
};
static void set_lane(struct lanes *lanes, int j, double mean, double x_scale, double dz_scale, double constant) {
    lanes->mean[j] = (float)mean;
    lanes->x_scale[j] = (float)x_scale;
    lanes->dz_scale[j] = (float)dz_scale;
    lanes->constant[j] = (float)(constant - (mean - (double)(float)mean) * x_scale);
}
static void repeat_lanes(struct lanes *lanes, int64_t channels) {
    for (int64_t j = channels; j < LANES; j++) {
        lanes->mean[j] = lanes->mean[j - channels];
        lanes->x_scale[j] = lanes->x_scale[j - channels];
        lanes->dz_scale[j] = lanes->dz_scale[j - channels];
        lanes->constant[j] = lanes->constant[j - channels];
    }
}

/* ---- sums ------------------------------------------------------------------------------------------------------ */

/* Returns the sum over the lanes of one channel; CHANNEL is the first of these lanes. */
static double fold(const double *lane, int64_t channel, int64_t channels, int lanes) {
    double sum = 0;
    for (int64_t j = channel; j < lanes; j += channels) sum += lane[j];
    return sum;
}

/* Source of the ReLU's mask: no ReLU; y; or x, from which y is recomputed, because y is absent. */
enum mask { UNMASKED, BY_Y, BY_X };
static enum mask mask_of(const struct sgrad_args *args) {
    if (!((const struct sgrad_batchnorm *)args->attrs)->relu) return UNMASKED;
    return args->data[2] ? BY_Y : BY_X;
}

/* Returns dy, or 0 where the ReLU is inactive. D is x - mean. A NaN in y does not mask the gradient. */
SGRAD_ALWAYS_INLINE float masked(enum sgrad_dtype dtype, enum mask mask, const void *dy, const void *y, int64_t i, float d,
                                 const struct lanes *forward, int j) {
    const float all = sgrad_get(dtype, dy, i);     /* always read: a conditional load would prevent vectorisation */
    float z = mask == BY_Y ? sgrad_get(dtype, y, i) : 1;
    if (mask == BY_X) z = d * forward->x_scale[j] + forward->constant[j];
    return z <= 0 ? 0 : all;
}

/* Which sums to compute: Σx and Σx²; Σdz and Σdz·(x - mean). */
enum mode { OF_X, OF_DZ };

/* Adds N lines: sum += v, product += v · d, where d = x - mean, and v is d (OF_X) or dz (OF_DZ). */
SGRAD_ALWAYS_INLINE void add_lines(enum sgrad_dtype dtype, enum mode mode, enum mask mask, int n, const void *x, const void *dy,
                                   const void *y, int64_t from, const struct tile *tile, const struct lanes *forward, float *sum,
                                   float *product) {
    for (int j = 0; j < tile->width; j++) {
        float s = 0, p = 0;
        for (int line = 0; line < n; line++) {
            const int64_t i = from + line * tile->stride + j;
            const float d = sgrad_get(dtype, x, i) - forward->mean[j];
            const float v = mode == OF_X ? d : masked(dtype, mask, dy, y, i, d, forward, j);
            s += v;
            p += v * d;
        }
        sum[j] += s;
        product[j] += p;
    }
}

/* Sets the map from x to y, without the added input and the ReLU. */
static void set_forward(struct lanes *lanes, int64_t first, int64_t channels, const double *sum, double count, double eps,
                        const float *weight, const float *bias) {
    for (int j = 0; j < LANES && first + j < channels; j++) {
        const int64_t c = first + j;
        const struct moments m = moments_of(sum, channels, c, count);
        set_lane(lanes, j, m.mean, weight[c] / sqrt(m.variance + eps), 0, bias[c]);
    }
    repeat_lanes(lanes, channels);
}

/* Sets the partial sums to [Σx, Σx²] or [Σdz, Σdz·x̂], or adds to them. ARGS has the operands of stats (OF_X) or of sums (OF_DZ).
 * With OF_DZ the mean is SUM0 / count rounded to F32. */
SGRAD_ALWAYS_INLINE void sum_up(enum sgrad_dtype dtype, enum mode mode, enum mask mask, const struct sgrad_args *args,
                                const double *sum0, double *part, bool add) {
    const void *x = args->data[0], *dy = mode == OF_X ? NULL : args->data[1], *y = mode == OF_X ? NULL : args->data[2];
    const int64_t channels = channels_of(&args->view[0]), rows = rows_of(&args->view[0]);
    const double count = group_count(args), eps = (double)((const struct sgrad_batchnorm *)args->attrs)->eps;
    if (!add) memset(part, 0, 2 * channels * sizeof *part);
    for (int64_t first = 0; first < channels; first += LANES) {
        double sums[LANES] = { 0 }, products[LANES] = { 0 };
        struct lanes forward;
        struct tile t = tile_first(first, channels, rows);
        if (mask == BY_X) set_forward(&forward, first, channels, sum0, count, eps, args->data[5], args->data[6]);
        for (int j = 0; mode != OF_X && mask != BY_X && j < t.lanes; j++)
            forward.mean[j] = (float)(sum0[channels < LANES ? j % channels : first + j] / count);
        for (; t.lines; tile_next(&t)) {
            float sum[LANES] = { 0 }, product[LANES] = { 0 };
            int line = 0;
            for (int j = 0; mode == OF_X && j < t.width; j++) forward.mean[j] = sgrad_get(dtype, x, t.from + j);
            for (; line + 4 <= t.lines; line += 4)
                add_lines(dtype, mode, mask, 4, x, dy, y, t.from + line * t.stride, &t, &forward, sum, product);
            for (; line < t.lines; line++)
                add_lines(dtype, mode, mask, 1, x, dy, y, t.from + line * t.stride, &t, &forward, sum, product);
            for (int j = 0; j < t.width; j++) {
                const double k = mode == OF_X ? forward.mean[j] : 0;
                sums[j] += sum[j] + t.lines * k;
                products[j] += product[j] + k * (2.0 * sum[j] + t.lines * k);
            }
        }
        for (int j = 0; j < LANES && first + j < channels; j++) {
            const int64_t c = first + j;
            const double sum = fold(sums, j, channels, t.lanes);
            double product = fold(products, j, channels, t.lanes);
            if (mode != OF_X) {
                const struct moments m = moments_of(sum0, channels, c, count);
                product = (product - sum * (m.mean - (double)(float)m.mean)) / sqrt(m.variance + eps);
            }
            part[c] += sum;
            part[channels + c] += product;
        }
    }
}

/* x (N,H,W,C) or (N,C) -> partial 0 = [Σx, Σx²] (2C) */
SGRAD_VECTOR(stats)(const struct sgrad_args *args) {
    if (args->view[0].dtype == SGRAD_F32)
        sum_up(SGRAD_F32, OF_X, UNMASKED, args, NULL, args->data[1], sgrad_adds(args, 1));
    else
        sum_up(SGRAD_BF16, OF_X, UNMASKED, args, NULL, args->data[1], sgrad_adds(args, 1));
}

SGRAD_ALWAYS_INLINE void sums_masked(enum mask mask, const struct sgrad_args *args) {
    if (args->view[0].dtype == SGRAD_F32) sum_up(SGRAD_F32, OF_DZ, mask, args, args->data[3], args->data[4], sgrad_adds(args, 4));
    else sum_up(SGRAD_BF16, OF_DZ, mask, args, args->data[3], args->data[4], sgrad_adds(args, 4));
}

/* x, dy, y or absent, sum 0 -> partial 1 = [Σdz, Σdz·x̂] (2C); weight and bias are present only if y is absent */
SGRAD_VECTOR(sums)(const struct sgrad_args *args) {
    const enum mask mask = mask_of(args);
    if (mask == UNMASKED) sums_masked(UNMASKED, args);
    else if (mask == BY_Y) sums_masked(BY_Y, args);
    else sums_masked(BY_X, args);
}

/* ---- elementwise passes ---------------------------------------------------------------------------------------- */

/* y = (x - mean) · scale + constant + r, at least FLOOR */
SGRAD_ALWAYS_INLINE void apply_tile(enum sgrad_dtype dtype, const struct tile *tile, const struct lanes *lanes, const void *x,
                                    const void *r, void *restrict y, float floor) {
    for (int line = 0; line < tile->lines; line++) {
        const int64_t from = tile->from + line * tile->stride;
        float room[LANES], *restrict to = sgrad_row_out(dtype, y, from, room);
        for (int j = 0; j < tile->width; j++) {
            float v = (sgrad_get(dtype, x, from + j) - lanes->mean[j]) * lanes->x_scale[j] + lanes->constant[j];
            if (r) v += sgrad_get(dtype, r, from + j);
            to[j] = v < floor ? floor : v;
        }
        sgrad_row_done(dtype, y, from, tile->width, to);
    }
}

SGRAD_ALWAYS_INLINE void apply_tiles(enum sgrad_dtype dtype, struct tile t, const struct lanes *lanes, const void *x,
                                     const void *r, void *y, float floor) {
    for (; t.lines; tile_next(&t))
        if (dtype == SGRAD_F32) apply_tile(SGRAD_F32, &t, lanes, x, r, y, floor);
        else apply_tile(SGRAD_BF16, &t, lanes, x, r, y, floor);
}

/* x, r or absent, weight, bias, and either sum 0 or running mean and variance -> y */
SGRAD_ALWAYS_INLINE void normalise(const struct sgrad_args *args, bool running, void *y) {
    const struct sgrad_batchnorm *attrs = args->attrs;
    const int64_t channels = channels_of(&args->view[0]), rows = rows_of(&args->view[0]);
    const float *weight = args->data[2], *bias = args->data[3];
    const double eps = (double)attrs->eps;
    for (int64_t first = 0; first < channels; first += LANES) {
        struct lanes l;
        for (int j = 0; running && j < LANES && first + j < channels; j++) {
            const int64_t c = first + j;
            const struct moments m = { ((const float *)args->data[4])[c], ((const float *)args->data[5])[c] };
            set_lane(&l, j, m.mean, weight[c] / sqrt(m.variance + eps), 0, bias[c]);
        }
        if (running) repeat_lanes(&l, channels);
        else set_forward(&l, first, channels, args->data[4], group_count(args), eps, weight, bias);
        apply_tiles(args->view[0].dtype, tile_first(first, channels, rows), &l, args->data[0], args->data[1], y,
                    attrs->relu ? 0 : -INFINITY);
    }
}
SGRAD_VECTOR(apply)(const struct sgrad_args *args) { normalise(args, false, args->data[5]); }
SGRAD_VECTOR(inference)(const struct sgrad_args *args) { normalise(args, true, args->data[6]); }

/* dr = dz; dr += dz if ADD is set */
SGRAD_ALWAYS_INLINE void dr_line(enum sgrad_dtype dtype, enum mask mask, bool add, int64_t from, int width, const void *dy,
                                 const void *y, void *restrict dr) {
    float room[LANES];
    float *restrict to = add ? sgrad_row_sum(dtype, dr, from, width, true, room) : sgrad_row_out(dtype, dr, from, room);
    for (int j = 0; j < width; j++) {
        const float dz = masked(dtype, mask, dy, y, from + j, 0, NULL, 0);
        to[j] = add ? to[j] + dz : dz;
    }
    sgrad_row_done(dtype, dr, from, width, to);
}

/* dx = dz · dz_scale + (x - mean) · x_scale + constant; added to dx if ADD is set */
SGRAD_ALWAYS_INLINE void dx_line(enum sgrad_dtype dtype, enum mask mask, bool add, int64_t from, int width,
                                 const struct lanes *forward, const struct lanes *lanes, const void *x, const void *dy,
                                 const void *y, void *restrict dx) {
    float room[LANES];
    float *restrict to = add ? sgrad_row_sum(dtype, dx, from, width, true, room) : sgrad_row_out(dtype, dx, from, room);
    for (int j = 0; j < width; j++) {
        const float d = sgrad_get(dtype, x, from + j) - lanes->mean[j], dz = masked(dtype, mask, dy, y, from + j, d, forward, j);
        const float v = dz * lanes->dz_scale[j] + (d * lanes->x_scale[j] + lanes->constant[j]);
        to[j] = add ? to[j] + v : v;
    }
    sgrad_row_done(dtype, dx, from, width, to);
}

SGRAD_ALWAYS_INLINE void data_tiles(enum sgrad_dtype dtype, enum mask mask, const struct sgrad_args *args, struct tile t,
                                    const struct lanes *forward, const struct lanes *lanes) {
    const void *x = args->data[0], *dy = args->data[1], *y = args->data[2];
    void *dx = args->data[6], *dr = args->data[7];
    const bool add_x = sgrad_adds(args, 6), add_r = sgrad_adds(args, 7);
    for (; t.lines; tile_next(&t))
        for (int line = 0; line < t.lines; line++) {
            const int64_t from = t.from + line * t.stride;
            if (dr && add_r) dr_line(dtype, mask, true, from, t.width, dy, y, dr);
            if (dr && !add_r) dr_line(dtype, mask, false, from, t.width, dy, y, dr);
            if (dx && add_x) dx_line(dtype, mask, true, from, t.width, forward, lanes, x, dy, y, dx);
            if (dx && !add_x) dx_line(dtype, mask, false, from, t.width, forward, lanes, x, dy, y, dx);
        }
}
SGRAD_ALWAYS_INLINE void data_masked(enum mask mask, const struct sgrad_args *args, struct tile t, const struct lanes *forward,
                                     const struct lanes *lanes) {
    if (args->view[0].dtype == SGRAD_F32) data_tiles(SGRAD_F32, mask, args, t, forward, lanes);
    else data_tiles(SGRAD_BF16, mask, args, t, forward, lanes);
}

/* dx = weight / √(var + eps) · (dz - Σdz / n - x̂ · Σdz·x̂ / n)      (Ioffe and Szegedy 2015, section 3)
 * x, dy, y or absent, weight, sum 0, sum 1 -> dx or absent, dr or absent; bias is present only if y is absent */
SGRAD_VECTOR(data)(const struct sgrad_args *args) {
    const struct sgrad_batchnorm *attrs = args->attrs;
    const int64_t channels = channels_of(&args->view[0]), rows = rows_of(&args->view[0]);
    const float *weight = args->data[3];
    const double *sum1 = args->data[5], count = group_count(args);
    const enum mask mask = mask_of(args);
    for (int64_t first = 0; first < channels; first += LANES) {
        struct lanes l, forward;
        for (int j = 0; j < LANES && first + j < channels; j++) {
            const int64_t c = first + j;
            const struct moments m = moments_of(args->data[4], channels, c, count);
            const double inverse = 1 / sqrt(m.variance + (double)attrs->eps), scale = weight[c] * inverse;
            set_lane(&l, j, m.mean, -scale * inverse * sum1[channels + c] / count, scale, -scale * sum1[c] / count);
        }
        repeat_lanes(&l, channels);
        const struct tile t = tile_first(first, channels, rows);
        if (mask == BY_X) set_forward(&forward, first, channels, args->data[4], count, (double)attrs->eps, weight, args->data[8]);
        if (mask == UNMASKED) data_masked(UNMASKED, args, t, &forward, &l);
        else if (mask == BY_Y) data_masked(BY_Y, args, t, &forward, &l);
        else data_masked(BY_X, args, t, &forward, &l);
    }
}

/* ---- per channel ----------------------------------------------------------------------------------------------- */

/* sum 0 -> [mean, unbiased variance] (2C) of this group */
static void moments(const struct sgrad_args *args) {
    const int64_t channels = args->view[0].shape.dim[0] / 2;
    const double count = group_count(args);
    double *stat = args->data[1];
    for (int64_t c = 0; c < channels; c++) {
        const struct moments m = moments_of(args->data[0], channels, c, count);
        stat[c] = m.mean;
        stat[channels + c] = m.variance * count / (count > 1 ? count - 1 : 1);
    }
}

/* sum 1 -> dweight, dbias (C) */
static void parameters(const struct sgrad_args *args) {
    const int64_t channels = args->view[0].shape.dim[0] / 2;
    const double *sum = args->data[0];
    float *weight = args->data[1], *bias = args->data[2];
    for (int64_t c = 0; c < channels; c++) {
        weight[c] = (float)sum[channels + c];
        bias[c] = (float)sum[c];
    }
}

/* Updates the running statistics once per step, by the mean over the groups: Σ over groups of [mean, variance] -> states */
static void finish(const struct sgrad_args *args) {
    const int64_t channels = args->view[0].shape.dim[0] / 2;
    const double momentum = ((const struct sgrad_batchnorm *)args->attrs)->momentum,
                 groups = (double)args->batch->samples / (double)args->batch->group;
    const double *stat = args->data[0];
    float *mean = args->data[1], *variance = args->data[2];
    int64_t *batches = args->data[3];
    for (int64_t c = 0; c < channels; c++) {
        mean[c] = (float)((1 - momentum) * mean[c] + momentum * stat[c] / groups);
        variance[c] = (float)((1 - momentum) * variance[c] + momentum * stat[channels + c] / groups);
    }
    ++*batches;
}

/* ---- shapes ---------------------------------------------------------------------------------------------------- */

static int infer(struct sgrad_signature *signature, void *attributes) {
    struct sgrad_batchnorm *attrs = attributes;
    if (attrs->eps == 0) attrs->eps = 1e-5f;
    if (attrs->momentum == 0) attrs->momentum = 0.1f;
    const struct sgrad_shape *x = &signature->x[0].shape;
    char text[SGRAD_SHAPE_TEXT], other[SGRAD_SHAPE_TEXT];
    sgrad_shape_text(x, text);
    if (x->rank != 5 && x->rank != 4 && x->rank != 2)
        return sgrad_log_error(SGRAD_ESHAPE,
                               "batchnorm: %s: input %s is neither volumes (N,D,H,W,C) nor images (N,H,W,C) nor samples "
                               "(N,C)",
                               signature->layer, text);
    if (signature->inputs > 1 && !sgrad_shape_equal(x, &signature->x[1].shape))
        return sgrad_log_error(SGRAD_ESHAPE, "batchnorm: %s: input %s and the added input %s must have the same shape",
                               signature->layer, text, sgrad_shape_text(&signature->x[1].shape, other));
    if (attrs->eps < 0 || attrs->momentum < 0 || attrs->momentum > 1)
        return sgrad_log_error(SGRAD_EINVAL, "batchnorm: %s: eps %g must be 0 or more, and momentum %g must be from 0 to 1",
                               signature->layer, attrs->eps, attrs->momentum);

    const int channels = (int)x->dim[x->rank - 1];
    signature->cheap_to_recompute = signature->inputs == 1;
    attrs->area = (int)(sgrad_shape_count(x) / x->dim[0] / channels);
    signature->y.shape = *x;
    signature->partial[0] = signature->partial[1] = signature->stat[0] = sgrad_shape(1, 2 * channels);
    signature->p[0] = (struct sgrad_parameter){ .name = "weight", .shape = sgrad_shape(1, channels), .init = SGRAD_ONES };
    signature->p[1] = (struct sgrad_parameter){ .name = "bias", .shape = sgrad_shape(1, channels), .init = SGRAD_ZEROS };
    signature->s[0] = (struct sgrad_parameter){ .name = "running_mean", .shape = sgrad_shape(1, channels), .init = SGRAD_ZEROS };
    signature->s[1] = (struct sgrad_parameter){ .name = "running_var", .shape = sgrad_shape(1, channels), .init = SGRAD_ONES };
    signature->s[2] = (struct sgrad_parameter){ .name = "num_batches_tracked", .dtype = SGRAD_I64, .init = SGRAD_ZEROS };
    return 0;
}

static void describe(const void *attributes, char *text, size_t size) {
    snprintf(text, size, "%s", ((const struct sgrad_batchnorm *)attributes)->relu ? "relu" : "");
}

/* Neighbours have opposite signs and are far from 0, so that the mean is small and y is not near the ReLU's kink. */
static void fill(const struct sgrad_test *test, int input, void *data) {
    const struct sgrad_shape *x = &test->x[input];
    const int64_t channels = x->dim[x->rank - 1], count = sgrad_shape_count(x);
    float *v = data;
    sgrad_fill_nonzero(test, input, data);
    for (int64_t i = 0; i < count; i++)
        if (input) v[i] = 0.1f * v[i];
        else v[i] = ((i / channels + i % channels) % 2 ? 1.0f : -1.0f) + 0.2f * v[i];
}

/* ---- the record ------------------------------------------------------------------------------------------------ */

#define KERNEL(title, of, function)                                                                                              \
    { .name = "batchnorm " title, .kind = of, .cpu = function, .cuda = SGRAD_ON_CUDA(sgrad__batchnorm_##function##_cuda) }
#define ADDING_KERNEL(title, of, function)                                                                                       \
    {                                                                                                                            \
        .name = "batchnorm " title, .kind = of, .accumulates = true, .cpu = function,                                            \
        .cuda = SGRAD_ON_CUDA(sgrad__batchnorm_##function##_cuda)                                                                \
    }

static void onnx(const struct sgrad_signature *signature, const void *attrs, FILE *to) {
    const struct sgrad_batchnorm *b = attrs;
    const bool added = signature->inputs > 1;
    fprintf(to, "%s = BatchNormalization <epsilon = %#.9g, momentum = %#.9g> (x, weight, bias, running_mean, running_var)",
            added || b->relu ? "normal" : "y", b->eps, 1 - b->momentum);
    if (added) fprintf(to, "\n%s = Add (normal, x1)", b->relu ? "sum" : "y");
    if (b->relu) fprintf(to, "\ny = Relu (%s)", added ? "sum" : "normal");
}

const struct sgrad_op sgrad_batchnorm_op = {
    .name = "batchnorm",
    .summary = "batch normalisation, with optional second input to add and optional ReLU",
    .source = "S. Ioffe and C. Szegedy, Batch Normalization, 2015",
    .inputs = 1,
    .optional_inputs = 1,
    .attrs_size = sizeof(struct sgrad_batchnorm),
    .infer = infer,
    .describe = describe,
    .onnx = onnx,
    .forward = { { ADDING_KERNEL("stats", &sgrad_forward_kind, stats), { SGRAD_IN(X, 0), SGRAD_OUT(PARTIAL, 0) } },
                 { KERNEL("moments", &sgrad_forward_kind, moments), { SGRAD_IN(SUM, 0), SGRAD_OUT(STAT, 0) }, SGRAD_GROUP },
                 { { .name = "batchnorm apply", .kind = &sgrad_forward_kind, .cpu = apply,
                     .cuda = SGRAD_ON_CUDA(sgrad__batchnorm_apply_cuda),
                     .cuda_fused = SGRAD_CUDA_WITH(sgrad__batchnorm_apply_with_cuda) },
                   { SGRAD_IN(X, 0), SGRAD_IN(X, 1), SGRAD_IN(P, 0), SGRAD_IN(P, 1), SGRAD_IN(SUM, 0), SGRAD_OUT(Y, 0) } } },
    .backward = { { ADDING_KERNEL("sums", &sgrad_backward_kind, sums),
                    { SGRAD_IN(X, 0), SGRAD_IN(DY, 0), SGRAD_IN(Y, 0), SGRAD_IN(SUM, 0), SGRAD_OUT(PARTIAL, 1),
                      SGRAD_IN_PASSING(P, 0), SGRAD_IN_PASSING(P, 1) } },
                  { KERNEL("parameters", &sgrad_backward_kind, parameters),
                    { SGRAD_IN(SUM, 1), SGRAD_OUT(DP, 0), SGRAD_OUT(DP, 1) },
                    SGRAD_GROUP },
                  { KERNEL("data", &sgrad_backward_kind, data),
                    { SGRAD_IN(X, 0), SGRAD_IN(DY, 0), SGRAD_IN(Y, 0), SGRAD_IN(P, 0), SGRAD_IN(SUM, 0), SGRAD_IN(SUM, 1),
                      SGRAD_OUT(DX, 0), SGRAD_OUT(DX, 1), SGRAD_IN_PASSING(P, 1) } } },
    .inference = { { KERNEL("inference", &sgrad_forward_kind, inference),
                     { SGRAD_IN(X, 0), SGRAD_IN(X, 1), SGRAD_IN(P, 0), SGRAD_IN(P, 1), SGRAD_IN(S, 0), SGRAD_IN(S, 1),
                       SGRAD_OUT(Y, 0) } } },
    .finish = { { { .name = "batchnorm finish", .kind = &sgrad_update_kind, .cpu = finish,
                    .cuda = SGRAD_ON_CUDA(sgrad__batchnorm_finish_cuda), .batched = true },
                  { SGRAD_IN(STAT, 0), SGRAD_INOUT(S, 0), SGRAD_INOUT(S, 1), SGRAD_INOUT(S, 2) }, SGRAD_STEP } },
    .fill = fill,
    .tests = {
        { "16 channels", { { 4, { 4, 5, 6, 16 } } }, &(struct sgrad_batchnorm){ 0 } },
        { "3 channels, relu", { { 4, { 3, 5, 7, 3 } } }, &(struct sgrad_batchnorm){ .relu = true } },
        { "17 channels, residual, relu", { { 4, { 2, 7, 5, 17 } }, { 4, { 2, 7, 5, 17 } } },
          &(struct sgrad_batchnorm){ .relu = true } },
        { "one channel, residual", { { 4, { 3, 9, 11, 1 } }, { 4, { 3, 9, 11, 1 } } }, &(struct sgrad_batchnorm){ 0 } },
        { "samples of 300 features, relu", { { 2, { 6, 300 } } }, &(struct sgrad_batchnorm){ .relu = true } },
        { "more lines than a run", { { 4, { 2, 19, 23, 67 } } }, &(struct sgrad_batchnorm){ .relu = true } },
        { "volumes, relu", { { 5, { 2, 3, 4, 3, 6 } } }, &(struct sgrad_batchnorm){ .relu = true } },
        { "eps 0.1", { { 4, { 2, 3, 3, 5 } } }, &(struct sgrad_batchnorm){ .eps = 0.1f, .momentum = 0.5f } },
    },
};
