/* tiff.c: a stack of slices, each a page of a TIFF file, or of several channels, if the description of the first page states this
 * (tiff_axes.c). A page with ImageDepth (a tag of SGI) is a volume in itself, in tiles of TileDepth slices.
 *
 * ImageJ writes files of more than 4 GB with only one page, and so does tifffile on request. The description states the number of
 * images, which are stored contiguously:
 *
 *     page     description "ImageJ=1.54f\nimages=3\n"     strip: at 8, of slice 0
 *     bytes    8: slice 0 │ slice 1 │ slice 2
 *
 * Limits: read-only. All pages must have the same size and type. A strip or tile of a page is read as a whole. */
#include "config.h"
#include "volumes/formats.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_tiff(const char *name) {
    const char *dot = strrchr(name, '.');
    return dot && (!strcasecmp(dot, ".tif") || !strcasecmp(dot, ".tiff"));
}

#ifdef SGRAD_HAVE_TIFF
#include <tiffio.h>

struct tiff {
    TIFF *file;
    pthread_mutex_t lock;       /* libtiff has one current page per file */
    uint64_t *page;             /* offset of each page */
    struct sgrad__tiff_axes axes;
    bool deep;                  /* a page contains all slices of a channel */
    uint64_t bare;              /* offset of contiguous images; 0: there are pages */
};

/* Properties of a page. */
struct page {
    uint32_t width, height, depth, chunk_width, chunk_height, chunk_depth;
    enum sgrad_voxel voxel;
};

static int read_page(const struct sgrad_volume *volume, int64_t number, TIFF *file, struct page *page) {
    uint16_t bits = 1, samples = 1, format = SAMPLEFORMAT_UINT, planar = PLANARCONFIG_CONTIG;
    TIFFGetFieldDefaulted(file, TIFFTAG_BITSPERSAMPLE, &bits);
    TIFFGetFieldDefaulted(file, TIFFTAG_SAMPLESPERPIXEL, &samples);
    TIFFGetFieldDefaulted(file, TIFFTAG_SAMPLEFORMAT, &format);
    TIFFGetFieldDefaulted(file, TIFFTAG_PLANARCONFIG, &planar);
    page->width = page->height = page->chunk_width = page->chunk_height = 0;
    page->depth = page->chunk_depth = 1;
    uint32_t kind = 0;
    TIFFGetFieldDefaulted(file, TIFFTAG_SUBFILETYPE, &kind);
    if (kind & FILETYPE_REDUCEDIMAGE)
        return sgrad_log_error(SGRAD_EFORMAT,
                               "%s: page %lld is a reduced copy of another page (NewSubfileType 1), not a slice; save the file "
                               "without reduced pages",
                               volume->path, (long long)number);
    TIFFGetFieldDefaulted(file, TIFFTAG_IMAGEDEPTH, &page->depth);
    TIFFGetField(file, TIFFTAG_IMAGEWIDTH, &page->width);
    TIFFGetField(file, TIFFTAG_IMAGELENGTH, &page->height);
    int base = SGRAD_VOXEL_F32;
    if (format == SAMPLEFORMAT_UINT) base = SGRAD_VOXEL_U8;
    else if (format == SAMPLEFORMAT_INT) base = SGRAD_VOXEL_I8;
    page->voxel = SGRAD_VOXELS;
    for (enum sgrad_voxel voxel = 0; voxel < SGRAD_VOXELS; voxel++)
        if (8 * sgrad_voxel_size(voxel) == bits && (int)voxel >= base && page->voxel == SGRAD_VOXELS) page->voxel = voxel;
    const bool known = format <= SAMPLEFORMAT_IEEEFP && page->voxel < SGRAD_VOXELS &&
                       (base == SGRAD_VOXEL_F32) == (page->voxel >= SGRAD_VOXEL_F32);
    if (samples != 1 || planar != PLANARCONFIG_CONTIG || !known)
        return sgrad_log_error(
            SGRAD_EFORMAT,
            "%s: page %lld has %u samples per pixel, of %u bits (TIFF sample format %u), but must have one sample per pixel: "
            "an integer or real number of 8 to 64 bits",
            volume->path, (long long)number, samples, bits, format);
    if (TIFFIsTiled(file)) {
        TIFFGetField(file, TIFFTAG_TILEWIDTH, &page->chunk_width);
        TIFFGetField(file, TIFFTAG_TILELENGTH, &page->chunk_height);
        TIFFGetFieldDefaulted(file, TIFFTAG_TILEDEPTH, &page->chunk_depth);
    } else {
        uint32_t rows = page->height;
        TIFFGetFieldDefaulted(file, TIFFTAG_ROWSPERSTRIP, &rows);
        page->chunk_width = page->width;
        page->chunk_height = rows < page->height ? rows : page->height;
    }
    return 0;
}

static int read_pages(struct sgrad_volume *volume, struct tiff *tiff, int64_t *pages, struct page *one) {
    struct page first = { 0 }, page;
    *pages = 0;
    for (bool more = true; more;) {
        tiff->page = sgrad_array_grow(tiff->page, (int)*pages, sizeof *tiff->page);
        tiff->page[*pages] = TIFFCurrentDirOffset(tiff->file);
        SGRAD_TRY(read_page(volume, *pages, tiff->file, &page));
        if (*pages == 0) first = page;
        if (page.width != first.width || page.height != first.height || page.depth != first.depth || page.voxel != first.voxel)
            return sgrad_log_error(SGRAD_EFORMAT, "%s: page %lld has %ux%ux%u pixels of %s, but page 0 has %ux%ux%u of %s",
                                   volume->path, (long long)*pages, page.width, page.height, page.depth,
                                   sgrad_voxel_name(page.voxel), first.width, first.height, first.depth,
                                   sgrad_voxel_name(first.voxel));
        ++*pages;
        more = !TIFFLastDirectory(tiff->file);
        if (more && !TIFFReadDirectory(tiff->file))
            return sgrad_log_error(SGRAD_EFORMAT, "%s: page %lld cannot be read: the file is damaged or truncated", volume->path,
                                   (long long)*pages);
    }
    volume->voxel = first.voxel;
    *one = first;
    return 0;
}

/* Checks that the file contains IMAGES contiguous images from the first strip of its only page on, and sets t->bare.
 * SGRAD_EFORMAT. */
static int find_bare(const struct sgrad_volume *volume, struct tiff *tiff, const struct page *page, int64_t images) {
    uint16_t packing = COMPRESSION_NONE;
    uint64_t *strip = NULL, *bytes = NULL;
    struct stat status;
    TIFFGetFieldDefaulted(tiff->file, TIFFTAG_COMPRESSION, &packing);
    bool bare = packing == COMPRESSION_NONE && !TIFFIsTiled(tiff->file) &&
                TIFFGetField(tiff->file, TIFFTAG_STRIPOFFSETS, &strip) &&
                TIFFGetField(tiff->file, TIFFTAG_STRIPBYTECOUNTS, &bytes);
    for (uint32_t i = 1; bare && i < TIFFNumberOfStrips(tiff->file); i++) bare = strip[i] == strip[i - 1] + bytes[i - 1];
    if (!bare)
        return sgrad_log_error(
            SGRAD_EFORMAT,
            "%s: %s states %lld images, but the file has one page; images in one page must be uncompressed, contiguous and not "
            "tiled",
            volume->path, tiff->axes.source, (long long)images);
    const double wanted = (double)images * (double)page->height * (double)page->width * (double)sgrad_voxel_size(volume->voxel);
    tiff->bare = strip[0];
    if (fstat(TIFFFileno(tiff->file), &status) || !tiff->bare || (double)status.st_size < (double)tiff->bare + wanted)
        return sgrad_log_error(SGRAD_EFORMAT, "%s: %s states %lld images, but the file is too short for them: it is damaged",
                               volume->path, tiff->axes.source, (long long)images);
    return 0;
}

/* Sets *AXES from MetaMorph's private tag UIC2, whose count is the number of planes of a stack; they are stored contiguously.
 * Returns false if there is no such tag. */
static bool find_planes(TIFF *file, struct sgrad__tiff_axes *axes) {
    enum { UIC2 = 33629 };
    uint32_t planes = 0;
    void *value = NULL;
    if (!TIFFFindField(file, UIC2, TIFF_ANY) || !TIFFGetField(file, UIC2, &planes, &value) || planes < 2) return false;
    *axes = (struct sgrad__tiff_axes){ 1, planes, 1, 1, "MetaMorph" };
    return true;
}

/* Warns of tags that state how images are displayed. They are ignored, because voxels are measurements. */
static void warn_of_display(const struct sgrad_volume *volume, TIFF *file) {
    uint16_t orientation = ORIENTATION_TOPLEFT, photometric = PHOTOMETRIC_MINISBLACK;
    TIFFGetFieldDefaulted(file, TIFFTAG_ORIENTATION, &orientation);
    TIFFGetField(file, TIFFTAG_PHOTOMETRIC, &photometric);
    if (sgrad_launched_rank()) return;
    if (photometric == PHOTOMETRIC_MINISWHITE)
        sgrad_log_warning("%s: states that 0 is white (WhiteIsZero); like tifffile, Stargrad does not invert the values",
                          volume->path);
    if (orientation != ORIENTATION_TOPLEFT)
        sgrad_log_warning("%s: states Orientation %d; like tifffile, Stargrad does not rotate or flip slices", volume->path,
                          orientation);
}

/* Determines channels and slices of a file with PAGES pages of equal size and type. */
static int find_axes(struct sgrad_volume *volume, struct tiff *tiff, int64_t pages, const struct page *page) {
    const char *text = NULL;
    struct sgrad__tiff_axes *a = &tiff->axes;
    if (!TIFFSetSubDirectory(tiff->file, tiff->page[0]))
        return sgrad_log_error(SGRAD_EFORMAT, "%s: page 0 can no longer be read; check that no other process writes to the file",
                               volume->path);
    TIFFGetField(tiff->file, TIFFTAG_IMAGEDESCRIPTION, &text);
    tiff->deep = page->depth > 1 && TIFFIsTiled(tiff->file);
    if (page->chunk_depth > 1 && !tiff->deep)
        return sgrad_log_error(SGRAD_EFORMAT, "%s: has TileDepth, but no ImageDepth", volume->path);
    if (page->depth > 1) *a = (struct sgrad__tiff_axes){ pages, page->depth, 1, !tiff->deep, "ImageDepth" };
    else SGRAD_TRY(sgrad__tiff_axes(volume->path, text, (int64_t[]){ page->height, page->width }, a));
    if (!a->slices && !(pages == 1 && find_planes(tiff->file, a))) *a = (struct sgrad__tiff_axes){ 1, pages, 1, 1, NULL };
    warn_of_display(volume, tiff->file);
    const int64_t images = a->channels * a->slices;
    if (!tiff->deep && images != pages && pages == 1) SGRAD_TRY(find_bare(volume, tiff, page, images));
    else if (!tiff->deep && images != pages)
        return sgrad_log_error(SGRAD_EFORMAT,
                               "%s: %s states %lld images, but the file has %lld pages: it is damaged, or has several series",
                               volume->path, a->source, (long long)images, (long long)pages);
    const int64_t high = tiff->bare ? page->height : page->chunk_height, wide = tiff->bare ? page->width : page->chunk_width;
    const int64_t dim[] = { a->channels, a->slices, page->height, page->width }, chunk[] = { 1, page->chunk_depth, high, wide };
    const int first = a->channels == 1;     /* without an axis of channels if there is only one */
    return sgrad__volume_shape(volume, 4 - first, dim + first, chunk + first);
}

static int64_t image_of(const struct tiff *tiff, int64_t channel, int64_t slice) {
    return channel * tiff->axes.channel_step + slice * tiff->axes.slice_step;
}

/* libtiff only warns of JPEG data that are damaged or incomplete, and guesses the voxels. These warnings are errors. */
static _Thread_local bool guessed;
static void hear_warning(const char *module, const char *format, va_list list) {
    char why[256];
    (void)module;
    vsnprintf(why, sizeof why, format, list);
    guessed |= (strstr(why, "Corrupt JPEG data") && !strstr(why, "extraneous")) || strstr(why, "Premature end");
}

static int open_tiff(struct sgrad_volume *volume) {
    int64_t pages;
    struct page page = { 0 };
    TIFFSetErrorHandler(NULL);
    TIFFSetWarningHandler(hear_warning);
    if (access(volume->path, R_OK)) return sgrad_log_error(SGRAD_EIO, "%s: %s", volume->path, strerror(errno));
    TIFF *file = TIFFOpen(volume->path, "r");
    if (!file) return sgrad_log_error(SGRAD_EFORMAT, "%s: is not a TIFF file, or is damaged", volume->path);
    struct tiff *t = volume->state = sgrad_xcalloc(1, sizeof *t);
    t->file = file;
    pthread_mutex_init(&t->lock, NULL);
    SGRAD_TRY(read_pages(volume, t, &pages, &page));
    return find_axes(volume, t, pages, &page);
}

/* Reads a tile of BYTES bytes. Of a tile of several slices, libtiff decodes only the first, unless it receives the compressed
 * bytes. */
static bool read_tile(TIFF *file, uint32_t tile, const struct page *page, void *room, size_t bytes) {
    struct stat status;
    if (page->chunk_depth == 1) return TIFFReadEncodedTile(file, tile, room, (tmsize_t)bytes) > 0;
    const uint64_t packed = TIFFGetStrileByteCount(file, tile);
    if (!packed || fstat(TIFFFileno(file), &status) || packed > (uint64_t)status.st_size) return false;
    void *data = sgrad_xcalloc(packed, 1);
    const bool done = TIFFReadRawTile(file, tile, data, (tmsize_t)packed) == (tmsize_t)packed &&
                      TIFFReadFromUserBuffer(file, tile, data, (tmsize_t)packed, room, (tmsize_t)bytes);
    free(data);
    return done;
}

/* Reads a strip or tile of page NUMBER, which must be the current page. */
static int read_chunk(const struct sgrad_volume *volume, struct tiff *tiff, int64_t number, const struct sgrad__piece *piece,
                      void *room, size_t bytes) {
    const uint32_t x = (uint32_t)piece->chunk.from[3], y = (uint32_t)piece->chunk.from[2];
    const uint32_t z = tiff->deep ? (uint32_t)piece->chunk.from[1] : 0;
    struct page page;
    SGRAD_TRY(read_page(volume, number, tiff->file, &page));
    const bool same = page.width == volume->dim[3] && page.height == volume->dim[2] && page.chunk_width == volume->chunk[3] &&
                      page.chunk_height == volume->chunk[2] && page.chunk_depth == volume->chunk[1] &&
                      page.voxel == volume->voxel;
    if (!same)
        return sgrad_log_error(SGRAD_EFORMAT, "%s: the layout of page %lld differs from that of page 0, or the file has changed",
                               volume->path, (long long)number);
    memset(room, 0, bytes);
    guessed = false;
    const bool done = TIFFIsTiled(tiff->file)
                          ? read_tile(tiff->file, TIFFComputeTile(tiff->file, x, y, z, 0), &page, room, bytes)
                          : TIFFReadEncodedStrip(tiff->file, TIFFComputeStrip(tiff->file, y, 0), room, (tmsize_t)bytes) > 0;
    if (done && !guessed) return 0;
    return sgrad_log_error(SGRAD_EFORMAT, "%s: page %lld cannot be read: it is damaged, or its compression is not supported",
                           volume->path, (long long)number);
}

struct passage {
    const struct sgrad_volume *volume;
    const struct sgrad_box *box;
    void *to, *room;
    size_t bytes;
};
static int pass_chunk(const struct sgrad__piece *piece, void *arg) {
    const struct passage *p = arg;
    struct tiff *t = p->volume->state;
    const int64_t number = image_of(t, piece->place[0], piece->place[1]);
    pthread_mutex_lock(&t->lock);
    int error = TIFFSetSubDirectory(t->file, t->page[number])
                    ? read_chunk(p->volume, t, number, piece, p->room, p->bytes)
                    : sgrad_log_error(SGRAD_EFORMAT,
                                      "%s: page %lld can no longer be read; check that no other process writes to the file",
                                      p->volume->path, (long long)number);
    pthread_mutex_unlock(&t->lock);
    if (!error) sgrad_box_copy(&piece->inside, sgrad_voxel_size(p->volume->voxel), &piece->chunk, p->room, p->box, p->to);
    return error;
}

static void swap(void *voxels, int64_t count, size_t size) {
    if (size == 2) TIFFSwabArrayOfShort(voxels, count);
    if (size == 4) TIFFSwabArrayOfLong(voxels, count);
    if (size == 8) TIFFSwabArrayOfLong8(voxels, count);
}

/* Reads BOX from contiguous images, row by row. */
static int read_bare(const struct sgrad_volume *volume, const struct sgrad_box *box, char *to) {
    const struct tiff *t = volume->state;
    const size_t size = sgrad_voxel_size(volume->voxel), row = (size_t)box->size[3] * size;
    for (int64_t i = 0; i < box->size[0] * box->size[1]; i++) {
        const int64_t z = image_of(t, box->from[0] + i / box->size[1], box->from[1] + i % box->size[1]);
        for (int64_t y = box->from[2]; y < box->from[2] + box->size[2]; y++, to += row) {
            const uint64_t at = (uint64_t)((z * volume->dim[2] + y) * volume->dim[3] + box->from[3]) * size;
            for (size_t done = 0; done < row;) {
                const ssize_t got = pread(TIFFFileno(t->file), to + done, row - done, (off_t)(t->bare + at + done));
                if (got < 0 && errno == EINTR) continue;
                if (got <= 0)
                    return sgrad_log_error(SGRAD_EIO, "%s: image %lld cannot be read: %s", volume->path, (long long)z,
                                           got ? strerror(errno) : "the file ends early");
                done += (size_t)got;
            }
            if (TIFFIsByteSwapped(t->file)) swap(to, box->size[3], size);
        }
    }
    return 0;
}

static int read_tiff(const struct sgrad_volume *volume, const struct sgrad_box *box, void *to) {
    if (((const struct tiff *)volume->state)->bare) return read_bare(volume, box, to);
    struct passage p = { volume, box, to, NULL,
                         (size_t)(volume->chunk[1] * volume->chunk[2] * volume->chunk[3]) * sgrad_voxel_size(volume->voxel) };
    p.room = sgrad_xcalloc(1, p.bytes);
    int error = sgrad__volume_pieces(volume, box, pass_chunk, &p);
    free(p.room);
    return error;
}

static void close_tiff(struct sgrad_volume *volume) {
    struct tiff *t = volume->state;
    TIFFClose(t->file);
    pthread_mutex_destroy(&t->lock);
    free(t->page);
    free(t);
}
#endif

const struct sgrad_volume_format sgrad__tiff_format = {
    .name = "tiff", .summary = "TIFF, one slice per page", .library = "tiff", .is = is_tiff,
#ifdef SGRAD_HAVE_TIFF
    .open = open_tiff, .read = read_tiff, .close = close_tiff,
#endif
};
