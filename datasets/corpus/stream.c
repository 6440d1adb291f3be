/* stream.c: reads a file in parts, and decompresses it if its first bytes are those of gzip or Zstandard. Only some KiB of it are
 * in memory. */
#include "config.h"
#include "datasets/corpus/corpus.h"
#include "runtime/runtime.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>
#ifdef SGRAD_HAVE_ZSTD
#include <zstd.h>
#endif

#define DAMAGED "the compressed data are damaged"
#define EARLY   "the compressed data end early"

struct sgrad__stream {
    int file;
    gzFile gzip; /* NULL: the file is of another kind */
#ifdef SGRAD_HAVE_ZSTD
    ZSTD_DStream *zstd; /* NULL: likewise */
    ZSTD_inBuffer in;
    size_t left; /* 0: a part of the file is complete */
#endif
};

static ssize_t read_file(int file, void *to, size_t most) {
    ssize_t got;
    do got = read(file, to, most);
    while (got < 0 && errno == EINTR);
    return got;
}

static ssize_t read_gzip(gzFile gzip, void *to, size_t most, const char **why) {
    const int got = gzread(gzip, to, most < 1 << 30 ? (unsigned)most : 1u << 30);
    int status;
    const char *text = gzerror(gzip, &status), *colon = strstr(text, ": "); /* "<fd:6>: incorrect data check" */
    if (status == Z_BUF_ERROR && got <= 0) return *why = EARLY, -1;
    if (got < 0) *why = status == Z_ERRNO ? strerror(errno) : colon ? colon + 2 : DAMAGED;
    return got;
}

#ifdef SGRAD_HAVE_ZSTD
static ssize_t read_zstd(struct sgrad__stream *s, void *to, size_t most, const char **why) {
    ZSTD_outBuffer out = { to, most, 0 };
    while (!out.pos) {
        ssize_t got = 1;
        if (s->in.pos == s->in.size) {
            got = read_file(s->file, (void *)s->in.src, ZSTD_DStreamInSize());
            if (got < 0) return *why = strerror(errno), -1;
            s->in.pos = 0, s->in.size = (size_t)got;
        }
        if (!got && !s->left) return 0;
        const size_t left = ZSTD_decompressStream(s->zstd, &out, &s->in);
        if (ZSTD_isError(left)) return *why = ZSTD_getErrorName(left), -1;
        if (!got && !out.pos) return *why = EARLY, -1;
        s->left = left;
    }
    return (ssize_t)out.pos;
}
#endif

/* Prepares for a file of Zstandard. */
static int open_zstd(struct sgrad__stream *s, const char *name) {
#ifdef SGRAD_HAVE_ZSTD
    s->zstd = ZSTD_createDStream();
    s->in.src = sgrad_xcalloc(ZSTD_DStreamInSize(), 1);
    s->left = 1;
    return s->zstd ? 0 : sgrad_log_error(SGRAD_ENOMEM, "%s: no memory for Zstandard", name);
#else
    (void)s;
    return sgrad_library_missing("zstd", "read %s", name);
#endif
}

int sgrad__stream_open(const char *name, int file, struct sgrad__stream **stream) {
    unsigned char first[4] = { 0 };
    const ssize_t got = pread(file, first, sizeof first, 0); /* fails for a pipe, which is read as it is */
    struct sgrad__stream *s = sgrad_xcalloc(1, sizeof *s);
    int error = 0;
    s->file = file;
    if (got == 4 && first[0] == 0x1f && first[1] == 0x8b) {
        const int own = fcntl(file, F_DUPFD_CLOEXEC, 0);
        s->gzip = own < 0 ? NULL : gzdopen(own, "rb");
        if (!s->gzip) error = sgrad_log_error(SGRAD_ENOMEM, "%s: no memory for zlib", name);
        if (!s->gzip && own >= 0) close(own);
    } else if (got == 4 && !memcmp(first, "\x28\xb5\x2f\xfd", 4))
        error = open_zstd(s, name);
    if (error)
        sgrad__stream_close(s);
    else
        *stream = s;
    return error;
}

ssize_t sgrad__stream_read(struct sgrad__stream *stream, void *to, size_t most, const char **why) {
    if (stream->gzip) return read_gzip(stream->gzip, to, most, why);
#ifdef SGRAD_HAVE_ZSTD
    if (stream->zstd) return read_zstd(stream, to, most, why);
#endif
    const ssize_t got = read_file(stream->file, to, most);
    if (got < 0) *why = strerror(errno);
    return got;
}

int64_t sgrad__stream_at(const struct sgrad__stream *stream) {
    const off_t at = stream->gzip ? gzoffset(stream->gzip) : lseek(stream->file, 0, SEEK_CUR);
    return at < 0 ? 0 : at;
}

void sgrad__stream_close(struct sgrad__stream *stream) {
    if (!stream) return;
    if (stream->gzip) gzclose(stream->gzip);
#ifdef SGRAD_HAVE_ZSTD
    ZSTD_freeDStream(stream->zstd);
    free((void *)stream->in.src);
#endif
    free(stream);
}
