/* volumes.c: volumes that other libraries wrote (tests/reference/volumes.py), read in windows; volumes that we write, read
 * again; volumes that are refused. */
#include "config.h"
#include "tests/scratch.h"
#include "volumes/volumes.h"

#include <fcntl.h>
#include <math.h>
#include <sys/file.h>
#ifdef SGRAD_HAVE_TIFF
#include <tiffio.h>
#endif

enum { Z = 5, Y = 7, X = 9 };

static double voxel_at(int64_t z, int64_t y, int64_t x) { return (double)((100 * z + 10 * y + x) % 251); }

static char *data_path(const char *name) {
    const char *source = getenv("srcdir");
    return sgrad_format("%s/tests/reference/volumes/%s", source ? source : ".", name);
}

static void check_window(const struct sgrad_volume *volume, struct sgrad_box box) {
    float window[Z * Y * X];
    assert_done(sgrad_volume_read(volume, &box, SGRAD_VOXEL_F32, window));
    for (int64_t i = 0; i < sgrad_box_count(&box); i++) {
        const int64_t z = i / (box.size[2] * box.size[3]), y = i / box.size[3] % box.size[2], x = i % box.size[3];
        assert_equal(window[i], voxel_at(box.from[1] + z, box.from[2] + y, box.from[3] + x));
    }
}

static void check_windows(const struct sgrad_volume *volume) {
    assert_equal(volume->dim[0], 1);
    assert_equal(volume->dim[1], Z);
    assert_equal(volume->dim[2], Y);
    assert_equal(volume->dim[3], X);
    check_window(volume, (struct sgrad_box){ { 0, 0, 0, 0 }, { 1, Z, Y, X } });
    check_window(volume, (struct sgrad_box){ { 0, 1, 2, 3 }, { 1, 3, 4, 5 } });
    check_window(volume, (struct sgrad_box){ { 0, Z - 1, Y - 1, X - 1 }, { 1, 1, 1, 1 } });
}

static void others(void **state) {
    static const struct {
        const char *name;
        enum sgrad_voxel voxel;
    } files[] = {
        { "v2-none", SGRAD_VOXEL_U16 },   { "v2-zlib", SGRAD_VOXEL_U16 },       { "v2-zstd", SGRAD_VOXEL_U16 },
        { "v2-fortran", SGRAD_VOXEL_U8 },
        { "v2-blosc", SGRAD_VOXEL_U16 },  { "v2-slash", SGRAD_VOXEL_F32 },      { "v3-none", SGRAD_VOXEL_I32 },
        { "v3-gzip", SGRAD_VOXEL_I32 },   { "v3-zstd", SGRAD_VOXEL_I32 },       { "v3-blosc", SGRAD_VOXEL_I32 },
        { "chunked.h5", SGRAD_VOXEL_U8 }, { "chunked.h5:raw", SGRAD_VOXEL_U8 }, { "two.h5:a/raw", SGRAD_VOXEL_F64 },
        { "links.h5", SGRAD_VOXEL_I16 },  { "links.h5:again", SGRAD_VOXEL_I16 },
        { "strips.tif", SGRAD_VOXEL_U8 }, { "deflate.tif", SGRAD_VOXEL_U16 },   { "tiles.tif", SGRAD_VOXEL_F32 },
        { "bare.tif", SGRAD_VOXEL_U16 },  { "deep.tif", SGRAD_VOXEL_U16 },
        { "png-8", SGRAD_VOXEL_U8 },      { "png-16", SGRAD_VOXEL_U16 },
        { "bare.raw:5x7x9:int16", SGRAD_VOXEL_I16 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct sgrad_volume *v;
        char *path = data_path(files[i].name);
        assert_done(sgrad_volume_open(path, &v));
        assert_int_equal(v->voxel, files[i].voxel);
        check_windows(v);
        sgrad_volume_close(v);
        free(path);
    }
}

static void refused(void **state) {
    static const struct {
        const char *name, *says;
        int error;
    } files[] = {
        { "v2-lz4", "compression with 'lz4'", SGRAD_EFORMAT },
        { "v3-sharded", "sharding_indexed", SGRAD_EFORMAT },  
        { "two.h5", "has 3 data sets; give one of them, ", SGRAD_EFORMAT }, { "two.h5", ":NAME: a/raw, b, c", SGRAD_EFORMAT },
        { "two.h5:none", "data set none cannot be opened: object 'none' doesn't exist; the file has a/raw, b, c", SGRAD_EFORMAT },
        { "two.h5:a", "data set a cannot be opened: not a dataset", SGRAD_EFORMAT },
        { "dangling.h5", "its link raw is broken: ", SGRAD_EFORMAT },
        { "dangling.h5:raw", "data set raw cannot be opened: ", SGRAD_EFORMAT },
        { "absent.h5", "No such file", SGRAD_EIO },
        { "colour.tif", "3 samples", SGRAD_EFORMAT },
        { "png-colour", "has colours", SGRAD_EFORMAT },
        { "png-sizes", "has 8x7 pixels of uint8, but the first slice has 9x7", SGRAD_EFORMAT },
        { "bare.raw", "is not a shape", SGRAD_ENAME },         { "bare.raw:5x7x9:int", "is not a shape", SGRAD_ENAME },
        { "bare.raw:5x-7x9", "is not a shape", SGRAD_ENAME },  { "bare.raw:5x7x9", "has 630 bytes", SGRAD_EFORMAT },
        { "bare.raw:1x5x7x9x1", "is not a shape", SGRAD_ENAME },
        { "absent.tif", "No such file", SGRAD_EIO },          { "absent", "No such file", SGRAD_EIO },
    };
    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct sgrad_volume *v;
        char *path = data_path(files[i].name);
        assert_fails(sgrad_volume_open(path, &v), files[i].error, files[i].says);
        free(path);
    }
}

#ifdef SGRAD_HAVE_TIFF
/* A copy that was cut short is no smaller stack. */
static void cut_short(void **state) {
    char *path = data_path("strips.tif");
    struct sgrad_map map;
    struct sgrad_volume *v;
    (void)state;
    assert_done(sgrad_map_open(path, 1 << 20, &map));
    for (size_t size = 0; size < map.size; size += 50) {
        scratch_write("cut.tif", map.data, size);
        const int error = sgrad_volume_open(scratch_path("cut.tif"), &v);
        if (!error) sgrad_volume_close(v);
        assert_equal(error, SGRAD_EFORMAT);
    }
    sgrad_map_close(&map);
    free(path);
}

/* As ImageJ and OME-XML order the pages. */
static void channels_of_tiff(void **state) {
    static const char *const names[] = { "imagej-channels.tif", "channels.ome.tif" };
    const struct sgrad_box all = { { 0 }, { 2, Z, Y, X } };
    uint8_t voxels[2 * Z * Y * X];
    struct sgrad_volume *v;
    (void)state;
    for (int f = 0; f < 2; f++) {
        char *path = data_path(names[f]);
        assert_done(sgrad_volume_open(path, &v));
        assert_memory_equal(v->dim, all.size, sizeof all.size);
        assert_done(sgrad_volume_read(v, &all, SGRAD_VOXEL_U8, voxels));
        for (int64_t i = 0; i < Z * Y * X; i++) {
            const double voxel = voxel_at(i / (Y * X), i / X % Y, i % X);
            assert_equal(voxels[i], voxel);
            assert_equal(voxels[Z * Y * X + i], 255 - voxel);
        }
        sgrad_volume_close(v);
        free(path);
    }
}

/* PAGES of 2x3 voxels, of which all have the number of their image; BARE: more images behind that of the last page. */
static const char *write_tiff(const char *text, int pages, int bare) {
    const char *path = scratch_path("stated.tif");
    TIFF *file = TIFFOpen(path, "w");
    for (int page = 0; page < pages; page++) {
        uint8_t voxels[6 * 32];
        for (int i = 0; i < 6 * (1 + bare); i++) voxels[i] = (uint8_t)(page + i / 6);
        TIFFSetField(file, TIFFTAG_IMAGEWIDTH, 3);
        TIFFSetField(file, TIFFTAG_IMAGELENGTH, 2);
        TIFFSetField(file, TIFFTAG_BITSPERSAMPLE, 8);
        TIFFSetField(file, TIFFTAG_PHOTOMETRIC, PHOTOMETRIC_MINISBLACK);
        if (page == 0 && *text) TIFFSetField(file, TIFFTAG_IMAGEDESCRIPTION, text);
        TIFFWriteRawStrip(file, 0, voxels, 6 * (1 + bare));
        TIFFWriteDirectory(file);
    }
    TIFFClose(file);
    return path;
}

/* What a description states of pages, or of bare images behind one page; what is not true of them is refused. */
static void stated_by_tiff(void **state) {
#define OME(order, z, c, t, rest) \
    "<?xml version=\"1.0\"?><OME:OME xmlns:OME=\"x\"><OME:Image ID=\"i\"><OME:Pixels PhysicalSizeZ=\"0.5\" " \
    "DimensionOrder='" order "' SizeC=\"" #c "\" SizeT=\"" #t "\" " \
    "SizeX=\"3\" SizeY=\"2\" SizeZ=\"" #z "\">" rest "</OME:Pixels></OME:Image></OME:OME>"
    static const struct {
        const char *text;
        int pages, bare;
        int64_t channels, slices, channel_step, slice_step;
        const char *says;
    } rows[] = {
        { "", 6, 0, 1, 6, 0, 1, NULL },
        { "a microscope's own words", 6, 0, 1, 6, 0, 1, NULL },
        { "ImageJ=1.54f\nimages=6\nslices=6\n", 6, 0, 1, 6, 0, 1, NULL },
        { "ImageJ=1.54f\nimages=6\nframes=6\n", 6, 0, 1, 6, 0, 1, NULL },
        { "ImageJ=1.54f\nimages=6\nchannels=2\nslices=3\nhyperstack=true\n", 6, 0, 2, 3, 1, 2, NULL },
        { "ImageJ=1.54f\nchannels=6\n", 6, 0, 6, 1, 1, 0, NULL },
        { "ImageJ=1.54f\nimages=6\nchannels=2\n", 1, 5, 2, 3, 1, 2, NULL },
        { "ImageJ=1.54f\nimages=6\n", 1, 5, 1, 6, 0, 1, NULL },
        { "ImageJ=1.54f\nmin=0\n", 6, 0, 1, 6, 0, 1, NULL },
        { "ImageJ=1.54f\nimages=6\nslices=3\nframes=2\n", 6, 0, .says = "volumes have no time axis" },
        { "ImageJ=1.54f\nimages=6\nslices=6\n", 5, 0, .says = "ImageJ states 6 images, but the file has 5 pages" },
        { "ImageJ=1.54f\nimages=60\n", 1, 5, .says = "too short" },
        { "ImageJ=1.54f\nimages=99999999999999999999\nchannels=3\n", 1, 5, .says = "not a multiple of its channels" },
        { OME("XYZCT", 3, 2, 1, ""), 6, 0, 2, 3, 3, 1, NULL },
        { OME("XYCZT", 3, 2, 1, "<OME:TiffData IFD=\"5\" FirstC=\"1\" FirstZ=\"2\"/>"), 6, 0, 2, 3, 1, 2, NULL },
        { OME("XYTCZ", 1, 1, 6, ""), 6, 0, 1, 6, 0, 1, NULL },
        { OME("XYCZT", 3, 2, 1, "<OME:TiffData IFD=\"1\" FirstC=\"0\" FirstZ=\"1\"/>"), 6, 0, .says = "not in the order of" },
        { OME("XYCZT", 3, 1, 2, ""), 6, 0, .says = "volumes have no time axis" },
        { OME("XYCZT", 3, 1, 1, ""), 6, 0, .says = "OME states 3 images, but the file has 6 pages" },
        { OME("XYZZT", 3, 2, 1, ""), 6, 0, .says = "Z, C and T once each" },
        { OME("XYZCT", 0, 2, 1, ""), 6, 0, .says = "does not state SizeZ" },
        { "<OME><BinaryOnly MetadataFile=\"a\"/></OME>", 6, 0, .says = "in another file" },
        { "{\"shape\": [6, 2, 3], \"truncated\": true}", 1, 5, 1, 6, 0, 1, NULL },
        { "{\"shape\": [6, 2, 3, 1]}", 6, 0, 1, 6, 0, 1, NULL },
        { "{\"shape\": [2, 3, 2, 3]}", 6, 0, 2, 3, 3, 1, NULL },
        { "{\"shape\": [3, 2, 2, 3], \"axes\": \"ZCYX\"}", 1, 5, 2, 3, 1, 2, NULL },
        { "{\"shape\": [6, 2, 3], \"axes\": \"CYX\"}", 6, 0, 6, 1, 1, 0, NULL },
        { "{\"other\": 1}", 6, 0, 1, 6, 0, 1, NULL },
        { "shape=(6, 2, 3)", 1, 5, 1, 6, 0, 1, NULL },
        { "{\"shape\": [3, 2, 2, 3], \"axes\": \"TZYX\"}", 6, 0, .says = "volumes have no time axis" },
        { "{\"shape\": [6, 4, 3]}", 1, 5, .says = "another size than its pages" },
        { "{\"shape\": [5, 2, 3]}", 6, 0, .says = "tifffile states 5 images, but the file has 6 pages" },
        { "{\"shape\": [-6, 2, 3]}", 6, 0, .says = "an invalid shape" },
    };
    (void)state;
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        struct sgrad_volume *v;
        uint8_t voxels[36];
        const char *path = write_tiff(rows[r].text, rows[r].pages, rows[r].bare);
        if (rows[r].says) {
            assert_fails(sgrad_volume_open(path, &v), SGRAD_EFORMAT, rows[r].says);
            continue;
        }
        const struct sgrad_box all = { { 0 }, { rows[r].channels, rows[r].slices, 2, 3 } };
        assert_done(sgrad_volume_open(path, &v));
        assert_memory_equal(v->dim, all.size, sizeof all.size);
        assert_done(sgrad_volume_read(v, &all, SGRAD_VOXEL_U8, voxels));
        for (int64_t i = 0; i < 36; i++) {
            const int64_t channel = i / 6 / rows[r].slices, slice = i / 6 % rows[r].slices;
            assert_int_equal(voxels[i], channel * rows[r].channel_step + slice * rows[r].slice_step);
        }
        sgrad_volume_close(v);
    }
}
#else
TEST_WITHOUT("tiff", cut_short)
TEST_WITHOUT("tiff", channels_of_tiff)
TEST_WITHOUT("tiff", stated_by_tiff)
#endif

/* The reason is HDF5's own, in one line. */
static void reasons_of_hdf5(void **state) {
    char *path = data_path("two.h5");
    struct sgrad_map map;
    struct sgrad_volume *v;
    (void)state;
    assert_done(sgrad_map_open(path, 1 << 20, &map));
    scratch_write("whole.h5", map.data, map.size);
    scratch_write("cut.h5", map.data, map.size / 2);
    scratch_write("text.h5", "other", 5);
    sgrad_map_close(&map);
    free(path);
    assert_fails(sgrad_volume_open(scratch_path("cut.h5"), &v), SGRAD_EFORMAT, "truncated file");
    assert_fails(sgrad_volume_open(scratch_path("text.h5"), &v), SGRAD_EFORMAT, "it is not an HDF5 file");
    const int writer = open(scratch_path("whole.h5"), O_RDWR);
    assert_int_equal(flock(writer, LOCK_EX), 0);        /* as HDF5 does while it writes */
    assert_fails(sgrad_volume_open(scratch_path("whole.h5"), &v), SGRAD_EFORMAT, "another process has it open for writing");
    close(writer);
    assert_fails(sgrad_volume_open(scratch_path("whole.h5"), &v), SGRAD_EFORMAT, "has 3 data sets");
}

/* Written block by block, of which the last are shorter. */
static void write_and_read(const char *name, const char *again) {
    static const int64_t dim[] = { 1, Z, Y, X }, chunk[] = { 1, 2, 4, 4 };
    struct sgrad_volume *v;
    const char *path = scratch_path(name);
    assert_done(sgrad_volume_create(path, SGRAD_VOXEL_U8, dim, chunk, &v));
    for (int64_t z = 0; z < Z; z += 2)
        for (int64_t x = 0; x < X; x += 4) {
            const struct sgrad_box box = { { 0, z, 0, x }, { 1, Z - z < 2 ? Z - z : 2, Y, X - x < 4 ? X - x : 4 } };
            float voxels[2 * Y * 4];
            for (int64_t i = 0; i < sgrad_box_count(&box); i++)
                voxels[i] = (float)voxel_at(z + i / (Y * box.size[3]), i / box.size[3] % Y, x + i % box.size[3]) + 0.25f;
            assert_done(sgrad_volume_write(v, &box, SGRAD_VOXEL_F32, voxels));
        }
    assert_done(sgrad_volume_finish(v));
    sgrad_volume_close(v);
    assert_done(sgrad_volume_open(scratch_path(again), &v));
    check_windows(v);
    sgrad_volume_close(v);
}
static void written(void **state) {
    (void)state;
    write_and_read("own.zarr", "own.zarr");
    write_and_read("own.h5:some/where", "own.h5:some/where");
    write_and_read("own.raw", "own.raw:5x7x9");
}

/* Closed before it is finished, one of HDF5 or raw is not there, nor anything beside it. */
static void unfinished(void **state) {
    static const char *const names[] = { "half.h5", "half.raw" };
    static const int64_t dim[] = { 1, Z, Y, X };
    struct sgrad_volume *v;
    (void)state;
    for (int i = 0; i < 2; i++) {
        assert_done(sgrad_volume_create(scratch_path(names[i]), SGRAD_VOXEL_U8, dim, dim, &v));
        sgrad_volume_close(v);
        assert_fails(sgrad_volume_open(scratch_path(i ? "half.raw:5x7x9" : "half.h5"), &v), SGRAD_EIO, "half");
        char *part = sgrad_format("%s.part.%ld", scratch_path(names[i]), (long)getpid());
        assert_true(access(part, F_OK));
        free(part);
    }
}

/* What Zarr says of its making holds, until all is to be done again. */
static void signed_(void **state) {
    static const int64_t dim[] = { 1, Z, Y, X };
    struct sgrad_volume *v;
    (void)state;
    for (int round = 0; round < 3; round++) {
        assert_done(sgrad_volume_create(scratch_path("signed.zarr"), SGRAD_VOXEL_U8, dim, dim, &v));
        if (round == 1) assert_fails(sgrad_volume_sign(v, "other \"work\"", false), SGRAD_EIO, "of another job ('one work')");
        else assert_done(sgrad_volume_sign(v, "one work", false));
        if (round == 1) assert_done(sgrad_volume_sign(v, "other \"work\"", true));
        if (round == 1) assert_done(sgrad_volume_sign(v, "one work", true));
        sgrad_volume_close(v);
    }
}

/* A chunk that is missing is zeros, and told; one that is damaged is an error that names it. */
static void chunks(void **state) {
    const struct sgrad_box first = { { 0, 0, 0, 0 }, { 1, 2, 4, 4 } };
    struct sgrad_volume *v;
    uint8_t voxels[32];
    (void)state;
    write_and_read("broken.zarr", "broken.zarr");
    assert_done(sgrad_volume_open(scratch_path("broken.zarr"), &v));
    assert_true(sgrad_volume_has(v, &first));
    scratch_write("broken.zarr/0.0.0.0", "abc", 3);
    assert_fails(sgrad_volume_read(v, &first, SGRAD_VOXEL_U8, voxels), SGRAD_EFORMAT, "0.0.0.0");
    assert_false(sgrad_volume_has(v, &first));
    unlink(scratch_path("broken.zarr/0.0.0.0"));
    assert_false(sgrad_volume_has(v, &first));
    assert_done(sgrad_volume_read(v, &first, SGRAD_VOXEL_U8, voxels));
    for (int i = 0; i < 32; i++) assert_int_equal(voxels[i], 0);
    sgrad_volume_close(v);
}

static void converted(void **state) {
    const float x[] = { -1, 0.4f, 0.6f, 254.5f, 300, NAN };
    const uint8_t wanted[] = { 0, 0, 1, 254, 255, 0 };
    uint8_t y[6];
    (void)state;
    sgrad_voxel_convert(SGRAD_VOXEL_F32, x, 6, SGRAD_VOXEL_U8, y);
    assert_memory_equal(y, wanted, 6);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        sentence("volumes that other libraries wrote are read, whole and in windows", others),
        sentence("a volume of an unsupported kind is refused", refused),
        sentence("a truncated TIFF stack is refused", cut_short),
        sentence("a volume that was written is read again", written),
        sentence("an HDF5 file is refused with the reason of HDF5 in one line", reasons_of_hdf5),
        sentence("channels of ImageJ and OME stacks are read in order", channels_of_tiff),
        sentence("a TIFF stack is read as its description states, and refused if that is not true", stated_by_tiff),
        sentence("a missing chunk is zeros, and a damaged one is refused", chunks),
        sentence("a volume that was not finished leaves no file", unfinished),
        sentence("the output of another segmentation is refused, unless it is replaced", signed_),
        sentence("voxels are rounded and clipped to their type", converted),
    };
    setenv("HDF5_USE_FILE_LOCKING", "TRUE", 1);
    return run_sentences(argc, argv, tests, scratch_open, scratch_close);
}
