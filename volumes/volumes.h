/* volumes.h: volumes in files, read and written window by window, however large they are.
 *
 * A *volume* is voxels (C,Z,Y,X): channels of stacks of slices; a file of three dimensions has one channel, of two one slice,
 * too. Its name tells the format, and of HDF5 the data set:
 *
 *     stack.tif                  TIFF, a slice a page
 *     stack.h5:volumes/raw       HDF5; the only data set in it where none is named
 *     stack.zarr                 Zarr, a folder of chunks: version 2 or 3
 *     stack.raw:20x64x64:uint16  bare voxels, little-endian; of uint8 where no type is named
 *     stack                      a folder of PNG files, a slice each
 *
 *     struct sgrad_volume *v;
 *     SGRAD_TRY(sgrad_volume_open("stack.zarr", &v));
 *     const struct sgrad_box window = { { 0, 10, 256, 256 }, { 1, 16, 128, 128 } };        // from, size
 *     float voxels[16 * 128 * 128];
 *     SGRAD_TRY(sgrad_volume_read(v, &window, SGRAD_VOXEL_F32, voxels));
 *     sgrad_volume_close(v);
 *
 * Any number of threads may read and write at once; of Zarr any number of processes may write, each its own chunks: a chunk is
 * written beside its place and renamed, so it is there whole or not at all. Files are untrusted: whatever is wrong with one, or
 * not known here, is an error that names the file and the reason. */
#ifndef SGRAD_VOLUMES_H
#define SGRAD_VOLUMES_H

#include "runtime/runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

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
    SGRAD_VOXELS
};
size_t sgrad_voxel_size(enum sgrad_voxel voxel);
const char *sgrad_voxel_name(enum sgrad_voxel voxel);      /* "uint8", as NumPy spells it */
/* COUNT voxels as numbers of another type: rounded to the nearest, and held to the type's range. */
void sgrad_voxel_convert(enum sgrad_voxel from, const void *x, int64_t count, enum sgrad_voxel to, void *y);

enum { SGRAD_VOLUME_RANK = 4 };
struct sgrad_box {
    int64_t from[SGRAD_VOLUME_RANK], size[SGRAD_VOLUME_RANK];
};
int64_t sgrad_box_count(const struct sgrad_box *box);
/* Copies BOX, voxels of SIZE bytes, out of memory that holds box FROM into memory that holds box TO; it lies inside both. */
void sgrad_box_copy(const struct sgrad_box *box, size_t size, const struct sgrad_box *from, const void *x,
                    const struct sgrad_box *to, void *y);

struct sgrad_volume_format;
struct sgrad_volume {
    const struct sgrad_volume_format *format;
    char *path;                                 /* of the file or the folder */
    enum sgrad_voxel voxel;
    int rank;                                   /* dimensions in the file: 2 to 4 */
    int64_t dim[SGRAD_VOLUME_RANK];             /* (C,Z,Y,X) */
    int64_t chunk[SGRAD_VOLUME_RANK];           /* what lies together in the file */
    void *state;                                /* the format's own */
};

/* SGRAD_EIO, SGRAD_EFORMAT: there is no such file, or something is wrong with it; SGRAD_ENAME: of no format that is known. */
int sgrad_volume_open(const char *name, struct sgrad_volume **volume);
/* A new one of such VOXELs, dimensions and chunks, zeros at first. A Zarr volume that is there and the same is opened: others
 * write it, too. SGRAD_EIO: something is there already. */
int sgrad_volume_create(const char *name, enum sgrad_voxel voxel, const int64_t dim[SGRAD_VOLUME_RANK],
                        const int64_t chunk[SGRAD_VOLUME_RANK], struct sgrad_volume **volume);
/* Says, beside the voxels of a new volume, what WORK they are of. SGRAD_EIO: what is there already is of other work, unless
 * that is to be done AGAIN. Zarr alone keeps it, as its attribute made_by; of others nothing is there already. */
int sgrad_volume_sign(struct sgrad_volume *volume, const char *work, bool again);
/* A new one is whole: it takes its place. HDF5 and raw files lie beside it until then, and are gone if they are closed before. */
int sgrad_volume_finish(struct sgrad_volume *volume);
void sgrad_volume_close(struct sgrad_volume *volume);      /* NULL is fine */

/* BOX, inside the volume, as voxels of type AS (C,Z,Y,X). */
int sgrad_volume_read(const struct sgrad_volume *volume, const struct sgrad_box *box, enum sgrad_voxel as, void *to);
/* BOX begins at chunks' beginnings and ends at chunks' or the volume's ends. */
int sgrad_volume_write(const struct sgrad_volume *volume, const struct sgrad_box *box, enum sgrad_voxel is, const void *from);
/* Is every chunk of BOX there and whole, as far as can be told without expanding it? Zarr alone tells; others say false. */
bool sgrad_volume_has(const struct sgrad_volume *volume, const struct sgrad_box *box);
bool sgrad_volume_is_shared(const struct sgrad_volume *volume);     /* may several processes write it? */

/* A volume of one channel as the pixels of an image: uint8 as it is, SGRAD_U8, of which 255 is full scale; uint16, and real
 * numbers from 0 to 1, times 65535, SGRAD_U16, of which 65535 is. SGRAD_EFORMAT: it is not like that. */
int sgrad_volume_pixels(const struct sgrad_volume *volume, enum sgrad_dtype *pixel);
int sgrad_volume_read_pixels(const struct sgrad_volume *volume, const struct sgrad_box *box, void *to);

struct sgrad_volume_format {
    const char *name, *summary;
    bool shared;
    bool (*is)(const char *name);               /* by its ending, or by what the folder holds */
    int (*open)(struct sgrad_volume *volume);   /* PATH is set, as it was named; fills the rest */
    int (*create)(struct sgrad_volume *volume); /* all is set but state; NULL: it is not written */
    int (*read)(const struct sgrad_volume *volume, const struct sgrad_box *box, void *to);      /* voxels as they are */
    int (*write)(const struct sgrad_volume *volume, const struct sgrad_box *box, const void *from);
    bool (*has)(const struct sgrad_volume *volume, const struct sgrad_box *box);                /* NULL: never told */
    int (*sign)(struct sgrad_volume *volume, const char *work, bool again);                     /* NULL: nothing to do */
    int (*finish)(struct sgrad_volume *volume);                                                 /* likewise */
    void (*close)(struct sgrad_volume *volume);
};
extern const struct sgrad_volume_format *const sgrad_volume_formats[];      /* all; ends with NULL */

#ifdef __cplusplus
}
#endif
#endif
