/* mesh.c: coordinates of ranks, "data=2,tensor=3", and the groups that stand along each axis. */
#include "config.h"
#include "runtime/collectives.h"
#include "runtime/runtime.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 1 << 15 };        /* ranks along an axis: those of four fit a long */

static const char ONE[] = "1d:";    /* how what is shared over an axis is cut: along one dimension */

static int find(const struct sgrad_mesh *mesh, const char *name) {
    for (int i = 0; i < mesh->axes; i++)
        if (!strcmp(mesh->axis[i].name, name)) return i;
    return -1;
}

/* One "NAME=N", or "NAME=1d:N", of LENGTH characters. */
static bool add_axis(struct sgrad_mesh *mesh, const char *text, size_t length) {
    const char *equals = memchr(text, '=', length);
    const size_t name = equals ? (size_t)(equals - text) : 0;
    struct sgrad_axis axis = { .ranks = 0 };
    if (!name || name >= sizeof axis.name || mesh->axes == SGRAD_MAX_AXES) return false;
    memcpy(axis.name, text, name);
    const char *digit = equals + 1;
    if (!strncmp(digit, ONE, strlen(ONE))) digit += strlen(ONE);
    for (; digit < text + length; digit++) {
        if (!isdigit((unsigned char)*digit) || axis.ranks > MOST) return false;
        axis.ranks = 10 * axis.ranks + *digit - '0';
    }
    if (!axis.ranks || axis.ranks > MOST || find(mesh, axis.name) >= 0) return false;
    mesh->axis[mesh->axes++] = axis;
    return true;
}

int sgrad_mesh_parse(const char *text, const char *rest, struct sgrad_mesh *mesh) {
    struct sgrad_mesh named = { 0 }, whole = { .axes = 1 };
    bool good = true;
    for (const char *at = text; good; at++) {
        const size_t length = strcspn(at, ",");
        good = add_axis(&named, at, length);
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
        return sgrad_fail(SGRAD_EINVAL, "mesh '%s': takes AXIS=RANKS, some of them with commas between: %s=2,tensor=1d:2", text,
                          rest);
    *mesh = whole;
    return 0;
}

int sgrad_mesh_fit(struct sgrad_mesh *mesh, int ranks) {
    long named = 1;
    int rest = -1;
    for (int i = 0; i < mesh->axes; i++) {
        if (mesh->axis[i].ranks) named *= mesh->axis[i].ranks;
        else rest = i;
    }
    if (rest < 0 ? named != ranks : ranks % named != 0)
        return sgrad_fail(SGRAD_EINVAL, "the mesh asks for %s%ld ranks, and %d %s here: mpirun -n %ld",
                          rest < 0 ? "" : "a multiple of ", named, ranks, sgrad_plural(ranks, "is", "are"), named);
    if (rest >= 0) mesh->axis[rest].ranks = (int)(ranks / named);
    return 0;
}

const struct sgrad_axis *sgrad_mesh_axis(const struct sgrad_mesh *mesh, const char *name) {
    const int i = mesh ? find(mesh, name) : -1;
    return i < 0 ? NULL : &mesh->axis[i];
}

/* From one rank along the axis to the next. */
static int stride(const struct sgrad_mesh *mesh, const struct sgrad_axis *axis) {
    int ranks = 1;
    for (const struct sgrad_axis *a = axis + 1; a < mesh->axis + mesh->axes; a++) ranks *= a->ranks;
    return ranks;
}

int sgrad_mesh_place(const struct sgrad_mesh *mesh, const struct sgrad_axis *axis, int rank) {
    return rank / stride(mesh, axis) % axis->ranks;
}

struct sgrad_group sgrad_mesh_group(const struct sgrad_mesh *mesh, const struct sgrad_axis *axis, int rank, int *member) {
    const int apart = stride(mesh, axis), first = rank - sgrad_mesh_place(mesh, axis, rank) * apart;
    for (int place = 0; place < axis->ranks; place++) member[place] = first + place * apart;
    return (struct sgrad_group){ axis->ranks, member };
}
