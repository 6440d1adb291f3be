/* tiff.c: a stack of slices, each a page of a TIFF file of one channel.
 *
 * Limits: read alone. All pages have one size and type; a page's strip or tile is read whole. What ImageJ writes beyond 4 GB, one
 * page and bare slices behind it, is seen as that one page. */
#include "config.h"
#include "volumes/formats.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <tiffio.h>
#include <unistd.h>

struct tiff {
    TIFF *file;
    pthread_mutex_t lock;       /* a file has one page at a time */
    uint64_t *page;             /* where each begins */
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

static int read_pages(struct sgrad_volume *v, struct tiff *t, int64_t *pages) {
    struct page first = { 0 }, page;
    *pages = 0;
    do {
        t->page = sgrad_grow(t->page, (int)*pages, sizeof *t->page);
        t->page[*pages] = TIFFCurrentDirOffset(t->file);
        SGRAD_TRY(read_page(v, *pages, t->file, &page));
        if (*pages == 0) first = page;
        if (page.width != first.width || page.height != first.height || page.voxel != first.voxel)
            return sgrad_fail(SGRAD_EFORMAT, "%s: page %lld is of %ux%u %s, page 0 of %ux%u %s", v->path, (long long)*pages,
                              page.width, page.height, sgrad_voxel_name(page.voxel), first.width, first.height,
                              sgrad_voxel_name(first.voxel));
        ++*pages;
    } while (TIFFReadDirectory(t->file));
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
    return read_pages(v, t, &pages);
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

static int read_tiff(const struct sgrad_volume *v, const struct sgrad_box *box, void *to) {
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
