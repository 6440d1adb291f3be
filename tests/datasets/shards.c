/* Shards: patterns, and the samples, labels and classes in tar archives, plain and compressed. */
#include "config.h"
#include "datasets/shards/shards.h"
#include "tests/datasets/tar.h"

#ifdef SGRAD_HAVE_LIBARCHIVE
#include <archive.h>
#include <archive_entry.h>
#include <pthread.h>

/* Writes FROM, compressed by the filter ADD of libarchive, to TO. */
static void compress_shard(const char *from, const char *to, int (*add)(struct archive *)) {
    struct sgrad_map map;
    assert_done(sgrad_map_open(scratch_path(from), 1 << 24, &map));
    struct archive *archive = archive_write_new();
    struct archive_entry *entry = archive_entry_new();
    add(archive);
    archive_write_set_format_raw(archive);
    assert_int_equal(archive_write_open_filename(archive, scratch_path(to)), ARCHIVE_OK);
    archive_entry_set_filetype(entry, AE_IFREG);
    archive_write_header(archive, entry);
    assert_int_equal(archive_write_data(archive, map.data, map.size), map.size);
    archive_write_close(archive);
    archive_write_free(archive);
    archive_entry_free(entry);
    sgrad_map_close(&map);
}

/* Reads the file NAME, of *SIZE bytes. The caller must free it. */
static char *read_file(const char *name, size_t *size) {
    struct sgrad_map map;
    assert_done(sgrad_map_open(scratch_path(name), 1 << 24, &map));
    char *data = malloc(map.size);
    memcpy(data, map.data, *size = map.size);
    sgrad_map_close(&map);
    return data;
}

/* ---- patterns ------------------------------------------------------------------------------------------------------ */

static void assert_words(const char *pattern, const char *part, const char *wanted) {
    struct sgrad__paths words = { 0 };
    char text[1024] = "";
    assert_done(sgrad__pattern_words("tar", pattern, part, &words));
    for (int64_t i = 0; i < words.count; i++) snprintf(text + strlen(text), sizeof text - strlen(text), " %s", words.path[i]);
    assert_string_equal(text, wanted);
    sgrad__paths_free(&words);
}

static void expands(void **state) {
    (void)state;
    assert_words("a", "train", " a");
    assert_words("s-{08..11}.tar", "train", " s-08.tar s-09.tar s-10.tar s-11.tar");
    assert_words("{1..3}{b,a}", "train", " 1b 1a 2b 2a 3b 3a");
    assert_words("x{a,b{1..2},}", "train", " xa xb1 xb2 x");
    assert_words("{000..1}", "train", " 000 001");
}

static void splits(void **state) {
    (void)state;
    assert_words("d/{train,val}-{0..1}.tar", "train", " d/train-0.tar d/train-1.tar");
    assert_words("d/{train,val}-{0..1}.tar", "val", " d/val-0.tar d/val-1.tar");
    assert_words("d/{train,val}-{0..1}.tar", "test", "");
    assert_words("{train-{0..2},validation-{0..1}}.tar", "val", " validation-0.tar validation-1.tar");
    assert_words("{training,test}/{train,test}", "test", " test/test");
    assert_words("{trainer,valley}", "train", " trainer valley");
    assert_words("a", "val", "");
    assert_true(sgrad__pattern_has("tar", "a", "train") && !sgrad__pattern_has("tar", "a", "val"));
    assert_true(sgrad__pattern_has("tar", "{train,test}", "test") && !sgrad__pattern_has("tar", "{train,test}", "val"));
    assert_true(!sgrad__pattern_has("tar", "{val,test}", "train"));
}

static void malformed(void **state) {
    (void)state;
    struct sgrad__paths words = { 0 };
    const struct {
        const char *pattern, *text;
    } is[] = { { "a{b", "a brace is not closed" },
               { "{a}", "{a} must be a list" },
               { "{5..1}", "the range {5..1} must ascend" },
               { "{0..9999999}", "must ascend, by at most 131072 numbers" },
               { "{0..999}{0..999}", "names more than 131072" },
               { "{0..99999}{0..99}{val,val}", "names more than 131072" },
               { "{1..x}", "must be a list" } };
    for (size_t i = 0; i < sizeof is / sizeof *is; i++) {
        assert_fails(sgrad__pattern_words("tar", is[i].pattern, "train", &words), SGRAD_EINVAL, is[i].text);
        sgrad__paths_free(&words);
    }
}

static void files(void **state) {
    (void)state;
    struct sgrad_dataset *dataset;
    make_shard("f/train-2.tar", 0, 1);
    make_shard("f/train-10.tar", 10, 1);
    make_shard("f/train-1.tar", 20, 1);
    make_shard("f/val-0.tar", 30, 1);
    make_shard("f/odd{[*.tar", 40, 1);
    make_shard("a[1]{b}*\\/train-0.tar", 50, 1);
    assert_done(open_split("a[1]{b}*\\", SGRAD_TRAIN, &dataset));
    assert_int_equal(value_of(dataset, 0, &(int32_t){ 0 }), 50);
    sgrad_dataset_close(dataset);
    assert_done(open_split("f", SGRAD_TRAIN, &dataset));
    assert_int_equal(dataset->count, 3);
    assert_int_equal(value_of(dataset, 0, &(int32_t){ 0 }), 20);
    assert_int_equal(value_of(dataset, 1, &(int32_t){ 0 }), 10);
    sgrad_dataset_close(dataset);
    assert_done(open_split("f", SGRAD_TEST, &dataset));
    assert_int_equal(value_of(dataset, 0, &(int32_t){ 0 }), 30);
    sgrad_dataset_close(dataset);
    assert_done(open_split("f/odd{[*.tar", SGRAD_TRAIN, &dataset));
    assert_int_equal(value_of(dataset, 0, &(int32_t){ 0 }), 40);
    sgrad_dataset_close(dataset);
    assert_fails(open_split("f/train-{1..4}.tar", SGRAD_TRAIN, &dataset), SGRAD_EIO, "f/train-3.tar: No such file");
    assert_fails(open_split("f/x*", SGRAD_TRAIN, &dataset), SGRAD_EIO, "no file matches");
    assert_fails(open_split("f/train-{1,1}.tar", SGRAD_TRAIN, &dataset), SGRAD_EINVAL, "names a shard twice");
    assert_fails(open_split("f/train-*.tar", SGRAD_TEST, &dataset), SGRAD_EIO, "names no shards of the split val");
    assert_fails(open_split("{f,.}", SGRAD_TRAIN, &dataset), SGRAD_EIO, "not a regular file");
    compress_shard("f/train-1.tar", "f/train-1.tar.gz", archive_write_add_filter_gzip);
    assert_fails(open_split("f", SGRAD_TRAIN, &dataset), SGRAD_EINVAL, "train-1.tar.gz");
}

/* ---- samples ------------------------------------------------------------------------------------------------------- */

static void samples(void **state) {
    (void)state;
    struct sgrad_dataset *dataset, *moved;
    int32_t label;
    make_shard("s/train-0.tar", 0, 5);
    make_shard("s/train-1.tar", 5, 3);
    make_shard("s/val-0.tar", 8, 2);
    assert_done(open_split("s", SGRAD_TRAIN, &dataset));
    assert_int_equal(dataset->count, 8);
    assert_int_equal(dataset->classes, 3);
    assert_int_equal(dataset->shards, 2);
    for (int s = 0; s < 3; s++) assert_int_equal(dataset->first[s], ((const int64_t[]){ 0, 5, 8 })[s]);
    for (int64_t i = 8; i-- > 0;) {
        assert_int_equal(value_of(dataset, i, &label), i);
        assert_int_equal(label, i % 3);
    }
    char *name = sgrad_dataset_sample_name(dataset, 6);
    assert_string_equal(name, "train-1.tar/dir/0006");
    free(name);
    make_shard("elsewhere/train-0.tar", 0, 5);
    make_shard("elsewhere/train-1.tar", 5, 3);
    assert_done(open_split("elsewhere/train-{0..1}.tar", SGRAD_TRAIN, &moved));
    assert_true(sgrad_dataset_fingerprint(dataset) == sgrad_dataset_fingerprint(moved));
    assert_true(sgrad_dataset_stamp(dataset, 0) != sgrad_dataset_stamp(dataset, 1));
    sgrad_dataset_close(moved);
    sgrad_dataset_close(dataset);

    const struct sgrad_dataset_options half = { .split = .5 };
    assert_done(open_with("elsewhere/*.tar", SGRAD_TRAIN, half, &dataset));
    assert_done(open_with("elsewhere/*.tar", SGRAD_TEST, half, &moved));
    assert_int_equal(dataset->count + moved->count, 8);
    assert_int_equal(dataset->held_out, 4);
    assert_int_equal(dataset->first[2], dataset->count);
    assert_int_equal(dataset->first[1] + moved->first[1], 5);
    sgrad_dataset_close(moved);
    sgrad_dataset_close(dataset);
}

static void grouping(void **state) {
    (void)state;
    struct sgrad_dataset *dataset;
    int32_t label;
    put_text("./README.md", "x");
    put_text("./a/1.cls", " 7\n");
    put_image("./a/1.PPM", 1);
    put_text("./a/1.seg.png", "x");
    put_text("./a/1.json", "{"); /* not read, because there is a class */
    put_text("./a/._1.ppm", "x");
    put_entry("./b/", '5', 0, "");
    put_image("./b/1.ppm", 2);
    put_text("./b/1.txt", "x");
    put_text("./b/1.json", "{\"caption\": \"x\", \"label\": null, \"class\": {}, \"cls\": 3}");
    put_text("./c/./1.json", "{\"label\": \"name\"}"); /* not read, because a class follows */
    put_text("./c/./1.cls", "4");
    put_image("./c/./1.ppm", 3);
    save("g.tar");
    scratch_listen();
    const int error = open_with("g.tar", SGRAD_TRAIN, (struct sgrad_dataset_options){ 0 }, &dataset);
    assert_non_null(strstr(scratch_said(), "g.tar: 1 image is not read: the name of a sample ends at the first dot"));
    assert_done(error);
    assert_int_equal(dataset->count, 3);
    assert_int_equal(dataset->classes, 8);
    assert_int_equal(value_of(dataset, 0, &label), 1);
    assert_int_equal(label, 7);
    assert_int_equal(value_of(dataset, 1, &label), 2);
    assert_int_equal(label, 3);
    assert_int_equal(value_of(dataset, 2, &label), 3);
    assert_int_equal(label, 4);
    assert_string_equal(dataset->others, "6 other files: 2 .json, 1 .md, 1 .png, 1 .txt, 1 hidden");
    sgrad_dataset_close(dataset);
}

static void long_names(void **state) {
    (void)state;
    struct sgrad_dataset *dataset;
    char name[400], record[500];
    memset(name, 'n', sizeof name);
    strcpy(name + 300, "/1.ppm");
    snprintf(record, sizeof record, "316 path=%s\n", name);
    assert_int_equal(strlen(record), 316);
    put_extension('x', record);
    put_image("short", 1);
    strcpy(name + 300, "/1.cls");
    snprintf(record, sizeof record, "316 path=%s\n", name);
    put_extension('x', record);
    put_text("short", "0");
    strcpy(name + 300, "/2.ppm");
    put_extension('L', name);
    put_image("short", 2);
    strcpy(name + 300, "/2.cls");
    put_extension('L', name);
    put_text("short", "1");
    put_extension('x', "15 path=\xc3\xa9.ppm\n");
    put_image("short", 3);
    put_extension('x', "15 path=\xc3\xa9.cls\n");
    put_text("short", "1");
    save("l.tar");
    assert_done(open_split("l.tar", SGRAD_TRAIN, &dataset));
    assert_int_equal(dataset->count, 3);
    for (int i = 0; i < 3; i++) assert_int_equal(value_of(dataset, i, &(int32_t){ 0 }), i + 1);
    char *last = sgrad_dataset_sample_name(dataset, 2);
    assert_string_equal(last, "l.tar/\xc3\xa9");
    free(last);
    sgrad_dataset_close(dataset);
}

static void names(void **state) {
    (void)state;
    struct sgrad_dataset *train, *test;
    int32_t label;
    put_image("1.ppm", 1);
    put_text("1.json", "{\"label\": \"dog\"}");
    put_image("2.ppm", 2);
    put_text("2.json", "{\"class\": \"owl\"}");
    save("n/train-0.tar");
    put_image("1.ppm", 3);
    put_text("1.json", "{\"label\": \"cat\"}");
    save("n/train-1.tar");
    put_image("1.ppm", 4);
    put_text("1.json", "{\"label\": \"owl\"}");
    save("n/val.tar");
    put_image("1.ppm", 4);
    put_text("1.json", "{\"label\": \"cow\"}");
    save("n/test.tar");
    assert_done(open_split("n", SGRAD_TRAIN, &train));
    assert_int_equal(train->classes, 3);
    assert_string_equal(train->class_name[0], "cat");
    assert_int_equal((value_of(train, 0, &label), label), 1);
    assert_int_equal((value_of(train, 2, &label), label), 0);
    sgrad_dataset_close(train);
    scratch_listen();
    const int error = open_split("n", SGRAD_TEST, &test);
    assert_non_null(strstr(scratch_said(), "has no image of 2 of the 3 classes: 'cat', 'dog'"));
    assert_done(error);
    assert_int_equal((value_of(test, 0, &label), label), 2);
    sgrad_dataset_close(test);
    assert_fails(open_with("n", SGRAD_TEST, (struct sgrad_dataset_options){ .third = true }, &test), SGRAD_EFORMAT,
                 "the training split has no class 'cow'");
    make_shard("n/train-2.tar", 0, 1);
    assert_fails(open_split("n", SGRAD_TRAIN, &train), SGRAD_EFORMAT, "the labels are integers, but those of");
    make_shard("m/train.tar", 0, 2);
    make_shard("m/val.tar", 0, 3);
    assert_fails(open_split("m", SGRAD_TEST, &test), SGRAD_EFORMAT, "val.tar: dir/0002.ppm at byte 4608: the label is 2");
}

/* Shards with some of the classes of a run are opened with all of these. */
static void some_names(void **state) {
    (void)state;
    struct sgrad_dataset *dataset;
    char *name[] = { "ape", "bee", "cat", "dog" };
    const struct sgrad_origin origin = { .classes = 4, .class_name = name };
    int32_t label;
    put_image("1.ppm", 1);
    put_text("1.json", "{\"label\": \"dog\"}");
    put_image("2.ppm", 2);
    put_text("2.json", "{\"label\": \"bee\"}");
    save("some.tar");
    assert_done(open_with("some.tar", SGRAD_TRAIN, (struct sgrad_dataset_options){ .origin = &origin }, &dataset));
    assert_int_equal(dataset->classes, 4);
    assert_int_equal((value_of(dataset, 0, &label), label), 3);
    assert_int_equal((value_of(dataset, 1, &label), label), 1);
    sgrad_dataset_close(dataset);
}

/* ---- compressed shards --------------------------------------------------------------------------------------------- */

enum { PER_SHARD = 30, SHARDS = 6 };

/* Reads all samples in an order of its own. */
static void *read_all(void *argument) {
    const struct sgrad_dataset *dataset = *(const struct sgrad_dataset **)argument;
    const int64_t step = ((const struct sgrad_dataset **)argument)[1] ? 7 : 11;
    intptr_t wrong = 0;
    for (int64_t n = 0; n < dataset->count; n++) {
        const int64_t i = n * step % dataset->count;
        uint8_t pixels[12];
        int32_t label;
        wrong += sgrad_dataset_read(dataset, &(struct sgrad_sample){ .index = i }, 1, (void *[]){ pixels, &label }) != 0 ||
                 pixels[0] != i || label != i % 3;
    }
    return (void *)wrong;
}

static void compressed(void **state) {
    (void)state;
    struct sgrad_dataset *dataset;
    char name[2][32];
    for (int s = 0; s < SHARDS; s++) {
        snprintf(name[0], sizeof name[0], "z/plain-%d.tar", s);
        snprintf(name[1], sizeof name[1], "z/%d.tar", s);
        make_shard(name[0], PER_SHARD * s, PER_SHARD);
        compress_shard(name[0], name[1], s % 2 ? archive_write_add_filter_gzip : archive_write_add_filter_zstd);
    }
    struct stat status;
    assert_int_equal(stat(scratch_path("z/plain-0.tar"), &status), 0);
    const size_t two = 2 * (size_t)status.st_size + 100;
    assert_done(open_with("z/{0..5}.tar", SGRAD_TRAIN, (struct sgrad_dataset_options){ .memory = two }, &dataset));
    assert_int_equal(dataset->count, SHARDS * PER_SHARD);
    pthread_t thread[4];
    const struct sgrad_dataset *argument[2][2] = { { dataset, NULL }, { dataset, dataset } };
    for (int t = 0; t < 4; t++) assert_int_equal(pthread_create(&thread[t], NULL, read_all, argument[t % 2]), 0);
    for (int t = 0; t < 4; t++) {
        void *wrong;
        pthread_join(thread[t], &wrong);
        assert_null(wrong);
    }
    sgrad_dataset_close(dataset);
    assert_fails(open_with("z/0.tar", SGRAD_TRAIN, (struct sgrad_dataset_options){ .memory = two / 3 }, &dataset), SGRAD_EINVAL,
                 "give --data-memory 1M, or decompress the shards");
    assert_int_equal(stat(scratch_path("z/1.tar"), &status), 0);
    assert_int_equal(truncate(scratch_path("z/1.tar"), status.st_size / 2), 0);
    assert_fails(open_split("z/1.tar", SGRAD_TRAIN, &dataset), SGRAD_EFORMAT, "z/1.tar: ");
}

/* A shard that is replaced before it is decompressed is refused. */
static void compressed_changed(void **state) {
    (void)state;
    struct sgrad_dataset *dataset;
    uint8_t pixels[12];
    int32_t label;
    for (int more = 0; more < 2; more++) {
        make_shard("w/plain.tar", 0, 2);
        compress_shard("w/plain.tar", "w/0.tar", archive_write_add_filter_gzip);
        make_shard("w/plain.tar", 2, 2);
        compress_shard("w/plain.tar", "w/1.tar", archive_write_add_filter_gzip);
        assert_done(open_split("w/{0..1}.tar", SGRAD_TRAIN, &dataset)); /* opening decompresses only the first one */
        make_shard("w/plain.tar", 4, 2 + more);
        compress_shard("w/plain.tar", "w/1.tar", archive_write_add_filter_gzip);
        assert_fails(sgrad_dataset_read(dataset, &(struct sgrad_sample){ .index = 2 }, 1, (void *[]){ pixels, &label }),
                     SGRAD_EIO, "w/1.tar: the file has changed");
        sgrad_dataset_close(dataset);
    }
}

/* The checksum and the size at the end of gzip. (libarchive writes Zstandard without a checksum.) */
static void compressed_damaged(void **state) {
    (void)state;
    struct sgrad_dataset *dataset;
    size_t size;
    make_shard("v/plain.tar", 0, 50);
    compress_shard("v/plain.tar", "v/0.tar", archive_write_add_filter_gzip);
    char *data = read_file("v/0.tar", &size);
    for (size_t bit = 0; bit < 8 * 9; bit++) {
        const size_t at = bit < 8 * 8 ? size - 1 - bit / 8 : size / 2; /* the last time, a bit of the data */
        data[at] ^= (char)(1 << bit % 8);
        scratch_write("v/1.tar", data, size);
        assert_fails(open_split("v/1.tar", SGRAD_TRAIN, &dataset), SGRAD_EFORMAT,
                     at == size / 2 ? "v/1.tar: " : "v/1.tar: cannot be decompressed: incorrect ");
        data[at] ^= (char)(1 << bit % 8);
    }
    free(data);
}

/* Parts of gzip may be joined, as bgzip and parallel programs do, and followed by zeros. */
static void joined_parts(void **state) {
    (void)state;
    struct sgrad_dataset *dataset;
    size_t size, first;
    make_shard("u/plain.tar", 0, 50);
    char *plain = read_file("u/plain.tar", &size), *all = calloc(1, 1 << 20);
    scratch_write("u/a", plain, 5000);
    scratch_write("u/b", plain + 5000, size - 5000);
    size_t end = 0;
    for (int part = 0; part < 2; part++) {
        compress_shard(part ? "u/b" : "u/a", "u/part", archive_write_add_filter_gzip);
        char *data = read_file("u/part", &first);
        memcpy(all + end, data, first);
        end += first;
        free(data);
    }
    scratch_write("u/0.tar", all, end + 1000);
    assert_done(open_split("u/0.tar", SGRAD_TRAIN, &dataset));
    for (int i = 0; i < 50; i++) assert_int_equal(value_of(dataset, i, &(int32_t){ 0 }), i);
    sgrad_dataset_close(dataset);
    all[end + 10] = 'x';
    scratch_write("u/1.tar", all, end + 1000);
    assert_fails(open_split("u/1.tar", SGRAD_TRAIN, &dataset), SGRAD_EFORMAT, "other data follow the compressed ones");
    free(plain);
    free(all);
}

/* A compressed shard with a member of 8 GiB of zeros is not decompressed to its end. */
static void bomb(void **state) {
    (void)state;
    enum { ZEROS = 16 << 20, TIMES = 512 };
    struct sgrad_dataset *dataset;
    size_t begin_size, size;
    char *zeros = calloc(1, ZEROS), *all = NULL;
    begin();
    put_sample("a", 1, 0);
    put_wide_entry("x.txt", (int64_t)ZEROS * TIMES);
    scratch_write("o/begin", tar.data, tar.size);
    scratch_write("o/zeros", zeros, ZEROS);
    begin();
    compress_shard("o/begin", "o/begin.zst", archive_write_add_filter_zstd);
    compress_shard("o/zeros", "o/zeros.zst", archive_write_add_filter_zstd);
    char *first = read_file("o/begin.zst", &begin_size), *part = read_file("o/zeros.zst", &size);
    all = malloc(begin_size + TIMES * size);
    memcpy(all, first, begin_size);
    for (size_t i = 0; i < TIMES; i++) memcpy(all + begin_size + i * size, part, size);
    assert_true(begin_size + TIMES * size < 1 << 20);
    scratch_write("o/0.tar", all, begin_size + TIMES * size);
    for (int i = 0; i < 2; i++) {
        const struct sgrad_dataset_options options = { .memory = (size_t)100 << (i ? 30 : 20) };
        assert_fails(open_with("o/0.tar", SGRAD_TRAIN, options, &dataset), SGRAD_EFORMAT,
                     i ? "has more than 4096 MiB and more than 100 times its size after decompression" : "has more than 256 MiB");
    }
    free(zeros);
    free(first);
    free(part);
    free(all);
}

/* A compressed shard that is cut anywhere, or followed by another one, is refused. */
static void compressed_ends(void **state) {
    (void)state;
    int (*const add[])(struct archive *) = { archive_write_add_filter_gzip, archive_write_add_filter_zstd };
    struct sgrad_dataset *dataset;
    size_t size;
    make_shard("y/plain.tar", 0, 2);
    for (int f = 0; f < 2; f++) {
        compress_shard("y/plain.tar", "y/0.tar", add[f]);
        char *data = read_file("y/0.tar", &size), *twice = malloc(2 * size);
        for (size_t cut = 1; cut < size; cut++) {
            scratch_write("y/1.tar", data, cut);
            assert_fails(open_split("y/1.tar", SGRAD_TRAIN, &dataset), SGRAD_EFORMAT, "y/1.tar: ");
            if (cut > 20) assert_fails(open_split("y/1.tar", SGRAD_TRAIN, &dataset), SGRAD_EFORMAT, "incomplete");
        }
        memcpy(twice, data, size), memcpy(twice + size, data, size);
        scratch_write("y/1.tar", twice, 2 * size);
        assert_fails(open_split("y/1.tar", SGRAD_TRAIN, &dataset), SGRAD_EFORMAT, "other data follow the end of the archive");
        free(data);
        free(twice);
    }
    scratch_write("y/text", "text", 4);
    compress_shard("y/text", "y/2.tar", add[0]);
    assert_fails(open_split("y/2.tar", SGRAD_TRAIN, &dataset), SGRAD_EFORMAT, "content of the compressed file is not a tar");
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        sentence("a pattern expands in the order of its text, with padded numbers", expands),
        sentence("a group of names of splits selects the split", splits),
        sentence("malformed patterns, and those of too many shards, are refused", malformed),
        sentence("a missing shard is named, matches are sorted, and no shard occurs twice", files),
        sentence("samples are read in the order of the shards, and identified without the folder's path", samples),
        sentence("members with the same path up to the first dot are one sample", grouping),
        sentence("long names, of pax and of GNU, do not move the images", long_names),
        sentence("names of classes are numbered alike in all shards and both splits", names),
        sentence("shards with some of the classes of a run have the labels of the run", some_names),
        sentence("a compressed shard that changes while it is open is not read", compressed_changed),
        sentence("compressed shards that are cut or joined are refused", compressed_ends),
        sentence("a shard whose checksum of gzip is wrong is refused", compressed_damaged),
        sentence("a small shard that decompresses to gigabytes is refused", bomb),
        sentence("a compressed shard may consist of parts of gzip", joined_parts),
        sentence("compressed shards are read by several threads, in bounded memory", compressed),
    };
    return run_sentences(argc, argv, tests, setup, scratch_close);
}
#else
SKIPPED_WITHOUT("libarchive")
#endif
