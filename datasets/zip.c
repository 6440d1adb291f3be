/* zip.c: a member of a zip archive (PKWARE's APPNOTE 6.3), as numpy.savez writes them, with 64-bit sizes too. The archive's
 * directory is at its end:
 *
 *     member | member | … | directory: an entry for each member | [64-bit end | where that is] | end, and perhaps a comment
 *     member:  PK\3\4 … name, extra, the bytes, stored or deflated
 *     entry:   PK\1\2 … method, CRC, sizes, where the member is, name, extra, comment            lower bytes first
 *
 * Limits: one archive is one file; nothing is encrypted; the methods are 0 (stored) and 8 (deflated). */
#include "datasets/formats.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define DEFLATE_RATIO 1032 /* deflate expands a byte to at most so many (zlib.net/zlib_tech.html) */
enum { END = 22, END64 = 56, LOCATOR = 20, ENTRY = 46, MEMBER = 30, COMMENT = 65535 };     /* bytes, without names */
enum { STORED = 0, DEFLATED = 8 };

struct zip {
    const char *name;
    const unsigned char *data;
    size_t size;
};

/* BYTES at AT, the lower one first. Whoever asks knows that they are there. */
static uint64_t at(const struct zip *z, size_t at, int bytes) {
    uint64_t word = 0;
    while (bytes-- > 0) word = word << 8 | z->data[at + (size_t)bytes];
    return word;
}

static bool is_there(const struct zip *z, uint64_t from, uint64_t bytes) { return from <= z->size && bytes <= z->size - from; }

/* Does what is at FROM begin so, with so many BYTES? */
static bool begins(const struct zip *z, uint64_t from, const char *sign, uint64_t bytes) {
    return is_there(z, from, bytes) && !memcmp(z->data + from, sign, 4);
}

static int damaged(const struct zip *z, uint64_t where, const char *what) {
    return sgrad_fail(SGRAD_EFORMAT, "zip: %s: byte %llu: %s", z->name, (unsigned long long)where, what);
}

/* ---- the directory ----------------------------------------------------------------------------------------------------- */

struct directory {
    uint64_t from, entries;
};

static int find_directory(const struct zip *z, struct directory *d) {
    size_t end = z->size >= END ? z->size - END : 0;
    const size_t least = end > COMMENT ? end - COMMENT : 0;
    while (end > least && !begins(z, end, "PK\5\6", END)) end--;
    if (!begins(z, end, "PK\5\6", END)) return damaged(z, z->size, "has no directory: is no zip archive, or ends early");
    *d = (struct directory){ at(z, end + 16, 4), at(z, end + 10, 2) };
    if (d->from != UINT32_MAX && d->entries != UINT16_MAX) return 0;
    if (end < LOCATOR || !begins(z, end - LOCATOR, "PK\6\7", LOCATOR)) return damaged(z, end, "its 64-bit directory is missing");
    const uint64_t wide = at(z, end - LOCATOR + 8, 8);
    if (!begins(z, wide, "PK\6\6", END64)) return damaged(z, end - LOCATOR, "its 64-bit directory is not where it should be");
    *d = (struct directory){ at(z, wide + 48, 8), at(z, wide + 32, 8) };
    return 0;
}

struct entry {
    uint64_t packed, size, member;      /* bytes; where it begins */
    uint32_t crc;
    int method, flags;
};

/* What does not fit into 32 bits is in the extra field 1, in this order. */
static int read_entry(const struct zip *z, size_t from, struct entry *e) {
    *e = (struct entry){ .flags = (int)at(z, from + 8, 2), .method = (int)at(z, from + 10, 2),
                         .crc = (uint32_t)at(z, from + 16, 4), .packed = at(z, from + 20, 4), .size = at(z, from + 24, 4),
                         .member = at(z, from + 42, 4) };
    uint64_t *wide[] = { &e->size, &e->packed, &e->member };
    size_t extra = from + ENTRY + at(z, from + 28, 2);
    const size_t end = extra + at(z, from + 30, 2);
    while (end - extra >= 4 && at(z, extra, 2) != 1 && at(z, extra + 2, 2) <= end - extra - 4) extra += 4 + at(z, extra + 2, 2);
    size_t left = end - extra >= 4 && at(z, extra, 2) == 1 ? at(z, extra + 2, 2) : 0;
    if (left > end - extra - (left ? 4 : 0)) return damaged(z, extra, "an extra field is longer than what it is in");
    extra += 4;
    for (int i = 0; i < 3; i++) {
        if (*wide[i] != UINT32_MAX) continue;
        if (left < 8) return damaged(z, from, "a 64-bit size is missing");
        *wide[i] = at(z, extra, 8);
        extra += 8, left -= 8;
    }
    return 0;
}

static int find_entry(const struct zip *z, const char *name, struct entry *e) {
    struct directory d = { 0 };
    SGRAD_TRY(find_directory(z, &d));
    size_t from = d.from;
    for (uint64_t i = 0; i < d.entries; i++) {
        if (!begins(z, from, "PK\1\2", ENTRY)) return damaged(z, from, "an entry of its directory should be here");
        const size_t length = at(z, from + 28, 2), whole = ENTRY + length + at(z, from + 30, 2) + at(z, from + 32, 2);
        if (!is_there(z, from, whole)) return damaged(z, from, "an entry of its directory ends early");
        if (length == strlen(name) && !memcmp(z->data + from + ENTRY, name, length)) return read_entry(z, from, e);
        from += whole;
    }
    return sgrad_fail(SGRAD_EFORMAT, "zip: %s: has no %s", z->name, name);
}

/* ---- a member ----------------------------------------------------------------------------------------------------------- */

/* zlib counts in 32 bits, so both sides are fed to it in pieces. false: they are not SIZE bytes. */
static bool unpack(const unsigned char *from, size_t packed, unsigned char *to, size_t size) {
    z_stream s = { .next_in = (unsigned char *)from };
    size_t taken = 0, made = 0;
    int status = inflateInit2(&s, -MAX_WBITS);
    while (status == Z_OK) {
        unsigned char beyond;           /* a member that goes on after its size ends here */
        const uInt in = packed - taken < UINT_MAX ? (uInt)(packed - taken) : UINT_MAX;
        const uInt room = size - made < UINT_MAX ? (uInt)(size - made) : UINT_MAX;
        s.avail_in = in;
        s.next_out = room ? to + made : &beyond;
        s.avail_out = room ? room : 1;
        status = inflate(&s, Z_NO_FLUSH);
        taken += in - s.avail_in;
        if (room) made += room - s.avail_out;
        else if (!s.avail_out) status = Z_DATA_ERROR;
    }
    inflateEnd(&s);
    return status == Z_STREAM_END && made == size;
}

static uint32_t checksum(const unsigned char *data, size_t size) {
    uLong crc = crc32(0, NULL, 0);
    for (size_t done = 0; done < size; done += UINT_MAX)
        crc = crc32(crc, data + done, size - done < UINT_MAX ? (uInt)(size - done) : UINT_MAX);
    return (uint32_t)crc;
}

int sgrad__zip_read(const char *name, const void *data, size_t size, const char *member, void **content, size_t *bytes) {
    const struct zip z = { name, data, size };
    struct entry e;
    SGRAD_TRY(find_entry(&z, member, &e));
    if (e.flags & 1 || (e.method != STORED && e.method != DEFLATED))
        return sgrad_fail(SGRAD_EFORMAT, "zip: %s: %s is %s: takes what is stored or deflated", name, member,
                          e.flags & 1 ? "encrypted" : "packed by another method");
    if (!begins(&z, e.member, "PK\3\4", MEMBER)) return damaged(&z, e.member, "a member should begin here");
    const uint64_t from = e.member + MEMBER + at(&z, e.member + 26, 2) + at(&z, e.member + 28, 2);
    if (!is_there(&z, from, e.packed)) return damaged(&z, from, "a member ends early");
    if (e.method == STORED ? e.size != e.packed : e.size / DEFLATE_RATIO > e.packed)
        return damaged(&z, from, "a member cannot have as many bytes as the directory says");
    unsigned char *to = malloc(e.size + 1);
    if (!to)
        return sgrad_fail(SGRAD_ENOMEM, "zip: %s: no memory for the %llu bytes of %s", name, (unsigned long long)e.size, member);
    bool whole = true;
    if (e.method == STORED) memcpy(to, z.data + from, e.size);
    else whole = unpack(z.data + from, e.packed, to, e.size);
    if (!whole || checksum(to, e.size) != e.crc) {
        free(to);
        return sgrad_fail(SGRAD_EFORMAT, "zip: %s: byte %llu: %s is damaged", name, (unsigned long long)from, member);
    }
    *content = to;
    *bytes = e.size;
    return 0;
}
