/* npy.c: NumPy's arrays (numpy.lib.format, versions 1 to 3): x_train.npy, y_train.npy, x_test.npy and y_test.npy of a folder, or
 * of an archive, as numpy.savez(FILE, x_train=…, …) makes it (zip.c).
 *
 *     6 bytes \x93NUMPY | version | header length | {'descr': '<f4', 'fortran_order': False, 'shape': (150, 4), } | the numbers
 *
 *     x  uint8 (N,H,W) or (N,H,W,C)      images
 *        any other (N,…)                 features, F32 (…)
 *     y  whole (N), from 0               classes
 *        whole (N,H,W) of images         classes of their pixels: a sample is a volume of one slice, (1,H,W,C) and (1,H,W)
 *        real (N) or (N,k)               numbers to be said
 *
 * Limits: the lower byte first, in C's order; no objects, no complex numbers. */
#include "config.h"
#include "datasets/datasets.h"
#include "datasets/formats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FILE_LIMIT ((size_t)1 << 40)
#define WANTED "npy:PATH names a folder with x_train.npy, y_train.npy, x_test.npy and y_test.npy, or an .npz with these"
enum { HEADER_LIMIT = 1 << 16, CLASSES_LIMIT = 1 << 20 };

/* ---- the format -------------------------------------------------------------------------------------------------- */

/* The value of KEY in the header, a Python dictionary as NumPy writes it; NULL: there is none. */
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
        const long n = strtol(text, &end, 10);
        if (end == text || n < 0 || n > INT32_MAX || shape->rank == SGRAD_MAX_RANK) return false;
        shape->dim[shape->rank++] = n;
        for (text = end; *text == ',' || *text == ' ';) text++;
    }
    return true;
}

/* "<f4": letter and bytes, which have to be together what can be read. */
static bool parse_type(const char *text, struct sgrad__npy *npy) {
    static const char *const known[] = { "|u1", "|i1", "|b1", "<u2", "<i2", "<u4", "<i4", "<i8", "<u8", "<f2", "<f4", "<f8" };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if ((*text == '\'' || *text == '"') && !strncmp(text + 1, known[i], 3) && text[4] == *text) {
            npy->kind = known[i][1];
            npy->bytes = known[i][2] - '0';
            return true;
        }
    return false;
}

/* How many numbers SHAPE has; -1: more than there is room for in SIZE bytes. */
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
    if (size < 12 || memcmp(data, "\x93NUMPY", 6)) return sgrad_fail(SGRAD_EFORMAT, "npy: %s: byte 0: is no NumPy array", name);
    if (byte[6] < 1 || byte[6] > 3)
        return sgrad_fail(SGRAD_EFORMAT, "npy: %s: byte 6: is of version %d, 1 to 3 are known", name, byte[6]);
    size_t length = byte[8] | (size_t)byte[9] << 8, from = 10;
    if (byte[6] > 1) length |= (size_t)byte[10] << 16 | (size_t)byte[11] << 24, from = 12;
    if (length > HEADER_LIMIT || length > size - from)
        return sgrad_fail(SGRAD_EFORMAT, "npy: %s: byte 8: its header has %zu bytes, the file %zu", name, length, size);
    char *header = sgrad_format("%.*s", (int)length, (const char *)byte + from);
    const char *type = value_of(header, "'descr'"), *order = value_of(header, "'fortran_order'");
    const char *shape = value_of(header, "'shape'");
    int error = 0;
    if (!type || !order || !shape)
        error = sgrad_fail(SGRAD_EFORMAT, "npy: %s: byte %zu: its header lacks descr, fortran_order or shape", name, from);
    else if (!parse_type(type, &npy))
        error = sgrad_fail(SGRAD_EFORMAT, "npy: %s: byte %zu: has numbers %.8s: takes whole or real ones, the lower byte first",
                           name, from, type);
    else if (strncmp(order, "False", 5))
        error = sgrad_fail(SGRAD_EFORMAT, "npy: %s: byte %zu: is in Fortran's order: numpy.ascontiguousarray turns it", name,
                           from);
    else if (!parse_shape(shape, &npy.shape))
        error = sgrad_fail(SGRAD_EFORMAT, "npy: %s: byte %zu: its shape is none of up to %d dimensions", name, from,
                           SGRAD_MAX_RANK);
    free(header);
    SGRAD_TRY(error);
    npy.count = count_of(&npy.shape, npy.bytes, size - from - length);
    if (npy.count < 0 || (size_t)npy.count * (size_t)npy.bytes != size - from - length)
        return sgrad_fail(SGRAD_EFORMAT, "npy: %s: byte %zu: has %zu bytes of numbers, which its shape says otherwise", name,
                          from + length, size - from - length);
    npy.data = byte + from + length;
    *parsed = npy;
    return 0;
}

/* IEEE 754's half precision. */
static double half(uint16_t bits) {
    const int exponent = bits >> 10 & 31;
    const double mantissa = bits & 1023, sign = bits >> 15 ? -1 : 1;
    if (exponent == 31) return mantissa > 0 ? NAN : sign * INFINITY;
    return sign * (exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24));
}

double sgrad__npy_number(const struct sgrad__npy *npy, int64_t i) {
    const unsigned char *at = npy->data + i * npy->bytes;
    uint64_t word = 0;
    float f;
    double d;
    for (int b = npy->bytes; b-- > 0;) word = word << 8 | at[b];
    const int unused = 64 - 8 * npy->bytes;
    if (npy->kind == 'u' || npy->kind == 'b') return (double)word;
    if (npy->kind == 'i') return (double)((int64_t)(word << unused) >> unused);
    if (npy->bytes == 2) return half((uint16_t)word);
    if (npy->bytes == 8) return memcpy(&d, &word, sizeof d), d;
    const uint32_t low = (uint32_t)word;
    return memcpy(&f, &low, sizeof f), (double)f;
}

/* ---- the data set ------------------------------------------------------------------------------------------------ */

/* Where arrays are: a folder, or, where there is a map, an archive's file. */
struct place {
    const char *path;
    struct sgrad_map archive;
};

static int open_place(const char *path, struct place *place) {
    const char *ending = strrchr(path, '.');
    place->path = path;
    return ending && !strcmp(ending, ".npz") ? sgrad_map_open(path, FILE_LIMIT, &place->archive)
                                             : sgrad__folder_check("npy", path, WANTED);
}

static void close_place(struct place *place) {
    if (place->archive.data) sgrad_map_close(&place->archive);
}

/* One of them. */
struct array {
    char *path;
    struct sgrad_map map;       /* of its own file */
    void *member;               /* of an archive */
    struct sgrad__npy is;
};

static int open_member(const struct place *place, const char *name, struct array *a) {
    char *file = sgrad_format("%s.npy", name);
    size_t size = 0;
    int error = sgrad__zip_read(place->path, place->archive.data, place->archive.size, file, &a->member, &size);
    a->path = sgrad_format("%s: %s", place->path, file);
    free(file);
    return error ? error : sgrad__npy_parse(a->path, a->member, size, &a->is);
}

static int open_file(const struct place *place, const char *name, struct array *a) {
    a->path = sgrad_format("%s/%s.npy", place->path, name);
    SGRAD_TRY(sgrad_map_open(a->path, FILE_LIMIT, &a->map));
    return sgrad__npy_parse(a->path, a->map.data, a->map.size, &a->is);
}

static int open_array(const struct place *place, const char *name, struct array *a) {
    SGRAD_TRY(place->archive.data ? open_member(place, name, a) : open_file(place, name, a));
    if (a->is.shape.rank && a->is.shape.dim[0] > 0 && a->is.count > 0) return 0;
    return sgrad_fail(SGRAD_EFORMAT, "npy: %s: has no samples", a->path);
}

static void close_array(struct array *a) {
    if (a->map.data) sgrad_map_close(&a->map);
    free(a->member);
    free(a->path);
}

/* The dimensions behind the first. */
static struct sgrad_shape of_one(const struct sgrad_shape *shape) {
    struct sgrad_shape one = { .rank = shape->rank - 1 };
    for (int i = 0; i < one.rank; i++) one.dim[i] = shape->dim[i + 1];
    return one;
}

static bool is_whole(const struct sgrad__npy *npy) { return npy->kind != 'f'; }

/* With a channel, and, of images whose pixels have classes, as one slice. */
static int fill_x(struct sgrad_dataset *d, const struct array *x, bool masks) {
    const struct sgrad__npy *npy = &x->is;
    struct sgrad_shape one = of_one(&npy->shape);
    char text[SGRAD_SHAPE_TEXT];
    if (npy->kind != 'u' || npy->bytes != 1 || one.rank < 2 || one.rank > 3) {
        float *to = sgrad_alloc((size_t)npy->count, sizeof *to);
        for (int64_t i = 0; i < npy->count; i++) {
            to[i] = (float)sgrad__npy_number(npy, i);
            if (isfinite(to[i])) continue;
            free(to);
            return sgrad_fail(SGRAD_EFORMAT, "npy: %s: number %lld is none, or too large", x->path, (long long)i);
        }
        if (!one.rank) one = sgrad_shape(1, 1);
        d->field[0] = (struct sgrad_field){ "features", SGRAD_F32, one, to };
        return one.rank < SGRAD_MAX_RANK ? 0 : sgrad_fail(SGRAD_EFORMAT, "npy: %s: has too many dimensions", x->path);
    }
    if (one.rank == 2) one.dim[one.rank++] = 1;
    if (one.dim[2] > SGRAD_MAX_CHANNELS)
        return sgrad_fail(SGRAD_EFORMAT, "npy: %s: images of %s: takes (H,W,C) of %d channels at most", x->path,
                          sgrad_shape_text(&one, text), SGRAD_MAX_CHANNELS);
    uint8_t *pixels = sgrad_alloc((size_t)npy->count, 1);
    memcpy(pixels, npy->data, (size_t)npy->count);
    if (masks) one = sgrad_shape(4, 1, (int)one.dim[0], (int)one.dim[1], (int)one.dim[2]);
    d->field[0] = (struct sgrad_field){ "pixels", SGRAD_U8, one, pixels };
    d->full_scale = 255;
    return 0;
}

static int fill_y(struct sgrad_dataset *d, const struct array *y, const struct array *other, bool masks) {
    const struct sgrad__npy *npy = &y->is;
    struct sgrad_shape one = of_one(&npy->shape);
    void *to = sgrad_alloc((size_t)npy->count, sizeof(float));
    const bool classes = is_whole(npy) && (masks || !one.rank);
    if (masks) one = sgrad_shape(3, 1, (int)one.dim[0], (int)one.dim[1]);
    else if (!classes && !one.rank) one = sgrad_shape(1, 1);
    d->field[1] = (struct sgrad_field){ classes ? "label" : "target", classes ? SGRAD_I32 : SGRAD_F32, one, to };
    for (int64_t i = 0; i < npy->count; i++) {
        const double number = sgrad__npy_number(npy, i);
        if (classes ? number < 0 || number >= CLASSES_LIMIT : !isfinite((float)number))
            return sgrad_fail(SGRAD_EFORMAT, "npy: %s: number %lld is %g: %s", y->path, (long long)i, number,
                              classes ? "classes are counted from 0" : "no finite one");
        if (classes) ((int32_t *)to)[i] = (int32_t)number;
        else ((float *)to)[i] = (float)number;
        if (classes && number >= d->classes) d->classes = (int)number + 1;
    }
    for (int64_t i = 0; classes && i < other->is.count; i++) {      /* both parts have as many */
        const double number = sgrad__npy_number(&other->is, i);
        if (number >= d->classes && number < CLASSES_LIMIT) d->classes = (int)number + 1;
    }
    return 0;
}

static int open_npy(struct sgrad_dataset *d, const char *argument, const struct sgrad_dataset_options *options) {
    static const char *const name[2][2] = { [SGRAD_TRAIN] = { "x_train", "y_train" }, [SGRAD_TEST] = { "x_test", "y_test" } };
    struct array x = { NULL }, y = { NULL }, other = { NULL };
    struct place place = { NULL };
    (void)options;
    int error = open_place(argument, &place);
    if (!error) error = open_array(&place, name[d->split][0], &x);
    if (!error) error = open_array(&place, name[d->split][1], &y);
    if (!error) error = open_array(&place, name[!d->split][1], &other);
    close_place(&place);
    if (!error && x.is.shape.dim[0] != y.is.shape.dim[0])
        error = sgrad_fail(SGRAD_EFORMAT, "npy: %s has %lld samples, %s has %lld", x.path, (long long)x.is.shape.dim[0], y.path,
                           (long long)y.is.shape.dim[0]);
    if (!error) {
        const bool images = x.is.kind == 'u' && x.is.bytes == 1 && x.is.shape.rank >= 3;
        const bool masks = images && is_whole(&y.is) && y.is.shape.rank == 3 && y.is.shape.dim[1] == x.is.shape.dim[1] &&
                           y.is.shape.dim[2] == x.is.shape.dim[2];
        d->count = x.is.shape.dim[0];
        error = fill_x(d, &x, masks);
        if (!error) error = fill_y(d, &y, &other, masks);
    }
    close_array(&x);
    close_array(&y);
    close_array(&other);
    return error;
}

const struct sgrad_reader sgrad_npy_reader = {
    .name = "npy",
    .argument = "PATH",
    .summary = "NumPy's x_train.npy, y_train.npy, x_test.npy, y_test.npy in a folder or an .npz: images of uint8 or numbers; "
               "classes, of images or of their pixels, or numbers",
    .open = open_npy,
};
