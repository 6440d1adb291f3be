/* partitions.c: divides tensors into shards by StarPU's asynchronous partitioning (partitions.h). */
#include "config.h"
#include "runtime/partitions.h"

#include <assert.h>
#include <stdlib.h>
#include <starpu.h>

/* Large shards are whole pages, so that they can be moved to and from a file without a copy (spill.h). */
int64_t sgrad_part_first(int64_t count, int parts, int part) {
    enum { LINE = 16, PAGE = 1024, LARGE = 64 * PAGE };     /* floats */
    const int64_t unit = count / parts >= LARGE ? PAGE : LINE;
    return part == parts ? count : count / unit * part / parts * unit;
}

struct sgrad_view sgrad_part_view(int64_t count, int parts, int part) {
    const int64_t elements = sgrad_part_first(count, parts, part + 1) - sgrad_part_first(count, parts, part);
    return (struct sgrad_view){ SGRAD_F32, { 1, { elements } } };
}

/* Filter function of StarPU: sets the address of shard ID in one memory node's copy of the tensor, if the copy is allocated. */
static void find_part(void *father, void *child, struct starpu_data_filter *filter, unsigned id, unsigned parts) {
    const struct starpu_variable_interface *whole = father;
    struct starpu_variable_interface *part = child;
    const int64_t count = (int64_t)(whole->elemsize / sizeof(float));
    const size_t start = (size_t)sgrad_part_first(count, (int)parts, (int)id) * sizeof(float);
    const struct sgrad_view view = sgrad_part_view(count, (int)parts, (int)id);
    (void)filter;
    *part = *whole;
    part->elemsize = sgrad_view_bytes(&view);
    if (!whole->dev_handle) return;
    if (whole->ptr) part->ptr = whole->ptr + start;
    part->offset = whole->offset + start;
}

void sgrad_tensor_partition(struct sgrad_tensor *whole, int parts, struct sgrad_tensor **part) {
    struct starpu_data_filter filter = { .filter_func = find_part, .nchildren = (unsigned)parts };
    starpu_data_handle_t *handle = sgrad_xcalloc((size_t)parts, sizeof *handle);
    const int64_t count = sgrad_shape_count(&whole->view.shape);
    assert(whole->view.dtype == SGRAD_F32 && whole->lifetime == SGRAD_PERSISTENT);
    starpu_data_partition_plan(whole->handle, &filter, handle);
    for (int i = 0; i < parts; i++) {
        part[i] = sgrad_xcalloc(1, sizeof **part);
        *part[i] = (struct sgrad_tensor){ .name = sgrad_format("%s part %d", whole->name, i), .handle = handle[i],
                                          .view = sgrad_part_view(count, parts, i), .lifetime = SGRAD_PERSISTENT,
                                          .mapped = whole->mapped,
                                          .at = whole->at + sgrad_part_first(count, parts, i) * (int64_t)sizeof(float) };
        assert(sgrad_view_bytes(&part[i]->view) > 0);
        starpu_data_set_name(handle[i], part[i]->name);
    }
    free(handle);
}

void sgrad_tensor_unpartition(struct sgrad_tensor *whole, int parts, struct sgrad_tensor **part) {
    starpu_data_handle_t *handle = sgrad_xcalloc((size_t)parts, sizeof *handle);
    for (int i = 0; i < parts; i++) {
        handle[i] = part[i]->handle;
        free(part[i]->name);
        free(part[i]);
    }
    starpu_data_partition_clean(whole->handle, (unsigned)parts, handle);
    free(handle);
}
