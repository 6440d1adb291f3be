/* volumes.c: functions for volumes of all formats: selecting the format by the name, opening, reading, writing. */
#include "config.h"
#include "runtime/libraries.h"
#include "volumes/formats.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

extern const struct sgrad_volume_format sgrad__tiff_format, sgrad__hdf5_format, sgrad__zarr_format, sgrad__png_format,
    sgrad__raw_format;
const struct sgrad_volume_format *const sgrad_volume_formats[] = {
    &sgrad__zarr_format, &sgrad__hdf5_format, &sgrad__tiff_format, &sgrad__raw_format, &sgrad__png_format, NULL,
};
#define READ_NAMES "NAME.tif, NAME.h5[:DATASET], NAME.raw:ZxYxX[:TYPE], folders of Zarr or PNG files"

static struct sgrad_volume *volume_of(const char *name) {
    struct sgrad_volume *v = sgrad_xcalloc(1, sizeof *v);
    v->path = sgrad_format("%s", name);
    for (int i = 0; sgrad_volume_formats[i] && !v->format; i++)
        if (sgrad_volume_formats[i]->is(name)) v->format = sgrad_volume_formats[i];
    return v;
}

static int finish(struct sgrad_volume *v, int error, struct sgrad_volume **volume) {
    if (error) sgrad_volume_close(v);
    else *volume = v;
    return error;
}

static int no_format(const char *name) {
    struct stat status;
    if (stat(name, &status)) return sgrad_log_error(SGRAD_EIO, "%s: %s", name, strerror(errno));
    return sgrad_log_error(SGRAD_ENAME, "%s: has an unknown format; give " READ_NAMES, name);
}

int sgrad_volume_open(const char *name, struct sgrad_volume **volume) {
    struct sgrad_volume *v = volume_of(name);
    int error = v->format ? 0 : no_format(name);
    if (!error) error = v->format->open ? v->format->open(v) : sgrad_library_missing(v->format->library, "read %s", name);
    return finish(v, error, volume);
}

int sgrad_volume_create(const char *name, enum sgrad_voxel voxel, const int64_t dim[SGRAD_VOLUME_RANK],
                        const int64_t chunk[SGRAD_VOLUME_RANK], struct sgrad_volume **volume) {
    struct sgrad_volume *v = volume_of(name);
    v->voxel = voxel;
    int error = 0;
    if (v->format && !v->format->open) error = sgrad_library_missing(v->format->library, "write %s", name);
    else if (!v->format || !v->format->create)
        error = sgrad_log_error(SGRAD_ENAME,
                                "%s: has a format that cannot be written; give NAME.zarr, NAME.h5[:DATASET] or NAME.raw", name);
    if (!error) error = sgrad__volume_shape(v, SGRAD_VOLUME_RANK, dim, chunk);
    return finish(v, error ? error : v->format->create(v), volume);
}

int sgrad_volume_sign(struct sgrad_volume *volume, const char *work, bool again) {
    return volume->format->sign ? volume->format->sign(volume, work, again) : 0;
}
int sgrad_volume_finish(struct sgrad_volume *volume) { return volume->format->finish ? volume->format->finish(volume) : 0; }

void sgrad_volume_close(struct sgrad_volume *volume) {
    if (!volume) return;
    if (volume->state) volume->format->close(volume);
    free(volume->path);
    free(volume);
}

static void check_box(const struct sgrad_volume *volume, const struct sgrad_box *box) {
    for (int d = 0; d < SGRAD_VOLUME_RANK; d++)
        assert(box->from[d] >= 0 && box->size[d] > 0 && box->from[d] + box->size[d] <= volume->dim[d]);
}

int sgrad_volume_read(const struct sgrad_volume *volume, const struct sgrad_box *box, enum sgrad_voxel as, void *to) {
    check_box(volume, box);
    if (as == volume->voxel) return volume->format->read(volume, box, to);
    const int64_t count = sgrad_box_count(box);
    void *room = sgrad_xcalloc((size_t)count, sgrad_voxel_size(volume->voxel));
    int error = volume->format->read(volume, box, room);
    if (!error) sgrad_voxel_convert(volume->voxel, room, count, as, to);
    free(room);
    return error;
}

int sgrad_volume_write(const struct sgrad_volume *volume, const struct sgrad_box *box, enum sgrad_voxel is, const void *from) {
    check_box(volume, box);
    for (int d = 0; d < SGRAD_VOLUME_RANK; d++)
        assert(box->from[d] % volume->chunk[d] == 0 &&
               (box->from[d] + box->size[d] == volume->dim[d] || (box->from[d] + box->size[d]) % volume->chunk[d] == 0));
    if (is == volume->voxel) return volume->format->write(volume, box, from);
    const int64_t count = sgrad_box_count(box);
    void *room = sgrad_xcalloc((size_t)count, sgrad_voxel_size(volume->voxel));
    sgrad_voxel_convert(is, from, count, volume->voxel, room);
    int error = volume->format->write(volume, box, room);
    free(room);
    return error;
}

bool sgrad_volume_has(const struct sgrad_volume *volume, const struct sgrad_box *box) {
    return volume->format->has && volume->format->has(volume, box);
}
bool sgrad_volume_is_shared(const struct sgrad_volume *volume) { return volume->format->shared; }

/* ---- images as pixels ---------------------------------------------------------------------------------------------- */

int sgrad_volume_pixels(const struct sgrad_volume *volume, enum sgrad_dtype *pixel) {
    const bool real = volume->voxel == SGRAD_VOXEL_F32 || volume->voxel == SGRAD_VOXEL_F64;
    if (volume->dim[0] == 1 && (volume->voxel == SGRAD_VOXEL_U8 || volume->voxel == SGRAD_VOXEL_U16 || real))
        return *pixel = volume->voxel == SGRAD_VOXEL_U8 ? SGRAD_U8 : SGRAD_U16, 0;
    if (volume->dim[0] != 1)
        return sgrad_log_error(SGRAD_EFORMAT, "%s: has %lld channels, but an image must have one; split its channels into files",
                               volume->path, (long long)volume->dim[0]);
    return sgrad_log_error(SGRAD_EFORMAT,
                           "%s: has pixels of %s, but an image must have uint8, uint16, float32 or float64; convert it",
                           volume->path, sgrad_voxel_name(volume->voxel));
}

int sgrad_volume_read_pixels(const struct sgrad_volume *volume, const struct sgrad_box *box, void *to) {
    const bool real = volume->voxel == SGRAD_VOXEL_F32 || volume->voxel == SGRAD_VOXEL_F64;
    if (!real) return sgrad_volume_read(volume, box, volume->voxel, to);
    const int64_t count = sgrad_box_count(box);
    double *voxel = sgrad_xcalloc((size_t)count, sizeof *voxel);
    int error = sgrad_volume_read(volume, box, SGRAD_VOXEL_F64, voxel);
    for (int64_t i = 0; i < count && !error; i++)
        if (voxel[i] >= 0 && voxel[i] <= 1) voxel[i] *= 65535;
        else
            error = sgrad_log_error(SGRAD_EFORMAT,
                                    "%s: has a voxel of %g, but an image's real numbers must be 0 to 1; scale them first",
                                    volume->path, voxel[i]);
    if (!error) sgrad_voxel_convert(SGRAD_VOXEL_F64, voxel, count, SGRAD_VOXEL_U16, to);
    free(voxel);
    return error;
}
