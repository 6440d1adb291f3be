/* encoded.c: samples that are encoded images: decodes them when they are read, and scales and crops them to one size. If all of
 * them fit in memory, each is decoded only once.
 *
 * A sample of the training images (survey.c) determines the type of all pixels: bytes, or U16, 0 to 65535, if one image of the
 * sample has more than 8 bits per channel. */
#include "config.h"
#include "datasets/encoded.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SIDE_LIMIT   8192
#define MEMORY_LIMIT ((size_t)2 << 30)

enum { ABSENT, COPYING, CACHED }; /* state of a cached image: not decoded, being copied, complete */

/* ---- the argument -------------------------------------------------------------------------------------------------- */

/* Returns the comma before SIZE in "PATH,SIZE"; NULL: there is no SIZE. A comma that is not followed by a number belongs to the
 * path. */
static const char *find_size_in(const char *argument) {
    const char *comma = strrchr(argument, ',');
    return comma && comma[1] && comma[1 + strspn(comma + 1, "0123456789")] == 0 ? comma : NULL;
}

int sgrad_folder_size(const char *data, size_t *before) {
    static const char *const kinds[] = { "folder:", "tar:" };
    const char *comma = NULL;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds && !comma; k++)
        if (!strncmp(data, kinds[k], strlen(kinds[k]))) comma = find_size_in(data + strlen(kinds[k]));
    if (before) *before = comma ? (size_t)(comma - data) : strlen(data);
    return comma ? (int)strtol(comma + 1, NULL, 10) : 0;
}

size_t sgrad__memory_limit(size_t memory) {
    const size_t machine = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE) / 4;
    return memory ? memory : machine < MEMORY_LIMIT ? machine : MEMORY_LIMIT;
}

int sgrad__encoded_open(struct sgrad__encoded *encoded, struct sgrad_dataset *dataset, const char *argument,
                        const struct sgrad_dataset_options *options, char **path) {
    const char *kind = dataset->reader->name, *comma = find_size_in(argument);
    const long side = comma ? strtol(comma + 1, NULL, 10) : options->size;
    *path = sgrad_format("%.*s", (int)(comma ? (size_t)(comma - argument) : strlen(argument)), argument);
    if (side < (comma != NULL) || side > SIDE_LIMIT)
        return sgrad_log_error(SGRAD_EINVAL, "data set %s:%s: the size must be 1 to %d", kind, argument, SIDE_LIMIT);
    encoded->side = (int)side;
    encoded->scaled = dataset->split == SGRAD_TEST && options->test_resize ? options->test_resize : encoded->side;
    encoded->upright = options->upright;
    if (options->reduced) encoded->use.least = encoded->scaled;
    if (!encoded->upright) encoded->use.scaled = encoded->scaled, encoded->use.side = encoded->side;     /* else it may turn */
    encoded->skips = options->damaged;
    encoded->limit = options->no_cache ? 0 : sgrad__memory_limit(options->memory);
    dataset->field[0] = (struct sgrad_field){ .name = "pixels", .dtype = SGRAD_U8, .shape = sgrad_shape(3, 1, 1, 3) };
    dataset->field[1] = (struct sgrad_field){ .name = "label", .dtype = SGRAD_I32 };
    dataset->full_scale = 255;
    if (encoded->scaled >= encoded->side && !(encoded->scaled && !encoded->side)) return 0;
    return sgrad_log_error(SGRAD_EINVAL, "data set %s:%s: --eval-resize %d requires an --image-size of at most %d", kind,
                           argument, encoded->scaled, encoded->scaled);
}

/* ---- images -------------------------------------------------------------------------------------------------------- */

/* Calls PARSE, one of the functions of image.c, on BYTES. */
static int parse_image(const struct sgrad__encoded *encoded, const struct sgrad__bytes *bytes,
                       int (*parse)(const char *, const void *, size_t, struct sgrad__image *), struct sgrad__image *image) {
    SGRAD_TRY(parse(bytes->name, bytes->data, bytes->size, image));
    if (encoded->upright) sgrad__image_upright(bytes->data, bytes->size, image);
    return 0;
}

static int read_header(const struct sgrad__encoded *encoded, int64_t i, struct sgrad__image *image) {
    const struct sgrad__source *source = &encoded->source;
    struct sgrad__bytes bytes;
    SGRAD_TRY(source->fetch(source->of, i, &bytes));
    const int error = parse_image(encoded, &bytes, sgrad__image_header, image);
    source->release(source->of, i, &bytes);
    return error;
}

int sgrad__encoded_picture(const struct sgrad__encoded *encoded, int64_t i, struct sgrad_picture *picture) {
    const struct sgrad__source *source = &encoded->source;
    struct sgrad__bytes bytes;
    struct sgrad__image image;
    SGRAD_TRY(source->fetch(source->of, i, &bytes));
    const int error = parse_image(encoded, &bytes, sgrad__image_decode, &image);
    source->release(source->of, i, &bytes);
    SGRAD_TRY(error);
    *picture = (struct sgrad_picture){ image.height, image.width, 3, image.deep, image.animated, image.rgb };
    return 0;
}

/* Warns once of further frames, which are not read, and once of more than 8 bits per channel, which are rounded. */
static void warn_of_unread(struct sgrad__encoded *encoded, const char *kind, const char *name, const struct sgrad__image *image) {
    if (image->animated && !atomic_exchange(&encoded->warned_animated, true))
        sgrad_log_warning("%s: %s: has further pages or frames; only the first is read, here and in similar files", kind, name);
    if (image->deep && !encoded->deep && !atomic_exchange(&encoded->warned_deep, true))
        sgrad_log_warning("%s: %s: has more than 8 bits per channel, but the files examined at the start have 8; this and "
                          "similar files are rounded to 8 bits",
                          kind, name);
}

/* Scales or copies IMAGE to PIXELS. SGRAD_ESHAPE: it has another size than the others. */
static int fit(const struct sgrad__encoded *encoded, const struct sgrad_dataset *dataset, const char *name,
               const struct sgrad__image *image, uint8_t *pixels) {
    const struct sgrad_field *field = &dataset->field[0];
    const int height = (int)field->shape.dim[0], width = (int)field->shape.dim[1];
    if (encoded->side)
        sgrad__image_fit(image, encoded->scaled, encoded->side, pixels);
    else if (image->height == height && image->width == width)
        memcpy(pixels, encoded->deep ? (const void *)image->rgb16 : image->rgb, sgrad_field_bytes(field));
    else
        return sgrad_log_error(SGRAD_ESHAPE, "%s: %s: is %dx%d, but others are %dx%d; give %s to resize all images",
                               dataset->reader->name, name, image->width, image->height, width, height, dataset->reader->resizes);
    return 0;
}

/* Decodes BYTES to pixels of the type of the data set. */
static int decode(const struct sgrad__encoded *encoded, const struct sgrad__bytes *bytes, struct sgrad__image *image) {
    SGRAD_TRY(sgrad__image_decode_for(bytes->name, bytes->data, bytes->size, encoded->deep, &encoded->use, image));
    if (encoded->upright) sgrad__image_upright(bytes->data, bytes->size, image);
    return 0;
}

static int decode_sample(struct sgrad__encoded *encoded, const struct sgrad_dataset *dataset, int64_t i, uint8_t *pixels) {
    const struct sgrad__source *source = &encoded->source;
    struct sgrad__bytes bytes;
    struct sgrad__image image = { 0 };
    SGRAD_TRY(source->fetch(source->of, i, &bytes));
    int error = decode(encoded, &bytes, &image);
    if (!error) {
        warn_of_unread(encoded, dataset->reader->name, bytes.name, &image);
        error = fit(encoded, dataset, bytes.name, &image, pixels);
        free(image.rgb);
        free(image.rgb16);
    }
    source->release(source->of, i, &bytes);
    return error;
}

/* Two threads may decode the same image; only one of the results is cached. */
int sgrad__encoded_read(struct sgrad__encoded *encoded, const struct sgrad_dataset *dataset, int64_t i, uint8_t *pixels) {
    const size_t size = sgrad_field_bytes(&dataset->field[0]);
    if (!encoded->cache) return decode_sample(encoded, dataset, i, pixels);
    uint8_t *cached = encoded->cache + (size_t)i * size;
    if (atomic_load_explicit(&encoded->state[i], memory_order_acquire) == CACHED) {
        memcpy(pixels, cached, size);
        return 0;
    }
    SGRAD_TRY(decode_sample(encoded, dataset, i, pixels));
    unsigned char absent = ABSENT;
    if (atomic_compare_exchange_strong(&encoded->state[i], &absent, COPYING)) {
        memcpy(cached, pixels, size);
        atomic_store_explicit(&encoded->state[i], CACHED, memory_order_release);
    }
    return 0;
}

/* ---- properties of all images -------------------------------------------------------------------------------------- */

static int find_header(const struct sgrad__encoded *encoded, const struct sgrad_dataset *dataset, int64_t i,
                       struct sgrad__image *image) {
    return read_header(encoded, sgrad__index_in_reader(dataset, i), image);
}

/* Sets the size of images. If it was not specified, it is that of the first image, or, if images may be damaged, of the first
 * image with a readable header. An image of another size is an error only when it is read, because opening every file on every
 * rank at every start would take too long. */
static int find_size(const struct sgrad__encoded *encoded, struct sgrad_dataset *dataset) {
    struct sgrad__image image = { .height = encoded->side, .width = encoded->side };
    char reason[1024];
    int error = encoded->side ? 0 : SGRAD_EFORMAT;
    for (int64_t i = 0; i < dataset->count && error && encoded->skips; i++) {
        sgrad_log_capture(reason, sizeof reason);
        error = find_header(encoded, dataset, i, &image);
        sgrad_log_capture(NULL, 0);
    }
    if (error) SGRAD_TRY(find_header(encoded, dataset, 0, &image));
    dataset->field[0].shape = sgrad_shape(3, image.height, image.width, 3);
    return 0;
}

/* Sets the type of pixels: deep if one surveyed image is. Disables the default augmentation if all are grey. */
static void set_kind(struct sgrad__encoded *encoded, struct sgrad_dataset *dataset, const struct sgrad__survey *survey) {
    encoded->deep = survey->deep > 0;
    dataset->field[0].dtype = encoded->deep ? SGRAD_U16 : SGRAD_U8;
    dataset->full_scale = encoded->deep ? 65535 : 255;
    if (dataset->split != SGRAD_TRAIN || survey->coloured || !survey->images) return;
    dataset->augment = NULL;
    dataset->plain = encoded->plain = sgrad_format("%lld of the %lld images examined at the start are grey",
                                                   (long long)survey->images, (long long)survey->images);
}

/* Allocates the cache for all images, unless they exceed the limit. */
static void make_room(struct sgrad__encoded *encoded, const struct sgrad_dataset *dataset) {
    const size_t size = sgrad_field_bytes(&dataset->field[0]), count = (size_t)encoded->source.count;
    if (size > encoded->limit / count) return;
    encoded->cache = malloc(count * size);
    if (encoded->cache) encoded->state = sgrad_xcalloc(count, sizeof *encoded->state);
}

/* Returns where decoded images are, for the user. */
static char *note_of(const struct sgrad__encoded *encoded, const struct sgrad_dataset *dataset) {
    const double mbyte = 1e-6 * (double)sgrad_field_bytes(&dataset->field[0]) * (double)encoded->source.count;
    if (encoded->cache) return sgrad_format("each image is decoded once and stays in memory, %.1f MB", mbyte);
    return sgrad_format("images are decoded in each epoch, to %.1f MB in total", mbyte);
}

int sgrad__encoded_measure(struct sgrad__encoded *encoded, struct sgrad_dataset *dataset, const struct sgrad__survey *survey,
                           bool caches) {
    set_kind(encoded, dataset, survey);
    SGRAD_TRY(find_size(encoded, dataset));
    if (caches) make_room(encoded, dataset);
    if (encoded->limit) dataset->note = note_of(encoded, dataset);   /* else the caller stores them */
    return 0;
}

void sgrad__encoded_close(struct sgrad__encoded *encoded) {
    free(encoded->plain);
    free(encoded->cache);
    free((void *)encoded->state);
}
