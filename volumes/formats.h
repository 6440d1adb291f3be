/* formats.h: common declarations of the files of volumes/. Private to volumes/; the fuzz targets call the parsers. */
#ifndef SGRAD_VOLUMES_FORMATS_H
#define SGRAD_VOLUMES_FORMATS_H

#include "volumes/volumes.h"

/* Sets rank, dim and chunk of VOLUME, whose path and voxel must be set, from RANK dimensions DIM and CHUNK in its file;
 * dimensions that the file lacks are 1. SGRAD_EFORMAT: a volume cannot have these dimensions, or a chunk exceeds
 * SGRAD__CHUNK_LIMIT bytes. */
#define SGRAD__CHUNK_LIMIT ((size_t)1 << 30)
int sgrad__volume_shape(struct sgrad_volume *volume, int rank, const int64_t *dim, const int64_t *chunk);

/* Calls WORK for every chunk that BOX intersects, with its index in the grid of chunks, the box of the whole chunk, and the
 * intersection with BOX. Stops at the first result that is not 0, and returns it. */
struct sgrad__piece {
    int64_t place[SGRAD_VOLUME_RANK];
    struct sgrad_box chunk, inside;
};
int sgrad__volume_pieces(const struct sgrad_volume *volume, const struct sgrad_box *box,
                         int (*work)(const struct sgrad__piece *piece, void *arg), void *arg);

/* Returns "PATH.part.PID", the name of the temporary file that this process writes before it is renamed to PATH. The caller must
 * free it. */
char *sgrad__part_of(const char *path);
/* Writes PART to the disk and renames it to PATH. SGRAD_EIO: it cannot be written, or PATH exists by now. (If the file system has
 * no hard links, an existing PATH is replaced.) */
int sgrad__part_place(const char *part, const char *path);

/* ---- tiff_axes.c: the axes of the images of a TIFF file ------------------------------------------------------------------ */

struct sgrad__tiff_axes {
    int64_t channels, slices;               /* slices 0: the description states nothing */
    int64_t channel_step, slice_step;       /* channel C of slice S is image C * channel_step + S * slice_step, from 0 */
    const char *source;                     /* origin of the description: "ImageJ", "OME", "tifffile" */
};
/* Parses TEXT, the description of the first page of PATH; it may be NULL. PAGE: height and width of the page.
 * SGRAD_EFORMAT: it states axes that a volume cannot have. */
int sgrad__tiff_axes(const char *path, const char *text, const int64_t page[2], struct sgrad__tiff_axes *axes);

/* ---- axis_names.c: names of the axes of an array in a file --------------------------------------------------------------- */

/* Checks the names of RANK axes with lengths DIM; a name may be NULL. SGRAD_EFORMAT: they are not in the order of a volume's
 * axes. */
int sgrad__axes_check(const char *path, int rank, const int64_t *dim, const char *const *name);
/* The same for a JSON list of names, or of objects with a "key". If NAMES is NULL, or has another length, nothing is checked. */
struct json_t;
int sgrad__axes_check_json(const char *path, int rank, const int64_t *dim, const struct json_t *names);

/* ---- codec.c: compression of chunks --------------------------------------------------------------------------------- */

enum sgrad__codec { SGRAD__NO_CODEC, SGRAD__ZLIB, SGRAD__ZSTD, SGRAD__BLOSC };
/* Sets *CODEC to the codec with this name in Zarr: "zlib", "gzip", "zstd", "blosc". Returns false if the name is unknown. */
bool sgrad__codec_find(const char *name, enum sgrad__codec *codec);
/* SGRAD_ELIBRARY: this build lacks the library of CODEC, with which the volume NAME is read and written. */
int sgrad__codec_check(enum sgrad__codec codec, const char *name);
/* Decompresses SIZE bytes to exactly WANTED bytes. NAME is for messages. SGRAD_EFORMAT: the data are damaged or have another
 * size. SGRAD_ELIBRARY. */
int sgrad__codec_expand(enum sgrad__codec codec, const char *name, const void *data, size_t size, void *to, size_t wanted);
/* Returns true if DATA are a complete chunk, as far as this can be checked without decompressing it. ZSTD: it is one complete
 * frame, of WANTED bytes. Other codecs: SIZE is above 0. */
bool sgrad__codec_whole(enum sgrad__codec codec, const void *data, size_t size, size_t wanted);
/* Compresses SIZE bytes with ZSTD and a checksum. Returns the compressed size; 0: failure. The caller must free *PACKED in both
 * cases. */
size_t sgrad__codec_pack(const void *data, size_t size, void **packed);

/* ---- zarr_metadata.c: .zarray and zarr.json ------------------------------------------------------------------------ */

struct sgrad__zarr {
    int version, rank;
    enum sgrad_voxel voxel;
    int64_t dim[SGRAD_VOLUME_RANK], chunk[SGRAD_VOLUME_RANK];
    enum sgrad__codec codec;
    char separator;             /* between the indices of a chunk: '.' or '/' */
    bool separated;             /* the metadata state the separator */
    bool prefixed;              /* the indices follow "c" and the separator */
    double fill;                /* value of the voxels of absent chunks */
    bool swapped, turned;       /* voxels are big-endian; the first index is the fastest (order F) */
};
/* Parses the metadata of VERSION 2 (.zarray) or 3 (zarr.json). SGRAD_EFORMAT: they are malformed or not supported. */
int sgrad__zarr_parse(const char *name, const void *data, size_t size, int version, struct sgrad__zarr *zarr);

/* ---- png.c: the files of a series ---------------------------------------------------------------------------------- */

struct sgrad__png {
    uint32_t width, height;
    enum sgrad_voxel voxel;     /* uint8 or uint16 */
};
/* Reads the header of a PNG file. SGRAD_EFORMAT: it is not a greyscale PNG image, or too large. */
int sgrad__png_header(const char *name, const void *data, size_t size, struct sgrad__png *png);
/* Decodes the voxels of a file with header PNG to TO, which must have space for them. SGRAD_EFORMAT: the file is damaged. */
int sgrad__png_decode(const char *name, const void *data, size_t size, const struct sgrad__png *png, void *to);

#endif
