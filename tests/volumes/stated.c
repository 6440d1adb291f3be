/* Statements of files about their axes, chunks and parts are used, refused, or reported as not used. */
#include "config.h"
#include "tests/scratch.h"
#include "volumes/volumes.h"

#include <math.h>
#ifdef SGRAD_HAVE_HDF5
#include <hdf5.h>
#endif
#ifdef SGRAD_HAVE_PNG
#include <png.h>
#endif
#ifdef SGRAD_HAVE_TIFF
#include <tiffio.h>
#endif

/* Opens PATH, a volume of SLICES x 2 x 3 whose slices have their own number, or, VALUE of 0 or more, that; and hears SAYS. */
static void assert_opens(const char *path, int slices, int value, const char *says) {
    struct sgrad_volume *v;
    uint8_t voxels[8 * 6];
    const struct sgrad_box all = { { 0 }, { 1, slices, 2, 3 } };
    scratch_listen();
    const int error = sgrad_volume_open(path, &v);
    const char *said = scratch_said();
    if (error == SGRAD_ELIBRARY) asserts_lacks(said, __FILE__, __LINE__);
    if (error) fail_msg("%s: %s", path, said);
    if (says) assert_contains(said, says);
    else assert_string_equal(said, "");
    assert_memory_equal(v->dim, all.size, sizeof all.size);
    assert_done(sgrad_volume_read(v, &all, SGRAD_VOXEL_U8, voxels));
    for (int i = 0; i < slices * 6; i++) assert_int_equal(voxels[i], value < 0 ? i / 6 : value);
    sgrad_volume_close(v);
}

static void assert_refuses(const char *path, const char *says) {
    struct sgrad_volume *v;
    scratch_listen();
    const int error = sgrad_volume_open(path, &v);
    const char *said = scratch_said();
    assert_true(error && scratch_one_line(said));
    assert_contains(said, says);
}

/* ---- Zarr ---- */

/* Three slices of 2x3, a chunk each, whose files' names have SEPARATOR, behind PREFIX; false: no chunks. */
static void put_slices(const char *folder, const char *prefix, char separator) {
    for (int z = 0; z < 3; z++) {
        const uint8_t voxels[6] = { (uint8_t)z, (uint8_t)z, (uint8_t)z, (uint8_t)z, (uint8_t)z, (uint8_t)z };
        char *name = sgrad_format("%s/%s%d%c0%c0", folder, prefix, z, separator, separator);
        scratch_write(name, voxels, 6);
        free(name);
    }
}

static const char *put_metadata(const char *folder, int version, const char *shape, const char *chunks, const char *more) {
    char *name = sgrad_format("%s/%s", folder, version == 2 ? ".zarray" : "zarr.json");
    char *text = version == 2 ? sgrad_format("{\"zarr_format\": 2, \"shape\": %s, \"chunks\": %s, \"dtype\": \"|u1\", "
                                             "\"order\": \"C\", \"filters\": null, \"compressor\": null%s}", shape, chunks, more)
                              : sgrad_format("{\"zarr_format\": 3, \"node_type\": \"array\", \"shape\": %s, \"data_type\": "
                                             "\"uint8\", \"chunk_grid\": {\"name\": \"regular\", \"configuration\": "
                                             "{\"chunk_shape\": %s}}, \"codecs\": [{\"name\": \"bytes\"}]%s}", shape, chunks,
                                             more);
    scratch_write(name, text, strlen(text));
    free(text);
    free(name);
    return scratch_path(folder);
}

#define KEYS(name, separator) \
    ", \"chunk_key_encoding\": {\"name\": \"" name "\", \"configuration\": {\"separator\": \"" separator "\"}}"

static void separators(void **state) {
    (void)state;
    static const struct {
        int version;
        const char *more, *prefix;
        char separator;             /* of the files; 0: there are none */
        bool there;                 /* the files are found */
    } rows[] = {
        { 2, ", \"fill_value\": 9", "", '.', true },
        { 2, ", \"fill_value\": 9", "", '/', true },                                            /* older libraries' */
        { 2, ", \"fill_value\": 9, \"dimension_separator\": \"/\"", "", '/', true },
        { 2, ", \"fill_value\": 9, \"dimension_separator\": \".\"", "", '/', false },
        { 2, ", \"fill_value\": 9", "", 0, false },
        { 3, ", \"fill_value\": 9" KEYS("default", "/"), "c/", '/', true },
        { 3, ", \"fill_value\": 9" KEYS("default", "."), "c.", '.', true },
        { 3, ", \"fill_value\": 9" KEYS("v2", "."), "", '.', true },
        { 3, ", \"fill_value\": 9" KEYS("default", "."), "c/", '/', false },
        { 3, ", \"fill_value\": 9" KEYS("v2", "."), "c/", '/', false },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *folder = sgrad_format("separators-%zu.zarr", i);
        put_metadata(folder, rows[i].version, "[3, 2, 3]", "[1, 2, 3]", rows[i].more);
        if (rows[i].separator) put_slices(folder, rows[i].prefix, rows[i].separator);
        assert_opens(scratch_path(folder), 3, rows[i].there ? -1 : 9, rows[i].there ? NULL : "has no chunks (the first");
        free(folder);
    }
}

static void fills(void **state) {
    (void)state;
    static const struct {
        const char *text;
        float value;
    } rows[] = { { "\"Infinity\"", INFINITY }, { "\"-Infinity\"", -INFINITY }, { "\"NaN\"", NAN }, { "1.5", 1.5f } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *text = sgrad_format("{\"zarr_format\": 2, \"shape\": [2, 3], \"chunks\": [1, 3], \"dtype\": \"<f4\", "
                                  "\"order\": \"C\", \"filters\": null, \"compressor\": null, \"fill_value\": %s}", rows[i].text);
        struct sgrad_volume *v;
        float voxels[6];
        scratch_write("fill.zarr/.zarray", text, strlen(text));
        scratch_write("fill.zarr/0.0", (float[3]){ 7, 7, 7 }, 12);
        assert_done(sgrad_volume_open(scratch_path("fill.zarr"), &v));
        assert_done(sgrad_volume_read(v, &(struct sgrad_box){ { 0 }, { 1, 1, 2, 3 } }, SGRAD_VOXEL_F32, voxels));
        assert_true(voxels[2] == 7 && (voxels[3] == rows[i].value || (isnan(voxels[3]) && isnan(rows[i].value))));
        sgrad_volume_close(v);
        free(text);
    }
}

static void names_of_axes(void **state) {
    (void)state;
    static const struct {
        const char *names;
        bool fits;
    } rows[] = {
        { "[\"z\", \"y\", \"x\"]", true },    { "[\"Z\", null, \"X\"]", true }, { "[\"time\", \"y\", \"x\"]", true },
        { "[\"dim_0\", \"dim_1\", \"dim_2\"]", true }, { "null", true },        { "[\"x\", \"y\", \"z\"]", false },
        { "[\"y\", \"x\", \"c\"]", false },   { "[\"c\", \"y\", \"x\"]", false }, { "[\"channel\", \"y\", \"x\"]", false },
        { "[\"x\", null, null]", false },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *folder = sgrad_format("names-%zu.zarr", i), *attributes = sgrad_format("%s/.zattrs", folder);
        char *text = sgrad_format("{\"_ARRAY_DIMENSIONS\": %s}", rows[i].names);
        put_metadata(folder, 2, "[3, 2, 3]", "[1, 2, 3]", "");
        put_slices(folder, "", '.');
        scratch_write(attributes, text, strlen(text));
        if (rows[i].fits) assert_opens(scratch_path(folder), 3, -1, NULL);
        else assert_refuses(scratch_path(folder), "must be ([[c,] z,] y, x); transpose it");
        free(text);
        text = sgrad_format(", \"fill_value\": 0, \"dimension_names\": %s" KEYS("v2", "."), rows[i].names);
        char *third = sgrad_format("third-%zu.zarr", i);
        put_metadata(third, 3, "[3, 2, 3]", "[1, 2, 3]", text);
        put_slices(third, "", '.');
        if (rows[i].fits) assert_opens(scratch_path(third), 3, -1, NULL);
        else assert_refuses(scratch_path(third), "its axes are ");
        free(text);
        free(third);
        free(attributes);
        free(folder);
    }
}

/* ---- HDF5 ---- */

#ifdef SGRAD_HAVE_HDF5
static void put_texts(hid_t set, const char *name, int count, const char *const *text) {
    const hid_t type = H5Tcopy(H5T_C_S1), space = count > 1 ? H5Screate_simple(1, (hsize_t[]){ (hsize_t)count }, NULL)
                                                            : H5Screate(H5S_SCALAR);
    H5Tset_size(type, H5T_VARIABLE);
    const hid_t attribute = H5Acreate2(set, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(H5Awrite(attribute, type, text) >= 0);
    H5Aclose(attribute);
    H5Sclose(space);
    H5Tclose(type);
}

static void axes_of_hdf5(void **state) {
    (void)state;
    static const struct {
        const char *label[3], *tags;
        bool fits;
    } rows[] = {
        { { "z", "y", "x" }, NULL, true },
        { { "", "", "" }, NULL, true },
        { { "y", "x", "z" }, NULL, false },
        { { NULL }, "{\"axes\": [{\"key\": \"z\"}, {\"key\": \"y\"}, {\"key\": \"x\"}]}", true },
        { { NULL }, "{\"axes\": [{\"key\": \"y\"}, {\"key\": \"x\"}, {\"key\": \"c\"}]}", false },
        { { NULL }, "{\"axes\": [{\"key\": \"t\"}, {\"key\": \"z\"}, {\"key\": \"y\"}, {\"key\": \"x\"}]}", true },      /* 1 t */
        { { NULL }, "no JSON", true },
    };
    uint8_t voxels[18];
    for (int i = 0; i < 18; i++) voxels[i] = (uint8_t)(i / 6);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *path = scratch_path(i % 2 ? "axes.h5" : "AXES.H5");
        const hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
        const bool timed = rows[i].tags && strstr(rows[i].tags, "\"t\"");
        const hid_t space = H5Screate_simple(3 + timed, (const hsize_t[]){ 1, 3, 2, 3 } + !timed, NULL);
        const hid_t set = H5Dcreate2(file, "raw", H5T_STD_U8LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
        H5Dwrite(set, H5T_NATIVE_UINT8, H5S_ALL, H5S_ALL, H5P_DEFAULT, voxels);
        if (rows[i].tags) put_texts(set, "axistags", 1, &rows[i].tags);
        else put_texts(set, "DIMENSION_LABELS", 3, rows[i].label);
        H5Dclose(set);
        H5Sclose(space);
        H5Fclose(file);
        if (rows[i].fits) assert_opens(path, 3, -1, NULL);
        else assert_refuses(path, "must be ([[c,] z,] y, x); transpose it");
    }
}

/* Three slices in PATH; SOURCE: of that file's. */
static const char *put_set(const char *path, const char *source) {
    const hid_t space = H5Screate_simple(3, (hsize_t[]){ 3, 2, 3 }, NULL), how = H5Pcreate(H5P_DATASET_CREATE);
    uint8_t voxels[18];
    for (int i = 0; i < 18; i++) voxels[i] = (uint8_t)(i / 6);
    if (source) assert_true(H5Pset_virtual(how, space, source, "raw", space) >= 0);
    const hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    const hid_t set = H5Dcreate2(file, "raw", H5T_STD_U8LE, space, H5P_DEFAULT, how, H5P_DEFAULT);
    if (!source) H5Dwrite(set, H5T_NATIVE_UINT8, H5S_ALL, H5S_ALL, H5P_DEFAULT, voxels);
    H5Dclose(set);
    H5Fclose(file);
    H5Sclose(space);
    H5Pclose(how);
    return path;
}

/* A data set of another file's, which is there, or not: beside it, beside what it is a link to, below HDF5_VDS_PREFIX. */
static void virtual_sets(void **state) {
    (void)state;
    char *gone[] = { sgrad_format("%s", scratch_path("gone/source.h5")), sgrad_format("%s", scratch_path("gone/below.h5")) };
    const char *const sources[] = { "source.h5", gone[0], "below.h5", gone[1] };
    char *link = sgrad_format("%s", scratch_path("links/virtual.h5"));
    mkdir(scratch_path("links"), 0777);
    mkdir(scratch_path("apart"), 0777);
    for (int there = 0; there < 2; there++) {
        for (int i = 0; i < 4; i++) {
            const char *path = put_set(scratch_path("virtual.h5"), sources[i]);
            unlink(link);
            assert_int_equal(symlink(path, link), 0);
            if (there) assert_opens(path, 3, -1, NULL);
            else assert_refuses(path, "5, which does not exist");
            if (there && i < 2) assert_opens(link, 3, -1, NULL);
            else assert_refuses(link, "virtual.h5:raw: refers to ");
        }
        put_set(scratch_path("source.h5"), NULL);
        put_set(scratch_path("apart/below.h5"), NULL);
    }
    free(link);
    free(gone[0]);
    free(gone[1]);
}
#else
TEST_WITHOUT("hdf5", axes_of_hdf5)
TEST_WITHOUT("hdf5", virtual_sets)
#endif

/* ---- TIFF and PNG ---- */

#ifdef SGRAD_HAVE_TIFF
/* SLICES pages; TAG has the value IS on all of them. With PLANES, the count of MetaMorph's tag, all lie behind the first page. */
static const char *put_tiff(const char *name, int slices, uint32_t tag, int is, int planes) {
    static char title[] = "UIC2";
    static const TIFFFieldInfo uic = { 33629, -3, -3, TIFF_LONG, FIELD_CUSTOM, 1, 1, title };
    const char *path = scratch_path(name);
    TIFF *file = TIFFOpen(path, "w");
    if (planes) TIFFMergeFieldInfo(file, &uic, 1);
    for (int page = 0; page < (planes ? 1 : slices); page++) {
        uint8_t voxels[6 * 8];
        for (int i = 0; i < 6 * 8; i++) voxels[i] = (uint8_t)(page + i / 6);
        TIFFSetField(file, TIFFTAG_IMAGEWIDTH, 3);
        TIFFSetField(file, TIFFTAG_IMAGELENGTH, 2);
        TIFFSetField(file, TIFFTAG_BITSPERSAMPLE, 8);
        TIFFSetField(file, TIFFTAG_PHOTOMETRIC, PHOTOMETRIC_MINISBLACK);
        if (tag) TIFFSetField(file, tag, is);
        if (planes) TIFFSetField(file, 33629, (uint32_t)planes, (uint32_t[200]){ 1 });
        TIFFWriteRawStrip(file, 0, voxels, planes ? 6 * slices : 6);
        TIFFWriteDirectory(file);
    }
    TIFFClose(file);
    return path;
}

static void pages(void **state) {
    (void)state;
    assert_opens(put_tiff("plain.Tif", 3, 0, 0, 0), 3, -1, NULL);
    assert_opens(put_tiff("turned.tif", 3, TIFFTAG_ORIENTATION, 3, 0), 3, -1, "Stargrad does not rotate or flip slices");
    assert_opens(put_tiff("white.tif", 3, TIFFTAG_PHOTOMETRIC, PHOTOMETRIC_MINISWHITE, 0), 3, -1, "0 is white (WhiteIsZero)");
    assert_refuses(put_tiff("reduced.tif", 3, TIFFTAG_SUBFILETYPE, FILETYPE_REDUCEDIMAGE, 0), "page 0 is a reduced copy");
    assert_opens(put_tiff("metamorph.tif", 4, 0, 0, 4), 4, -1, NULL);
    assert_refuses(put_tiff("metamorph.tif", 4, 0, 0, 200), "MetaMorph states 200 images, but the file is too short for them");
}

/* A stack packed as JPEG is read; where half of its data is gone, that is no stack. */
static void packed_pages(void **state) {
    (void)state;
    const char *path = scratch_path("jpeg.tif");
    uint8_t voxels[64 * 64], read[64 * 64];
    struct sgrad_volume *v;
    const struct sgrad_box all = { { 0 }, { 1, 1, 64, 64 } };
    for (int i = 0; i < 64 * 64; i++) voxels[i] = (uint8_t)(i * i * 7 + i / 64);
    TIFF *file = TIFFOpen(path, "w");
    TIFFSetField(file, TIFFTAG_IMAGEWIDTH, 64);
    TIFFSetField(file, TIFFTAG_IMAGELENGTH, 64);
    TIFFSetField(file, TIFFTAG_BITSPERSAMPLE, 8);
    TIFFSetField(file, TIFFTAG_PHOTOMETRIC, PHOTOMETRIC_MINISBLACK);
    TIFFSetField(file, TIFFTAG_COMPRESSION, COMPRESSION_JPEG);
    TIFFSetField(file, TIFFTAG_ROWSPERSTRIP, 64);
    assert_true(TIFFWriteEncodedStrip(file, 0, voxels, sizeof voxels) > 0);
    TIFFClose(file);
    file = TIFFOpen(path, "r");
    const long at = (long)TIFFGetStrileOffset(file, 0), bytes = (long)TIFFGetStrileByteCount(file, 0);
    TIFFClose(file);
    for (int damaged = 0; damaged < 2; damaged++) {
        assert_done(sgrad_volume_open(path, &v));
        if (damaged) assert_fails(sgrad_volume_read(v, &all, SGRAD_VOXEL_U8, read), SGRAD_EFORMAT, "page 0 cannot be read");
        else assert_done(sgrad_volume_read(v, &all, SGRAD_VOXEL_U8, read));
        sgrad_volume_close(v);
        FILE *wrong = fopen(path, "r+b");
        fseek(wrong, at + bytes / 2, SEEK_SET);
        for (long i = bytes / 2; i < bytes; i++) fputc(0, wrong);
        fclose(wrong);
    }
}
#else
TEST_WITHOUT("tiff", pages)
TEST_WITHOUT("tiff", packed_pages)
#endif

#ifdef SGRAD_HAVE_PNG
static void put_png(const char *name, int value) {
    uint8_t file[1000], pixels[6];
    size_t size = sizeof file;
    png_image png = { .version = PNG_IMAGE_VERSION, .width = 3, .height = 2, .format = PNG_FORMAT_GRAY };
    memset(pixels, value, 6);
    assert_true(png_image_write_to_memory(&png, file, &size, 0, pixels, 0, NULL));
    scratch_write(name, file, size);
}

static void files_beside(void **state) {
    (void)state;
    put_png("series/s1.png", 0);
    put_png("series/s2.Png", 1);
    put_png("series/s10.PNG", 2);
    put_png("series/.s3.png", 7);
    assert_opens(scratch_path("series"), 3, -1, NULL);
    scratch_write("series/s11.tif", "x", 1);
    assert_opens(scratch_path("series"), 3, -1, "series: 1 file is not a PNG and was not read: s11.tif");
    scratch_write("series/s12.jpg", "x", 1);
    assert_opens(scratch_path("series"), 3, -1, "series: 2 files are not PNGs and were not read: s1");
}
#else
TEST_WITHOUT("png", files_beside)
#endif

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        sentence("Zarr chunks are found with either separator, and an array without chunks is reported", separators),
        sentence("a missing chunk has the fill value, also one that is not finite", fills),
        sentence("a Zarr array with its axes in another order is refused", names_of_axes),
        sentence("an HDF5 data set with its axes in another order is refused", axes_of_hdf5),
        sentence("a virtual HDF5 data set is refused if one of its files is missing", virtual_sets),
        sentence("pages of a TIFF that are not slices are refused, and planes without pages are read", pages),
        sentence("a TIFF page whose JPEG data are damaged is refused", packed_pages),
        sentence("files in a PNG series that are not slices are reported", files_beside),
    };
#ifdef SGRAD_HAVE_TIFF
    TIFFSetWarningHandler(NULL);
#endif
    setenv("HDF5_VDS_PREFIX", "${ORIGIN}/apart", 1);        /* the library looks once */
    return run_sentences(argc, argv, tests, scratch_open, scratch_close);
}
