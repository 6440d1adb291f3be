/* safetensors: files that were written are read again; malformed files are refused with the reason. */
#include "config.h"
#include "runtime/runtime.h"
#include "tests/scratch.h"

static float weight[6] = { 1, -2, 3.5f, 0, 1e-30f, 7 };
static uint16_t half[4] = { 0x3f80, 0, 0x8000, 0x7fc0 };
static double norm[1] = { 0.1 };
static int32_t label[2] = { -1, 5 };
static int64_t tracked = 1ll << 40;
static uint8_t byte[3] = { 0, 255, 7 };

static const struct sgrad_entry entries[] = {
    { "fc.weight", { SGRAD_F32, { 2, { 2, 3 } } }, weight },
    { "half", { SGRAD_BF16, { 4, { 1, 2, 1, 2 } } }, half },
    { "norm", { SGRAD_F64, { 1, { 1 } } }, norm },
    { "label", { SGRAD_I32, { 1, { 2 } } }, label },
    { "bn.num_batches_tracked", { SGRAD_I64, { .rank = 0 } }, &tracked },
    { "byte \"\\\t\303\251", { SGRAD_U8, { 5, { 1, 1, 3, 1, 1 } } }, byte },
    { "none", { SGRAD_F32, { 2, { 0, 4 } } }, weight },
};
enum { ENTRIES = sizeof entries / sizeof *entries };
static const char *const metadata[] = { "step", "17", "note", "line one\nline \"two\"" };

static const char *write_good(void) {
    const char *path = scratch_path("good.safetensors");
    assert_done(sgrad_safetensors_write(path, entries, ENTRIES, metadata, 2));
    return path;
}

static void comes_back(void **state) {
    (void)state;
    struct sgrad_safetensors file;
    unsigned char data[100];
    assert_done(sgrad_safetensors_open(write_good(), &file));
    assert_int_equal(file.count, ENTRIES);
    for (int i = 0; i < ENTRIES; i++) {
        const struct sgrad_entry *entry = sgrad_safetensors_find(&file, entries[i].name);
        assert_non_null(entry);
        assert_int_equal(entry->view.dtype, entries[i].view.dtype);
        assert_memory_equal(&entry->view.shape, &entries[i].view.shape, sizeof entry->view.shape);
        assert_done(sgrad_safetensors_read(&file, entry, data));
        assert_memory_equal(data, entries[i].data, sgrad_view_bytes(&entry->view));
        assert_int_equal(file.at[entry - file.entry] % sgrad_dtype_size(entry->view.dtype), 0);
        if (i) assert_true(strcmp(file.entry[i - 1].name, file.entry[i].name) < 0);
    }
    assert_null(sgrad_safetensors_find(&file, "fc.bias"));
    assert_int_equal(file.metadata_count, 2);
    assert_string_equal(sgrad_safetensors_metadata(&file, "step"), "17");
    assert_string_equal(sgrad_safetensors_metadata(&file, "note"), metadata[3]);
    assert_null(sgrad_safetensors_metadata(&file, "nothing"));
    sgrad_safetensors_close(&file);
}

/* Somebody shortens the file while it is open: an error, no signal. */
static void shortened(void **state) {
    (void)state;
    struct sgrad_safetensors file;
    unsigned char data[100];
    char sum[SGRAD_CHECKSUM], of_memory[SGRAD_CHECKSUM];
    const char *path = write_good();
    assert_done(sgrad_safetensors_open(path, &file));
    assert_done(sgrad_safetensors_file_checksum(&file, sum));
    sgrad_safetensors_checksum(entries, ENTRIES, of_memory);
    assert_string_equal(sum, of_memory);
    const struct sgrad_entry *last = sgrad_safetensors_find(&file, "byte \"\\\t\303\251");
    assert_done(sgrad_safetensors_read(&file, last, data));
    assert_int_equal(truncate(path, 4), 0);
    assert_fails(sgrad_safetensors_read(&file, last, data), SGRAD_EIO, "but was longer when it was opened");
    assert_fails(sgrad_safetensors_file_checksum(&file, sum), SGRAD_EIO, "but was longer when it was opened");
    sgrad_safetensors_close(&file);
}

static void empty_file(void **state) {
    (void)state;
    struct sgrad_safetensors file;
    const char *path = scratch_path("empty.safetensors");
    assert_done(sgrad_safetensors_write(path, NULL, 0, NULL, 0));
    assert_done(sgrad_safetensors_open(path, &file));
    assert_int_equal(file.count, 0);
    assert_null(sgrad_safetensors_find(&file, ""));
    sgrad_safetensors_close(&file);
}

static void refuses_to_write(void **state) {
    (void)state;
    const char *path = scratch_path("bad.safetensors");
    const struct sgrad_entry twice[] = { entries[0], entries[1], entries[0] };
    const struct sgrad_entry latin1 = { "caf\351", { SGRAD_U8, { 1, { 1 } } }, byte };
    const struct sgrad_entry reserved = { "__metadata__", { SGRAD_U8, { 1, { 1 } } }, byte };
    assert_fails(sgrad_safetensors_write(path, twice, 3, NULL, 0), SGRAD_EINVAL, "occurs twice");
    assert_fails(sgrad_safetensors_write(path, &latin1, 1, NULL, 0), SGRAD_EINVAL, "not UTF-8");
    assert_fails(sgrad_safetensors_write(path, &reserved, 1, NULL, 0), SGRAD_EINVAL, "occurs twice");
    assert_int_not_equal(access(path, F_OK), 0);
    assert_fails(sgrad_safetensors_write(scratch_path("no/where"), entries, 1, NULL, 0), SGRAD_EIO,
                 "no/where: cannot be written");
}

/* Every shortened file is refused, every damaged byte survived. */
static void damaged(void **state) {
    (void)state;
    struct sgrad_map map;
    struct sgrad_safetensors file;
    assert_done(sgrad_map_open(write_good(), 10000, &map));
    unsigned char *copy = malloc(map.size);
    for (size_t size = 0; size < map.size; size++) {
        unsigned char *shorter = malloc(size + 1); /* so that a sanitizer sees a step beyond it */
        memcpy(shorter, map.data, size);
        assert_false(survives(sgrad_safetensors_parse("short", shorter, size, &file)));
        free(shorter);
    }
    for (size_t i = 0; i < map.size; i++)
        for (int bit = 0; bit < 8; bit++) {
            memcpy(copy, map.data, map.size);
            copy[i] ^= (unsigned char)(1 << bit);
            if (survives(sgrad_safetensors_parse("flipped", copy, map.size, &file))) sgrad_safetensors_close(&file);
        }
    free(copy);
    sgrad_map_close(&map);
}

#define TENSOR(name, dtype, shape, begin, end)                                                                                   \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[" #begin "," #end "]}"

static const struct {
    const char *header;
    size_t data; /* bytes after the header */
    const char *reason;
} malformed[] = {
    { "", 0, "byte" },
    { " {}", 0, "the header is not a JSON object" },
    { "[]", 0, "the header is not a JSON object" },
    { "{}{}", 0, "end of file expected" },
    { "{\"a\":1}", 0, "a: is not a JSON object" },
    { "{\"a\":{}}", 0, "a: dtype" },
    { "{\"a\":{\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "a: dtype is not a string" },
    { "{" TENSOR("a", "BOOL", "1", 1, 2) "}", 2, "a: begins at byte 1 of the data" },
    { "{" TENSOR("a", "U8", "1", 0, 1) "," TENSOR("b", "F32", "9", 1, 37) "}", 30,
      "b: the file is truncated: its header describes 152 bytes, but it has 145" },
    { "{" TENSOR("a", "U8", "-1", 0, 1) "}", 1, "a: shape" },
    { "{" TENSOR("a", "U8", "1.0", 0, 1) "}", 1, "a: shape" },
    { "{" TENSOR("a", "U8", "1,1,1,1,1,1", 0, 1) "}", 1, "a: shape" },
    { "{" TENSOR("a", "U8", "99999999999999999999", 0, 1) "}", 1, "too big" },
    { "{" TENSOR("a", "U8", "1", 0, 2) "}", 1, "a: the file is truncated" },
    { "{" TENSOR("a", "U8", "1", 1, 0) "}", 1, "a: data_offsets" },
    { "{" TENSOR("a", "U8", "1", -1, 0) "}", 1, "a: data_offsets" },
    { "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1,2]}}", 1, "a: data_offsets" },
    { "{" TENSOR("a", "F32", "2,3", 0, 20) "}", 20, "a: shape (2,3) of F32 does not match its 20 bytes" },
    { "{" TENSOR("a", "F32", "4611686018427387904", 0, 0) "}", 0, "does not match" },
    { "{" TENSOR("a", "U8", "4294967296,4294967296", 0, 0) "}", 0, "does not match" },
    { "{" TENSOR("a", "U8", "2", 0, 2) "," TENSOR("b", "U8", "2", 1, 3) "}", 3, "b: begins at byte 1 of the data" },
    { "{" TENSOR("a", "U8", "2", 0, 2) "," TENSOR("b", "U8", "2", 3, 5) "}", 5, "b: begins at byte 3 of the data" },
    { "{" TENSOR("a", "U8", "2", 1, 3) "}", 3, "a: begins at byte 1 of the data" },
    { "{" TENSOR("a", "U8", "2", 0, 2) "}", 3, "end at byte 2 of the data, which has 3" },
    { "{" TENSOR("a", "U8", "1", 0, 1) "," TENSOR("a", "U8", "1", 0, 1) "}", 1, "duplicate" },
    { "{\"__metadata__\":[]}", 0, "__metadata__: is not a JSON object" },
    { "{\"__metadata__\":{\"a\":1}}", 0, "__metadata__: has a value that is not a string" },
};

static void refuses_to_read(void **state) {
    (void)state;
    struct sgrad_safetensors file;
    unsigned char bytes[512] = { 0 };
    for (size_t i = 0; i < sizeof malformed / sizeof *malformed; i++) {
        uint64_t length = strlen(malformed[i].header);
        memcpy(bytes, &length, 8);
        memcpy(bytes + 8, malformed[i].header, length);
        assert_fails(sgrad_safetensors_parse("file", bytes, 8 + length + malformed[i].data, &file), SGRAD_EFORMAT,
                     malformed[i].reason);
    }
    assert_fails(sgrad_safetensors_parse("file", bytes, 7, &file), SGRAD_EFORMAT, "file: byte 7: the file ends here");
    memcpy(bytes, "PK\3\4", 4);
    assert_fails(sgrad_safetensors_parse("file.pt", bytes, sizeof bytes, &file), SGRAD_EFORMAT,
                 "file.pt: is an archive, written by torch.save");
    memcpy(bytes, "\x80\2\x8a\nl\xfc\x9c\x46", 8); /* as of PyTorch 1.5 */
    assert_fails(sgrad_safetensors_parse("file.pth", bytes, sizeof bytes, &file), SGRAD_EFORMAT,
                 "file.pth: is a pickle, written by torch.save");
    bytes[2] = bytes[3] = 0; /* the end of a longer file is missing */
    memset(bytes + 4, 0, 4);
    assert_fails(sgrad_safetensors_parse("file", bytes, sizeof bytes, &file), SGRAD_EFORMAT, "a header of 640 bytes");
    for (uint64_t length = 505; length; length *= 1009) { /* beyond the end, then beyond 2^63 and around */
        memcpy(bytes, &length, 8);
        assert_fails(sgrad_safetensors_parse("file", bytes, sizeof bytes, &file), SGRAD_EFORMAT, "byte 0: states a header of ");
        if (length > UINT64_MAX / 1009) break;
    }
}

/* What has a type that is not loaded is listed, and everything else is read. */
static void other_types(void **state) {
    (void)state;
    static const char header[] = "{" TENSOR("mask", "BOOL", "2,1,1,1,1,1,1", 4, 6) "," TENSOR("x", "F32", "1", 0, 4) ","
                                 TENSOR("y", "F8_E4M3", "3", 6, 9) "," TENSOR("z", "F4", "4", 9, 11) "}";
    unsigned char bytes[512] = { 0 };
    const uint64_t length = sizeof header - 1;
    const float x = 7;
    float found = 0;
    struct sgrad_safetensors file;
    memcpy(bytes, &length, 8);
    memcpy(bytes + 8, header, length);
    memcpy(bytes + 8 + length, &x, 4);
    assert_done(sgrad_safetensors_parse("file", bytes, 8 + length + 11, &file));
    assert_int_equal(file.count, 1);
    assert_int_equal(file.others, 3);
    assert_done(sgrad_safetensors_read(&file, sgrad_safetensors_find(&file, "x"), &found));
    assert_equal(found, 7);
    assert_string_equal(sgrad_safetensors_other(&file, "mask"), "BOOL");
    assert_string_equal(sgrad_safetensors_other(&file, "z"), "F4");
    assert_null(sgrad_safetensors_other(&file, "x"));
    assert_null(sgrad_safetensors_find(&file, "mask"));
    sgrad_safetensors_close(&file);
}

/* Files of other kinds are called by their names. */
static void other_files(void **state) {
    (void)state;
    static const struct {
        const char *bytes, *text;
    } is[] = {
        { "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 548105171\n",
          "is a Git LFS pointer, not safetensors; run 'git lfs" },
        { "<!DOCTYPE html>\n<html>", "is an HTML page" },
        { "\n  <HTML lang=en>", "is an HTML page" },
        { "<?xml version=\"1.0\"?><Error>", "is an XML document" },
        { "{\"architectures\": [\"GPT2LMHeadModel\"]}", "is JSON text, neither safetensors nor an index" },
        { "{\"weight_map\": {}}", "is JSON text, neither safetensors nor an index" },
        { "\x1f\x8b\x08\1\1\1\1\1\1", "is a gzip file, not safetensors; unpack it" },
        { "\x93NUMPY\1\1v\1{", "is a NumPy array" },
        { "GGUF\3\1\1\1\1\1", "is a GGUF file" },
        { "\x89HDF\r\n\x1a\n\1", "is an HDF5 file" },
    };
    struct sgrad_safetensors file;
    for (size_t i = 0; i < sizeof is / sizeof *is; i++)
        assert_fails(sgrad_safetensors_open(scratch_write("other", is[i].bytes, strlen(is[i].bytes)), &file), SGRAD_EFORMAT,
                     is[i].text);
}

/* ---- an index of several files ---- */

#define INDEX(map) "{\"metadata\": {\"total_size\": 1}, \"weight_map\": {" map "}}"
#define IN(tensor, file) "\"" tensor "\": \"" file "\""

static const char *write_index(const char *text) { return scratch_write("a.index.json", text, strlen(text)); }

static void shards(void **state) {
    (void)state;
    static const struct {
        int error;
        const char *map, *text;
    } wrong[] = {
        { SGRAD_EIO, INDEX(IN("fc.weight", "3.safetensors")), "3.safetensors: No such file" },
        { SGRAD_EFORMAT, INDEX(IN("fc.weight", "2.safetensors")), "but that file does not have it" },
        { SGRAD_EFORMAT, INDEX(IN("nothing", "1.safetensors")), "lists tensor nothing in" },
        { SGRAD_EFORMAT, INDEX(IN("fc.weight", "1.safetensors") "," IN("half", "both.safetensors")), "is in two files" },
        { SGRAD_EFORMAT, INDEX(IN("fc.weight", "/etc/passwd")), "'/etc/passwd' is not a file in the index's folder" },
        { SGRAD_EFORMAT, INDEX(IN("fc.weight", "a/../../x")), "'a/../../x' is not a file in" },
        { SGRAD_EFORMAT, INDEX("\"fc.weight\": 7"), "is not a file in" },
        { SGRAD_EFORMAT, INDEX(IN("fc.weight", "a.index.json")), "is JSON text, not safetensors" },
    };
    struct sgrad_safetensors file;
    unsigned char data[100];
    char one[SGRAD_CHECKSUM], other[SGRAD_CHECKSUM];
    assert_done(sgrad_safetensors_write(scratch_path("1.safetensors"), entries, 3, metadata, 2));
    assert_done(sgrad_safetensors_write(scratch_path("2.safetensors"), entries + 3, ENTRIES - 3, metadata, 2));
    assert_done(sgrad_safetensors_write(scratch_path("both.safetensors"), entries, 2, metadata, 2));
    assert_done(sgrad_safetensors_open(write_index(INDEX(IN("fc.weight", "1.safetensors") "," IN("half", "1.safetensors")
                                                         "," IN("label", "2.safetensors"))), &file));
    assert_int_equal(file.count, ENTRIES);
    for (int i = 0; i < ENTRIES; i++) {
        const struct sgrad_entry *entry = sgrad_safetensors_find(&file, entries[i].name);
        assert_non_null(entry);
        assert_done(sgrad_safetensors_read(&file, entry, data));
        assert_memory_equal(data, entries[i].data, sgrad_view_bytes(&entry->view));
    }
    assert_done(sgrad_safetensors_file_checksum(&file, one));
    sgrad_safetensors_checksum(entries, ENTRIES, other);
    assert_string_equal(one, other);
    sgrad_safetensors_close(&file);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_fails(sgrad_safetensors_open(write_index(wrong[i].map), &file), wrong[i].error, wrong[i].text);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        sentence("a safetensors file that was written is read again", comes_back),
        sentence("a safetensors file that is truncated while it is open is an error", shortened),
        sentence("a safetensors file without tensors is written and read", empty_file),
        sentence("names that occur twice or are not UTF-8 are refused", refuses_to_write),
        sentence("a truncated safetensors file is refused, and a flipped bit does no harm", damaged),
        sentence("a malformed safetensors file is refused with its reason", refuses_to_read),
        sentence("tensors of other types are listed, and the others are read", other_types),
        sentence("a file of another format is refused by the name of its format", other_files),
        sentence("an index of several safetensors files is read as one file", shards),
    };
    return run_sentences(argc, argv, tests, scratch_open, scratch_close);
}
