/* codec.c: compression of chunks: zlib and gzip, Zstandard, Blosc. */
#include "config.h"
#include "runtime/libraries.h"
#include "volumes/formats.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#ifdef SGRAD_HAVE_BLOSC
#include <blosc.h>
#endif
#ifdef SGRAD_HAVE_ZSTD
#include <zstd.h>
#endif

bool sgrad__codec_find(const char *name, enum sgrad__codec *codec) {
    static const struct {
        const char *name;
        enum sgrad__codec codec;
    } known[] = { { "zlib", SGRAD__ZLIB }, { "gzip", SGRAD__ZLIB }, { "zstd", SGRAD__ZSTD }, { "blosc", SGRAD__BLOSC } };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(known[i].name, name)) return *codec = known[i].codec, true;
    return false;
}

int sgrad__codec_check(enum sgrad__codec codec, const char *name) {
    static const char *const library[] = { [SGRAD__ZSTD] = "zstd", [SGRAD__BLOSC] = "blosc" };
    const char *needed = codec == SGRAD__ZSTD || codec == SGRAD__BLOSC ? library[codec] : NULL;
    return !needed || sgrad_library_has(needed) ? 0 : sgrad_library_missing(needed, "read or write %s", name);
}

/* Accepts the headers of zlib and of gzip. Returns the number of bytes; SIZE_MAX: the data are damaged. */
static size_t inflate_all(const void *data, size_t size, void *to, size_t wanted) {
    z_stream z = { .next_in = (Bytef *)data, .avail_in = (uInt)size, .next_out = to, .avail_out = (uInt)wanted };
    if (inflateInit2(&z, MAX_WBITS + 32)) return SIZE_MAX;
    const int status = inflate(&z, Z_FINISH);
    const size_t bytes = z.total_out;
    inflateEnd(&z);
    return status == Z_STREAM_END ? bytes : SIZE_MAX;
}

static size_t blosc_all(const void *data, size_t size, void *to, size_t wanted) {
#ifdef SGRAD_HAVE_BLOSC
    size_t bytes;
    if (blosc_cbuffer_validate(data, size, &bytes) || bytes != wanted) return SIZE_MAX;
    const int got = blosc_decompress_ctx(data, to, wanted, 1);
    return got < 0 ? SIZE_MAX : (size_t)got;
#else
    return (void)data, (void)size, (void)to, (void)wanted, SIZE_MAX;
#endif
}

#ifdef SGRAD_HAVE_ZSTD
static size_t zstd_all(const void *data, size_t size, void *to, size_t wanted) { return ZSTD_decompress(to, wanted, data, size); }

static bool zstd_whole(const void *data, size_t size, size_t wanted) {
    return ZSTD_getFrameContentSize(data, size) == wanted && ZSTD_findFrameCompressedSize(data, size) == size;
}

size_t sgrad__codec_pack(const void *data, size_t size, void **packed) {
    const size_t most = ZSTD_compressBound(size) + sizeof(uint32_t);
    ZSTD_CCtx *how = ZSTD_createCCtx();
    *packed = sgrad_xcalloc(most, 1);
    if (!how) return 0;
    ZSTD_CCtx_setParameter(how, ZSTD_c_compressionLevel, 1);
    ZSTD_CCtx_setParameter(how, ZSTD_c_checksumFlag, 1);
    const size_t bytes = ZSTD_compress2(how, *packed, most, data, size);
    ZSTD_freeCCtx(how);
    return ZSTD_isError(bytes) ? 0 : bytes;
}
#else
static size_t zstd_all(const void *data, size_t size, void *to, size_t wanted) {
    return (void)data, (void)size, (void)to, (void)wanted, SIZE_MAX;
}

static bool zstd_whole(const void *data, size_t size, size_t wanted) { return (void)data, (void)size, (void)wanted, false; }

size_t sgrad__codec_pack(const void *data, size_t size, void **packed) { return (void)data, (void)size, *packed = NULL, 0; }
#endif

int sgrad__codec_expand(enum sgrad__codec codec, const char *name, const void *data, size_t size, void *to, size_t wanted) {
    static const char *const title[] = { "uncompressed", "zlib", "zstd", "blosc" };
    size_t got = size;
    SGRAD_TRY(sgrad__codec_check(codec, name));
    if (codec == SGRAD__NO_CODEC && size == wanted) memcpy(to, data, wanted);
    else if (codec == SGRAD__ZLIB) got = inflate_all(data, size, to, wanted);
    else if (codec == SGRAD__ZSTD) got = zstd_all(data, size, to, wanted);
    else if (codec == SGRAD__BLOSC) got = blosc_all(data, size, to, wanted);
    if (got == wanted) return 0;
    return sgrad_log_error(SGRAD_EFORMAT, "%s: its %zu bytes are not a %s chunk of %zu bytes; the file is damaged", name, size,
                           title[codec], wanted);
}

bool sgrad__codec_whole(enum sgrad__codec codec, const void *data, size_t size, size_t wanted) {
    return codec == SGRAD__ZSTD ? zstd_whole(data, size, wanted) : size > 0;
}
