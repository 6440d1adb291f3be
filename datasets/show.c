/* show.c: draws samples, as training sees them, as one PNG image, and writes their labels as text. */
#include "config.h"
#include "datasets/colours.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { COLUMNS = 16, GAP = 2, LEAST_SIDE = 64 };

/* A sheet of tiles. A tile is an image, with the labels of its pixels, if they have any, to the right. A pixel is ZOOM x ZOOM. */
struct sheet {
    int columns, rows, parts, zoom, height, width;      /* parts: images per tile; height, width: of one, in its pixels */
    uint8_t *rgb;                                       /* (sheet_height,sheet_width,3) */
};
static int sheet_height(const struct sheet *sheet) { return sheet->rows * (sheet->height * sheet->zoom + GAP) + GAP; }
static int sheet_width(const struct sheet *sheet) {
    return sheet->columns * (sheet->parts * sheet->width * sheet->zoom + GAP) + GAP;
}

static void put(struct sheet *sheet, int tile, int part, int y, int x, const uint8_t rgb[3]) {
    const int top = GAP + tile / sheet->columns * (sheet->height * sheet->zoom + GAP) + y * sheet->zoom;
    const int left =
        GAP + tile % sheet->columns * (sheet->parts * sheet->width * sheet->zoom + GAP) + (part * sheet->width + x) * sheet->zoom;
    for (int i = 0; i < sheet->zoom; i++)
        for (int j = 0; j < sheet->zoom; j++)
            memcpy(sheet->rgb + ((size_t)(top + i) * (size_t)sheet_width(sheet) + (size_t)(left + j)) * 3, rgb, 3);
}

/* Draws the image (height,width,channels) that begins at number AT of PIXELS. With one or two channels, the first is drawn as
 * grey; of more than three, the first three are drawn. */
static void put_image(struct sheet *sheet, int tile, const struct sgrad_field *image, const void *pixels, int64_t at,
                      int channels, float full_scale) {
    for (int y = 0; y < sheet->height; y++)
        for (int x = 0; x < sheet->width; x++, at += channels) {
            uint8_t rgb[3];
            for (int c = 0; c < 3; c++)
                rgb[c] = (uint8_t)rintf(sgrad__pixel(image, pixels, at + (channels < 3 ? 0 : c)) * 255 / full_scale);
            put(sheet, tile, 0, y, x, rgb);
        }
}

/* Draws LABEL (height,width): 0 is black, negative (unknown) labels are grey. */
static void put_labels(struct sheet *sheet, int tile, const int32_t *label) {
    static const uint8_t colour[][3] = { { 0, 0, 0 },     { 230, 159, 0 },  { 86, 180, 233 },  { 0, 158, 115 },
                                         { 240, 228, 66 }, { 0, 114, 178 }, { 213, 94, 0 },    { 204, 121, 167 } };
    static const uint8_t unknown[3] = { 90, 90, 90 };
    for (int y = 0; y < sheet->height; y++)
        for (int x = 0; x < sheet->width; x++, label++) put(sheet, tile, 1, y, x, *label < 0 ? unknown : colour[*label % 8]);
}

/* Write the label of a sample: "3", "cat", "0.73 cat + 0.27 dog". */
static void print_class(const struct sgrad_dataset *dataset, int32_t label, FILE *to) {
    if (dataset->class_title && label >= 0 && label < dataset->classes) fputs(dataset->class_title[label], to);
    else if (dataset->class_name && label >= 0 && label < dataset->classes) fputs(dataset->class_name[label], to);
    else fprintf(to, "%d", label);
}
static void print_label(const struct sgrad_dataset *dataset, void *const *data, int sample, FILE *to) {
    const int own = sgrad_dataset_own_fields(dataset);
    const struct sgrad_field *target = sgrad_dataset_target(dataset);
    const float *share = dataset->mixed ? (const float *)data[own + 1] + sample : NULL;
    if (target->shape.rank) return;
    if (!dataset->classes) {
        fprintf(to, "%g", target->dtype == SGRAD_F32 ? (double)((const float *)data[own - 1])[sample] : 0);
        return;
    }
    if (share && *share < 1) fprintf(to, "%.2f ", (double)*share);
    print_class(dataset, ((const int32_t *)data[own - 1])[sample], to);
    if (!share || *share == 1) return;
    fprintf(to, " + %.2f ", 1 - (double)*share);
    print_class(dataset, ((const int32_t *)data[own])[sample], to);
}

static int write_png(const struct sheet *sheet, const char *path) {
    struct sgrad_file file;
    size_t size;
    void *data;
    SGRAD_TRY(sgrad_png_encode(sheet->rgb, sheet_height(sheet), sheet_width(sheet), &data, &size));
    int error = sgrad_file_begin(path, &file);
    if (!error) {
        fwrite(data, 1, size, file.stream);
        error = sgrad_file_commit(&file);
    }
    free(data);
    return error;
}

static void draw_sheet(const struct sgrad_dataset *dataset, struct sheet *sheet, void *const *data, int n, FILE *text) {
    const struct sgrad_field *image = sgrad_dataset_image(dataset), *target = sgrad_dataset_target(dataset);
    const size_t plane = (size_t)sheet->height * (size_t)sheet->width, channels = (size_t)sgrad_dataset_channels(dataset);
    const size_t middle = image->shape.rank == 4 ? (size_t)image->shape.dim[0] / 2 : 0;
    sheet->rgb = sgrad_xcalloc((size_t)sheet_height(sheet) * (size_t)sheet_width(sheet), 3);
    memset(sheet->rgb, 255, (size_t)sheet_height(sheet) * (size_t)sheet_width(sheet) * 3);
    for (int i = 0; i < n; i++) {
        const int64_t first = i * sgrad_shape_count(&image->shape);
        put_image(sheet, i, image, data[0], first + (int64_t)(middle * plane * channels), (int)channels, dataset->full_scale);
        if (sheet->parts == 2)
            put_labels(sheet, i,
                       (const int32_t *)data[target - dataset->field] + (size_t)i * (size_t)sgrad_shape_count(&target->shape) +
                           middle * plane);
        if (target->shape.rank) continue;
        if (i % sheet->columns == 0) fprintf(text, "row %d: ", i / sheet->columns + 1);
        print_label(dataset, data, i, text);
        fputs(i % sheet->columns == sheet->columns - 1 || i == n - 1 ? "\n" : ", ", text);
    }
}

int sgrad_dataset_show(const struct sgrad_dataset *dataset, const struct sgrad_sample *sample, int n,
                       const struct sgrad_drawing *how, const char *path, FILE *text) {
    const struct sgrad_field *image = sgrad_dataset_image(dataset), *target = sgrad_dataset_target(dataset);
    if (!image)
        return sgrad_log_error(SGRAD_EINVAL, "%s: cannot be drawn: samples are %s, not images", path, dataset->field[0].name);
    const int64_t *dim = sgrad_field_plane(image);
    struct sheet s = { .height = (int)dim[0], .width = (int)dim[1], .columns = (int)ceil(sqrt(n)), .zoom = 1,
                       .parts = target->dtype == SGRAD_I32 && target->shape.rank == image->shape.rank - 1 ? 2 : 1 };
    if (s.columns > COLUMNS) s.columns = COLUMNS;
    s.rows = (n + s.columns - 1) / s.columns;
    while (s.zoom * (s.height < s.width ? s.height : s.width) < LEAST_SIDE) s.zoom++;
    void *data[SGRAD_MAX_FIELDS] = { NULL };
    for (int f = 0; dataset->field[f].name; f++) data[f] = sgrad_xcalloc((size_t)n, sgrad_field_bytes(&dataset->field[f]));
    int error = sgrad_dataset_draw(dataset, sample, n, how, data);
    if (!error) draw_sheet(dataset, &s, data, n, text);
    if (!error) error = write_png(&s, path);
    for (int f = 0; dataset->field[f].name; f++) free(data[f]);
    free(s.rgb);
    return error;
}
