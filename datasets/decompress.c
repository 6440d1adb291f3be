/* decompress.c: decompresses a file in memory, of gzip or Zstandard, of one or several parts. */
#include "config.h"
#include "datasets/formats.h"
#include "runtime/libraries.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#ifdef SGRAD_HAVE_ZSTD
#include <zstd.h>
#endif

/* The decompressed data, in memory that doubles. */
struct output {
    const char *name;
    unsigned char *data;
    size_t size, room, limit;
};

/* Makes room for more data. SGRAD_EFORMAT: they would have more than the limit. SGRAD_ENOMEM. */
static int extend(struct output *to) {
    if (to->size < to->room) return 0;
    if (to->room >= to->limit)
        return sgrad_log_error(SGRAD_EFORMAT, "%s: has more than %zu bytes after decompression", to->name, to->limit);
    const size_t room = to->room ? (to->room < to->limit / 2 ? 2 * to->room : to->limit) : 1 << 16;
    unsigned char *data = realloc(to->data, room);
    if (!data) return sgrad_log_error(SGRAD_ENOMEM, "%s: no memory for %zu decompressed bytes", to->name, room);
    to->data = data;
    to->room = room;
    return 0;
}

static int gunzip(const unsigned char *data, size_t size, struct output *to) {
    z_stream z = { 0 };
    int status = inflateInit2(&z, 16 + MAX_WBITS), error = 0;
    if (status != Z_OK) return sgrad_log_error(SGRAD_ENOMEM, "%s: no memory for zlib", to->name);
    for (bool ended = false; !error && !ended;) {
        const size_t in = size < INT_MAX ? size : INT_MAX;
        if ((error = extend(to))) break;
        const size_t out = to->room - to->size < INT_MAX ? to->room - to->size : INT_MAX;
        z.next_in = (unsigned char *)data, z.avail_in = (uInt)in;
        z.next_out = to->data + to->size, z.avail_out = (uInt)out;
        status = inflate(&z, Z_NO_FLUSH);
        data += in - z.avail_in, size -= in - z.avail_in, to->size += out - z.avail_out;
        ended = status == Z_STREAM_END && !size;
        if (status == Z_STREAM_END && size)
            inflateReset(&z);
        else if (status != Z_OK && status != Z_STREAM_END)
            error = sgrad_log_error(SGRAD_EFORMAT, "%s: byte %zu of the decompressed data: %s", to->name, to->size,
                                    status == Z_BUF_ERROR ? "the compressed data end early"
                                    : z.msg               ? z.msg
                                                          : "the compressed data are damaged");
    }
    inflateEnd(&z);
    return error;
}

#ifdef SGRAD_HAVE_ZSTD
static int unzstd(const unsigned char *data, size_t size, struct output *to) {
    ZSTD_DStream *stream = ZSTD_createDStream();
    ZSTD_inBuffer in = { data, size, 0 };
    size_t left = 1; /* 0: a part is complete */
    int error = stream ? 0 : sgrad_log_error(SGRAD_ENOMEM, "%s: no memory for Zstandard", to->name);
    while (!error && (in.pos < in.size || left)) {
        if ((error = extend(to))) break;
        ZSTD_outBuffer out = { to->data, to->room, to->size };
        const size_t before = in.pos;
        left = ZSTD_decompressStream(stream, &out, &in);
        if (ZSTD_isError(left))
            error = sgrad_log_error(SGRAD_EFORMAT, "%s: byte %zu of the decompressed data: %s", to->name, to->size,
                                    ZSTD_getErrorName(left));
        else if (left && in.pos == before && out.pos == to->size && out.pos < out.size)
            error = sgrad_log_error(SGRAD_EFORMAT, "%s: byte %zu of the decompressed data: the compressed data end early",
                                    to->name, to->size);
        to->size = out.pos;
    }
    ZSTD_freeDStream(stream);
    return error;
}
#else
static int unzstd(const unsigned char *data, size_t size, struct output *to) {
    (void)data, (void)size;
    return sgrad_library_missing("zstd", "read %s", to->name);
}
#endif

int sgrad__decompress(const char *name, const void *data, size_t size, size_t limit, void **content, size_t *bytes) {
    const unsigned char *byte = data;
    struct output to = { .name = name, .limit = limit };
    int error;
    if (size > 2 && byte[0] == 0x1f && byte[1] == 0x8b)
        error = gunzip(data, size, &to);
    else if (size > 4 && !memcmp(data, "\x28\xb5\x2f\xfd", 4))
        error = unzstd(data, size, &to);
    else
        return *content = NULL, 0;
    if (error)
        free(to.data);
    else
        *content = to.data, *bytes = to.size;
    return error;
}
