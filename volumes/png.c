/* png.c: a folder of PNG files of one channel, one slice per file, in the natural order of names: slice2.png precedes
 * slice10.png.
 *
 *     stack/slice1.png     z 0
 *     stack/slice2.png     z 1
 *
 * libpng always decodes a whole slice. The latest slices are cached, up to 64 MB, because adjacent windows need the same ones.
 *
 * Limits: read-only. Grey of 8 or 16 bits; fewer bits are scaled to 8. Colours and transparency are refused. */
#include "config.h"
#include "volumes/formats.h"

#include <dirent.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

static int is_slice(const struct dirent *entry) {
    const char *dot = strrchr(entry->d_name, '.');
    return dot && entry->d_name[0] != '.' && !strcasecmp(dot, ".png");
}

static bool is_png(const char *name) {
    DIR *dir = opendir(name);
    struct dirent *entry;
    bool found = false;
    while (dir && !found && (entry = readdir(dir))) found = is_slice(entry);
    if (dir) closedir(dir);
    return found;
}

#ifdef SGRAD_HAVE_PNG
#include <png.h>

#define FILE_LIMIT ((size_t)1 << 30)
#define KEPT_LIMIT ((size_t)64 << 20)

/* ---- one file ---------------------------------------------------------------------------------------------------- */

static uint32_t number_at(const unsigned char *data) {
    return (uint32_t)data[0] << 24 | (uint32_t)data[1] << 16 | (uint32_t)data[2] << 8 | data[3];
}

/* The file begins with the signature and the chunk IHDR: length, name, width, height, bit depth, colour type. (W3C, PNG
 * specification, 11.2.1.) */
int sgrad__png_header(const char *name, const void *data, size_t size, struct sgrad__png *png) {
    enum { WIDTH = 16, HEIGHT = 20, BITS = 24, COLOURS = 25, BEGIN = 26 };
    const unsigned char *at = data;
    if (size < BEGIN || png_sig_cmp(at, 0, 8) || memcmp(at + 12, "IHDR", 4))
        return sgrad_log_error(SGRAD_EFORMAT, "%s: is not a PNG file", name);
    const struct sgrad__png is = { .width = number_at(at + WIDTH), .height = number_at(at + HEIGHT),
                                   .voxel = at[BITS] == 16 ? SGRAD_VOXEL_U16 : SGRAD_VOXEL_U8 };
    if (at[COLOURS] != PNG_COLOR_TYPE_GRAY)
        return sgrad_log_error(SGRAD_EFORMAT, "%s: has colours or transparency, but must be grey", name);
    if (is.width < 1 || is.height < 1 || is.width > INT32_MAX || is.height > INT32_MAX ||
        (double)is.width * is.height * (double)sgrad_voxel_size(is.voxel) > (double)SGRAD__CHUNK_LIMIT)
        return sgrad_log_error(SGRAD_EFORMAT,
                               "%s: a slice of %ux%u pixels is invalid; it must have at least one pixel and at most %zu MB", name,
                               is.width, is.height, SGRAD__CHUNK_LIMIT >> 20);
    *png = is;
    return 0;
}

struct source {
    const char *name;
    const unsigned char *data;
    size_t size, at;
};

/* Called for errors and for warnings, because pixels that libpng guesses are not data. */
static _Noreturn void leave(png_struct *decoder, const char *reason) {
    const struct source *source = png_get_error_ptr(decoder);
    sgrad_log_error(SGRAD_EFORMAT, "%s: byte %zu: %s", source->name, source->at, reason);
    png_longjmp(decoder, 1);
}

static void take(png_struct *decoder, png_byte *to, size_t n) {
    struct source *source = png_get_io_ptr(decoder);
    if (n > source->size - source->at) png_error(decoder, "the file ends early");
    memcpy(to, source->data + source->at, n);
    source->at += n;
}

/* A malformed file leaves by longjmp, so no local variable that is needed afterwards may change. */
static int decode(png_struct *decoder, png_info *info, struct source *source, const struct sgrad__png *png, unsigned char *to) {
    const size_t stride = png->width * sgrad_voxel_size(png->voxel);
    if (setjmp(png_jmpbuf(decoder))) return SGRAD_EFORMAT;
    png_set_read_fn(decoder, source, take);
    png_set_user_limits(decoder, INT32_MAX, INT32_MAX);
    png_set_keep_unknown_chunks(decoder, PNG_HANDLE_CHUNK_NEVER, NULL, -1);
    png_read_info(decoder, info);
    png_set_expand_gray_1_2_4_to_8(decoder);
    png_set_strip_alpha(decoder);
    png_set_swap(decoder); /* 16 bits become little-endian */
    const int passes = png_set_interlace_handling(decoder);
    png_read_update_info(decoder, info);
    if (png_get_rowbytes(decoder, info) != stride || png_get_image_height(decoder, info) != png->height)
        png_error(decoder, "its header states two sizes");
    for (int pass = 0; pass < passes; pass++)
        for (size_t y = 0; y < png->height; y++) png_read_row(decoder, to + y * stride, NULL);
    png_read_end(decoder, NULL);
    return 0;
}

int sgrad__png_decode(const char *name, const void *data, size_t size, const struct sgrad__png *png, void *to) {
    struct source source = { name, data, size, 0 };
    png_struct *decoder = png_create_read_struct(PNG_LIBPNG_VER_STRING, &source, leave, leave);
    png_info *info = decoder ? png_create_info_struct(decoder) : NULL;
    int error = info ? decode(decoder, info, &source, png, to) : sgrad_log_error(SGRAD_ENOMEM, "%s: no memory for libpng", name);
    png_destroy_read_struct(&decoder, &info, NULL);
    return error;
}

/* ---- the folder -------------------------------------------------------------------------------------------------- */

struct slice {
    int64_t number;             /* of a cached slice; -1: empty */
    void *voxels;
};
struct series {
    struct dirent **file;       /* by slice */
    int files, cached, next;    /* slices in the cache; its entry that is replaced next */
    struct slice *slice;
    pthread_mutex_t lock;
};

/* Warns of files that are not PNG: slices may be among them. */
static void warn_of_others(const char *path) {
    DIR *dir = opendir(path);
    const struct dirent *entry;
    char *first = NULL;
    int others = 0;
    while (dir && (entry = readdir(dir))) {
        if (entry->d_name[0] == '.' || is_slice(entry)) continue;
        if (!others++) first = sgrad_format("%s", entry->d_name);
    }
    if (dir) closedir(dir);
    if (others && sgrad_launched_rank() == 0)
        sgrad_log_warning("%s: %d %s not read: %s%s", path, others,
                          sgrad_plural(others, "file is not a PNG and was", "files are not PNGs and were"), first,
                          others > 1 ? ", …" : "");
    free(first);
}

/* Reads the file of slice Z; without TO, only its header. SGRAD_EFORMAT: its size or type differs from the first slice. */
static int read_slice(const struct sgrad_volume *volume, int64_t z, struct sgrad__png *png, void *to) {
    const struct series *s = volume->state;
    char *path = sgrad_format("%s/%s", volume->path, s->file[z]->d_name);
    struct sgrad_map map;
    int error = sgrad_map_open(path, FILE_LIMIT, &map);
    if (!error) {
        error = sgrad__png_header(path, map.data, map.size, png);
        if (!error && volume->rank &&
            (png->width != volume->dim[3] || png->height != volume->dim[2] || png->voxel != volume->voxel))
            error = sgrad_log_error(SGRAD_EFORMAT, "%s: has %ux%u pixels of %s, but the first slice has %lldx%lld of %s", path,
                                    png->width, png->height, sgrad_voxel_name(png->voxel), (long long)volume->dim[3],
                                    (long long)volume->dim[2], sgrad_voxel_name(volume->voxel));
        if (!error && to) error = sgrad__png_decode(path, map.data, map.size, png, to);
        sgrad_map_close(&map);
    }
    free(path);
    return error;
}

static int open_png(struct sgrad_volume *volume) {
    struct series *s = volume->state = sgrad_xcalloc(1, sizeof *s);
    struct sgrad__png png;
    pthread_mutex_init(&s->lock, NULL);
    s->files = scandir(volume->path, &s->file, is_slice, versionsort);
    if (s->files < 1) return sgrad_log_error(SGRAD_EIO, "%s: has no PNG files, or cannot be read", volume->path);
    SGRAD_TRY(read_slice(volume, 0, &png, NULL));
    volume->voxel = png.voxel;
    SGRAD_TRY(sgrad__volume_shape(volume, 3, (int64_t[]){ s->files, png.height, png.width },
                                  (int64_t[]){ 1, png.height, png.width }));
    for (int64_t z = 1; z < s->files; z++) SGRAD_TRY(read_slice(volume, z, &png, NULL));
    warn_of_others(volume->path);
    const size_t bytes = (size_t)png.width * png.height * sgrad_voxel_size(png.voxel), most = KEPT_LIMIT / bytes;
    s->cached = (int)sgrad_clamp((int64_t)most, 1, s->files);
    s->slice = sgrad_xcalloc((size_t)s->cached, sizeof *s->slice);
    for (int i = 0; i < s->cached; i++) s->slice[i].number = -1;
    return 0;
}

/* Sets *VOXELS to slice Z, which is decoded if it is not cached. The lock must be held as long as *VOXELS is used. */
static int find_slice(const struct sgrad_volume *volume, int64_t z, const void **voxels) {
    struct series *s = volume->state;
    struct sgrad__png png;
    for (int i = 0; i < s->cached; i++)
        if (s->slice[i].number == z) return *voxels = s->slice[i].voxels, 0;
    struct slice *own = &s->slice[s->next];
    if (!own->voxels) own->voxels = sgrad_xcalloc((size_t)(volume->dim[2] * volume->dim[3]), sgrad_voxel_size(volume->voxel));
    own->number = -1;
    SGRAD_TRY(read_slice(volume, z, &png, own->voxels));
    own->number = z;
    s->next = (s->next + 1) % s->cached;
    *voxels = own->voxels;
    return 0;
}

struct passage {
    const struct sgrad_volume *volume;
    const struct sgrad_box *box;
    void *to;
};
static int pass_slice(const struct sgrad__piece *piece, void *arg) {
    const struct passage *p = arg;
    struct series *s = p->volume->state;
    const void *voxels;
    pthread_mutex_lock(&s->lock);
    int error = find_slice(p->volume, piece->place[1], &voxels);
    if (!error) sgrad_box_copy(&piece->inside, sgrad_voxel_size(p->volume->voxel), &piece->chunk, voxels, p->box, p->to);
    pthread_mutex_unlock(&s->lock);
    return error;
}

static int read_png(const struct sgrad_volume *volume, const struct sgrad_box *box, void *to) {
    return sgrad__volume_pieces(volume, box, pass_slice, &(struct passage){ volume, box, to });
}

static void close_png(struct sgrad_volume *volume) {
    struct series *s = volume->state;
    for (int i = 0; i < s->files; i++) free(s->file[i]);
    for (int i = 0; i < s->cached; i++) free(s->slice[i].voxels);
    pthread_mutex_destroy(&s->lock);
    free(s->file);
    free(s->slice);
    free(s);
}
#endif

const struct sgrad_volume_format sgrad__png_format = {
    .name = "png", .summary = "folder of PNG files, one per slice", .library = "png", .is = is_png,
#ifdef SGRAD_HAVE_PNG
    .open = open_png, .read = read_png, .close = close_png,
#endif
};
