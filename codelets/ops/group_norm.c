/* group_norm.c: normalises the channels of each sample, group by group, to mean 0 and standard deviation 1 over all pixels. The
 * result is scaled and shifted per channel. An optional ReLU follows:
 *
 *     h = (x - mean) / sqrt(variance + eps)        y = max(0, weight·h + bias)
 *     dz = dy where y > 0, g = weight·dz           dx = (g - mean(g) - h·mean(g·h)) / sqrt(variance + eps)
 *
 * with x, y (N,…,C), weight, bias (C), and the population variance of a group. Samples are independent, so the results do not
 * depend on the batch size: small batches, or patches that are evaluated one by one, work as well as large ones. Data are
 * channels-last, a row of memory is a pixel:
 *
 *     pixel 0    a a a a b b b b        two groups of four channels: rows are added by columns first,
 *     pixel 1    a a a a b b b b        then columns by groups
 */
#include "config.h"
#include "codelets/kernels.h"
#include "codelets/ops/group_norm.h"

#include <math.h>

void sgrad__group_norm_forward_cuda(const struct sgrad_args *args);
void sgrad__group_norm_backward_cuda(const struct sgrad_args *args);

enum { RUN = 64 };      /* rows that are summed in float before the sum is added to a double */

static int infer(struct sgrad_signature *signature, void *attributes) {
    struct sgrad_group_norm *attrs = attributes;
    const struct sgrad_shape *x = &signature->x[0].shape;
    char text[SGRAD_SHAPE_TEXT];
    if (x->rank < 2)
        return sgrad_log_error(SGRAD_ESHAPE, "%s: group_norm requires samples with channels (N,…,C), not %s", signature->layer,
                               sgrad_shape_text(x, text));
    if (attrs->eps == 0) attrs->eps = 1e-5f;
    if (attrs->groups == 0) attrs->groups = 1;
    const int64_t channels = x->dim[x->rank - 1];
    if (attrs->groups < 1 || channels % attrs->groups || attrs->eps < 0)
        return sgrad_log_error(
            SGRAD_EINVAL,
            "%s: group_norm of %lld channels in %d groups, eps %g: groups must divide channels, and eps must be 0 or more",
            signature->layer, (long long)channels, attrs->groups, attrs->eps);
    signature->y.shape = *x;
    signature->p[0] = (struct sgrad_parameter){ .name = "weight", .init = SGRAD_ONES, .shape = { 1, { channels } } };
    signature->p[1] = (struct sgrad_parameter){ .name = "bias", .init = SGRAD_ZEROS, .shape = { 1, { channels } } };
    signature->saved[0] = (struct sgrad_view){ SGRAD_F32, { 3, { x->dim[0], attrs->groups, 2 } } };
    return 0;
}

/* Dimensions of a kernel's data: SAMPLES of ROWS of CHANNELS, in groups of WIDTH channels. BLOCK is the number of channels that
 * are processed together: as many whole groups as fit in a row buffer, at least one. */
struct walk {
    enum sgrad_dtype type;
    int64_t samples, rows, channels, width, block;
};
static struct walk walk_of(const struct sgrad_args *args) {
    const struct sgrad_shape *x = &args->view[0].shape;
    const int64_t channels = x->dim[x->rank - 1], width = channels / ((const struct sgrad_group_norm *)args->attrs)->groups;
    return (struct walk){ args->view[0].dtype, x->dim[0], sgrad_shape_count(x) / x->dim[0] / channels, channels, width,
                          width < SGRAD_ROW ? SGRAD_ROW / width * width : width };
}
static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* ---- forward ------------------------------------------------------------------------------------------------------- */

/* sum[j] = Σ over a sample's rows of (x - mean[j])ⁿ, for COUNT columns from FROM on; n is 2 if SQUARES is set, else 1. */
SGRAD_ALWAYS_INLINE void add_columns(enum sgrad_dtype type, const struct walk *walk, const void *data, int64_t from,
                                     int64_t count, const float *mean, bool squares, double *sum) {
    float run[SGRAD_ROW], room[SGRAD_ROW];
    for (int64_t j = 0; j < count; j++) sum[j] = 0;
    for (int64_t r = 0; r < walk->rows; r += RUN) {
        for (int64_t j = 0; j < count; j++) run[j] = 0;
        for (int64_t i = r; i < least(r + RUN, walk->rows); i++) {
            const float *x = sgrad_row(type, data, from + i * walk->channels, count, room);
            for (int64_t j = 0; j < count; j++) {
                const float d = x[j] - mean[j];
                run[j] += squares ? d * d : d;
            }
        }
        for (int64_t j = 0; j < count; j++) sum[j] += (double)run[j];
    }
}

/* total[g] = the sum over SAMPLE of group g of the block that begins at channel FIRST: of x if MEAN is NULL; else of
 * (x - mean[g])². */
SGRAD_ALWAYS_INLINE void add_groups(enum sgrad_dtype type, const struct walk *walk, const void *data, int64_t sample,
                                    int64_t first, const float *mean, double *total) {
    const int64_t end = least(first + walk->block, walk->channels);
    float of_column[SGRAD_ROW];
    double sum[SGRAD_ROW];
    for (int64_t g = 0; g < (end - first) / walk->width; g++) total[g] = 0;
    for (int64_t c = first, n; (n = sgrad_chunk(c, end)); c += n) {
        for (int64_t j = 0; j < n; j++) of_column[j] = mean ? mean[(c + j - first) / walk->width] : 0;
        add_columns(type, walk, data, sample * walk->rows * walk->channels + c, n, of_column, mean != NULL, sum);
        for (int64_t j = 0; j < n; j++) total[(c + j - first) / walk->width] += sum[j];
    }
}

/* x (N,…,C), weight, bias (C), y (N,…,C), saved (N,groups,2): mean and 1/sqrt(variance + eps) */
SGRAD_ALWAYS_INLINE void forward_as(enum sgrad_dtype type, const struct sgrad_args *args) {
    const struct sgrad_group_norm *attrs = args->attrs;
    const struct walk w = walk_of(args);
    const float *weight = args->data[1], *bias = args->data[2], floor = attrs->relu ? 0 : -INFINITY;
    float *keep = args->data[4], mean[SGRAD_ROW], scale[SGRAD_ROW], x_room[SGRAD_ROW], y_room[SGRAD_ROW];
    double total[SGRAD_ROW];
    const double count = (double)(w.rows * w.width);
    for (int64_t s = 0; s < w.samples; s++)
        for (int64_t first = 0; first < w.channels; first += w.block) {
            const int64_t end = least(first + w.block, w.channels), groups = (end - first) / w.width;
            add_groups(type, &w, args->data[0], s, first, NULL, total);
            for (int64_t g = 0; g < groups; g++) mean[g] = (float)(total[g] / count);
            add_groups(type, &w, args->data[0], s, first, mean, total);
            for (int64_t g = 0; g < groups; g++) {
                float *own = keep + 2 * (s * attrs->groups + first / w.width + g);
                own[0] = mean[g];
                own[1] = scale[g] = (float)(1 / sqrt(total[g] / count + (double)attrs->eps));
            }
            for (int64_t c = first, n; (n = sgrad_chunk(c, end)); c += n) {
                float shift[SGRAD_ROW], by[SGRAD_ROW];
                for (int64_t j = 0; j < n; j++) {
                    const int64_t g = (c + j - first) / w.width;
                    shift[j] = mean[g], by[j] = scale[g] * weight[c + j];
                }
                for (int64_t r = 0; r < w.rows; r++) {
                    const int64_t at = (s * w.rows + r) * w.channels + c;
                    const float *x = sgrad_row(type, args->data[0], at, n, x_room);
                    float *y = sgrad_row_out(type, args->data[3], at, y_room);
                    for (int64_t j = 0; j < n; j++) {
                        const float v = (x[j] - shift[j]) * by[j] + bias[c + j];
                        y[j] = v < floor ? floor : v;
                    }
                    sgrad_row_done(type, args->data[3], at, n, y);
                }
            }
        }
}
SGRAD_VECTOR(forward)(const struct sgrad_args *args) {
    if (args->view[0].dtype == SGRAD_F32) forward_as(SGRAD_F32, args);
    else forward_as(SGRAD_BF16, args);
}

/* ---- backward ------------------------------------------------------------------------------------------------------ */

/* Values of a range of columns: mean and scale of their groups, weight and bias of their channels. */
struct columns {
    float mean[SGRAD_ROW], scale[SGRAD_ROW], weight[SGRAD_ROW], bias[SGRAD_ROW];
};
static void set_columns(struct columns *columns, const struct walk *walk, const float *keep, const float *weight,
                        const float *bias, int64_t from, int64_t count) {
    for (int64_t j = 0; j < count; j++) {
        const float *own = keep + 2 * ((from + j) / walk->width);
        columns->mean[j] = own[0], columns->scale[j] = own[1];
        columns->weight[j] = weight[from + j], columns->bias[j] = bias[from + j];
    }
}

/* Returns dz of column J: dy, or 0 where the ReLU is inactive. */
SGRAD_ALWAYS_INLINE float passed(const struct columns *columns, int64_t j, float h, float dy, bool relu) {
    return !relu || h * columns->weight[j] + columns->bias[j] > 0 ? dy : 0;
}

/* first[j] = Σ dz, second[j] = Σ dz·h over a sample's rows */
SGRAD_ALWAYS_INLINE void add_gradients(enum sgrad_dtype type, const struct walk *walk, const struct columns *columns,
                                       const void *x_data, const void *dy_data, int64_t from, int64_t count, bool relu,
                                       double *first, double *second) {
    float one[SGRAD_ROW], two[SGRAD_ROW], x_room[SGRAD_ROW], dy_room[SGRAD_ROW];
    for (int64_t j = 0; j < count; j++) first[j] = second[j] = 0;
    for (int64_t r = 0; r < walk->rows; r += RUN) {
        for (int64_t j = 0; j < count; j++) one[j] = two[j] = 0;
        for (int64_t i = r; i < least(r + RUN, walk->rows); i++) {
            const float *x = sgrad_row(type, x_data, from + i * walk->channels, count, x_room);
            const float *dy = sgrad_row(type, dy_data, from + i * walk->channels, count, dy_room);
            for (int64_t j = 0; j < count; j++) {
                const float h = (x[j] - columns->mean[j]) * columns->scale[j], dz = passed(columns, j, h, dy[j], relu);
                one[j] += dz;
                two[j] += dz * h;
            }
        }
        for (int64_t j = 0; j < count; j++) first[j] += (double)one[j], second[j] += (double)two[j];
    }
}

/* Computes dx, or adds to it, for a range of columns. FIRST and SECOND have the sums of g and of g·h per group; BASE is the index
 * of the first column in the block. */
SGRAD_ALWAYS_INLINE void give_dx(enum sgrad_dtype type, const struct walk *walk, const struct columns *columns,
                                 const struct sgrad_args *args, int64_t from, int64_t count, int64_t base, const double *first,
                                 const double *second) {
    const bool relu = ((const struct sgrad_group_norm *)args->attrs)->relu;
    const double all = (double)(walk->rows * walk->width);
    float mean_g[SGRAD_ROW], mean_gh[SGRAD_ROW], x_room[SGRAD_ROW], dy_room[SGRAD_ROW], dx_room[SGRAD_ROW];
    for (int64_t j = 0; j < count; j++) {
        mean_g[j] = (float)(first[(base + j) / walk->width] / all);
        mean_gh[j] = (float)(second[(base + j) / walk->width] / all);
    }
    for (int64_t r = 0; r < walk->rows; r++) {
        const int64_t at = from + r * walk->channels;
        const float *x = sgrad_row(type, args->data[0], at, count, x_room);
        const float *dy = sgrad_row(type, args->data[1], at, count, dy_room);
        float *dx = sgrad_row_sum(type, args->data[5], at, count, sgrad_adds(args, 5), dx_room);
        for (int64_t j = 0; j < count; j++) {
            const float h = (x[j] - columns->mean[j]) * columns->scale[j], dz = passed(columns, j, h, dy[j], relu);
            dx[j] += columns->scale[j] * (columns->weight[j] * dz - mean_g[j] - h * mean_gh[j]);
        }
        sgrad_row_done(type, args->data[5], at, count, dx);
    }
}

/* x, dy (N,…,C), weight, bias (C), saved (N,groups,2), dx (N,…,C) or absent, dweight, dbias (C) */
SGRAD_ALWAYS_INLINE void backward_as(enum sgrad_dtype type, const struct sgrad_args *args) {
    const struct sgrad_group_norm *attrs = args->attrs;
    const struct walk w = walk_of(args);
    float *dweight = args->data[6], *dbias = args->data[7];
    double one[SGRAD_ROW], two[SGRAD_ROW], first_of[SGRAD_ROW], second_of[SGRAD_ROW];
    struct columns k;
    if (!sgrad_adds(args, 6)) memset(dweight, 0, sgrad_view_bytes(&args->view[6]));
    if (!sgrad_adds(args, 7)) memset(dbias, 0, sgrad_view_bytes(&args->view[7]));
    for (int64_t s = 0; s < w.samples; s++)
        for (int64_t first = 0; first < w.channels; first += w.block) {
            const float *keep = (const float *)args->data[4] + 2 * s * attrs->groups;
            const int64_t end = least(first + w.block, w.channels), begin = s * w.rows * w.channels;
            for (int64_t g = 0; g < (end - first) / w.width; g++) first_of[g] = second_of[g] = 0;
            for (int64_t c = first, n; (n = sgrad_chunk(c, end)); c += n) {
                set_columns(&k, &w, keep, args->data[2], args->data[3], c, n);
                add_gradients(type, &w, &k, args->data[0], args->data[1], begin + c, n, attrs->relu, one, two);
                for (int64_t j = 0; j < n; j++) {
                    dbias[c + j] += (float)one[j];
                    dweight[c + j] += (float)two[j];
                    first_of[(c + j - first) / w.width] += (double)k.weight[j] * one[j];
                    second_of[(c + j - first) / w.width] += (double)k.weight[j] * two[j];
                }
            }
            for (int64_t c = first, n; args->data[5] && (n = sgrad_chunk(c, end)); c += n) {
                set_columns(&k, &w, keep, args->data[2], args->data[3], c, n);
                give_dx(type, &w, &k, args, begin + c, n, c - first, first_of, second_of);
            }
        }
}
SGRAD_VECTOR(backward)(const struct sgrad_args *args) {
    if (args->view[0].dtype == SGRAD_F32) backward_as(SGRAD_F32, args);
    else backward_as(SGRAD_BF16, args);
}

/* ---- the record ---------------------------------------------------------------------------------------------------- */

static double forward_flops(const struct sgrad_args *args) { return 8.0 * (double)sgrad_shape_count(&args->view[0].shape); }
static double backward_flops(const struct sgrad_args *args) { return 16.0 * (double)sgrad_shape_count(&args->view[0].shape); }

static void describe(const void *attributes, char *text, size_t size) {
    const struct sgrad_group_norm *attrs = attributes;
    snprintf(text, size, "%d groups%s", attrs->groups, attrs->relu ? ", relu" : "");
}

/* ONNX: InstanceNormalization of x reshaped to (N,groups,…). */
static void onnx(const struct sgrad_signature *signature, const void *attributes, FILE *to) {
    const struct sgrad_group_norm *attrs = attributes;
    const int rank = signature->x[0].shape.rank;
    if (rank == 3) return;      /* rows (N,T,C) are channels-last in ONNX, too */
    fprintf(to, "shape = Shape (x)\nparts = Constant <value = int64[3] {0, %d, -1}> ()\ngroups = Reshape (x, parts)\n",
            attrs->groups);
    for (int one = 0; one < 2; one++) {
        fprintf(to, "%s = Constant <value = float[%d] {", one ? "ones" : "zeros", attrs->groups);
        for (int i = 0; i < attrs->groups; i++) fprintf(to, "%s%d", i ? ", " : "", one);
        fputs("}> ()\n", to);
    }
    fprintf(to, "normal = InstanceNormalization <epsilon = %#.9g> (groups, ones, zeros)\nsame = Reshape (normal, shape)\n",
            attrs->eps);
    const bool wide = rank > 3;
    if (wide)
        fprintf(to, "axes = Constant <value = int64[%d] {1, 2%s}> ()\nfactor = Unsqueeze (weight, axes)\n"
                    "offset = Unsqueeze (bias, axes)\n", rank - 2, rank == 5 ? ", 3" : "");
    fprintf(to, "scaled = Mul (same, %s)\n%s = Add (scaled, %s)", wide ? "factor" : "weight", attrs->relu ? "sum" : "y",
            wide ? "offset" : "bias");
    if (attrs->relu) fputs("\ny = Relu (sum)", to);
}

/* Neighbours have opposite signs and are far from 0, so that y is not near the ReLU's kink. */
static void fill(const struct sgrad_test *test, int input, void *data) {
    const struct sgrad_shape *x = &test->x[input];
    const int64_t channels = x->dim[x->rank - 1], count = sgrad_shape_count(x);
    float *v = data;
    sgrad_fill_nonzero(test, input, data);
    for (int64_t i = 0; i < count; i++) v[i] = ((i / channels + i % channels) % 2 ? 1.0f : -1.0f) + 0.2f * v[i];
}

const struct sgrad_op sgrad_group_norm_op = {
    .name = "group_norm",
    .summary = "group normalisation over the channels of each sample, with optional ReLU",
    .source = "Y. Wu and K. He, Group normalization, ECCV 2018",
    .inputs = 1,
    .attrs_size = sizeof(struct sgrad_group_norm),
    .infer = infer,
    .describe = describe,
    .onnx = onnx,
    .forward = { { { .name = "group_norm forward", .kind = &sgrad_forward_kind, .cpu = forward,
                     .cuda = SGRAD_ON_CUDA(sgrad__group_norm_forward_cuda), .flops = forward_flops },
                   .use = { SGRAD_IN(X, 0), SGRAD_IN(P, 0), SGRAD_IN(P, 1), SGRAD_OUT(Y, 0), SGRAD_OUT(SAVED, 0) } } },
    .backward = { { { .name = "group_norm backward", .kind = &sgrad_backward_kind, .cpu = backward,
                      .cuda = SGRAD_ON_CUDA(sgrad__group_norm_backward_cuda), .accumulates = true, .flops = backward_flops },
                    .use = { SGRAD_IN(X, 0), SGRAD_IN(DY, 0), SGRAD_IN(P, 0), SGRAD_IN(P, 1), SGRAD_IN(SAVED, 0),
                             SGRAD_OUT(DX, 0), SGRAD_OUT(DP, 0), SGRAD_OUT(DP, 1) } } },
    .fill = fill,
    .tests = {
        { "16 channels in 4 groups", { { 4, { 2, 5, 6, 16 } } }, &(struct sgrad_group_norm){ .groups = 4 } },
        { "6 channels in 3 groups, relu", { { 4, { 3, 5, 7, 6 } } }, &(struct sgrad_group_norm){ .groups = 3, .relu = true } },
        { "each channel by itself, volumes", { { 5, { 2, 3, 4, 3, 5 } } }, &(struct sgrad_group_norm){ .groups = 5 } },
        { "all together, eps 0.1", { { 4, { 2, 3, 3, 7 } } }, &(struct sgrad_group_norm){ .eps = 0.1f } },
        { "samples of 12 features", { { 2, { 3, 12 } } }, &(struct sgrad_group_norm){ .groups = 2, .relu = true } },
        { "groups longer than a row", { { 3, { 2, 3, 1034 } } }, &(struct sgrad_group_norm){ .groups = 2 } },
        { "more groups than a row", { { 3, { 1, 3, 1030 } } }, &(struct sgrad_group_norm){ .groups = 206, .relu = true } },
        { "more rows than a run", { { 4, { 1, 9, 11, 4 } } }, &(struct sgrad_group_norm){ .groups = 2, .relu = true } },
    },
};
