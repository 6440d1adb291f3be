/* constant_operators.c: the operators whose results are computed when a file is read (constants.c). */
#include "graphs/networks/onnx/constants.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- shapes and indices ------------------------------------------------------------------------------------------- */

bool sgrad__constant_allocate(struct sgrad__constant *is) {
    const int64_t most = SGRAD__CONSTANT_LIMIT;
    is->count = 1;
    for (int i = 0; i < is->rank; i++)
        if (is->dim[i] < 0 || is->dim[i] > most || (is->count *= is->dim[i]) > most) return false;
    is->x = sgrad_xcalloc((size_t)is->count + 1, sizeof *is->x);
    return true;
}

/* Sets STRIDE to the distances of the elements of IS along the dimensions of a tensor of RANK, to which it is broadcast. */
static bool strides_of(const struct sgrad__constant *is, int rank, const int64_t *dim, int64_t *stride) {
    int64_t next = 1;
    if (is->rank > rank) return false;
    for (int i = rank - 1; i >= 0; i--) {
        const int at = i - (rank - is->rank);
        if (at >= 0 && is->dim[at] != 1 && is->dim[at] != dim[i]) return false;
        stride[i] = at < 0 || is->dim[at] == 1 ? 0 : next;
        if (at >= 0) next *= is->dim[at];
    }
    return true;
}

/* Returns the offset of element I of a tensor with the dimensions of OF. */
static int64_t offset(const struct sgrad__constant *of, int64_t i, const int64_t *stride) {
    int64_t at = 0;
    for (int d = of->rank - 1; d >= 0; d--) at += i % of->dim[d] * stride[d], i /= of->dim[d];
    return at;
}

/* Gives TO the dimensions to which itself and IS are broadcast. */
static bool broadcast(struct sgrad__constant *to, const struct sgrad__constant *is) {
    const int rank = to->rank > is->rank ? to->rank : is->rank;
    int64_t dim[SGRAD__DIMENSIONS];
    for (int i = 0; i < rank; i++) {
        const int a = i - (rank - to->rank), b = i - (rank - is->rank);
        const int64_t one = a < 0 ? 1 : to->dim[a], other = b < 0 ? 1 : is->dim[b];
        if (one != other && one != 1 && other != 1) return false;
        dim[i] = one == 1 ? other : one;
    }
    memcpy(to->dim, dim, sizeof dim);
    to->rank = rank;
    return true;
}

/* Copies the elements of input 0 at BASE plus the offsets by STRIDE. */
static bool gather_by(struct sgrad__fold *f, int64_t base, const int64_t *stride) {
    if (!sgrad__constant_allocate(&f->out)) return false;
    for (int64_t i = 0; i < f->out.count; i++) f->out.x[i] = f->in[0].x[base + offset(&f->out, i, stride)];
    return true;
}

int64_t sgrad__constant_integer(double x) { return x >= 0x1p62 ? INT64_MAX : (int64_t)fmax(x, -0x1p62); }

/* Copies input I, at most SGRAD__DIMENSIONS integers, to NUMBER; otherwise the attribute NAME. */
static bool list_of(const struct sgrad__fold *f, int i, const char *name, int64_t *number, int *count) {
    const Onnx__Attribute *a = sgrad__onnx_attribute(f->n, name);
    *count = -1;
    if (f->inputs > i && f->in[i].x) {
        if (f->in[i].count > SGRAD__DIMENSIONS) return false;
        for (*count = 0; *count < f->in[i].count; ++*count) number[*count] = sgrad__constant_integer(f->in[i].x[*count]);
    } else if (a) {
        if (a->n_ints > SGRAD__DIMENSIONS) return false;
        for (*count = 0; *count < (int)a->n_ints; ++*count) number[*count] = a->ints[*count];
    }
    return *count >= 0;
}

/* ---- operators ---------------------------------------------------------------------------------------------------- */

static double add(double a, double b) { return a + b; }
static double sub(double a, double b) { return a - b; }
static double mul(double a, double b) { return a * b; }
static double quotient(double a, double b) { return a / b; }
static double modulo(double a, double b) { return b ? a - floor(a / b) * b : 0; }
static double equal(double a, double b) { return a == b; }
static double less(double a, double b) { return a < b; }
static double greater(double a, double b) { return a > b; }
static double less_equal(double a, double b) { return a <= b; }
static double greater_equal(double a, double b) { return a >= b; }
static double both(double a, double b) { return a && b; }
static double either(double a, double b) { return a || b; }
static double negative(double a) { return -a; }
static double inverse(double a) { return 1 / a; }
static double opposite(double a) { return !a; }

static const struct {
    const char *name;
    bool compares;
    double (*one)(double);
    double (*two)(double, double);
} arithmetic[] = {
    { "Add", false, NULL, add },                     { "Sub", false, NULL, sub },
    { "Mul", false, NULL, mul },                     { "Div", false, NULL, quotient },
    { "Pow", false, NULL, pow },                     { "Mod", false, NULL, modulo },
    { "Min", false, NULL, fmin },                    { "Max", false, NULL, fmax },
    { "Equal", true, NULL, equal },                  { "Less", true, NULL, less },
    { "Greater", true, NULL, greater },              { "LessOrEqual", true, NULL, less_equal },
    { "GreaterOrEqual", true, NULL, greater_equal }, { "And", true, NULL, both },
    { "Or", true, NULL, either },                    { "Not", true, opposite, NULL },
    { "Neg", false, negative, NULL },                { "Sqrt", false, sqrt, NULL },
    { "Reciprocal", false, inverse, NULL },          { "Floor", false, floor, NULL },
    { "Ceil", false, ceil, NULL },                   { "Exp", false, exp, NULL },
    { "Log", false, log, NULL },                     { "Sin", false, sin, NULL },
    { "Cos", false, cos, NULL },                     { "Abs", false, fabs, NULL },
};

static bool compute(struct sgrad__fold *f, bool compares, double (*one)(double), double (*two)(double, double)) {
    int64_t stride[2][SGRAD__DIMENSIONS];
    f->out = f->in[0], f->out.x = NULL;
    if (f->inputs != (one ? 1 : 2) || (two && !broadcast(&f->out, &f->in[1])) || !sgrad__constant_allocate(&f->out)) return false;
    if (compares) f->out.type = ONNX_BOOL;
    const bool whole = !sgrad__onnx_is_real(f->out.type);
    for (int k = 0; k < f->inputs; k++)
        if (!strides_of(&f->in[k], f->out.rank, f->out.dim, stride[k])) return false;
    for (int64_t i = 0; i < f->out.count; i++) {
        const double a = f->in[0].x[offset(&f->out, i, stride[0])];
        f->out.x[i] = one ? one(a) : two(a, f->in[1].x[offset(&f->out, i, stride[1])]);
        if (whole) f->out.x[i] = isfinite(f->out.x[i]) ? trunc(f->out.x[i]) : 0;
    }
    return true;
}

static bool fold_cast(struct sgrad__fold *f) {
    f->out = f->in[0], f->out.x = NULL;
    f->out.type = (int32_t)sgrad__onnx_int(f->n, "to", 0);
    if (!sgrad__constant_allocate(&f->out)) return false;
    for (int64_t i = 0; i < f->out.count; i++) {
        const double x = f->in[0].x[i];
        f->out.x[i] = f->out.type == ONNX_BOOL ? x != 0 : sgrad__onnx_is_real(f->out.type) ? x : isfinite(x) ? trunc(x) : 0;
    }
    return true;
}

/* Copies input 0 with the RANK dimensions DIM. */
static bool copy_as(struct sgrad__fold *f, const int64_t *dim, int rank) {
    f->out.type = f->in[0].type;
    f->out.rank = rank;
    memcpy(f->out.dim, dim, (size_t)rank * sizeof *dim);
    if (!sgrad__constant_allocate(&f->out) || f->out.count != f->in[0].count) return false;
    memcpy(f->out.x, f->in[0].x, (size_t)f->out.count * sizeof *f->out.x);
    return true;
}

static bool fold_reshape(struct sgrad__fold *f) {
    int64_t to[SGRAD__DIMENSIONS];
    int count;
    return list_of(f, 1, "shape", to, &count) &&
           sgrad__onnx_resolve(f->in[0].dim, f->in[0].rank, to, count, sgrad__onnx_int(f->n, "allowzero", 0)) &&
           copy_as(f, to, count);
}

static bool fold_flatten(struct sgrad__fold *f) {
    const int64_t axis = sgrad__onnx_int(f->n, "axis", 1);
    int64_t dim[2] = { 1, 1 };
    for (int i = 0; i < f->in[0].rank; i++) dim[i >= (axis < 0 ? axis + f->in[0].rank : axis)] *= f->in[0].dim[i];
    return copy_as(f, dim, 2);
}

static bool fold_squeeze(struct sgrad__fold *f) {
    int64_t axis[SGRAD__DIMENSIONS], dim[SGRAD__DIMENSIONS];
    int count, rank = 0;
    const bool listed = list_of(f, 1, "axes", axis, &count);
    if (!listed && (f->inputs > 1 || sgrad__onnx_attribute(f->n, "axes"))) return false;    /* too many */
    for (int i = 0; i < f->in[0].rank; i++) {
        bool leave = !listed && f->in[0].dim[i] == 1;
        for (int k = 0; k < count; k++) leave |= sgrad__onnx_axis(axis[k], f->in[0].rank) == i;
        if (!leave) dim[rank++] = f->in[0].dim[i];
    }
    return copy_as(f, dim, rank);
}

static bool fold_unsqueeze(struct sgrad__fold *f) {
    int64_t axis[SGRAD__DIMENSIONS], dim[SGRAD__DIMENSIONS];
    int count, from = 0;
    if (!list_of(f, 1, "axes", axis, &count) || f->in[0].rank + count > SGRAD__DIMENSIONS) return false;
    for (int i = 0; i < f->in[0].rank + count; i++) {
        bool one = false;
        for (int k = 0; k < count; k++) one |= sgrad__onnx_axis(axis[k], f->in[0].rank + count) == i;
        if (!one && from == f->in[0].rank) return false;
        if (!one && from == f->in[0].samples) f->out.samples = i;
        dim[i] = one ? 1 : f->in[0].dim[from++];
    }
    return copy_as(f, dim, f->in[0].rank + count);
}

static bool fold_transpose(struct sgrad__fold *f) {
    const struct sgrad__constant *in = &f->in[0];
    const Onnx__Attribute *a = sgrad__onnx_attribute(f->n, "perm");
    int64_t stride[SGRAD__DIMENSIONS], moved[SGRAD__DIMENSIONS];
    if ((a && a->n_ints != (size_t)in->rank) || !strides_of(in, in->rank, in->dim, stride)) return false;
    f->out.type = in->type, f->out.rank = in->rank;
    for (int i = 0; i < in->rank; i++) {
        const int64_t from = a ? a->ints[i] : in->rank - 1 - i;
        if (from < 0 || from >= in->rank) return false;
        f->out.dim[i] = in->dim[from], moved[i] = stride[from];
    }
    for (int i = 0; i < in->rank; i++)
        for (int k = 0; a && k < i; k++)
            if (a->ints[k] == a->ints[i]) return false;
    return gather_by(f, 0, moved);
}

/* A dimension of all samples remains 1: it is broadcast wherever the result is used. */
static bool fold_expand(struct sgrad__fold *f) {
    struct sgrad__constant to = { .type = f->in[0].type };
    int64_t stride[SGRAD__DIMENSIONS];
    if (!list_of(f, 1, "shape", to.dim, &to.rank)) return false;
    for (int i = 0; i < to.rank; i++)
        if (to.dim[i] == SGRAD__SAMPLES) to.dim[i] = 1;
    if (!broadcast(&to, &f->in[0]) || !strides_of(&f->in[0], to.rank, to.dim, stride)) return false;
    f->out = to;
    return gather_by(f, 0, stride);
}

static bool fold_where(struct sgrad__fold *f) {
    int64_t stride[3][SGRAD__DIMENSIONS];
    if (f->inputs != 3) return false;
    f->out = f->in[1], f->out.x = NULL;
    if (!broadcast(&f->out, &f->in[0]) || !broadcast(&f->out, &f->in[2])) return false;
    for (int k = 0; k < 3; k++)
        if (!strides_of(&f->in[k], f->out.rank, f->out.dim, stride[k])) return false;
    if (!sgrad__constant_allocate(&f->out)) return false;
    for (int64_t i = 0; i < f->out.count; i++) {
        const int k = f->in[0].x[offset(&f->out, i, stride[0])] != 0 ? 1 : 2;
        f->out.x[i] = f->in[k].x[offset(&f->out, i, stride[k])];
    }
    return true;
}

static bool fold_concat(struct sgrad__fold *f) {
    const int rank = f->in[0].rank, axis = sgrad__onnx_axis(sgrad__onnx_int(f->n, "axis", 0), rank);
    int64_t outer = 1, inner = 1, at = 0;
    if (axis < 0) return false;
    f->out = f->in[0], f->out.x = NULL;
    for (int k = 1; k < f->inputs; k++) {
        if (f->in[k].rank != rank) return false;
        for (int i = 0; i < rank; i++)
            if (i != axis && f->in[k].dim[i] != f->in[0].dim[i]) return false;
        f->out.dim[axis] += f->in[k].dim[axis];
    }
    if (!sgrad__constant_allocate(&f->out)) return false;
    for (int i = 0; i < axis; i++) outer *= f->out.dim[i];
    for (int i = axis + 1; i < rank; i++) inner *= f->out.dim[i];
    for (int64_t o = 0; o < outer; o++)
        for (int k = 0; k < f->inputs; k++) {
            const int64_t size = f->in[k].dim[axis] * inner;
            memcpy(f->out.x + at, f->in[k].x + o * size, (size_t)size * sizeof *f->out.x);
            at += size;
        }
    return true;
}

static bool fold_gather(struct sgrad__fold *f) {
    const struct sgrad__constant *in = &f->in[0], *at = &f->in[1];
    const int axis = f->inputs == 2 ? sgrad__onnx_axis(sgrad__onnx_int(f->n, "axis", 0), in->rank) : -1;
    int64_t outer = 1, inner = 1;
    if (axis < 0 || in->rank - 1 + at->rank > SGRAD__DIMENSIONS) return false;
    f->out.type = in->type;
    for (int i = 0; i < axis; i++) outer *= f->out.dim[f->out.rank++] = in->dim[i];
    for (int i = 0; i < at->rank; i++) f->out.dim[f->out.rank++] = at->dim[i];
    for (int i = axis + 1; i < in->rank; i++) inner *= f->out.dim[f->out.rank++] = in->dim[i];
    if (!sgrad__constant_allocate(&f->out)) return false;
    for (int64_t o = 0; o < outer; o++)
        for (int64_t k = 0; k < at->count; k++) {
            const double index = at->x[k] < 0 ? at->x[k] + (double)in->dim[axis] : at->x[k];
            if (!(index >= 0 && index < (double)in->dim[axis])) return false;
            const int64_t from = (int64_t)index;
            memcpy(f->out.x + (o * at->count + k) * inner, in->x + (o * in->dim[axis] + from) * inner,
                   (size_t)inner * sizeof *in->x);
        }
    return true;
}

static bool fold_slice(struct sgrad__fold *f) {
    int64_t stride[SGRAD__DIMENSIONS], base = 0;
    struct sgrad__range range[SGRAD__DIMENSIONS];
    const struct sgrad__constant *in = &f->in[0];
    if (!strides_of(in, in->rank, in->dim, stride) || !sgrad__onnx_ranges(f->reader, f->n, in->dim, in->rank, range))
        return false;
    f->out.type = in->type, f->out.rank = in->rank;
    for (int i = 0; i < in->rank; i++) {
        base += range[i].first * stride[i];
        stride[i] *= range[i].step;
        f->out.dim[i] = range[i].count;
    }
    return gather_by(f, base, stride);
}

static bool fold_constant_of_shape(struct sgrad__fold *f) {
    const Onnx__Attribute *a = sgrad__onnx_attribute(f->n, "value");
    double value = 0;
    f->out.type = ONNX_FLOAT;
    if (a && a->t) {
        if (sgrad__onnx_check_tensor(f->reader->path, f->n->output[0], a->t) || sgrad__onnx_count(a->t) != 1) return false;
        sgrad__onnx_doubles(a->t, &value);
        f->out.type = a->t->data_type;
    }
    if (!list_of(f, 0, "", f->out.dim, &f->out.rank)) return false;
    for (int i = 0; i < f->out.rank; i++)
        if (f->out.dim[i] == SGRAD__SAMPLES) f->out.dim[i] = 1; /* as of Expand */
    if (!sgrad__constant_allocate(&f->out)) return false;
    for (int64_t i = 0; i < f->out.count; i++) f->out.x[i] = value;
    return true;
}

static bool fold_range(struct sgrad__fold *f) {
    if (f->inputs != 3 || f->in[0].count != 1 || f->in[1].count != 1 || f->in[2].count != 1) return false;
    const double from = f->in[0].x[0], step = f->in[2].x[0], end = f->in[1].x[0];
    f->out.first_two_samples = from == 0 && step == 1 && end == SGRAD__SAMPLES && f->reader->samples == SGRAD__SAMPLES;
    const double count = f->out.first_two_samples ? 2 : ceil((end - from) / step);
    if (!(count <= SGRAD__CONSTANT_LIMIT)) return false;
    f->out.type = f->in[0].type;
    f->out.rank = 1, f->out.dim[0] = count > 0 ? (int64_t)count : 0;
    if (!sgrad__constant_allocate(&f->out)) return false;
    for (int64_t i = 0; i < f->out.count; i++) f->out.x[i] = from + (double)i * step;
    return true;
}

static bool fold_trilu(struct sgrad__fold *f) {
    const struct sgrad__constant *in = &f->in[0];
    const bool upper = sgrad__onnx_int(f->n, "upper", 1);
    const double k = f->inputs > 1 && f->in[1].count == 1 ? f->in[1].x[0] : 0;
    if (in->rank < 2 || !copy_as(f, in->dim, in->rank)) return false;
    for (int64_t i = 0; i < f->out.count; i++) {
        const double column = (double)(i % in->dim[in->rank - 1]);
        const double row = (double)(i / in->dim[in->rank - 1] % in->dim[in->rank - 2]);
        if (upper ? column - row < k : column - row > k) f->out.x[i] = 0;
    }
    return true;
}

static bool fold_shape(struct sgrad__fold *f) {
    const struct sgrad__constant *in = &f->in[0];
    const int64_t from = sgrad__onnx_int(f->n, "start", 0), to = sgrad__onnx_int(f->n, "end", in->rank);
    const int start = (int)sgrad_clamp(from < 0 ? from + in->rank : from, 0, in->rank);
    const int end = (int)sgrad_clamp(to < 0 ? to + in->rank : to, start, in->rank);
    f->out.type = ONNX_INT64;
    f->out.rank = 1, f->out.dim[0] = end - start;
    if (!sgrad__constant_allocate(&f->out)) return false;
    for (int i = start; i < end; i++) f->out.x[i - start] = (double)in->dim[i];
    return true;
}

static const struct {
    const char *name;
    bool (*fold)(struct sgrad__fold *f);
} shaping[] = {
    { "Cast", fold_cast },     { "Concat", fold_concat },       { "ConstantOfShape", fold_constant_of_shape },
    { "Expand", fold_expand }, { "Flatten", fold_flatten },     { "Gather", fold_gather },
    { "Range", fold_range },   { "Reshape", fold_reshape },     { "Shape", fold_shape },
    { "Slice", fold_slice },   { "Squeeze", fold_squeeze },     { "Transpose", fold_transpose },
    { "Trilu", fold_trilu },   { "Unsqueeze", fold_unsqueeze }, { "Where", fold_where },
};

bool sgrad__constant_compute(struct sgrad__fold *f) {
    if (!strcmp(f->n->op_type, "Mod") && sgrad__onnx_int(f->n, "fmod", 0)) return false;    /* another definition */
    for (size_t i = 0; i < sizeof arithmetic / sizeof *arithmetic; i++)
        if (!strcmp(arithmetic[i].name, f->n->op_type))
            return compute(f, arithmetic[i].compares, arithmetic[i].one, arithmetic[i].two);
    for (size_t i = 0; i < sizeof shaping / sizeof *shaping; i++)
        if (!strcmp(shaping[i].name, f->n->op_type)) return shaping[i].fold(f);
    return false;
}
