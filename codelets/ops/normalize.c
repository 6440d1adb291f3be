/* normalize.c: layer norm, or RMS norm, of rows that are split over ranks. x (N,…,C) is this rank's shard. moments (N,…,2P)
 * contains, for each of the P shards of a row, its mean m and its sum of squared differences s (moments.c); a shard has C
 * features. The mean and variance of the whole row, of P·C features, are computed from them:
 *
 *     mean = Σ m / P        variance = Σ (s + C·(m - mean)²) / (P·C)        h = (x - mean) / sqrt(variance + eps)
 *     y = weight·h + bias                                                   weight, bias (C): those of this shard
 *
 * and backward, with g = weight·dy, u = Σ g, v = Σ g·h over this shard, r = 1 / sqrt(variance + eps):
 *
 *     dx = r·g        ds = -r²·v / (2·P·C)        dm = -r·u / P + 2·C·(m - mean)·ds
 *
 * RMS norm has the same formulas with mean = 0, u = 0 and no bias: the mean of the squares is Σ (s + C·m²) / (P·C).          */
#include "config.h"
#include "codelets/cpu/numbers.h"
#include "codelets/ops/normalize.h"

#include <math.h>

static int infer(struct sgrad_signature *signature, void *attributes) {
    struct sgrad_normalize *attrs = attributes;
    const struct sgrad_shape *x = &signature->x[0].shape, *moments = &signature->x[1].shape;
    char text[SGRAD_SHAPE_TEXT], other[SGRAD_SHAPE_TEXT];
    struct sgrad_shape fits = *x;
    if (x->rank >= 2 && moments->rank == x->rank) fits.dim[x->rank - 1] = moments->dim[x->rank - 1];
    if (x->rank < 2 || moments->rank != x->rank || moments->dim[x->rank - 1] % 2 || !sgrad_shape_equal(&fits, moments))
        return sgrad_log_error(SGRAD_ESHAPE, "%s: normalize requires features (N,…,C) and moments (N,…,2P), not %s and %s",
                               signature->layer, sgrad_shape_text(x, text), sgrad_shape_text(moments, other));
    if (attrs->eps == 0) attrs->eps = 1e-5f;
    const int64_t features = x->dim[x->rank - 1];
    signature->y.shape = *x;
    signature->p[0] = (struct sgrad_parameter){ .name = "weight", .init = SGRAD_ONES, .shape = { 1, { features } } };
    if (!attrs->rms)
        signature->p[1] = (struct sgrad_parameter){ .name = "bias", .init = SGRAD_ZEROS, .shape = { 1, { features } } };
    return 0;
}

static int64_t last_of(const struct sgrad_view *view) { return view->shape.dim[view->shape.rank - 1]; }

/* Statistics of a whole row. */
struct whole {
    float mean, scale;          /* scale: 1/sqrt(variance + eps) */
};
SGRAD_ALWAYS_INLINE struct whole whole_of(const float *moments, int64_t parts, int64_t features,
                                          const struct sgrad_normalize *attrs) {
    struct whole is = { 0, 0 };
    float square = 0;
    for (int64_t p = 0; p < parts && !attrs->rms; p++) is.mean += moments[2 * p] / (float)parts;
    for (int64_t p = 0; p < parts; p++) {
        const float off = moments[2 * p] - is.mean;
        square += moments[2 * p + 1] + (float)features * off * off;
    }
    is.scale = 1 / sqrtf(square / (float)(parts * features) + attrs->eps);
    return is;
}

/* Forward: x (N,…,C), moments (N,…,2P), weight, bias (C) or absent, y (N,…,C) */
SGRAD_VECTOR(forward)(const struct sgrad_args *args) {
    const struct sgrad_normalize *attrs = args->attrs;
    const enum sgrad_dtype type = args->view[0].dtype;
    const int64_t features = last_of(&args->view[0]), moments = last_of(&args->view[1]);
    const int64_t rows = sgrad_shape_count(&args->view[0].shape) / features;
    const float *weight = args->data[2], *bias = args->data[3];
    float x_room[SGRAD_ROW], y_room[SGRAD_ROW], m_room[SGRAD_ROW];
    for (int64_t r = 0; r < rows; r++) {
        const float *of = sgrad_row(type, args->data[1], r * moments, moments, m_room);
        const struct whole is = whole_of(of, moments / 2, features, attrs);
        for (int64_t i = 0, n; (n = sgrad_chunk(i, features)); i += n) {
            const float *x = sgrad_row(type, args->data[0], r * features + i, n, x_room);
            float *y = sgrad_row_out(type, args->data[4], r * features + i, y_room);
            for (int64_t j = 0; j < n; j++) y[j] = (x[j] - is.mean) * is.scale * weight[i + j];
            for (int64_t j = 0; bias && j < n; j++) y[j] += bias[i + j];
            sgrad_row_done(type, args->data[4], r * features + i, n, y);
        }
    }
}

/* Backward: x (N,…,C), moments (N,…,2P), dy (N,…,C), weight (C), dx (N,…,C) or absent, dmoments (N,…,2P) or absent,
 * dweight, dbias (C) or absent */
SGRAD_VECTOR(backward)(const struct sgrad_args *args) {
    const struct sgrad_normalize *attrs = args->attrs;
    const enum sgrad_dtype type = args->view[0].dtype;
    const int64_t features = last_of(&args->view[0]), moments = last_of(&args->view[1]), parts = moments / 2;
    const int64_t rows = sgrad_shape_count(&args->view[0].shape) / features;
    const float *weight = args->data[3];
    float *dweight = args->data[6], *dbias = args->data[7];
    float x_room[SGRAD_ROW], dy_room[SGRAD_ROW], dx_room[SGRAD_ROW], m_room[SGRAD_ROW], dm_room[SGRAD_ROW];
    float g[SGRAD_ROW], h[SGRAD_ROW];
    if (!sgrad_adds(args, 6)) memset(dweight, 0, sgrad_view_bytes(&args->view[6]));
    if (dbias && !sgrad_adds(args, 7)) memset(dbias, 0, sgrad_view_bytes(&args->view[7]));
    for (int64_t r = 0; r < rows; r++) {
        const float *of = sgrad_row(type, args->data[1], r * moments, moments, m_room);
        const struct whole is = whole_of(of, parts, features, attrs);
        float sum = 0, product = 0;
        for (int64_t i = 0, n; (n = sgrad_chunk(i, features)); i += n) {
            const float *x = sgrad_row(type, args->data[0], r * features + i, n, x_room);
            const float *dy = sgrad_row(type, args->data[2], r * features + i, n, dy_room);
            for (int64_t j = 0; j < n; j++) g[j] = dy[j] * weight[i + j], h[j] = (x[j] - is.mean) * is.scale;
            for (int64_t j = 0; j < n; j++) dweight[i + j] += dy[j] * h[j];
            for (int64_t j = 0; dbias && j < n; j++) dbias[i + j] += dy[j];
            sum += sum_of(g, n);
            product += sum_of_products(g, h, n);
            if (!args->data[4]) continue;
            float *dx = sgrad_row_sum(type, args->data[4], r * features + i, n, sgrad_adds(args, 4), dx_room);
            for (int64_t j = 0; j < n; j++) dx[j] += is.scale * weight[i + j] * dy[j];
            sgrad_row_done(type, args->data[4], r * features + i, n, dx);
        }
        if (!args->data[5]) continue;
        const float dsquare = -is.scale * is.scale * product / (float)(2 * parts * features);
        const float dmean = attrs->rms ? 0 : -is.scale * sum / (float)parts;
        float *dm = sgrad_row_sum(type, args->data[5], r * moments, moments, sgrad_adds(args, 5), dm_room);
        for (int64_t p = 0; p < parts; p++) {
            dm[2 * p] += dmean + 2 * (float)features * (of[2 * p] - is.mean) * dsquare;
            dm[2 * p + 1] += dsquare;
        }
        sgrad_row_done(type, args->data[5], r * moments, moments, dm);
    }
}

static void describe(const void *attributes, char *text, size_t size) {
    snprintf(text, size, "%s", ((const struct sgrad_normalize *)attributes)->rms ? "RMS" : "");
}

static double forward_flops(const struct sgrad_args *args) { return 4.0 * (double)sgrad_shape_count(&args->view[0].shape); }
static double backward_flops(const struct sgrad_args *args) { return 12.0 * (double)sgrad_shape_count(&args->view[0].shape); }

/* Input 1 gets valid moments: the sums of squares are positive. */
static void fill(const struct sgrad_test *test, int input, void *data) {
    float *x = data;
    for (int64_t i = 0; i < sgrad_shape_count(&test->x[input]); i++)
        if (input == 0) x[i] = sinf((float)(i * i));
        else x[i] = i % 2 ? 3 + cosf((float)i) : 0.3f * sinf(2 * (float)i);
}

const struct sgrad_op sgrad_normalize_op = {
    .name = "normalize",
    .summary = "normalisation of each row by the moments of its shards, then scale and shift: second part of a sharded "
               "layer_norm or rms_norm",
    .source = "J. Ba, J. Kiros, G. Hinton, Layer normalization, 2016; B. Zhang, R. Sennrich, Root mean square layer "
              "normalization, 2019",
    .describe = describe,
    .inputs = 2,
    .attrs_size = sizeof(struct sgrad_normalize),
    .infer = infer,
    .forward = { { { .name = "normalize forward", .kind = &sgrad_forward_kind, .cpu = forward, .flops = forward_flops },
                   { SGRAD_IN(X, 0), SGRAD_IN(X, 1), SGRAD_IN(P, 0), SGRAD_IN(P, 1), SGRAD_OUT(Y, 0) } } },
    .backward = { { { .name = "normalize backward", .kind = &sgrad_backward_kind, .cpu = backward, .accumulates = true,
                      .flops = backward_flops },
                    { SGRAD_IN(X, 0), SGRAD_IN(X, 1), SGRAD_IN(DY, 0), SGRAD_IN(P, 0), SGRAD_OUT(DX, 0), SGRAD_OUT(DX, 1),
                      SGRAD_OUT(DP, 0), SGRAD_OUT(DP, 1) } } },
    .fill = fill,
    .tests = {
        { "one row of 5, its own moments", { { 2, { 1, 5 } }, { 2, { 1, 2 } } } },
        { "3 samples of 4 rows of 17, one of two parts", { { 3, { 3, 4, 17 } }, { 3, { 3, 4, 4 } } } },
        { "longer than a row, one of four parts, eps 0.1", { { 2, { 3, 531 } }, { 2, { 3, 8 } } },
          &(struct sgrad_normalize){ .eps = 0.1f } },
        { "RMS, 3 samples of 4 rows of 17, one of two parts", { { 3, { 3, 4, 17 } }, { 3, { 3, 4, 4 } } },
          &(struct sgrad_normalize){ .rms = true } },
    },
};
