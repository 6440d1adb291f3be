/* Which files of a folder are images, how some of them set the properties of all, and the handling of damaged ones. */
#include "config.h"
#include "datasets/datasets.h"
#include "tests/scratch.h"

enum { H = 3, W = 5 };

static void walks(void **state) {
    (void)state;
    static const char *const file[] = { "b.JPG", "a.png", "z/1.bmp", "z/y/2.webp", "c-d/3.gif", "c/4.ppm", "e.jfif", "notes.txt",
                                        "Thumbs.db", "z/more.TXT", ".hidden.png", ".git/5.png", "README", "z/.DS_Store" };
    for (size_t i = 0; i < sizeof file / sizeof *file; i++) scratch_write(file[i], "x", 1);
    assert_int_equal(symlink("..", scratch_path("z/up")), 0);
    assert_int_equal(symlink(".", scratch_path("c/here")), 0);
    assert_int_equal(symlink("nowhere", scratch_path("gone.png")), 0);
    assert_int_equal(symlink("nowhere", scratch_path("gone")), 0);
    assert_int_equal(mkfifo(scratch_path("pipe.png"), 0600), 0);
    static const char *const wanted[] = { "a.png", "b.JPG", "e.jfif", "gone.png", "c/4.ppm", "c-d/3.gif", "z/1.bmp",
                                          "z/y/2.webp" };
    struct sgrad_walk walk = { 0 };
    assert_done(sgrad_walk(scratch_root, &walk));
    assert_int_equal(walk.count, 8);
    for (int i = 0; i < 8; i++) assert_string_equal(walk.image[i].name, wanted[i]);
    assert_int_equal(walk.image[0].size, 1);
    assert_int_equal(walk.image[3].size, -1);
    char *text = sgrad_walk_others(&walk);
    assert_string_equal(text, "11 other files: 3 hidden, 2 .txt, 2 circular link, 2 without extension, 1 .db, "
                              "1 neither file nor folder");
    free(text);
    sgrad_walk_free(&walk);
    assert_int_equal(chmod(scratch_path("z/y"), 0), 0);
    if (geteuid()) assert_fails(sgrad_walk(scratch_root, &walk), SGRAD_EIO, "z/y: Permission denied");
    assert_int_equal(chmod(scratch_path("z/y"), 0700), 0);
    sgrad_walk_free(&walk);
}

static void write_ppm(const char *name, int height, int value, bool colour) {
    uint8_t data[2000];
    int used = sprintf((char *)data, "P%d %d %d 255\n", colour ? 6 : 5, W, height);
    memset(data + used, value, (size_t)(W * height * 3));
    scratch_write(name, data, (size_t)(used + W * height * (colour ? 3 : 1)));
}

static int open_folder(bool damaged, enum sgrad_split split, struct sgrad_dataset **dataset) {
    char *text = sgrad_format("folder:%s", scratch_root);
    int error = sgrad_dataset_open(text, split, &(struct sgrad_dataset_options){ .damaged = damaged }, dataset);
    free(text);
    return error;
}

/* One coloured image among many grey ones decides; a folder of grey ones has the reason why they are not augmented. */
static void surveys(void **state) {
    (void)state;
    struct sgrad_dataset *dataset;
    for (int i = 0; i < 40; i++) {
        char name[40];
        sprintf(name, "train/%c/%02d.pgm", 'a' + i % 2, i);
        write_ppm(name, H, i, false);
    }
    write_ppm("val/a/sub/1.pgm", H, 1, false);
    scratch_write("train/a/notes.txt", "x", 1);
    scratch_write("train/more.png", "x", 1);
    scratch_write("train/.git/config", "x", 1);
    assert_done(open_folder(false, SGRAD_TRAIN, &dataset));
    assert_null(dataset->augment);
    assert_string_equal(dataset->plain, "40 of the 40 images examined at the start are grey");
    assert_string_equal(dataset->others, "3 other files: 1 .txt, 1 hidden, 1 outside the class folders");
    sgrad_dataset_close(dataset);
    write_ppm("train/b/zz.ppm", H, 1, true);
    assert_done(open_folder(false, SGRAD_TRAIN, &dataset));
    assert_string_equal(dataset->augment, "crop:1/8,flip");
    assert_null(dataset->plain);
    sgrad_dataset_close(dataset);
    assert_done(open_folder(false, SGRAD_TEST, &dataset));
    assert_int_equal(dataset->count, 1);
    char *name = sgrad_dataset_sample_name(dataset, 0);
    assert_string_equal(name, "val/a/sub/1.pgm");
    free(name);
    assert_null(dataset->others);
    sgrad_dataset_close(dataset);
}

/* Damaged images, the first one, too, and a whole class, are left out and named; an image of another size is an error. */
static void damaged(void **state) {
    (void)state;
    struct sgrad_dataset *dataset;
    char *list = NULL;
    scratch_write("train/a/0.png", "\x89PNG\r\n\x1a\n", 8);
    write_ppm("train/a/1.ppm", H, 1, true);
    scratch_write("train/a/2.ppm", "P6 5 3 255\n...", 14);
    write_ppm("train/b/1.ppm", H, 2, true);
    scratch_write("train/c/1.jpg", "", 0);
    assert_int_equal(symlink("nowhere", scratch_path("train/b/gone.png")), 0);
    assert_fails(open_folder(false, SGRAD_TRAIN, &dataset), SGRAD_EFORMAT, "train/a/0.png: byte ");
    assert_done(open_folder(true, SGRAD_TRAIN, &dataset));
    assert_int_equal(dataset->count, 6);
    assert_int_equal(dataset->field[0].shape.dim[0], H);
    scratch_listen();
    const int error = sgrad_dataset_skip_damaged(dataset, true, &list);
    char *said = sgrad_format("%s", scratch_said());
    assert_done(error);
    assert_int_equal(dataset->count, 2);
    assert_int_equal(dataset->damaged, 4);
    static const char *const named[] = { "a/0.png", "a/2.ppm", "b/gone.png: No such file or directory",
                                         "c/1.jpg: the file is empty" };
    for (int i = 0; i < 4; i++) assert_contains(said, named[i]), assert_contains(list, named[i]);
    assert_contains(said, "class c: none of its 1 training samples can be read");
    uint8_t pixels[2 * H * W * 3];
    int32_t label[2];
    const struct sgrad_sample sample[] = { { .index = 0 }, { .index = 1 } };
    assert_done(sgrad_dataset_read(dataset, sample, 2, (void *[]){ pixels, label }));
    assert_equal(pixels[0], 1);
    assert_equal(pixels[H * W * 3], 2);
    assert_equal(label[0], 0);
    assert_equal(label[1], 1);
    sgrad_dataset_close(dataset);
    free(said);
    free(list);
    write_ppm("train/b/2.ppm", H + 1, 2, true);
    assert_done(open_folder(true, SGRAD_TRAIN, &dataset));
    assert_fails(sgrad_dataset_skip_damaged(dataset, false, NULL), SGRAD_ESHAPE,
                 "b/2.ppm: is 5x4, but others are 5x3; give folder:DIR,SIZE");
    sgrad_dataset_close(dataset);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        sentence_with("the images of a folder are found in order, and other files are counted",
                      walks, scratch_open, scratch_close),
        sentence_with("a folder of grey images is not augmented and says why, and one coloured image changes that",
                      surveys, scratch_open, scratch_close),
        sentence_with("damaged images are left out and named, and an image of another size is refused",
                      damaged, scratch_open, scratch_close),
    };
    return run_sentences(argc, argv, tests, NULL, NULL);
}
