/* parts.c: parameters that are split over the ranks of an axis, what some ranks keep for all, and the wholes of both.
 *
 * A parameter (4,3), split over two ranks along dimension 0, and along another one of (2,4):
 *
 *     whole   a b c            part of place 0   a b c        whole   a b c d       part of place 0   a b       of 1   c d
 *             d e f                              d e f                e f g h                         e f              g h
 *             g h i                   of 1       g h i
 *             j k l                              j k l
 *
 * The first one, were it two sections, would have a b c and g h i for place 0.
 *
 * Files hold wholes (weights.c). A whole is in memory where a file was read, or before one is written, and no longer. */
#include "graphs/networks/graph.h"

#include <stdlib.h>
#include <string.h>

struct sgrad_shape sgrad__whole_shape(const struct sgrad__parameter *p) {
    struct sgrad_shape shape = p->is.shape;
    if (p->axis) shape.dim[p->dimension] *= p->axis->ranks;
    return shape;
}

/* Elements of a part that lie together in the whole. */
static int64_t run_of(const struct sgrad__parameter *p) {
    int64_t count = 1;
    for (int d = p->dimension; d < p->is.shape.rank; d++) count *= p->is.shape.dim[d];
    return count / p->sections;
}

void sgrad__part_take(const struct sgrad__parameter *p, int place, const float *whole, float *part) {
    const int64_t run = run_of(p), rows = sgrad_shape_count(&p->is.shape) / run;
    for (int64_t i = 0; i < rows; i++)
        memcpy(part + i * run, whole + (i * p->axis->ranks + place) * run, (size_t)run * sizeof *part);
}

void sgrad__part_put(const struct sgrad__parameter *p, int place, const float *part, float *whole) {
    const int64_t run = run_of(p), rows = sgrad_shape_count(&p->is.shape) / run;
    for (int64_t i = 0; i < rows; i++)
        memcpy(whole + (i * p->axis->ranks + place) * run, part + i * run, (size_t)run * sizeof *part);
}

int sgrad__item_take(const struct sgrad_graph *g, const struct sgrad__item *item) {
    if (!item->split) return item->tensor ? sgrad_tensor_write(item->tensor, *item->whole) : 0;
    float *part = sgrad_alloc(1, sgrad_view_bytes(&item->tensor->view));
    sgrad__part_take(item->split, sgrad_mesh_place(&g->mesh, item->split->axis, g->rank), *item->whole, part);
    int error = sgrad_tensor_write(item->tensor, part);
    free(part);
    return error;
}

void sgrad__wholes_free(struct sgrad_graph *g) {
    for (int i = 0; i < g->parameter_count; i++) {
        const struct sgrad__parameter *p = &g->parameter[i];
        for (int j = 0; p->whole && (j == 0 || p->kept[j - 1]); j++) {
            free(p->whole[j]);
            p->whole[j] = NULL;
        }
    }
    for (struct sgrad__kept *k = g->kept; k < g->kept + g->kept_count; k++) {
        free(k->whole);
        k->whole = NULL;
    }
}
