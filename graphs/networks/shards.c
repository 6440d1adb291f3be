/* shards.c: parameters that are split over the ranks of an axis, values that only some ranks store, and the whole values of both.
 *
 * A parameter (4,3), split over two ranks along dimension 0, and another one (2,4), split along dimension 1:
 *
 *     whole   a b c           shard of rank 0   a b c        whole   a b c d       shard of rank 0   a b       of 1   c d
 *             d e f                             d e f                e f g h                         e f              g h
 *             g h i                   of 1      g h i
 *             j k l                             j k l
 *
 * If the first one had two sections, rank 0 would store a b c and g h i. A parameter that is split several times is split by each
 * axis after the other. If the second one were also split along dimension 0 over two other ranks, the rank with index 0 on both
 * axes would store a b. A rank stores nothing of a parameter that only layers of other stages use (stages.c).
 *
 * Files contain whole values (weights.c). A whole value is in memory only after a file was read, or before one is written. */
#include "graphs/networks/graph.h"

#include <stdlib.h>
#include <string.h>

struct sgrad_shape sgrad__whole_shape(const struct sgrad__parameter *parameter) {
    struct sgrad_shape shape = parameter->kept_shape;
    for (int c = 0; c < parameter->cuts; c++) shape.dim[parameter->cut[c].dimension] *= parameter->cut[c].axis->ranks;
    return shape;
}

unsigned sgrad__part_axes(const struct sgrad_graph *graph, const struct sgrad__parameter *parameter) {
    unsigned axes = 0;
    for (int c = 0; c < parameter->cuts; c++) axes |= sgrad_mesh_bit(&graph->mesh, parameter->cut[c].axis);
    return axes;
}

/* Returns the index along dimension D of the whole for index I of RANK's shard. */
static int64_t place_in_whole(const struct sgrad_graph *graph, const struct sgrad__parameter *parameter, int rank, int d,
                              int64_t i) {
    int64_t length = parameter->kept_shape.dim[d];
    for (int c = parameter->cuts - 1; c >= 0; c--) {
        const struct sgrad__cut *cut = &parameter->cut[c];
        if (cut->dimension != d) continue;
        const int64_t run = length / cut->sections,
                      place = sgrad_mesh_index(&graph->mesh, sgrad_mesh_bit(&graph->mesh, cut->axis), rank);
        i = i / run * run * cut->axis->ranks + place * run + i % run;
        length *= cut->axis->ranks;
    }
    return i;
}

/* Calls WHAT for each row of RANK's shard: elements AT[0], AT[1], … of ROW, a row of the whole, are those of the shard, in
 * order. */
static void for_rows(const struct sgrad_graph *graph, const struct sgrad__parameter *parameter, int rank, float *whole,
                     float *part, void (*what)(float *part, const int64_t *at, int64_t count, float *row)) {
    const struct sgrad_shape shape = sgrad__whole_shape(parameter), *kept = &parameter->kept_shape;
    const int last = kept->rank - 1;
    const int64_t count = kept->dim[last], rows = sgrad_shape_count(kept) / count;
    int64_t *at = sgrad_xcalloc((size_t)count, sizeof *at);
    for (int64_t i = 0; i < count; i++) at[i] = place_in_whole(graph, parameter, rank, last, i);
    for (int64_t r = 0; r < rows; r++) {
        int64_t row = 0, unit = shape.dim[last], rest = r;
        for (int d = last - 1; d >= 0; d--) {
            row += place_in_whole(graph, parameter, rank, d, rest % kept->dim[d]) * unit;
            rest /= kept->dim[d];
            unit *= shape.dim[d];
        }
        what(part + r * count, at, count, whole + row);
    }
    free(at);
}

static void take(float *part, const int64_t *at, int64_t count, float *row) {
    for (int64_t i = 0; i < count; i++) part[i] = row[at[i]];
}

static void put(float *part, const int64_t *at, int64_t count, float *row) {
    for (int64_t i = 0; i < count; i++) row[at[i]] = part[i];
}

void sgrad__part_take(const struct sgrad_graph *graph, const struct sgrad__parameter *parameter, int rank, const float *whole,
                      float *part) {
    for_rows(graph, parameter, rank, (float *)whole, part, take);
}

void sgrad__part_put(const struct sgrad_graph *graph, const struct sgrad__parameter *parameter, int rank, const float *part,
                     float *whole) {
    for_rows(graph, parameter, rank, whole, (float *)part, put);
}

struct sgrad_group sgrad__holders(const struct sgrad_graph *graph, const struct sgrad__parameter *parameter, int rank,
                                  int *member) {
    struct sgrad_group all =
        sgrad_mesh_group(&graph->mesh, sgrad_mesh_all(&graph->mesh) & ~sgrad__part_axes(graph, parameter), rank, member);
    int count = 0;
    for (int i = 0; i < all.count; i++)
        if (sgrad__parameter_on(graph, parameter, member[i])) member[count++] = member[i];
    return (struct sgrad_group){ count, member };
}

int sgrad__item_take(const struct sgrad_graph *graph, const struct sgrad__item *item) {
    if (!item->tensor) return 0;
    if (!item->split) return sgrad_tensor_write(item->tensor, *item->whole);
    const size_t bytes = sgrad_view_bytes(&item->tensor->view), count = (size_t)sgrad_shape_count(&item->split->kept_shape);
    float *part = sgrad_xcalloc(count, sizeof *part), *share = sgrad_xcalloc(1, bytes);
    sgrad__part_take(graph, item->split, graph->rank, *item->whole, part);
    memcpy(share, part + item->share.first, item->share.ranks ? (size_t)item->share.count * sizeof *share : bytes);
    int error = sgrad_tensor_write(item->tensor, share);
    free(part);
    free(share);
    return error;
}

void sgrad__wholes_free(struct sgrad_graph *graph) {
    for (int i = 0; i < graph->parameter_count; i++) {
        free(graph->parameter[i].whole);
        graph->parameter[i].whole = NULL;
    }
}
