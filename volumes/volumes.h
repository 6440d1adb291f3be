/* volumes.h: image volumes in files, which are read and written one window at a time, so they may be larger than memory.
 *
 * A *volume* is an array of voxels (C,Z,Y,X): channels, slices, rows, columns. A file of three dimensions has one channel; a
 * file of two dimensions has one channel and one slice. The format, and in HDF5 the data set, follow from the name:
 *
 *     stack.tif                  TIFF, one slice per page
 *     stack.h5:volumes/raw       HDF5; if no data set is named, the file must contain exactly one, which is opened
 *     stack.zarr                 Zarr version 2 or 3, a folder of chunks
 *     stack.raw:20x64x64:uint16  raw voxels, little-endian; default type: uint8
 *     stack                      a folder of PNG files, one slice per file
 *
 *     struct sgrad_volume *v;
 *     SGRAD_TRY(sgrad_volume_open("stack.zarr", &v));
 *     const struct sgrad_box window = { { 0, 10, 256, 256 }, { 1, 16, 128, 128 } };        // from, size
 *     float voxels[16 * 128 * 128];
 *     SGRAD_TRY(sgrad_volume_read(v, &window, SGRAD_VOXEL_F32, voxels));
 *     sgrad_volume_close(v);
 *
 * Any number of threads may read and write a volume concurrently. A Zarr volume may also be written by any number of processes,
 * if each writes different chunks: a chunk is written to a temporary file, which is then renamed, so a chunk is either complete
 * or absent. Files are untrusted: malformed or unsupported content is an error whose message names the file and the reason. */
#ifndef SGRAD_VOLUMES_VOLUMES_H
#define SGRAD_VOLUMES_VOLUMES_H

#include "runtime/runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Type of a voxel: unsigned integers, signed integers, floating-point numbers. */
enum sgrad_voxel {
    SGRAD_VOXEL_U8,
    SGRAD_VOXEL_U16,
    SGRAD_VOXEL_U32,
    SGRAD_VOXEL_U64,
    SGRAD_VOXEL_I8,
    SGRAD_VOXEL_I16,
    SGRAD_VOXEL_I32,
    SGRAD_VOXEL_I64,
    SGRAD_VOXEL_F32,
    SGRAD_VOXEL_F64,
    SGRAD_VOXELS        /* number of types */
};
size_t sgrad_voxel_size(enum sgrad_voxel voxel);           /* bytes */
const char *sgrad_voxel_name(enum sgrad_voxel voxel);      /* NumPy's name: "uint8" */
/* Converts COUNT voxels X of type FROM to voxels Y of type TO. Values converted to integers are rounded to the nearest integer
 * and clamped to the range of TO; NaN becomes 0. Conversions between different types go through double. */
void sgrad_voxel_convert(enum sgrad_voxel from, const void *x, int64_t count, enum sgrad_voxel to, void *y);

enum { SGRAD_VOLUME_RANK = 4 };
/* A window of a volume, in voxels: index of its first voxel, and its size, both (C,Z,Y,X). */
struct sgrad_box {
    int64_t from[SGRAD_VOLUME_RANK], size[SGRAD_VOLUME_RANK];
};
int64_t sgrad_box_count(const struct sgrad_box *box);      /* voxels */
/* Copies the voxels of BOX, of SIZE bytes each, from X, an array with the voxels of box FROM, to Y, an array with those of box
 * TO. BOX must be inside both boxes. */
void sgrad_box_copy(const struct sgrad_box *box, size_t size, const struct sgrad_box *from, const void *x,
                    const struct sgrad_box *to, void *y);

struct sgrad_volume_format;
struct sgrad_volume {
    const struct sgrad_volume_format *format;
    char *path;                                 /* of the file or the folder, without data set, shape and type */
    enum sgrad_voxel voxel;
    int rank;                                   /* number of dimensions in the file: 2 to 4 */
    int64_t dim[SGRAD_VOLUME_RANK];             /* voxels (C,Z,Y,X); dimensions that the file lacks are 1 */
    int64_t chunk[SGRAD_VOLUME_RANK];           /* voxels of a block that is stored contiguously: chunk, tile, slice */
    void *state;                                /* private to the format */
};

/* Opens a volume for reading and sets *VOLUME, which must be closed with sgrad_volume_close. Returns SGRAD_EIO if the file does
 * not exist or cannot be read, SGRAD_EFORMAT if its content is malformed or unsupported, and SGRAD_ENAME if NAME matches no known
 * format. */
int sgrad_volume_open(const char *name, struct sgrad_volume **volume);
/* Creates a volume of type VOXEL with dimensions DIM and chunks of size CHUNK, both in voxels (C,Z,Y,X), and sets *VOLUME, which
 * must be closed with sgrad_volume_close. Its voxels are initially zero. Writable formats: Zarr (NAME.zarr), HDF5
 * (NAME.h5[:DATASET], default: volume) and raw (NAME.raw, without shape and type). An existing Zarr volume with the same type,
 * dimensions and chunks is opened instead, because other processes may be writing it. Returns SGRAD_EIO if another volume NAME
 * exists or NAME cannot be created, SGRAD_EFORMAT if DIM or CHUNK are out of range or the existing Zarr volume is malformed, and
 * SGRAD_ENAME if NAME matches no writable format. */
int sgrad_volume_create(const char *name, enum sgrad_voxel voxel, const int64_t dim[SGRAD_VOLUME_RANK],
                        const int64_t chunk[SGRAD_VOLUME_RANK], struct sgrad_volume **volume);
/* Stores WORK, a description of the computation that produces the voxels, with a volume from sgrad_volume_create. Returns
 * SGRAD_EIO if the existing volume has a different description; if AGAIN is true, the description is replaced instead. Only Zarr
 * stores it, as the attribute made_by. For other formats the function does nothing and returns 0. */
int sgrad_volume_sign(struct sgrad_volume *volume, const char *work, bool again);
/* Must be called once a volume from sgrad_volume_create is complete. HDF5 and raw volumes are written to a temporary file in the
 * same folder, NAME.part.PID, which this function renames to NAME. If they are closed before, the temporary file is deleted. Does
 * nothing for Zarr. Returns SGRAD_EIO if the file cannot be written, or NAME exists by now. */
int sgrad_volume_finish(struct sgrad_volume *volume);
void sgrad_volume_close(struct sgrad_volume *volume);      /* frees it; NULL is allowed */

/* Reads the voxels of BOX, which must be inside the volume, converts them to type AS and writes them to TO, (C,Z,Y,X) with the
 * size of BOX. Returns SGRAD_EIO or SGRAD_EFORMAT if the file cannot be read or is damaged. */
int sgrad_volume_read(const struct sgrad_volume *volume, const struct sgrad_box *box, enum sgrad_voxel as, void *to);
/* Writes the voxels of BOX from FROM, an array (C,Z,Y,X) of type IS, converted to the volume's type. The volume must come from
 * sgrad_volume_create. BOX must begin at the beginnings of chunks, and end at ends of chunks or of the volume. Returns SGRAD_EIO
 * if the file cannot be written, SGRAD_ENOMEM if a chunk cannot be compressed, and SGRAD_EFORMAT for an existing Zarr volume that
 * is not version 2 with compressor zstd and dimension separator ".". */
int sgrad_volume_write(const struct sgrad_volume *volume, const struct sgrad_box *box, enum sgrad_voxel is, const void *from);
/* Returns true if every chunk of BOX exists and is complete, as far as this can be checked without decompressing it. Only Zarr
 * supports this; other formats return false. */
bool sgrad_volume_has(const struct sgrad_volume *volume, const struct sgrad_box *box);
bool sgrad_volume_is_shared(const struct sgrad_volume *volume);     /* true: several processes may write it */

/* Access to a volume of one channel as the pixels of an image. sgrad_volume_pixels sets *PIXEL, their type: SGRAD_U8 (full scale
 * 255) for uint8; SGRAD_U16 (full scale 65535) for uint16, float32 and float64. It returns SGRAD_EFORMAT for other types, and if
 * there is more than one channel. sgrad_volume_read_pixels reads the pixels of BOX to TO, in that type. Floating-point voxels
 * must be from 0 to 1 and are multiplied by 65535. It returns SGRAD_EFORMAT if one is not, and the errors of
 * sgrad_volume_read. */
int sgrad_volume_pixels(const struct sgrad_volume *volume, enum sgrad_dtype *pixel);
int sgrad_volume_read_pixels(const struct sgrad_volume *volume, const struct sgrad_box *box, void *to);

/* The record of a file format. Its functions are called with volumes of this format only. Those that return int return 0 or a
 * SGRAD_E… code, after logging the error. */
struct sgrad_volume_format {
    const char *name, *summary;
    const char *library;                        /* the one that it needs (runtime/libraries.h); NULL: none */
    bool shared;                                /* several processes may write a volume */
    bool (*is)(const char *name);               /* recognises NAME by its ending or by the folder's content */
    /* On entry path is the name as given; may shorten it; sets the rest. NULL: the build lacks the library. */
    int (*open)(struct sgrad_volume *volume);
    int (*create)(struct sgrad_volume *volume); /* on entry all fields except state are set; NULL: cannot be written */
    int (*read)(const struct sgrad_volume *volume, const struct sgrad_box *box, void *to);      /* unconverted voxels */
    int (*write)(const struct sgrad_volume *volume, const struct sgrad_box *box, const void *from);
    bool (*has)(const struct sgrad_volume *volume, const struct sgrad_box *box);                /* NULL: always false */
    int (*sign)(struct sgrad_volume *volume, const char *work, bool again);                     /* NULL: does nothing */
    int (*finish)(struct sgrad_volume *volume);                                                 /* NULL: does nothing */
    void (*close)(struct sgrad_volume *volume);                                                 /* frees state */
};
extern const struct sgrad_volume_format *const sgrad_volume_formats[];      /* all formats; ends with NULL */

#ifdef __cplusplus
}
#endif
#endif
