/* raw.c: raw voxels, little-endian, rows of x, slice after slice. The file does not state its shape and type, so the name does:
 *
 *     stack.raw:20x512x512            (Z,Y,X) of uint8
 *     stack.raw:2x20x512x512:float32  (C,Z,Y,X)
 *
 * A volume that is written is named without them, because its shape is known.
 *
 * Limits: only one process may write a file. */
#include "config.h"
#include "volumes/formats.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Returns the end of the extension: a colon, or the end of NAME. NULL: NAME is not the name of such a file. */
static const char *ending_of(const char *name) {
    for (const char *at = name; (at = strstr(at, ".raw")); at++)
        if (!at[4] || at[4] == ':') return at + 4;
    return NULL;
}
static bool is_raw(const char *name) { return ending_of(name) != NULL; }

/* Parses "20x512x512" or "20x512x512:uint16". SGRAD_ENAME: TEXT is malformed. */
static int parse(struct sgrad_volume *volume, const char *text) {
    int64_t dim[SGRAD_VOLUME_RANK], chunk[SGRAD_VOLUME_RANK];
    int rank = 0;
    char *end = NULL;
    for (const char *at = text; rank < SGRAD_VOLUME_RANK; at = end + 1) {
        dim[rank++] = *at >= '1' && *at <= '9' ? strtoll(at, &end, 10) : 0;
        if (!dim[rank - 1] || *end != 'x') break;
    }
    const bool sized = rank >= 2 && dim[rank - 1] > 0 && (!*end || *end == ':');
    enum sgrad_voxel voxel = SGRAD_VOXEL_U8;
    if (sized && *end)
        for (voxel = 0; voxel < SGRAD_VOXELS && strcmp(end + 1, sgrad_voxel_name(voxel)); voxel++) continue;
    if (!sized || voxel == SGRAD_VOXELS)
        return sgrad_log_error(SGRAD_ENAME,
                               "%s: ':%s' is not a shape; give FILE.raw:ZxYxX[:TYPE], for example stack.raw:20x512x512:uint16",
                               volume->path, text);
    volume->voxel = voxel;
    for (int d = 0; d < rank; d++) chunk[d] = d < rank - 2 ? 1 : dim[d];
    return sgrad__volume_shape(volume, rank, dim, chunk);
}

static uint64_t bytes_of(const struct sgrad_volume *volume) {
    return (uint64_t)(volume->dim[0] * volume->dim[1] * volume->dim[2] * volume->dim[3]) * sgrad_voxel_size(volume->voxel);
}

struct raw {
    int file;
    char *part;         /* path of the temporary file that is written; NULL: reading */
};

static int open_file(struct sgrad_volume *volume, char *part, int how) {
    struct raw *r = volume->state = sgrad_xcalloc(1, sizeof *r);
    *r = (struct raw){ open(part ? part : volume->path, how | O_CLOEXEC, 0666), part };
    return r->file >= 0 ? 0 : sgrad_log_error(SGRAD_EIO, "%s: cannot be opened: %s", volume->path, strerror(errno));
}

static int open_raw(struct sgrad_volume *volume) {
    const char *end = ending_of(volume->path);
    struct stat status;
    char *shape = sgrad_format("%s", *end ? end + 1 : "");
    volume->path[end - volume->path] = 0;
    int error = parse(volume, shape);
    free(shape);
    if (!error) error = open_file(volume, NULL, O_RDONLY);
    SGRAD_TRY(error);
    if (fstat(((struct raw *)volume->state)->file, &status) || (uint64_t)status.st_size != bytes_of(volume))
        return sgrad_log_error(SGRAD_EFORMAT, "%s: has %lld bytes, but its shape and type require %llu", volume->path,
                               (long long)status.st_size, (unsigned long long)bytes_of(volume));
    return 0;
}

static int create_raw(struct sgrad_volume *volume) {
    if (*ending_of(volume->path))
        return sgrad_log_error(SGRAD_ENAME, "%s: the shape and the type of an output cannot be chosen; give only FILE.raw",
                               volume->path);
    if (!access(volume->path, F_OK))
        return sgrad_log_error(SGRAD_EIO, "%s: already exists; give another name, or remove it", volume->path);
    SGRAD_TRY(open_file(volume, sgrad__part_of(volume->path), O_RDWR | O_CREAT | O_TRUNC));
    if (!ftruncate(((struct raw *)volume->state)->file, (off_t)bytes_of(volume))) return 0;
    return sgrad_log_error(SGRAD_EIO, "%s: cannot allocate %llu bytes: %s", volume->path, (unsigned long long)bytes_of(volume),
                           strerror(errno));
}

/* Reads COUNT bytes of FILE at offset AT to TO, or, if TO is NULL, writes them from FROM. Returns false after an error, in
 * errno. */
static bool pass_row(int file, void *to, const void *from, size_t count, off_t at) {
    for (size_t done = 0; done < count;) {
        const off_t place = at + (off_t)done;
        const ssize_t n = to ? pread(file, (char *)to + done, count - done, place)
                             : pwrite(file, (const char *)from + done, count - done, place);
        if (n < 0 && errno == EINTR) continue;
        if (n == 0) errno = EIO;
        if (n <= 0) return false;
        done += (size_t)n;
    }
    return true;
}

static int pass(const struct sgrad_volume *volume, const struct sgrad_box *box, void *to, const void *from) {
    const size_t size = sgrad_voxel_size(volume->voxel), row = (size_t)box->size[3] * size;
    const int file = ((const struct raw *)volume->state)->file;
    size_t done = 0;
    for (int64_t c = box->from[0]; c < box->from[0] + box->size[0]; c++)
        for (int64_t z = box->from[1]; z < box->from[1] + box->size[1]; z++)
            for (int64_t y = box->from[2]; y < box->from[2] + box->size[2]; y++, done += row) {
                const int64_t at = ((c * volume->dim[1] + z) * volume->dim[2] + y) * volume->dim[3] + box->from[3];
                if (!pass_row(file, to ? (char *)to + done : NULL, from ? (const char *)from + done : NULL, row,
                              (off_t)at * (off_t)size))
                    return sgrad_log_error(SGRAD_EIO, "%s: cannot be %s: %s", volume->path, to ? "read" : "written",
                                           strerror(errno));
            }
    return 0;
}

static int read_raw(const struct sgrad_volume *volume, const struct sgrad_box *box, void *to) {
    return pass(volume, box, to, NULL);
}
static int write_raw(const struct sgrad_volume *volume, const struct sgrad_box *box, const void *from) {
    return pass(volume, box, NULL, from);
}

static int finish_raw(struct sgrad_volume *volume) {
    struct raw *r = volume->state;
    SGRAD_TRY(sgrad__part_place(r->part, volume->path));
    free(r->part);
    r->part = NULL;
    return 0;
}

static void close_raw(struct sgrad_volume *volume) {
    struct raw *r = volume->state;
    if (r->file >= 0) close(r->file);
    if (r->part) unlink(r->part);
    free(r->part);
    free(r);
}

const struct sgrad_volume_format sgrad__raw_format = {
    .name = "raw", .summary = "raw voxels, FILE.raw:ZxYxX[:TYPE]", .is = is_raw, .open = open_raw, .create = create_raw,
    .read = read_raw, .write = write_raw, .finish = finish_raw, .close = close_raw,
};
