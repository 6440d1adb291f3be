/* exif.c: the EXIF orientation of an image file, which cameras write instead of rotating the pixels (CIPA DC-008, 4.6.5).
 *
 *     JPEG   segment APP1: "Exif" 0 0, then the block      PNG   chunk eXIf: the block      WebP   chunk EXIF: the block
 *
 *     block  "II" 42 0 | offset of the table | … | n | n entries of 12 bytes: tag, type, count, value | …   ("MM": big-endian)
 *
 * Malformed metadata are ignored: they do not affect the pixels.
 *
 * Limits: EXIF in text chunks of PNG, which old programs write, and orientations in XMP are not read. */
#include "config.h"
#include "datasets/formats.h"

#include <string.h>

enum { ORIENTATION = 0x0112, SHORT = 3, LONG = 4, ENTRY = 12 };

/* A part of a file; size 0: none. */
struct block {
    const unsigned char *data;
    size_t size;
};

/* Returns the unsigned integer of BYTES bytes at AT, which must be in the block. */
static size_t number(struct block block, size_t at, int bytes, bool little) {
    size_t value = 0;
    for (int i = 0; i < bytes; i++) value |= (size_t)block.data[at + (size_t)i] << 8 * (little ? i : bytes - 1 - i);
    return value;
}

static int orientation_of(struct block block) {
    if (block.size > 6 && !memcmp(block.data, "Exif\0", 6)) block = (struct block){ block.data + 6, block.size - 6 };
    if (block.size < 8 || (memcmp(block.data, "II*", 4) && memcmp(block.data, "MM\0*", 4))) return 1;
    const bool little = *block.data == 'I';
    const size_t table = number(block, 4, 4, little);
    if (table > block.size - 2) return 1;
    const size_t entries = number(block, table, 2, little);
    for (size_t i = 0, at = table + 2; i < entries && at + ENTRY <= block.size; i++, at += ENTRY) {
        const size_t type = number(block, at + 2, 2, little);
        if (number(block, at, 2, little) != ORIENTATION || (type != SHORT && type != LONG)) continue;
        const size_t value = number(block, at + 8, type == SHORT ? 2 : 4, little);
        return value <= 8 ? (int)value : 1;
    }
    return 1;
}

static struct block find_in_jpeg(struct block file) {
    enum { APP1 = 0xe1, SCAN = 0xda };
    for (size_t at = 2; at + 4 <= file.size && file.data[at] == 0xff;) {
        if (file.data[at + 1] == 0xff) {        /* a fill byte */
            at++;
            continue;
        }
        const size_t length = number(file, at + 2, 2, false);
        if (file.data[at + 1] == SCAN || length < 2 || length > file.size - at - 2) break;
        if (file.data[at + 1] == APP1 && length > 8 && !memcmp(file.data + at + 4, "Exif\0", 6))
            return (struct block){ file.data + at + 4, length - 2 };
        at += 2 + length;
    }
    return (struct block){ 0 };
}

/* Returns the content of the chunk NAME of a file of chunks from byte AT on. In PNG the length, big-endian, precedes the name,
 * and a checksum follows the content. In WebP the length, little-endian, follows the name, and the content is padded to an even
 * length. */
static struct block find_chunk(struct block file, size_t at, const char *name, bool png) {
    const size_t around = png ? 12 : 8;
    while (at + around <= file.size) {
        const size_t length = number(file, at + (png ? 0 : 4), 4, !png);
        if (length > file.size - at - around) break;
        if (!memcmp(file.data + at + (png ? 4 : 0), name, 4)) return (struct block){ file.data + at + 8, length };
        at += around + length + (png ? 0 : length % 2);
    }
    return (struct block){ 0 };
}

void sgrad__image_upright(const void *data, size_t size, struct sgrad__image *image) {
    const struct block file = { data, size };
    struct block block = { 0 };
    if (size >= 2 && !memcmp(data, "\xff\xd8", 2)) block = find_in_jpeg(file);
    else if (size >= 8 && !memcmp(data, "\x89PNG\r\n\x1a\n", 8)) block = find_chunk(file, 8, "eXIf", true);
    else if (size >= 12 && !memcmp(data, "RIFF", 4)) block = find_chunk(file, 12, "EXIF", false);
    sgrad__image_orient(image, orientation_of(block));
}
