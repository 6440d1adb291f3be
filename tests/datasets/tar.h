/* tar.h: for tests of shards: writes tar archives, and opens them as data sets. */
#ifndef SGRAD_TESTS_DATASETS_TAR_H
#define SGRAD_TESTS_DATASETS_TAR_H

#include "datasets/datasets.h"
#include "tests/scratch.h"

#include <fcntl.h>

static struct {
    char data[1 << 21];
    size_t size;
} tar;

static inline void put_block(const void *data, size_t size) {
    assert_true(tar.size + size + 1024 < sizeof tar.data);
    memcpy(tar.data + tar.size, data, size);
    tar.size += (size + 511) / 512 * 512;
}

/* A member, or another entry of TYPE, whose header states the SIZE: 12 bytes. */
static inline void put_header(const char *name, char type, const char *size, const char *link) {
    char header[512] = "";
    unsigned sum = 0;
    strncpy(header, name, 100);
    strcpy(header + 100, "0000644");
    memcpy(header + 124, size, 12);
    strcpy(header + 136, "00000000000");
    memset(header + 148, ' ', 8);
    header[156] = type;
    strncpy(header + 157, link, 100);
    memcpy(header + 257,
           "ustar\0"
           "00",
           8);
    for (int i = 0; i < 512; i++) sum += (unsigned char)header[i];
    snprintf(header + 148, 8, "%06o", sum);
    put_block(header, sizeof header);
}

static inline void put_entry(const char *name, char type, uint64_t size, const char *link) {
    char octal[32];
    snprintf(octal, sizeof octal, "%011llo", (unsigned long long)size);
    put_header(name, type, octal, link);
}

/* The same with SIZE in base 256: all eight bytes. */
static inline void put_wide_entry(const char *name, int64_t size) {
    char wide[12] = { size < 0 ? (char)0xff : (char)0x80 };
    memset(wide + 1, size < 0 ? 0xff : 0, 3);
    for (int i = 0; i < 8; i++) wide[4 + i] = (char)(unsigned char)((uint64_t)size >> (56 - 8 * i));
    put_header(name, '0', wide, "");
}

static inline void put(const char *name, const void *data, size_t size) {
    put_entry(name, '0', size, "");
    put_block(data, size);
}

static inline void put_text(const char *name, const char *text) { put(name, text, strlen(text)); }

/* An image of 2x2 pixels, all of this value. */
static inline void put_image(const char *name, int value) {
    char image[32] = "P6\n2 2\n255\n";
    const size_t header = strlen(image);
    memset(image + header, value, 12);
    put(name, image, header + 12);
}

/* A sample KEY with an integer label. */
static inline void put_sample(const char *key, int value, int label) {
    char name[64], text[16];
    snprintf(name, sizeof name, "%s.ppm", key);
    put_image(name, value);
    snprintf(name, sizeof name, "%s.cls", key);
    snprintf(text, sizeof text, "%d", label);
    put_text(name, text);
}

/* A pax header of TYPE 'x' with one RECORD, or GNU's long name. */
static inline void put_extension(char type, const char *text) {
    put_entry("././@LongLink", type, strlen(text) + (type == 'L'), "");
    put_block(text, strlen(text) + 1);
}

static inline void begin(void) { memset(&tar, 0, sizeof tar); }

static inline const char *save(const char *name) {
    put_block("", 0);
    tar.size += 1024;
    const char *path = scratch_write(name, tar.data, tar.size);
    begin();
    return path;
}

/* Shard NAME with COUNT samples; sample i has value FIRST + i and label (FIRST + i) % 3. */
static inline void make_shard(const char *name, int first, int count) {
    char key[32];
    begin();
    for (int i = first; i < first + count; i++) {
        snprintf(key, sizeof key, "dir/%04d", i);
        put_sample(key, i, i % 3);
    }
    save(name);
}

/* Sets the time of the last change of NAME to long ago. */
static inline void age(const char *name) {
    assert_int_equal(utimensat(AT_FDCWD, scratch_path(name), (struct timespec[]){ { 1000000000, 0 }, { 1000000000, 0 } }, 0), 0);
}

static inline int open_with(const char *pattern, enum sgrad_split split, struct sgrad_dataset_options options,
                            struct sgrad_dataset **dataset) {
    char text[600];
    snprintf(text, sizeof text, "tar:%s/%s", scratch_root, pattern);
    return sgrad_dataset_open(text, split, &options, dataset);
}

static inline int open_split(const char *pattern, enum sgrad_split split, struct sgrad_dataset **dataset) {
    return open_with(pattern, split, (struct sgrad_dataset_options){ 0 }, dataset);
}

/* The value of the pixels of sample I, which must all be equal. */
static inline int value_of(const struct sgrad_dataset *dataset, int64_t i, int32_t *label) {
    uint8_t pixels[12];
    assert_done(sgrad_dataset_read(dataset, &(struct sgrad_sample){ .index = i }, 1, (void *[]){ pixels, label }));
    for (int j = 1; j < 12; j++) assert_int_equal(pixels[j], pixels[0]);
    return pixels[0];
}

static inline int setup(void **state) {
    const int error = scratch_open(state);
    setenv("XDG_CACHE_HOME", scratch_root, 1);
    begin();
    return error;
}

#endif
