/* tiff.c: a stack of slices, each a page of a TIFF file of one channel.
 *
 * What ImageJ writes beyond 4 GB is one page, whose description says "images=N", with the slices bare behind one another:
 *
 *     page     description "ImageJ=1.54f\nimages=3\n"     strip: at 8, of slice 0
 *     bytes    8: slice 0 │ slice 1 │ slice 2
 *
 * Limits: read alone. All pages have one size and type; a page's strip or tile is read whole. */
#include "config.h"
#include "volumes/formats.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <tiffio.h>
#include <unistd.h>

struct tiff {
    TIFF *file;
    pthread_mutex_t lock;       /* a file has one page at a time */
    uint64_t *page;             /* where each begins */
    uint64_t bare;              /* where bare slices begin; 0: there are pages */
};

static bool is_tiff(const char *name) {
    const char *dot = strrchr(name, '.');
    return dot && (!strcmp(dot, ".tif") || !strcmp(dot, ".tiff") || !strcmp(dot, ".TIF") || !strcmp(dot, ".TIFF"));
}

/* What a page says of itself. */
struct page {
    uint32_t width, height, chunk_width, chunk_height;
    enum sgrad_voxel voxel;
};

static int read_page(const struct sgrad_volume *v, int64_t number, TIFF *file, struct page *page) {
    uint16_t bits = 1, samples = 1, format = SAMPLEFORMAT_UINT, planar = PLANARCONFIG_CONTIG;
    TIFFGetFieldDefaulted(file, TIFFTAG_BITSPERSAMPLE, &bits);
    TIFFGetFieldDefaulted(file, TIFFTAG_SAMPLESPERPIXEL, &samples);
    TIFFGetFieldDefaulted(file, TIFFTAG_SAMPLEFORMAT, &format);
    TIFFGetFieldDefaulted(file, TIFFTAG_PLANARCONFIG, &planar);
    page->width = page->height = page->chunk_width = page->chunk_height = 0;
    TIFFGetField(file, TIFFTAG_IMAGEWIDTH, &page->width);
    TIFFGetField(file, TIFFTAG_IMAGELENGTH, &page->height);
    const int base = format == SAMPLEFORMAT_UINT ? SGRAD_VOXEL_U8 : format == SAMPLEFORMAT_INT ? SGRAD_VOXEL_I8 : SGRAD_VOXEL_F32;
    page->voxel = SGRAD_VOXELS;
    for (enum sgrad_voxel voxel = 0; voxel < SGRAD_VOXELS; voxel++)
        if (8 * sgrad_voxel_size(voxel) == bits && (int)voxel >= base && page->voxel == SGRAD_VOXELS) page->voxel = voxel;
    const bool known = format <= SAMPLEFORMAT_IEEEFP && page->voxel < SGRAD_VOXELS &&
                       (base == SGRAD_VOXEL_F32) == (page->voxel >= SGRAD_VOXEL_F32);
    if (samples != 1 || planar != PLANARCONFIG_CONTIG || !known)
        return sgrad_fail(SGRAD_EFORMAT,
                          "%s: page %lld has %u samples of %u bits, format %u: takes one, whole or real, of 8 to 64 bits",
                          v->path, (long long)number, samples, bits, format);
    if (TIFFIsTiled(file)) {
        TIFFGetField(file, TIFFTAG_TILEWIDTH, &page->chunk_width);
        TIFFGetField(file, TIFFTAG_TILELENGTH, &page->chunk_height);
    } else {
        uint32_t rows = page->height;
        TIFFGetFieldDefaulted(file, TIFFTAG_ROWSPERSTRIP, &rows);
        page->chunk_width = page->width;
        page->chunk_height = rows < page->height ? rows : page->height;
    }
    return 0;
}

/* Slices that ImageJ's description of the only page tells of; 1, if it is not ImageJ's. */
static int find_bare(struct sgrad_volume *v, struct tiff *t, int64_t *slices) {
    const char *text = NULL, *images;
    uint16_t packing = COMPRESSION_NONE;
    uint64_t *strip = NULL;
    struct stat status;
    *slices = 1;
    if (!TIFFGetField(t->file, TIFFTAG_IMAGEDESCRIPTION, &text) || strncmp(text, "ImageJ=", 7)) return 0;
    if (!(images = strstr(text, "\nimages=")) || (*slices = strtoll(images + 8, NULL, 10)) < 2) return *slices = 1, 0;
    TIFFGetFieldDefaulted(t->file, TIFFTAG_COMPRESSION, &packing);
    const bool other = strstr(text, "\nchannels=") || (strstr(text, "\nframes=") && strstr(text, "\nslices="));
    if (other || packing != COMPRESSION_NONE || TIFFIsTiled(t->file) || !TIFFGetField(t->file, TIFFTAG_STRIPOFFSETS, &strip))
        return sgrad_fail(SGRAD_EFORMAT, "%s: ImageJ says of it %lld images, of several channels, of frames and slices, or "
                          "compressed, and there is one page: takes bare slices", v->path, (long long)*slices);
    const double wanted = (double)*slices * (double)v->dim[2] * (double)v->dim[3] * (double)sgrad_voxel_size(v->voxel);
    t->bare = strip[0];
    if (fstat(TIFFFileno(t->file), &status) || !t->bare || (double)status.st_size < (double)t->bare + wanted)
        return sgrad_fail(SGRAD_EFORMAT, "%s: ImageJ says of it %lld images; it is too short for them: damaged", v->path,
                          (long long)*slices);
    return 0;
}

static int read_pages(struct sgrad_volume *v, struct tiff *t, int64_t *pages) {
    struct page first = { 0 }, page;
    *pages = 0;
    for (bool more = true; more;) {
        t->page = sgrad_grow(t->page, (int)*pages, sizeof *t->page);
        t->page[*pages] = TIFFCurrentDirOffset(t->file);
        SGRAD_TRY(read_page(v, *pages, t->file, &page));
        if (*pages == 0) first = page;
        if (page.width != first.width || page.height != first.height || page.voxel != first.voxel)
            return sgrad_fail(SGRAD_EFORMAT, "%s: page %lld is of %ux%u %s, page 0 of %ux%u %s", v->path, (long long)*pages,
                              page.width, page.height, sgrad_voxel_name(page.voxel), first.width, first.height,
                              sgrad_voxel_name(first.voxel));
        ++*pages;
        more = !TIFFLastDirectory(t->file);
        if (more && !TIFFReadDirectory(t->file))
            return sgrad_fail(SGRAD_EFORMAT, "%s: page %lld cannot be read: the file is damaged, or was cut short", v->path,
                              (long long)*pages);
    }
    v->voxel = first.voxel;
    return sgrad__volume_shape(v, 3, (int64_t[]){ *pages, first.height, first.width },
                               (int64_t[]){ 1, first.chunk_height, first.chunk_width });
}

static int open_tiff(struct sgrad_volume *v) {
    int64_t pages;
    TIFFSetErrorHandler(NULL);
    TIFFSetWarningHandler(NULL);
    if (access(v->path, R_OK)) return sgrad_fail(SGRAD_EIO, "%s: %s", v->path, strerror(errno));
    TIFF *file = TIFFOpen(v->path, "r");
    if (!file) return sgrad_fail(SGRAD_EFORMAT, "%s: is no TIFF file, or a damaged one", v->path);
    struct tiff *t = v->state = sgrad_alloc(1, sizeof *t);
    t->file = file;
    pthread_mutex_init(&t->lock, NULL);
    SGRAD_TRY(read_pages(v, t, &pages));
    if (pages == 1) SGRAD_TRY(find_bare(v, t, &pages));
    if (!t->bare) return 0;
    return sgrad__volume_shape(v, 3, (int64_t[]){ pages, v->dim[2], v->dim[3] }, (int64_t[]){ 1, v->dim[2], v->dim[3] });
}

/* A chunk as the file has it, of the page that is set. */
static int read_chunk(const struct sgrad_volume *v, struct tiff *t, const struct sgrad__piece *piece, void *room, size_t bytes) {
    const uint32_t x = (uint32_t)piece->chunk.from[3], y = (uint32_t)piece->chunk.from[2];
    struct page page;
    SGRAD_TRY(read_page(v, piece->place[1], t->file, &page));
    const bool same = page.width == v->dim[3] && page.height == v->dim[2] && page.chunk_width == v->chunk[3] &&
                      page.chunk_height == v->chunk[2] && page.voxel == v->voxel;
    if (!same)
        return sgrad_fail(SGRAD_EFORMAT, "%s: page %lld is cut otherwise than page 0, or has changed", v->path,
                          (long long)piece->place[1]);
    memset(room, 0, bytes);
    const tmsize_t got = TIFFIsTiled(t->file)
                             ? TIFFReadEncodedTile(t->file, TIFFComputeTile(t->file, x, y, 0, 0), room, (tmsize_t)bytes)
                             : TIFFReadEncodedStrip(t->file, TIFFComputeStrip(t->file, y, 0), room, (tmsize_t)bytes);
    return got > 0 ? 0
                   : sgrad_fail(SGRAD_EFORMAT, "%s: page %lld cannot be read: damaged, or compressed in a way that is not known",
                                v->path, (long long)piece->place[1]);
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
    pthread_mutex_lock(&t->lock);
    int error = TIFFSetSubDirectory(t->file, t->page[piece->place[1]])
                    ? read_chunk(p->volume, t, piece, p->room, p->bytes)
                    : sgrad_fail(SGRAD_EFORMAT, "%s: page %lld is gone", p->volume->path, (long long)piece->place[1]);
    pthread_mutex_unlock(&t->lock);
    if (!error) sgrad_box_copy(&piece->inside, sgrad_voxel_size(p->volume->voxel), &piece->chunk, p->room, p->box, p->to);
    return error;
}

static void swap(void *voxels, int64_t count, size_t size) {
    if (size == 2) TIFFSwabArrayOfShort(voxels, count);
    if (size == 4) TIFFSwabArrayOfLong(voxels, count);
    if (size == 8) TIFFSwabArrayOfLong8(voxels, count);
}

/* Rows of bare slices. */
static int read_bare(const struct sgrad_volume *v, const struct sgrad_box *box, char *to) {
    const struct tiff *t = v->state;
    const size_t size = sgrad_voxel_size(v->voxel), row = (size_t)box->size[3] * size;
    for (int64_t z = box->from[1]; z < box->from[1] + box->size[1]; z++)
        for (int64_t y = box->from[2]; y < box->from[2] + box->size[2]; y++, to += row) {
            const uint64_t at = (uint64_t)((z * v->dim[2] + y) * v->dim[3] + box->from[3]) * size;
            for (size_t done = 0; done < row;) {
                const ssize_t got = pread(TIFFFileno(t->file), to + done, row - done, (off_t)(t->bare + at + done));
                if (got < 0 && errno == EINTR) continue;
                if (got <= 0)
                    return sgrad_fail(SGRAD_EIO, "%s: slice %lld cannot be read: %s", v->path, (long long)z,
                                      got ? strerror(errno) : "the file ends early");
                done += (size_t)got;
            }
            if (TIFFIsByteSwapped(t->file)) swap(to, box->size[3], size);
        }
    return 0;
}

static int read_tiff(const struct sgrad_volume *v, const struct sgrad_box *box, void *to) {
    if (((const struct tiff *)v->state)->bare) return read_bare(v, box, to);
    struct passage p = { v, box, to, NULL, (size_t)(v->chunk[2] * v->chunk[3]) * sgrad_voxel_size(v->voxel) };
    p.room = sgrad_alloc(1, p.bytes);
    int error = sgrad__volume_pieces(v, box, pass_chunk, &p);
    free(p.room);
    return error;
}

static void close_tiff(struct sgrad_volume *v) {
    struct tiff *t = v->state;
    TIFFClose(t->file);
    pthread_mutex_destroy(&t->lock);
    free(t->page);
    free(t);
}

const struct sgrad_volume_format sgrad__tiff_format = {
    .name = "tiff", .summary = "TIFF, a slice a page", .is = is_tiff, .open = open_tiff, .read = read_tiff, .close = close_tiff,
};
