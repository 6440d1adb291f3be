/* Augmentations: parsing them, applying them, the views of an image. Results depend only on seed, epoch and sample. */
#include "config.h"

#include "datasets/datasets.h"
#include "tests/scratch.h"
#include "volumes/volumes.h"

#include <math.h>
#include <sys/stat.h>

static void texts(void **state) {
    (void)state;
    static const struct {
        const char *text, *becomes;
        int height, width;
    } good[] = {
        { "none", "none", 32, 32 },       { "crop:4,flip", "crop:4,flip", 32, 32 },     { "flip,crop:4", "crop:4,flip", 32, 32 },
        { "crop:31", "crop:31", 32, 40 }, { "crop:1/8,flip", "crop:28,flip", 224, 300 }, { "crop:1/8,flip", "flip", 7, 224 },
        { "flip", "flip", 1, 1 },         { "crop:1/1", "none", 0, 0 },                 { "crop:99", "crop:99", 0, 0 },
        { "mixup:.25,randaugment:2,9,rotate:10", "rotate:10,randaugment,mixup:0.25", 32, 32 },
        { "cutmix,randaugment:3,11,jitter:0.4,cutout:1/2", "randaugment:3,11,jitter:0.4,cutout:16,cutmix", 32, 32 },
        { "flip,crop:4,rrc,rotate:10,jitter:.2,cutout:8,mixup:.2,cutmix,autocontrast,randaugment:2,9",
          "crop:4,flip,rrc,rotate:10,randaugment,jitter,autocontrast,cutout:8,mixup,cutmix", 32, 32 },
        { "altflip,translate:1/16", "translate:2,altflip", 32, 32 },
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct sgrad_augmentations a;
        assert_done(sgrad_augmentations_parse(good[i].text, good[i].height, good[i].width, &a));
        char *text = sgrad_augmentations_text(&a);
        assert_string_equal(text, good[i].becomes);
        free(text);
    }
    static const struct {
        const char *text, *says;
    } wrong[] = {
        { "", "unknown augmentation ''" }, { "None", "unknown augmentation 'None'" }, { "flip,", "unknown augmentation ''" },
        { ",flip", "unknown augmentation ''" },
        { "flip,flip", "flip is given twice" }, { "none,flip", "unknown augmentation 'none'" },
        { "crop", "must be crop:N, 1 to 8192 or 1/N of the shorter side: padding" },
        { "crop:", "must be crop:N" }, { "crop:0", "must be crop:N" }, { "crop:-1", "must be crop:N" },
        { "crop:1/", "must be crop:N" }, { "crop:1/0", "must be crop:N" }, { "crop:2/8", "must be crop:N" },
        { "crop: 4", "must be crop:N" }, { "crop:4 ", "must be crop:N" },
        { "crop:4,crop:4", "crop is given twice" }, { "pad:4", "unknown augmentation 'pad'" }, { "crop:4x", "must be crop:N" },
        { "crop:99999", "must be crop:N" }, { "crop:99999999999999999999", "must be crop:N" },
        { "flip:2", "must be flip: horizontal" },
        { "jitter:2", "must be jitter[:X]" }, { "jitter:nan", "must be jitter[:X]" },
        { "randaugment:2", "must be randaugment[:N,M]" },
        { "randaugment:2,99", "must be randaugment[:N,M]" }, { "rotate:10,20", "unknown augmentation '20'" },
        { "crop:32", "crop must be at most 31 pixels for images of 40x32" },
    };
    struct sgrad_augmentations none;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_fails(sgrad_augmentations_parse(wrong[i].text, 40, 32, &none), SGRAD_EINVAL, wrong[i].says);
    for (const struct sgrad_reader *const *r = sgrad_readers; *r; r++)
        if ((*r)->augment) assert_done(sgrad_augmentations_parse((*r)->augment, 32, 32, &none));
}

/* ---- images that are there ---- */

enum { IMAGES = 720, HEIGHT = 6, WIDTH = 5, CHANNELS = 3, PIXELS = HEIGHT * WIDTH * CHANNELS, CLASSES = 10 };

static uint8_t pixel_of(int64_t image, int i) { return (uint8_t)(image * 31 + i * 7 + i * image % 13) % 200; }

/* With MASKS, every pixel has a label: its first channel. */
static struct sgrad_dataset *open_images(bool masks) {
    static const struct sgrad_reader reader = { .name = "ours", .summary = "images that a test has made" };
    uint8_t *pixels = sgrad_xcalloc(IMAGES, PIXELS);
    int32_t *label = sgrad_xcalloc((size_t)IMAGES * HEIGHT * WIDTH, sizeof *label);
    for (int64_t n = 0; n < IMAGES; n++) {
        for (int i = 0; i < PIXELS; i++) pixels[n * PIXELS + i] = pixel_of(n, i);
        if (!masks) label[n] = (int32_t)(n % CLASSES);
        for (int i = 0; masks && i < HEIGHT * WIDTH; i++) label[n * HEIGHT * WIDTH + i] = pixel_of(n, CHANNELS * i);
    }
    struct sgrad_dataset *d = sgrad_xcalloc(1, sizeof *d);
    *d = (struct sgrad_dataset){ .reader = &reader, .count = IMAGES, .classes = masks ? 256 : CLASSES, .full_scale = 200,
                                 .field = { { "pixels", SGRAD_U8, sgrad_shape(3, HEIGHT, WIDTH, CHANNELS), pixels },
                                            { "label", SGRAD_I32, sgrad_shape(masks ? 2 : 0, HEIGHT, WIDTH), label } } };
    return d;
}

static struct sgrad_drawing drawing(const char *text, uint32_t epoch) {
    struct sgrad_drawing how = { .seed = 3, .epoch = epoch };
    assert_done(sgrad_augmentations_parse(text, HEIGHT, WIDTH, &how.augmentations));
    return how;
}

/* Samples FIRST + k·STRIDE as training sees them. */
struct seen {
    uint8_t pixels[IMAGES][PIXELS];
    int32_t label[IMAGES], other[IMAGES];
    float share[IMAGES];
};
static struct seen *see(struct sgrad_dataset *dataset, const char *text, uint32_t epoch, int first, int stride, int count) {
    struct seen *s = sgrad_xcalloc(1, sizeof *s);
    const struct sgrad_drawing how = drawing(text, epoch);
    struct sgrad_sample sample[IMAGES] = { 0 };
    for (int i = 0; i < count; i++) sample[i].index = first + (int64_t)i * stride;
    sgrad_dataset_mix(dataset, sgrad_augmentations_mix(&how.augmentations));
    assert_done(sgrad_dataset_draw(dataset, sample, count, &how, (void *[]){ s->pixels, s->label, s->other, s->share }));
    return s;
}

/* Is Y what comes of IMAGE, padded by one pixel, cropped at (TOP, LEFT) of the padded image, and then flipped? */
static bool shows(const uint8_t *y, int64_t image, int top, int left, bool flip) {
    for (int i = 0; i < PIXELS; i++) {
        const int c = i % CHANNELS, column = i / CHANNELS % WIDTH;
        const int h = i / (WIDTH * CHANNELS) + top - 1, w = (flip ? WIDTH - 1 - column : column) + left - 1;
        const bool inside = h >= 0 && h < HEIGHT && w >= 0 && w < WIDTH;
        if (y[i] != (inside ? pixel_of(image, (h * WIDTH + w) * CHANNELS + c) : 0)) return false;
    }
    return true;
}

/* Every image is one of the 18 views of itself, and each view is as frequent as the others. */
static void views(void **state) {
    (void)state;
    struct sgrad_dataset *d = open_images(false);
    struct seen *s = see(d, "crop:1,flip", 0, 0, 1, IMAGES);
    int times[18] = { 0 };
    for (int n = 0; n < IMAGES; n++) {
        int views = 0;
        for (int v = 0; v < 18; v++)
            if (shows(s->pixels[n], n, v / 6, v / 2 % 3, v % 2)) views++, times[v]++;
        assert_int_equal(views, 1);
        assert_int_equal(s->label[n], n % CLASSES);
    }
    for (int v = 0; v < 18; v++) assert_in_range(times[v], 15, 70);      /* 40 on average */
    free(s);
    sgrad_dataset_close(d);
}

/* Is Y what comes of IMAGE, shifted DOWN and RIGHT, reflected at its edges, and then flipped? */
static bool reflects(const uint8_t *y, int64_t image, int down, int right, bool flip) {
    for (int i = 0; i < PIXELS; i++) {
        const int c = i % CHANNELS, column = i / CHANNELS % WIDTH;
        int h = i / (WIDTH * CHANNELS) + down, w = (flip ? WIDTH - 1 - column : column) + right;
        h = h < 0 ? -h : h >= HEIGHT ? 2 * (HEIGHT - 1) - h : h;
        w = w < 0 ? -w : w >= WIDTH ? 2 * (WIDTH - 1) - w : w;
        if (y[i] != pixel_of(image, (h * WIDTH + w) * CHANNELS + c)) return false;
    }
    return true;
}

/* Half the samples are mirrored in even epochs, the others in odd ones; each place of a shifted image is as frequent. */
static void alternates(void **state) {
    (void)state;
    struct sgrad_dataset *d = open_images(false);
    struct seen *epoch[4];
    int mirrored = 0, times[25] = { 0 };
    for (uint32_t e = 0; e < 4; e++) epoch[e] = see(d, "altflip", e, 0, 1, IMAGES);
    for (int n = 0; n < IMAGES; n++) {
        const bool first = shows(epoch[0]->pixels[n], n, 1, 1, true);
        mirrored += first;
        for (int e = 0; e < 4; e++) assert_true(shows(epoch[e]->pixels[n], n, 1, 1, first == (e % 2 == 0)));
    }
    assert_in_range(mirrored, IMAGES / 2 - 80, IMAGES / 2 + 80);
    for (int e = 0; e < 4; e++) free(epoch[e]);
    struct seen *shifted = see(d, "translate:2", 3, 0, 1, IMAGES), *both = see(d, "translate:2,altflip", 3, 0, 1, IMAGES);
    for (int n = 0; n < IMAGES; n++) {
        int place = 0;
        while (place < 25 && !reflects(shifted->pixels[n], n, place / 5 - 2, place % 5 - 2, false)) place++;
        assert_in_range(place, 0, 24);
        times[place]++;
        assert_true(reflects(both->pixels[n], n, place / 5 - 2, place % 5 - 2, false) ||
                    reflects(both->pixels[n], n, place / 5 - 2, place % 5 - 2, true));
    }
    for (int place = 0; place < 25; place++) assert_in_range(times[place], 8, 60);      /* 29 on average */
    free(shifted);
    free(both);
    sgrad_dataset_close(d);
}

/* Between pixels, too, and further out than an image is large. */
static void reflected_labels(void **state) {
    (void)state;
    struct sgrad_dataset *d = open_images(true);
    const struct sgrad_drawing how = drawing("translate:4,altflip", 0), turned = drawing("translate:4,rotate", 0);
    for (int64_t n = 0; n < IMAGES; n++) {
        uint8_t pixels[PIXELS];
        int32_t label[HEIGHT * WIDTH];
        assert_done(sgrad_dataset_draw(d, &(struct sgrad_sample){ .index = n }, 1, &how, (void *[]){ pixels, label }));
        for (int i = 0; i < HEIGHT * WIDTH; i++) assert_int_equal(label[i], pixels[CHANNELS * i]);
        assert_done(sgrad_dataset_draw(d, &(struct sgrad_sample){ .index = n }, 1, &turned, (void *[]){ pixels, label }));
        for (int i = 0; i < HEIGHT * WIDTH; i++) assert_in_range(label[i], 0, 199);
    }
    sgrad_dataset_close(d);
}

/* The views that a network is asked of, their weights, and their labels. */
static void several_views(void **state) {
    (void)state;
    struct sgrad_dataset *d = open_images(false);
    struct sgrad_views views;
    static const struct {
        const char *text;
        int count;
    } is[] = { { "flip", 2 }, { "translate", 3 }, { "flip,translate", 6 }, { "translate,flip", 6 } };
    for (size_t i = 0; i < sizeof is / sizeof *is; i++) {
        assert_done(sgrad_views_parse(is[i].text, &views));
        assert_int_equal(views.count, is[i].count);
        for (int64_t n = 5; n < 8; n++) {
            double sum = 0;
            for (int v = 0; v < views.count; v++) {
                const struct sgrad_sample sample = { .index = n, .view = v };
                const int per = views.count == 2 ? 1 : 3, shift = v % per ? v % per * 2 - 3 : 0;
                uint8_t pixels[PIXELS];
                int32_t label;
                assert_done(sgrad_views_read(d, &views, &sample, 1, (void *[]){ pixels, &label }));
                assert_true(reflects(pixels, n, shift, shift, views.count != 3 && v >= per));
                assert_int_equal(label, n % CLASSES);
                const double mirror = views.count == 3 ? 1 : 0.5;
                assert_true(views.view[v].weight == mirror * (per == 1 ? 1 : shift ? 0.25 : 0.5));
                sum += views.view[v].weight;
            }
            assert_equal(sum, 1);
        }
    }
    static const char *const wrong[] = { "", "none", "flip,", "flip,flip", "Flip", "translate:2", "crop" };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_fails(sgrad_views_parse(wrong[i], &views), SGRAD_EINVAL, "is invalid; give flip, translate, or flip,translate");
    sgrad_dataset_close(d);
}

/* What a sample becomes follows from seed, epoch and sample, whatever else is drawn, and is another in another epoch. */
static void alone(void **state) {
    (void)state;
    struct sgrad_dataset *d = open_images(false);
    for (const struct sgrad_augmentation *const *a = sgrad_augmentations; *a; a++) {
        if (!(*a)->move && !(*a)->change && !(*a)->mix) continue;
        char *text = sgrad_format("%s%s", (*a)->name, (*a)->argument && !(*a)->number[0].usual ? ":2" : "");
        struct seen *all = see(d, text, 1, 0, 1, IMAGES), *part = see(d, text, 1, 10, 7, 50);
        struct seen *later = see(d, text, 2, 0, 1, IMAGES);
        int same = 0, changed = 0;
        for (int i = 0; i < 50; i++) {
            assert_memory_equal(part->pixels[i], all->pixels[10 + 7 * i], PIXELS);
            if (!(*a)->mix) continue;
            assert_int_equal(part->other[i], all->other[10 + 7 * i]);
            assert_equal(part->share[i], all->share[10 + 7 * i]);
        }
        for (int n = 0; n < IMAGES; n++) {
            same += !memcmp(all->pixels[n], later->pixels[n], PIXELS);
            changed += !shows(all->pixels[n], n, 1, 1, false);
        }
        if (same > IMAGES * 2 / 3 || changed < IMAGES / 4) fail_msg("%s: %d same, %d changed", text, same, changed);
        free(all);
        free(part);
        free(later);
        free(text);
    }
    sgrad_dataset_close(d);
}

/* Pixels and labels go the same way; beyond the image pixels are black, and nothing is known. */
static void masks(void **state) {
    (void)state;
    struct sgrad_dataset *d = open_images(true);
    const struct sgrad_drawing how = drawing("crop:2,flip,rotate", 0);
    int beyond = 0, there = 0;
    for (int64_t n = 0; n < IMAGES; n++) {
        uint8_t pixels[PIXELS];
        int32_t label[HEIGHT * WIDTH];
        const struct sgrad_drawing still = drawing("crop:2,flip", 0);
        assert_done(sgrad_dataset_draw(d, &(struct sgrad_sample){ .index = n }, 1, &still, (void *[]){ pixels, label }));
        for (int i = 0; i < HEIGHT * WIDTH; i++) {
            if (label[i] < 0) assert_true(label[i] == -1 && !pixels[CHANNELS * i] && !pixels[CHANNELS * i + 1]);
            else assert_int_equal(label[i], pixels[CHANNELS * i]);
        }
        assert_done(sgrad_dataset_draw(d, &(struct sgrad_sample){ .index = n }, 1, &how, (void *[]){ pixels, label }));
        for (int i = 0; i < HEIGHT * WIDTH; i++)
            if (label[i] < 0) beyond++;
            else there++, assert_in_range(label[i], 0, 199);
    }
    assert_true(beyond > IMAGES && there > IMAGES);
    sgrad_dataset_close(d);
}

/* A turn by 0 degrees, a part that is the whole, and changes of no strength leave an image as it is. */
static void nothing(void **state) {
    (void)state;
    struct sgrad_dataset *d = open_images(false);
    struct seen *s = see(d, "rrc:1,rotate:0,jitter:0", 0, 0, 1, IMAGES);
    int same = 0;
    for (int n = 0; n < IMAGES; n++) same += shows(s->pixels[n], n, 1, 1, false);
    assert_in_range(same, 1, IMAGES);           /* of a ratio of 1 alone the part is the whole */
    free(s);
    s = see(d, "rotate:0,jitter:0", 0, 0, 1, IMAGES);
    for (int n = 0; n < IMAGES; n++) assert_true(shows(s->pixels[n], n, 1, 1, false));
    free(s);
    sgrad_dataset_close(d);
}

/* A mixed image is its share of its own, and the rest of another of the class that is told. */
static void mixed(void **state) {
    (void)state;
    struct sgrad_dataset *d = open_images(false);
    struct seen *up = see(d, "mixup:1", 0, 0, 1, IMAGES), *cut = see(d, "cutmix", 0, 0, 1, IMAGES);
    double least = 1;
    for (int n = 0; n < IMAGES; n++) {
        int found = 0, pasted = 0;
        for (int64_t o = up->other[n]; o < IMAGES && !found; o += CLASSES) {
            int near = 0;
            for (int i = 0; i < PIXELS; i++)
                near += fabs(up->share[n] * pixel_of(n, i) + (1 - up->share[n]) * pixel_of(o, i) - up->pixels[n][i]) <= 0.51;
            found = near == PIXELS;
        }
        assert_true(found && up->share[n] >= 0.5 && up->share[n] <= 1);
        least = fmin(least, (double)up->share[n]);
        for (int i = 0; i < PIXELS; i++) pasted += cut->pixels[n][i] != pixel_of(n, i);
        assert_true(pasted <= (1 - cut->share[n]) * PIXELS + 0.5 && cut->other[n] >= 0 && cut->other[n] < CLASSES);
    }
    assert_true(least < 0.55);
    free(up);
    free(cut);
    uint8_t pixels[PIXELS];         /* what is read, not drawn, is of one class */
    int32_t label, other;
    float share;
    sgrad_dataset_mix(d, true);
    assert_done(sgrad_dataset_read(d, &(struct sgrad_sample){ .index = 17 }, 1, (void *[]){ pixels, &label, &other, &share }));
    assert_true(label == 7 && other == 7 && share == 1 && shows(pixels, 17, 1, 1, false));
    assert_ptr_equal(sgrad_dataset_target(d), &d->field[1]);
    const uint64_t fingerprint = sgrad_dataset_fingerprint(d);
    sgrad_dataset_mix(d, false);
    assert_equal(sgrad_dataset_fields(d), 2);
    assert_equal(sgrad_dataset_fingerprint(d), fingerprint);
    sgrad_dataset_close(d);
}

/* ---- patches of volumes ---- */

enum { PATCH = 32, PLANE = 256, CHUNK = 4 };

/* Bytes that this process has read. */
static long long bytes_read(void) {
    char line[64];
    long long bytes = -1;
    FILE *f = fopen("/proc/self/io", "r");
    while (f && fgets(line, sizeof line, f) && sscanf(line, "rchar: %lld", &bytes) != 1) continue;
    if (f) fclose(f);
    return bytes;
}

/* A volume of one plane in chunks of 4 x 4, of bytes or of 16 bits: NAME below the scratch folder. */
static void write_plane(const char *name, bool wide) {
    const int64_t dim[] = { 1, 1, PLANE, PLANE }, chunk[] = { 1, 1, CHUNK, CHUNK };
    const struct sgrad_box all = { { 0 }, { 1, 1, PLANE, PLANE } };
    const enum sgrad_voxel type = wide ? SGRAD_VOXEL_U16 : SGRAD_VOXEL_U8;
    uint8_t *voxel = sgrad_xcalloc(PLANE * PLANE, 2);
    struct sgrad_volume *v;
    for (int i = 0; i < PLANE * PLANE; i++)
        if (wide) ((uint16_t *)voxel)[i] = (uint16_t)(257 * (i % 200));
        else voxel[i] = (uint8_t)(i % 2);
    assert_done(sgrad_volume_create(scratch_path(name), type, dim, chunk, &v));
    assert_done(sgrad_volume_write(v, &all, type, voxel));
    assert_done(sgrad_volume_finish(v));
    sgrad_volume_close(v);
    free(voxel);
}

static struct sgrad_dataset *open_patches(const char *folder, bool wide) {
    static const char *const parts[] = { "train", "val" };
    struct sgrad_dataset *d;
    mkdir(scratch_path(folder), 0777);
    for (int i = 0; i < 2; i++) {
        char *part = sgrad_format("%s/%s", folder, parts[i]), *image = sgrad_format("%s/image.zarr", part);
        char *label = sgrad_format("%s/label.zarr", part);
        mkdir(scratch_path(part), 0777);
        write_plane(image, wide);
        write_plane(label, false);
        free(part);
        free(image);
        free(label);
    }
    char *text = sgrad_format("volume:%s,1x%dx%d", scratch_path(folder), PATCH, PATCH);
    assert_done(sgrad_dataset_open(text, SGRAD_TRAIN, NULL, &d));
    free(text);
    return d;
}

/* The surroundings of a rotated patch of 32 x 32: its half diagonal, 23, and a margin of 16 on each side. */
static void rotated_patches(void **state) {
    (void)state;
    enum { SURROUNDINGS = 2 * (23 + 16), CHUNKS = SURROUNDINGS / CHUNK + 2, AT_MOST = 2 * CHUNKS * CHUNKS * CHUNK * CHUNK };
    struct sgrad_dataset *d = open_patches("rotated", false);
    struct sgrad_drawing how = { .seed = 1 };
    assert_done(sgrad_augmentations_parse("rotate:45", PATCH, PATCH, &how.augmentations));
    for (int64_t n = 0; n < 8; n++) {
        uint8_t pixels[PATCH * PATCH];
        int32_t label[PATCH * PATCH];
        const long long before = bytes_read();
        assert_done(sgrad_dataset_draw(d, &(struct sgrad_sample){ .index = n }, 1, &how, (void *[]){ pixels, label }));
        const long long bytes = bytes_read() - before;
        if (bytes > AT_MOST + 4096) fail_msg("patch %d: %lld bytes were read, not %d at most", (int)n, bytes, AT_MOST);
    }
    sgrad_dataset_close(d);
}

static void wide_patches(void **state) {
    (void)state;
    struct sgrad_dataset *d = open_patches("wide", true);
    struct sgrad_picture picture;
    assert_done(sgrad_dataset_picture(d, 9, &picture));         /* of the second row of patches the second */
    assert_true(picture.height == PATCH && picture.width == PATCH && picture.channels == 1);
    for (int y = 0; y < PATCH; y++)
        for (int x = 0; x < PATCH; x++)
            assert_equal(picture.pixels[y * PATCH + x], ((y + PATCH) * PLANE + x + PATCH) % 200);
    free(picture.pixels);
    sgrad_dataset_close(d);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        sentence("a list of augmentations is put in order, and a wrong one is refused", texts),
        sentence("all crops and flips are equally frequent", views),
        sentence("an augmented sample depends only on seed, epoch and sample", alone),
        sentence("labels of pixels move with their pixels", masks),
        sentence("augmentations of no strength change nothing", nothing),
        sentence("a mixed image is the weighted sum of two samples", mixed),
        sentence("altflip flips each image in every second epoch, and translate draws each shift equally often", alternates),
        sentence("labels of pixels move with a reflecting shift", reflected_labels),
        sentence("the views of an evaluation have the documented images and weights", several_views),
        sentence("a rotated patch of a volume reads only its surroundings", rotated_patches),
        sentence("a patch of 16 bits is shown as bytes", wide_patches),
    };
    return run_sentences(argc, argv, tests, scratch_open, scratch_close);
}
