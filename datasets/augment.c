/* augment.c: the augmentations of training images: parsing their text, and applying them to a sample.
 *
 *     read      pixels ─┐                                           another sample, read and augmented likewise ─┐
 *     move              └─ crop ∘ flip ∘ rrc ∘ rotate … one map ─┐                                               │
 *     change                                                     └─ jitter, autocontrast, cutout … ─┐            │
 *     mix                                                                                           └─ mixup ────┴─ pixels
 *
 * All random numbers depend only on (seed, epoch, sample), and each augmentation draws them independently of the others.
 * Therefore an augmented sample depends neither on its position in the batch nor on the number of ranks, and the random numbers
 * of an augmentation do not depend on the other augmentations in use. */
#include "config.h"
#include "datasets/colours.h"
#include "datasets/formats.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- text -------------------------------------------------------------------------------------------------------- */

char *sgrad_augmentation_form(const struct sgrad_augmentation *augmentation) {
    if (!augmentation->argument) return sgrad_format("%s", augmentation->name);
    return sgrad_format(augmentation->number[0].usual ? "%s[:%s]" : "%s:%s", augmentation->name, augmentation->argument);
}

/* Returns the syntax of all augmentations, "crop:N, flip, …". The caller must free it. */
static char *all_of_them(void) {
    char *text = sgrad_format("%s", "");
    for (const struct sgrad_augmentation *const *a = sgrad_augmentations; *a; a++) {
        char *form = sgrad_augmentation_form(*a), *longer = sgrad_format("%s%s%s", text, *text ? ", " : "", form);
        free(form);
        free(text);
        text = longer;
    }
    return text;
}

static int unknown(const char *text, const char *word, size_t length) {
    char *all = all_of_them();
    int error = sgrad_log_error(SGRAD_EINVAL,
                                "augmentation '%s': unknown augmentation '%.*s'; give 'none' or a comma-separated list of %s",
                                text, (int)length, word, all);
    free(all);
    return error;
}

/* Returns the syntax of an augmentation and the ranges of its numbers, "rotate[:DEGREES], 0 to 180". The caller must free it. */
static char *form_and_ranges(const struct sgrad_augmentation *augmentation) {
    char *text = sgrad_augmentation_form(augmentation);
    for (int i = 0; i < augmentation->numbers; i++) {
        char *longer =
            sgrad_format("%s%s%g to %g%s", text, i ? " and " : ", ", augmentation->number[i].low, augmentation->number[i].high,
                         augmentation->number[i].pixels ? " or 1/N of the shorter side" : "");
        free(text);
        text = longer;
    }
    return text;
}

static int misused(const char *text, const struct sgrad_augmentation *is) {
    char *form = form_and_ranges(is);
    int error = sgrad_log_error(SGRAD_EINVAL, "augmentation '%s': must be %s: %s", text, form, is->summary);
    free(form);
    return error;
}

/* Parses "N" or "1/N". *NUMBER is N, or SIDE / N rounded down, where SIDE is the shorter side of images; 0: not known. Returns
 * the address after the text; NULL: it is malformed, or N is out of range. */
static const char *take_pixels(const char *text, const struct sgrad_augmentation_number *is, int side, double *number) {
    const bool part = !strncmp(text, "1/", 2);
    const char *digits = part ? text + 2 : text;
    char *end;
    if (!isdigit((unsigned char)*digits)) return NULL;
    const double n = (double)strtol(digits, &end, 10);
    if (n < is->low || n > is->high) return NULL;
    *number = part ? floor(side / n) : n;
    return end;
}

static const char *take_number(const char *text, const struct sgrad_augmentation_number *is, int side, double *number) {
    char *end;
    if (is->pixels) return take_pixels(text, is, side, number);
    if (!isdigit((unsigned char)*text) && *text != '.') return NULL;
    *number = strtod(text, &end);
    return end != text && *number >= is->low && *number <= is->high ? end : NULL;
}

/* Parses the numbers after the name, from AT to the next comma or the end; without numbers, the defaults are used. Returns the
 * address after them; NULL: they are not valid for the augmentation. */
static const char *take_numbers(const char *at, int side, struct sgrad_augmenting *item) {
    const struct sgrad_augmentation *is = item->is;
    for (int i = 0; i < is->numbers; i++) item->number[i] = is->number[i].usual;
    if (*at != ':') return !is->numbers || is->number[0].usual ? at : NULL;
    for (int i = 0; i < is->numbers; i++) {
        if (*at != (i ? ',' : ':') || !(at = take_number(at + 1, &is->number[i], side, &item->number[i]))) return NULL;
    }
    return is->numbers && (!*at || *at == ',') ? at : NULL;
}

/* Inserts ITEM at its position in the order of augmentations.def. */
static void add(struct sgrad_augmentations *to, const struct sgrad_augmenting *item) {
    int at = 0;
    for (const struct sgrad_augmentation *const *a = sgrad_augmentations; *a != item->is; a++)
        at += at < to->count && to->item[at].is == *a;
    memmove(&to->item[at + 1], &to->item[at], (size_t)(to->count - at) * sizeof *to->item);
    to->item[at] = *item;
    to->count++;
}

/* Checks that numbers of pixels are below the shorter side of images of HEIGHT x WIDTH; both 0: not known. Sets *NOTHING to true
 * if ITEM has no effect, because a number of pixels is 0. SGRAD_EINVAL. */
static int check_item(const char *text, int height, int width, const struct sgrad_augmenting *item, bool *nothing) {
    const int side = height < width ? height : width;
    *nothing = false;
    for (int i = 0; i < item->is->numbers; i++) {
        if (!item->is->number[i].pixels) continue;
        *nothing |= item->number[i] == 0;
        if (side && item->number[i] >= side)
            return sgrad_log_error(SGRAD_EINVAL, "augmentation '%s': %s must be at most %d pixels for images of %dx%d", text,
                                   item->is->name, side - 1, height, width);
    }
    return 0;
}

int sgrad_augmentations_parse(const char *text, int height, int width, struct sgrad_augmentations *augmentations) {
    struct sgrad_augmentations all = { 0 };
    for (const char *at = text; strcmp(text, "none"); at++) {
        struct sgrad_augmenting item = { 0 };
        bool nothing;
        const size_t length = strcspn(at, ":,");
        for (const struct sgrad_augmentation *const *a = sgrad_augmentations; *a && !item.is; a++)
            if (strlen((*a)->name) == length && !strncmp((*a)->name, at, length)) item.is = *a;
        if (!item.is) return unknown(text, at, length);
        if (sgrad_augmentations_find(&all, item.is->name) || all.count == SGRAD_MAX_AUGMENTATIONS)
            return sgrad_log_error(SGRAD_EINVAL, "augmentation '%s': %s is given twice", text, item.is->name);
        if (!(at = take_numbers(at + length, height < width ? height : width, &item))) return misused(text, item.is);
        SGRAD_TRY(check_item(text, height, width, &item, &nothing));
        if (!nothing) add(&all, &item);
        if (!*at) break;
    }
    *augmentations = all;
    return 0;
}

char *sgrad_augmentations_text(const struct sgrad_augmentations *augmentations) {
    char *text = sgrad_format("%s", augmentations->count ? "" : "none");
    for (const struct sgrad_augmenting *a = augmentations->item; a < augmentations->item + augmentations->count; a++) {
        char *longer = sgrad_format("%s%s%s", text, *text ? "," : "", a->is->name);
        bool usual = true;
        for (int i = 0; i < a->is->numbers; i++) usual &= a->number[i] == a->is->number[i].usual;
        free(text);
        text = longer;
        for (int i = 0; i < a->is->numbers && !usual; i++) {
            longer = sgrad_format("%s%c%.10g", text, i ? ',' : ':', a->number[i]);
            free(text);
            text = longer;
        }
    }
    return text;
}

/* Returns the stream of the augmentation NAME. The block of Philox is derived from the name; block 0 is reserved for crop and
 * flip. */
static struct sgrad_chances chances_of(const struct sgrad_drawing *how, int64_t sample, const char *name) {
    const uint32_t block = (uint32_t)sgrad_hash(name, strlen(name)) | 1u << 31;
    return (struct sgrad_chances){ .seed = how->seed, .sample = (uint64_t)sample, .epoch = how->epoch, .block = block };
}

/* ---- moving pixels ----------------------------------------------------------------------------------------------- */

static int within(double at, int size) {
    if (at < 0) return 0;
    return at > size - 1 ? size - 1 : (int)at;
}

/* Writes the pixel at (Y,X) to TO, interpolated linearly from four pixels. (Y,X) may be up to half a pixel outside the image. */
static void take_pixel(const struct sgrad_pixels *from, double y, double x, float *to) {
    const int i = within(floor(y), from->height), j = within(floor(x), from->width);
    const int below = within(floor(y) + 1, from->height), right = within(floor(x) + 1, from->width);
    const double v = y - floor(y), u = x - floor(x);
    const size_t row = (size_t)from->width * (size_t)from->channels;
    const float *top = from->value + (size_t)i * row, *bottom = from->value + (size_t)below * row;
    for (int c = 0; c < from->channels; c++) {
        const int at = j * from->channels + c, next = right * from->channels + c;
        to[c] = (float)rint((1 - v) * ((1 - u) * top[at] + u * top[next]) + v * ((1 - u) * bottom[at] + u * bottom[next]));
    }
}

/* Returns the position in an image of SIZE pixels that is shown at AT, if the image is reflected at its edges repeatedly. */
static double reflected(double at, int size) {
    const double period = 2. * (size - 1), past = period > 0 ? fmod(fabs(at), period) : 0;
    return past > size - 1 ? period - past : past;
}

/* Returns true if MAP shifts by whole pixels, and may mirror left to right: no pixel is interpolated. */
static bool is_whole(const struct sgrad_affine *map) {
    return map->yx == 0 && map->xy == 0 && map->yy == 1 && fabs(map->xx) == 1 && map->y0 == rint(map->y0) &&
           map->x0 == rint(map->x0);
}

/* Returns the position that is shown at AT, which is one of SIZE pixels; -1: outside the image. */
static int64_t whole_position(const struct sgrad_affine *map, int at, int64_t size) {
    if (map->reflect) return (int64_t)reflected(at, (int)size);
    return at >= 0 && at < size ? at : -1;
}

/* Copies pixel COLUMN[w] of the row FROM to pixel W of TO, which has COUNT pixels of SIZE bytes; -1: a black pixel. */
__attribute__((always_inline)) static inline void copy_pixels(const char *from, const int64_t *column, int64_t count,
                                                              size_t size, char *to) {
    for (int64_t w = 0; w < count; w++, to += size)
        if (column[w] >= 0) memcpy(to, from + (size_t)column[w] * size, size);
        else memset(to, 0, size);
}

/* Applies MAP, for which is_whole is true, to the image at DATA, of the shape (height,width,channels) DIM with SIZE bytes per
 * pixel, and to its labels LABEL (height,width), which may be NULL. */
static void shift_image(const struct sgrad_affine *map, const int64_t *dim, size_t size, char *data, int32_t *label) {
    const int64_t height = dim[0], width = dim[1];
    const size_t count = (size_t)(height * width), row = (size_t)width * size;
    char *from = sgrad_xcalloc(count, size);
    int32_t *old = label ? sgrad_xcalloc(count, sizeof *old) : NULL;
    int64_t *column = sgrad_xcalloc((size_t)width, sizeof *column);
    memcpy(from, data, count * size);
    if (label) memcpy(old, label, count * sizeof *old);
    for (int64_t w = 0; w < width; w++) column[w] = whole_position(map, (int)(map->x0 + map->xx * (double)w), width);
    for (int64_t h = 0; h < height; h++, data += row) {
        const int64_t y = whole_position(map, (int)(map->y0 + (double)h), height);
        if (y < 0) memset(data, 0, row);
        else if (size == 3) copy_pixels(from + (size_t)y * row, column, width, 3, data);     /* RGB: the most frequent */
        else copy_pixels(from + (size_t)y * row, column, width, size, data);
        for (int64_t w = 0; w < width && label; w++) *label++ = y < 0 || column[w] < 0 ? -1 : old[y * width + column[w]];
    }
    free(column);
    free(old);
    free(from);
}

/* Applies MAP to PIXELS, and to their labels LABEL (height,width), which may be NULL. */
static void move_pixels(const struct sgrad_affine *map, const struct sgrad_pixels *pixels, int32_t *label) {
    const size_t count = (size_t)pixels->height * (size_t)pixels->width, values = count * (size_t)pixels->channels;
    struct sgrad_pixels from = *pixels;
    from.value = sgrad_xcalloc(values, sizeof *from.value);
    memcpy(from.value, pixels->value, values * sizeof *from.value);
    int32_t *old = label ? sgrad_xcalloc(count, sizeof *old) : NULL;
    if (label) memcpy(old, label, count * sizeof *old);
    float *to = pixels->value;
    for (int h = 0; h < from.height; h++)
        for (int w = 0; w < from.width; w++, to += from.channels) {
            double y = map->y0 + map->yy * h + map->yx * w, x = map->x0 + map->xy * h + map->xx * w;
            if (map->reflect) y = reflected(y, from.height), x = reflected(x, from.width);
            const bool inside = y >= -0.5 && y <= from.height - 0.5 && x >= -0.5 && x <= from.width - 0.5;
            if (inside) take_pixel(&from, y, x, to);
            else memset(to, 0, (size_t)from.channels * sizeof *to);
            if (label)
                *label++ = inside ? old[within(rint(y), from.height) * from.width + within(rint(x), from.width)] : -1;
        }
    free(old);
    free(from.value);
}

/* ---- a sample ---------------------------------------------------------------------------------------------------- */

/* Converts the image, or the slice of a volume, that begins at number FROM of DATA. The caller must free its value. */
static struct sgrad_pixels take_pixels_of(const struct sgrad_dataset *dataset, const void *data, int64_t from) {
    const struct sgrad_field *image = sgrad_dataset_image(dataset);
    const int64_t *dim = sgrad_field_plane(image), count = dim[0] * dim[1] * dim[2];
    float *value = sgrad_xcalloc((size_t)count, sizeof *value);
    sgrad__pixels_take(image, (const char *)data + from * (int64_t)sgrad_dtype_size(image->dtype), count, value);
    return (struct sgrad_pixels){ (int)dim[0], (int)dim[1], (int)dim[2], dataset->full_scale, value };
}

/* Writes PIXELS to number FROM of DATA on, and frees their value. */
static void give_pixels(const struct sgrad_dataset *dataset, struct sgrad_pixels *pixels, void *data, int64_t from) {
    const struct sgrad_field *image = sgrad_dataset_image(dataset);
    const int64_t count = (int64_t)pixels->height * pixels->width * pixels->channels;
    sgrad__pixels_give(image, pixels->value, count, (char *)data + from * (int64_t)sgrad_dtype_size(image->dtype));
    free(pixels->value);
}

/* Composes the maps of all augmentations that move the pixels of sample INDEX. Returns false if the result is the identity. */
static bool draw_map(int64_t index, const struct sgrad_drawing *how, int height, int width, struct sgrad_affine *map) {
    const struct sgrad_augmentations *all = &how->augmentations;
    const struct sgrad_affine same = { .yy = 1, .xx = 1 };
    *map = same;
    for (const struct sgrad_augmenting *a = all->item; a < all->item + all->count; a++) {
        struct sgrad_affine one = same;
        struct sgrad_chances chances = chances_of(how, index, a->is->name);
        if (!a->is->move) continue;
        a->is->move(a->number, &chances, height, width, &one);
        *map = sgrad__affine_after(&one, map);
    }
    return map->y0 != 0 || map->yy != 1 || map->yx != 0 || map->x0 != 0 || map->xy != 0 || map->xx != 1;
}

/* Applies MAP, which may be NULL, to the image, or the slice of a volume, that begins at number FIRST of DATA, and to its labels
 * LABEL (height,width), which may be NULL. Then applies the changes of values of HOW, which may be NULL, drawn for sample
 * INDEX. */
static void change_image(const struct sgrad_dataset *dataset, const struct sgrad_affine *map, void *data, int64_t first,
                         int32_t *label, const struct sgrad_drawing *how, int64_t index) {
    const struct sgrad_field *image = sgrad_dataset_image(dataset);
    const int64_t *dim = sgrad_field_plane(image);
    const size_t size = sgrad_dtype_size(image->dtype);
    bool changes = false;
    if (map && is_whole(map)) {
        shift_image(map, dim, (size_t)dim[2] * size, (char *)data + (size_t)first * size, label);
        map = NULL;
    }
    for (int i = 0; how && i < how->augmentations.count; i++) changes |= how->augmentations.item[i].is->change != NULL;
    if (!map && !changes) return;
    struct sgrad_pixels pixels = take_pixels_of(dataset, data, first);
    if (map) move_pixels(map, &pixels, label);
    for (int i = 0; how && i < how->augmentations.count; i++) {
        const struct sgrad_augmenting *a = &how->augmentations.item[i];
        struct sgrad_chances chances = chances_of(how, index, a->is->name);
        if (a->is->change) a->is->change(a->number, &chances, &pixels);
    }
    give_pixels(dataset, &pixels, data, first);
}

void sgrad_dataset_augment(const struct sgrad_dataset *dataset, int64_t index, const struct sgrad_drawing *how,
                           void *const *data) {
    const struct sgrad_field *image = sgrad_dataset_image(dataset), *target = sgrad_dataset_target(dataset);
    const int64_t slices = image->shape.rank == 4 ? image->shape.dim[0] : 1, *dim = sgrad_field_plane(image);
    const bool labelled = target->dtype == SGRAD_I32 && target->shape.rank == image->shape.rank - 1;
    int32_t *label = labelled ? data[target - dataset->field] : NULL;
    struct sgrad_affine map;
    const bool moves = draw_map(index, how, (int)dim[0], (int)dim[1], &map);
    for (int64_t z = 0; z < slices; z++) {
        change_image(dataset, moves ? &map : NULL, data[0], z * dim[0] * dim[1] * dim[2], label, how, index);
        if (label) label += dim[0] * dim[1];
    }
}

void sgrad__pixels_move(const struct sgrad_dataset *dataset, const struct sgrad_affine *map, void *data) {
    const struct sgrad_field *image = sgrad_dataset_image(dataset);
    const int64_t slices = image->shape.rank == 4 ? image->shape.dim[0] : 1, *dim = sgrad_field_plane(image);
    for (int64_t z = 0; z < slices; z++) change_image(dataset, map, data, z * dim[0] * dim[1] * dim[2], NULL, NULL, 0);
}

/* Chooses at random one of the augmentations that mix. */
static const struct sgrad_augmenting *one_that_mixes(const struct sgrad_augmentations *all, struct sgrad_chances *chances) {
    const struct sgrad_augmenting *found[SGRAD_MAX_AUGMENTATIONS];
    int count = 0;
    for (int i = 0; i < all->count; i++)
        if (all->item[i].is->mix) found[count++] = &all->item[i];
    return found[(int)(sgrad_chance(chances) * count)];
}

/* Mixes sample INDEX, whose fields are at AT, with a random sample of the data set. Errors: as sgrad_dataset_read. */
static int mix(const struct sgrad_dataset *dataset, int64_t index, const struct sgrad_drawing *how, void *const *at) {
    const int own = sgrad_dataset_own_fields(dataset), label = own - 1;
    struct sgrad_chances chances = chances_of(how, index, "mix");
    const struct sgrad_augmenting *which = one_that_mixes(&how->augmentations, &chances);
    const double place = (sgrad_chance(&chances) + sgrad_chance(&chances) / (1 << 24)) * (double)dataset->count;
    const int64_t other = (int64_t)place;
    void *room[SGRAD_MAX_FIELDS] = { NULL };
    for (int f = 0; dataset->field[f].name; f++) room[f] = sgrad_xcalloc(1, sgrad_field_bytes(&dataset->field[f]) + 1);
    int error = sgrad_dataset_read(dataset, &(struct sgrad_sample){ .index = other }, 1, room);
    if (!error) {
        sgrad_dataset_augment(dataset, other, how, room);
        struct sgrad_pixels pixels = take_pixels_of(dataset, at[0], 0), others = take_pixels_of(dataset, room[0], 0);
        *(float *)at[own + 1] = (float)which->is->mix(which->number, &chances, &others, &pixels);
        *(int32_t *)at[own] = *(const int32_t *)room[label];
        give_pixels(dataset, &pixels, at[0], 0);
        free(others.value);
    }
    for (int f = 0; dataset->field[f].name; f++) free(room[f]);
    return error;
}

int sgrad_dataset_draw(const struct sgrad_dataset *dataset, const struct sgrad_sample *sample, int n,
                       const struct sgrad_drawing *how, void *const *data) {
    const bool draws = dataset->reader->draw, mixes = dataset->mixed && sgrad_augmentations_mix(&how->augmentations);
    void *at[SGRAD_MAX_FIELDS];
    if (!draws) SGRAD_TRY(sgrad_dataset_read(dataset, sample, n, data));
    if (!draws && !how->augmentations.count) return 0;
    for (int i = 0; i < n; i++) {
        for (int f = 0; dataset->field[f].name; f++) at[f] = (char *)data[f] + (size_t)i * sgrad_field_bytes(&dataset->field[f]);
        if (draws) SGRAD_TRY(dataset->reader->draw(dataset, sgrad__sample_in_reader(dataset, sample[i]), how, at));
        else sgrad_dataset_augment(dataset, sample[i].index, how, at);
        if (mixes) SGRAD_TRY(mix(dataset, sample[i].index, how, at));
    }
    return 0;
}

void sgrad_dataset_mix(struct sgrad_dataset *dataset, bool mix) {
    const int own = sgrad_dataset_own_fields(dataset);
    dataset->mixed = mix;
    dataset->field[own] = mix ? (struct sgrad_field){ "other", SGRAD_I32, { 0 }, NULL } : (struct sgrad_field){ 0 };
    dataset->field[own + 1] = mix ? (struct sgrad_field){ "weight", SGRAD_F32, { 0 }, NULL } : (struct sgrad_field){ 0 };
}
