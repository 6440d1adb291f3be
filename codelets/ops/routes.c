/* routes.c: moves rows between the rank that has them and the ranks of their experts: routes.h. */
#include "config.h"
#include "codelets/ops/routes.h"
#include "codelets/ops/moves.h"
#include "runtime/partitions.h"

#include <string.h>

/* ---- shapes ------------------------------------------------------------------------------------------------------ */

static int check_ranks(const struct sgrad_signature *signature, const char *axis, int64_t experts) {
    const int ranks = signature->axis->ranks;
    if (ranks <= SGRAD_MAX_INPUTS && experts % ranks == 0) return 0;
    return sgrad_log_error(SGRAD_EINVAL, "%s: %lld experts cannot be divided over the %d ranks of axis %s; the maximum is "
                                         "%d ranks",
                           signature->layer, (long long)experts, ranks, axis, SGRAD_MAX_INPUTS);
}

static int refuse(const struct sgrad_signature *signature) {
    char text[2][SGRAD_SHAPE_TEXT];
    return sgrad_log_error(SGRAD_ESHAPE, "%s: rows (N,T,C) do not fit the weights of experts (N,T,E): %s and %s",
                           signature->layer, sgrad_shape_text(&signature->x[0].shape, text[0]),
                           sgrad_shape_text(&signature->x[1].shape, text[1]));
}

/* Sets the shard of samples with ROWS rows at home, of WIDTH elements. */
static void set_shard(struct sgrad_signature *signature, int64_t rows, int64_t width) {
    const int64_t bytes = SGRAD_LINE + rows * width * (int64_t)sgrad_dtype_size(signature->y.dtype);
    signature->shard = (struct sgrad_view){ SGRAD_U8, { 2, { signature->x[0].shape.dim[0], bytes } } };
}

int sgrad__infer_dispatch(struct sgrad_signature *signature, const char *axis, bool columns) {
    const struct sgrad_shape *x = &signature->x[0].shape, *routes = &signature->x[1].shape;
    SGRAD_TRY(sgrad__infer_move(signature, axis));
    if (x->rank != 3 || routes->rank != 3 || x->dim[1] != routes->dim[1] || (columns && x->dim[2] != routes->dim[2]))
        return refuse(signature);
    if (!signature->axis) return 0;
    SGRAD_TRY(check_ranks(signature, axis, routes->dim[2]));
    signature->y.shape.dim[1] *= signature->axis->ranks;
    if (columns) signature->y.shape.dim[2] /= signature->axis->ranks;
    set_shard(signature, x->dim[1], signature->y.shape.dim[2]);
    return 0;
}

int sgrad__infer_combine(struct sgrad_signature *signature, const char *axis) {
    const struct sgrad_shape *x = &signature->x[0].shape, *routes = &signature->x[1].shape;
    SGRAD_TRY(sgrad__infer_move(signature, axis));
    const int ranks = signature->axis ? signature->axis->ranks : 1;
    if (x->rank != 3 || routes->rank != 3 || x->dim[1] != ranks * routes->dim[1]) return refuse(signature);
    if (!signature->axis) return 0;
    SGRAD_TRY(check_ranks(signature, axis, routes->dim[2]));
    signature->y.shape.dim[1] = routes->dim[1];
    set_shard(signature, routes->dim[1], x->dim[2]);
    return 0;
}

/* ---- shards ------------------------------------------------------------------------------------------------------ */

struct sizes {
    int64_t samples, rows, ranks;           /* N, T, P */
    size_t row, shard;                      /* bytes of a row in a shard; of a sample's shard */
};

/* Returns the number of shards, of which the first is operand FIRST. */
static int64_t shards_from(const struct sgrad_args *args, int first) {
    int64_t count = 0;
    while (count < SGRAD_MAX_INPUTS && args->data[first + count]) count++;
    return count;
}

/* SHARD: the first shard; VALUE: the operand of rows, T of which are a sample at home, or P·T at the experts (AWAY). */
static struct sizes sizes_of(const struct sgrad_args *args, int shard, int value, bool away) {
    const int64_t ranks = shards_from(args, shard), rows = args->view[value].shape.dim[1] / (away ? ranks : 1);
    const struct sgrad_shape *is = &args->view[shard].shape;
    return (struct sizes){ is->dim[0], rows, ranks, (size_t)((is->dim[1] - SGRAD_LINE) / rows), (size_t)is->dim[1] };
}

/* Returns sample N of a shard. */
static char *shard_at(const struct sgrad_args *args, const struct sizes *is, int shard, int64_t n) {
    return (char *)args->data[shard] + (size_t)n * is->shard;
}

/* Returns row R of sample N of a shard. */
static char *row_at(const struct sgrad_args *args, const struct sizes *is, int shard, int64_t n, int64_t r) {
    return shard_at(args, is, shard, n) + SGRAD_LINE + (size_t)r * is->row;
}

static void set_rows(const struct sizes *is, char *shard, int64_t rows) {
    const struct sgrad_counted header = { .used = SGRAD_LINE + rows * (int64_t)is->row, .row = (int64_t)is->shard };
    memcpy(shard, &header, sizeof header);
}

static int64_t rows_in(const struct sizes *is, const char *shard) {
    struct sgrad_counted header;
    memcpy(&header, shard, sizeof header);
    return (header.used - SGRAD_LINE) / (int64_t)is->row;
}

/* Returns true if one of COUNT weights, from element FROM on, is not 0. */
static bool has_weight(enum sgrad_dtype type, const void *weights, int64_t from, int64_t count) {
    for (int64_t e = 0; e < count; e++)
        if (sgrad_get(type, weights, from + e) != 0) return true;
    return false;
}

/* Returns true if row R, counted over all samples, of the ROUTES is routed to rank I of RANKS. */
static bool is_routed(const struct sgrad_view *view, const void *routes, int64_t r, int64_t i, int64_t ranks) {
    const int64_t experts = view->shape.dim[2], own = experts / ranks;
    return has_weight(view->dtype, routes, r * experts + i * own, own);
}

/* Values in rows of which a shard has only its columns are the routes themselves. */
void sgrad__routes_pack(const struct sgrad_args *args) {
    const struct sgrad_view *view = &args->view[0], *routes = &args->view[1];
    const struct sizes is = sizes_of(args, 2, 0, false);
    const size_t stride = (size_t)view->shape.dim[2] * sgrad_dtype_size(view->dtype);
    for (int64_t n = 0; n < is.samples; n++) {
        int64_t count[SGRAD_MAX_INPUTS] = { 0 };
        for (int64_t r = n * is.rows; r < (n + 1) * is.rows; r++)
            for (int64_t i = 0; i < is.ranks; i++) {
                if (!is_routed(routes, args->data[1], r, i, is.ranks)) continue;
                memcpy(row_at(args, &is, 2 + (int)i, n, count[i]++),
                       (const char *)args->data[0] + (size_t)r * stride + (is.row < stride ? (size_t)i * is.row : 0), is.row);
            }
        for (int64_t i = 0; i < is.ranks; i++) set_rows(&is, shard_at(args, &is, 2 + (int)i, n), count[i]);
    }
}

void sgrad__routes_place(const struct sgrad_args *args, int32_t *numbers, bool zeros) {
    enum { VALUE = SGRAD_MAX_INPUTS };
    const struct sizes is = sizes_of(args, 0, VALUE, true);
    for (int64_t n = 0; n < is.samples; n++)
        for (int64_t i = 0; i < is.ranks; i++) {
            const size_t count = (size_t)rows_in(&is, shard_at(args, &is, (int)i, n));
            char *to = (char *)args->data[VALUE] + (size_t)((n * is.ranks + i) * is.rows) * is.row;
            memcpy(to, row_at(args, &is, (int)i, n, 0), count * is.row);
            if (zeros) memset(to + count * is.row, 0, ((size_t)is.rows - count) * is.row);
            if (numbers) numbers[n * is.ranks + i] = (int32_t)count;
        }
}

/* Returns the number of rows in use of block I of sample N, from operand 1. */
static int64_t rows_of_block(const struct sgrad_args *args, const struct sizes *is, int64_t n, int64_t i) {
    const struct sgrad_view *view = &args->view[1];
    if (view->dtype == SGRAD_I32) return ((const int32_t *)args->data[1])[n * is->ranks + i];
    const int64_t experts = view->shape.dim[2], from = (n * is->ranks + i) * is->rows;
    int64_t count = 0;
    while (count < is->rows && has_weight(view->dtype, args->data[1], (from + count) * experts, experts)) count++;
    return count;
}

void sgrad__routes_cut(const struct sgrad_args *args) {
    const struct sizes is = sizes_of(args, 2, 0, true);
    for (int64_t n = 0; n < is.samples; n++)
        for (int64_t i = 0; i < is.ranks; i++) {
            const int64_t count = rows_of_block(args, &is, n, i);
            memcpy(row_at(args, &is, 2 + (int)i, n, 0),
                   (const char *)args->data[0] + (size_t)((n * is.ranks + i) * is.rows) * is.row, (size_t)count * is.row);
            set_rows(&is, shard_at(args, &is, 2 + (int)i, n), count);
        }
}

/* Writes the sum of the ROWS that are not NULL, of COUNT elements, to Y, from element TO on, or adds it. */
SGRAD_ALWAYS_INLINE void sum_rows(enum sgrad_dtype type, const void *const *row, int64_t rows, void *y, int64_t to, int64_t count,
                                  bool add) {
    float y_room[SGRAD_ROW], x_room[SGRAD_ROW];
    for (int64_t j = 0, n; (n = sgrad_chunk(j, count)); j += n) {
        float *sum = sgrad_row_sum(type, y, to + j, n, add, y_room);
        for (int64_t i = 0; i < rows; i++) {
            if (!row[i]) continue;
            const float *x = sgrad_row(type, row[i], j, n, x_room);
            for (int64_t k = 0; k < n; k++) sum[k] += x[k];
        }
        sgrad_row_done(type, y, to + j, n, sum);
    }
}

SGRAD_VECTOR(sum)(const struct sgrad_args *args) {
    enum { ROUTES = SGRAD_MAX_INPUTS, VALUE };
    const struct sgrad_view *view = &args->view[VALUE];
    const struct sizes is = sizes_of(args, 0, VALUE, false);
    const int64_t width = view->shape.dim[2], part = (int64_t)(is.row / sgrad_dtype_size(view->dtype));
    const int64_t parts = part < width ? is.ranks : 1, terms = part < width ? 1 : is.ranks;
    for (int64_t n = 0; n < is.samples; n++) {
        int64_t count[SGRAD_MAX_INPUTS] = { 0 };
        for (int64_t r = n * is.rows; r < (n + 1) * is.rows; r++) {
            const void *row[SGRAD_MAX_INPUTS] = { 0 };
            for (int64_t i = 0; i < is.ranks; i++)
                if (is_routed(&args->view[ROUTES], args->data[ROUTES], r, i, is.ranks))
                    row[i] = row_at(args, &is, (int)i, n, count[i]++);
            for (int64_t i = 0; i < parts; i++)
                sum_rows(view->dtype, row + i, terms, args->data[VALUE], r * width + i * part, part, sgrad_adds(args, VALUE));
        }
    }
}
void sgrad__routes_sum(const struct sgrad_args *args) { sum(args); }
