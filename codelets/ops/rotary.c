/* rotary.c: rotary positions. In the row of position t, each pair of features of a head, D/2 apart, is rotated by an angle that
 * is proportional to t:
 *
 *     y_i = x_i cos(t·f_i) - x_j sin(t·f_i)      y_j = x_j cos(t·f_i) + x_i sin(t·f_i)      j = i + D/2,   f_i = base^(-2i/D)
 *
 * so that the product of a query and a key depends on the distance of their positions. x, y (N,T,C), with heads of D = C/heads
 * features, in the order of Hugging Face's Llama. With .cached, for networks with a key-value cache, the input is one row per
 * step; its position is the step's number minus 1. If rows are split over ranks along .axis, the input is those of one rank.
 *
 * FACTOR divides all frequencies (linear scaling). If ORIGINAL is set, it is the context before the extension of Llama 3.1, and
 * FACTOR divides only the frequencies below LOW turns in that context; those above HIGH are unchanged, those between
 * interpolated. If LISTED, f_i is FREQUENCY[i] instead.
 *
 * Angles are products in F32, as in Hugging Face's implementation. Backward rotates by the opposite angle.
 *
 * Sources: J. Su et al., RoFormer: enhanced transformer with rotary position embedding, 2021; Llama 3.1's model (scaling). */
#include "config.h"
#include "codelets/kernels.h"
#include "codelets/ops/frequencies.h"
#include "codelets/ops/zigzag.h"

#include <stdlib.h>

void sgrad__rotary_forward_cuda(const struct sgrad_args *args);
void sgrad__rotary_backward_cuda(const struct sgrad_args *args);

static int infer(struct sgrad_signature *signature, void *attributes) {
    struct sgrad_rotary *attrs = attributes;
    const struct sgrad_shape *x = &signature->x[0].shape;
    char text[SGRAD_SHAPE_TEXT];
    if (attrs->heads == 0) attrs->heads = 1;
    if (attrs->base == 0) attrs->base = 10000;
    if (attrs->factor == 0) attrs->factor = 1;
    if (attrs->low == 0) attrs->low = 1;
    if (attrs->high == 0) attrs->high = 4;
    if (x->rank != 3 || attrs->heads < 0 || x->dim[2] % (2 * (int64_t)attrs->heads) ||
        x->dim[2] / attrs->heads > 2 * SGRAD_MAX_FREQUENCIES)
        return sgrad_log_error(SGRAD_ESHAPE,
                               "%s: rotary requires rows (N,T,C) of %d heads of an even number of at most %d features, "
                               "not %s",
                               signature->layer, attrs->heads, 2 * SGRAD_MAX_FREQUENCIES, sgrad_shape_text(x, text));
    signature->y.shape = *x;
    return 0;
}

static void set_rank(const struct sgrad_signature *signature, int rank, void *attributes) {
    struct sgrad_rotary *attrs = attributes;
    attrs->rows = sgrad__zigzag_of(signature->mesh, attrs->axis, rank, signature->x[0].shape.dim[1]);
}

/* ---- the table of cosines and sines, one per worker and shape ------------------------------------------------------ */

struct key {
    int64_t rows, size;
    struct sgrad_zigzag at;
    float frequency[SGRAD_MAX_FREQUENCIES];
};

/* Row t of the table is D/2 cosines, then D/2 sines. */
static void fill_row(const float *frequency, int64_t t, int64_t size, float *row) {
    for (int i = 0; i < size / 2; i++) {
        const float angle = (float)t * frequency[i];
        row[i] = (float)cos((double)angle);
        row[size / 2 + i] = (float)sin((double)angle);
    }
}

static void table_free(void *value) { free(*(float **)value); }

/* Returns the table of the positions of all rows, which the first call of a worker computes; NULL: out of memory. */
static const float *table_of(const struct key *key) {
    static struct sgrad_cache cache = { .key_size = sizeof(struct key), .value_size = sizeof(float *), .destroy = table_free };
    bool created;
    float **table = sgrad_cache_get(&cache, key, &created);
    if (created && (*table = malloc((size_t)(key->rows * key->size) * sizeof **table)))
        for (int64_t t = 0; t < key->rows; t++)
            fill_row(key->frequency, sgrad_zigzag_position(&key->at, t), key->size, *table + t * key->size);
    return *table;
}

/* ---- tasks -------------------------------------------------------------------------------------------------------- */

/* Rotates a head's row X by the angles of ROW, or by the opposite angles, and adds the result to Y. */
SGRAD_ALWAYS_INLINE void rotate(const float *x, const float *row, int64_t half, bool back, float *y) {
    const float *cosine = row, *sine = row + half, sign = back ? -1 : 1;
    for (int64_t i = 0; i < half; i++) {
        const float a = x[i], b = x[half + i], s = sign * sine[i];
        y[i] += a * cosine[i] - b * s;
        y[half + i] += b * cosine[i] + a * s;
    }
}

/* Rotates all rows of operand 0; writes them to operand 1, or adds them. */
SGRAD_ALWAYS_INLINE void rotate_all(const struct sgrad_args *args, bool back) {
    const struct sgrad_rotary *attrs = args->attrs;
    const enum sgrad_dtype type = args->view[0].dtype;
    const int64_t *dim = args->view[0].shape.dim, size = dim[2] / attrs->heads;
    const bool add = sgrad_adds(args, 1);
    float own[SGRAD_ROW], x_room[SGRAD_ROW], y_room[SGRAD_ROW];
    struct key key;
    memset(&key, 0, sizeof key);
    key.rows = dim[1], key.size = size, key.at = attrs->rows;
    for (int i = 0; i < size / 2; i++) key.frequency[i] = sgrad__frequency(attrs, (int)size, i);
    const float *table = attrs->cached ? NULL : table_of(&key);
    if (attrs->cached) fill_row(key.frequency, (int64_t)args->step->number - 1, size, own);
    for (int64_t n = 0, from = 0; n < dim[0]; n++)
        for (int64_t t = 0; t < dim[1]; t++) {
            const float *row = own;
            if (table) row = table + t * size;
            else if (!attrs->cached) fill_row(key.frequency, sgrad_zigzag_position(&key.at, t), size, own);
            for (int h = 0; h < attrs->heads; h++, from += size) {
                const float *x = sgrad_row(type, args->data[0], from, size, x_room);
                float *y = sgrad_row_sum(type, args->data[1], from, size, add, y_room);
                rotate(x, row, size / 2, back, y);
                sgrad_row_done(type, args->data[1], from, size, y);
            }
        }
}

/* x, y (N,T,C) */
SGRAD_VECTOR(forward)(const struct sgrad_args *args) { rotate_all(args, false); }

/* dy, dx (N,T,C) */
SGRAD_VECTOR(backward)(const struct sgrad_args *args) { rotate_all(args, true); }

static double flops(const struct sgrad_args *args) { return 3.0 * (double)sgrad_shape_count(&args->view[0].shape); }

static void describe(const void *attributes, char *text, size_t size) {
    const struct sgrad_rotary *attrs = attributes;
    const char *heads = attrs->heads == 1 ? "head" : "heads";
    if (attrs->listed) snprintf(text, size, "%d %s, listed frequencies", attrs->heads, heads);
    else
        snprintf(text, size, "%d %s, base %g%s", attrs->heads, heads, (double)attrs->base,
                 attrs->original || attrs->factor != 1 ? ", scaled" : "");
}

/* The cosines and sines of all positions are constants of the file. ONNX Runtime requires a position for each sample. */
static void onnx(const struct sgrad_signature *signature, const void *attributes, FILE *to) {
    const struct sgrad_rotary *attrs = attributes;
    const int64_t rows = signature->y.shape.dim[1], size = signature->y.shape.dim[2] / attrs->heads;
    static const char *const names[] = { "cosine", "sine" };
    if (attrs->cached) return;
    for (int which = 0; which < 2; which++) {
        fprintf(to, "%s = Constant <value = float[%lld, %lld] {", names[which], (long long)rows, (long long)size / 2);
        for (int64_t t = 0; t < rows; t++)
            for (int i = 0; i < size / 2; i++) {
                const float angle = (float)t * sgrad__frequency(attrs, (int)size, i);
                fprintf(to, "%s%.9g", t || i ? ", " : "", which ? sin((double)angle) : cos((double)angle));
            }
        fputs("}> ()\n", to);
    }
    fprintf(to, "row = Constant <value = int64[1, %lld] {", (long long)rows);
    for (int64_t t = 0; t < rows; t++) fprintf(to, "%s%lld", t ? ", " : "", (long long)t);
    fprintf(to, "}> ()\nshape = Shape <start = 0, end = 2> (x)\npositions = Expand (row, shape)\n"
                "y = RotaryEmbedding <num_heads = %d> (x, cosine, sine, positions)", attrs->heads);
}

const struct sgrad_op sgrad_rotary_op = {
    .name = "rotary",
    .summary = "rotary positions: rotation of each pair of a head's features by an angle that grows with the position",
    .source = "J. Su et al., RoFormer: enhanced transformer with rotary position embedding, 2021",
    .inputs = 1,
    .attrs_size = sizeof(struct sgrad_rotary),
    .infer = infer,
    .set_rank = set_rank,
    .describe = describe,
    .onnx = onnx,
    .forward = { { { .name = "rotary forward", .kind = &sgrad_forward_kind, .cpu = forward,
                     .cuda = SGRAD_ON_CUDA(sgrad__rotary_forward_cuda), .flops = flops },
                   { SGRAD_IN(X, 0), SGRAD_OUT(Y, 0) } } },
    .backward = { { { .name = "rotary backward", .kind = &sgrad_backward_kind, .cpu = backward,
                      .cuda = SGRAD_ON_CUDA(sgrad__rotary_backward_cuda), .flops = flops },
                    { SGRAD_IN(DY, 0), SGRAD_OUT(DX, 0) } } },
    .tests = {
        { "one head of 2", { { 3, { 1, 3, 2 } } } },
        { "3 heads of 6", { { 3, { 2, 5, 18 } } }, &(struct sgrad_rotary){ .heads = 3, .base = 500000 } },
        { "2 heads of 64", { { 3, { 2, 9, 128 } } }, &(struct sgrad_rotary){ .heads = 2 } },
        { "linear scaling", { { 3, { 1, 7, 16 } } }, &(struct sgrad_rotary){ .factor = 4 } },
        { "Llama 3.1's scaling", { { 3, { 1, 7, 32 } } }, &(struct sgrad_rotary){ .factor = 8, .original = 20 } },
        { "listed frequencies", { { 3, { 2, 3, 8 } } },
          &(struct sgrad_rotary){ .heads = 2, .listed = true, .frequency = { 1, 0.3f } } },
    },
};
