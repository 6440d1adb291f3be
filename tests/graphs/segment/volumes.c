/* volumes.c: segmentation of volumes patch by patch: an identity network does not change a volume, there are no seams, the
 * result does not depend on the division of the work. Patches of a data set: those of a grid cover every voxel once, random
 * ones are reproducible. */
#include "config.h"
#include "codelets/operations.h"
#include "datasets/datasets.h"
#include "graphs/graphs.h"
#include "tests/scratch.h"
#include "volumes/volumes.h"

#include <math.h>
#include <unistd.h>

enum { Z = 20, Y = 150, X = 170, VOXELS = Z * Y * X };
static uint8_t pixels[VOXELS];

static void write_voxels(const char *name, const int64_t size[4], enum sgrad_voxel voxel, const void *voxels) {
    struct sgrad_volume *v;
    const struct sgrad_box all = { { 0 }, { size[0], size[1], size[2], size[3] } };
    assert_done(sgrad_volume_create(scratch_path(name), voxel, all.size, (int64_t[]){ 1, 7, 64, 50 }, &v));
    assert_done(sgrad_volume_write(v, &all, voxel, voxels));
    assert_done(sgrad_volume_finish(v));
    sgrad_volume_close(v);
}
static void write_volume(const char *name, const uint8_t *voxels) {
    write_voxels(name, (int64_t[]){ 1, Z, Y, X }, SGRAD_VOXEL_U8, voxels);
}

static int make_files(void **state) {
    int error = scratch_open(state);
    for (int i = 0; i < VOXELS; i++) pixels[i] = (uint8_t)(((uint32_t)i * 2654435761u >> 13) % 251);
    write_volume("in.zarr", pixels);
    return error;
}

/* What goes in, and a filter of 3x3x3. */
static int build_identity(struct sgrad_graph *graph, int x, int classes) {
    (void)classes;
    return sgrad_layer(graph, identity, "identity", (x), 0);
}
static int build_filter(struct sgrad_graph *graph, int x, int classes) {
    return sgrad_layer(graph, conv3d, "out", (x), .channels = classes, .kernel = 3, .padding = 1, .bias = true);
}
static const struct sgrad_model identity = { .name = "identity", .build = build_identity };
static const struct sgrad_model filter = { .name = "filter", .build = build_filter };

static struct sgrad_segment_result result;

#define ONE_BLOCK 0.01      /* GB: enough for chunks of a block, not for those of two */

static float *segment(struct sgrad_segment_options o) {
    struct sgrad_volume *v;
    float *voxels = malloc((size_t)o.classes * VOXELS * sizeof *voxels);
    if (!o.in) o.in = scratch_path("in.zarr");
    o.logits = !o.bytes;
    o.bytes = false;
    o.cpus = 2;
    o.gpus = -1;
    if (!o.memory) o.memory = 1;
    assert_done(sgrad_segment(&o, &result));
    if (!o.queue) assert_int_equal(result.voxels, VOXELS);
    assert_done(sgrad_volume_open(o.out, &v));
    assert_done(sgrad_volume_read(v, &(struct sgrad_box){ { 0 }, { o.classes, Z, Y, X } }, SGRAD_VOXEL_F32, voxels));
    sgrad_volume_close(v);
    return voxels;
}

static void goes_through(void **state) {
    (void)state;
    float *out = segment((struct sgrad_segment_options){ .custom_model = &identity,
                                                         .classes = 1,
                                                         .out = scratch_path("identity.zarr"),
                                                         .patch = { 8, 64, 48 },
                                                         .overlap = { 3, 20, 17 },
                                                         .memory = ONE_BLOCK });
    for (int i = 0; i < VOXELS; i++)
        if (!(fabsf(out[i] - (float)pixels[i] / 255) < 1e-5f)) fail_msg("voxel %d: %g, not %g", i, out[i], pixels[i] / 255.0);
    free(out);
}

/* A volume smaller than a patch, and one voxel's overlap. */
static void larger_patch(void **state) {
    (void)state;
    float *out = segment((struct sgrad_segment_options){ .custom_model = &identity, .classes = 1, .out = scratch_path("large.h5"),
                                                         .patch = { 32, 160, 64 }, .overlap = { 0, 0, 1 }, .batch = 3 });
    for (int i = 0; i < VOXELS; i++) assert_near(out[i], (float)pixels[i] / 255, 1e-5f);
    free(out);
}

/* In the whole at once, and in patches with chunks of one block: the same but at the volume's own faces. */
static void no_seams(void **state) {
    (void)state;
    float *whole = segment((struct sgrad_segment_options){
        .custom_model = &filter, .classes = 2, .out = scratch_path("whole.zarr"), .patch = { Z, Y, X } });
    float *parts = segment((struct sgrad_segment_options){ .custom_model = &filter,
                                                           .classes = 2,
                                                           .out = scratch_path("parts.zarr"),
                                                           .patch = { 10, 64, 64 },
                                                           .overlap = { 5, 24, 24 },
                                                           .memory = ONE_BLOCK });
    assert_memory_equal(result.chunk, result.block, sizeof result.chunk);
    for (int c = 0; c < 2; c++)
        for (int z = 1; z < Z - 1; z++)
            for (int y = 1; y < Y - 1; y++)
                for (int x = 1; x < X - 1; x++) {
                    const int i = ((c * Z + z) * Y + y) * X + x;
                    if (!(fabsf(whole[i] - parts[i]) < 1e-4f))
                        fail_msg("%d,%d,%d,%d: %g, not %g", c, z, y, x, parts[i], whole[i]);
                }
    free(whole);
    free(parts);
}

/* Images of 16 bits and of real numbers are of the same scale as those of bytes. */
static void other_types(void **state) {
    static uint16_t deep[VOXELS];
    static float real[VOXELS];
    (void)state;
    for (int i = 0; i < VOXELS; i++) deep[i] = (uint16_t)(257 * pixels[i]), real[i] = (float)pixels[i] / 255;
    write_voxels("deep.zarr", (int64_t[]){ 1, Z, Y, X }, SGRAD_VOXEL_U16, deep);
    write_voxels("real.zarr", (int64_t[]){ 1, Z, Y, X }, SGRAD_VOXEL_F32, real);
    static const char *const files[][2] = { { "deep.zarr", "deep-out.zarr" }, { "real.zarr", "real-out.zarr" } };
    for (int f = 0; f < 2; f++) {
        float *out = segment((struct sgrad_segment_options){ .custom_model = &identity, .classes = 1,
                                                             .in = scratch_path(files[f][0]),
                                                             .out = scratch_path(files[f][1]), .patch = { Z, Y, X } });
        for (int i = 0; i < VOXELS; i++) assert_near(out[i], (float)pixels[i] / 255, 1e-5f);
        free(out);
    }
    real[VOXELS / 2] = 1.5f;
    write_voxels("wrong.zarr", (int64_t[]){ 1, Z, Y, X }, SGRAD_VOXEL_F32, real);
    struct sgrad_segment_options o = { .custom_model = &identity, .classes = 1, .in = scratch_path("wrong.zarr"), .memory = 1,
                                       .out = scratch_path("wrong-out.zarr"), .patch = { Z, Y, X }, .cpus = 2, .gpus = -1 };
    assert_fails(sgrad_segment(&o, &result), SGRAD_EFORMAT, "voxel of 1.5");
}

/* What memory does not hold is refused before anything is written. */
static void too_much(void **state) {
    struct sgrad_segment_options o = { .custom_model = &filter, .classes = 2, .in = scratch_path("in.zarr"), .memory = 0.004,
                                       .out = scratch_path("too-much.zarr"), .patch = { 10, 64, 64 }, .cpus = 2, .gpus = -1 };
    (void)state;
    assert_fails(sgrad_segment(&o, &result), SGRAD_EINVAL, "more than --memory 0.004");
    assert_int_not_equal(access(o.out, F_OK), 0);
}

/* Mirror images: what goes in comes out; and of a mirrored volume the mirrored result, though no filter is its own image. */
static void mirror_images(void **state) {
    static uint8_t turned[VOXELS];
    (void)state;
    float *out = segment((struct sgrad_segment_options){ .custom_model = &identity, .classes = 1, .flips = true,
                                                         .out = scratch_path("flips.zarr"), .patch = { 8, 64, 48 },
                                                         .overlap = { 3, 20, 17 }, .memory = ONE_BLOCK });
    /* Sums are of whole 2^-20, rounded for each of 8 images of 8 patches. */
    for (int i = 0; i < VOXELS; i++) assert_near(out[i], (float)pixels[i] / 255, 4e-5f);
    free(out);
    for (int i = 0; i < VOXELS; i++) turned[i] = pixels[VOXELS - 1 - i];
    write_volume("turned.zarr", turned);
    for (int flips = 0; flips < 2; flips++) {
        float *one = segment((struct sgrad_segment_options){ .custom_model = &filter, .classes = 2, .flips = flips,
                                                             .out = scratch_path(flips ? "one.zarr" : "one-plain.zarr"),
                                                             .patch = { Z, Y, X } });
        assert_int_equal(result.patches, flips ? 8 : 1);
        float *other = segment((struct sgrad_segment_options){ .custom_model = &filter, .classes = 2, .flips = flips,
                                                               .in = scratch_path("turned.zarr"),
                                                               .out = scratch_path(flips ? "other.zarr" : "other-plain.zarr"),
                                                               .patch = { Z, Y, X } });
        float most = 0;
        for (int i = 0; i < 2 * VOXELS; i++)
            most = fmaxf(most, fabsf(one[i] - other[i / VOXELS * VOXELS + VOXELS - 1 - i % VOXELS]));
        assert_true(flips ? most < 1e-4f : most > 1e-2f);
        free(one);
        free(other);
    }
}

/* Where a block has zeros alone, or a mask has zeros, zeros are written, whatever the size of chunks; all else is as without. */
static void blank(void **state) {
    static uint8_t holes[VOXELS], half[Z * Y / 2 * X / 2];
    (void)state;
    memcpy(holes, pixels, sizeof holes);
    for (int i = 0; i < VOXELS; i++)
        if (i / (Y * X) < 16 && i / X % Y < 128 && i % X >= 128) holes[i] = 0;
    for (int i = 0; i < Z * Y / 2 * X / 2; i++) half[i] = i % 3 != 0 && i % (X / 2) < 64;
    write_volume("holes.zarr", holes);
    write_voxels("half.zarr", (int64_t[]){ 1, Z, Y / 2, X / 2 }, SGRAD_VOXEL_U8, half);
    struct sgrad_segment_options o = { .custom_model = &filter, .classes = 2, .bytes = true /* probabilities */,
                                       .patch = { 10, 64, 64 }, .overlap = { 5, 24, 24 }, .in = scratch_path("holes.zarr") };
    o.out = scratch_path("holes-1.zarr");
    float *once = segment(o);
    assert_int_equal(result.blank, 1);
    o.out = scratch_path("holes-2.zarr"), o.memory = ONE_BLOCK;
    float *small = segment(o);
    assert_memory_equal(once, small, 2 * VOXELS * sizeof *once);
    o.out = scratch_path("masked.zarr"), o.mask = scratch_path("half.zarr");
    float *masked = segment(o);
    assert_int_equal(result.blank, 4);      /* those from x = 128 on, of which one was */
    for (int i = 0; i < VOXELS; i++) {
        const int z = i / (Y * X), y = i / X % Y, x = i % X;
        assert_true((z < 16 && y < 128 && x >= 128) == (once[i] == 0));
        assert_true(masked[i] == (half[(z * (Y / 2) + y / 2) * (X / 2) + x / 2] ? once[i] : 0));
    }
    o.mask = scratch_path("set-mask.zarr");
    write_voxels("set-mask.zarr", (int64_t[]){ 1, Z, Y, X / 3 }, SGRAD_VOXEL_U8, pixels);
    o.out = scratch_path("never.zarr");
    assert_fails(sgrad_segment(&o, &result), SGRAD_ESHAPE, "sides that divide");
    free(once);
    free(small);
    free(masked);
}

/* By a queue: the same bits; then nothing is left. */
static void shared(void **state) {
    struct sgrad_segment_options o = { .custom_model = &filter, .classes = 2, .patch = { 10, 64, 64 }, .overlap = { 5, 24, 24 },
                                       .memory = ONE_BLOCK };
    struct sgrad_segment_result again;
    (void)state;
    o.out = scratch_path("alone.zarr");
    float *alone = segment(o);
    o.out = scratch_path("queued.zarr");
    o.queue = scratch_path("queue");
    float *queued = segment(o);
    assert_memory_equal(alone, queued, 2 * VOXELS * sizeof *alone);
    o.in = scratch_path("in.zarr"), o.logits = true, o.gpus = -1;
    assert_done(sgrad_segment(&o, &again));
    assert_int_equal(again.chunks, 0);
    o.queue = NULL;
    assert_done(sgrad_segment(&o, &again));
    assert_equal(again.chunks, 0);
    assert_equal(again.skipped, again.all_chunks);
    free(alone);
    free(queued);
}

/* ---- patches ------------------------------------------------------------------------------------------------------- */

static struct sgrad_dataset *open_patches(const char *name, enum sgrad_split split) {
    struct sgrad_dataset *d;
    char *text = sgrad_format("volume:%s,8x64x64", scratch_path(name));
    assert_done(sgrad_dataset_open(text, split, NULL, &d));
    free(text);
    return d;
}

static int make_set(void **state) {
    static uint8_t labels[VOXELS];
    int error = make_files(state);
    for (int i = 0; i < VOXELS; i++) labels[i] = i % 3 ? 255 : 0;
    static const char *const folders[] = { "set", "set/train", "set/val" };
    for (int i = 0; i < 3; i++) mkdir(scratch_path(folders[i]), 0777);
    write_volume("set/train/image.zarr", pixels);
    write_volume("set/train/label.zarr", labels);
    write_volume("set/val/image.zarr", pixels);
    write_volume("set/val/label.zarr", labels);
    return error;
}

static void grid(void **state) {
    enum { PATCH = 8 * 64 * 64 };
    struct sgrad_dataset *d = open_patches("set", SGRAD_TEST);
    uint8_t *pixel = malloc(PATCH);
    int32_t *label = malloc(PATCH * sizeof *label);
    int64_t counted = 0, sum = 0, wanted = 0, ones = 0;
    (void)state;
    assert_int_equal(d->count, 3 * 3 * 3);
    assert_int_equal(d->classes, 2);
    for (int64_t i = 0; i < d->count; i++) {
        assert_done(sgrad_dataset_read(d, &(struct sgrad_sample){ .index = i }, 1, (void *[]){ pixel, label }));
        for (int j = 0; j < PATCH; j++) {
            counted += label[j] >= 0;
            ones += label[j] == 1;
            sum += label[j] >= 0 ? pixel[j] : 0;
        }
    }
    for (int i = 0; i < VOXELS; i++) wanted += pixels[i];
    assert_int_equal(counted, VOXELS);
    assert_int_equal(sum, wanted);
    assert_int_equal(ones, VOXELS - (VOXELS + 2) / 3);
    free(pixel);
    free(label);
    sgrad_dataset_close(d);
}

/* Of several files that may be the image none is taken by chance; what is no volume does not count. */
static void one_image(void **state) {
    struct sgrad_dataset *d;
    char *data = sgrad_format("volume:%s,8x64x64", scratch_path("set"));
    (void)state;
    scratch_write("set/train/image.xml", "<a/>", 4);
    scratch_write("set/train/label.zarr.md5", "x", 1);
    scratch_write("set/train/label.raw", "x", 1);
    scratch_write("set/train/image.zarr.bak/.zarray", "{}", 2);
    scratch_write("set/train/image.old.tif", "x", 1);
    assert_done(sgrad_dataset_open(data, SGRAD_TRAIN, NULL, &d));
    sgrad_dataset_close(d);
    scratch_write("set/train/image.tif", "x", 1);
    assert_fails(sgrad_dataset_open(data, SGRAD_TRAIN, NULL, &d), SGRAD_EFORMAT, "only one of them can be the train image");
    assert_fails(sgrad_dataset_open(data, SGRAD_TEST, NULL, &d), SGRAD_EFORMAT, "only one of them can be the train image");
    unlink(scratch_path("set/train/image.tif"));
    free(data);
}

/* Labels that skip classes, or have one alone, are reported. */
static void unused_classes(void **state) {
    static uint8_t labels[VOXELS];
    static const struct {
        int label[2], classes;
        const char *says;
    } rows[] = {
        { { 0, 3 }, 4, "has 4 classes, but no training voxel of: 1, 2" },
        { { 0, 0 }, 2, "has 2 classes, but no training voxel of: 1" },
        { { 255, 255 }, 2, "has 2 classes, but no training voxel of: 0" },
        { { 1, 0 }, 2, "" },
        { { 0, 255 }, 2, "" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *names[3] = { sgrad_format("gaps%zu", i), sgrad_format("gaps%zu/train", i), NULL }, said[512];
        for (int k = 0; k < 2; k++) mkdir(scratch_path(names[k]), 0777);
        for (int k = 0; k < VOXELS; k++) labels[k] = (uint8_t)rows[i].label[k % 2];
        for (int k = 0; k < 2; k++) {
            names[2] = sgrad_format("%s/%s.zarr", names[1], k ? "label" : "image");
            write_volume(names[2], k ? labels : pixels);
            free(names[2]);
        }
        sgrad_log_capture(said, sizeof said);
        struct sgrad_dataset *d = open_patches(names[0], SGRAD_TRAIN);
        sgrad_log_capture(NULL, 0);
        assert_int_equal(d->classes, rows[i].classes);
        if (*rows[i].says) assert_contains(said, rows[i].says);
        else assert_string_equal(said, "");
        sgrad_dataset_close(d);
        free(names[0]);
        free(names[1]);
    }
}

static void drawn(void **state) {
    enum { PATCH = 8 * 64 * 64 };
    static uint8_t pixel[3][PATCH];
    static int32_t label[3][PATCH];
    struct sgrad_dataset *d = open_patches("set", SGRAD_TRAIN);
    struct sgrad_drawing how = { .seed = 7 };
    const int64_t index = 2;
    (void)state;
    for (int augmented = 0; augmented < 2; augmented++) {
        if (augmented) assert_done(sgrad_augmentations_parse(d->augment, 64, 64, &how.augmentations));
        for (int i = 0; i < 3; i++) {
            how.epoch = i == 2;
            assert_done(sgrad_dataset_draw(d, &(struct sgrad_sample){ .index = index }, 1, &how,
                                           (void *[]){ pixel[i], label[i] }));
        }
        assert_memory_equal(pixel[0], pixel[1], PATCH);
        assert_memory_equal(label[0], label[1], sizeof label[0]);
        assert_memory_not_equal(pixel[0], pixel[2], PATCH);
        for (int j = 0; j < PATCH; j++) assert_in_range(label[0][j] + 1, augmented ? 0 : 1, 2);
    }
    sgrad_dataset_close(d);
}

/* Labels of other types, some not known, and an image of 16 bits: the same patches, as bright. */
static void typed(void **state) {
    enum { PATCH = 8 * 64 * 64 };
    static int16_t labels[VOXELS];
    static uint16_t deep[VOXELS];
    static uint8_t pixel[PATCH];
    static uint16_t wide[PATCH];
    static int32_t label[2][PATCH];
    static const char *const folders[] = { "typed", "typed/train", "typed/val" };
    (void)state;
    for (int i = 0; i < VOXELS; i++) labels[i] = i % 7 == 0 ? -1 : i % 3 ? 1 : 0, deep[i] = (uint16_t)(257 * pixels[i]);
    for (int i = 0; i < 3; i++) mkdir(scratch_path(folders[i]), 0777);
    const int64_t size[] = { 1, Z, Y, X };
    write_voxels("typed/train/image.zarr", size, SGRAD_VOXEL_U16, deep);
    write_voxels("typed/train/label.zarr", size, SGRAD_VOXEL_I16, labels);
    write_voxels("typed/val/image.zarr", size, SGRAD_VOXEL_U16, deep);
    write_voxels("typed/val/label.zarr", size, SGRAD_VOXEL_I16, labels);
    struct sgrad_dataset *plain = open_patches("set", SGRAD_TRAIN), *d = open_patches("typed", SGRAD_TRAIN);
    struct sgrad_drawing how = { .seed = 7 };
    const int64_t index = 2;
    assert_equal(d->full_scale, 65535);
    assert_equal(d->field[0].dtype, SGRAD_U16);
    assert_equal(d->classes, 2);
    assert_done(sgrad_augmentations_parse("flip,brightness", 64, 64, &how.augmentations));
    assert_done(sgrad_dataset_draw(plain, &(struct sgrad_sample){ .index = index }, 1, &how, (void *[]){ pixel, label[0] }));
    assert_done(sgrad_dataset_draw(d, &(struct sgrad_sample){ .index = index }, 1, &how, (void *[]){ wide, label[1] }));
    int unknown = 0;
    for (int i = 0; i < PATCH; i++) {
        assert_true(abs(wide[i] - 257 * pixel[i]) <= 129);
        assert_true(label[1][i] == -1 || label[1][i] == label[0][i]);
        unknown += label[1][i] == -1;
    }
    assert_in_range(unknown, PATCH / 8, PATCH / 6);
    sgrad_dataset_close(plain);
    sgrad_dataset_close(d);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        sentence("a volume goes through an identity network unchanged", goes_through),
        sentence("a patch may be larger than its volume", larger_patch),
        sentence("a volume segmented in patches has no seams", no_seams),
        sentence("volumes of 16 bits and of real numbers have the scale of bytes", other_types),
        sentence("a mirrored volume has the mirrored result with --flips", mirror_images),
        sentence("blank and masked blocks are left out, and all others stay the same", blank),
        sentence("processes that share a queue give the same bits as one", shared),
        sentence("the patches of the test set have every voxel once", grid),
        sentence("a volume set whose image may be one of several files is refused", one_image),
        sentence("labels that skip a class are reported", unused_classes),
        sentence("a random patch depends only on seed, epoch and sample", drawn),
        sentence("labels of other types and images of 16 bits give the same patches", typed),
        sentence("a patch that does not fit into memory is refused before any output is written", too_much),
    };
    return run_sentences(argc, argv, tests, make_set, scratch_close);
}
