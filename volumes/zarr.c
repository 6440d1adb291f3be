/* zarr.c: Zarr arrays: a folder with the metadata of the array, and one file per chunk.
 *
 *     version 2    stack.zarr/.zarray       stack.zarr/0.3.1     or 0/3/1
 *     version 3    stack.zarr/zarr.json     stack.zarr/c/0/3/1   or c.0.3.1, 0.3.1
 *
 * The voxels of a missing chunk have the fill value. Chunks at the end of a dimension have full size, beyond the end. Volumes are
 * written in version 2, compressed with Zstandard. */
#include "config.h"
#include "volumes/formats.h"

#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define METADATA_LIMIT ((size_t)1 << 20)

static char *metadata_of(const char *path, int version) {
    return sgrad_format("%s/%s", path, version == 3 ? "zarr.json" : ".zarray");
}

static int version_of(const char *path) {
    int found = 0;
    for (int version = 2; version <= 3 && !found; version++) {
        char *file = metadata_of(path, version);
        if (!access(file, F_OK)) found = version;
        free(file);
    }
    return found;
}

static bool is_zarr(const char *name) {
    const size_t length = strlen(name), bare = length && name[length - 1] == '/' ? length - 1 : length;
    return version_of(name) || (bare > 5 && !strncmp(name + bare - 5, ".zarr", 5));
}

static int open_zarr(struct sgrad_volume *volume) {
    const int version = version_of(volume->path);
    struct stat status;
    if (stat(volume->path, &status)) return sgrad_log_error(SGRAD_EIO, "%s: %s", volume->path, strerror(errno));
    if (!version)
        return sgrad_log_error(SGRAD_EFORMAT,
                               "%s: has neither .zarray nor zarr.json: it is not a Zarr array, or is a group of arrays",
                               volume->path);
    struct sgrad__zarr *zarr = volume->state = sgrad_xcalloc(1, sizeof *zarr);
    struct sgrad_map map;
    char *file = metadata_of(volume->path, version);
    int error = sgrad_map_open(file, METADATA_LIMIT, &map);
    if (!error) {
        error = sgrad__zarr_parse(file, map.data, map.size, version, zarr);
        sgrad_map_close(&map);
    }
    free(file);
    SGRAD_TRY(error);
    volume->voxel = zarr->voxel;
    return sgrad__volume_shape(volume, zarr->rank, zarr->dim, zarr->chunk);
}

/* Returns the path of a chunk, "FOLDER/c/0/3/1". The caller must free it. */
static char *chunk_path(const struct sgrad_volume *volume, const int64_t *place) {
    const struct sgrad__zarr *zarr = volume->state;
    char text[96], *to = text;
    if (zarr->prefixed) to += sprintf(to, "c%c", zarr->separator);
    for (int d = SGRAD_VOLUME_RANK - volume->rank; d < SGRAD_VOLUME_RANK; d++)
        to += sprintf(to, "%lld%c", (long long)place[d], zarr->separator);
    to[-1] = 0;
    return sgrad_format("%s/%s", volume->path, text);
}

/* Returns true if ENTRY is the name of a chunk, or of a folder of chunks, whose indices are separated by SEPARATOR. */
static bool has_chunks(const struct sgrad__zarr *zarr, const char *entry, char separator) {
    const size_t length = zarr->prefixed ? *entry == 'c' : strspn(entry, "0123456789");
    const bool whole = separator == '/' || (zarr->rank == 1 && !zarr->prefixed);
    return length > 0 && entry[length] == (whole ? 0 : separator);
}

/* Detects the separator of indices, if the metadata do not state it. Warns if the folder contains no chunk. */
static void find_chunks(struct sgrad_volume *volume) {
    struct sgrad__zarr *zarr = volume->state;
    const struct dirent *entry;
    bool there = false, nested = false;
    DIR *folder = opendir(volume->path);
    while (folder && !there && (entry = readdir(folder))) {
        there = has_chunks(zarr, entry->d_name, zarr->separator);
        nested |= has_chunks(zarr, entry->d_name, '/');
    }
    if (folder) closedir(folder);
    if (!there && nested && !zarr->separated) zarr->separator = '/', there = true;  /* old libraries did not state it */
    char *first = chunk_path(volume, (const int64_t[SGRAD_VOLUME_RANK]){ 0 });
    if (!there && sgrad_launched_rank() == 0)
        sgrad_log_warning("%s: has no chunks (the first would be %s), so every voxel has the fill value", volume->path, first);
    free(first);
}

/* Checks the names of axes in .zattrs (version 2), as xarray writes them. */
static int check_names(const struct sgrad_volume *volume) {
    char *file = sgrad_format("%s/.zattrs", volume->path);
    json_t *json = access(file, F_OK) ? NULL : json_load_file(file, 0, NULL);
    const int64_t *dim = volume->dim + SGRAD_VOLUME_RANK - volume->rank;
    int error = sgrad__axes_check_json(file, volume->rank, dim, json_object_get(json, "_ARRAY_DIMENSIONS"));
    json_decref(json);
    free(file);
    return error;
}

static int open_to_read(struct sgrad_volume *volume) {
    SGRAD_TRY(open_zarr(volume));
    SGRAD_TRY(sgrad__codec_check(((const struct sgrad__zarr *)volume->state)->codec, volume->path));
    SGRAD_TRY(check_names(volume));
    find_chunks(volume);
    return 0;
}

/* ---- chunks ------------------------------------------------------------------------------------------------------ */

struct passage {
    const struct sgrad_volume *volume;
    const struct sgrad_box *box;
    void *to;
    const void *from;
    void *room;                 /* buffer for a chunk */
    size_t bytes;
};

static void fill(const struct sgrad_volume *volume, int64_t count, void *room) {
    const double value = ((const struct sgrad__zarr *)volume->state)->fill;
    memset(room, 0, (size_t)count * sgrad_voxel_size(volume->voxel));
    for (int64_t i = 0; i < count && value != 0; i++)
        sgrad_voxel_convert(SGRAD_VOXEL_F64, &value, 1, volume->voxel,
                            (char *)room + (size_t)i * sgrad_voxel_size(volume->voxel));
}

/* Reverses the byte order of voxels of SIZE bytes. */
static void swap(char *voxel, int64_t count, size_t size) {
    for (; count > 0; count--, voxel += size)
        for (size_t i = 0; i < size / 2; i++) {
            const char byte = voxel[i];
            voxel[i] = voxel[size - 1 - i];
            voxel[size - 1 - i] = byte;
        }
}

/* Transposes a chunk from order F (first index fastest) to order C (last index fastest). */
static void turn(const int64_t *dim, size_t size, char *chunk) {
    const int64_t count = dim[0] * dim[1] * dim[2] * dim[3];
    char *from = sgrad_xcalloc((size_t)count, size), *to = chunk;
    memcpy(from, chunk, (size_t)count * size);
    for (int64_t c = 0; c < dim[0]; c++)
        for (int64_t z = 0; z < dim[1]; z++)
            for (int64_t y = 0; y < dim[2]; y++)
                for (int64_t x = 0; x < dim[3]; x++, to += size)
                    memcpy(to, from + (size_t)(c + dim[0] * (z + dim[1] * (y + dim[2] * x))) * size, size);
    free(from);
}

static int read_chunk(const struct sgrad__piece *piece, void *arg) {
    const struct passage *p = arg;
    const struct sgrad_volume *v = p->volume;
    char *path = chunk_path(v, piece->place);
    struct sgrad_map map;
    int error = 0;
    if (access(path, F_OK) && errno == ENOENT) fill(v, sgrad_box_count(&piece->chunk), p->room);
    else if (!(error = sgrad_map_open(path, 2 * SGRAD__CHUNK_LIMIT, &map))) {
        const struct sgrad__zarr *zarr = v->state;
        const size_t size = sgrad_voxel_size(v->voxel);
        error = sgrad__codec_expand(zarr->codec, path, map.data, map.size, p->room, p->bytes);
        if (!error && zarr->swapped) swap(p->room, (int64_t)(p->bytes / size), size);
        if (!error && zarr->turned) turn(v->chunk, size, p->room);
        sgrad_map_close(&map);
    }
    if (!error) sgrad_box_copy(&piece->inside, sgrad_voxel_size(v->voxel), &piece->chunk, p->room, p->box, p->to);
    free(path);
    return error;
}

static int pass(struct passage *passage, int (*work)(const struct sgrad__piece *, void *)) {
    const int64_t *chunk = passage->volume->chunk;
    passage->bytes = (size_t)(chunk[0] * chunk[1] * chunk[2] * chunk[3]) * sgrad_voxel_size(passage->volume->voxel);
    passage->room = sgrad_xcalloc(1, passage->bytes);
    int error = sgrad__volume_pieces(passage->volume, passage->box, work, passage);
    free(passage->room);
    return error;
}

static int read_zarr(const struct sgrad_volume *volume, const struct sgrad_box *box, void *to) {
    return pass(&(struct passage){ .volume = volume, .box = box, .to = to }, read_chunk);
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static int write_file(const char *path, const void *data, size_t size) {
    struct sgrad_file file;
    SGRAD_TRY(sgrad_file_begin(path, &file));
    if (fwrite(data, 1, size, file.stream) == size) return sgrad_file_commit(&file);
    int error = sgrad_log_error(SGRAD_EIO, "%s: cannot be written: %s", path, strerror(errno));
    sgrad_file_abort(&file);
    return error;
}

static int write_chunk(const struct sgrad__piece *piece, void *arg) {
    const struct passage *p = arg;
    char *path = chunk_path(p->volume, piece->place);
    void *packed;
    memset(p->room, 0, p->bytes);
    sgrad_box_copy(&piece->inside, sgrad_voxel_size(p->volume->voxel), p->box, p->from, &piece->chunk, p->room);
    const size_t size = sgrad__codec_pack(p->room, p->bytes, &packed);
    int error =
        size ? write_file(path, packed, size) : sgrad_log_error(SGRAD_ENOMEM, "%s: no memory to compress this chunk", path);
    free(packed);
    free(path);
    return error;
}

static int write_zarr(const struct sgrad_volume *volume, const struct sgrad_box *box, const void *from) {
    const struct sgrad__zarr *zarr = volume->state;
    if (zarr->version != 2 || zarr->codec != SGRAD__ZSTD || zarr->separator != '.')
        return sgrad_log_error(
            SGRAD_EFORMAT, "%s: cannot be written: the Zarr array must have version 2, zstd compression and the separator '.'",
            volume->path);
    return pass(&(struct passage){ .volume = volume, .box = box, .from = from }, write_chunk);
}

static int has_chunk(const struct sgrad__piece *piece, void *arg) {
    const struct passage *p = arg;
    const struct sgrad_volume *v = p->volume;
    char *path = chunk_path(v, piece->place);
    struct stat status;
    struct sgrad_map map;
    bool whole = false;
    if (!stat(path, &status) && status.st_size > 0 && !sgrad_map_open(path, 2 * SGRAD__CHUNK_LIMIT, &map)) {
        whole = sgrad__codec_whole(((const struct sgrad__zarr *)v->state)->codec, map.data, map.size,
                                   (size_t)sgrad_box_count(&piece->chunk) * sgrad_voxel_size(v->voxel));
        sgrad_map_close(&map);
    }
    free(path);
    return whole ? 0 : SGRAD_EIO;
}

static bool has_zarr(const struct sgrad_volume *volume, const struct sgrad_box *box) {
    return sgrad__volume_pieces(volume, box, has_chunk, &(struct passage){ .volume = volume }) == 0;
}

/* Opens the existing volume. SGRAD_EIO: it has another type, other dimensions or chunks. */
static int take_over(struct sgrad_volume *volume) {
    struct sgrad_volume there = { .path = volume->path };
    int error = open_zarr(&there);
    const bool same = !error && there.voxel == volume->voxel && there.rank == volume->rank &&
                      !memcmp(there.dim, volume->dim, sizeof volume->dim) &&
                      !memcmp(there.chunk, volume->chunk, sizeof volume->chunk);
    if (same) volume->state = there.state;
    else free(there.state);
    SGRAD_TRY(error);
    if (same) return 0;
    return sgrad_log_error(SGRAD_EIO, "%s: already exists with another type, shape or chunk shape; give another name",
                           volume->path);
}

static int create_zarr(struct sgrad_volume *volume) {
    static const char *const type[SGRAD_VOXELS] = { "|u1", "<u2", "<u4", "<u8", "|i1", "<i2", "<i4", "<i8", "<f4", "<f8" };
    const int64_t *d = volume->dim, *c = volume->chunk;
    SGRAD_TRY(sgrad__codec_check(SGRAD__ZSTD, volume->path));
    if (version_of(volume->path)) return take_over(volume);
    if (mkdir(volume->path, 0777) && errno != EEXIST)
        return sgrad_log_error(SGRAD_EIO, "%s: cannot be created: %s", volume->path, strerror(errno));
    struct sgrad__zarr *zarr = volume->state = sgrad_xcalloc(1, sizeof *zarr);
    *zarr = (struct sgrad__zarr){
        .version = 2, .rank = volume->rank, .voxel = volume->voxel, .codec = SGRAD__ZSTD, .separator = '.'
    };
    memcpy(zarr->dim, d, sizeof zarr->dim);
    memcpy(zarr->chunk, c, sizeof zarr->chunk);
    char *text = sgrad_format("{\"zarr_format\": 2, \"shape\": [%lld, %lld, %lld, %lld], \"chunks\": [%lld, %lld, %lld, %lld], "
                              "\"dtype\": \"%s\", \"compressor\": {\"id\": \"zstd\", \"level\": 1}, \"fill_value\": 0, "
                              "\"order\": \"C\", \"filters\": null, \"dimension_separator\": \".\"}\n",
                              (long long)d[0], (long long)d[1], (long long)d[2], (long long)d[3], (long long)c[0],
                              (long long)c[1], (long long)c[2], (long long)c[3], type[volume->voxel]);
    char *file = metadata_of(volume->path, 2);
    int error = write_file(file, text, strlen(text));
    free(file);
    free(text);
    return error;
}

/* Returns the attribute made_by in .zattrs; NULL: no such attribute. The caller must free it. */
static char *signature_of(const char *path) {
    struct sgrad_map map;
    char *file = sgrad_format("%s/.zattrs", path), *text = NULL;
    if (!access(file, F_OK) && !sgrad_map_open(file, METADATA_LIMIT, &map)) {
        json_t *json = json_loadb((const char *)map.data, map.size, 0, NULL);
        const char *made = json_string_value(json_object_get(json, "made_by"));
        if (made) text = sgrad_format("%s", made);
        json_decref(json);
        sgrad_map_close(&map);
    }
    free(file);
    return text;
}

static int sign_zarr(struct sgrad_volume *volume, const char *work, bool again) {
    char *there = signature_of(volume->path), *file = sgrad_format("%s/.zattrs", volume->path);
    json_t *json = json_pack("{s:s}", "made_by", work);
    char *text = json_dumps(json, JSON_INDENT(1));
    int error = 0;
    if (there && strcmp(there, work) && !again)
        error = sgrad_log_error(SGRAD_EIO,
                                "%s: is the output of another job ('%s'), not of this one ('%s'); give another name, or --redo",
                                volume->path, there, work);
    else if ((!there || strcmp(there, work)) && text) error = write_file(file, text, strlen(text));
    json_decref(json);
    free(text);
    free(file);
    free(there);
    return error;
}

static void close_zarr(struct sgrad_volume *volume) { free(volume->state); }

const struct sgrad_volume_format sgrad__zarr_format = {
    .name = "zarr", .summary = "Zarr, version 2 or 3: folder of chunks", .shared = true, .is = is_zarr, .open = open_to_read,
    .create = create_zarr, .read = read_zarr, .write = write_zarr, .has = has_zarr, .sign = sign_zarr, .close = close_zarr,
};
