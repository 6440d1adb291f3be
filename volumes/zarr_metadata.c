/* zarr_metadata.c: parses the metadata of a Zarr array, .zarray (version 2) or zarr.json (version 3), and refuses those that are
 * not supported.
 *
 * Sources: zarr-specs.readthedocs.io, v2/v2.0 and v3/core. */
#include "config.h"
#include "volumes/formats.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

#define FAIL(...) sgrad_log_error(SGRAD_EFORMAT, __VA_ARGS__)

/* Returns true if TEXT is type V: "<f4", "|u1" (version 2) or "float32" (version 3). */
static bool is_voxel(enum sgrad_voxel v, const char *text, int version) {
    static const char *const short_name[SGRAD_VOXELS] = { "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f4", "f8" };
    if (version == 3) return !strcmp(text, sgrad_voxel_name(v));
    return strlen(text) == 3 && strchr(text[2] == '1' ? "<>|" : "<>", *text) && !strcmp(text + 1, short_name[v]);
}

/* Parses the type of voxels. */
static int find_voxel(const char *name, const char *text, int version, struct sgrad__zarr *zarr) {
    for (enum sgrad_voxel v = 0; v < SGRAD_VOXELS && text; v++)
        if (is_voxel(v, text, version)) return zarr->voxel = v, zarr->swapped = version == 2 && *text == '>', 0;
    return FAIL("%s: voxels of type '%s' are not supported; they must be integers or real numbers of 8 to 64 bits", name,
                text ? text : "?");
}

static int read_sizes(const char *name, const char *what, const json_t *list, int64_t *to, struct sgrad__zarr *zarr) {
    const size_t count = json_array_size(list);
    if (count < 1 || count > SGRAD_VOLUME_RANK || (zarr->rank && zarr->rank != (int)count))
        return FAIL("%s: \"%s\" is not a list of 1 to %d sizes", name, what, SGRAD_VOLUME_RANK);
    zarr->rank = (int)count;
    for (size_t i = 0; i < count; i++) {
        to[i] = (int64_t)json_integer_value(json_array_get(list, i));
        if (to[i] < 1) return FAIL("%s: \"%s\" has a size that is not a number of 1 or more", name, what);
    }
    return 0;
}

/* Parses the fill value, a number; null becomes 0. */
static int read_fill(const char *name, const json_t *fill, struct sgrad__zarr *zarr) {
    const char *text = json_string_value(fill);
    if (json_is_number(fill)) zarr->fill = json_number_value(fill);
    else if (json_is_true(fill)) zarr->fill = 1;
    else if (text && !strcmp(text, "NaN")) zarr->fill = NAN;
    else if (text && !strcmp(text, "Infinity")) zarr->fill = INFINITY;
    else if (text && !strcmp(text, "-Infinity")) zarr->fill = -INFINITY;
    else if (text)
        return FAIL("%s: \"fill_value\" is '%s', but must be a number", name, text);
    return 0;
}

static int read_separator(const char *name, const char *text, struct sgrad__zarr *zarr) {
    if (!text || strlen(text) != 1 || !strchr("./", *text))
        return FAIL("%s: the separator of chunk numbers must be '.' or '/'", name);
    zarr->separator = *text;
    return 0;
}

static int read_codec(const char *name, const char *id, struct sgrad__zarr *zarr) {
    if (id && sgrad__codec_find(id, &zarr->codec)) return 0;
    return FAIL("%s: compression with '%s' is not supported; it must be none, zlib, gzip, zstd or blosc", name, id ? id : "?");
}

static int parse2(const char *name, const json_t *json, struct sgrad__zarr *zarr) {
    const char *order = json_string_value(json_object_get(json, "order")), *separator = ".";
    const json_t *compressor = json_object_get(json, "compressor"), *filters = json_object_get(json, "filters");
    const json_t *own = json_object_get(json, "dimension_separator");
    SGRAD_TRY(read_sizes(name, "shape", json_object_get(json, "shape"), zarr->dim, zarr));
    SGRAD_TRY(read_sizes(name, "chunks", json_object_get(json, "chunks"), zarr->chunk, zarr));
    SGRAD_TRY(find_voxel(name, json_string_value(json_object_get(json, "dtype")), 2, zarr));
    if (order && strcmp(order, "C") && strcmp(order, "F"))
        return FAIL("%s: chunks in order '%s' are not supported; the order must be C or F", name, order);
    zarr->turned = order && *order == 'F';
    if (json_array_size(filters)) return FAIL("%s: has filters, which are not supported", name);
    zarr->separated = own != NULL;
    if (own) separator = json_string_value(own);
    if (json_is_object(compressor)) SGRAD_TRY(read_codec(name, json_string_value(json_object_get(compressor, "id")), zarr));
    SGRAD_TRY(read_separator(name, separator, zarr));
    return read_fill(name, json_object_get(json, "fill_value"), zarr);
}

/* Parses the list of codecs: "bytes", then at most one compressor. */
static int parse3_codecs(const char *name, const json_t *codecs, struct sgrad__zarr *zarr) {
    bool bytes = false;
    for (size_t i = 0; i < json_array_size(codecs); i++) {
        const json_t *codec = json_array_get(codecs, i), *how = json_object_get(codec, "configuration");
        const char *id = json_is_string(codec) ? json_string_value(codec) : json_string_value(json_object_get(codec, "name"));
        const char *endian = json_string_value(json_object_get(how, "endian"));
        if (id && !strcmp(id, "bytes") && !bytes) {
            if (endian && strcmp(endian, "little") && strcmp(endian, "big"))
                return FAIL("%s: voxels are %s-endian, but must be little or big", name, endian);
            zarr->swapped = endian && *endian == 'b';
            bytes = true;
        } else if (!bytes || zarr->codec != SGRAD__NO_CODEC)
            return FAIL("%s: codec '%s' is not supported; codecs must be \"bytes\" and at most one compressor", name,
                        id ? id : "?");
        else SGRAD_TRY(read_codec(name, id, zarr));
    }
    return bytes ? 0 : FAIL("%s: \"codecs\" has no \"bytes\"", name);
}

static int parse3(const char *name, const json_t *json, struct sgrad__zarr *zarr) {
    const char *type = json_string_value(json_object_get(json, "node_type"));
    const json_t *grid = json_object_get(json, "chunk_grid"), *keys = json_object_get(json, "chunk_key_encoding");
    const char *kind = json_string_value(json_object_get(grid, "name")), *key = json_string_value(json_object_get(keys, "name"));
    if (!type || strcmp(type, "array"))
        return FAIL("%s: is a %s, not an array; give the array's folder", name, type ? type : "?");
    if (!kind || strcmp(kind, "regular"))
        return FAIL("%s: chunks of grid '%s' are not supported; the grid must be regular", name, kind ? kind : "?");
    if (!key || (strcmp(key, "default") && strcmp(key, "v2")))
        return FAIL("%s: chunk names '%s' are not supported; they must be default or v2", name, key ? key : "?");
    if (json_array_size(json_object_get(json, "storage_transformers")))
        return FAIL("%s: has storage transformers, which are not supported", name);
    zarr->prefixed = strcmp(key, "default") == 0;
    const json_t *separator = json_object_get(json_object_get(keys, "configuration"), "separator");
    zarr->separated = true;
    SGRAD_TRY(read_sizes(name, "shape", json_object_get(json, "shape"), zarr->dim, zarr));
    SGRAD_TRY(read_sizes(name, "chunk_shape", json_object_get(json_object_get(grid, "configuration"), "chunk_shape"), zarr->chunk,
                         zarr));
    SGRAD_TRY(find_voxel(name, json_string_value(json_object_get(json, "data_type")), 3, zarr));
    const char *usual = zarr->prefixed ? "/" : ".";
    SGRAD_TRY(read_separator(name, separator ? json_string_value(separator) : usual, zarr));
    SGRAD_TRY(parse3_codecs(name, json_object_get(json, "codecs"), zarr));
    SGRAD_TRY(sgrad__axes_check_json(name, zarr->rank, zarr->dim, json_object_get(json, "dimension_names")));
    return read_fill(name, json_object_get(json, "fill_value"), zarr);
}

int sgrad__zarr_parse(const char *name, const void *data, size_t size, int version, struct sgrad__zarr *zarr) {
    json_error_t wrong;
    json_t *json = json_loadb(data, size, 0, &wrong);
    struct sgrad__zarr parsed = { .version = version };
    if (!json) return FAIL("%s: line %d: %s", name, wrong.line, wrong.text);
    int error;
    if (json_integer_value(json_object_get(json, "zarr_format")) != version)
        error = FAIL("%s: \"zarr_format\" is not %d", name, version);
    else error = (version == 3 ? parse3 : parse2)(name, json, &parsed);
    json_decref(json);
    if (!error) *zarr = parsed;
    return error;
}
