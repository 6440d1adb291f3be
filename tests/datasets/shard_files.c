/* Shards that are hostile, truncated, damaged or changed, and their indexes. */
#include "config.h"
#include "datasets/shards/shards.h"
#include "tests/datasets/tar.h"

#ifdef SGRAD_HAVE_LIBARCHIVE
#include <dirent.h>
#include <sys/wait.h>

/* ---- hostile archives ---------------------------------------------------------------------------------------------- */

static void assert_refused(int error, const char *text) {
    struct sgrad_dataset *dataset;
    save("h.tar");
    assert_fails(open_split("h.tar", SGRAD_TRAIN, &dataset), error, text);
}

static void hostile(void **state) {
    (void)state;
    struct sgrad_dataset *dataset;
    assert_refused(SGRAD_EFORMAT, "has no samples");
    put_sample("d/img 1.2", 0, 0);
    assert_refused(SGRAD_EFORMAT, "the name of a sample ends at the first dot: 'img 1.2.ppm' is 'img 1'");
    put_sample("../x", 0, 0);
    assert_refused(SGRAD_EFORMAT, "h.tar: ../x.ppm at byte 0: its path leads out of the archive");
    put_sample("/x", 0, 0);
    assert_refused(SGRAD_EFORMAT, "its path leads out");
    put_entry("a.ppm", '2', 0, "b.ppm");
    assert_refused(SGRAD_EFORMAT, "a.ppm at byte 0: is a link");
    put_entry("a.ppm", '1', 0, "b.ppm");
    assert_refused(SGRAD_EFORMAT, "is a link");
    put_entry("a.ppm", '3', 0, "");
    assert_refused(SGRAD_EFORMAT, "is neither a file nor a folder");
    put_entry("a.ppm", '0', 1 << 20, "");
    assert_refused(SGRAD_EFORMAT, "the shard ends within this member");
    put_entry("a.ppm", '0', (uint64_t)1 << 32, "");
    assert_refused(SGRAD_EFORMAT, "the image has more than 256 MiB");
    put_entry("a.cls", '0', (uint64_t)1 << 32, "");
    assert_refused(SGRAD_EFORMAT, "the label has more than 1 MiB");
    put_image("a.ppm", 0);
    assert_refused(SGRAD_EFORMAT, "a.ppm at byte 512: the sample has no label");
    put_text("a.cls", "0");
    assert_refused(SGRAD_EFORMAT, "a at byte 0: the sample has a label, but no image");
    put_image("a.ppm", 0);
    put_image("a.png", 0);
    assert_refused(SGRAD_EFORMAT, "the sample has two images");
    put_image("a.ppm", 0);
    put_text("a.cls", "0");
    put_text("a.cls", "1");
    assert_refused(SGRAD_EFORMAT, "the sample has two such labels");
    put_extension('x', "99 path=b.ppm\n");
    put_sample("a", 0, 0);
    assert_refused(SGRAD_EFORMAT, "malformed pax");
    for (int i = 0; i < 100; i++) put_extension('x', "15 comment=abc\n");
    put_sample("a", 0, 0);
    assert_refused(SGRAD_EFORMAT, "h.tar: byte "); /* the limit of libarchive */
    put_text("a", "x");
    tar.data[0] = 'b';
    assert_refused(SGRAD_EFORMAT, "h.tar: byte 0, the first header: Unrecognized");
    scratch_write("h.tar", "", 0);
    assert_fails(open_split("h.tar", SGRAD_TRAIN, &dataset), SGRAD_EFORMAT, "the file is empty");
    scratch_write("h.tar", "text", 4);
    assert_fails(open_split("h.tar", SGRAD_TRAIN, &dataset), SGRAD_EFORMAT, "h.tar: is not a tar archive, plain or compressed");
    static const char pointer[] = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n";
    scratch_write("h.tar", pointer, sizeof pointer - 1);
    assert_fails(open_split("h.tar", SGRAD_TRAIN, &dataset), SGRAD_EFORMAT, "is a Git LFS pointer, not a tar archive");
}

/* Sizes, names and special headers that no archive of a data set has, after a valid sample. */
static void hostile_headers(void **state) {
    (void)state;
    static const char *const names[] = { "x.ppm", "x.txt", "x.cls" };
    static const int64_t sizes[] = { INT64_MAX, INT64_MIN, (int64_t)1 << 62, -1, -512 };
    const char *path[] = { "a/../../x.ppm", "x/..", "/" };
    char record[64];
    for (size_t n = 0; n < sizeof names / sizeof *names; n++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            put_sample("a", 0, 0);
            put_wide_entry(names[n], sizes[i]);
            assert_refused(SGRAD_EFORMAT, "h.tar: ");
        }
    put_sample("a", 0, 0);
    put_wide_entry("x.txt", -1);
    assert_refused(SGRAD_EFORMAT, "h.tar: byte 2048, the header after a: Tar entry has negative size");
    for (size_t i = 0; i < sizeof path / sizeof *path; i++) {
        put_sample("a", 0, 0);
        snprintf(record, sizeof record, "%zu path=%s\n", strlen(path[i]) + 9, path[i]);
        put_extension('x', record);
        put_image("x.ppm", 0);
        assert_refused(SGRAD_EFORMAT, "its path leads out of the archive");
    }
    for (const char *type = "346"; *type; type++) {
        put_entry("x.ppm", *type, 0, "");
        assert_refused(SGRAD_EFORMAT, "is neither a file nor a folder");
    }
    for (const char *type = "Lxg"; *type; type++) { /* chains of headers, and one of a megabyte */
        put_sample("a", 0, 0);
        for (int i = 0; i < 1000; i++) put_extension(*type, *type == 'L' ? "x.ppm" : "15 comment=abc\n");
        put_image("x.ppm", 0);
        assert_refused(SGRAD_EFORMAT, "h.tar: ");
        char *text = sgrad_format("1200009 path=%*s\n", 1200009 - 14, "x.ppm");
        put_sample("a", 0, 0);
        put_extension(*type, text);
        put_image("x.ppm", 0);
        assert_refused(SGRAD_EFORMAT, "h.tar: ");
        free(text);
    }
}

/* As in WebDataset, a name may occur again: it is another sample. Empty members are counted, but do not stay in memory. */
static void repeated(void **state) {
    (void)state;
    struct sgrad_dataset *dataset;
    int32_t label;
    put_sample("a", 1, 0);
    put_sample("b", 2, 1);
    for (int i = 0; i < 3000; i++) put_entry("empty.txt", '0', 0, "");
    put_sample("a", 3, 2);
    save("again.tar");
    assert_done(open_split("again.tar", SGRAD_TRAIN, &dataset));
    assert_int_equal(dataset->count, 3);
    assert_int_equal(value_of(dataset, 2, &label), 3);
    assert_int_equal(label, 2);
    assert_string_equal(dataset->others, "3000 other files: 3000 .txt");
    sgrad_dataset_close(dataset);
}

/* Asserts that the archive, of the samples 0 to 2, with another byte in the header of 1.ppm, is refused there. */
static void assert_header_refused(int64_t size, const char *text) {
    struct sgrad_dataset *dataset;
    begin();
    for (int i = 0; i < 3; i++) put_sample((const char *[]){ "0", "1", "2" }[i], i, i);
    char *header = tar.data + 2048;
    assert_string_equal(header, "1.ppm");
    if (size < 0) {
        header[0] ^= 1;
    } else { /* a valid header */
        const size_t end = tar.size;
        tar.size = 2048;
        put_entry("1.ppm", '0', (uint64_t)size, "");
        tar.size = end;
    }
    scratch_write("h.tar", tar.data, tar.size + 1024);
    assert_fails(open_split("h.tar", SGRAD_TRAIN, &dataset), SGRAD_EFORMAT, text);
    begin();
}

static void damaged_headers(void **state) {
    (void)state;
    assert_header_refused(-1, "h.tar: byte 2048, the header after 0: Damaged tar archive; copy or write the shard again");
    assert_header_refused(600, "h.tar: byte 3584, the header after 1: Damaged");
    assert_header_refused(1100, "h.tar: 1.ppm at byte 2560: the sample has no label");
}

static void labels(void **state) {
    (void)state;
    const struct {
        const char *ending, *content, *text;
    } is[] = { { "cls", "", "'' must be a decimal integer" },
               { "cls", "cat", "'cat' must be a decimal integer; write the name of a class to a .json" },
               { "cls", "1.5", "'1.5' must be" },
               { "cls", "1 2", "'1 2' must be" },
               { "cls", "-1", "the label is -1, but labels must be 0 to 1048575" },
               { "cls", "1048576", "the label is 1048576" },
               { "cls", "99999999999999999999999999999999999999999999999999", "must be a decimal integer" },
               { "json", "{", "a.json at byte 1024: line 1: " },
               { "json", "[]", "the sample has no label" },
               { "json", "{\"x\": 1}", "the sample has no label" },
               { "json", "{\"label\": null}", "the sample has no label" },
               { "json", "{\"label\": {}}", "the sample has no label" },
               { "json", "{\"label\": 1.5}", "the label must be an integer or the name of a class" },
               { "json", "{\"label\": -3}", "the label is -3" },
               { "json", "{\"label\": \"\"}", "the name of a class must be 1 to 1024 bytes of text" },
               { "json", "{\"label\": \"a\\u0001\"}", "the name of a class must be" },
               { "json", "{\"label\": 1, \"label\": 2}", "duplicate" } };
    for (size_t i = 0; i < sizeof is / sizeof *is; i++) {
        char name[16];
        snprintf(name, sizeof name, "a.%s", is[i].ending);
        put_image("a.ppm", 0);
        put_text(name, is[i].content);
        assert_refused(SGRAD_EFORMAT, is[i].text);
    }
    put_image("a.ppm", 0);
    put_text("a.json", "{\"label\": \"x\"}");
    put_sample("b", 0, 0);
    assert_refused(SGRAD_EFORMAT, "labels must be all integers or all names");
}

static void truncated(void **state) {
    (void)state;
    struct sgrad__draft draft;
    char key[32];
    begin();
    for (int i = 0; i < 3; i++) {
        snprintf(key, sizeof key, "%d", i);
        put_sample(key, i, 0);
    }
    const size_t all = tar.size + 1024;
    for (size_t size = 0; size <= all; size += size < all - 1032 || size >= all - 1 ? 1 : 7) {
        draft = (struct sgrad__draft){ 0 };
        char *copy = malloc(size + 1);
        memcpy(copy, tar.data, size);
        assert_int_equal(survives(sgrad__shard_scan("t.tar", -1, copy, size, SIZE_MAX, &draft)), size == all);
        if (size == all) assert_int_equal(draft.samples, 3);
        sgrad__draft_free(&draft);
        free(copy);
    }
    begin();
}

static void ends(void **state) {
    (void)state;
    struct sgrad_dataset *dataset;
    begin();
    put_sample("a", 0, 0);
    const size_t one = tar.size;
    put_sample("b", 0, 0);
    scratch_write("end.tar", tar.data, one); /* cut between two members */
    assert_fails(open_split("end.tar", SGRAD_TRAIN, &dataset), SGRAD_EFORMAT, "incomplete: it has no end mark");
    scratch_write("end.tar", tar.data, tar.size + 512);
    assert_fails(open_split("end.tar", SGRAD_TRAIN, &dataset), SGRAD_EFORMAT, "incomplete: it has no end mark");
    scratch_write("end.tar", tar.data, tar.size + 10240); /* GNU tar fills a record */
    assert_done(open_split("end.tar", SGRAD_TRAIN, &dataset));
    assert_int_equal(dataset->count, 2);
    sgrad_dataset_close(dataset);
    memcpy(tar.data + tar.size + 1024, tar.data, tar.size);
    scratch_write("end.tar", tar.data, 2 * tar.size + 2048);
    assert_fails(open_split("end.tar", SGRAD_TRAIN, &dataset), SGRAD_EFORMAT, "join them by tar --concatenate");
    begin();
}

static void damaged_images(void **state) {
    (void)state;
    struct sgrad_dataset *dataset;
    char *list = NULL;
    uint8_t pixels[12];
    int32_t label;
    make_shard("i/0.tar", 0, 3);
    put_text("1.ppm", "P6\n2 2\n255\nshort");
    put_text("1.cls", "0");
    put_sample("2", 9, 1);
    save("i/1.tar");
    assert_done(open_with("i/{0..1}.tar", SGRAD_TRAIN, (struct sgrad_dataset_options){ .damaged = true }, &dataset));
    assert_fails(sgrad_dataset_read(dataset, &(struct sgrad_sample){ .index = 3 }, 1, (void *[]){ pixels, &label }),
                 SGRAD_EFORMAT, "i/1.tar: 1.ppm at byte 512: ");
    assert_done(sgrad_dataset_skip_damaged(dataset, false, &list));
    assert_int_equal(dataset->count, 4);
    assert_int_equal(dataset->first[1] * 10 + dataset->first[2], 34);
    assert_int_equal(value_of(dataset, 3, &label), 9);
    assert_non_null(strstr(list, "1.ppm at byte 512"));
    free(list);
    sgrad_dataset_close(dataset);
}

/* ---- the index ----------------------------------------------------------------------------------------------------- */

static void damaged_index(void **state) {
    (void)state;
    struct sgrad__draft draft = { 0 };
    struct sgrad__shard shard;
    size_t bytes;
    begin();
    put_text("x.txt", "x");
    put_image("a.ppm", 1);
    put_text("a.json", "{\"label\": \"x\"}");
    assert_done(sgrad__shard_scan("t.tar", -1, tar.data, tar.size + 1024, SIZE_MAX, &draft));
    unsigned char *block = sgrad__index_pack(&draft, "/t.tar", &(struct sgrad_file_version){ 1, 2, 3, 4 }, &bytes);
    assert_true(sgrad__index_parse(block, bytes, &shard));
    assert_int_equal(shard.samples, 1);
    assert_string_equal(shard.text + shard.sample[0].name, "a.ppm");
    for (size_t i = 0; i < 8 * bytes; i++) {
        block[i / 8] ^= (unsigned char)(1 << i % 8);
        assert_false(sgrad__index_parse(block, bytes, &shard));
        block[i / 8] ^= (unsigned char)(1 << i % 8);
    }
    for (size_t size = 0; size < bytes; size++) {
        unsigned char *copy = malloc(size + 1);
        memcpy(copy, block, size);
        assert_false(sgrad__index_parse(copy, size, &shard));
        free(copy);
    }
    free(block);
    sgrad__draft_free(&draft);
    begin();
}

/* A scan whose draft has one sample, and as many bytes of names as OF, of which only the number is read. */
static int scan_names(void *of, const char *path, int file, const struct sgrad_file_version *version,
                      struct sgrad__draft *draft) {
    (void)path, (void)file, (void)version;
    draft->sample = sgrad_array_grow(NULL, 0, sizeof *draft->sample);
    draft->sample[draft->samples++] = (struct sgrad__shard_sample){ 0 };
    draft->text_bytes = *(const size_t *)of;
    return 0;
}

static void too_many_names(void **state) {
    (void)state;
    size_t bytes = UINT32_MAX; /* besides, the path is in the index */
    struct sgrad__index_store store = { .reader = "tar", .smaller = "use two", .scan = scan_names, .of = &bytes };
    struct sgrad__shard shard;
    scratch_write("t.tar", "x", 1);
    for (int i = 0; i < 2; i++, bytes = (size_t)1 << 40)
        assert_fails(sgrad__index_open(&store, scratch_path("t.tar"), &shard), SGRAD_EINVAL,
                     "t.tar: the names of its files have more than 4 GiB; use two");
}

/* Returns the number of indexes in the cache folder of NAME. PATH: of one of them; may be NULL. */
static int indexes(const char *name, char path[1024]) {
    char folder[512];
    snprintf(folder, sizeof folder, "%s/.starpu/stargrad/indexes", scratch_path(name));
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    int found = 0;
    for (struct dirent *entry; (entry = readdir(dir));)
        if (*entry->d_name != '.') {
            found++;
            if (path) snprintf(path, 1024, "%s/%s", folder, entry->d_name);
        }
    closedir(dir);
    return found;
}

/* The path of the only index in the cache folder of NAME. */
static const char *only_index(const char *name) {
    static char path[1024];
    assert_int_equal(indexes(name, path), 1);
    return path;
}

/* Makes shard NAME with the size and time of make_shard and age, later than the file BEFORE. Times have steps. */
static void make_later(const char *name, int first, const struct stat *before) {
    struct stat is;
    do {
        make_shard(name, first, 3);
        age(name);
        assert_int_equal(stat(scratch_path(name), &is), 0);
    } while (before->st_ctim.tv_sec == is.st_ctim.tv_sec && before->st_ctim.tv_nsec == is.st_ctim.tv_nsec);
}

static void cached(void **state) {
    (void)state;
    struct sgrad_dataset *dataset;
    struct stat first, second;
    int32_t label;
    scratch_write("cache/x", "", 0);
    setenv("XDG_CACHE_HOME", scratch_path("cache"), 1);
    make_shard("c.tar", 0, 3);
    assert_done(open_split("c.tar", SGRAD_TRAIN, &dataset)); /* the index of a shard that was just written is not stored */
    sgrad_dataset_close(dataset);
    assert_int_equal(access(scratch_path("cache/.starpu/stargrad/indexes"), F_OK), 0);
    assert_int_equal(indexes("cache", NULL), 0);
    age("c.tar");
    assert_done(open_split("c.tar", SGRAD_TRAIN, &dataset));
    sgrad_dataset_close(dataset);
    const char *index = only_index("cache");
    assert_int_equal(stat(index, &first), 0);
    assert_done(open_split("c.tar", SGRAD_TRAIN, &dataset)); /* the stored index is used */
    assert_int_equal(stat(index, &second), 0);
    assert_int_equal(first.st_ino, second.st_ino);
    sgrad_dataset_close(dataset);
    for (int length = 0; length < 300; length += 100) { /* a damaged index is replaced */
        assert_int_equal(truncate(index, length), 0);
        assert_done(open_split("c.tar", SGRAD_TRAIN, &dataset));
        assert_int_equal(value_of(dataset, 2, &(int32_t){ 0 }), 2);
        assert_int_equal(stat(index, &second), 0);
        assert_int_equal(first.st_size, second.st_size);
        sgrad_dataset_close(dataset);
    }
    assert_int_equal(stat(scratch_path("c.tar"), &first), 0);
    make_later("c.tar", 1, &first); /* and so is that of another archive of the same size and time, in the same file */
    assert_done(open_split("c.tar", SGRAD_TRAIN, &dataset));
    assert_int_equal(value_of(dataset, 2, &label), 3);
    assert_int_equal(label, 0);
    sgrad_dataset_close(dataset);
    make_shard("c.tar", 7, 4);
    age("c.tar");
    assert_done(open_split("c.tar", SGRAD_TRAIN, &dataset));
    assert_int_equal(value_of(dataset, 3, &(int32_t){ 0 }), 10);
    sgrad_dataset_close(dataset);
    setenv("XDG_CACHE_HOME", "/dev/null", 1); /* without a cache folder, nothing is stored */
    scratch_listen();
    const int error = open_split("c.tar", SGRAD_TRAIN, &dataset);
    assert_contains(scratch_said(), "the cache folder /dev/null/.starpu/stargrad/indexes cannot be created: Not a dir");
    assert_done(error);
    assert_int_equal(value_of(dataset, 3, &(int32_t){ 0 }), 10);
    sgrad_dataset_close(dataset);
    setenv("XDG_CACHE_HOME", scratch_root, 1);
}

static void together(void **state) {
    (void)state;
    char name[32];
    for (int s = 0; s < 20; s++) {
        snprintf(name, sizeof name, "p/%02d.tar", s);
        make_shard(name, 10 * s, 10);
    }
    pid_t process[4];
    for (int p = 0; p < 4; p++)
        if (!(process[p] = fork())) {
            struct sgrad_dataset *dataset;
            int error = open_split("p/{00..19}.tar", SGRAD_TRAIN, &dataset);
            _exit(error || dataset->count != 200);
        }
    for (int p = 0; p < 4; p++) {
        int status;
        waitpid(process[p], &status, 0);
        assert_int_equal(status, 0);
    }
}

static int read_first(const struct sgrad_dataset *dataset) {
    uint8_t pixels[12];
    int32_t label;
    return sgrad_dataset_read(dataset, &(struct sgrad_sample){ .index = 0 }, 1, (void *[]){ pixels, &label });
}

static void changed(void **state) {
    (void)state;
    struct sgrad_dataset *dataset;
    make_shard("e.tar", 0, 3);
    age("e.tar");
    assert_done(open_with("e.tar", SGRAD_TRAIN, (struct sgrad_dataset_options){ .no_cache = true }, &dataset));
    assert_int_equal(chmod(scratch_path("e.tar"), 0600), 0); /* changes the inode's time only */
    assert_done(read_first(dataset));
    make_shard("e.tar", 5, 3);
    assert_fails(read_first(dataset), SGRAD_EIO, "e.tar: the file has changed since the data set was opened; restore it");
    sgrad_dataset_close(dataset);
}

static void replaced(void **state) {
    (void)state;
    struct sgrad_dataset *dataset;
    struct stat before;
    char *path = sgrad_format("%s", scratch_path("e.tar"));
    make_shard("e.tar", 0, 3);
    age("e.tar");
    assert_int_equal(stat(path, &before), 0);
    assert_done(open_with("e.tar", SGRAD_TRAIN, (struct sgrad_dataset_options){ .no_cache = true }, &dataset));
    make_later("other.tar", 5, &before);
    assert_int_equal(rename(scratch_path("other.tar"), path), 0);
    assert_fails(read_first(dataset), SGRAD_EIO, "the file has changed");
    assert_int_equal(unlink(path), 0);
    assert_fails(read_first(dataset), SGRAD_EIO, "e.tar: No such file");
    sgrad_dataset_close(dataset);
    free(path);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        sentence("hostile archives are refused", hostile),
        sentence("sizes of 2^63, chains of headers, devices and paths that lead out are refused", hostile_headers),
        sentence("a name that occurs again is another sample, and empty members are counted", repeated),
        sentence("a damaged header, and a member with a wrong size, are named and refused", damaged_headers),
        sentence("malformed labels are refused", labels),
        sentence("a shard that ends early anywhere is refused", truncated),
        sentence("a shard without an end mark, or with data after it, is refused", ends),
        sentence("a damaged image is named with its shard and byte, and can be skipped", damaged_images),
        sentence("an index with a flipped bit or a missing end is not used", damaged_index),
        sentence("names of more than 4 GiB are refused", too_many_names),
        sentence("the index is stored, and replaced if it is damaged or the shard has changed", cached),
        sentence("processes that start together open the same shards", together),
        sentence("a shard that changes while it is open is not read, but its permissions may change", changed),
        sentence("a shard that is replaced by one of the same size and time is not read", replaced),
    };
    return run_sentences(argc, argv, tests, setup, scratch_close);
}
#else
SKIPPED_WITHOUT("libarchive")
#endif
