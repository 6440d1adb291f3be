/* Hashes equal those of imagededup 0.3.3 with Pillow 13.0.0 for images of these sizes (docs/guides/dedup.md describes the
 * others): ahash and dhash in every bit, phash and whash in all but a few. The numbers are the results of encode_image for the
 * images of the function draw. Also: hashes of 256 bits, and the file hashes.bin, valid and damaged. */
#include "config.h"
#include "duplicates/internal.h"
#include "tests/scratch.h"

static const struct {
    int height, width, channels, kind;
    uint64_t hash[4]; /* ahash, dhash, phash, whash */
} images[] = {
    { 32, 32, 3, 0, { 0x0386a28ff81b11ed, 0x363c4a0a5152d329, 0xbd352a0cba25e7e4, 0x8b87a28df83b518d } },
    { 32, 32, 3, 1, { 0x030f3ffffef8c000, 0xfffffffef0410527, 0xef803e43947e485f, 0x010f3ffffef0c000 } },
    { 32, 32, 3, 2, { 0xb44b4bb4ff4bb44b, 0x2d92922500922dd2, 0xde065e067e06fe16, 0xb45e4b945e4b944b } },
    { 32, 32, 3, 3, { 0xffffffffffffffff, 0x0000000000000000, 0xffffffffffffffff, 0xffffffffffffffff } },
    { 64, 48, 3, 0, { 0x743e21e59ed389d9, 0xa16c4d4d28a61a3b, 0xdf0649745a73ec13, 0x5c36a1651ee30ed9 } },
    { 64, 48, 3, 1, { 0x1ffef000073ffce0, 0xfef0810ffffce003, 0xc083d7953e686f4b, 0x0ffef000073ffcc0 } },
    { 64, 48, 3, 2, { 0xb54ab54a00b54ab5, 0x55aa55aa0055aa55, 0xff00ff00ff00ff01, 0xb4ff4b94ff4b946b } },
    { 64, 48, 3, 3, { 0xffffffffffffffff, 0x0000000000000000, 0xffffffffffffffff, 0xffffffffffffffff } },
    { 9, 100, 3, 0, { 0x2e097998ccc9e1e5, 0x5a93915511138a4d, 0xf915273197658be2, 0x6e49719bccc9e0e1 } },
    { 9, 100, 3, 1, { 0x3838387878707071, 0xf1f1f1f1e3e3e3e3, 0xc81b334c731f6d36, 0x3c387878787871f1 } },
    { 9, 100, 3, 2, { 0xb2b2b24d4db2b2b2, 0x4242429191424242, 0xffffffffaeffafff, 0xcccccc3333cccccc } },
    { 9, 100, 3, 3, { 0xffffffffffffffff, 0x0000000000000000, 0xffffffffffffffff, 0xffffffffffffffff } },
    { 28, 28, 1, 0, { 0xbf8adc20a8e4e7ec, 0x6a323555298855d8, 0xda0db1c743a6d2da, 0xbd0ad5a028f497ec } },
    { 28, 28, 1, 1, { 0x0000030f7ffffffc, 0xfffffffffffffcf0, 0x852a57a748b76a97, 0x000001073ffffffc } },
    { 28, 28, 1, 2, { 0x6d926d6d926d926d, 0xc936c9c936c936c9, 0xa3fb83eb03e303a3, 0x6d922d2d926d926d } },
    { 28, 28, 1, 3, { 0xffffffffffffffff, 0x0000000000000000, 0xffffffffffffffff, 0xffffffffffffffff } },
    { 1, 1, 3, 0, { 0xffffffffffffffff, 0x0000000000000000, 0xffffffffffffffff, 0xffffffffffffffff } },
    { 1, 1, 3, 1, { 0xffffffffffffffff, 0x0000000000000000, 0xffffffffffffffff, 0xffffffffffffffff } },
    { 1, 1, 3, 2, { 0xffffffffffffffff, 0x0000000000000000, 0xffffffffffffffff, 0xffffffffffffffff } },
    { 1, 1, 3, 3, { 0xffffffffffffffff, 0x0000000000000000, 0xffffffffffffffff, 0xffffffffffffffff } },
    { 300, 200, 3, 0, { 0x8913140c49c14535, 0x1126ac3989879169, 0xaa1daf69531b46d2, 0x8993171c6dd1457d } },
    { 300, 200, 3, 1, { 0xd9362aed7b39d966, 0xb3c45019424392cc, 0xd3b852e852f852f9, 0x6c742ccd5d6d4c49 } },
    { 300, 200, 3, 2, { 0xb24db2ffff4db24d, 0x52a5520000a552a5, 0xffaaffaaffffffff, 0xaaaa5555aaaa5555 } },
    { 300, 200, 3, 3, { 0xffffffffffffffff, 0x0000000000000000, 0xffffffffffffffff, 0xffffffffffffffff } },
    { 256, 256, 3, 0, { 0x84292ca48489d6e2, 0x505bd9545413a88e, 0xf71bac3c769a0b12, 0x876c2de6a4b9cae0 } },
    { 256, 256, 3, 1, { 0x96298a8d783ed22d, 0x2449222a80443649, 0x8e54aef4a8fcc1d4, 0xb496d25a4b692da5 } },
    { 256, 256, 3, 2, { 0xbd42bdbdffbd42bd, 0x45a245450045a245, 0xfad5fad5fad5fa7f, 0xe7ff39e7ff39e7ff } },
    { 256, 256, 3, 3, { 0xffffffffffffffff, 0x0000000000000000, 0xffffffffffffffff, 0xffffffffffffffff } },
    { 8, 8, 1, 0, { 0xa773502c8f049cb8, 0x2da6b55933cc7942, 0xdaa0e7b6bf1a02b8, 0xe77b502c8f04bcb8 } },
    { 8, 8, 1, 1, { 0x0001250f3affffff, 0x495b699d7233ad5e, 0xab0b0bec55b2cec6, 0x000101071bffff7f } },
    { 8, 8, 1, 2, { 0x070707f8f8f80707, 0x2d2d2d1212122d2d, 0xb63636c9c936c936, 0x070707fcf8f80f07 } },
    { 8, 8, 1, 3, { 0xffffffffffffffff, 0x0000000000000000, 0xffffffffffffffff, 0xffffffffffffffff } },
};
enum { IMAGES = sizeof images / sizeof *images };

static uint8_t value(int kind, int y, int x, int c, unsigned noise) {
    switch (kind) {
    case 0: return (uint8_t)noise;
    case 1: return (uint8_t)(7 * y + 3 * x + 40 * c + (int)(noise >> 3));
    case 2: return (y / 3 + x / 5 + c) % 2 ? 255 : 0;
    default: return 90;
    }
}

/* Free its pixels. */
static struct sgrad_picture draw(int height, int width, int channels, int kind) {
    struct sgrad_picture p = { .height = height, .width = width, .channels = channels };
    uint8_t *to = p.pixels = malloc((size_t)(height * width * channels));
    uint32_t state = (uint32_t)kind + 1;
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++)
            for (int c = 0; c < channels; c++) {
                state = (state * 1103515245u + 12345u) & 0x7fffffff;
                *to++ = value(kind, y, x, c, state >> 16 & 255);
            }
    return p;
}

static const struct sgrad_hash_kind *kind_of(const char *name) {
    const struct sgrad_hash_kind *kind = sgrad_registry_find("hash", name, sgrad_hash_kinds);
    assert_non_null(kind);
    return kind;
}

static void as_imagededup(void **state) {
    (void)state;
    static const char *const names[] = { "ahash", "dhash", "phash", "whash" };
    for (int k = 0; k < 4; k++) {
        int different = 0;
        for (int i = 0; i < IMAGES; i++) {
            struct sgrad_picture p = draw(images[i].height, images[i].width, images[i].channels, images[i].kind);
            uint64_t word[SGRAD_HASH_WORDS];
            sgrad_hash_picture(kind_of(names[k]), 8, &p, word);
            const int bits = __builtin_popcountll(word[0] ^ images[i].hash[k]);
            if (bits) printf("%s: image %d: %d bits\n", names[k], i, bits);
            /* Where an image repeats itself frequencies and means are equal but for rounding: which is the larger is chance. */
            if (images[i].kind != 2 || k < 2) different += bits;
            free(p.pixels);
        }
        assert_true(different <= (k < 2 ? 0 : 64 * IMAGES / 200));
    }
}

/* The same at every level of instructions is seen by running the test with STARGRAD_MAX_ISA; here: a scaler that has seen other
 * sizes is none the worse. */
static void one_scaler(void **state) {
    (void)state;
    struct sgrad__scaler scaler = { 0 };
    uint8_t *grey = malloc(SGRAD__GREY_MOST);
    for (int i = 0; i < 2 * IMAGES; i++) {
        const int n = i % 2 ? i / 2 : IMAGES - 1 - i / 2;
        struct sgrad_picture p = draw(images[n].height, images[n].width, images[n].channels, images[n].kind);
        uint64_t word;
        sgrad__hash(kind_of("dhash"), 8, &p, &scaler, grey, &word);
        assert_int_equal(word, images[n].hash[1]);
        free(p.pixels);
    }
    sgrad__scaler_free(&scaler);
    free(grey);
}

/* 256 bits of an image that is brighter and smaller are nearly the same; of another, nearly half are. */
static void long_hashes(void **state) {
    (void)state;
    for (const struct sgrad_hash_kind *const *k = sgrad_hash_kinds; *k; k++) {
        struct sgrad_picture a = draw(64, 48, 3, 1), b = draw(64, 48, 3, 1), c = draw(64, 48, 3, 0);
        uint64_t one[SGRAD_HASH_WORDS], near[SGRAD_HASH_WORDS], far[SGRAD_HASH_WORDS];
        for (int i = 0; i < 64 * 48 * 3; i++) b.pixels[i] = (uint8_t)(b.pixels[i] < 250 ? b.pixels[i] + 3 : b.pixels[i]);
        sgrad_hash_picture(*k, 16, &a, one);
        sgrad_hash_picture(*k, 16, &b, near);
        sgrad_hash_picture(*k, 16, &c, far);
        assert_true(sgrad_hash_distance(one, near, 4) < 40);
        assert_true(sgrad_hash_distance(one, far, 4) > 70);
        free(a.pixels);
        free(b.pixels);
        free(c.pixels);
    }
}

/* ---- hashes.bin ---------------------------------------------------------------------------------------------------- */

enum { COUNT = 5 };

static const char *write_store(int bits) {
    uint64_t word[COUNT * SGRAD_HASH_WORDS], stamp[COUNT] = { 9, 1, 1ull << 63, 4, 2 };
    uint8_t state[COUNT] = { 0, SGRAD_IMAGE_DEEP, SGRAD_IMAGE_DAMAGED, SGRAD_IMAGE_ANIMATED | SGRAD_IMAGE_SKIPPED, 0 };
    for (int i = 0; i < COUNT * SGRAD_HASH_WORDS; i++) word[i] = 0x123456789abcdefull * (uint64_t)(i + 1);
    const struct sgrad_hashes h = { kind_of("phash"), bits, bits / 64, COUNT, COUNT, word, stamp, state, 0 };
    const char *path = scratch_path("hashes.bin");
    assert_done(sgrad__store_write(path, &h));
    return path;
}

static void whole_file(void **state) {
    (void)state;
    for (int bits = 64; bits <= 256; bits *= 4) {
        struct sgrad__store store = { 0 };
        const char *path = write_store(bits);
        assert_done(sgrad__store_open(path, kind_of("phash"), bits, &store));
        assert_int_equal(store.count, COUNT);
        const struct sgrad__record *r = sgrad__store_find(&store, 1ull << 63);
        assert_non_null(r);
        assert_int_equal(r->state, SGRAD_IMAGE_DAMAGED);
        assert_int_equal(r->word[0], 0x123456789abcdefull * (uint64_t)(2 * bits / 64 + 1));
        assert_int_equal(sgrad__store_find(&store, 4)->state, SGRAD_IMAGE_ANIMATED);
        assert_null(sgrad__store_find(&store, 3));
        free(store.record);
        const struct { const char *kind; int bits; } others[] = { { "dhash", bits }, { "phash", 320 - bits } };
        for (int i = 0; i < 2; i++) {
            assert_done(sgrad__store_open(path, kind_of(others[i].kind), others[i].bits, &store));
            assert_int_equal(store.count, 0);
            free(store.record);
        }
    }
}

/* Every byte changed, every length: told by name, nothing taken, nothing leaked. */
static void damaged_file(void **state) {
    (void)state;
    struct sgrad_map map;
    assert_done(sgrad_map_open(write_store(64), 1 << 20, &map));
    unsigned char *bytes = malloc(map.size);
    struct sgrad__store store = { .count = -7 };
    for (size_t i = 0; i < map.size; i++) {
        memcpy(bytes, map.data, map.size);
        bytes[i] ^= 0x41;
        assert_fails(sgrad__store_parse("there/hashes.bin", bytes, map.size, kind_of("phash"), 64, &store), SGRAD_EFORMAT,
                     "there/hashes.bin: byte ");
        assert_fails(sgrad__store_parse("there/hashes.bin", map.data, i, kind_of("phash"), 64, &store), SGRAD_EFORMAT,
                     "there/hashes.bin: byte ");
    }
    assert_int_equal(store.count, -7);
    free(bytes);
    sgrad_map_close(&map);
    assert_done(sgrad__store_open(scratch_path("none"), kind_of("phash"), 64, &store));
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        sentence("hashes equal those of imagededup", as_imagededup),
        sentence("a hash does not depend on the images that were hashed before", one_scaler),
        sentence("hashes of 256 bits are near for similar images and far for others", long_hashes),
        sentence("a file of hashes is read again, and one of another kind of hash is ignored", whole_file),
        sentence("a damaged file of hashes is refused, whichever byte is wrong", damaged_file),
    };
    return run_sentences(argc, argv, tests, scratch_open, scratch_close);
}
