/* stream.c: decompresses a shard from its beginning to its end: gzip with zlib, Zstandard with libarchive. Both verify checksums:
 * gzip has one of each part, Zstandard one of each frame unless it was written without. (libarchive does not verify gzip's.)
 *
 *     gzip     header | data | checksum, size | header | …       parts are joined; zeros after the last one are ignored
 *
 * Limits: Zstandard with a window above 128 MiB (zstd --long=28 and more) is refused by its library. */
#include "config.h"
#include "datasets/shards/shards.h"
#include "runtime/libraries.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef SGRAD_HAVE_LIBARCHIVE
#include <archive.h>
#include <archive_entry.h>
#include <zlib.h>

enum { BLOCK = 1 << 18 };
struct sgrad__stream {
    int file; /* negative: the compressed bytes are data */
    const unsigned char *data;
    size_t size, at;      /* compressed bytes: all of data, those that were given to zlib */
    struct archive *zstd; /* NULL: gzip */
    z_stream gzip;
    unsigned char *block; /* compressed bytes from the file */
    bool ended;
    const char *damage; /* NULL: none */
};

/* ---- gzip ---------------------------------------------------------------------------------------------------------- */

/* Gives zlib the next compressed bytes, if it has used all. Returns false at the end of the file, or if it cannot be read. */
static bool has_input(struct sgrad__stream *s) {
    if (s->gzip.avail_in) return true;
    if (s->file < 0) {
        const size_t left = s->size - s->at;
        s->gzip.next_in = (unsigned char *)s->data + s->at;
        s->gzip.avail_in = (uInt)(left < INT_MAX ? left : INT_MAX);
    } else {
        ssize_t got;
        do got = pread(s->file, s->block, BLOCK, (off_t)s->at);
        while (got < 0 && errno == EINTR);
        if (got < 0) s->damage = strerror(errno);
        s->gzip.next_in = s->block;
        s->gzip.avail_in = got < 0 ? 0 : (uInt)got;
    }
    s->at += s->gzip.avail_in;
    return s->gzip.avail_in > 0;
}

/* Begins the next part, or ends the stream. */
static void begin_part(struct sgrad__stream *s) {
    while (has_input(s) && !*s->gzip.next_in) s->gzip.next_in++, s->gzip.avail_in--;
    s->ended = !s->gzip.avail_in;
    if (s->ended) return;
    if (*s->gzip.next_in == 0x1f)
        inflateReset(&s->gzip);
    else
        s->damage = "other data follow the compressed ones";
}

static ssize_t inflate_some(struct sgrad__stream *s, void *to, size_t room) {
    const uInt wanted = (uInt)(room < INT_MAX ? room : INT_MAX);
    s->gzip.next_out = to;
    s->gzip.avail_out = wanted;
    while (!s->ended && !s->damage && s->gzip.avail_out == wanted) {
        if (!has_input(s)) {
            if (!s->damage) s->damage = "the compressed data end early";
            break;
        }
        const int status = inflate(&s->gzip, Z_NO_FLUSH);
        if (status == Z_STREAM_END)
            begin_part(s);
        else if (status != Z_OK)
            s->damage = s->gzip.msg ? s->gzip.msg : "the compressed data are damaged";
    }
    return s->damage ? -1 : (ssize_t)(wanted - s->gzip.avail_out);
}

/* ---- Zstandard ----------------------------------------------------------------------------------------------------- */

static void take_damage(struct sgrad__stream *s) {
    const char *why = archive_error_string(s->zstd);
    s->damage = why ? why : "the compressed data end early";
}

/* Opens the file with libarchive, without the program that it starts if it lacks the library. */
static int open_zstd(const char *name, struct sgrad__stream *s) {
    struct archive_entry *entry;
    struct archive *zstd = s->zstd = archive_read_new();
    if (!zstd) return sgrad_log_error(SGRAD_ENOMEM, "tar: %s: no memory", name);
    archive_read_support_format_raw(zstd);
    if (archive_read_support_filter_zstd(zstd) != ARCHIVE_OK)
        return sgrad_log_error(SGRAD_ELIBRARY, "tar: %s: this libarchive was built without Zstandard", name);
    const bool opened = s->file < 0 ? archive_read_open_memory(zstd, s->data, s->size) == ARCHIVE_OK
                                    : !lseek(s->file, 0, SEEK_SET) && archive_read_open_fd(zstd, s->file, BLOCK) == ARCHIVE_OK;
    if (!opened || archive_read_next_header(zstd, &entry) != ARCHIVE_OK) take_damage(s);
    return 0;
}

/* ---- both ---------------------------------------------------------------------------------------------------------- */

static int open_gzip(const char *name, struct sgrad__stream *s) {
    s->block = sgrad_xcalloc(BLOCK, 1);
    return inflateInit2(&s->gzip, 16 + MAX_WBITS) == Z_OK ? 0 : sgrad_log_error(SGRAD_ENOMEM, "tar: %s: no memory", name);
}

int sgrad__stream_open(const char *name, int file, const void *data, size_t size, struct sgrad__stream **stream) {
    unsigned char begin[4] = { 0 };
    *stream = NULL;
    if (file < 0)
        memcpy(begin, data, size < sizeof begin ? size : sizeof begin);
    else if (pread(file, begin, sizeof begin, 0) < 0)
        return sgrad_log_error(SGRAD_EIO, "tar: %s: %s", name, strerror(errno));
    const bool gzip = !memcmp(begin, "\x1f\x8b\x08", 3), zstd = !memcmp(begin, "\x28\xb5\x2f\xfd", 4);
    if (!gzip && !zstd) return 0;
    *stream = sgrad_xcalloc(1, sizeof **stream);
    **stream = (struct sgrad__stream){ .file = file, .data = data, .size = size };
    return (gzip ? open_gzip : open_zstd)(name, *stream);
}

ssize_t sgrad__stream_read(struct sgrad__stream *s, void *to, size_t room) {
    if (s->damage) return -1;
    if (!s->zstd) return inflate_some(s, to, room);
    const ssize_t got = archive_read_data(s->zstd, to, room);
    if (got < 0) take_damage(s);
    return got < 0 ? -1 : got;
}

const char *sgrad__stream_damage(const struct sgrad__stream *s) { return s->damage; }

void sgrad__stream_close(struct sgrad__stream *s) {
    if (!s) return;
    if (s->zstd) archive_read_free(s->zstd);
    inflateEnd(&s->gzip);
    free(s->block);
    free(s);
}
#else
int sgrad__stream_open(const char *name, int file, const void *data, size_t size, struct sgrad__stream **stream) {
    (void)file, (void)data, (void)size;
    *stream = NULL;
    return sgrad_library_missing("libarchive", "read %s, a tar archive", name);
}

ssize_t sgrad__stream_read(struct sgrad__stream *s, void *to, size_t room) { return (void)s, (void)to, (void)room, -1; }

const char *sgrad__stream_damage(const struct sgrad__stream *s) { return (void)s, NULL; }

void sgrad__stream_close(struct sgrad__stream *s) { (void)s; }
#endif
