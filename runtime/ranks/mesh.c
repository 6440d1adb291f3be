/* mesh.c: coordinates of ranks in a mesh, such as "data=2,tensor=3", and groups of ranks along sets of axes. */
#include "config.h"
#include "runtime/collectives.h"
#include "runtime/runtime.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 1 << 15 };        /* maximum number of ranks along an axis */

static int find(const struct sgrad_mesh *mesh, const char *name) {
    for (int i = 0; i < mesh->axes; i++)
        if (!strcmp(mesh->axis[i].name, name)) return i;
    return -1;
}

static bool add_axis(struct sgrad_mesh *mesh, const struct sgrad_axis *axis) {
    if (mesh->axes == SGRAD_MAX_AXES || find(mesh, axis->name) >= 0) return false;
    mesh->axis[mesh->axes++] = *axis;
    return true;
}

/* Adds the additional axis NAME.WHICH for AXIS, a square or cube called NAME. */
static bool add_side(struct sgrad_mesh *mesh, const struct sgrad_axis *axis, const char *which, bool samples) {
    struct sgrad_axis side = { .ranks = axis->ranks, .samples = samples };
    if (snprintf(side.name, sizeof side.name, "%s.%s", axis->name, which) >= (int)sizeof side.name) return false;
    return add_axis(mesh, &side);
}

/* Parses one axis, "NAME=N" or "NAME=Dd:N", of LENGTH characters and adds it. */
static bool add_axes(struct sgrad_mesh *mesh, const char *text, size_t length) {
    const char *equals = memchr(text, '=', length);
    const size_t name = equals ? (size_t)(equals - text) : 0;
    struct sgrad_axis axis = { .dimensions = 1 };
    if (!name || name >= sizeof axis.name || memchr(text, '.', name)) return false;
    memcpy(axis.name, text, name);
    const char *digit = equals + 1;
    if (*digit >= '1' && *digit <= '3' && digit[1] == 'd' && digit[2] == ':') {
        axis.dimensions = *digit - '0';
        digit += 3;
    }
    for (; digit < text + length; digit++) {
        if (!isdigit((unsigned char)*digit) || axis.ranks > MOST) return false;
        axis.ranks = 10 * axis.ranks + *digit - '0';
    }
    if (!axis.ranks || axis.ranks > MOST) return false;
    if (axis.dimensions > 1 && !add_side(mesh, &axis, "samples", true)) return false;
    if (!add_axis(mesh, &axis)) return false;
    return axis.dimensions < 3 || add_side(mesh, &axis, "features", false);
}

int sgrad_mesh_parse(const char *text, const char *const *sampled, struct sgrad_mesh *mesh) {
    const char *rest = sampled[0];
    struct sgrad_mesh named = { 0 }, whole = { .axes = 1, .axis = { { .dimensions = 1 } } };
    bool good = true;
    for (const char *at = text; good; at++) {
        const size_t length = strcspn(at, ",");
        good = add_axes(&named, at, length);
        at += length;
        if (!*at) break;
    }
    snprintf(whole.axis[0].name, sizeof whole.axis[0].name, "%s", rest);
    if (good && find(&named, rest) < 0) {
        good = named.axes < SGRAD_MAX_AXES;
        for (int i = 0; i < named.axes && good; i++) whole.axis[whole.axes++] = named.axis[i];
    } else {
        whole = named;
    }
    if (!good)
        return sgrad_log_error(SGRAD_EINVAL,
                               "mesh '%s' is invalid; give AXIS=RANKS, separated by commas, for example %s=2,tensor=1d:2 (or "
                               "tensor=2d:2, tensor=3d:2)",
                               text, rest);
    *mesh = whole;
    for (int i = 0; sampled[i]; i++) {
        const int axis = find(mesh, sampled[i]);
        if (axis >= 0) mesh->axis[axis].samples = true;
    }
    return 0;
}

int sgrad_mesh_fit(struct sgrad_mesh *mesh, int ranks) {
    long named = 1;
    int rest = -1;
    for (int i = 0; i < mesh->axes; i++) {
        if (!mesh->axis[i].ranks) rest = i;
        else if (named <= MOST * (long)MOST) named *= mesh->axis[i].ranks;      /* a larger product is too many */
    }
    if (rest < 0 ? named != ranks : ranks % named != 0)
        return sgrad_log_error(SGRAD_EINVAL, "the mesh requires %s%ld ranks, but there %s %d; use mpirun -n %ld",
                               rest < 0 ? "" : "a multiple of ", named, sgrad_plural(ranks, "is", "are"), ranks, named);
    if (rest >= 0) mesh->axis[rest].ranks = (int)(ranks / named);
    return 0;
}

const struct sgrad_axis *sgrad_mesh_axis(const struct sgrad_mesh *mesh, const char *name) {
    const int i = mesh ? find(mesh, name) : -1;
    return i < 0 ? NULL : &mesh->axis[i];
}

const char *sgrad_mesh_text(const struct sgrad_mesh *mesh, char text[SGRAD_MESH_TEXT]) {
    size_t at = 0;
    for (const struct sgrad_axis *a = mesh->axis; a < mesh->axis + mesh->axes; a++) {
        if (!a->dimensions) continue;
        char cut[16] = "";
        if (a->dimensions > 1) snprintf(cut, sizeof cut, "%dd:", a->dimensions);
        at += (size_t)snprintf(text + at, SGRAD_MESH_TEXT - at, "%s%s=%s%d", at ? "," : "", a->name, cut, a->ranks);
    }
    return text;
}

/* ---- sets of axes ---- */

unsigned sgrad_mesh_bit(const struct sgrad_mesh *mesh, const struct sgrad_axis *axis) { return 1u << (axis - mesh->axis); }

unsigned sgrad_mesh_sampled(const struct sgrad_mesh *mesh) {
    unsigned axes = 0;
    for (int i = 0; i < mesh->axes; i++) axes |= mesh->axis[i].samples ? 1u << i : 0;
    return axes;
}

unsigned sgrad_mesh_all(const struct sgrad_mesh *mesh) { return (1u << mesh->axes) - 1; }

int sgrad_mesh_ranks(const struct sgrad_mesh *mesh, unsigned axes) {
    int ranks = 1;
    for (int i = 0; i < mesh->axes; i++) ranks *= axes >> i & 1 ? mesh->axis[i].ranks : 1;
    return ranks;
}

int sgrad_mesh_index(const struct sgrad_mesh *mesh, unsigned axes, int rank) {
    int place = 0;
    for (int i = 0; i < mesh->axes; i++) {
        const int after = sgrad_mesh_ranks(mesh, sgrad_mesh_all(mesh) & ~0u << (i + 1)), ranks = mesh->axis[i].ranks;
        if (axes >> i & 1) place = place * ranks + rank / after % ranks;
    }
    return place;
}

struct sgrad_group sgrad_mesh_group(const struct sgrad_mesh *mesh, unsigned axes, int rank, int *member) {
    const unsigned others = sgrad_mesh_all(mesh) & ~axes;
    const int all = sgrad_mesh_ranks(mesh, sgrad_mesh_all(mesh)), here = sgrad_mesh_index(mesh, others, rank);
    struct sgrad_group group = { 0, member };
    for (int other = 0; other < all; other++)
        if (sgrad_mesh_index(mesh, others, other) == here) member[group.count++] = other;
    return group;
}
