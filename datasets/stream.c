/* stream.c: decompresses a file from its beginning to its end: gzip with zlib, Zstandard with libzstd. Both verify checksums:
 * gzip has one of each part, Zstandard one of each frame unless it was written without.
 *
 *     gzip     header | data | checksum, size | header | …       parts are joined; zeros after the last one are ignored
 *
 * Only some hundred KiB of the file are in memory.
 *
 * Limits: Zstandard with a window above 128 MiB (zstd --long=28 and more) is refused by its library. */
#include "config.h"
#include "datasets/stream.h"
#include "runtime/libraries.h"
#include "runtime/runtime.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>
#ifdef SGRAD_HAVE_ZSTD
#include <zstd.h>
#else
typedef struct ZSTD_DStream ZSTD_DStream;
#endif

#define EARLY "the compressed data end early"
enum { BLOCK = 1 << 18 };

struct sgrad__stream {
    int file;                   /* negative: the compressed bytes are DATA */
    const unsigned char *data;
    size_t size, at;            /* compressed bytes: all of DATA; those that were read */
    const unsigned char *in;    /* compressed bytes that were read and not used: LEFT of them */
    size_t left;
    unsigned char *block;       /* room for bytes from the file */
    bool is_gzip, ended;
    z_stream gzip;
    ZSTD_DStream *zstd;
    const char *damage;         /* NULL: none */
};

/* Reads the next compressed bytes if all were used. Returns false at the end of the file, or if it cannot be read. */
static bool has_input(struct sgrad__stream *s) {
    ssize_t got = 0;
    if (s->left) return true;
    s->in = s->file < 0 ? s->data + s->at : s->block;
    if (s->file < 0) got = (ssize_t)(s->size - s->at < BLOCK ? s->size - s->at : BLOCK);
    else
        do got = pread(s->file, s->block, BLOCK, (off_t)s->at);
        while (got < 0 && errno == EINTR);
    if (got < 0) s->damage = strerror(errno);
    s->left = got < 0 ? 0 : (size_t)got;
    s->at += s->left;
    return s->left > 0;
}

/* ---- gzip ---------------------------------------------------------------------------------------------------------- */

/* Begins the next part, or ends the stream. */
static void begin_part(struct sgrad__stream *s) {
    while (has_input(s) && !*s->in) s->in++, s->left--;
    s->ended = !s->left;
    if (s->ended) return;
    if (*s->in == 0x1f) inflateReset(&s->gzip);
    else s->damage = "other data follow the compressed ones";
}

/* Decompresses to TO, as unpack_some does for Zstandard. Returns the number of bytes, at most ROOM; 0: the end, or damage. */
static size_t inflate_some(struct sgrad__stream *s, void *to, size_t room) {
    const uInt wanted = (uInt)(room < INT_MAX ? room : INT_MAX);
    s->gzip.next_out = to;
    s->gzip.avail_out = wanted;
    while (!s->ended && !s->damage && s->gzip.avail_out == wanted) {
        if (!has_input(s)) {
            if (!s->damage) s->damage = EARLY;
            break;
        }
        s->gzip.next_in = (unsigned char *)s->in;
        s->gzip.avail_in = (uInt)s->left;
        const int status = inflate(&s->gzip, Z_NO_FLUSH);
        s->in = s->gzip.next_in;
        s->left = s->gzip.avail_in;
        if (status == Z_STREAM_END) begin_part(s);
        else if (status != Z_OK) s->damage = s->gzip.msg ? s->gzip.msg : "the compressed data are damaged";
    }
    return wanted - s->gzip.avail_out;
}

/* ---- Zstandard ----------------------------------------------------------------------------------------------------- */

#ifdef SGRAD_HAVE_ZSTD
static size_t unpack_some(struct sgrad__stream *s, void *to, size_t room) {
    ZSTD_outBuffer out = { to, room, 0 };
    while (!out.pos && !s->damage) {
        const bool more = has_input(s);
        if (!more && (s->ended || s->damage)) break;    /* ENDED: a frame is complete */
        ZSTD_inBuffer in = { s->in, s->left, 0 };
        const size_t status = ZSTD_decompressStream(s->zstd, &out, &in);
        s->in += in.pos;
        s->left -= in.pos;
        if (ZSTD_isError(status)) s->damage = ZSTD_getErrorName(status);
        else if (!more && !out.pos) s->damage = EARLY;
        s->ended = status == 0;
    }
    return out.pos;
}

static int open_zstd(const char *name, struct sgrad__stream *s) {
    s->zstd = ZSTD_createDStream();
    return s->zstd ? 0 : sgrad_log_error(SGRAD_ENOMEM, "%s: no memory", name);
}

static void close_zstd(struct sgrad__stream *s) { ZSTD_freeDStream(s->zstd); }
#else
static size_t unpack_some(struct sgrad__stream *s, void *to, size_t room) { return (void)s, (void)to, (void)room, 0; }
static int open_zstd(const char *name, struct sgrad__stream *s) {
    return (void)s, sgrad_library_missing("zstd", "read %s", name);
}
static void close_zstd(struct sgrad__stream *s) { (void)s; }
#endif

/* ---- both ---------------------------------------------------------------------------------------------------------- */

static int open_gzip(const char *name, struct sgrad__stream *s) {
    s->is_gzip = true;
    return inflateInit2(&s->gzip, 16 + MAX_WBITS) == Z_OK ? 0 : sgrad_log_error(SGRAD_ENOMEM, "%s: no memory", name);
}

int sgrad__stream_open(const char *name, int file, const void *data, size_t size, struct sgrad__stream **stream) {
    unsigned char begin[4] = { 0 };
    *stream = NULL;
    if (file < 0) memcpy(begin, data, size < sizeof begin ? size : sizeof begin);
    else if (pread(file, begin, sizeof begin, 0) < 0 && errno != ESPIPE)
        return sgrad_log_error(SGRAD_EIO, "%s: %s", name, strerror(errno));
    const bool gzip = !memcmp(begin, "\x1f\x8b", 2), zstd = !memcmp(begin, "\x28\xb5\x2f\xfd", 4);
    if (!gzip && !zstd) return 0;
    struct sgrad__stream *s = *stream = sgrad_xcalloc(1, sizeof *s);
    s->file = file;
    s->data = data;
    s->size = size;
    s->block = sgrad_xcalloc(BLOCK, 1);
    return (gzip ? open_gzip : open_zstd)(name, s);
}

ssize_t sgrad__stream_read(struct sgrad__stream *s, void *to, size_t room) {
    const size_t got = s->damage ? 0 : (s->is_gzip ? inflate_some : unpack_some)(s, to, room);
    return got || !s->damage ? (ssize_t)got : -1;
}

const char *sgrad__stream_damage(const struct sgrad__stream *s) { return s->damage; }
int64_t sgrad__stream_at(const struct sgrad__stream *s) { return (int64_t)(s->at - s->left); }

void sgrad__stream_close(struct sgrad__stream *s) {
    if (!s) return;
    if (s->is_gzip) inflateEnd(&s->gzip);
    close_zstd(s);
    free(s->block);
    free(s);
}
