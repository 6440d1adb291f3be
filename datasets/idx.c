/* idx.c: the reader of MNIST and of other data sets in the same format (yann.lecun.com/exdb/mnist).
 *
 * A file is an array of bytes. All numbers are big-endian:
 *
 *     byte 0  1  2     3     4      8                4 + 4 rank
 *          | 0  0  type rank | dim 0 | dim 1 | …     | elements, the last index fastest      type 8: unsigned byte
 *
 * DIR contains train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte, each with or
 * without the extension .gz. The spelling "train-images.idx3-ubyte" is accepted, too. The files do not state the number of
 * classes: it is one more than the largest label of the training split.
 *
 * Limits: grey images; 16 GiB per file. */
#include "config.h"
#include "datasets/datasets.h"
#include "datasets/formats.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#define FILE_LIMIT    ((uint64_t)1 << 34)
#define SIDE_LIMIT    65535
#define DEFLATE_RATIO 1032 /* maximum expansion by deflate (zlib.net/zlib_tech.html) */

/* ---- the bytes of a file, with or without gzip ------------------------------------------------------------------ */

struct source {
    const unsigned char *next; /* next byte in the file */
    size_t left;
    bool gzipped, ended;
    z_stream z;
    const char *damage; /* error in the compressed data, or NULL */
};

static int source_open(struct source *source, const char *name, const unsigned char *data, size_t size) {
    *source = (struct source){ .next = data, .left = size, .gzipped = size >= 2 && data[0] == 0x1f && data[1] == 0x8b };
    if (source->gzipped && inflateInit2(&source->z, 16 + MAX_WBITS) != Z_OK)
        return sgrad_log_error(SGRAD_ENOMEM, "idx: %s: no memory for zlib", name);
    return 0;
}

static void source_close(struct source *source) {
    if (source->gzipped) inflateEnd(&source->z);
}

/* Decompresses up to N bytes. zlib counts in 32 bits, so input and output are passed in chunks. A gzip file may have several
 * members. */
static size_t inflate_some(struct source *source, unsigned char *to, size_t n) {
    z_stream *z = &source->z;
    size_t got = 0;
    while (got < n && !source->ended && !source->damage) {
        if (z->avail_in == 0) {
            z->next_in = (unsigned char *)source->next;
            z->avail_in = source->left < UINT_MAX ? (uInt)source->left : UINT_MAX;
            source->next += z->avail_in;
            source->left -= z->avail_in;
        }
        const uInt room = n - got < UINT_MAX ? (uInt)(n - got) : UINT_MAX;
        z->next_out = to + got;
        z->avail_out = room;
        int status = inflate(z, Z_NO_FLUSH);
        got += room - z->avail_out;
        if (status == Z_STREAM_END && z->avail_in + source->left == 0)
            source->ended = true;
        else if (status == Z_STREAM_END)
            inflateReset(z);
        else if (status == Z_BUF_ERROR)
            source->damage = "the compressed data end early";
        else if (status != Z_OK)
            source->damage = z->msg ? z->msg : "the compressed data are damaged";
    }
    return got;
}

/* Copies up to N bytes to TO. Returns their number, which is less than N if the file ends or is damaged. */
static size_t source_take(struct source *source, void *to, size_t n) {
    if (source->gzipped) return inflate_some(source, to, n);
    if (n > source->left) n = source->left;
    memcpy(to, source->next, n);
    source->next += n;
    source->left -= n;
    return n;
}

/* ---- the format -------------------------------------------------------------------------------------------------- */

static int truncated(const struct source *source, const char *name, size_t at, uint64_t promised) {
    if (source->damage)
        return sgrad_log_error(SGRAD_EFORMAT, "idx: %s: byte %zu of the uncompressed data: %s", name, at, source->damage);
    return sgrad_log_error(SGRAD_EFORMAT, "idx: %s: byte %zu: the file ends early; its header requires %llu bytes", name, at,
                           (unsigned long long)promised);
}

/* Parses the header. SOURCE is then at the first element. SGRAD_EFORMAT. */
static int parse_header(struct source *source, const char *name, size_t size, int rank, struct sgrad__idx *idx) {
    unsigned char header[4 + 4 * SGRAD__IDX_RANK];
    const size_t length = 4 + 4 * (size_t)rank;
    size_t got = source_take(source, header, length);
    if (got < length) return truncated(source, name, got, length);
    if (header[0] || header[1] || header[2] != 8 || header[3] != rank)
        return sgrad_log_error(
            SGRAD_EFORMAT,
            "idx: %s: byte 0: %02x %02x %02x %02x is invalid; it must be 00 00 08 %02x for an array of bytes in %d %s", name,
            header[0], header[1], header[2], header[3], rank, rank, sgrad_plural(rank, "dimension", "dimensions"));
    uint64_t count = 1;
    for (int i = 0; i < rank; i++) {
        const unsigned char *b = header + 4 + 4 * i;
        const uint32_t dim = (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
        if (dim == 0 || (i > 0 && dim > SIDE_LIMIT) || __builtin_mul_overflow(count, dim, &count) || count > FILE_LIMIT)
            return sgrad_log_error(
                SGRAD_EFORMAT,
                "idx: %s: byte %d: dimension %d is %u; image sides must be from 1 to %d, and a file may have at most 16 GiB",
                name, 4 + 4 * i, i, dim, SIDE_LIMIT);
        idx->dim[i] = dim;
    }
    if (count > (source->gzipped ? (uint64_t)size * DEFLATE_RATIO : source->left))
        return truncated(source, name, size, length + count);
    idx->count = (int64_t)count;
    return 0;
}

static int parse_elements(struct source *source, const char *name, int rank, struct sgrad__idx *idx) {
    const size_t count = (size_t)idx->count, header = 4 + 4 * (size_t)rank;
    idx->data = malloc(count);
    if (!idx->data) return sgrad_log_error(SGRAD_ENOMEM, "idx: %s: no memory for %zu bytes", name, count);
    size_t got = source_take(source, idx->data, count);
    if (got < count) return truncated(source, name, header + got, header + count);
    unsigned char more;
    if (source_take(source, &more, 1))
        return sgrad_log_error(SGRAD_EFORMAT, "idx: %s: byte %zu: bytes follow the last element that the header describes", name,
                               header + count);
    if (source->damage) return truncated(source, name, header + count, header + count); /* the checksum comes last */
    return 0;
}

int sgrad__idx_parse(const char *name, const void *data, size_t size, int rank, struct sgrad__idx *idx) {
    struct sgrad__idx result = { .data = NULL };
    struct source source;
    SGRAD_TRY(source_open(&source, name, data, size));
    int error = parse_header(&source, name, size, rank, &result);
    if (!error) error = parse_elements(&source, name, rank, &result);
    source_close(&source);
    if (error)
        free(result.data);
    else
        *idx = result;
    return error;
}

/* ---- the reader -------------------------------------------------------------------------------------------------- */

#define WANTED                                                                                                                   \
    "give idx:DIR, where DIR contains train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and "             \
    "t10k-labels-idx1-ubyte"

/* Returns the path of the file of WHAT ("images", "labels") in the first spelling that exists; NULL: none exists. The caller must
 * free it. */
static char *find(const char *folder, enum sgrad_split split, const char *what, int rank) {
    const char *prefix = split == SGRAD_TRAIN ? "train" : "t10k";
    for (int i = 0; i < 4; i++) {
        char *path = sgrad_format("%s/%s-%s%cidx%d-ubyte%s", folder, prefix, what, i & 2 ? '.' : '-', rank, i & 1 ? ".gz" : "");
        if (!access(path, F_OK)) return path;
        free(path);
    }
    return NULL;
}

/* Parses the file of WHAT. *PATH is set to its path, which the caller must free, also after an error. */
static int load(const char *folder, enum sgrad_split split, const char *what, int rank, struct sgrad__idx *idx, char **path) {
    struct sgrad_map map;
    *path = find(folder, split, what, rank);
    if (!*path)
        return sgrad_log_error(SGRAD_EIO, "data set idx:%s: has no %s-%s-idx%d-ubyte, plain or .gz; " WANTED, folder,
                               split == SGRAD_TRAIN ? "train" : "t10k", what, rank);
    SGRAD_TRY(sgrad_map_open(*path, FILE_LIMIT + 16, &map));
    int error = sgrad__idx_parse(*path, map.data, map.size, rank, idx);
    sgrad_map_close(&map);
    return error;
}

static int largest(const struct sgrad__idx *idx) {
    int most = 0;
    for (int64_t i = 0; i < idx->count; i++)
        if (idx->data[i] > most) most = idx->data[i];
    return most;
}

/* Sets *CLASSES by the labels of the training split, if its file exists. */
static int count_classes(const char *folder, int *classes) {
    char *path = find(folder, SGRAD_TRAIN, "labels", 1);
    if (!path) return 0;
    free(path);
    struct sgrad__idx labels = { .data = NULL };
    int error = load(folder, SGRAD_TRAIN, "labels", 1, &labels, &path);
    if (!error) *classes = 1 + largest(&labels);
    free(labels.data);
    free(path);
    return error;
}

static int take_labels(struct sgrad_dataset *dataset, const struct sgrad__idx *labels, const char *path) {
    if (labels->count != dataset->count)
        return sgrad_log_error(SGRAD_EFORMAT, "idx: %s: byte 4: has %lld %s, but there are %lld %s", path,
                               (long long)labels->count, sgrad_plural(labels->count, "label", "labels"),
                               (long long)dataset->count, sgrad_plural(dataset->count, "image", "images"));
    int32_t *label = sgrad_xcalloc((size_t)labels->count, sizeof *label);
    dataset->field[1] = (struct sgrad_field){ "label", SGRAD_I32, { 0 }, label };
    for (int64_t i = 0; i < labels->count; i++) {
        if (labels->data[i] >= dataset->classes)
            return sgrad_log_error(SGRAD_EFORMAT, "idx: %s: byte %lld: record %lld has label %d, but there are %d classes", path,
                                   (long long)i + 8, (long long)i, labels->data[i], dataset->classes);
        label[i] = labels->data[i];
    }
    return 0;
}

static int open_images(struct sgrad_dataset *dataset, const char *folder) {
    struct sgrad__idx images;
    char *path;
    int error = load(folder, dataset->split, "images", 3, &images, &path);
    free(path);
    SGRAD_TRY(error);
    dataset->field[0] = (struct sgrad_field){ "pixels", SGRAD_U8, { 3, { images.dim[1], images.dim[2], 1 } }, images.data };
    dataset->count = images.dim[0];
    dataset->full_scale = 255;
    return 0;
}

static int open_idx(struct sgrad_dataset *dataset, const char *folder, const struct sgrad_dataset_options *options) {
    (void)options;
    SGRAD_TRY(sgrad__folder_check("idx", folder, WANTED));
    SGRAD_TRY(open_images(dataset, folder));
    struct sgrad__idx labels = { .data = NULL };
    char *path;
    int error = load(folder, dataset->split, "labels", 1, &labels, &path);
    if (!error) dataset->classes = 1 + largest(&labels);
    if (!error && dataset->split == SGRAD_TEST) error = count_classes(folder, &dataset->classes);
    if (!error) error = take_labels(dataset, &labels, path);
    if (!error && dataset->split == SGRAD_TRAIN) {
        char *where = sgrad_format("idx: %s", path);
        sgrad__warn_of_unused(where, dataset->field[1].data, dataset->count, dataset);
        free(where);
    }
    free(labels.data);
    free(path);
    return error;
}

const struct sgrad_reader sgrad_idx_reader = {
    .name = "idx",
    .argument = "DIR",
    .summary = "files in the MNIST format, optionally gzipped: train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-… in DIR",
    .open = open_idx,
};
