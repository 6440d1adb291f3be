/* boxes.c: functions that all formats use: types of voxels, boxes, iteration over chunks, checks of shapes, temporary files. */
#include "config.h"
#include "volumes/formats.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- voxels ------------------------------------------------------------------------------------------------------ */

static const struct {
    const char *name;
    size_t size;
    double least, most;
} voxels[SGRAD_VOXELS] = {
    [SGRAD_VOXEL_U8] = { "uint8", 1, 0, UINT8_MAX },
    [SGRAD_VOXEL_U16] = { "uint16", 2, 0, UINT16_MAX },
    [SGRAD_VOXEL_U32] = { "uint32", 4, 0, UINT32_MAX },
    [SGRAD_VOXEL_U64] = { "uint64", 8, 0, 0x1p64 - 2048 },
    [SGRAD_VOXEL_I8] = { "int8", 1, INT8_MIN, INT8_MAX },
    [SGRAD_VOXEL_I16] = { "int16", 2, INT16_MIN, INT16_MAX },
    [SGRAD_VOXEL_I32] = { "int32", 4, INT32_MIN, INT32_MAX },
    [SGRAD_VOXEL_I64] = { "int64", 8, -0x1p63, 0x1p63 - 1024 },
    [SGRAD_VOXEL_F32] = { "float32", 4, 0, 0 },
    [SGRAD_VOXEL_F64] = { "float64", 8, 0, 0 },
};

size_t sgrad_voxel_size(enum sgrad_voxel voxel) { return voxels[voxel].size; }
const char *sgrad_voxel_name(enum sgrad_voxel voxel) { return voxels[voxel].name; }

static double get(enum sgrad_voxel voxel, const void *x, int64_t i) {
    switch (voxel) {
    case SGRAD_VOXEL_U8: return ((const uint8_t *)x)[i];
    case SGRAD_VOXEL_U16: return ((const uint16_t *)x)[i];
    case SGRAD_VOXEL_U32: return ((const uint32_t *)x)[i];
    case SGRAD_VOXEL_U64: return (double)((const uint64_t *)x)[i];
    case SGRAD_VOXEL_I8: return ((const int8_t *)x)[i];
    case SGRAD_VOXEL_I16: return ((const int16_t *)x)[i];
    case SGRAD_VOXEL_I32: return ((const int32_t *)x)[i];
    case SGRAD_VOXEL_I64: return (double)((const int64_t *)x)[i];
    case SGRAD_VOXEL_F32: return ((const float *)x)[i];
    default: return ((const double *)x)[i];
    }
}

static void put(enum sgrad_voxel voxel, void *y, int64_t i, double value) {
    if (voxel != SGRAD_VOXEL_F32 && voxel != SGRAD_VOXEL_F64)
        value = value != value ? 0 : fmin(fmax(rint(value), voxels[voxel].least), voxels[voxel].most);
    switch (voxel) {
    case SGRAD_VOXEL_U8: ((uint8_t *)y)[i] = (uint8_t)value; break;
    case SGRAD_VOXEL_U16: ((uint16_t *)y)[i] = (uint16_t)value; break;
    case SGRAD_VOXEL_U32: ((uint32_t *)y)[i] = (uint32_t)value; break;
    case SGRAD_VOXEL_U64: ((uint64_t *)y)[i] = (uint64_t)value; break;
    case SGRAD_VOXEL_I8: ((int8_t *)y)[i] = (int8_t)value; break;
    case SGRAD_VOXEL_I16: ((int16_t *)y)[i] = (int16_t)value; break;
    case SGRAD_VOXEL_I32: ((int32_t *)y)[i] = (int32_t)value; break;
    case SGRAD_VOXEL_I64: ((int64_t *)y)[i] = (int64_t)value; break;
    case SGRAD_VOXEL_F32: ((float *)y)[i] = (float)value; break;
    default: ((double *)y)[i] = value;
    }
}

void sgrad_voxel_convert(enum sgrad_voxel from, const void *x, int64_t count, enum sgrad_voxel to, void *y) {
    if (from == to) memcpy(y, x, (size_t)count * voxels[to].size);
    else
        for (int64_t i = 0; i < count; i++) put(to, y, i, get(from, x, i));
}

/* ---- boxes ------------------------------------------------------------------------------------------------------- */

int64_t sgrad_box_count(const struct sgrad_box *box) { return box->size[0] * box->size[1] * box->size[2] * box->size[3]; }

static size_t place_in(const struct sgrad_box *box, int64_t c, int64_t z, int64_t y, int64_t x) {
    return (size_t)((((c - box->from[0]) * box->size[1] + z - box->from[1]) * box->size[2] + y - box->from[2]) * box->size[3] +
                    x - box->from[3]);
}

void sgrad_box_copy(const struct sgrad_box *box, size_t size, const struct sgrad_box *from, const void *x,
                    const struct sgrad_box *to, void *y) {
    for (int64_t c = box->from[0]; c < box->from[0] + box->size[0]; c++)
        for (int64_t z = box->from[1]; z < box->from[1] + box->size[1]; z++)
            for (int64_t row = box->from[2]; row < box->from[2] + box->size[2]; row++)
                memcpy((char *)y + place_in(to, c, z, row, box->from[3]) * size,
                       (const char *)x + place_in(from, c, z, row, box->from[3]) * size, (size_t)box->size[3] * size);
}

int sgrad__volume_pieces(const struct sgrad_volume *volume, const struct sgrad_box *box,
                         int (*work)(const struct sgrad__piece *piece, void *arg), void *arg) {
    int64_t first[SGRAD_VOLUME_RANK], last[SGRAD_VOLUME_RANK], at[SGRAD_VOLUME_RANK];
    for (int d = 0; d < SGRAD_VOLUME_RANK; d++) {
        first[d] = at[d] = box->from[d] / volume->chunk[d];
        last[d] = (box->from[d] + box->size[d] - 1) / volume->chunk[d];
    }
    for (int d = 0; d >= 0;) {
        struct sgrad__piece piece;
        for (d = 0; d < SGRAD_VOLUME_RANK; d++) {
            const int64_t from = at[d] * volume->chunk[d], begin = from > box->from[d] ? from : box->from[d];
            const int64_t stop = box->from[d] + box->size[d],
                          end = from + volume->chunk[d] < stop ? from + volume->chunk[d] : stop;
            piece.place[d] = at[d];
            piece.chunk.from[d] = from, piece.chunk.size[d] = volume->chunk[d];
            piece.inside.from[d] = begin, piece.inside.size[d] = end - begin;
        }
        SGRAD_TRY(work(&piece, arg));
        for (d = SGRAD_VOLUME_RANK - 1; d >= 0 && at[d]++ == last[d]; d--) at[d] = first[d];
    }
    return 0;
}

/* ---- shapes ------------------------------------------------------------------------------------------------------ */

int sgrad__volume_shape(struct sgrad_volume *volume, int rank, const int64_t *dim, const int64_t *chunk) {
    size_t bytes = voxels[volume->voxel].size;
    double count = (double)bytes;
    if (rank < 2 || rank > SGRAD_VOLUME_RANK)
        return sgrad_log_error(SGRAD_EFORMAT, "%s: has %d dimensions, but volumes must have 2 to %d: ([[C,]Z,]Y,X)", volume->path,
                               rank, SGRAD_VOLUME_RANK);
    volume->rank = rank;
    for (int d = 0; d < SGRAD_VOLUME_RANK; d++) {
        const int own = d - (SGRAD_VOLUME_RANK - rank);
        volume->dim[d] = own < 0 ? 1 : dim[own];
        volume->chunk[d] = own < 0 ? 1 : chunk[own];
        if (volume->dim[d] < 1 || volume->chunk[d] < 1)
            return sgrad_log_error(SGRAD_EFORMAT, "%s: dimension %d is %lld, in chunks of %lld, but both must be 1 or more",
                                   volume->path, own, (long long)volume->dim[d], (long long)volume->chunk[d]);
        if ((uint64_t)volume->chunk[d] > SGRAD__CHUNK_LIMIT / bytes)
            return sgrad_log_error(SGRAD_EFORMAT, "%s: chunks of more than %zu MB are not supported", volume->path,
                                   SGRAD__CHUNK_LIMIT >> 20);
        bytes *= (size_t)volume->chunk[d];
        count *= (double)volume->dim[d];
    }
    if (count < 0x1p62) return 0;
    return sgrad_log_error(SGRAD_EFORMAT, "%s: has %g bytes, but must have fewer than 2^62", volume->path, count);
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

char *sgrad__part_of(const char *path) { return sgrad_format("%s.part.%ld", path, (long)getpid()); }

int sgrad__part_place(const char *part, const char *path) {
    int file = open(part, O_RDONLY | O_CLOEXEC);
    int failed = file < 0 || fsync(file) ? errno : 0;
    if (file >= 0) close(file);
    if (!failed && !link(part, path)) return unlink(part), 0;
    if (!failed && (errno == EEXIST || rename(part, path))) failed = errno;     /* some file systems have no links */
    if (failed == EEXIST) return sgrad_log_error(SGRAD_EIO, "%s: already exists: another process wrote it first", path);
    return failed ? sgrad_log_error(SGRAD_EIO, "%s: cannot be written: %s", path, strerror(failed)) : 0;
}
