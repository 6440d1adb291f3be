/* show.c: draws samples, as training sees them, as one PNG image, and writes their labels as text. */
#include "config.h"
#include "datasets/colours.h"

#include <math.h>
#include <png.h>
#include <stdlib.h>
#include <string.h>

enum { COLUMNS = 16, GAP = 2, LEAST_SIDE = 64 };

/* A sheet of tiles. A tile is an image, with the labels of its pixels, if they have any, to the right. A pixel is ZOOM x ZOOM. */
struct sheet {
    int columns, rows, parts, zoom, height, width;      /* parts: images per tile; height, width: of one, in its pixels */
    uint8_t *rgb;                                       /* (sheet_height,sheet_width,3) */
};
static int sheet_height(const struct sheet *s) { return s->rows * (s->height * s->zoom + GAP) + GAP; }
static int sheet_width(const struct sheet *s) { return s->columns * (s->parts * s->width * s->zoom + GAP) + GAP; }

static void put(struct sheet *s, int tile, int part, int y, int x, const uint8_t rgb[3]) {
    const int top = GAP + tile / s->columns * (s->height * s->zoom + GAP) + y * s->zoom;
    const int left = GAP + tile % s->columns * (s->parts * s->width * s->zoom + GAP) + (part * s->width + x) * s->zoom;
    for (int i = 0; i < s->zoom; i++)
        for (int j = 0; j < s->zoom; j++)
            memcpy(s->rgb + ((size_t)(top + i) * (size_t)sheet_width(s) + (size_t)(left + j)) * 3, rgb, 3);
}

/* Draws the image (height,width,channels) that begins at number AT of PIXELS. With one or two channels, the first is drawn as
 * grey; of more than three, the first three are drawn. */
static void put_image(struct sheet *s, int tile, const struct sgrad_field *image, const void *pixels, int64_t at, int channels,
                      float full_scale) {
    for (int y = 0; y < s->height; y++)
        for (int x = 0; x < s->width; x++, at += channels) {
            uint8_t rgb[3];
            for (int c = 0; c < 3; c++)
                rgb[c] = (uint8_t)rintf(sgrad__pixel(image, pixels, at + (channels < 3 ? 0 : c)) * 255 / full_scale);
            put(s, tile, 0, y, x, rgb);
        }
}

/* Draws LABEL (height,width): 0 is black, negative (unknown) labels are grey. */
static void put_labels(struct sheet *s, int tile, const int32_t *label) {
    static const uint8_t colour[][3] = { { 0, 0, 0 },     { 230, 159, 0 },  { 86, 180, 233 },  { 0, 158, 115 },
                                         { 240, 228, 66 }, { 0, 114, 178 }, { 213, 94, 0 },    { 204, 121, 167 } };
    static const uint8_t unknown[3] = { 90, 90, 90 };
    for (int y = 0; y < s->height; y++)
        for (int x = 0; x < s->width; x++, label++) put(s, tile, 1, y, x, *label < 0 ? unknown : colour[*label % 8]);
}

/* Write the label of a sample: "3", "cat", "0.73 cat + 0.27 dog". */
static void tell_class(const struct sgrad_dataset *d, int32_t label, FILE *to) {
    if (d->class_name && label >= 0 && label < d->classes) fputs(d->class_name[label], to);
    else fprintf(to, "%d", label);
}
static void tell(const struct sgrad_dataset *d, void *const *data, int sample, FILE *to) {
    const int own = sgrad_dataset_own_fields(d);
    const struct sgrad_field *target = sgrad_dataset_target(d);
    const float *share = d->mixed ? (const float *)data[own + 1] + sample : NULL;
    if (target->shape.rank) return;
    if (!d->classes) {
        fprintf(to, "%g", target->dtype == SGRAD_F32 ? (double)((const float *)data[own - 1])[sample] : 0);
        return;
    }
    if (share && *share < 1) fprintf(to, "%.2f ", (double)*share);
    tell_class(d, ((const int32_t *)data[own - 1])[sample], to);
    if (!share || *share == 1) return;
    fprintf(to, " + %.2f ", 1 - (double)*share);
    tell_class(d, ((const int32_t *)data[own])[sample], to);
}

static int write_png(const struct sheet *s, const char *path) {
    png_image png = { .version = PNG_IMAGE_VERSION, .format = PNG_FORMAT_RGB, .width = (unsigned)sheet_width(s),
                      .height = (unsigned)sheet_height(s) };
    struct sgrad_file file;
    size_t size = PNG_IMAGE_PNG_SIZE_MAX(png);
    uint8_t *data = sgrad_xcalloc(size, 1);
    int error = sgrad_file_begin(path, &file);
    if (!error && png_image_write_to_memory(&png, data, &size, 0, s->rgb, 0, NULL)) fwrite(data, 1, size, file.stream);
    if (!error) error = sgrad_file_commit(&file);
    free(data);
    return error;
}

static void draw_sheet(const struct sgrad_dataset *d, struct sheet *s, void *const *data, int n, FILE *text) {
    const struct sgrad_field *image = sgrad_dataset_image(d), *target = sgrad_dataset_target(d);
    const size_t plane = (size_t)s->height * (size_t)s->width, channels = (size_t)sgrad_dataset_channels(d);
    const size_t middle = image->shape.rank == 4 ? (size_t)image->shape.dim[0] / 2 : 0;
    s->rgb = sgrad_xcalloc((size_t)sheet_height(s) * (size_t)sheet_width(s), 3);
    memset(s->rgb, 255, (size_t)sheet_height(s) * (size_t)sheet_width(s) * 3);
    for (int i = 0; i < n; i++) {
        const int64_t first = i * sgrad_shape_count(&image->shape);
        put_image(s, i, image, data[0], first + (int64_t)(middle * plane * channels), (int)channels, d->full_scale);
        if (s->parts == 2)
            put_labels(s, i, (const int32_t *)data[target - d->field] + (size_t)i * (size_t)sgrad_shape_count(&target->shape) +
                                 middle * plane);
        if (target->shape.rank) continue;
        if (i % s->columns == 0) fprintf(text, "row %d: ", i / s->columns + 1);
        tell(d, data, i, text);
        fputs(i % s->columns == s->columns - 1 || i == n - 1 ? "\n" : ", ", text);
    }
}

int sgrad_dataset_show(const struct sgrad_dataset *d, const struct sgrad_sample *sample, int n, const struct sgrad_drawing *how,
                       const char *path, FILE *text) {
    const struct sgrad_field *image = sgrad_dataset_image(d), *target = sgrad_dataset_target(d);
    if (!image) return sgrad_log_error(SGRAD_EINVAL, "%s: cannot be drawn: samples are %s, not images", path, d->field[0].name);
    const int64_t *dim = sgrad_field_plane(image);
    struct sheet s = { .height = (int)dim[0], .width = (int)dim[1], .columns = (int)ceil(sqrt(n)), .zoom = 1,
                       .parts = target->dtype == SGRAD_I32 && target->shape.rank == image->shape.rank - 1 ? 2 : 1 };
    if (s.columns > COLUMNS) s.columns = COLUMNS;
    s.rows = (n + s.columns - 1) / s.columns;
    while (s.zoom * (s.height < s.width ? s.height : s.width) < LEAST_SIDE) s.zoom++;
    void *data[SGRAD_MAX_FIELDS] = { NULL };
    for (int f = 0; d->field[f].name; f++) data[f] = sgrad_xcalloc((size_t)n, sgrad_field_bytes(&d->field[f]));
    int error = sgrad_dataset_draw(d, sample, n, how, data);
    if (!error) draw_sheet(d, &s, data, n, text);
    if (!error) error = write_png(&s, path);
    for (int f = 0; d->field[f].name; f++) free(data[f]);
    free(s.rgb);
    return error;
}
