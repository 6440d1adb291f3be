/* axis_names.c: checks the names that a file gives to the axes of its array. The axes of a volume are channels, z, y, x; the
 * first ones may be missing:
 *
 *     dimension_names ["z", "y", "x"]          Zarr, version 3
 *     _ARRAY_DIMENSIONS ["c", "z", "y", "x"]   Zarr, version 2, in .zattrs
 *     axistags, DIMENSION_LABELS               HDF5 (hdf5.c)
 *
 * A time axis may replace z. Unknown names, and axes of length 1, are not checked. */
#include "config.h"
#include "volumes/formats.h"

#include <jansson.h>
#include <string.h>
#include <strings.h>

/* Returns the position of an axis from the end: x 0, y 1, z 2, channels 3; -1: the name is unknown. */
static int place_of(const char *name) {
    static const struct {
        const char *name;
        int place;
    } known[] = { { "x", 0 }, { "y", 1 }, { "z", 2 }, { "t", 2 }, { "time", 2 }, { "c", 3 }, { "ch", 3 }, { "channel", 3 },
                  { "channels", 3 } };
    for (size_t i = 0; name && i < sizeof known / sizeof *known; i++)
        if (!strcasecmp(name, known[i].name)) return known[i].place;
    return -1;
}

int sgrad__axes_check(const char *path, int rank, const int64_t *dim, const char *const *name) {
    char text[200] = "";
    bool fits = true;
    for (int d = 0; d < rank; d++) {
        const int place = place_of(name[d]);
        const size_t used = strlen(text);
        fits &= place < 0 || place == rank - 1 - d || dim[d] == 1;
        snprintf(text + used, sizeof text - used, "%s%.30s", d ? ", " : "", name[d] ? name[d] : "?");
    }
    return fits ? 0
                : sgrad_log_error(SGRAD_EFORMAT, "%s: its axes are %s, but must be ([[c,] z,] y, x); transpose it", path, text);
}

int sgrad__axes_check_json(const char *path, int rank, const int64_t *dim, const json_t *names) {
    const char *name[SGRAD_VOLUME_RANK];
    if (json_array_size(names) != (size_t)rank || rank > SGRAD_VOLUME_RANK) return 0;
    for (int d = 0; d < rank; d++) {
        const json_t *one = json_array_get(names, (size_t)d);
        name[d] = json_string_value(json_is_object(one) ? json_object_get(one, "key") : one);
    }
    return sgrad__axes_check(path, rank, dim, name);
}
