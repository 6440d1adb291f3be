/* volume.c: the reader of patches of a volume whose voxels have labels, such as volumes of electron microscopy.
 *
 *     DIR/train/image.*  DIR/train/label.*  DIR/val/image.*  DIR/val/label.*      files of volumes.h, or folders, (Z,Y,X)
 *     DIR/train-volume-idx3-ubyte.gz  DIR/train-labels-idx3-ubyte.gz              one stack, whose last fifth is val
 *
 * Samples are the patches of a grid. At the ends of the volume they may extend beyond it: there the image is mirrored, and the
 * label is -1, which losses ignore. For training, each patch is at a random position inside the volume, which depends only on
 * (seed, epoch, sample), and is augmented:
 *
 *     flip         each axis with probability 1/2; y and x of a square exchanged with probability 1/2
 *     rotate       by a random angle in the plane
 *     elastic      displaced by a smooth field in the plane: standard deviation 4 pixels, on a grid of 32
 *     brightness   p·(1 + a) + b, with |a| up to 0.2 and |b| up to 0.1 of full scale
 *
 * Rotated and displaced pixels are interpolated linearly from four pixels; labels are those of the nearest pixel. (Ronneberger et
 * al., U-Net, 2015; Lee et al., Superhuman accuracy on the SNEMI3D connectomics challenge, 2017.) Labels 0 and 255 are classes 0
 * and 1; labels of -1 in a file are ignored, too. Images of other types than uint8 have 16 bits here (volumes.h).
 *
 * Limits: one channel; 8 classes. */
#include "config.h"
#include "datasets/datasets.h"
#include "datasets/formats.h"
#include "runtime/philox.h"
#include "volumes/volumes.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SIDE_LIMIT = 4096, CLASSES = 8, GRID = 32, MARGIN = 16 };
#define FILE_LIMIT ((size_t)1 << 31)

/* The image or the labels of a split: a volume, or slices of an idx file in memory. */
struct stack {
    struct sgrad_volume *volume;
    uint8_t *memory;            /* all slices of the file */
    int64_t first, dim[3];      /* index of the first slice; (Z,Y,X) of the split */
};
struct state {
    struct stack image, label;
    int64_t patch[3], grid[3];
    enum sgrad_dtype pixel;     /* SGRAD_U8 or SGRAD_U16 */
    bool binary;                /* labels are 0 and 255 */
};
static double full_scale(const struct state *state) { return state->pixel == SGRAD_U8 ? 255 : 65535; }

static int read_stack(const struct stack *stack, const int64_t from[3], const int64_t size[3], enum sgrad_voxel as, void *to) {
    const struct sgrad_box box = { { 0, stack->first + from[0], from[1], from[2] }, { 1, size[0], size[1], size[2] } };
    if (stack->volume) return sgrad_volume_read(stack->volume, &box, as, to);
    for (int64_t z = 0; z < size[0]; z++)
        for (int64_t y = 0; y < size[1]; y++)
            sgrad_voxel_convert(SGRAD_VOXEL_U8,
                                stack->memory + ((box.from[1] + z) * stack->dim[1] + from[1] + y) * stack->dim[2] + from[2],
                                size[2], as, (char *)to + (size_t)((z * size[1] + y) * size[2]) * sgrad_voxel_size(as));
    return 0;
}

/* Reads pixels as 16-bit integers; pixels of 8 bits keep their values. */
static int read_pixels(const struct state *state, const int64_t from[3], const int64_t size[3], uint16_t *to) {
    const struct sgrad_box box = { { 0, from[0], from[1], from[2] }, { 1, size[0], size[1], size[2] } };
    const int64_t count = sgrad_box_count(&box);
    if (!state->image.volume) return read_stack(&state->image, from, size, SGRAD_VOXEL_U16, to);
    SGRAD_TRY(sgrad_volume_read_pixels(state->image.volume, &box, to));
    for (int64_t i = count - 1; i >= 0 && state->pixel == SGRAD_U8; i--) to[i] = ((const uint8_t *)to)[i];
    return 0;
}

/* ---- a patch ------------------------------------------------------------------------------------------------------ */

/* Returns the voxel at position X along an axis of SIZE voxels, where the volume is mirrored beyond its ends. */
static int64_t mirrored(int64_t x, int64_t size) {
    const int64_t period = size > 1 ? 2 * (size - 1) : 1, at = ((x % period) + period) % period;
    return at < size ? at : period - at;
}

/* The voxels of a stack that a patch is computed from, in memory. */
struct window {
    int64_t from[3], size[3];
    uint16_t *image;
    int32_t *label;
};

/* Reads the voxels of a box, which may extend beyond the volume. The window is limited to the volume. */
static int open_window(const struct state *state, const int64_t from[3], const int64_t size[3], struct window *window) {
    int64_t count = 1;
    for (int d = 0; d < 3; d++) {
        const int64_t dim = state->image.dim[d];
        /* The window contains the voxels that are mirrored. */
        int64_t first = from[d], end = from[d] + size[d];
        if (first < 0) end = end > -first + 1 ? end : -first + 1, first = 0;
        if (end > dim) first = first < 2 * dim - 1 - end ? first : 2 * dim - 1 - end, end = dim;
        window->from[d] = first > 0 ? first : 0;
        window->size[d] = (end < dim ? end : dim) - window->from[d];
        count *= window->size[d];
    }
    window->image = sgrad_xcalloc((size_t)count, sizeof *window->image);
    window->label = sgrad_xcalloc((size_t)count, sizeof *window->label);
    SGRAD_TRY(read_pixels(state, window->from, window->size, window->image));
    return read_stack(&state->label, window->from, window->size, SGRAD_VOXEL_I32, window->label);
}
static void close_window(struct window *window) {
    free(window->image);
    free(window->label);
}

static int64_t place_in(const struct state *state, const struct window *window, int64_t z, int64_t y, int64_t x) {
    const int64_t at[3] = { z, y, x };
    int64_t place = 0;
    for (int d = 0; d < 3; d++) {
        int64_t i = mirrored(at[d], state->image.dim[d]) - window->from[d];
        if (i < 0) i = 0;
        if (i >= window->size[d]) i = window->size[d] - 1;
        place = place * window->size[d] + i;
    }
    return place;
}

static int32_t class_at(const struct state *state, const struct window *window, int64_t z, int64_t y, int64_t x) {
    const int64_t *dim = state->image.dim;
    if (z < 0 || y < 0 || x < 0 || z >= dim[0] || y >= dim[1] || x >= dim[2]) return -1;
    const int32_t label = window->label[place_in(state, window, z, y, x)];
    return state->binary && label > 0 ? 1 : label;
}

/* The random parameters of a patch: its position, flips, and, if BENDS is set, a rotation and a displacement of pixels in the
 * plane; the same for all slices. */
struct draw {
    int64_t from[3];
    bool flip[3], exchange, bends;
    float cosine, sine, gain, offset;
    float move[2][SIDE_LIMIT / GRID + 2][SIDE_LIMIT / GRID + 2];
};

static double moved(const struct draw *draw, int axis, int64_t y, int64_t x) {
    const int64_t i = y / GRID, j = x / GRID;
    const double v = (double)(y % GRID) / GRID, u = (double)(x % GRID) / GRID;
    return (1 - v) * ((1 - u) * draw->move[axis][i][j] + u * draw->move[axis][i][j + 1]) +
           v * ((1 - u) * draw->move[axis][i + 1][j] + u * draw->move[axis][i + 1][j + 1]);
}

static double mean_at(const struct state *state, const struct window *window, int64_t z, double y, double x) {
    const int64_t i = (int64_t)floor(y), j = (int64_t)floor(x);
    const double v = y - (double)i, u = x - (double)j;
    return (1 - v) * ((1 - u) * window->image[place_in(state, window, z, i, j)] +
                      u * window->image[place_in(state, window, z, i, j + 1)]) +
           v * ((1 - u) * window->image[place_in(state, window, z, i + 1, j)] +
                u * window->image[place_in(state, window, z, i + 1, j + 1)]);
}

static void put_pixel(const struct state *state, void *pixel, int64_t i, double value) {
    const double held = fmin(fmax(rint(value), 0), full_scale(state));
    if (state->pixel == SGRAD_U8) ((uint8_t *)pixel)[i] = (uint8_t)held;
    else ((uint16_t *)pixel)[i] = (uint16_t)held;
}

static void make_patch(const struct state *state, const struct window *window, const struct draw *draw, void *pixel,
                       int32_t *label) {
    int64_t i = 0;
    const int64_t *p = state->patch;
    const double middle_y = (double)(p[1] - 1) / 2, middle_x = (double)(p[2] - 1) / 2;
    for (int64_t z = 0; z < p[0]; z++)
        for (int64_t y = 0; y < p[1]; y++)
            for (int64_t x = 0; x < p[2]; x++, i++) {
                const int64_t from_z = draw->from[0] + (draw->flip[0] ? p[0] - 1 - z : z);
                int64_t v = draw->flip[1] ? p[1] - 1 - y : y, u = draw->flip[2] ? p[2] - 1 - x : x;
                if (draw->exchange) { const int64_t t = v; v = u, u = t; }
                if (!draw->bends) {
                    const int64_t at = place_in(state, window, from_z, draw->from[1] + v, draw->from[2] + u);
                    put_pixel(state, pixel, i, window->image[at] * draw->gain + draw->offset);
                    label[i] = class_at(state, window, from_z, draw->from[1] + v, draw->from[2] + u);
                    continue;
                }
                const double dy = (double)v - middle_y, dx = (double)u - middle_x;
                const double at_y = (double)draw->from[1] + middle_y + draw->cosine * dy - draw->sine * dx + moved(draw, 0, y, x);
                const double at_x = (double)draw->from[2] + middle_x + draw->sine * dy + draw->cosine * dx + moved(draw, 1, y, x);
                put_pixel(state, pixel, i, mean_at(state, window, from_z, at_y, at_x) * draw->gain + draw->offset);
                label[i] = class_at(state, window, from_z, (int64_t)lrint(at_y), (int64_t)lrint(at_x));
            }
}

static int take_patch(const struct state *state, const struct draw *draw, void *const *data) {
    int64_t from[3], size[3];
    struct window w = { .image = NULL };
    const int64_t y = state->patch[1], x = state->patch[2], reach = (int64_t)ceil(sqrt((double)(y * y + x * x)) / 2) + MARGIN;
    for (int axis = 0; axis < 3; axis++) from[axis] = draw->from[axis], size[axis] = state->patch[axis];
    for (int axis = 1; axis < 3 && draw->bends; axis++) {   /* rotated corners are outside of the patch */
        from[axis] += state->patch[axis] / 2 - reach;
        size[axis] = 2 * reach;
    }
    int error = open_window(state, from, size, &w);
    if (!error) make_patch(state, &w, draw, data[0], data[1]);
    close_window(&w);
    return error;
}

static int read_sample(const struct sgrad_dataset *dataset, struct sgrad_sample sample, void *const *data) {
    const struct state *s = dataset->state;
    const int64_t *g = s->grid, index = sample.index;
    const struct draw d = { .from = { index / (g[1] * g[2]) * s->patch[0], index / g[2] % g[1] * s->patch[1],
                                      index % g[2] * s->patch[2] },
                            .gain = 1,
                            .cosine = 1 };
    return take_patch(s, &d, data);
}

/* ---- random patches ----------------------------------------------------------------------------------------------- */

/* The stream of random numbers of a sample in an epoch. */
struct chances {
    uint64_t seed;
    uint32_t epoch, next;
    int64_t sample;
};
static double chance(struct chances *chances) {
    const struct sgrad_random r =
        sgrad_philox(chances->seed, SGRAD_STREAM_AUGMENT, chances->epoch, (uint64_t)chances->sample, chances->next / 4);
    return sgrad_uniform(r.word[chances->next++ % 4]);
}
static double normal(struct chances *chances) { return sqrt(-2 * log(1 - chance(chances))) * cos(2 * M_PI * chance(chances)); }

static int draw_sample(const struct sgrad_dataset *dataset, struct sgrad_sample sample, const struct sgrad_drawing *how,
                       void *const *data) {
    const struct state *s = dataset->state;
    const struct sgrad_augmentations *a = &how->augmentations;
    const double *turn = sgrad_augmentations_find(a, "rotate");
    const bool flip = sgrad_augmentations_find(a, "flip"), elastic = sgrad_augmentations_find(a, "elastic");
    const bool brightness = sgrad_augmentations_find(a, "brightness");
    struct chances c = { how->seed, how->epoch, 0, sample.index };
    struct draw *d = sgrad_xcalloc(1, sizeof *d);
    for (int axis = 0; axis < 3; axis++) {
        const int64_t room = s->image.dim[axis] - s->patch[axis];
        d->from[axis] = room > 0 ? (int64_t)(chance(&c) * (double)(room + 1)) : 0;
        d->flip[axis] = flip && chance(&c) < 0.5;
    }
    d->exchange = flip && s->patch[1] == s->patch[2] && chance(&c) < 0.5;
    const double angle = turn ? (2 * chance(&c) - 1) * *turn * M_PI / 180 : 0;
    d->bends = turn || elastic;
    d->cosine = (float)cos(angle), d->sine = (float)sin(angle);
    d->gain = brightness ? (float)(0.8 + 0.4 * chance(&c)) : 1;
    d->offset = brightness ? (float)(0.1 * full_scale(s) * (2 * chance(&c) - 1)) : 0;
    for (int axis = 0; axis < 2 && elastic; axis++)
        for (int64_t i = 0; i <= s->patch[1] / GRID + 1; i++)
            for (int64_t j = 0; j <= s->patch[2] / GRID + 1; j++)
                d->move[axis][i][j] = (float)fmax(fmin(4 * normal(&c), 12), -12);
    int error = take_patch(s, d, data);
    free(d);
    return error;
}

/* ---- opening ------------------------------------------------------------------------------------------------------ */

#define WANTED                                                                                                                   \
    "give volume:DIR[,ZxYxX], where DIR contains train/image.*, train/label.*, val/image.* and val/label.* as .tif, .h5 or "     \
    ".zarr, or folders image and label of PNG files, or train-volume-idx3-ubyte.gz and train-labels-idx3-ubyte.gz"

/* Returns how likely PATH is the volume that is meant: 2 if its whole ENDING is known; 1 if it is a volume with another ending,
 * such as an array "image.zarr.bak" or "image.2.tif"; 0: not a volume. Raw voxels are not accepted, because nothing states their
 * shape. */
static int likely(const char *path, const char *ending) {
    static const char *const known[] = { "", ".zarr", ".h5", ".hdf5", ".hdf", ".tif", ".tiff" };
    bool is = false;
    for (int i = 0; sgrad_volume_formats[i] && !is; i++)
        is = strcmp(sgrad_volume_formats[i]->name, "raw") && sgrad_volume_formats[i]->is(path);
    for (size_t i = 0; i < sizeof known / sizeof *known && is; i++)
        if (!strcasecmp(ending, known[i])) return 2;
    return is;
}

/* Finds the most likely file FOLDER/PART/NAME.*, or folder NAME. The caller must free *FOUND; NULL: no such file. SGRAD_EFORMAT:
 * two are equally likely. */
static int find_file(const char *folder, const char *part, const char *name, char **found) {
    char *inner = sgrad_format("%s/%s", folder, part), *other = NULL;
    int best = 0;
    DIR *dir = opendir(inner);
    struct dirent *entry;
    int error = 0;
    *found = NULL;
    while (dir && (entry = readdir(dir))) {
        const size_t length = strlen(name);
        if (strncmp(entry->d_name, name, length) || (entry->d_name[length] && entry->d_name[length] != '.')) continue;
        char *path = sgrad_format("%s/%s", inner, entry->d_name);
        const int is = likely(path, entry->d_name + length);
        if (is > best) {
            free(*found);
            free(other);
            *found = path, other = NULL, best = is;
        } else if (is == best && best) {
            free(other);
            other = path;
        } else {
            free(path);
        }
    }
    if (dir) closedir(dir);
    if (other)
        error = sgrad_log_error(SGRAD_EFORMAT,
                                "data set volume:%s: has both %s and %s, but only one of them can be the %s %s; remove the other",
                                folder, *found, other, part, name);
    free(other);
    free(inner);
    return error;
}

static int open_volume(const char *folder, const char *part, const char *name, struct stack *stack) {
    char *path;
    int error = find_file(folder, part, name, &path);
    if (!error && !path) return sgrad_log_error(SGRAD_EIO, "data set volume:%s: has no %s/%s.*; " WANTED, folder, part, name);
    if (!error) error = sgrad_volume_open(path, &stack->volume);
    if (!error && stack->volume->dim[0] != 1)
        error = sgrad_log_error(SGRAD_EFORMAT, "%s: has %lld channels instead of one", path, (long long)stack->volume->dim[0]);
    if (!error) memcpy(stack->dim, stack->volume->dim + 1, sizeof stack->dim);
    free(path);
    return error;
}

/* Opens the slices of SPLIT in an idx file: the last fifth, at least one, is the test split, the others are the training
 * split. */
static int open_slices(const char *folder, const char *name, enum sgrad_split split, struct stack *stack) {
    char *path = sgrad_format("%s/train-%s-idx3-ubyte.gz", folder, name);
    struct sgrad_map map;
    struct sgrad__idx idx;
    int error = sgrad_map_open(path, FILE_LIMIT, &map);
    if (!error) {
        error = sgrad__idx_parse(path, map.data, map.size, 3, &idx);
        sgrad_map_close(&map);
    }
    if (!error) {
        const int64_t last = idx.dim[0] / 5 > 1 ? idx.dim[0] / 5 : 1, train = idx.dim[0] - last;
        *stack = (struct stack){ .memory = idx.data, .first = split == SGRAD_TEST ? train : 0,
                             .dim = { split == SGRAD_TEST ? last : train, idx.dim[1], idx.dim[2] } };
        if (train < 1)
            error = sgrad_log_error(SGRAD_EFORMAT, "%s: has one slice, but must have at least two, one for train and one for val",
                                    path);
    }
    free(path);
    return error;
}

static void close_stack(struct stack *stack) {
    sgrad_volume_close(stack->volume);
    free(stack->memory);
}

static int open_stacks(const char *folder, enum sgrad_split split, struct stack *image, struct stack *label) {
    char *idx = sgrad_format("%s/train-volume-idx3-ubyte.gz", folder);
    const bool slices = !access(idx, F_OK);
    const char *part = split == SGRAD_TEST ? "val" : "train";
    free(idx);
    SGRAD_TRY(slices ? open_slices(folder, "volume", split, image) : open_volume(folder, part, "image", image));
    SGRAD_TRY(slices ? open_slices(folder, "labels", split, label) : open_volume(folder, part, "label", label));
    if (!memcmp(image->dim, label->dim, sizeof image->dim)) return 0;
    return sgrad_log_error(SGRAD_EFORMAT, "data set volume:%s: the %s image is %lldx%lldx%lld, but its labels are %lldx%lldx%lld",
                           folder, part, (long long)image->dim[0], (long long)image->dim[1], (long long)image->dim[2],
                           (long long)label->dim[0], (long long)label->dim[1], (long long)label->dim[2]);
}

/* Counts the voxels of each label, slice by slice. SGRAD_EFORMAT: a label is not an integer from -1 to 255. */
static int count_labels(const char *folder, const struct stack *stack, uint64_t count[256]) {
    const int64_t area = stack->dim[1] * stack->dim[2], size[3] = { 1, stack->dim[1], stack->dim[2] };
    double *slice = sgrad_xcalloc((size_t)area, sizeof *slice);
    int error = 0;
    for (int64_t z = 0; z < stack->dim[0] && !error; z++) {
        error = read_stack(stack, (const int64_t[]){ z, 0, 0 }, size, SGRAD_VOXEL_F64, slice);
        for (int64_t i = 0; i < area && !error; i++)
            if (slice[i] >= 0 && slice[i] <= 255 && slice[i] == rint(slice[i])) count[(int)slice[i]]++;
            else if (slice[i] != -1)
                error = sgrad_log_error(SGRAD_EFORMAT,
                                        "data set volume:%s: slice %lld has label %g; labels must be either classes from 0 to "
                                        "%d, or only 0 and 255; -1 marks unknown voxels",
                                        folder, (long long)z, slice[i], CLASSES - 1);
    }
    free(slice);
    return error;
}

/* Warns of classes without voxels: if labels are skipped, or all are equal, they are mostly the wrong ones. */
static void warn_of_unused(const char *folder, const uint64_t count[256], bool binary, int classes) {
    char list[4 * CLASSES] = "";
    for (int c = 0; c < classes; c++)
        if (!count[binary && c ? 255 : c]) sprintf(list + strlen(list), "%s%d", *list ? ", " : "", c);
    if (*list && sgrad_launched_rank() == 0)
        sgrad_log_warning("data set volume:%s: has %d classes, but no training voxel of: %s", folder, classes, list);
}

/* Determines the classes by the labels of the training split. SGRAD_EFORMAT: labels are out of range. */
static int find_classes(const char *folder, struct sgrad_dataset *dataset, const struct stack *train) {
    struct state *s = dataset->state;
    uint64_t count[256] = { 0 };
    int most = 1;
    SGRAD_TRY(count_labels(folder, train, count));
    for (int i = 0; i < 256; i++)
        if (count[i]) most = i > most ? i : most;
    s->binary = most == 255;
    for (int i = CLASSES; i < 255; i++)
        if (count[i])
            return sgrad_log_error(
                SGRAD_EFORMAT, "data set volume:%s: has label %d; labels must be either classes from 0 to %d, or only 0 and 255",
                folder, i, CLASSES - 1);
    for (int i = 1; i < CLASSES && s->binary; i++)
        if (count[i])
            return sgrad_log_error(SGRAD_EFORMAT,
                                   "data set volume:%s: mixes labels %d and 255; labels must be either classes from 0 to %d, "
                                   "or only 0 and 255", folder, i, CLASSES - 1);
    dataset->classes = s->binary ? 2 : most + 1;
    if (dataset->split == SGRAD_TRAIN) warn_of_unused(folder, count, s->binary, dataset->classes);
    dataset->identity = sgrad__fingerprint_add((uint64_t)dataset->split, count, sizeof count);
    dataset->identity = sgrad__fingerprint_add(dataset->identity, s->image.dim, sizeof s->image.dim);
    return 0;
}

/* Checks that the labels of the test split are classes of the training split. */
static int check_val(const char *folder, const struct sgrad_dataset *dataset) {
    const struct state *s = dataset->state;
    uint64_t count[256] = { 0 };
    SGRAD_TRY(count_labels(folder, &s->label, count));
    for (int i = 0; i < 256; i++)
        if (count[i] && !s->binary && i >= dataset->classes)
            return sgrad_log_error(SGRAD_EFORMAT, "data set volume:%s: val has label %d, but train does not", folder, i);
    return 0;
}

/* Parses "DIR" or "DIR,ZxYxX". Returns DIR, which the caller must free. PATCH defaults to 16x128x128. */
static char *parse_argument(const char *argument, int64_t patch[3]) {
    const char *comma = strrchr(argument, ',');
    long long z, y, x;
    int used = 0;
    if (comma && sscanf(comma + 1, "%lldx%lldx%lld%n", &z, &y, &x, &used) == 3 && !comma[1 + used]) {
        patch[0] = z, patch[1] = y, patch[2] = x;
        return sgrad_format("%.*s", (int)(comma - argument), argument);
    }
    patch[0] = 16, patch[1] = patch[2] = 128;
    return sgrad_format("%s", argument);
}

static int find_pixel(const struct stack *image, enum sgrad_dtype *pixel) {
    *pixel = SGRAD_U8;
    return image->volume ? sgrad_volume_pixels(image->volume, pixel) : 0;
}

static int open_parts(struct sgrad_dataset *dataset, const char *folder) {
    struct state *s = dataset->state;
    struct stack image = { .volume = NULL }, label = { .volume = NULL };
    SGRAD_TRY(sgrad__folder_check("volume", folder, WANTED));
    for (int d = 0; d < 3; d++)
        if (s->patch[d] < 1 || s->patch[d] > SIDE_LIMIT)
            return sgrad_log_error(SGRAD_EINVAL,
                                   "data set volume:%s: a patch of %lldx%lldx%lld is invalid; give ZxYxX of 1 to %d each", folder,
                                   (long long)s->patch[0], (long long)s->patch[1], (long long)s->patch[2], SIDE_LIMIT);
    SGRAD_TRY(open_stacks(folder, dataset->split, &s->image, &s->label));
    SGRAD_TRY(find_pixel(&s->image, &s->pixel));
    if (dataset->split == SGRAD_TRAIN) return find_classes(folder, dataset, &s->label);
    enum sgrad_dtype trained;
    int error = open_stacks(folder, SGRAD_TRAIN, &image, &label);
    if (!error) error = find_pixel(&image, &trained);
    if (!error && trained != s->pixel)
        error = sgrad_log_error(
            SGRAD_EFORMAT,
            "data set volume:%s: one of the images of train and val is uint8, but the other is not; convert one of them", folder);
    if (!error) error = find_classes(folder, dataset, &label);
    if (!error) error = check_val(folder, dataset);
    close_stack(&image);
    close_stack(&label);
    return error;
}

static int open_dataset(struct sgrad_dataset *dataset, const char *argument, const struct sgrad_dataset_options *options) {
    struct state *s = dataset->state = sgrad_xcalloc(1, sizeof *s);
    char *folder = parse_argument(argument, s->patch);
    (void)options;
    int error = open_parts(dataset, folder);
    free(folder);
    SGRAD_TRY(error);
    dataset->count = 1;
    for (int d = 0; d < 3; d++) dataset->count *= s->grid[d] = (s->image.dim[d] + s->patch[d] - 1) / s->patch[d];
    dataset->full_scale = (float)full_scale(s);
    dataset->field[0] = (struct sgrad_field){ "pixels", s->pixel, { 4, { s->patch[0], s->patch[1], s->patch[2], 1 } }, NULL };
    dataset->field[1] = (struct sgrad_field){ "label", SGRAD_I32, { 3, { s->patch[0], s->patch[1], s->patch[2] } }, NULL };
    return 0;
}

static void close_dataset(struct sgrad_dataset *dataset) {
    struct state *s = dataset->state;
    close_stack(&s->image);
    close_stack(&s->label);
    free(s);
}

const struct sgrad_reader sgrad_volume_reader = {
    .name = "volume",
    .argument = "DIR[,ZxYxX]",
    .summary = "patches (default: 16x128x128 voxels) of train/image.*, train/label.*, val/… in DIR: TIFF, HDF5, Zarr, PNG",
    .augment = "flip,rotate,elastic,brightness",
    .open = open_dataset,
    .read = read_sample,
    .draw = draw_sample,
    .close = close_dataset,
};
