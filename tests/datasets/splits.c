/* Folders of images as evaluations use them: EXIF orientation, resizing before a crop, a third split, held-out images, and names
 * of classes for users. tests/reference/images.py made the images and their pixels. */
#include "config.h"
#include "datasets/datasets.h"
#include "datasets/formats.h"
#include "tests/scratch.h"

#if defined(SGRAD_HAVE_JPEG) && defined(SGRAD_HAVE_PNG) && defined(SGRAD_HAVE_WEBP)
#include <math.h>

static char *reference(const char *name) {
    const char *source = getenv("srcdir");
    return sgrad_format("%s/tests/reference/%s", source ? source : ".", name);
}

/* Copies an image of tests/reference/images to NAME in the scratch folder. */
static void put(const char *image, const char *name) {
    char *part = sgrad_format("images/%s", image), *path = reference(part);
    struct sgrad_map map;
    assert_done(sgrad_map_open(path, 1 << 20, &map));
    scratch_write(name, map.data, map.size);
    sgrad_map_close(&map);
    free(part);
    free(path);
}

static int open_with(const char *suffix, enum sgrad_split split, struct sgrad_dataset_options options,
                     struct sgrad_dataset **dataset) {
    char *text = sgrad_format("folder:%s%s", scratch_root, suffix);
    const int error = sgrad_dataset_open(text, split, &options, dataset);
    free(text);
    return error;
}

static void assert_pixels(FILE *file, const char *what, const uint8_t *pixels, int count, int tolerance) {
    for (int i = 0; i < count; i++) {
        int wanted;
        assert_int_equal(fscanf(file, "%d", &wanted), 1);
        if (abs(pixels[i] - wanted) > tolerance) fail_msg("%s: value %d is %d, not %d", what, i, pixels[i], wanted);
    }
}

/* Reads the only image of the test split, and the same image as predict does. */
static void assert_image(FILE *file, const char *name, int width, int height, struct sgrad_dataset_options how, int tolerance) {
    char *path = sgrad_format("val/a/%s", name);
    const struct sgrad_sample sample = { .index = 0 };
    struct sgrad_dataset *d, *files;
    uint8_t pixels[2][24 * 24 * 3];
    int32_t label;
    put(name, path);
    assert_done(open_with("", SGRAD_TEST, how, &d));
    assert_true(d->field[0].shape.dim[0] == height && d->field[0].shape.dim[1] == width);
    assert_done(sgrad_dataset_read(d, &sample, 1, (void *[]){ pixels[0], &label }));
    assert_pixels(file, name, pixels[0], height * width * 3, tolerance);
    const char *only = scratch_path(path);
    assert_done(sgrad_dataset_of_files(&only, 1, &d->field[0].shape, 255, 1, &how, &files));
    assert_done(sgrad_dataset_read(files, &sample, 1, (void *[]){ pixels[1], &label }));
    assert_memory_equal(pixels[0], pixels[1], (size_t)(height * width) * 3);
    sgrad_dataset_close(files);
    sgrad_dataset_close(d);
    assert_int_equal(remove(scratch_path(path)), 0);
    free(path);
}

static void references(void **state) {
    (void)state;
    char *path = reference("images.txt"), name[32];
    FILE *file = fopen(path, "r");
    int width, height, images = 0;
    assert_non_null(file);
    for (; fscanf(file, "%31s %d %d", name, &width, &height) == 3; images++) {
        const bool resized = !strcmp(name, "resize"), jpeg = !strncmp(name, "jpg", 3);
        struct sgrad_dataset_options how = { .upright = true };
        if (resized) how = (struct sgrad_dataset_options){ .test_resize = width, .size = height };
        assert_image(file, resized ? "large.png" : name, resized ? height : width, height, how, jpeg ? 3 : resized);
    }
    assert_int_equal(images, 18);
    fclose(file);
    free(path);

    struct sgrad_dataset *d;
    put("png-6.png", "train/a/1.png");
    assert_done(open_with("", SGRAD_TRAIN, (struct sgrad_dataset_options){ 0 }, &d));      /* the default */
    assert_true(d->field[0].shape.dim[0] == 3 && d->field[0].shape.dim[1] == 5);
    sgrad_dataset_close(d);
    assert_fails(open_with(",6", SGRAD_TEST, (struct sgrad_dataset_options){ .test_resize = 5 }, &d), SGRAD_EINVAL,
                 "--eval-resize 5 requires an --image-size of at most 5");
    assert_fails(open_with("", SGRAD_TEST, (struct sgrad_dataset_options){ .test_resize = 5 }, &d), SGRAD_EINVAL,
                 "--eval-resize 5 requires an --image-size");
}

/* Opens a split, and returns the names of its samples, sorted as in the data set, with a blank after each. */
static char *names(enum sgrad_split split, struct sgrad_dataset_options how) {
    struct sgrad_dataset *d;
    char *all = sgrad_format("%s", "");
    assert_done(open_with("", split, how, &d));
    for (int64_t i = 0; i < d->count; i++) {
        char *before = all, *name = sgrad_dataset_sample_name(d, i);
        all = sgrad_format("%s%s ", before, name);
        free(before);
        free(name);
    }
    sgrad_dataset_close(d);
    return all;
}

static void assert_names(const char *wanted, enum sgrad_split split, struct sgrad_dataset_options how) {
    char *is = names(split, how);
    assert_string_equal(is, wanted);
    free(is);
}

static void third(void **state) {
    (void)state;
    struct sgrad_dataset *none;
    put("png-1.png", "train/a/1.png");
    assert_fails(open_with("", SGRAD_TEST, (struct sgrad_dataset_options){ 0 }, &none), SGRAD_EIO,
                 "has no folder val; give folder:DIR, where DIR contains images in train/CLASS/ and val/CLASS/, or hold out "
                 "training images with --split 0.1");
    assert_fails(open_with("", SGRAD_TEST, (struct sgrad_dataset_options){ .third = true }, &none), SGRAD_EIO,
                 "has no folder test");
    put("png-1.png", "test/a/3.png");
    assert_names("test/a/3.png ", SGRAD_TEST, (struct sgrad_dataset_options){ 0 });        /* there is no val */
    put("png-1.png", "val/a/2.png");
    assert_names("val/a/2.png ", SGRAD_TEST, (struct sgrad_dataset_options){ .split = 0.5 });
    assert_names("test/a/3.png ", SGRAD_TEST, (struct sgrad_dataset_options){ .split = 0.5, .third = true });
}

static void held_out(void **state) {
    (void)state;
    struct sgrad_dataset *d, *test;
    for (int i = 0; i < 30; i++) {
        char *path = sgrad_format("train/%c/%02d.png", i < 20 ? 'a' : 'b', i);
        put("png-1.png", path);
        free(path);
    }
    const struct sgrad_dataset_options how = { .split = 0.2, .seed = 3 }, other = { .split = 0.2, .seed = 4 };
    assert_done(open_with("", SGRAD_TRAIN, how, &d));
    assert_done(open_with("", SGRAD_TEST, how, &test));
    assert_true(d->count == 24 && test->count == 6 && d->held_out == 6);
    int count[2] = { 0 };
    for (int64_t i = 0; i < 6; i++) count[((const int32_t *)test->field[1].data)[i]]++;
    assert_true(count[0] == 4 && count[1] == 2);
    assert_true(sgrad_dataset_fingerprint(d) != sgrad_dataset_fingerprint(test));
    char *train = names(SGRAD_TRAIN, how), *tested = names(SGRAD_TEST, how), *again = names(SGRAD_TEST, other);
    for (int64_t i = 0; i < 6; i++) {
        char *name = sgrad_dataset_sample_name(test, i);
        assert_true(!strstr(train, name) && strstr(tested, name));
        free(name);
    }
    assert_true(strcmp(tested, again));
    sgrad_dataset_close(test);

    /* A list of samples to leave out may name all training images, also those that are held out. */
    char *name = sgrad_dataset_sample_name(d, 0), *first = sgrad_format("%.*s\n%s\n", (int)strcspn(tested, " "), tested, name);
    scratch_write("list.txt", first, strlen(first));
    struct sgrad_dataset_options less = how;
    less.exclude = scratch_path("list.txt");
    sgrad_dataset_close(d);
    assert_done(open_with("", SGRAD_TRAIN, less, &d));
    assert_true(d->count == 23 && d->excluded == 1);
    char *left = names(SGRAD_TRAIN, less);
    assert_true(!strstr(left, name));
    sgrad_dataset_close(d);
    free(left);
    free(name);
    free(first);
    free(train);
    free(tested);
    free(again);

    assert_fails(open_with("", SGRAD_TRAIN, (struct sgrad_dataset_options){ .split = 1 }, &d), SGRAD_EINVAL,
                 "--split 1 must be a fraction below 1");
}

static void class_titles(void **state) {
    (void)state;
    struct sgrad_dataset *d;
    put("png-1.png", "train/n01/1.png");
    put("png-1.png", "train/n02/1.png");
    scratch_write("names.txt", "tench\r\nred fox\n", 15);
    struct sgrad_dataset_options how = { .class_titles = scratch_path("names.txt") };
    assert_done(open_with("", SGRAD_TRAIN, how, &d));
    assert_string_equal(d->class_title[0], "tench");
    assert_string_equal(d->class_title[1], "red fox");
    assert_string_equal(d->class_name[1], "n02");
    sgrad_dataset_close(d);
    scratch_write("names.txt", "tench\n", 6);
    assert_fails(open_with("", SGRAD_TRAIN, how, &d), SGRAD_EFORMAT, "names.txt: has 1 line, but there are 2 classes");
    scratch_write("names.txt", "tench\n\nfox\n", 11);
    assert_fails(open_with("", SGRAD_TRAIN, how, &d), SGRAD_EFORMAT, "names.txt: line 2: must be the name of a class");
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        sentence_with("EXIF orientations and resized crops are those of Pillow and torchvision", references, scratch_open,
                      scratch_close),
        sentence_with("a folder can have a third split", third, scratch_open, scratch_close),
        sentence_with("a part of the training images is held out, by class and seed", held_out, scratch_open, scratch_close),
        sentence_with("classes have names for users", class_titles, scratch_open, scratch_close),
    };
    return run_sentences(argc, argv, tests, NULL, NULL);
}
#else
SKIPPED_WITHOUT("libjpeg, libpng or libwebp")
#endif
