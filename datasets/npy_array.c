/* npy_array.c: parses a NumPy array (numpy.lib.format, versions 1 to 3) in memory.
 *
 *     6 bytes \x93NUMPY | version | header length | {'descr': '<f4', 'fortran_order': False, 'shape': (150, 4), } | the numbers
 *
 * Both byte orders and both orders of dimensions are supported. Limits: no objects, no strings, no complex numbers. */
#include "config.h"
#include "datasets/datasets.h"
#include "datasets/formats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { HEADER_LIMIT = 1 << 16 };

/* Returns the address of the value of KEY in the header, a Python dictionary as NumPy writes it; NULL: no such key. */
static const char *value_of(const char *header, const char *key) {
    const char *at = strstr(header, key);
    if (!at) return NULL;
    at += strlen(key);
    while (*at == ' ' || *at == ':') at++;
    return at;
}

static bool parse_shape(const char *text, struct sgrad_shape *shape) {
    shape->rank = 0;
    if (*text++ != '(') return false;
    while (*text != ')') {
        char *end;
        const long long n = strtoll(text, &end, 10);
        if (end == text || n < 0 || shape->rank == SGRAD_MAX_RANK) return false;
        shape->dim[shape->rank++] = n;
        text = end + (*end == 'L');             /* Python 2 wrote it after some numbers */
        while (*text == ',' || *text == ' ') text++;
    }
    return true;
}

/* Parses a type, "<f4": byte order, kind and bytes. Returns false if it is not supported. */
static bool parse_type(const char *text, struct sgrad__npy *npy) {
    static const char *const known[] = { "u1", "i1", "b1", "u2", "i2", "u4", "i4", "i8", "u8", "f2", "f4", "f8" };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if ((*text == '\'' || *text == '"') && text[1] && strchr("<>|=", text[1]) && !strncmp(text + 2, known[i], 2) &&
            text[4] == *text) {
            npy->kind = known[i][0];
            npy->bytes = known[i][1] - '0';
            npy->high_first = text[1] == '>';
            return true;
        }
    return false;
}

/* Returns the length of the value at TEXT, for messages: a string in quotes, a list in brackets, or all up to a comma or brace.
 * The maximum is 60. */
static int value_length(const char *text) {
    enum { MOST = 60 };
    const char quote = *text;
    size_t length = strcspn(text, quote == '[' ? "]" : ",}");
    if (quote == '\'' || quote == '"') length = 1 + strcspn(text + 1, (char[]){ quote, 0 });
    length += text[length] && text[length] != ',' && text[length] != '}';
    return length < MOST ? (int)length : MOST;
}

/* Returns the number of elements of SHAPE; -1: SIZE bytes cannot contain them. */
static int64_t count_of(const struct sgrad_shape *shape, int bytes, size_t size) {
    int64_t count = 1;
    for (int i = 0; i < shape->rank; i++)
        if (shape->dim[i] == 0) return 0;
    for (int i = 0; i < shape->rank; i++)
        if (__builtin_mul_overflow(count, shape->dim[i], &count) || (uint64_t)count > size / (size_t)bytes) return -1;
    return count;
}

int sgrad__npy_parse(const char *name, const void *data, size_t size, struct sgrad__npy *parsed) {
    const unsigned char *byte = data;
    struct sgrad__npy npy = { .kind = 0 };
    if (size < 12 || memcmp(data, "\x93NUMPY", 6))
        return sgrad_log_error(SGRAD_EFORMAT, "npy: %s: byte 0: is not a NumPy array", name);
    if (byte[6] < 1 || byte[6] > 3)
        return sgrad_log_error(SGRAD_EFORMAT, "npy: %s: byte 6: version %d is not supported; it must be 1 to 3", name, byte[6]);
    size_t length = byte[8] | (size_t)byte[9] << 8, from = 10;
    if (byte[6] > 1) length |= (size_t)byte[10] << 16 | (size_t)byte[11] << 24, from = 12;
    if (length > HEADER_LIMIT || length > size - from)
        return sgrad_log_error(SGRAD_EFORMAT, "npy: %s: byte 8: states a header of %zu bytes, but the file has %zu bytes", name,
                               length, size);
    char *header = sgrad_format("%.*s", (int)length, (const char *)byte + from);
    const char *type = value_of(header, "'descr'"), *order = value_of(header, "'fortran_order'");
    const char *shape = value_of(header, "'shape'");
    int error = 0;
    if (!type || !order || !shape)
        error = sgrad_log_error(SGRAD_EFORMAT, "npy: %s: byte %zu: its header lacks descr, fortran_order or shape", name, from);
    else if (!parse_type(type, &npy))
        error = sgrad_log_error(
            SGRAD_EFORMAT,
            "npy: %s: byte %zu: has values of type %.*s, but they must be integers or real numbers of up to 8 bytes", name, from,
            value_length(type), type);
    else if (strncmp(order, "False", 5) && strncmp(order, "True", 4))
        error = sgrad_log_error(SGRAD_EFORMAT, "npy: %s: byte %zu: fortran_order is %.*s, but must be True or False", name, from,
                                value_length(order), order);
    else if (!parse_shape(shape, &npy.shape))
        error = sgrad_log_error(SGRAD_EFORMAT, "npy: %s: byte %zu: its shape is invalid; it must have up to %d dimensions", name,
                                from, SGRAD_MAX_RANK);
    npy.fortran = !error && *order == 'T';
    free(header);
    SGRAD_TRY(error);
    npy.count = count_of(&npy.shape, npy.bytes, size - from - length);
    if (npy.count < 0 || (size_t)npy.count * (size_t)npy.bytes != size - from - length)
        return sgrad_log_error(SGRAD_EFORMAT,
                               "npy: %s: byte %zu: %zu bytes of numbers follow, which do not match the shape in the header",
                               name, from + length, size - from - length);
    npy.data = byte + from + length;
    *parsed = npy;
    return 0;
}

int sgrad__npy_of_array(const char *name, const struct sgrad_array *array, struct sgrad__npy *parsed) {
    struct sgrad__npy npy = { .data = array->data };
    char *type = sgrad_format("'=%s'", array->type);
    const bool known = parse_type(type, &npy);
    free(type);
    if (!known)
        return sgrad_log_error(SGRAD_EFORMAT,
                               "%s: has values of type %s, but they must be integers or real numbers of up to 8 bytes", name,
                               array->type);
    if (array->rank < 1 || array->rank > SGRAD_MAX_RANK)
        return sgrad_log_error(SGRAD_EFORMAT, "%s: has %d dimensions; it must have 1 to %d", name, array->rank,
                               SGRAD_MAX_RANK);
    for (npy.shape.rank = 0; npy.shape.rank < array->rank; npy.shape.rank++)
        npy.shape.dim[npy.shape.rank] = array->dim[npy.shape.rank];
    npy.count = count_of(&npy.shape, npy.bytes, SIZE_MAX);
    npy.high_first = __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__;
    *parsed = npy;
    return npy.count < 0 ? sgrad_log_error(SGRAD_EFORMAT, "%s: is larger than the memory", name) : 0;
}

/* Converts a number of IEEE 754's half precision. */
static double half(uint16_t bits) {
    const int exponent = bits >> 10 & 31;
    const double mantissa = bits & 1023, sign = bits >> 15 ? -1 : 1;
    if (exponent == 31) return mantissa > 0 ? NAN : sign * INFINITY;
    return sign * (exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24));
}

/* Converts index I in C order to the index in Fortran order. */
static int64_t fortran_place(const struct sgrad_shape *shape, int64_t i) {
    int64_t stride = sgrad_shape_count(shape), place = 0;
    for (int d = shape->rank; d-- > 0; i /= shape->dim[d]) {
        stride /= shape->dim[d];
        place += i % shape->dim[d] * stride;
    }
    return place;
}

double sgrad__npy_number(const struct sgrad__npy *npy, int64_t i) {
    const unsigned char *at = npy->data + (npy->fortran ? fortran_place(&npy->shape, i) : i) * npy->bytes;
    uint64_t word = 0;
    float f;
    double d;
    for (int b = npy->bytes; b-- > 0;) word = word << 8 | at[npy->high_first ? npy->bytes - 1 - b : b];
    const int unused = 64 - 8 * npy->bytes;
    if (npy->kind == 'u' || npy->kind == 'b') return (double)word;
    if (npy->kind == 'i') return (double)((int64_t)(word << unused) >> unused);
    if (npy->bytes == 2) return half((uint16_t)word);
    if (npy->bytes == 8) return memcpy(&d, &word, sizeof d), d;
    const uint32_t low = (uint32_t)word;
    return memcpy(&f, &low, sizeof f), (double)f;
}
