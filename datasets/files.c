/* files.c: a data set made of unlabelled image files, as the input of a trained network. Images are scaled and cropped to the
 * shape of the training images. Decoded images are cached, up to 1 GiB. */
#include "config.h"
#include "datasets/colours.h"
#include "datasets/formats.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define FILE_LIMIT ((size_t)1 << 30)
#define KEPT_LIMIT ((int64_t)1 << 30)

struct files {
    const char *const *name;
    int64_t count;              /* of the files, damaged ones included */
    int scaled;                 /* the shorter side to which images are scaled before they are cropped; 0: the side of the crop */
    bool upright;               /* the EXIF orientation is applied */
    struct sgrad__image_use use;        /* of an image, by its decoder */
    _Atomic(void *) *pixels;    /* cache: of each image that was read; NULL: not cached */
    _Atomic int64_t room;       /* bytes left in the cache */
};

static const char *name_of(const struct sgrad_dataset *dataset, int64_t index) {
    return ((const struct files *)dataset->state)->name[index];
}

static bool is_deep(const struct sgrad_dataset *dataset) { return dataset->field[0].dtype == SGRAD_U16; }

static int read_file(const struct sgrad_dataset *dataset, int64_t index, struct sgrad__image *image) {
    const struct files *files = dataset->state;
    const char *path = name_of(dataset, index);
    struct sgrad_map map;
    SGRAD_TRY(sgrad_map_open(path, FILE_LIMIT, &map));
    int error = sgrad__image_decode_for(path, map.data, map.size, is_deep(dataset), &files->use, image);
    if (!error && files->upright) sgrad__image_upright(map.data, map.size, image);
    sgrad_map_close(&map);
    if (!error && image->animated) sgrad_log_warning("%s: has further pages or frames; only the first is read", path);
    if (!error && image->deep && !is_deep(dataset))
        sgrad_log_warning("%s: has more than 8 bits per channel; they are rounded to 8, as in training", path);
    return error;
}

/* Scales and crops the image to TO, (H,W,3), as the reader of folders does. SGRAD_EINVAL: the size differs, and HxW is not
 * square. */
static int fit(const struct sgrad_dataset *dataset, int64_t index, const struct sgrad__image *image, void *to) {
    const struct files *files = dataset->state;
    const int64_t *dim = dataset->field[0].shape.dim;
    const void *from = is_deep(dataset) ? (const void *)image->rgb16 : image->rgb;
    if (image->height == dim[0] && image->width == dim[1] && !files->scaled)
        return memcpy(to, from, (size_t)(dim[0] * dim[1] * 3) * sgrad_dtype_size(dataset->field[0].dtype)), 0;
    if (dim[0] != dim[1])
        return sgrad_log_error(SGRAD_EINVAL,
                               "%s: the image has %dx%d pixels, but the network was trained on %dx%d; resize the image "
                               "(--image-size resizes only to squares)",
                               name_of(dataset, index), (int)image->height, (int)image->width, (int)dim[0], (int)dim[1]);
    sgrad__image_fit(image, files->scaled ? files->scaled : (int)dim[0], (int)dim[0], to);
    return 0;
}

/* Converts RGB to the channels and the full scale of the training images. One channel is the luma (ITU-R BT.601). */
static void convert(const struct sgrad_dataset *dataset, const void *rgb, void *to) {
    const struct sgrad_field *image = &dataset->field[0];
    const int64_t *dim = image->shape.dim, channels = dim[2];
    const double scale = (double)dataset->full_scale / (is_deep(dataset) ? 65535 : 255);
    for (int64_t i = 0; i < dim[0] * dim[1]; i++)
        for (int64_t c = 0; c < channels; c++) {
            float p[3];
            for (int k = 0; k < 3; k++) p[k] = sgrad__pixel(image, rgb, 3 * i + k);
            const double value = channels == 1 ? 0.299 * p[0] + 0.587 * p[1] + 0.114 * p[2] : p[c];
            const float whole = (float)floor(value * scale + 0.5);
            sgrad__pixels_give(image, &whole, 1, (char *)to + (i * channels + c) * (int64_t)sgrad_dtype_size(image->dtype));
        }
}

static int decode_sample(const struct sgrad_dataset *dataset, int64_t index, void *to) {
    const int64_t *dim = dataset->field[0].shape.dim;
    struct sgrad__image image;
    SGRAD_TRY(read_file(dataset, index, &image));
    void *rgb = sgrad_xcalloc((size_t)(dim[0] * dim[1]), 3 * sgrad_dtype_size(dataset->field[0].dtype));
    int error = fit(dataset, index, &image, rgb);
    if (!error) convert(dataset, rgb, to);
    free(rgb);
    free(image.rgb);
    free(image.rgb16);
    return error;
}

/* Two threads may decode the same image; only one of the results is cached. */
static int read_sample(const struct sgrad_dataset *dataset, struct sgrad_sample sample, void *const *data) {
    struct files *files = dataset->state;
    const int64_t index = sample.index, bytes = (int64_t)sgrad_field_bytes(&dataset->field[0]);
    void *kept = files->pixels[index], *none = NULL;
    *(int32_t *)data[1] = 0;
    if (kept) return memcpy(data[0], kept, (size_t)bytes), 0;
    SGRAD_TRY(decode_sample(dataset, index, data[0]));
    if (atomic_fetch_sub(&files->room, bytes) < bytes) return 0;
    kept = sgrad_xcalloc(1, (size_t)bytes);
    memcpy(kept, data[0], (size_t)bytes);
    if (!atomic_compare_exchange_strong(&files->pixels[index], &none, kept)) free(kept);
    return 0;
}

static char *name_sample(const struct sgrad_dataset *dataset, int64_t index) {
    return sgrad_format("%s", name_of(dataset, index));
}

static void close_files(struct sgrad_dataset *dataset) {
    struct files *files = dataset->state;
    for (int64_t i = 0; i < files->count; i++) free(files->pixels[i]);
    free((void *)files->pixels);
    free(files);
}

static const struct sgrad_reader reader = {
    .name = "files",
    .summary = "images without labels",
    .resizes = "--image-size N",
    .read = read_sample,
    .close = close_files,
    .sample_name = name_sample,
};

int sgrad_dataset_of_files(const char *const *file, int64_t count, const struct sgrad_shape *image, float full_scale, int classes,
                           const struct sgrad_dataset_options *options, struct sgrad_dataset **dataset) {
    const int scaled = options ? options->test_resize : 0;
    char text[SGRAD_SHAPE_TEXT];
    if (image->rank != 3 || (image->dim[2] != 1 && image->dim[2] != 3))
        return sgrad_log_error(SGRAD_EINVAL,
                               "files are read as images of 1 or 3 channels, but the network requires %s%s; give --data csv:FILE "
                               "for a table, --data npy:DIR for arrays",
                               image->rank ? "samples of " : "other samples", image->rank ? sgrad_shape_text(image, text) : "");
    if (scaled && (image->dim[0] != image->dim[1] || scaled < image->dim[0]))
        return sgrad_log_error(SGRAD_EINVAL,
                               "--eval-resize %d: the network requires images of %s; they must be squares, of at most this side",
                               scaled, sgrad_shape_text(image, text));
    struct sgrad_dataset *d = *dataset = sgrad_xcalloc(1, sizeof *d);
    *d = (struct sgrad_dataset){ .reader = &reader, .split = SGRAD_TEST, .count = count, .classes = classes,
                                 .full_scale = full_scale };
    struct files *files = d->state = sgrad_xcalloc(1, sizeof *files);
    files->name = file;
    files->count = count;
    files->scaled = scaled;
    files->upright = options && options->upright;
    if (options && options->reduced && image->dim[0] == image->dim[1]) files->use.least = scaled ? scaled : (int)image->dim[0];
    files->pixels = sgrad_xcalloc((size_t)count + 1, sizeof *files->pixels);
    files->room = KEPT_LIMIT;
    d->field[0] = (struct sgrad_field){ .name = "pixels", .dtype = full_scale > 255 ? SGRAD_U16 : SGRAD_U8, .shape = *image };
    d->field[1] = (struct sgrad_field){ .name = "label", .dtype = SGRAD_I32 };
    return 0;
}
