/* formats.h: what the files of volumes/ share. Private to volumes/; the fuzz targets call the parsers. */
#ifndef SGRAD_VOLUMES_FORMATS_H
#define SGRAD_VOLUMES_FORMATS_H

#include "volumes/volumes.h"

/* Fills dim and chunk of a volume whose file has RANK dimensions DIM and CHUNK: those that it lacks are 1. SGRAD_EFORMAT: no
 * volume is like that, or one of so many voxels would not fit a chunk of SGRAD__CHUNK_LIMIT bytes. */
#define SGRAD__CHUNK_LIMIT ((size_t)1 << 30)
int sgrad__volume_shape(struct sgrad_volume *volume, int rank, const int64_t *dim, const int64_t *chunk);

/* Calls DO of every chunk that BOX meets: its place in the grid of chunks, the whole chunk's box, and what of it lies in BOX. */
struct sgrad__piece {
    int64_t place[SGRAD_VOLUME_RANK];
    struct sgrad_box chunk, inside;
};
int sgrad__volume_pieces(const struct sgrad_volume *volume, const struct sgrad_box *box,
                         int (*work)(const struct sgrad__piece *piece, void *arg), void *arg);

/* A file that is written beside its place, and there while its process lives: its name, "PATH.part.PID"; free it. */
char *sgrad__part_of(const char *path);
/* PART, on the disk by now, takes the place of PATH, if nothing has it meanwhile. */
int sgrad__part_place(const char *part, const char *path);

/* ---- tiff_axes.c: what the images of a TIFF file are --------------------------------------------------------------------- */

struct sgrad__tiff_axes {
    int64_t channels, slices;               /* 0 slices: nothing is stated */
    int64_t channel_step, slice_step;       /* channel C of slice S is image C * channel_step + S * slice_step, from 0 */
    const char *source;                     /* who states it: "ImageJ" */
};
/* Reads TEXT, the description of the first page of PATH, or NULL; PAGE is the page's height and width. SGRAD_EFORMAT: it states
 * what no volume has. */
int sgrad__tiff_axes(const char *path, const char *text, const int64_t page[2], struct sgrad__tiff_axes *axes);

/* ---- axis_names.c: what a file calls the axes of its array --------------------------------------------------------------- */

/* NAMEs of RANK axes of DIM each, NULL: one has none. SGRAD_EFORMAT: they are not in a volume's order. */
int sgrad__axes_check(const char *path, int rank, const int64_t *dim, const char *const *name);
/* The same of a list of names, or of objects with a "key"; NAMES may be NULL or of another rank: nothing is stated. */
struct json_t;
int sgrad__axes_check_json(const char *path, int rank, const int64_t *dim, const struct json_t *names);

/* ---- codec.c: how a chunk is compressed --------------------------------------------------------------------------- */

enum sgrad__codec { SGRAD__NO_CODEC, SGRAD__ZLIB, SGRAD__ZSTD, SGRAD__BLOSC };
/* By the names of Zarr: "zlib", "gzip", "zstd", "blosc". False: not known. */
bool sgrad__codec_find(const char *name, enum sgrad__codec *codec);
/* SIZE bytes to exactly WANTED; NAME is for messages. */
int sgrad__codec_expand(enum sgrad__codec codec, const char *name, const void *data, size_t size, void *to, size_t wanted);
/* Is DATA a whole chunk, as far as can be told without expanding it? Of ZSTD a frame with its end and of so many bytes. */
bool sgrad__codec_whole(enum sgrad__codec codec, const void *data, size_t size, size_t wanted);
/* Compresses as ZSTD, with a check sum; returns bytes, in *PACKED, free it; 0: it failed. */
size_t sgrad__codec_pack(const void *data, size_t size, void **packed);

/* ---- zarr_metadata.c: what .zarray or zarr.json say ---------------------------------------------------------------- */

struct sgrad__zarr {
    int version, rank;
    enum sgrad_voxel voxel;
    int64_t dim[SGRAD_VOLUME_RANK], chunk[SGRAD_VOLUME_RANK];
    enum sgrad__codec codec;
    char separator;             /* between a chunk's numbers: '.' or '/'; */
    bool separated;             /* the metadata state it */
    bool prefixed;              /* they follow "c" and the separator */
    double fill;                /* what a chunk that is not there holds */
    bool swapped, turned;       /* voxels have the higher byte first; the first index is the fastest (order F) */
};
int sgrad__zarr_parse(const char *name, const void *data, size_t size, int version, struct sgrad__zarr *zarr);

/* ---- png.c: one file of a series ----------------------------------------------------------------------------------- */

struct sgrad__png {
    uint32_t width, height;
    enum sgrad_voxel voxel;     /* uint8 or uint16 */
};
int sgrad__png_header(const char *name, const void *data, size_t size, struct sgrad__png *png);
/* TO has room for the voxels that PNG, its header, says. */
int sgrad__png_decode(const char *name, const void *data, size_t size, const struct sgrad__png *png, void *to);

#endif
