/* tensors.c: reads the numbers of an ONNX file's tensors, from each field in which the format allows them:
 *
 *     raw_data        little-endian, all types; or in another file next to this one (external_data)
 *     float_data      FLOAT                       double_data     DOUBLE
 *     int32_data      INT32 and narrower types: BOOL, UINT8, INT8, UINT16, INT16, and the bits of FLOAT16 and BFLOAT16
 *     int64_data      INT64                       uint64_data     UINT64, UINT32 */
#include "graphs/networks/onnx/reader.h"
#include "runtime/files/contents.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* ---- types and fields ------------------------------------------------------------------------------------------- */

enum place { FLOATS, DOUBLES, NARROW, LONGS, UNSIGNED, PLACES };

static const struct type {
    int32_t type;
    size_t size;                /* bytes of a number */
    enum place place;
    bool is_real;
    enum sgrad_dtype dtype;     /* of floating-point types */
} types[] = {
    { ONNX_FLOAT, 4, FLOATS, true, SGRAD_F32 },       { ONNX_DOUBLE, 8, DOUBLES, true, SGRAD_F64 },
    { ONNX_FLOAT16, 2, NARROW, true, SGRAD_F16 },     { ONNX_BFLOAT16, 2, NARROW, true, SGRAD_BF16 },
    { ONNX_INT32, 4, NARROW, false, 0 },              { ONNX_INT16, 2, NARROW, false, 0 },
    { ONNX_UINT16, 2, NARROW, false, 0 },             { ONNX_INT8, 1, NARROW, false, 0 },
    { ONNX_UINT8, 1, NARROW, false, 0 },              { ONNX_BOOL, 1, NARROW, false, 0 },
    { ONNX_INT64, 8, LONGS, false, 0 },               { ONNX_UINT64, 8, UNSIGNED, false, 0 },
    { ONNX_UINT32, 4, UNSIGNED, false, 0 },
};

/* Returns NULL if the type is not supported. */
static const struct type *type_of(int32_t type) {
    for (const struct type *t = types; t < types + sizeof types / sizeof *types; t++)
        if (t->type == type) return t;
    return NULL;
}

bool sgrad__onnx_is_real(int32_t type) {
    const struct type *is = type_of(type);
    return is && is->is_real;
}

static size_t count_in(const Onnx__Tensor *t, enum place place) {
    const size_t count[PLACES] = { t->n_float_data, t->n_double_data, t->n_int32_data, t->n_int64_data, t->n_uint64_data };
    return count[place];
}

/* Returns the number of elements in fields other than raw_data. */
static size_t count_typed(const Onnx__Tensor *t) {
    size_t count = 0;
    for (int place = 0; place < PLACES; place++) count += count_in(t, (enum place)place);
    return count;
}

/* An empty raw_data is ignored, if other fields have numbers. */
static bool is_raw(const Onnx__Tensor *t) { return t->has_raw_data && (t->raw_data.len || !count_typed(t)); }

int64_t sgrad__onnx_count(const Onnx__Tensor *t) {
    int64_t count = 1;
    for (size_t i = 0; i < t->n_dims; i++) count *= t->dims[i];
    return count;
}

/* ---- checks ----------------------------------------------------------------------------------------------------- */

static int count_dimensions(const char *path, const char *name, const Onnx__Tensor *t, size_t *count) {
    *count = 1;
    if (t->n_dims > SGRAD_MAX_RANK)
        return sgrad_log_error(SGRAD_EFORMAT, "%s: tensor '%s' has %zu dimensions, but at most %d are supported", path, name,
                               t->n_dims, SGRAD_MAX_RANK);
    for (size_t i = 0; i < t->n_dims; i++) {
        if (t->dims[i] < 0 || t->dims[i] > INT_MAX || (*count *= (size_t)t->dims[i]) > INT_MAX)
            return sgrad_log_error(SGRAD_EFORMAT, "%s: tensor '%s': dimension %zu is %lld, which is out of range", path, name, i,
                                   (long long)t->dims[i]);
    }
    return 0;
}

int sgrad__onnx_check_tensor(const char *path, const char *name, const Onnx__Tensor *t) {
    static const char *const places[PLACES] = { "float_data", "double_data", "int32_data", "int64_data", "uint64_data" };
    const struct type *type = type_of(t->data_type);
    size_t count;
    if (t->data_location)
        return sgrad_log_error(SGRAD_EFORMAT, "%s: tensor '%s' is in another file, which is not supported for a model in memory",
                               path, name);
    if (t->has_segment)
        return sgrad_log_error(SGRAD_EFORMAT, "%s: tensor '%s' is in segments, which are not supported", path, name);
    if (!type)
        return sgrad_log_error(SGRAD_EFORMAT, "%s: tensor '%s' has type %d, which is not supported", path, name, t->data_type);
    SGRAD_TRY(count_dimensions(path, name, t, &count));
    if (is_raw(t) && count_typed(t))
        return sgrad_log_error(SGRAD_EFORMAT, "%s: tensor '%s' must have numbers in raw_data or in another field, not in both",
                               path, name);
    if (is_raw(t) && t->raw_data.len != count * type->size)
        return sgrad_log_error(SGRAD_EFORMAT, "%s: tensor '%s' has %zu bytes, but its dimensions require %zu", path, name,
                               t->raw_data.len, count * type->size);
    if (is_raw(t) || (count_typed(t) == count && count_in(t, type->place) == count)) return 0;
    if (count_typed(t) != count_in(t, type->place))
        return sgrad_log_error(SGRAD_EFORMAT, "%s: the numbers of tensor '%s' (type %d) must be in raw_data or %s",
                               path, name, t->data_type, places[type->place]);
    return sgrad_log_error(SGRAD_EFORMAT, "%s: tensor '%s' has %zu numbers in %s, but its dimensions require %zu", path, name,
                           count_typed(t), places[type->place], count);
}

/* ---- numbers in another file -------------------------------------------------------------------------------------- */

static const char *external(const Onnx__Tensor *t, const char *key) {
    for (size_t i = 0; i < t->n_external_data; i++)
        if (!strcmp(t->external_data[i]->key, key)) return t->external_data[i]->value;
    return NULL;
}

/* Converts TEXT to a number of bytes; NULL: it is OTHERWISE. Returns false if TEXT is not a number. */
static bool take_bytes(const char *text, size_t otherwise, size_t *bytes) {
    char *end;
    *bytes = otherwise;
    if (!text) return true;
    if (*text < '0' || *text > '9') return false;
    errno = 0;
    *bytes = strtoull(text, &end, 10);
    return !errno && !*end && *bytes <= INT64_MAX / 2;
}


static int read_bytes(const char *path, const char *name, size_t at, size_t bytes, void *to) {
    FILE *file = fopen(path, "rb");
    if (!file) return sgrad_log_error(SGRAD_EIO, "%s: cannot be opened to read tensor '%s': %s", path, name, strerror(errno));
    const bool there = !fseeko(file, (off_t)at, SEEK_SET) && fread(to, 1, bytes, file) == bytes;
    fclose(file);
    return there ? 0 : sgrad_log_error(SGRAD_EFORMAT, "%s: is truncated: it ends before byte %zu, the end of tensor '%s'", path,
                                       at + bytes, name);
}

int sgrad__onnx_fetch(const char *path, const char *folder, Onnx__Tensor *t) {
    const struct type *type = type_of(t->data_type);
    const char *location = external(t, "location");
    size_t count, at, length;
    if (!t->data_location || !folder || !type) return 0;
    SGRAD_TRY(count_dimensions(path, t->name, t, &count));
    const size_t bytes = count * type->size;
    if (!location || sgrad_path_leads_out(location))
        return sgrad_log_error(SGRAD_EFORMAT, "%s: tensor '%s' is in '%s', which is not in the folder of this file", path,
                               t->name, location ? location : "");
    if (!take_bytes(external(t, "offset"), 0, &at) || !take_bytes(external(t, "length"), bytes, &length) || length != bytes ||
        t->has_raw_data || count_typed(t))
        return sgrad_log_error(SGRAD_EFORMAT,
                               "%s: tensor '%s': its offset or length in '%s' is invalid; the tensor has %zu bytes", path,
                               t->name, location, bytes);
    char *file = sgrad_format("%s%s", folder, location);
    t->raw_data = (ProtobufCBinaryData){ bytes, sgrad_xcalloc(1, bytes + 1) };
    t->has_raw_data = true;
    t->data_location = 0;
    const int error = read_bytes(file, t->name, at, bytes, t->raw_data.data);
    free(file);
    return error;
}

/* ---- numbers ------------------------------------------------------------------------------------------------------ */

/* Copies the numbers without gaps, each with the width of its type. */
static void pack(const Onnx__Tensor *t, void *to) {
    const struct type *type = type_of(t->data_type);
    const size_t count = (size_t)sgrad__onnx_count(t), bytes = count * type->size;
    const void *const from[PLACES] = { t->float_data, t->double_data, t->int32_data, t->int64_data, t->uint64_data };
    static const size_t widths[PLACES] = { 4, 8, 4, 8, 8 };     /* bytes of a number in each field */
    const size_t width = widths[type->place];
    if (!bytes) return;
    if (is_raw(t)) memcpy(to, t->raw_data.data, bytes);
    else
        for (size_t i = 0; i < count; i++)      /* little-endian: the lower bytes come first */
            memcpy((char *)to + i * type->size, (const char *)from[type->place] + i * width, type->size);
}

static int64_t whole_at(int32_t type, const char *at) {
    union { int8_t i8; uint8_t u8; int16_t i16; uint16_t u16; int32_t i32; uint32_t u32; int64_t i64; } v = { 0 };
    memcpy(&v, at, type_of(type)->size);
    switch (type) {
    case ONNX_INT8: return v.i8;
    case ONNX_UINT8: return v.u8;
    case ONNX_BOOL: return v.u8 != 0;
    case ONNX_INT16: return v.i16;
    case ONNX_UINT16: return v.u16;
    case ONNX_INT32: return v.i32;
    case ONNX_UINT32: return v.u32;
    default: return v.i64;
    }
}

static double number_at(int32_t type, const char *at) {
    const struct type *is = type_of(type);
    float x;
    if (!is->is_real) return type == ONNX_UINT64 ? (double)(uint64_t)whole_at(type, at) : (double)whole_at(type, at);
    sgrad__to_floats(is->dtype, at, 1, &x);
    return x;
}

bool sgrad__onnx_ints(const Onnx__Tensor *t, int64_t *number, int most, int *count) {
    const int64_t all = sgrad__onnx_count(t);
    const struct type *type = type_of(t->data_type);
    char packed[SGRAD__NUMBERS * sizeof *number];
    if (!type || type->is_real || t->n_dims > 1 || all > most || all > SGRAD__NUMBERS) return false;
    pack(t, packed);
    for (int64_t i = 0; i < all; i++) number[i] = whole_at(t->data_type, packed + (size_t)i * type->size);
    *count = (int)all;
    return true;
}

bool sgrad__onnx_floats(const Onnx__Tensor *t, float *number, int most, int *count) {
    const int64_t all = sgrad__onnx_count(t);
    const struct type *type = type_of(t->data_type);
    if (!type || !type->is_real || all > most) return false;
    double *exact = sgrad_xcalloc((size_t)all + 1, sizeof *exact);
    sgrad__onnx_doubles(t, exact);
    for (int64_t i = 0; i < all; i++) number[i] = (float)exact[i];
    free(exact);
    *count = (int)all;
    return true;
}

bool sgrad__onnx_entry(const Onnx__Tensor *t, const char *name, struct sgrad_entry *entry) {
    const struct type *type = type_of(t->data_type);
    struct sgrad_view view = { .shape.rank = (int)t->n_dims };
    if (!type || !type->is_real || t->n_dims > SGRAD_MAX_RANK) return false;
    view.dtype = type->dtype;
    for (size_t d = 0; d < t->n_dims; d++) view.shape.dim[d] = t->dims[d];
    void *data = sgrad_xcalloc((size_t)sgrad__onnx_count(t) + 1, type->size);
    pack(t, data);
    *entry = (struct sgrad_entry){ sgrad_format("%s", name), view, data };
    return true;
}

void sgrad__onnx_doubles(const Onnx__Tensor *t, double *number) {
    const size_t count = (size_t)sgrad__onnx_count(t);
    const struct type *type = type_of(t->data_type);
    char *packed = sgrad_xcalloc(count + 1, type->size);
    pack(t, packed);
    for (size_t i = 0; i < count; i++) number[i] = number_at(t->data_type, packed + i * type->size);
    free(packed);
}

bool sgrad__onnx_counts(const Onnx__Tensor *t, int64_t count) {
    if (sgrad__onnx_count(t) != count || sgrad__onnx_is_real(t->data_type)) return false;
    double *number = sgrad_xcalloc((size_t)count + 1, sizeof *number);
    bool same = true;
    sgrad__onnx_doubles(t, number);
    for (int64_t i = 0; i < count; i++) same &= number[i] == (double)i;
    free(number);
    return same;
}
