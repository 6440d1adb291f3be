/* tiff_axes.c: parses the description of a TIFF file's first page, which states which images are slices and which are channels.
 *
 *     ImageJ      "ImageJ=1.54f\nimages=12\nchannels=2\nslices=6\n"                  channels change fastest
 *     OME-XML     <Pixels DimensionOrder="XYZCT" SizeZ="6" SizeC="2" SizeT="1" …>      the first axis changes fastest
 *     tifffile    {"shape": [2, 6, 48, 64], "axes": "CZYX"}                            the last axis changes fastest
 *
 * A time axis is read as slices if there are no other slices; a file with both is refused. */
#include "config.h"
#include "volumes/formats.h"

#include <ctype.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static int refuse(const char *path, const char *what) { return sgrad_log_error(SGRAD_EFORMAT, "%s: %s", path, what); }
static const char no_time[] =
    "its description states more axes than channels, z, y and x; volumes have no time axis, so save one frame";

enum { MOST = 1 << 20 };        /* maximum length of an axis; larger numbers are reduced to it */
static int64_t number_at(const char *digits) {
    return sgrad_clamp(strtoll(digits, NULL, 10), 0, MOST);
}

/* ---- ImageJ ------------------------------------------------------------------------------------------------------------ */

/* Returns the number after KEY; 0: no such key. */
static int64_t number_of(const char *text, const char *key) {
    const char *at = strstr(text, key);
    return at ? number_at(at + strlen(key)) : 0;
}

static int read_imagej(const char *path, const char *text, struct sgrad__tiff_axes *axes) {
    const int64_t images = number_of(text, "\nimages="), frames = number_of(text, "\nframes=");
    int64_t channels = number_of(text, "\nchannels="), slices = number_of(text, "\nslices=");
    if (!images && !frames && !channels && !slices) return 0;
    if (frames > 1 && slices > 1) return refuse(path, no_time);
    if (channels < 1) channels = 1;
    if (frames > slices) slices = frames;
    if (slices < 1) slices = 1;
    if (images > 0 && channels * slices != images) {
        if (images % channels) return refuse(path, "ImageJ states a number of images that is not a multiple of its channels");
        slices = images / channels;
    }
    *axes = (struct sgrad__tiff_axes){ channels, slices, 1, channels, "ImageJ" };
    return 0;
}

/* ---- OME-XML ----------------------------------------------------------------------------------------------------------- */

/* Returns the next tag NAME from TEXT on, with any namespace prefix; NULL: not found. */
static const char *tag_of(const char *text, const char *name) {
    const size_t length = strlen(name);
    for (const char *at = text; (at = strstr(at, name)); at += length)
        if (at > text && (at[-1] == '<' || at[-1] == ':') && (isspace((unsigned char)at[length]) || strchr("/>", at[length])))
            return at;
    return NULL;
}

/* Returns the value of attribute NAME of the tag at TAG; NULL: it has none. */
static const char *attribute_of(const char *tag, const char *name) {
    const size_t length = strlen(name);
    const char *end = strchr(tag, '>');
    for (const char *at = tag; (at = strstr(at, name)) && (!end || at < end); at += length)
        if (isspace((unsigned char)at[-1]) && at[length] == '=' && at[length + 1] && strchr("\"'", at[length + 1]))
            return at + length + 2;
    return NULL;
}
static int64_t number_in(const char *tag, const char *name, int64_t otherwise) {
    const char *value = attribute_of(tag, name);
    return value ? number_at(value) : otherwise;
}

static int read_ome(const char *path, const char *text, struct sgrad__tiff_axes *axes) {
    static const char letters[] = "ZCT";
    const char *pixels = tag_of(text, "Pixels"), *order = pixels ? attribute_of(pixels, "DimensionOrder") : NULL;
    int64_t size[3], step[3] = { 0 }, all = 1;
    if (tag_of(text, "BinaryOnly")) return refuse(path, "OME: its description is in another file; give that file");
    if (!order || strncmp(order, "XY", 2)) return refuse(path, "OME: its DimensionOrder must begin with XY");
    for (int i = 0; i < 3; i++) {
        size[i] = number_in(pixels, (const char *[]){ "SizeZ", "SizeC", "SizeT" }[i], 0);
        if (size[i] < 1) return refuse(path, "OME: does not state SizeZ, SizeC and SizeT");
    }
    for (int i = 2; i < 5; i++) {
        const char *letter = order[i] ? strchr(letters, order[i]) : NULL;
        if (!letter || step[letter - letters]) return refuse(path, "OME: its DimensionOrder must have Z, C and T once each");
        step[letter - letters] = all;
        all *= size[letter - letters];
    }
    if (size[0] > 1 && size[2] > 1) return refuse(path, no_time);
    for (const char *data = tag_of(pixels, "TiffData"); data; data = tag_of(data, "TiffData")) {
        const int64_t first = number_in(data, "FirstZ", 0) * step[0] + number_in(data, "FirstC", 0) * step[1] +
                              number_in(data, "FirstT", 0) * step[2];
        if (number_in(data, "IFD", first) != first)
            return refuse(path, "OME: its pages are not in the order of DimensionOrder, or belong to several images");
    }
    const int slow = size[0] > 1 ? 0 : 2;
    *axes = (struct sgrad__tiff_axes){ size[1], size[slow], step[1], step[slow], "OME" };
    return 0;
}

/* ---- tifffile ---------------------------------------------------------------------------------------------------------- */

/* Determines the axes from RANK sizes and their letters. If LETTER is NULL and there are two axes before y and x, the first is
 * channels. */
static int read_shape(const char *path, const int64_t *size, int rank, const char *letter, const int64_t page[2],
                      struct sgrad__tiff_axes *axes) {
    int64_t channels = 1, slices = 1, slice_step = 1, channel_step = 1, all = 1;
    bool sliced = false, parted = false;
    if (letter && (int)strlen(letter) != rank) letter = NULL;
    const bool sample = rank > 2 && size[rank - 1] == 1 && size[rank - 2] == page[1] && size[rank - 3] == page[0];
    if (sample) rank--;
    if (size[rank - 2] != page[0] || size[rank - 1] != page[1])
        return refuse(
            path,
            "its ImageDescription states another size than its pages have, as after cropping or scaling; remove this tag");
    for (int i = rank - 3; i >= 0; i--) {
        const int64_t n = size[i];
        const bool is_channels = letter ? letter[i] == 'C' : sliced;
        if (n < 1 || n > MOST) return refuse(path, "its description states an invalid shape");
        if (n > 1 && (is_channels ? parted : sliced)) return refuse(path, no_time);
        if (n > 1 && is_channels) channels = n, channel_step = all, parted = true;
        if (n > 1 && !is_channels) slices = n, slice_step = all, sliced = true;
        all *= n;
    }
    *axes = (struct sgrad__tiff_axes){ channels, slices, channel_step, slice_step, "tifffile" };
    return 0;
}

enum { AXES = 16 };
static int read_json(const char *path, const json_t *json, const int64_t page[2], struct sgrad__tiff_axes *axes) {
    const json_t *shape = json_object_get(json, "shape");
    const size_t rank = json_array_size(shape);
    int64_t size[AXES];
    if (rank < 2 || rank > AXES) return 0;
    for (size_t i = 0; i < rank; i++) size[i] = (int64_t)json_integer_value(json_array_get(shape, i));
    return read_shape(path, size, (int)rank, json_string_value(json_object_get(json, "axes")), page, axes);
}

/* Parses the format of tifffile before 2018, "shape=(6, 48, 64)". */
static int read_tuple(const char *path, const char *text, const int64_t page[2], struct sgrad__tiff_axes *axes) {
    int64_t size[AXES];
    int rank = 0;
    for (const char *at = strchr(text, '(') + 1; rank < AXES && isdigit((unsigned char)*at); at += strspn(at, ", L")) {
        size[rank++] = number_at(at);
        at += strspn(at, "0123456789");
    }
    return rank < 2 ? 0 : read_shape(path, size, rank, NULL, page, axes);
}

int sgrad__tiff_axes(const char *path, const char *text, const int64_t page[2], struct sgrad__tiff_axes *axes) {
    *axes = (struct sgrad__tiff_axes){ 0 };
    if (!text) return 0;
    if (!strncmp(text, "ImageJ=", 7)) return read_imagej(path, text, axes);
    if (!strncmp(text, "shape=(", 7)) return read_tuple(path, text, page, axes);
    if (tag_of(text, "OME")) return read_ome(path, text, axes);
    json_t *json = *text == '{' ? json_loads(text, 0, NULL) : NULL;
    const int error = json ? read_json(path, json, page, axes) : 0;
    json_decref(json);
    return error;
}
