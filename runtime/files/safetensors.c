/* safetensors.c: reads and writes named tensors in a file (format: huggingface.co/docs/safetensors).
 *
 *     byte 0      8               8 + header                                                    end
 *          | u64  | JSON, padded  | tensor | tensor | tensor …                                  |
 *            header   with spaces   0…begin  begin…end                 offsets count from here
 *
 *     {"__metadata__": {"step": "17"}, "fc.weight": {"dtype": "F32", "shape": [10,64], "data_offsets": [0,2560]}, …}
 *
 * All numbers are little-endian. The tensors must fill the data without gaps or overlaps, so that a file is unambiguous.
 *
 * Limits: at most 100 MB of header, as in the reference implementation; at most SGRAD_MAX_RANK dimensions. Tensors of types that
 * are not in enum sgrad_dtype are listed by name, but cannot be read. If a file is written to while it is being read, the values
 * are undefined: programs must replace files, as this code does, not overwrite them. */
#include "config.h"
#include "runtime/files/contents.h"
#include "runtime/internal.h"
#include "runtime/runtime.h"
#include "runtime/files/parts.h"
#include "runtime/files/shards.h"
#include "runtime/spill.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "safetensors are little-endian; big-endian machines are not supported"
#endif

#define LENGTH_BYTES 8
#define HEADER_LIMIT 100000000
#define ALIGNMENT    8
#define METADATA     "__metadata__"
#define BUFFER       ((size_t)1 << 20)
#define FIRST        512        /* number of bytes that identify other kinds of files */

/* ---- reading -------------------------------------------------------------------------------------------------- */

struct located {
    struct sgrad_entry is;
    char *type;             /* name of a type that is not in enum sgrad_dtype; NULL: supported */
    size_t at, size;        /* offset in the data, and size, in bytes */
};

static int malformed(const struct sgrad_safetensors *file, const char *tensor, const char *reason) {
    return sgrad_log_error(SGRAD_EFORMAT, "safetensors: %s: %s: %s", file->path, tensor, reason);
}

static int parse_metadata(const json_t *object, struct sgrad_safetensors *file) {
    if (!json_is_object(object)) return malformed(file, METADATA, "is not a JSON object");
    file->metadata = sgrad_xcalloc(2 * json_object_size(object), sizeof *file->metadata);
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value) {
        if (!json_is_string(value)) return malformed(file, METADATA, "has a value that is not a string");
        file->metadata[2 * file->metadata_count] = sgrad_format("%s", key);
        file->metadata[2 * file->metadata_count + 1] = sgrad_format("%s", json_string_value(value));
        file->metadata_count++;
    }
    return 0;
}

/* Returns false if the type is not supported. */
static bool parse_dtype(const json_t *text, enum sgrad_dtype *dtype) {
    for (*dtype = SGRAD_F32; *dtype <= SGRAD_U8; (*dtype)++)
        if (!strcmp(json_string_value(text), sgrad_dtype_name(*dtype))) return true;
    return false;
}

static bool parse_shape(const json_t *array, struct sgrad_shape *shape) {
    if (!json_is_array(array) || json_array_size(array) > SGRAD_MAX_RANK) return false;
    *shape = (struct sgrad_shape){ .rank = (int)json_array_size(array) };
    for (int i = 0; i < shape->rank; i++) {
        const json_t *dim = json_array_get(array, (size_t)i);
        shape->dim[i] = json_integer_value(dim);
        if (!json_is_integer(dim) || shape->dim[i] < 0) return false;
    }
    return true;
}

static bool parse_offsets(const json_t *array, size_t *begin, size_t *end) {
    const json_t *from = json_array_get(array, 0), *to = json_array_get(array, 1);
    if (json_array_size(array) != 2 || !json_is_integer(from) || !json_is_integer(to)) return false;
    if (json_integer_value(from) < 0 || json_integer_value(to) < json_integer_value(from)) return false;
    *begin = (size_t)json_integer_value(from);
    *end = (size_t)json_integer_value(to);
    return true;
}

/* Returns the size of the data according to the header, in bytes. */
static size_t described(const json_t *header) {
    size_t begin, end, most = 0;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)header, key, value)
        if (parse_offsets(json_object_get(value, "data_offsets"), &begin, &end) && end > most) most = end;
    return most;
}

/* Returns true if a tensor of VIEW has BYTES bytes. The shape comes from the file, so the product may overflow. */
static bool has_bytes(const struct sgrad_view *view, size_t bytes) {
    size_t product = sgrad_dtype_size(view->dtype);
    for (int i = 0; i < view->shape.rank; i++)
        if (__builtin_mul_overflow(product, (size_t)view->shape.dim[i], &product)) return false;
    return product == bytes;
}

/* Parses the description of tensor LOCATED->is.name in HEADER. The data has SIZE bytes and begins at byte START of the file. */
static int parse_entry(const json_t *header, size_t start, size_t size, const struct sgrad_safetensors *file,
                       struct located *located) {
    struct sgrad_entry *entry = &located->is;
    const json_t *info = json_object_get(header, entry->name);
    const char *type = json_string_value(json_object_get(info, "dtype"));
    size_t begin, end;
    if (!json_is_object(info)) return malformed(file, entry->name, "is not a JSON object");
    if (!type) return malformed(file, entry->name, "dtype is not a string");
    if (!parse_dtype(json_object_get(info, "dtype"), &entry->view.dtype)) located->type = sgrad_format("%s", type);
    if (!parse_shape(json_object_get(info, "shape"), &entry->view.shape) && !located->type)
        return malformed(file, entry->name, "shape is not a list of at most 5 sizes");
    if (!parse_offsets(json_object_get(info, "data_offsets"), &begin, &end))
        return malformed(file, entry->name, "data_offsets are not two ascending offsets");
    if (end > size)
        return sgrad_log_error(SGRAD_EFORMAT,
                               "safetensors: %s: %s: the file is truncated: its header describes %zu bytes, but it has %zu; copy "
                               "or download it again",
                               file->path, entry->name, start + described(header), start + size);
    char text[SGRAD_SHAPE_TEXT];
    if (!located->type && !has_bytes(&entry->view, end - begin))
        return sgrad_log_error(SGRAD_EFORMAT, "safetensors: %s: %s: shape %s of %s does not match its %zu bytes", file->path,
                               entry->name, sgrad_shape_text(&entry->view.shape, text), sgrad_dtype_name(entry->view.dtype),
                               end - begin);
    located->at = begin;
    located->size = end - begin;
    return 0;
}

static int by_offset(const void *a, const void *b) {
    const struct located *x = a, *y = b;
    if (x->at != y->at) return x->at < y->at ? -1 : 1;
    return (x->size > y->size) - (x->size < y->size);   /* an empty tensor is first */
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct sgrad_entry *)a)->name, ((const struct sgrad_entry *)b)->name);
}

/* Sorts the tensors by offset. SGRAD_EFORMAT: they do not fill the SIZE bytes of data without gaps or overlaps. */
static int check_offsets(const char *path, struct located *located, int count, size_t size) {
    size_t expected = 0;
    qsort(located, (size_t)count, sizeof *located, by_offset);
    for (int i = 0; i < count; i++) {
        if (located[i].at != expected)
            return sgrad_log_error(SGRAD_EFORMAT,
                                   "safetensors: %s: %s: begins at byte %zu of the data, but the tensor before it ends at %zu",
                                   path, located[i].is.name, located[i].at, expected);
        expected += located[i].size;
    }
    if (expected == size) return 0;
    return sgrad_log_error(SGRAD_EFORMAT, "safetensors: %s: the tensors end at byte %zu of the data, which has %zu bytes", path,
                           expected, size);
}

/* Copies LOCATED, sorted by name, to the supported and the unsupported tensors of FILE. START: first byte of the data. */
static void sort_entries(struct sgrad_safetensors *file, const struct located *located, int count, size_t start) {
    file->entry = sgrad_xcalloc((size_t)count + 1, sizeof *file->entry);
    file->at = sgrad_xcalloc((size_t)count + 1, sizeof *file->at);
    file->other = sgrad_xcalloc((size_t)count + 1, sizeof *file->other);
    file->count = 0;
    for (const struct located *l = located; l < located + count; l++) {
        if (l->type) {
            file->other[file->others++] = (struct sgrad_other){ l->is.name, l->type };
            continue;
        }
        file->entry[file->count] = l->is;
        file->at[file->count++] = start + l->at;
    }
}

/* Parses the header of a file whose data has SIZE bytes and begins at byte START. */
static int parse_entries(const json_t *header, size_t start, size_t size, struct sgrad_safetensors *file) {
    const size_t most = json_object_size(header);
    struct located *located = sgrad_xcalloc(most, sizeof *located);
    const char *key;
    json_t *value;
    int error = 0;
    json_object_foreach((json_t *)header, key, value) {
        if (error) break;
        if (!strcmp(key, METADATA)) {
            error = parse_metadata(value, file);
            continue;
        }
        struct located *p = &located[file->count++];
        p->is.name = sgrad_format("%s", key);
        error = parse_entry(header, start, size, file, p);
    }
    if (!error) error = check_offsets(file->path, located, file->count, size);
    qsort(located, (size_t)file->count, sizeof *located, by_name);
    sort_entries(file, located, file->count, start);
    free(located);
    return error;
}

/* Logs that the file NAME is not in this format, with the kind of file if it is known. */
static int refuse(const char *name, const void *first, size_t size, uint64_t length) {
    const size_t known = size < FIRST ? size : FIRST;
    const struct sgrad_contents *is = sgrad_contents(first, known);
    const bool zip = !memcmp(first, "PK\3\4", 4), pickle = !memcmp(first, "\x80\2\x8a\n", 4); /* pickle: PyTorch before 1.6 */
    if (zip || pickle)
        return sgrad_log_error(SGRAD_EFORMAT,
                               "safetensors: %s: is %s, written by torch.save; convert a state_dict in Python: "
                               "safetensors.torch.save_file(torch.load(FILE), OTHER)",
                               name, zip ? "an archive" : "a pickle");
    if (is)
        return sgrad_log_error(SGRAD_EFORMAT, "safetensors: %s: is %s, not safetensors%s%s", name, is->name,
                               is->way_out ? "; " : "", is->way_out ? is->way_out : "");
    return sgrad_log_error(SGRAD_EFORMAT,
                           "safetensors: %s: byte 0: states a header of %llu bytes, but %zu bytes follow, and a header may have "
                           "at most %d: the file is truncated, or has another format",
                           name, (unsigned long long)length, size - LENGTH_BYTES, HEADER_LIMIT);
}

/* Sets *LENGTH to the length of the header of a file of SIZE bytes. FIRST: the first bytes of the file, at most 512. */
static int parse_length(const char *name, const void *first, size_t size, uint64_t *length) {
    if (size < LENGTH_BYTES)
        return sgrad_log_error(SGRAD_EFORMAT, "safetensors: %s: byte %zu: the file ends here, but must have at least 8 bytes",
                               name, size);
    memcpy(length, first, LENGTH_BYTES);
    if (*length <= HEADER_LIMIT && *length <= size - LENGTH_BYTES) return 0;
    return refuse(name, first, size, *length);
}

/* Parses the header TEXT of a file of SIZE bytes. */
static int parse_header(const char *name, const char *text, size_t length, size_t size, struct sgrad_safetensors *file) {
    json_error_t problem;
    json_t *header = json_loadb(text, length, JSON_REJECT_DUPLICATES, &problem);
    if (!header)
        return sgrad_log_error(SGRAD_EFORMAT, "safetensors: %s: byte %d: %s", name, LENGTH_BYTES + problem.position,
                               problem.text);

    struct sgrad_safetensors result = { .path = sgrad_format("%s", name), .descriptor = -1 };
    int error = text[0] != '{' ? malformed(&result, "byte 8", "the header is not a JSON object")
                               : parse_entries(header, LENGTH_BYTES + length, size - LENGTH_BYTES - length, &result);
    json_decref(header);
    if (error) sgrad_safetensors_close(&result);
    else *file = result;
    return error;
}

int sgrad_safetensors_parse(const char *name, const void *data, size_t size, struct sgrad_safetensors *file) {
    uint64_t length = 0;
    SGRAD_TRY(parse_length(name, data, size, &length));
    SGRAD_TRY(parse_header(name, (const char *)data + LENGTH_BYTES, length, size, file));
    for (int i = 0; i < file->count; i++) file->entry[i].data = (const char *)data + file->at[i];
    return 0;
}

static int read_header(int fd, const char *path, size_t size, struct sgrad_safetensors *file) {
    unsigned char first[FIRST] = { 0 };
    uint64_t length = 0;
    SGRAD_TRY(sgrad__file_read(fd, path, 0, size < sizeof first ? size : sizeof first, first));
    SGRAD_TRY(parse_length(path, first, size, &length));
    char *text = sgrad_xcalloc(length, 1);
    int error = sgrad__file_read(fd, path, LENGTH_BYTES, length, text);
    if (!error) error = parse_header(path, text, length, size, file);
    free(text);
    return error;
}

static int open_one(const char *path, struct sgrad_safetensors *file) {
    size_t size;
    int fd;
    SGRAD_TRY(sgrad__file_open(path, SIZE_MAX / 2, &fd, &size));
    int error = read_header(fd, path, size, file);
    if (error) close(fd);
    else file->descriptor = fd;
    return error;
}

/* Returns true if the file PATH is JSON text, as the index of several files is. */
static bool is_index(const char *path) {
    char first[FIRST];
    FILE *file = fopen(path, "rb");
    const size_t size = file ? fread(first, 1, sizeof first, file) : 0;
    if (file) fclose(file);
    return size >= LENGTH_BYTES && first[LENGTH_BYTES - 1] && sgrad_contents_is_json(first, size);
}

int sgrad_safetensors_open(const char *path, struct sgrad_safetensors *file) {
    struct sgrad_safetensors of_index;
    if (!is_index(path)) return open_one(path, file);
    const int error = sgrad__shards_open(path, open_one, &of_index);
    if (error) sgrad_safetensors_close(&of_index);
    else *file = of_index;
    return error;
}

int sgrad_safetensors_read(const struct sgrad_safetensors *file, const struct sgrad_entry *entry, void *to) {
    const size_t bytes = sgrad_view_bytes(&entry->view);
    const ptrdiff_t i = entry - file->entry;
    const struct sgrad_safetensors *in = file->shards ? &file->shard[file->shard_of[i]] : file;
    if (in->descriptor < 0) return memcpy(to, entry->data, bytes), 0;
    return sgrad__file_read(in->descriptor, in->path, file->at[i], bytes, to);
}

void sgrad_safetensors_close(struct sgrad_safetensors *file) {
    for (int i = 0; i < file->count; i++) free(file->entry[i].name);
    for (int i = 0; i < 2 * file->metadata_count; i++) free(file->metadata[i]);
    for (int i = 0; i < file->others; i++) free(file->other[i].name), free(file->other[i].type);
    for (int i = 0; i < file->shards; i++) sgrad_safetensors_close(&file->shard[i]);
    free(file->shard);
    free(file->shard_of);
    free(file->other);
    free(file->entry);
    free(file->at);
    free(file->metadata);
    if (file->path && file->descriptor >= 0) close(file->descriptor);
    free(file->path);
    *file = (struct sgrad_safetensors){ 0 };
}

const struct sgrad_entry *sgrad_safetensors_find(const struct sgrad_safetensors *file, const char *name) {
    const struct sgrad_entry key = { .name = (char *)name };
    return file->count ? bsearch(&key, file->entry, (size_t)file->count, sizeof key, by_name) : NULL;
}

const char *sgrad_safetensors_other(const struct sgrad_safetensors *file, const char *name) {
    for (int i = 0; i < file->others; i++)
        if (!strcmp(file->other[i].name, name)) return file->other[i].type;
    return NULL;
}

const char *sgrad_safetensors_metadata(const struct sgrad_safetensors *file, const char *key) {
    for (int i = 0; i < file->metadata_count; i++)
        if (!strcmp(file->metadata[2 * i], key)) return file->metadata[2 * i + 1];
    return NULL;
}

/* ---- writing -------------------------------------------------------------------------------------------------- */

/* Sorts wide elements first, so that every tensor is aligned to its elements, as in the reference implementation. */
static int by_width(const void *a, const void *b) {
    const struct sgrad_entry *x = *(const struct sgrad_entry *const *)a, *y = *(const struct sgrad_entry *const *)b;
    size_t m = sgrad_dtype_size(x->view.dtype), n = sgrad_dtype_size(y->view.dtype);
    return m != n ? (m < n) - (m > n) : strcmp(x->name, y->name);
}

/* Returns the header as text, which the caller must free; NULL: a name or a value is not UTF-8, or a name occurs twice. */
static char *make_header(const struct sgrad_entry *const *entry, int count, const char *const *metadata, int metadata_count) {
    json_t *header = json_object(), *object = json_object();
    bool good = true;
    for (int i = 0; i < metadata_count; i++)
        good &= !json_object_set_new(object, metadata[2 * i], json_string(metadata[2 * i + 1]));
    json_object_set(header, METADATA, object);
    json_int_t begin = 0;
    for (int i = 0; i < count; i++) {
        const struct sgrad_view *view = &entry[i]->view;
        const json_int_t end = begin + (json_int_t)sgrad_view_bytes(view);
        json_t *shape = json_array();
        for (int j = 0; j < view->shape.rank; j++) json_array_append_new(shape, json_integer(view->shape.dim[j]));
        good &= !json_object_get(header, entry[i]->name);
        good &= !json_object_set_new(header, entry[i]->name,
                                     json_pack("{s:s, s:o, s:[I, I]}", "dtype", sgrad_dtype_name(view->dtype), "shape", shape,
                                               "data_offsets", begin, end));
        begin = end;
    }
    if (metadata_count == 0) json_object_del(header, METADATA);
    char *text = good ? json_dumps(header, JSON_COMPACT) : NULL;
    json_decref(object);
    json_decref(header);
    return text;
}

/* Write errors are not checked here, because the stream stores them: sgrad_file_commit checks it. */
static void write_all(FILE *stream, const char *header, const struct sgrad_entry *const *entry, int count) {
    const size_t padding = (ALIGNMENT - strlen(header) % ALIGNMENT) % ALIGNMENT;
    const uint64_t length = strlen(header) + padding;
    fwrite(&length, sizeof length, 1, stream);
    fprintf(stream, "%s%*s", header, (int)padding, "");
    for (int i = 0; i < count; i++) {
        const size_t bytes = sgrad_view_bytes(&entry[i]->view);
        for (size_t at = 0, n; at < bytes; at += n) {
            n = bytes - at < BUFFER ? bytes - at : BUFFER;
            fwrite((const char *)entry[i]->data + at, 1, n, stream);
            sgrad_mapped_drop_pages((const char *)entry[i]->data + at, n);
        }
    }
}

int sgrad_safetensors_write(const char *path, const struct sgrad_entry *entry, int count, const char *const *metadata,
                            int metadata_count) {
    const struct sgrad_entry **sorted = sgrad_xcalloc((size_t)count, sizeof *sorted);
    for (int i = 0; i < count; i++) sorted[i] = &entry[i];
    qsort(sorted, (size_t)count, sizeof *sorted, by_width);
    char *header = make_header(sorted, count, metadata, metadata_count);
    struct sgrad_file file;
    int error =
        header ? sgrad_file_begin(path, &file)
               : sgrad_log_error(SGRAD_EINVAL,
                                 "safetensors: %s: cannot be written: the name of a tensor is not UTF-8, or occurs twice", path);
    if (!error) {
        write_all(file.stream, header, sorted, count);
        error = sgrad_file_commit(&file);
    }
    free(header);
    free(sorted);
    return error;
}

/* ---- checksums ------------------------------------------------------------------------------------------------- */

static uLong checksum_of_name(const struct sgrad_entry *entry) {
    return crc32_z(0, (const Bytef *)entry->name, strlen(entry->name));
}

void sgrad_safetensors_checksum(const struct sgrad_entry *entry, int count, char text[SGRAD_CHECKSUM]) {
    uint32_t sum = 0;
    for (int i = 0; i < count; i++) {
        const size_t bytes = sgrad_view_bytes(&entry[i].view);
        uLong crc = checksum_of_name(&entry[i]);
        for (size_t at = 0, n; at < bytes; at += n) {
            n = bytes - at < BUFFER ? bytes - at : BUFFER;
            crc = crc32_z(crc, (const Bytef *)entry[i].data + at, n);
            sgrad_mapped_drop_pages((const Bytef *)entry[i].data + at, n);
        }
        sum += (uint32_t)crc;
    }
    snprintf(text, SGRAD_CHECKSUM, "%08x", sum);
}

/* Computes the checksum of the name and data of entry I, and reads the data in chunks to BUFFER. */
static int checksum_of_entry(const struct sgrad_safetensors *file, int i, unsigned char *buffer, uLong *crc) {
    const struct sgrad_entry *entry = &file->entry[i];
    const struct sgrad_safetensors *in = file->shards ? &file->shard[file->shard_of[i]] : file;
    const size_t bytes = sgrad_view_bytes(&entry->view);
    *crc = checksum_of_name(entry);
    for (size_t from = 0, piece; from < bytes; from += piece) {
        piece = bytes - from < BUFFER ? bytes - from : BUFFER;
        SGRAD_TRY(sgrad__file_read(in->descriptor, in->path, file->at[i] + from, piece, buffer));
        *crc = crc32_z(*crc, buffer, piece);
    }
    return 0;
}

int sgrad_safetensors_file_checksum(const struct sgrad_safetensors *file, char text[SGRAD_CHECKSUM]) {
    unsigned char *buffer = sgrad_xcalloc(BUFFER, 1);
    uint32_t sum = 0;
    int error = 0;
    for (int i = 0; i < file->count && !error; i++) {
        uLong crc;
        error = checksum_of_entry(file, i, buffer, &crc);
        sum += (uint32_t)crc;
    }
    free(buffer);
    if (!error) snprintf(text, SGRAD_CHECKSUM, "%08x", sum);
    return error;
}
